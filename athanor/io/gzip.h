#pragma once
/// gzip (RFC 1952) in memory. Checksums and lengths in the stream are verified. Malformed input is an IoError that says
/// what is wrong.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "athanor/io/file.h"

namespace athanor::io {

/// True if the bytes start as a gzip file does.
bool is_gzip(Bytes bytes);

/// No deflate stream expands further than this: a larger claim about `compressed` bytes is a lie.
std::uint64_t max_gunzip_size(std::uint64_t compressed_bytes);

/// Unpacks compressed bytes piece by piece. Several gzip members in a row count as one stream; zero bytes after the
/// last are padding, anything else is an error. `name` is used in messages. Not thread-safe.
class GunzipReader {
 public:
  /// Borrows `compressed`, which must outlive the reader.
  GunzipReader(Bytes compressed, std::string name);
  ~GunzipReader();
  GunzipReader(const GunzipReader&) = delete;
  GunzipReader& operator=(const GunzipReader&) = delete;

  /// Writes up to `size` unpacked bytes to `out`; fewer only at the end of the stream.
  std::size_t read(void* out, std::size_t size);
  /// True if nothing is left; the whole stream, checksums included, has then been verified.
  bool at_end();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// All of a gzip stream. Throws IoError if it unpacks to more than `max_bytes`.
std::vector<std::byte> gunzip(Bytes compressed, const std::string& name, std::uint64_t max_bytes);

/// One gzip member holding `bytes`. Level 1 (fast) to 9 (small). The output depends on the input only.
std::vector<std::byte> gzip(Bytes bytes, int level = 6);

}  // namespace athanor::io
