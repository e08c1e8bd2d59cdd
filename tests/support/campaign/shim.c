/* Faults below the C library's door: the n-th call of a kind on a file of the store fails, lies, is cut short, or kills.
 *
 * Preloaded (LD_PRELOAD) into a process that arms it, through ctypes, when the calls that follow are to be counted. A few plans
 * can be in force at once; the first one that has something for a call decides. Python asks for the names with 64 where the
 * system has both.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum call { WRITE, SYNC, CUT, RENAME, UNLINK, CREATE, READ, ANY };
enum action { NOTHING = -1, FAIL, SHORT, LIE, KILL_BEFORE, KILL_AFTER, TEAR };

struct plan {
    char suffix[64]; /* of the paths that count */
    int call, action;
    long first, times; /* of the calls that count, from 1 */
    long argument;     /* errno, or bytes */
    long count;
};

static struct plan plans[4];
static int plan_count;
static char root[4096];      /* only files below it count */
static long room = -1;       /* bytes that the disk still takes; -1: as many as it likes */

void shim_arm(const char *below, const char *suffix, int call, int action, long first, long times, long argument) {
    if (plan_count == (int)(sizeof plans / sizeof *plans)) return;
    struct plan *plan = &plans[plan_count++];
    snprintf(root, sizeof root, "%s", below);
    snprintf(plan->suffix, sizeof plan->suffix, "%s", suffix);
    plan->call = call, plan->action = action, plan->first = first, plan->times = times, plan->argument = argument;
    plan->count = 0;
}

/* How many calls the first plan has counted. */
long shim_count(void) { return plans[0].count; }

void shim_leave_room(const char *below, long bytes) {
    snprintf(root, sizeof root, "%s", below);
    room = bytes;
}

static int is_below_root(const char *path) { return *root && strncmp(path, root, strlen(root)) == 0; }

static int ends_with(const char *path, const char *suffix) {
    size_t length = strlen(path), end = strlen(suffix);
    return length >= end && strcmp(path + length - end, suffix) == 0;
}

/* The path of an open file, empty where it has none. */
static const char *path_of(int descriptor, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, size - 1);
    path[length < 0 ? 0 : length] = 0;
    return path;
}

static int is_of(const struct plan *plan, enum call call, const char *path) {
    int kind = plan->call == (int)call || (plan->call == ANY && call != READ);
    return kind && ends_with(path, plan->suffix);
}

static void die(void) { kill(getpid(), SIGKILL); }

