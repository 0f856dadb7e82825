/* A disk as clouds have it, for one server: LD_PRELOAD=disk.so redis-server …
 *
 * DISK is a folder. Every sync takes as long as the file `delay` there says (microseconds), and the
 * file `syncing` exists meanwhile. While there is a file `full` no regular file grows: half of the
 * first write fits, as on a disk that fills up, and what a file has room for can be written. Files
 * whose names end with DISK_RESERVED have room of their own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(type, name) \
  static type real; \
  if (!real) real = (type)dlsym(RTLD_NEXT, name)

typedef int (*sync_call)(int);
typedef ssize_t (*write_call)(int, const void *, size_t);
typedef ssize_t (*pwrite_call)(int, const void *, size_t, off_t);
typedef int (*allocate_call)(int, off_t, off_t);
typedef int (*fallocate_call)(int, int, off_t, off_t);
typedef int (*truncate_call)(int, off_t);

static const char *place(char *path, size_t size, const char *name) {
  snprintf(path, size, "%s/%s", getenv("DISK"), name);
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

static int is_reserved(int fd) {
  char link[64], path[512];
  const char *reserved = getenv("DISK_RESERVED");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = reserved ? readlink(link, path, sizeof path) : -1;
  ssize_t end = reserved ? strlen(reserved) : 0;
  return size >= end && end > 0 && !memcmp(path + size - end, reserved, end);
}

/* Standard output and error are the log: a server has to be able to say what is wrong. */
static int has_no_room(int fd, off_t end) {
  char path[512];
  struct stat about;
  if (fd <= 2 || access(place(path, sizeof path, "full"), F_OK)) return 0;
  if (fstat(fd, &about) || !S_ISREG(about.st_mode) || end <= about.st_size) return 0;
  return !is_reserved(fd);
}

static off_t end_of_write(int fd, size_t size) {
  struct stat about;
  if ((fcntl(fd, F_GETFL) & O_APPEND) && !fstat(fd, &about)) return about.st_size + size;
  return lseek(fd, 0, SEEK_CUR) + size;
}

int fdatasync(int fd) {
  REAL(sync_call, "fdatasync");
  be_slow();
  return real(fd);
}

int fsync(int fd) {
  REAL(sync_call, "fsync");
  be_slow();
  return real(fd);
}

ssize_t write(int fd, const void *data, size_t size) {
  static int is_full;
  REAL(write_call, "write");
  if (has_no_room(fd, end_of_write(fd, size))) {
    if (!is_full++ && size > 1) return real(fd, data, size / 2);
    errno = ENOSPC;
    return -1;
  }
  return real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  REAL(pwrite_call, "pwrite64");
  if (has_no_room(fd, at + size)) {
    errno = ENOSPC;
    return -1;
  }
  return real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) {
  return pwrite(fd, data, size, at);
}

int posix_fallocate(int fd, off_t at, off_t size) {
  REAL(allocate_call, "posix_fallocate64");
  return has_no_room(fd, at + size) ? ENOSPC : real(fd, at, size);
}

int posix_fallocate64(int fd, off_t at, off_t size) { return posix_fallocate(fd, at, size); }

int fallocate(int fd, int mode, off_t at, off_t size) {
  REAL(fallocate_call, "fallocate64");
  if (has_no_room(fd, at + size)) {
    errno = ENOSPC;
    return -1;
  }
  return real(fd, mode, at, size);
}

int fallocate64(int fd, int mode, off_t at, off_t size) { return fallocate(fd, mode, at, size); }

int ftruncate(int fd, off_t size) {
  REAL(truncate_call, "ftruncate64");
  if (has_no_room(fd, size)) {
    errno = ENOSPC;
    return -1;
  }
  return real(fd, size);
}

int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }
