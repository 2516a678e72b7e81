/* Preloaded into a broker by scripts/machines/machines.py, which compiles it.
 *
 * Two things that cannot be done to one process from outside, read from 16 bytes of a mapped file:
 *   bytes 0-7   added to the wall clock, in nanoseconds; the monotonic clock is never touched
 *   byte  8     1: fdatasync, fsync, sync_file_range and syncfs report success and do nothing, and the kernel takes no
 *               asynchronous syncs (a broker then uses the others)
 *
 * The second is the control of the power cut: a harness that finds nothing wrong with a broker that never syncs would
 * find nothing wrong with any broker.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
    volatile int64_t clock_offset_ns;
    volatile uint8_t no_sync;
};

static const struct control none;
static const struct control *control = &none;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_fdatasync)(int);
static int (*real_fsync)(int);
static int (*real_syncfs)(int);
static long (*real_syscall)(long, ...);
static int (*real_sync_file_range)(int, off64_t, off64_t, unsigned int);

__attribute__((constructor)) static void begin(void)
{
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_syncfs = dlsym(RTLD_NEXT, "syncfs");
    real_syscall = dlsym(RTLD_NEXT, "syscall");
    real_sync_file_range = dlsym(RTLD_NEXT, "sync_file_range");
    const char *path = getenv("TORTURE_CONTROL");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *found = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (found != MAP_FAILED)
        control = found;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    /* Others may ask before our constructor has run. */
    if (!real_clock_gettime)
        real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real_clock_gettime(clock, out);
    int64_t offset = control->clock_offset_ns;
    if (status == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t all = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + offset;
        out->tv_sec = all / 1000000000;
        out->tv_nsec = all % 1000000000;
    }
    return status;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return status;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

int fdatasync(int fd) { return control->no_sync ? 0 : real_fdatasync(fd); }
int fsync(int fd) { return control->no_sync ? 0 : real_fsync(fd); }
int syncfs(int fd) { return control->no_sync ? 0 : real_syncfs(fd); }

int sync_file_range(int fd, off64_t position, off64_t size, unsigned int flags)
{
    return control->no_sync ? 0 : real_sync_file_range(fd, position, size, flags);
}

long syscall(long number, ...)
{
    long values[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        values[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number == SYS_io_submit && control->no_sync) {
        errno = EAGAIN;
        return -1;
    }
    if (!real_syscall)
        real_syscall = dlsym(RTLD_NEXT, "syscall");
    return real_syscall(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}
