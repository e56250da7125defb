#include "athanor/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "athanor/base/error.h"
#include "athanor/base/standard_descriptors.h"

namespace athanor::io {

namespace detail {

void throw_errno(std::string_view action, const std::string& path, int error) {
  ATHANOR_THROW(IoError, "cannot ", action, " '", path, "': ", std::generic_category().message(error));
}

Descriptor::Descriptor(int fd) : fd_(athanor::detail::beyond_standard_descriptors(fd)) {}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

int Descriptor::release() { return std::exchange(fd_, -1); }

}  // namespace detail

namespace {

using detail::Descriptor;
using detail::throw_errno;

constexpr std::size_t kBufferSize = std::size_t{1} << 18;
// read() and write() move at most this much per call on Linux.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;

struct OpenedFile {
  Descriptor fd;
  std::uint64_t size;
};

// The system would silently use the part before the zero.
void check_name(const std::string& path) {
  ATHANOR_CHECK_TYPE(IoError, !path.empty(), "cannot open a file with an empty name");
  ATHANOR_CHECK_TYPE(IoError, path.find('\0') == std::string::npos, "cannot open '", path.c_str(),
                     "…': the name contains a zero byte");
}

OpenedFile open_regular(const std::string& path, std::uint64_t max_bytes) {
  check_name(path);
  // O_NONBLOCK: a named pipe without a writer must be refused, not waited for.
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) throw_errno("open", path, errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw_errno("examine", path, errno);
  ATHANOR_CHECK_TYPE(IoError, !S_ISDIR(status.st_mode), "cannot read '", path, "': it is a folder");
  ATHANOR_CHECK_TYPE(IoError, S_ISREG(status.st_mode), "cannot read '", path, "': it is not a regular file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  ATHANOR_CHECK_TYPE(IoError, size <= max_bytes, "cannot read '", path, "': it has ", size,
                     " bytes, more than the limit of ", max_bytes);
  return {std::move(fd), size};
}

template <class Container>
Container read_all(const std::string& path, std::uint64_t max_bytes) {
  const OpenedFile file = open_regular(path, max_bytes);
  Container content;
  try {
    content.resize(file.size);
  } catch (const std::exception&) {
    ATHANOR_THROW(OutOfMemoryError, "cannot read '", path, "': no memory for its ", file.size, " bytes");
  }
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::read(file.fd.get(), content.data() + done, std::min(content.size() - done, kMaxTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno("read", path, errno);
    ATHANOR_CHECK_TYPE(IoError, n > 0, "cannot read '", path, "': it shrank to ", done, " bytes while it was read");
    done += static_cast<std::size_t>(n);
  }
  return content;
}

// Some file systems cannot flush a folder; the rename itself has happened by then. `at`: where `folder` begins.
void flush_folder(int at, const std::string& folder, const std::string& of) {
  const Descriptor fd(::openat(at, folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return;
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS)
    throw_errno("flush folder of", of, errno);
}

// The file that writing to `path` replaces: the end of a chain of links, or the path itself.
std::string resolve_target(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) throw_errno("write", path, errno);
    return path;
  }
  ATHANOR_CHECK_TYPE(IoError, !S_ISDIR(status.st_mode), "cannot write '", path, "': it is a folder");
  ATHANOR_CHECK_TYPE(IoError, S_ISREG(status.st_mode), "cannot write '", path,
                     "': it exists and is not a regular file");
  if (::lstat(path.c_str(), &status) != 0) throw_errno("write", path, errno);
  if (!S_ISLNK(status.st_mode)) return path;
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), std::free);
  if (!real) throw_errno("follow the link", path, errno);
  return real.get();
}

// A thread's own: that of the process is gone once its first thread has ended.
constexpr char kOwnDescriptors[] = "/proc/thread-self/fd";

// A file without a name, which the system frees however its owner ends; none where the file system has no such files.
Descriptor open_unnamed(int folder) {
  if (::access(kOwnDescriptors, X_OK) != 0) return Descriptor(-1);  // the way by which such a file gets its name
  return Descriptor(::openat(folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0666));
}

