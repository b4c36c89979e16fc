/* Disturbs the file operations of the processes that preload it, below one folder.

   DRILL_BELOW    the folder
   DRILL_STATE    a file of 16 bytes, shared by all processes: operations so far, and 1 once reached
   DRILL_AT       number of the operation that is disturbed; 0: operations are only counted
   DRILL_HOW      ENOSPC or EIO: the operation fails so
                  KILL: this process is killed before it; KILL_AFTER: after it
                  STOP: this process stops for good, so that the drill can kill every process at once
                  READ: a read fails with EIO, and only reads are counted
                  CLOCK: from then on the clock is wrong
   DRILL_LASTS    if set, all later operations fail, too
   DRILL_SECONDS  by how much the clock is wrong, from the beginning or from the operation on
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum how { COUNT, FAIL, KILL, KILL_AFTER, STOP, CLOCK };
struct state { _Atomic long operations, reached; };

static struct state *state;
static char below[PATH_MAX];
static size_t below_length;
static long at, wrong_seconds;
static int lasts, reads, error_number;
static enum how how;
static __thread int inside;

__attribute__((constructor)) static void start(void) {
    const char *folder = getenv("DRILL_BELOW"), *file = getenv("DRILL_STATE");
    const char *number = getenv("DRILL_AT"), *name = getenv("DRILL_HOW");
    const char *seconds = getenv("DRILL_SECONDS");
    wrong_seconds = seconds ? atol(seconds) : 0;
    if (!folder || !file || !name) return;
    below_length = strlen(folder);
    if (below_length >= sizeof below) return;
    memcpy(below, folder, below_length + 1);
    at = number ? atol(number) : 0;
    lasts = getenv("DRILL_LASTS") != NULL;
    reads = !strcmp(name, "READ");
    error_number = strcmp(name, "ENOSPC") ? EIO : ENOSPC;
    how = !strcmp(name, "KILL") ? KILL : !strcmp(name, "KILL_AFTER") ? KILL_AFTER
        : !strcmp(name, "STOP") ? STOP : !strcmp(name, "CLOCK") ? CLOCK : at ? FAIL : COUNT;
    int handle = open(file, O_RDWR | O_CLOEXEC);
    if (handle < 0) return;
    void *shared = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    if (shared != MAP_FAILED) state = shared;
    close(handle);
}

static void *plain(const char *name) { return dlsym(RTLD_NEXT, name); }

static int is_below_text(const char *path) {
    return !strncmp(path, below, below_length) && (path[below_length] == '/' || !path[below_length]);
}

static int is_below(int folder, const char *path) {
    char from[64], whole[PATH_MAX];
    if (!state || !path) return 0;
    if (*path == '/') return is_below_text(path);
    if (folder == AT_FDCWD) {
        if (!getcwd(whole, sizeof whole)) return 0;
    } else {
        snprintf(from, sizeof from, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(from, whole, sizeof whole - 1);
        if (length < 0) return 0;
        whole[length] = 0;
    }
    if (is_below_text(whole)) return 1;
    size_t length = strlen(whole);
    if (length + strlen(path) + 2 > sizeof whole) return 0;
    whole[length] = '/';
    strcpy(whole + length + 1, path);
    return is_below_text(whole);
}

static int handle_is_below(int handle) {
    char from[64], whole[PATH_MAX];
    if (!state) return 0;
    snprintf(from, sizeof from, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(from, whole, sizeof whole - 1);
    if (length <= 0) return 0;
    whole[length] = 0;
    return is_below_text(whole);
}

/* Counts an operation. Returns 0: do it; 1: let it fail; 2: do it and end this process. */
static int disturbed(int counts) {
    if (!counts || inside) return 0;
    long now = atomic_fetch_add(&state->operations, 1) + 1;
    if (!at || now < at || (now > at && !lasts)) return 0;
    atomic_store(&state->reached, 1);
    switch (how) {
    case KILL: kill(getpid(), SIGKILL); for (;;) pause();
    case STOP: inside = 1; for (;;) pause();
    case KILL_AFTER: return 2;
    case FAIL: errno = error_number; return 1;
    default: return 0;
    }
}

