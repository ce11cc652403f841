// A file as shared memory that may be cut off under us. Used by one Swift file alone: what is static here exists once for
// each object file.
#pragma once
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

// Of so many files at a time.
#define CMAPPING_LIMIT 4
struct cmapping_mapping {
    char *start;
    size_t length;
    int is_lost;
};

struct cmapping_state {
    struct cmapping_mapping mappings[CMAPPING_LIMIT];
    struct sigaction former;
    int takes_faults;
};

// Swift makes no variables of a header's, but those of its functions.
static inline struct cmapping_state *cmapping_state(void) {
    static struct cmapping_state state;
    return &state;
}

// SIGBUS where the file has no such page any more, or its disk no room for it: ordinary memory takes its place, and the
// access that failed is done again. Source: mmap(2), sigaction(2).
static void cmapping_fault(int number, siginfo_t *info, void *context) {
    int saved = errno;
    char *place = info->si_addr;
    (void)context;
    for (int index = 0; index < CMAPPING_LIMIT; index++) {
        struct cmapping_mapping *mapping = &cmapping_state()->mappings[index];
        char *start = __atomic_load_n(&mapping->start, __ATOMIC_ACQUIRE);
        if (!start || place < start || place >= start + mapping->length) continue;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        if (mmap(start, mapping->length, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) break;
        __atomic_store_n(&mapping->is_lost, 1, __ATOMIC_RELEASE);
        errno = saved;
        return;
    }
    // Not ours: it comes again, to whoever had it before.
    sigaction(number, &cmapping_state()->former, NULL);
    errno = saved;
}

// Maps the first `length` bytes of a file, also those beyond its present end, which may not be touched before the file is
// so long. An index for the functions below; -1 where that cannot be had.
static inline int cmapping_map(int file, size_t length) {
    if (!__atomic_exchange_n(&cmapping_state()->takes_faults, 1, __ATOMIC_ACQ_REL)) {
        struct sigaction action = {.sa_sigaction = cmapping_fault, .sa_flags = SA_SIGINFO | SA_RESTART};
        sigemptyset(&action.sa_mask);
        if (sigaction(SIGBUS, &action, &cmapping_state()->former) != 0) return -1;
    }
    for (int index = 0; index < CMAPPING_LIMIT; index++) {
        struct cmapping_mapping *mapping = &cmapping_state()->mappings[index];
        char *expected = NULL;
        if (!__atomic_compare_exchange_n(&mapping->start, &expected, (char *)-1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        void *start = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (start == MAP_FAILED) start = NULL;
        mapping->length = length;
        mapping->is_lost = 0;
        __atomic_store_n(&mapping->start, (char *)start, __ATOMIC_RELEASE);
        return start ? index : -1;
    }
    return -1;
}

// Whether the file has the 8 bytes now; `place` is a multiple of 8 and lies within its length.
static inline int cmapping_store(int index, size_t place, uint64_t value) {
    struct cmapping_mapping *mapping = &cmapping_state()->mappings[index];
    __atomic_store_n((uint64_t *)(mapping->start + place), value, __ATOMIC_RELEASE);
    return !__atomic_load_n(&mapping->is_lost, __ATOMIC_ACQUIRE);
}

static inline void cmapping_unmap(int index) {
    struct cmapping_mapping *mapping = &cmapping_state()->mappings[index];
    munmap(mapping->start, mapping->length);
    __atomic_store_n(&mapping->start, NULL, __ATOMIC_RELEASE);
}
