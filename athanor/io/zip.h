#pragma once
/// ZIP archives, ZIP64 among them: entries by name, stored or deflated. Everything the directory says is checked
/// against the file before it is used: malformed or encrypted archives are an IoError naming the file and what is
/// wrong.

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "athanor/io/file.h"

namespace athanor::io {

/// True if the bytes start as a ZIP archive with entries does.
bool is_zip(Bytes content);

/// Reading is thread-safe.
class ZipReader {
 public:
  struct Entry {
    Bytes packed;  ///< as they lie in the archive
    std::uint64_t size = 0;
    std::uint32_t crc = 0;  ///< 0 may mean that the writer left it out
    bool deflated = false;
  };
  /// Borrows `content`, the whole file; `name` is used in messages.
  ZipReader(Bytes content, std::string name);

  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  /// Null if there is none.
  const Entry* find(std::string_view name) const;
  /// All bytes of an entry, checksum verified. Throws IoError also for more than `max_bytes`.
  std::vector<std::byte> read(std::string_view name, std::uint64_t max_bytes = kDefaultMaxBytes) const;
  /// Throws IoError unless the bytes of the entry have its checksum.
  void check(std::string_view name, const Entry& entry, Bytes content) const;

 private:
  struct Directory;
  Directory find_directory() const;
  void add_entry(Bytes header, std::string name, Bytes extra, std::uint64_t limit);
  void check_apart() const;

  Bytes content_;
  std::string name_;
  std::map<std::string, Entry, std::less<>> entries_;
};

/// Writes entries one after the other, stored, each with its bytes at a multiple of 64.
class ZipWriter {
 public:
  using Sink = std::function<void(const void* data, std::size_t size)>;
  /// Sizes and positions from `large` on take ZIP64's form.
  explicit ZipWriter(Sink sink, std::uint64_t large = 0xffffffff) : sink_(std::move(sink)), large_(large) {}
  void add(const std::string& name, Bytes content);
  /// Writes the directory; nothing may follow.
  void finish();

 private:
  struct Written {
    std::string name;
    std::uint64_t size, position;
    std::uint32_t crc;
  };
  void put(Bytes bytes);

  Sink sink_;
  std::uint64_t large_;
  std::uint64_t position_ = 0;
  std::vector<Written> written_;
};

}  // namespace athanor::io