bool give_name(int fd, int folder, const std::string& name) {
  const std::string from = athanor::detail::str(kOwnDescriptors, "/", fd);
  return ::linkat(AT_FDCWD, from.c_str(), folder, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

std::string name_in_folder(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string temporary_name(const std::string& name) {
  static std::atomic<unsigned> counter{0};
  // A name may have 255 bytes at most: the prefix is there for people only.
  return athanor::detail::str(".", name.substr(0, 180), ".", ::getpid(), ".", counter.fetch_add(1), ".tmp");
}

}  // namespace

std::vector<std::byte> read_file(const std::string& path, std::uint64_t max_bytes) {
  return read_all<std::vector<std::byte>>(path, max_bytes);
}

std::string read_text(const std::string& path, std::uint64_t max_bytes) {
  return read_all<std::string>(path, max_bytes);
}

MappedFile::MappedFile(std::string path, std::uint64_t max_bytes) : path_(std::move(path)) {
  const OpenedFile file = open_regular(path_, std::min(max_bytes, static_cast<std::uint64_t>(PTRDIFF_MAX)));
  if (file.size == 0) return;
  void* address = ::mmap(nullptr, file.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.fd.get(), 0);
  if (address == MAP_FAILED) throw_errno("map", path_, errno);
  data_ = static_cast<std::byte*>(address);
  size_ = file.size;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::will_read_all() const {
  if (data_) ::madvise(data_, size_, MADV_SEQUENTIAL);
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  check_name(path_);
  const std::string target = resolve_target(path_);
  name_ = name_in_folder(target);
  // By name it could be another folder at the end.
  folder_ = Descriptor(::open(folder_of(target).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (folder_.get() < 0) throw_errno("write", path_, errno);
  fd_ = open_unnamed(folder_.get());
  if (fd_.get() < 0) open_temporary();
  struct stat status {};
  if (::fstatat(folder_.get(), name_.c_str(), &status, 0) == 0) (void)::fchmod(fd_.get(), status.st_mode & 07777);
  buffer_.reserve(kBufferSize);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlinkat(folder_.get(), temporary_.c_str(), 0);
}

template <class Take>
bool AtomicFile::take_temporary_name(Take take) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string name = temporary_name(name_);
    if (take(name)) {
      temporary_ = name;
      return true;
    }
    // A name can be taken by what a killed process with the same number left behind.
    if (errno != EEXIST) break;
  }
  return false;
}

void AtomicFile::open_temporary() {
  const bool open = take_temporary_name([this](const std::string& name) {
    fd_ = Descriptor(::openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    return fd_.get() >= 0;
  });
  if (!open) throw_errno("write", path_, errno);
}

void AtomicFile::name_content() {
  if (take_temporary_name([this](const std::string& name) { return give_name(fd_.get(), folder_.get(), name); }))
    return;
  // Linking can be forbidden where writing is not.
  const Descriptor unnamed = std::move(fd_);
  struct stat status {};
  if (::fstat(unnamed.get(), &status) != 0) throw_errno("write", path_, errno);
  open_temporary();
  (void)::fchmod(fd_.get(), status.st_mode & 07777);
  std::vector<std::byte> piece(kBufferSize);
  for (off_t at = 0; at < status.st_size;) {
    const ssize_t n = ::pread(unnamed.get(), piece.data(), piece.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw_errno("write", path_, n < 0 ? errno : EIO);
    write_through(piece.data(), static_cast<std::size_t>(n));
    at += n;
  }
}

void AtomicFile::write_through(const std::byte* data, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd_.get(), data, std::min(size, kMaxTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno("write", path_, errno);
    data += n;
    size -= static_cast<std::size_t>(n);
  }
}

void AtomicFile::flush() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::write(const void* data, std::size_t size) {
  ATHANOR_CHECK(fd_.get() >= 0, "AtomicFile: write to '", path_, "' after commit");
  if (size == 0) return;
  const auto* bytes = static_cast<const std::byte*>(data);
  size_ += size;
  if (buffer_.size() + size > kBufferSize) flush();
  if (size >= kBufferSize)
    write_through(bytes, size);
  else
    buffer_.insert(buffer_.end(), bytes, bytes + size);
}

void AtomicFile::commit() {
  ATHANOR_CHECK(fd_.get() >= 0, "AtomicFile: second commit of '", path_, "'");
  flush();
  if (::fsync(fd_.get()) != 0) throw_errno("flush", path_, errno);
  if (temporary_.empty()) {
    name_content();
    // Of a file without a name some file systems do not note everything.
    if (::fsync(fd_.get()) != 0) throw_errno("flush", path_, errno);
  }
  if (::renameat(folder_.get(), temporary_.c_str(), folder_.get(), name_.c_str()) != 0)
    throw_errno("replace", path_, errno);
  temporary_.clear();  // from here on it is the name of nothing that the destructor may remove
  fd_ = Descriptor();
  flush_folder(folder_.get(), ".", path_);
}

void write_file(const std::string& path, Bytes content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void write_file(const std::string& path, std::string_view content) {
  write_file(path, std::as_bytes(std::span(content.data(), content.size())));
}

void rename_durably(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_errno(athanor::detail::str("rename '", from, "' to"), to, errno);
  flush_folder(AT_FDCWD, folder_of(to), to);
}

void make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error && !std::filesystem::is_directory(path)) throw_errno("create folder", path, error.value());
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace athanor::io
