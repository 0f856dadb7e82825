/* A disk as clouds have it, for one Redis server: LD_PRELOAD=slow_disk.so redis-server …
 *
 * SLOW_DISK is a folder. Every sync takes as long as the file `delay` there says (microseconds), and
 * the file `syncing` exists meanwhile. While there is a file `full` nothing can be written to regular
 * files: half of the first write fits, as on a disk that fills up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *place(char *path, size_t size, const char *name) {
  snprintf(path, size, "%s/%s", getenv("SLOW_DISK"), name);
  return path;
}

static void be_slow(void) {
  char path[512];
  long delay = 0;
  FILE *file = fopen(place(path, sizeof path, "delay"), "r");
  if (file) {
    if (fscanf(file, "%ld", &delay) != 1) delay = 0;
    fclose(file);
  }
  if (delay <= 0) return;
  int mark = open(place(path, sizeof path, "syncing"), O_CREAT | O_WRONLY, 0600);
  if (mark >= 0) close(mark);
  usleep(delay);
  unlink(path);
}

int fdatasync(int fd) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  be_slow();
  return real(fd);
}

int fsync(int fd) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  be_slow();
  return real(fd);
}

ssize_t write(int fd, const void *data, size_t size) {
  static ssize_t (*real)(int, const void *, size_t);
  static int filled;
  char path[512];
  struct stat about;
  if (!real) real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  /* Standard output and error are the log: a server has to be able to say what is wrong. */
  if (fd > 2 && !fstat(fd, &about) && S_ISREG(about.st_mode) &&
      !access(place(path, sizeof path, "full"), F_OK)) {
    if (!filled++ && size > 1) return real(fd, data, size / 2);
    errno = ENOSPC;
    return -1;
  }
  return real(fd, data, size);
}
