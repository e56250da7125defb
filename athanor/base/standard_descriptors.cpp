#include "athanor/base/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

namespace athanor::detail {

int beyond_standard_descriptors(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const bool inherited = (::fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
  const int moved = ::fcntl(fd, inherited ? F_DUPFD : F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (moved < 0) return fd;
  ::close(fd);
  return moved;
}

}  // namespace athanor::detail