/* Counts a call, and begins what a plan has for it. A failure is in errno. */
static struct plan begin(enum call call, const char *path) {
    struct plan chosen = {.action = NOTHING};
    if (!is_below_root(path)) return chosen;
    for (int i = 0; i < plan_count; i++) {
        struct plan *plan = &plans[i];
        if (!is_of(plan, call, path)) continue;
        plan->count++;
        if (chosen.action == NOTHING && plan->count >= plan->first && plan->count < plan->first + plan->times) chosen = *plan;
    }
    if (chosen.action == KILL_BEFORE) die();
    if (chosen.action == FAIL) errno = (int)chosen.argument;
    return chosen;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* A call that returns 0 when it succeeds. */
#define GUARDED(call, path, made)                                \
    do {                                                         \
        if (!*root) return made;                                 \
        struct plan plan = begin(call, path);                    \
        if (plan.action == FAIL) return -1;                      \
        int result = plan.action == LIE ? 0 : (made);            \
        if (plan.action == KILL_AFTER) die();                    \
        return result;                                           \
    } while (0)

#define GUARDED_FILE(call, descriptor, made)                                                    \
    do {                                                                                        \
        char path[4096];                                                                        \
        GUARDED(call, *root ? path_of(descriptor, path, sizeof path) : "", made);               \
    } while (0)

/* ---- a disk with little room --------------------------------------------------------------------------------------------- */

static long min(long a, long b) { return a < b ? a : b; }

static long size_of_file(int descriptor) {
    struct stat status;
    return fstat(descriptor, &status) == 0 ? status.st_size : 0;
}

static long size_of(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : 0;
}

/* How many of `size` bytes at `position` fit: what lies in the file already costs nothing. */
static long fitting(int descriptor, long size, long position) {
    long end = size_of_file(descriptor), growth = position + size - (end > position ? end : position);
    if (room < 0 || growth <= 0) return size;
    long taken = min(growth, room);
    room -= taken;
    return size - (growth - taken);
}

static void give_back(long bytes) {
    if (room >= 0 && bytes > 0) room += bytes;
}

/* ---- calls ----------------------------------------------------------------------------------------------------------------- */

static ssize_t write_some(int descriptor, const void *data, size_t size, off64_t position) {
    return NEXT(pwrite64)(descriptor, data, size, position);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t position) {
    char path[4096];
    if (!*root || !is_below_root(path_of(descriptor, path, sizeof path))) return write_some(descriptor, data, size, position);
    struct plan plan = begin(WRITE, path);
    if (plan.action == FAIL) return -1;
    if (plan.action == LIE) return (ssize_t)size;
    long wanted = plan.action == SHORT || plan.action == TEAR ? min(plan.argument, (long)size) : (long)size;
    long fits = fitting(descriptor, wanted, position);
    if (fits == 0 && wanted > 0) {
        errno = ENOSPC;
        return -1;
    }
    ssize_t written = write_some(descriptor, data, (size_t)fits, position);
    if (plan.action == TEAR || plan.action == KILL_AFTER) die();
    return written;
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t position) { return pwrite64(descriptor, data, size, position); }

int fsync(int descriptor) { GUARDED_FILE(SYNC, descriptor, NEXT(fsync)(descriptor)); }

int fdatasync(int descriptor) { GUARDED_FILE(SYNC, descriptor, NEXT(fdatasync)(descriptor)); }

static int cut(int descriptor, off64_t size) {
    char path[4096];
    if (room >= 0 && is_below_root(path_of(descriptor, path, sizeof path))) give_back(size_of_file(descriptor) - size);
    return NEXT(ftruncate64)(descriptor, size);
}

int ftruncate64(int descriptor, off64_t size) { GUARDED_FILE(CUT, descriptor, cut(descriptor, size)); }

int ftruncate(int descriptor, off_t size) { return ftruncate64(descriptor, size); }

static int move(const char *source, const char *target) {
    if (is_below_root(target)) give_back(size_of(target));
    return NEXT(rename)(source, target);
}

int rename(const char *source, const char *target) { GUARDED(RENAME, target, move(source, target)); }

static int drop(const char *path) {
    if (is_below_root(path)) give_back(size_of(path));
    return NEXT(unlink)(path);
}

int unlink(const char *path) { GUARDED(UNLINK, path, drop(path)); }

int mkdir(const char *path, mode_t mode) { GUARDED(CREATE, path, NEXT(mkdir)(path, mode)); }

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (!*root || !(flags & O_CREAT)) return NEXT(open64)(path, flags, mode);
    struct plan plan = begin(CREATE, path);
    if (plan.action == FAIL) return -1;
    int descriptor = NEXT(open64)(path, flags, mode);
    if (plan.action == KILL_AFTER) die();
    return descriptor;
}

ssize_t preadv64v2(int descriptor, const struct iovec *parts, int count, off64_t position, int flags) {
    char path[4096];
    if (*root && begin(READ, path_of(descriptor, path, sizeof path)).action == FAIL) return -1;
    return NEXT(preadv64v2)(descriptor, parts, count, position, flags);
}

ssize_t pread64(int descriptor, void *data, size_t size, off64_t position) {
    char path[4096];
    if (*root && begin(READ, path_of(descriptor, path, sizeof path)).action == FAIL) return -1;
    return NEXT(pread64)(descriptor, data, size, position);
}

ssize_t pread(int descriptor, void *data, size_t size, off_t position) { return pread64(descriptor, data, size, position); }

ssize_t preadv64(int descriptor, const struct iovec *parts, int count, off64_t position) {
    return preadv64v2(descriptor, parts, count, position, 0);
}
