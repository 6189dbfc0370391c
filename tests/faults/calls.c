/* Counts the calls that change files below a folder, for LD_PRELOAD. At one of them the process is
   killed (of a write, half is done), or the disk is full from there on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *root;
static long at, calls;
static int full;
static char ours[1 << 16]; /* descriptors of what lies below the folder */

void arm(const char *folder, long call, int disk_full) {
  root = strdup(folder), at = call, full = disk_full, calls = 0;
}
long counted(void) { return calls; }

static int own(int fd) { return root && fd >= 0 && fd < (int)sizeof ours && ours[fd]; }
static int below(int dir, const char *path) {
  return root && (path[0] == '/' ? !strncmp(path, root, strlen(root)) : own(dir));
}
static int fault(int grows) {
  long call = __sync_add_and_fetch(&calls, 1);
  if (!at || call < at) return 0;
  if (!full) kill(getpid(), SIGKILL);
  errno = ENOSPC;
  return grows;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define CALL(name, parameters, arguments, here, grows, failed) \
  int name parameters { REAL(name); return (here) && fault(grows) ? failed : real arguments; }
#define OPEN(name, parameters, arguments, dir) \
  int name parameters { \
    REAL(name); va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
    int is_ours = below(dir, path), writes = flags & (O_WRONLY | O_RDWR | O_CREAT); \
    if (is_ours && writes && fault(flags & O_CREAT)) return -1; \
    int fd = real arguments; \
    if (fd >= 0 && fd < (int)sizeof ours) ours[fd] = is_ours; \
    return fd; \
  }
#define WRITE(name, parameters, whole, half) \
  ssize_t name parameters { \
    REAL(name); \
    if (own(fd)) { \
      if (at && calls + 1 == at) { real half; calls = at - 1; } \
      if (fault(1)) return -1; \
    } \
    return real whole; \
  }

OPEN(open, (const char *path, int flags, ...), (path, flags, mode), -1)
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), -1)
OPEN(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode), dir)
OPEN(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode), dir)
WRITE(write, (int fd, const void *data, size_t n), (fd, data, n), (fd, data, n / 2))
WRITE(pwrite, (int fd, const void *data, size_t n, off_t o), (fd, data, n, o), (fd, data, n / 2, o))
WRITE(pwrite64, (int fd, const void *data, size_t n, off64_t o), (fd, data, n, o), (fd, data, n / 2, o))
CALL(fsync, (int fd), (fd), own(fd), 0, -1)
CALL(ftruncate64, (int fd, off64_t n), (fd, n), own(fd), 1, -1)
CALL(posix_fallocate, (int fd, off_t o, off_t n), (fd, o, n), own(fd), 1, ENOSPC)
CALL(posix_fallocate64, (int fd, off64_t o, off64_t n), (fd, o, n), own(fd), 1, ENOSPC)
CALL(mkdir, (const char *path, mode_t mode), (path, mode), below(-1, path), 1, -1)
CALL(rename, (const char *path, const char *to), (path, to), below(-1, to), 0, -1)
CALL(unlink, (const char *path), (path), below(-1, path), 0, -1)
CALL(unlinkat, (int dir, const char *path, int flags), (dir, path, flags), below(dir, path), 0, -1)
CALL(rmdir, (const char *path), (path), below(-1, path), 0, -1)

int close(int fd) {
  REAL(close);
  if (fd >= 0 && fd < (int)sizeof ours) ours[fd] = 0;
  return real(fd);
}
