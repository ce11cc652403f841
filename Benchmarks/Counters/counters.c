#define _GNU_SOURCE
#include "counters.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

// glibc lets a program replace malloc by defining it, and keeps its own under these names. Source: the glibc manual,
// "Replacing malloc".
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

// Only the thread that measures is of interest, and it is the only one that allocates while it does.
static uint64_t allocations;

uint64_t counters_allocations(void) { return allocations; }

void *malloc(size_t size) {
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    allocations++;
    return __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size) {
    allocations++;
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **result, size_t alignment, size_t size) {
    void *made = memalign(alignment, size);
    if (!made) return ENOMEM;
    *result = made;
    return 0;
}

void free(void *memory) { __libc_free(memory); }

__attribute__((noinline)) void counters_region(void (*body)(void *), void *context) {
    body(context);
    __asm__ volatile("" ::: "memory"); // no tail call: the region ends after its body
}

int counters_open_instructions(void) {
    struct perf_event_attr attributes = {
        .type = PERF_TYPE_HARDWARE,
        .size = sizeof attributes,
        .config = PERF_COUNT_HW_INSTRUCTIONS,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

uint64_t counters_instructions(int descriptor) {
    uint64_t count = 0;
    if (read(descriptor, &count, sizeof count) != sizeof count) return 0;
    return count;
}
