/* Stands between the program and the C library: a machine with bad sectors, and with a clock that is wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Whether the file's path has this in it. */
static int is_bad(int fd) {
    const char *part = getenv("MACHINE_UNREADABLE");
    char link[64], path[4096];
    if (part == NULL) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0) return 0;
    path[len] = 0;
    return strstr(path, part) != NULL;
}

ssize_t read(int fd, void *buf, size_t len) {
    if (is_bad(fd)) return errno = EIO, -1;
    return syscall(SYS_read, fd, buf, len);
}

ssize_t pread64(int fd, void *buf, size_t len, off_t at) {
    if (is_bad(fd)) return errno = EIO, -1;
    return syscall(SYS_pread64, fd, buf, len, at);
}

/* Off by so many seconds. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    const char *off = getenv("MACHINE_CLOCK");
    if (failed == 0 && clock == CLOCK_REALTIME && off != NULL) now->tv_sec += atoll(off);
    return failed;
}
