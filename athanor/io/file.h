#pragma once
/// Files: reading whole, mapping, and writing so that a reader never sees half a file. Every failure is an IoError that
/// names the action, the path and the system's reason. Only regular files are read or replaced. Functions are
/// thread-safe; an object belongs to one thread at a time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::io {

using Bytes = std::span<const std::byte>;

/// Default bound on what is read into memory at once: 64 GiB.
inline constexpr std::uint64_t kDefaultMaxBytes = std::uint64_t{1} << 36;

/// The whole content of a regular file. Throws IoError if it is longer than `max_bytes`, before allocating.
std::vector<std::byte> read_file(const std::string& path, std::uint64_t max_bytes = kDefaultMaxBytes);
std::string read_text(const std::string& path, std::uint64_t max_bytes = kDefaultMaxBytes);

/// A regular file in memory, mapped, unmapped by the destructor. The pages are private: writing to them (through
/// `mutable_data`) changes neither the file nor what others see, and costs a copy of each page written. The file must
/// not be shortened while it is mapped (files replaced by AtomicFile are not).
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws IoError when the file cannot be opened, is not a regular file or is longer than `max_bytes`.
  explicit MappedFile(std::string path, std::uint64_t max_bytes = UINT64_MAX);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::size_t size() const { return size_; }
  /// Starts on a page boundary; null when the file is empty.
  const std::byte* data() const { return data_; }
  std::byte* mutable_data() const { return data_; }
  Bytes bytes() const { return {data_, size_}; }
  /// Tells the system that the content will be read front to back, soon.
  void will_read_all() const;

 private:
  std::string path_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {
/// Throws IoError "cannot `action` 'path': reason of `error`".
[[noreturn]] void throw_errno(std::string_view action, const std::string& path, int error);

/// Closes a file descriptor at the end of its scope. None of the standard ones (beyond_standard_descriptors()).
class Descriptor {
 public:
  explicit Descriptor(int fd = -1);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }
  int release();

 private:
  int fd_;
};
}  // namespace detail

/// Writes a file that appears under its name whole or not at all: bytes go to a file in the same folder that has no
/// name (where the system has none such, a temporary one); commit() flushes it to the disk and gives it that of what
/// was there. Without commit(), also when the process is killed, it is gone and what was there stays; only a kill in
/// the instant of renaming, or where temporaries have names, leaves one. A symbolic link is followed; the mode of a
/// replaced file is kept; the folder is that which the path named at first. Throws IoError, also when `path` names
/// something that is not a regular file, and from commit() when the folder has been removed.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t size);
  void write(Bytes bytes) { write(bytes.data(), bytes.size()); }
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// The content's file, for who writes by other means, and then only so: no write() beside it. Of this object.
  int descriptor() const { return fd_.get(); }
  /// Bytes written so far by write().
  std::uint64_t size() const { return size_; }
  /// Makes the content durable and visible. Nothing may be written after it.
  void commit();

 private:
  /// Tries names that nobody has with `take`, which says whether it could; if none was taken, errno says why.
  template <class Take>
  bool take_temporary_name(Take take);
  void open_temporary();
  void name_content();
  void flush();
  void write_through(const std::byte* data, std::size_t size);

  std::string path_;  // as in messages
  std::string name_;  // what is replaced in the folder: the end of a symbolic link, or what the path names
  detail::Descriptor folder_, fd_;
  std::string temporary_;  // the content's name in the folder, if it has one
  std::vector<std::byte> buffer_;
  std::uint64_t size_ = 0;
};

/// AtomicFile in one call.
void write_file(const std::string& path, Bytes content);
void write_file(const std::string& path, std::string_view content);

/// Renames a file within a file system and makes the new name durable. Throws IoError.
void rename_durably(const std::string& from, const std::string& to);

/// Creates a folder and those above it; one that exists is fine. Throws IoError.
void make_folders(const std::string& path);

/// The folder part of a path: "." when it has none.
std::string folder_of(const std::string& path);

}  // namespace athanor::io
