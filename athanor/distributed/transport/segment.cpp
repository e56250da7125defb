#include "athanor/distributed/transport/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "athanor/distributed/error.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

constexpr unsigned kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

char* map_shared(int fd, std::size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED)
    throw DistError(str("cannot map ", bytes, " bytes of shared memory: ", error_text(errno)), ATHANOR_WHERE);
  // Whether the system honours it depends on its shmem_enabled setting.
  static_cast<void>(::madvise(data, bytes, MADV_HUGEPAGE));
  static_cast<void>(::madvise(data, bytes, MADV_DONTFORK));
  return static_cast<char*>(data);
}

}  // namespace

Segment Segment::create(std::size_t bytes) {
  Descriptor fd(::memfd_create("athanor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 || ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    throw DistError(str("cannot create ", bytes, " bytes of shared memory: ", error_text(errno)), ATHANOR_WHERE);
  char* data = map_shared(fd.get(), bytes);
  return {std::move(fd), data, bytes};
}

Segment Segment::map(Descriptor fd, std::size_t bytes) {
  struct stat info {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (::fstat(fd.get(), &info) != 0 || info.st_size < static_cast<off_t>(bytes) || seals < 0 ||
      (static_cast<unsigned>(seals) & kSeals) != kSeals)
    throw DistError(str("expected a sealed shared segment of ", bytes, " bytes, got one of ", info.st_size),
                    ATHANOR_WHERE);
  char* data = map_shared(fd.get(), bytes);
  return {std::move(fd), data, bytes};
}

Segment::~Segment() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace athanor::distributed