#define AROUND(type, fails, name, counts, declared, given)                     \
    type name declared {                                                       \
        static type(*real) declared;                                           \
        if (!real) real = plain(#name);                                        \
        int end = disturbed(counts);                                           \
        if (end == 1) return fails;                                            \
        type result = real given;                                              \
        if (end == 2) { kill(getpid(), SIGKILL); for (;;) pause(); }           \
        return result;                                                         \
    }
#define WRITES(type, fails, name, counts, declared, given) \
    AROUND(type, fails, name, !reads && (counts), declared, given)

WRITES(ssize_t, -1, write, handle_is_below(fd), (int fd, const void *data, size_t size), (fd, data, size))
WRITES(ssize_t, -1, writev, handle_is_below(fd), (int fd, const struct iovec *parts, int count), (fd, parts, count))
WRITES(ssize_t, -1, pwrite, handle_is_below(fd), (int fd, const void *data, size_t size, off_t offset), (fd, data, size, offset))
WRITES(ssize_t, -1, pwrite64, handle_is_below(fd), (int fd, const void *data, size_t size, off64_t offset), (fd, data, size, offset))
WRITES(ssize_t, -1, copy_file_range, handle_is_below(to), (int fd, off64_t *from, int to, off64_t *offset, size_t size, unsigned flags), (fd, from, to, offset, size, flags))
WRITES(ssize_t, -1, sendfile, handle_is_below(to), (int to, int fd, off_t *offset, size_t size), (to, fd, offset, size))
WRITES(ssize_t, -1, sendfile64, handle_is_below(to), (int to, int fd, off64_t *offset, size_t size), (to, fd, offset, size))
WRITES(int, -1, fsync, handle_is_below(fd), (int fd), (fd))
WRITES(int, -1, fdatasync, handle_is_below(fd), (int fd), (fd))
WRITES(int, -1, ftruncate, handle_is_below(fd), (int fd, off_t size), (fd, size))
WRITES(int, -1, ftruncate64, handle_is_below(fd), (int fd, off64_t size), (fd, size))
WRITES(int, -1, truncate, is_below(AT_FDCWD, path), (const char *path, off_t size), (path, size))
WRITES(int, -1, rename, is_below(AT_FDCWD, to), (const char *from, const char *to), (from, to))
WRITES(int, -1, renameat, is_below(there, to), (int here, const char *from, int there, const char *to), (here, from, there, to))
WRITES(int, -1, renameat2, is_below(there, to), (int here, const char *from, int there, const char *to, unsigned flags), (here, from, there, to, flags))
WRITES(int, -1, mkdir, is_below(AT_FDCWD, path), (const char *path, mode_t mode), (path, mode))
WRITES(int, -1, mkdirat, is_below(folder, path), (int folder, const char *path, mode_t mode), (folder, path, mode))
WRITES(int, -1, link, is_below(AT_FDCWD, to), (const char *from, const char *to), (from, to))
WRITES(int, -1, symlink, is_below(AT_FDCWD, to), (const char *from, const char *to), (from, to))
#define REMOVES (how != FAIL && how != COUNT) || error_number == EIO
WRITES(int, -1, unlink, (REMOVES) && is_below(AT_FDCWD, path), (const char *path), (path))
WRITES(int, -1, unlinkat, (REMOVES) && is_below(folder, path), (int folder, const char *path, int flags), (folder, path, flags))
WRITES(int, -1, rmdir, (REMOVES) && is_below(AT_FDCWD, path), (const char *path), (path))
#define READS(type, fails, name, counts, declared, given) \
    AROUND(type, fails, name, reads && (counts), declared, given)
READS(ssize_t, -1, read, handle_is_below(fd), (int fd, void *data, size_t size), (fd, data, size))
READS(ssize_t, -1, readv, handle_is_below(fd), (int fd, const struct iovec *parts, int count), (fd, parts, count))
READS(ssize_t, -1, pread, handle_is_below(fd), (int fd, void *data, size_t size, off_t offset), (fd, data, size, offset))
READS(ssize_t, -1, pread64, handle_is_below(fd), (int fd, void *data, size_t size, off64_t offset), (fd, data, size, offset))

#define CREATES(flags) (((flags) & (O_CREAT | O_TRUNC)) != 0)
#define OPENS(name, folder, declared, last, given)                             \
    int name declared {                                                        \
        static int (*real) declared;                                           \
        if (!real) real = plain(#name);                                        \
        mode_t mode = 0;                                                       \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                 \
            va_list more;                                                      \
            va_start(more, last);                                              \
            mode = va_arg(more, mode_t);                                       \
            va_end(more);                                                      \
        }                                                                      \
        int end = disturbed(!reads && CREATES(flags) && is_below(folder, path)); \
        if (end == 1) return -1;                                               \
        int result = real given;                                               \
        if (end == 2) { kill(getpid(), SIGKILL); for (;;) pause(); }           \
        return result;                                                         \
    }
OPENS(open, AT_FDCWD, (const char *path, int flags, ...), flags, (path, flags, mode))
OPENS(open64, AT_FDCWD, (const char *path, int flags, ...), flags, (path, flags, mode))
OPENS(openat, folder, (int folder, const char *path, int flags, ...), flags, (folder, path, flags, mode))
OPENS(openat64, folder, (int folder, const char *path, int flags, ...), flags, (folder, path, flags, mode))
AROUND(FILE *, NULL, fopen, !reads && *mode != 'r' && is_below(AT_FDCWD, path), (const char *path, const char *mode), (path, mode))
AROUND(FILE *, NULL, fopen64, !reads && *mode != 'r' && is_below(AT_FDCWD, path), (const char *path, const char *mode), (path, mode))

/* The clock: only the wall clock is wrong; a monotonic clock cannot be. */
static long wrong_by(void) {
    return how != CLOCK || (state && atomic_load(&state->reached)) ? wrong_seconds : 0;
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = plain("clock_gettime");
    int result = real(clock, found);
    if (!result && clock == CLOCK_REALTIME) found->tv_sec += wrong_by();
    return result;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = plain("gettimeofday");
    int result = real(found, zone);
    if (!result) found->tv_sec += wrong_by();
    return result;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
