#include "athanor/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "athanor/io/utf8.h"

namespace athanor::io {

namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::size_t kMaxDims = 64;
constexpr std::string_view kMetadata = "__metadata__";

struct FormatType {
  std::string_view name;
  DType dtype;
  int bits;
};
// In the order by which the format sorts types; writers put later ones first.
constexpr FormatType kTypes[] = {{"BOOL", DType::Bool, 8},
                                 {"F4", DType::Undefined, 4},
                                 {"F6_E2M3", DType::Undefined, 6},
                                 {"F6_E3M2", DType::Undefined, 6},
                                 {"U8", DType::Byte, 8},
                                 {"I8", DType::Char, 8},
                                 {"F8_E5M2", DType::Undefined, 8},
                                 {"F8_E4M3", DType::Undefined, 8},
                                 {"F8_E8M0", DType::Undefined, 8},
                                 {"F8_E4M3FNUZ", DType::Undefined, 8},
                                 {"F8_E5M2FNUZ", DType::Undefined, 8},
                                 {"I16", DType::Short, 16},
                                 {"U16", DType::Undefined, 16},
                                 {"F16", DType::Half, 16},
                                 {"BF16", DType::BFloat16, 16},
                                 {"I32", DType::Int, 32},
                                 {"U32", DType::Undefined, 32},
                                 {"F32", DType::Float, 32},
                                 {"C64", DType::Undefined, 64},
                                 {"F64", DType::Double, 64},
                                 {"I64", DType::Long, 64},
                                 {"U64", DType::Undefined, 64}};

const FormatType& type_of(DType dtype) {
  const auto* type = std::ranges::find(kTypes, dtype, &FormatType::dtype);
  ATHANOR_CHECK_TYPE(TypeError, dtype != DType::Undefined && type != std::end(kTypes),
                     "write_safetensors: undefined dtype");
  return *type;
}

// Receives the header's JSON piece by piece, so that its size and depth are bounded and a repeated key is seen.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  HeaderReader(const std::string& file, std::vector<SafetensorsEntry>& entries,
               std::map<std::string, std::string>& metadata)
      : file_(file), entries_(entries), metadata_(metadata) {}

  bool start_object(std::size_t /*elements*/) override {
    switch (at_) {
      case At::Start:
        at_ = At::Top;
        return true;
      case At::MetadataValue:
        at_ = At::Metadata;
        return true;
      case At::TensorValue:
        at_ = At::Tensor;
        return true;
      default:
        unexpected("an object");
    }
  }

  bool key(string_t& name) override {
    switch (at_) {
      case At::Top:
        begin_item(name);
        return true;
      case At::Metadata:
        metadata_key_ = name;
        return true;
      default:
        begin_field(name);
        return true;
    }
  }

  bool end_object() override {
    if (at_ == At::Tensor) end_tensor();
    at_ = at_ == At::Top ? At::End : At::Top;
    return true;
  }

  bool string(string_t& text) override {
    if (at_ == At::Metadata) {
      const bool fresh = metadata_.emplace(metadata_key_, text).second;
      if (!fresh) fail("repeats the metadata key '", metadata_key_, "'");
    } else if (at_ == At::Type) {
      tensor().type = text;
      at_ = At::Tensor;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    if (at_ == At::Shape)
      at_ = At::ShapeNumbers;
    else if (at_ == At::Offsets)
      at_ = At::OffsetNumbers;
    else
      unexpected("an array");
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ == At::ShapeNumbers) {
      if (value > INT64_MAX) fail_here("has a size that does not fit 63 bits");
      tensor().sizes.push_back(static_cast<std::int64_t>(value));
    } else if (at_ == At::OffsetNumbers) {
      if (offsets_ == 2) fail_here("has more than two data_offsets");
      (offsets_++ == 0 ? tensor().begin : tensor().end) = value;
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool end_array() override {
    if (at_ == At::OffsetNumbers && offsets_ != 2) fail_here("has fewer than two data_offsets");
    at_ = At::Tensor;
    return true;
  }

  bool number_integer(number_integer_t /*value*/) override { unexpected("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    unexpected(athanor::detail::str("the number ", text));
  }
  bool null() override { unexpected("null"); }
  bool boolean(bool /*value*/) override { unexpected("a boolean"); }
  bool binary(binary_t& /*value*/) override { unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string& /*token*/, const json::exception& error) override {
    fail("is not valid JSON at byte ", position, ": ", readable(error.what()));
  }

 private:
  enum class At {
    Start,
    Top,
    MetadataValue,
    Metadata,
    TensorValue,
    Tensor,
    Type,
    Shape,
    ShapeNumbers,
    Offsets,
    OffsetNumbers,
    End
  };

  template <class... Args>
  [[noreturn]] void fail(const Args&... what) const {
    ATHANOR_THROW(IoError, file_, ": safetensors header ", what...);
  }
  template <class... Args>
  [[noreturn]] void fail_here(const Args&... what) const {
    ATHANOR_THROW(IoError, file_, ": safetensors tensor '", entries_.back().name, "' ", what...);
  }
  [[noreturn]] void unexpected(std::string_view what) const {
    if (at_ >= At::TensorValue && at_ < At::End) fail_here("has ", what, " where something else is expected");
    fail("has ", what, " where something else is expected");
  }

  SafetensorsEntry& tensor() { return entries_.back(); }

  void begin_item(const std::string& name) {
    if (name == kMetadata) {
      if (metadata_seen_) fail("repeats ", kMetadata);
      metadata_seen_ = true;
      at_ = At::MetadataValue;
      return;
    }
    entries_.emplace_back().name = name;
    type_seen_ = shape_seen_ = false;
    offsets_ = -1;
    at_ = At::TensorValue;
  }

  void begin_field(const std::string& name) {
    if (name == "dtype" && !type_seen_) {
      type_seen_ = true;
      at_ = At::Type;
    } else if (name == "shape" && !shape_seen_) {
      shape_seen_ = true;
      at_ = At::Shape;
    } else if (name == "data_offsets" && offsets_ < 0) {
      offsets_ = 0;
      at_ = At::Offsets;
    } else {
      fail_here("has the unexpected or repeated key '", name, "'");
    }
  }

  void end_tensor() const {
    if (!type_seen_ || !shape_seen_ || offsets_ != 2) fail_here("lacks one of 'dtype', 'shape', 'data_offsets'");
  }

  const std::string& file_;
  std::vector<SafetensorsEntry>& entries_;
  std::map<std::string, std::string>& metadata_;
  At at_ = At::Start;
  std::string metadata_key_;
  bool metadata_seen_ = false;
  bool type_seen_ = false;
  bool shape_seen_ = false;
  int offsets_ = -1;  // how many were read; -1 before the key
};

// Checks type, sizes and offsets against each other; sets the dtype.
void check_entry(SafetensorsEntry& entry, const std::string& file) {
  const auto* type = std::ranges::find(kTypes, std::string_view(entry.type), &FormatType::name);
  ATHANOR_CHECK_TYPE(IoError, type != std::end(kTypes), file, ": safetensors tensor '", entry.name,
                     "' has the unknown dtype '", entry.type, "'");
  entry.dtype = type->dtype;
  ATHANOR_CHECK_TYPE(IoError, entry.sizes.size() <= kMaxDims, file, ": safetensors tensor '", entry.name, "' has ",
                     entry.sizes.size(), " dimensions, tensors have at most ", kMaxDims);
  // Counting in bits: the smallest types share bytes.
  std::uint64_t bits = 0;
  ATHANOR_CHECK_TYPE(IoError, dense_bytes(entry.sizes, static_cast<std::size_t>(type->bits), &bits), file,
                     ": safetensors tensor '", entry.name, "' has sizes ", entry.sizes,
                     " that need more than 2^63 bits");
  ATHANOR_CHECK_TYPE(IoError, entry.begin <= entry.end && bits % 8 == 0 && entry.end - entry.begin == bits / 8, file,
                     ": safetensors tensor '", entry.name, "' of sizes ", entry.sizes, " and dtype ", entry.type,
                     " has data_offsets [", entry.begin, ", ", entry.end, "], which are not ", (bits + 7) / 8,
                     " bytes apart");
}

// Writes one JSON string; refuses what JSON cannot hold.
void append_json(std::string& out, const std::string& text, const char* what, const std::string& where) {
  ATHANOR_CHECK_VALUE(is_utf8(text), where, ": ", what, " is not valid UTF-8: '", readable(text), "'");
  out += json(text).dump();
}

std::string header_of(const std::vector<const std::pair<std::string, Array>*>& tensors,
                      const std::map<std::string, std::string>& metadata, const std::string& where) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (header.back() != '{') header += ',';
      append_json(header, key, "a metadata key", where);
      header += ':';
      append_json(header, value, "a metadata value", where);
    }
    header += '}';
  }
  std::uint64_t offset = 0;
  for (const auto* item : tensors) {
    const auto& [name, array] = *item;
    if (header.size() > 1) header += ',';
    append_json(header, name, "a tensor's name", where);
    athanor::detail::append(header, ":{\"dtype\":\"");
    athanor::detail::append(header, type_of(array.dtype).name);
    header += "\",\"shape\":[";
    for (std::size_t d = 0; d < array.sizes.size(); ++d) header += (d ? "," : "") + std::to_string(array.sizes[d]);
    const std::uint64_t end = offset + array.nbytes();
    header += "],\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(end) + "]}";
    offset = end;
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  ATHANOR_CHECK_VALUE(header.size() <= kMaxHeader, where, ": header of ", header.size(), " bytes, the format allows ",
                      kMaxHeader);
  return header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : name_(athanor::detail::str("'", path, "'")) {
  auto file = std::make_shared<MappedFile>(path);
  content_ = {file->mutable_data(), file->size()};
  owner_ = std::move(file);
  parse();
}

