/* What the micro-benchmarks count: allocations, and instructions where the processor counts them. */
#pragma once
#include <stdint.h>

/// Allocations of this process so far, whoever made them: malloc(3) and its kin.
uint64_t counters_allocations(void);

/// Runs `body` with `context`. Nothing is inlined into it, so that callgrind can count inside it alone.
void counters_region(void (*body)(void *), void *context);

/// Begins to count instructions of this thread in user mode; -1 where the machine cannot. Source: `perf_event_open(2)`.
int counters_open_instructions(void);
/// The count so far.
uint64_t counters_instructions(int descriptor);
