// Linux calls that Glibc's module does not show.
#pragma once
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

// errno is a macro on a function: one typed name for it.
static inline int clinux_errno(void) { return errno; }

// pidfd_open(2): a descriptor that becomes readable when the process ends.
static inline int clinux_pidfd_open(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

// posix_spawn(3) in a session of its own, with none of our descriptors from `first` on. Source: posix_spawn(3),
// POSIX_SPAWN_SETSID; posix_spawn_file_actions_addclosefrom_np of glibc 2.34.
int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions, int first);
static inline int clinux_spawn_close_from(posix_spawn_file_actions_t *actions, int first) {
    return posix_spawn_file_actions_addclosefrom_np(actions, first);
}
static const short clinux_spawn_setsid = 0x80;

// epoll_ctl(2) with the 64-bit user data, whose union Swift cannot name.
static inline int clinux_epoll_ctl(int epoll, int operation, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data = {.u64 = data}};
    return epoll_ctl(epoll, operation, fd, &event);
}

static inline uint64_t clinux_epoll_data(const struct epoll_event *event) { return event->data.u64; }

// prctl(2) is variadic: the calling thread's name, at most 15 bytes.
static inline void clinux_set_thread_name(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

// These are enumerators on one system and macros on another.
static const int clinux_sfd_flags = SFD_CLOEXEC | SFD_NONBLOCK;
static const int clinux_efd_flags = EFD_CLOEXEC | EFD_NONBLOCK;
static const int clinux_epoll_cloexec = EPOLL_CLOEXEC;

// The first fields of struct dl_phdr_info, which is shown with _GNU_SOURCE only; other modules have the system's headers
// without that.
struct clinux_object {
    ElfW(Addr) dlpi_addr;
    const char *dlpi_name;
    const ElfW(Phdr) *dlpi_phdr;
    ElfW(Half) dlpi_phnum;
};
extern int dl_iterate_phdr(int (*callback)(struct clinux_object *object, size_t size, void *context), void *context);

// Lets go of the mapped pages of one object's code and constants; see clinux_release_code.
static inline int clinux_release_object(struct clinux_object *object, size_t size, void *context) {
    const uintptr_t mask = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
    (void)size;
    (void)context;
    for (int index = 0; index < object->dlpi_phnum; index++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[index];
        // What may be written may have been: only the kernel's copy of the file can be read again.
        if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W)) continue;
        uintptr_t start = (uintptr_t)object->dlpi_addr + segment->p_vaddr;
        uintptr_t end = (start + segment->p_memsz + mask) & ~mask;
        start &= ~mask;
        madvise((void *)start, end - start, MADV_DONTNEED);
    }
    return 0;
}

// dl_iterate_phdr(3), madvise(2): the code of the program and its libraries leaves the process; it stays in the page
// cache, and what runs again is mapped again.
static inline void clinux_release_code(void) { dl_iterate_phdr(clinux_release_object, 0); }

// Where Swift's runtime puts the jobs of no actor, in place of its thread pool (swift/Runtime/Concurrency.h).
typedef __attribute__((swiftcall)) void (*clinux_enqueue_job)(void *job);
typedef __attribute__((swiftcall)) void (*clinux_enqueue_hook)(void *job, clinux_enqueue_job original);
extern clinux_enqueue_hook swift_task_enqueueGlobal_hook;

// Defined in EventLoop/GlobalJobs.swift.
extern void eventloop_enqueue_global_job(void *job);

static inline __attribute__((swiftcall)) void clinux_enqueue_on_loop(void *job, clinux_enqueue_job original) {
    (void)original;
    eventloop_enqueue_global_job(job);
}

static inline void clinux_take_global_jobs(void) { swift_task_enqueueGlobal_hook = clinux_enqueue_on_loop; }