SafetensorsFile::SafetensorsFile(std::span<std::byte> content, std::shared_ptr<void> owner, std::string name)
    : name_(std::move(name)), owner_(std::move(owner)), content_(content) {
  parse();
}

void SafetensorsFile::parse() {
  ATHANOR_CHECK_TYPE(IoError, content_.size() >= 8, name_, ": truncated safetensors file of ", content_.size(),
                     " bytes");
  std::uint64_t length = 0;
  std::memcpy(&length, content_.data(), 8);
  ATHANOR_CHECK_TYPE(IoError, length <= kMaxHeader, name_, ": not a safetensors file, or hostile: header of ", length,
                     " bytes, at most ", kMaxHeader, " are allowed");
  ATHANOR_CHECK_TYPE(IoError, length <= content_.size() - 8, name_, ": truncated safetensors file: header of ", length,
                     " bytes, ", content_.size() - 8, " follow");
  const auto* header = reinterpret_cast<const char*>(content_.data() + 8);
  ATHANOR_CHECK_TYPE(IoError, length > 0 && header[0] == '{', name_,
                     ": not a safetensors file: its header does not begin with '{'");
  HeaderReader reader(name_, entries_, metadata_);
  json::sax_parse(header, header + length, &reader);
  data_offset_ = 8 + length;

  for (SafetensorsEntry& entry : entries_) check_entry(entry, name_);
  std::ranges::sort(entries_, [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const SafetensorsEntry& entry = entries_[i];
    const bool fresh = index_.emplace(entry.name, i).second;
    ATHANOR_CHECK_TYPE(IoError, fresh, name_, ": safetensors header repeats the tensor '", entry.name, "'");
    ATHANOR_CHECK_TYPE(IoError, entry.begin == expected, name_, ": safetensors tensor '", entry.name,
                       entry.begin < expected ? "' overlaps the one before it" : "' leaves a hole before it",
                       ": its values begin at ", entry.begin, ", expected ", expected);
    expected = entry.end;
  }
  const std::uint64_t present = content_.size() - data_offset_;
  ATHANOR_CHECK_TYPE(IoError, expected == present, name_, expected > present ? ": truncated safetensors file" : "",
                     ": its tensors take ", expected, " bytes, ", present, " follow the header");
}

bool SafetensorsFile::contains(std::string_view name) const { return index_.contains(std::string(name)); }

const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  if (found != index_.end()) return entries_[found->second];
  constexpr std::size_t kShown = 10;
  std::string known;
  for (std::size_t i = 0; i < std::min(entries_.size(), kShown); ++i)
    known += (i > 0 ? ", '" : "'") + entries_[i].name + "'";
  if (entries_.size() > kShown) athanor::detail::append(known, ", …");
  ATHANOR_THROW(IndexError, name_, ": no tensor '", name, "' among its ", entries_.size(), ": ", known);
}

