/* A machine's clock that steps, for the processes of that machine: LD_PRELOAD=clock.so program …
 *
 * CLOCK names a file of eight bytes: how many nanoseconds the time of day is ahead. It may change at
 * any moment, as when somebody sets the clock; the monotonic clock goes on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static int64_t ahead(void) {
  static volatile int64_t *offset;
  static int64_t none;
  if (!offset) {
    const char *path = getenv("CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *shared = fd < 0 ? MAP_FAILED : mmap(0, sizeof none, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    offset = shared == MAP_FAILED ? &none : shared;
  }
  return *offset;
}

int clock_gettime(clockid_t which, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real(which, at);
  if (failed || (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE)) return failed;
  int64_t now = at->tv_sec * SECOND + at->tv_nsec + ahead();
  at->tv_sec = now / SECOND;
  at->tv_nsec = now % SECOND;
  return 0;
}

int gettimeofday(struct timeval *at, void *zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
