/* What the bench's programs share: the clock, the stamp that travels in each message, and how they report. */
#pragma once
#define _GNU_SOURCE
#include <dbus/dbus.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull

/* 20 bytes: "ferr", when it was sent, which of its phase it is, its phase, its device. Travels as hex. */
#define STAMP_SIZE 20
#define STAMP_MAGIC "ferr"
#define STAMP_MAGIC_HEX "66657272"

typedef struct {
    uint64_t time;
    uint32_t number;
    uint16_t phase, device;
} Stamp;

static inline uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static inline void stamp_write(uint8_t *to, Stamp stamp) {
    memcpy(to, STAMP_MAGIC, 4);
    memcpy(to + 4, &stamp.time, 8);
    memcpy(to + 12, &stamp.number, 4);
    memcpy(to + 16, &stamp.phase, 2);
    memcpy(to + 18, &stamp.device, 2);
}

/* Ends the program with a sentence. */
static inline void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* One event as a line of JSON on standard output. */
static inline void __attribute__((format(printf, 1, 2))) report(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

/* Lines of standard input, without waiting. */
typedef struct {
    char text[4096];
    size_t count;
} Lines;

/* Reads what is there; false at the end. */
static inline bool lines_fill(Lines *lines) {
    ssize_t count = read(0, lines->text + lines->count, sizeof lines->text - 1 - lines->count);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    lines->count += (size_t)count;
    return count > 0;
}

/* Takes the next whole line into `line`; false where there is none. */
static inline bool lines_take(Lines *lines, char *line, size_t size) {
    char *end = memchr(lines->text, '\n', lines->count);
    if (!end) return false;
    size_t length = (size_t)(end - lines->text);
    snprintf(line, size, "%.*s", (int)length, lines->text);
    lines->count -= length + 1;
    memmove(lines->text, end + 1, lines->count);
    return true;
}

static inline char *hex(char *to, const uint8_t *bytes, int count) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < count; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
    *to = 0;
    return to;
}