Array SafetensorsFile::get(std::string_view name) const { return get(entry(name)); }

Array SafetensorsFile::get(const SafetensorsEntry& entry) const {
  ATHANOR_CHECK_TYPE(TypeError, entry.dtype != DType::Undefined, name_, ": tensor '", entry.name, "' has dtype ",
                     entry.type, ", which this library lacks; convert the file first");
  std::byte* data = content_.data() + data_offset_ + entry.begin;
  Array array{entry.dtype, entry.sizes, row_major_strides(entry.sizes), data, owner_};
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % item_size(entry.dtype) == 0;
  if (!aligned && array.numel() > 0) {
    array = empty_array(entry.dtype, entry.sizes);
    std::memcpy(array.data, data, array.nbytes());
  }
  if (entry.dtype == DType::Bool) check_bools(array, athanor::detail::str(name_, ": tensor '", entry.name, "'"));
  return array;
}

namespace {

// Hands the file's pieces to put(address, size).
template <class Put>
void put_safetensors(const std::vector<std::pair<std::string, Array>>& tensors,
                     const std::map<std::string, std::string>& metadata, const std::string& where, Put put) {
  std::vector<const std::pair<std::string, Array>*> order;
  std::set<std::string_view> names;
  for (const auto& item : tensors) {
    ATHANOR_CHECK_VALUE(item.first != kMetadata, where, ": a tensor may not be named ", kMetadata);
    ATHANOR_CHECK_VALUE(names.insert(item.first).second, where, ": two tensors are named '", readable(item.first), "'");
    order.push_back(&item);
  }
  std::ranges::sort(order, [](const auto* a, const auto* b) {
    const auto* type_a = &type_of(a->second.dtype);
    const auto* type_b = &type_of(b->second.dtype);
    return type_a != type_b ? type_a > type_b : a->first < b->first;
  });
  const std::string header = header_of(order, metadata, where);
  const std::uint64_t length = header.size();
  put(&length, sizeof length);
  put(header.data(), header.size());
  for (const auto* item : order) {
    const Array values = contiguous(item->second);
    put(values.data, values.nbytes());
  }
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, Array>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::optional<AtomicFile> file;
  const std::string where = athanor::detail::str("write_safetensors: '", path, "'");
  put_safetensors(tensors, metadata, where, [&](const void* data, std::size_t size) {
    // Opened at the first byte: names are checked by then.
    if (!file) file.emplace(path);
    file->write(data, size);
  });
  file->commit();
}

std::vector<std::byte> safetensors_bytes(const std::vector<std::pair<std::string, Array>>& tensors,
                                         const std::map<std::string, std::string>& metadata) {
  std::vector<std::byte> bytes;
  put_safetensors(tensors, metadata, "write_safetensors", [&](const void* data, std::size_t size) {
    const auto* from = static_cast<const std::byte*>(data);
    if (size > 0) bytes.insert(bytes.end(), from, from + size);
  });
  return bytes;
}

}  // namespace athanor::io
