#include "athanor/io/file_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "athanor/base/error.h"

namespace athanor::io {

namespace {

using detail::throw_errno;

// The file begins with the holder's process number; a note follows after a line feed.
constexpr std::size_t kMaxText = 4096;

std::string text_of(int fd) {
  char buffer[kMaxText];
  const ssize_t n = ::pread(fd, buffer, sizeof buffer, 0);
  return {buffer, n > 0 ? static_cast<std::size_t>(n) : 0};
}

}  // namespace

FileLock::FileLock(std::string path, double timeout_seconds, const std::function<void(long)>& on_wait)
    : path_(std::move(path)) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_seconds);
  fd_ = detail::Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (fd_.get() < 0) throw_errno("open the lock", path_, errno);
  auto pause = std::chrono::milliseconds(1);
  bool told = false;
  while (!try_lock()) {
    const long holder = std::strtol(text_of(fd_.get()).c_str(), nullptr, 10);
    ATHANOR_CHECK_TYPE(IoError, Clock::now() < deadline, "waited ", timeout_seconds, " s for the lock '", path_,
                       "', held by process ", holder);
    if (on_wait && !std::exchange(told, true)) on_wait(holder);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(100));
  }
  struct stat mine {};
  struct stat named {};
  if (::fstat(fd_.get(), &mine) != 0) throw_errno("examine the lock", path_, errno);
  const bool there = ::stat(path_.c_str(), &named) == 0 && named.st_ino == mine.st_ino && named.st_dev == mine.st_dev;
  finished_by_other_ = !there;
  if (there) write_text(std::to_string(::getpid()) + "\n");
}

bool FileLock::try_lock() {
  // A lock of the open file, not of the process: threads exclude each other too.
  struct flock request {};
  request.l_type = F_WRLCK;
  request.l_whence = SEEK_SET;
  if (::fcntl(fd_.get(), F_OFD_SETLK, &request) == 0) return true;
  if (errno != EAGAIN && errno != EACCES && errno != EINTR) throw_errno("lock", path_, errno);
  return false;
}

void FileLock::write_text(const std::string& text) {
  if (::ftruncate(fd_.get(), 0) != 0) throw_errno("write the lock", path_, errno);
  const std::size_t size = std::min(text.size(), kMaxText);
  if (::pwrite(fd_.get(), text.data(), size, 0) != static_cast<ssize_t>(size))
    throw_errno("write the lock", path_, errno);
}

std::string FileLock::note() const {
  const std::string text = text_of(fd_.get());
  const auto line_end = text.find('\n');
  return line_end == std::string::npos ? "" : text.substr(line_end + 1);
}

void FileLock::finish(const std::string& note) {
  write_text(std::to_string(::getpid()) + "\n" + note);
  ::unlink(path_.c_str());
}

}  // namespace athanor::io
