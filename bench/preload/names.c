/* A name server that hangs, for one program: LD_PRELOAD=names.so python …
 *
 * A look-up of a name that ends with ".hung.example" waits for the file NAMES_ANSWER to be there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*lookup)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **result) {
  static lookup real;
  static const char end[] = ".hung.example";
  if (!real) real = (lookup)dlsym(RTLD_NEXT, "getaddrinfo");
  size_t length = name ? strlen(name) : 0;
  if (length >= sizeof end && !strcmp(name + length - sizeof end + 1, end)) {
    while (access(getenv("NAMES_ANSWER"), F_OK)) usleep(50000);
    return EAI_NONAME;
  }
  return real(name, service, hints, result);
}
