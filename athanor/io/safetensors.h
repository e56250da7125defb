#pragma once
/// The safetensors format: a JSON header of names, dtypes, shapes and offsets, then the values, little-endian and
/// without gaps. Files are mapped, so opening one reads its header only. Everything in the header is checked before it
/// is used: malformed content is an IoError naming the file, the tensor and what is wrong.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "athanor/io/array.h"
#include "athanor/io/file.h"

namespace athanor::io {

struct SafetensorsEntry {
  std::string name;
  std::string type;                ///< as in the file: "F32", "BF16", "BOOL" …
  DType dtype = DType::Undefined;  ///< Undefined if the format has the type and this library has not, as "F8_E4M3"
  std::vector<std::int64_t> sizes;
  std::uint64_t begin = 0;  ///< of the values, counted from the end of the header
  std::uint64_t end = 0;
};

/// An open file. Reading is thread-safe; arrays stay valid after the file object is gone.
class SafetensorsFile {
 public:
  /// Maps the file and checks its header. Throws IoError.
  explicit SafetensorsFile(const std::string& path);
  /// The same for bytes in memory, kept alive by `owner`; `name` is used in messages.
  SafetensorsFile(std::span<std::byte> content, std::shared_ptr<void> owner, std::string name);

  /// In the order of their values in the file.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(std::string_view name) const;
  /// Throws IndexError naming the tensors there are.
  const SafetensorsEntry& entry(std::string_view name) const;

  /// The tensor in place; its pages load when touched and writes to them stay private (see MappedFile). Values that
  /// are not aligned for their dtype are copied. Throws as entry(), and TypeError for a type this library lacks.
  Array get(std::string_view name) const;
  Array get(const SafetensorsEntry& entry) const;

 private:
  void parse();

  std::string name_;
  std::shared_ptr<void> owner_;
  std::span<std::byte> content_;
  std::uint64_t data_offset_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// Writes atomically. Tensors are stored by falling alignment, then by name, so that each is aligned; the file is what
/// the Python package would write, byte for byte (with several metadata entries up to their order). Arrays that share
/// memory are stored once each. Throws ValueError for a name that is repeated, "__metadata__" or not UTF-8.
void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, Array>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// The same in memory.
std::vector<std::byte> safetensors_bytes(const std::vector<std::pair<std::string, Array>>& tensors,
                                         const std::map<std::string, std::string>& metadata = {});

}  // namespace athanor::io
