// Linux calls that Glibc's module does not show.
#pragma once
#include <errno.h>
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
