#include "athanor/io/idx.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "athanor/io/gzip.h"

namespace athanor::io {

namespace {

struct IdxType {
  std::uint8_t code;
  DType dtype;
};
constexpr IdxType kTypes[] = {{0x08, DType::Byte}, {0x09, DType::Char},  {0x0B, DType::Short},
                              {0x0C, DType::Int},  {0x0D, DType::Float}, {0x0E, DType::Double}};

std::uint32_t big_endian_32(const std::byte* p) {
  std::uint32_t value;
  std::memcpy(&value, p, sizeof value);
  return __builtin_bswap32(value);
}

void put_big_endian_32(std::vector<std::byte>& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<std::byte>(value >> shift));
}

DType type_of_code(std::uint8_t code, const std::string& name) {
  for (const IdxType& type : kTypes)
    if (type.code == code) return type.dtype;
  ATHANOR_THROW(IoError, name, ": IDX element type ", static_cast<int>(code),
                " is unknown, expected 8, 9, 11, 12, 13 or 14");
}

// Where the bytes come from: memory as it is, or unpacked on the way.
class Source {
 public:
  Source(Bytes content, const std::string& name) : content_(content), name_(name) {
    if (is_gzip(content)) unpacker_ = std::make_unique<GunzipReader>(content, name);
  }

  // An upper bound of what read() can still give.
  std::uint64_t bound() const {
    return unpacker_ ? max_gunzip_size(content_.size()) : static_cast<std::uint64_t>(content_.size() - used_);
  }

  void read(std::byte* out, std::size_t size, const char* what) {
    const std::size_t n = read_some(out, size);
    ATHANOR_CHECK_TYPE(IoError, n == size, name_, ": truncated: its IDX ", what, " needs ", size,
                       " bytes, the file holds ", n);
  }

  void expect_end() {
    if (unpacker_) {
      ATHANOR_CHECK_TYPE(IoError, unpacker_->at_end(), name_, ": bytes after the end of the IDX values");
    } else {
      ATHANOR_CHECK_TYPE(IoError, used_ == content_.size(), name_, ": ", content_.size() - used_,
                         " bytes after the end of the IDX values");
    }
  }

 private:
  std::size_t read_some(std::byte* out, std::size_t size) {
    if (unpacker_) return unpacker_->read(out, size);
    const std::size_t n = std::min(size, content_.size() - used_);
    if (n > 0) std::memcpy(out, content_.data() + used_, n);
    used_ += n;
    return n;
  }

  Bytes content_;
  const std::string& name_;
  std::size_t used_ = 0;
  std::unique_ptr<GunzipReader> unpacker_;
};

}  // namespace

Array parse_idx(Bytes content, const std::string& name, std::uint64_t max_bytes) {
  Source source(content, name);
  std::byte magic[4];
  source.read(magic, sizeof magic, "magic number");
  ATHANOR_CHECK_TYPE(IoError, magic[0] == std::byte{0} && magic[1] == std::byte{0}, name,
                     ": not an IDX file: magic number ", big_endian_32(magic), ", expected two zero bytes first");
  const DType dtype = type_of_code(static_cast<std::uint8_t>(magic[2]), name);
  const auto rank = static_cast<std::size_t>(magic[3]);

  std::byte raw_sizes[255 * 4];
  source.read(raw_sizes, rank * 4, "header");
  std::vector<std::int64_t> sizes(rank);
  for (std::size_t d = 0; d < rank; ++d) sizes[d] = big_endian_32(raw_sizes + d * 4);

  std::uint64_t bytes = 0;
  const bool countable = dense_bytes(sizes, item_size(dtype), &bytes);
  ATHANOR_CHECK_TYPE(IoError, countable && bytes <= max_bytes, name, ": IDX header claims sizes ", sizes, " of ",
                     dtype_name(dtype), ", more than the limit of ", max_bytes, " bytes");
  ATHANOR_CHECK_TYPE(IoError, bytes <= source.bound(), name, ": truncated: its IDX header claims sizes ", sizes, " of ",
                     dtype_name(dtype), ", ", bytes, " bytes, but at most ", source.bound(), " can follow");

  Array array = empty_array(dtype, sizes);
  source.read(array.data, bytes, "values");
  source.expect_end();
  swap_bytes(array.data, bytes / item_size(dtype), item_size(dtype));
  return array;
}

Array read_idx(const std::string& path, std::uint64_t max_bytes) {
  const MappedFile file(path);
  file.will_read_all();
  return parse_idx(file.bytes(), athanor::detail::str("'", path, "'"), max_bytes);
}

void write_idx(const std::string& path, const Array& array) {
  const auto* type = std::ranges::find(kTypes, array.dtype, &IdxType::dtype);
  ATHANOR_CHECK_TYPE(TypeError, type != std::end(kTypes), "write_idx: IDX has no ", dtype_name(array.dtype),
                     "; convert to uint8, int8, int16, int32, float32 or float64 first");
  ATHANOR_CHECK_VALUE(array.sizes.size() <= 255, "write_idx: at most 255 dimensions, got ", array.sizes.size());
  std::vector<std::byte> content{std::byte{0}, std::byte{0}, static_cast<std::byte>(type->code),
                                 static_cast<std::byte>(array.sizes.size())};
  for (const std::int64_t size : array.sizes) {
    ATHANOR_CHECK_VALUE(size >= 0 && size <= UINT32_MAX, "write_idx: size ", size, " does not fit 32 bits, sizes ",
                        array.sizes);
    put_big_endian_32(content, static_cast<std::uint32_t>(size));
  }
  const Array values = contiguous(array);
  const std::size_t header = content.size();
  content.insert(content.end(), values.data, values.data + values.nbytes());
  const std::size_t item = item_size(array.dtype);
  swap_bytes(content.data() + header, values.nbytes() / item, item);
  if (path.ends_with(".gz")) content = gzip(content);
  write_file(path, content);
}

}  // namespace athanor::io
