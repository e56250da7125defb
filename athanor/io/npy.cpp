#include "athanor/io/npy.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

namespace athanor::io {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kMaxHeader = std::size_t{1} << 20;
constexpr std::size_t kMaxRank = 64;

struct NpyType {
  std::string_view code;
  DType dtype;
};
constexpr NpyType kTypes[] = {{"u1", DType::Byte},  {"i1", DType::Char},   {"i2", DType::Short},
                              {"i4", DType::Int},   {"i8", DType::Long},   {"f2", DType::Half},
                              {"f4", DType::Float}, {"f8", DType::Double}, {"b1", DType::Bool}};

const char* advice_for(std::string_view code) {
  switch (code.empty() ? ' ' : code[0]) {
    case 'O':
      return "it holds pickled Python objects, which are never loaded; save a numeric array instead";
    case 'S':
    case 'U':
      return "it holds strings; save numbers instead";
    case 'c':
      return "complex numbers are not supported; save real and imaginary parts as two arrays";
    case 'u':
      return "unsigned integers wider than 8 bits are not supported; save with .astype('int64')";
    case 'f':
      return "save with .astype('float64')";
    case 'm':
    case 'M':
      return "dates are not supported; save with .astype('int64')";
    case 'V':
      return "structured arrays are not supported; save each field as an array of its own";
    default:
      return "expected bool, uint8, int8 to int64 or float16 to float64";
  }
}

// The header is one Python dictionary literal with three known keys.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader parse() {
    NpyHeader header;
    std::optional<std::string_view> descr;
    bool order_seen = false;
    bool shape_seen = false;
    expect('{');
    while (!take('}')) {
      const std::string_view key = string_literal();
      expect(':');
      if (key == "descr" && !descr) {
        descr = type_literal();
      } else if (key == "fortran_order" && !order_seen) {
        header.fortran_order = bool_literal();
        order_seen = true;
      } else if (key == "shape" && !shape_seen) {
        header.sizes = tuple_literal();
        shape_seen = true;
      } else {
        fail("has the unexpected or repeated key '", key, "'");
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail("goes on after the closing brace");
    if (!descr || !order_seen || !shape_seen) fail("lacks one of the keys 'descr', 'fortran_order', 'shape'");
    set_type(header, *descr);
    return header;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(const Args&... what) const {
    ATHANOR_THROW(IoError, name_, ": npy header ", what..., " (at its byte ", at_, ")");
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }

  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool take(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!take(c)) fail("has no '", c, "' where one is expected");
  }

  bool take_word(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  std::string_view string_literal() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("has no string where one is expected");
    const std::size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != quote) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c < 0x20 || c > 0x7e || c == '\\') fail("has an unexpected character in a string");
      ++at_;
    }
    if (at_ == text_.size()) fail("ends within a string");
    return text_.substr(begin, at_++ - begin);
  }

  bool bool_literal() {
    if (take_word("True")) return true;
    if (take_word("False")) return false;
    fail("has no True or False where one is expected");
  }

  std::string_view type_literal() {
    const char c = peek();
    ATHANOR_CHECK_TYPE(TypeError, c != '[' && c != '(', name_, ": npy array of a structured dtype: ", advice_for("V"));
    return string_literal();
  }

  std::int64_t integer_literal() {
    skip_space();
    const std::size_t begin = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text_[at_] - '0', &value))
        fail("has a size that does not fit 64 bits");
    }
    if (at_ == begin) fail("has no non-negative integer where a size is expected");
    // Python 2 marked long integers.
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    return value;
  }

  std::vector<std::int64_t> tuple_literal() {
    std::vector<std::int64_t> sizes;
    expect('(');
    bool comma = true;
    while (!take(')')) {
      if (!comma) fail("has no comma between two sizes");
      sizes.push_back(integer_literal());
      if (sizes.size() > kMaxRank) fail("has more than ", kMaxRank, " dimensions");
      comma = take(',');
    }
    if (sizes.size() == 1 && !comma) fail("has a number in parentheses where a tuple is expected");
    return sizes;
  }

  void set_type(NpyHeader& header, std::string_view descr) const {
    std::string_view code = descr;
    char order = '=';
    if (!code.empty() && std::string_view("<>=|").find(code[0]) != std::string_view::npos) {
      order = code[0];
      code.remove_prefix(1);
    }
    const auto* type = std::ranges::find(kTypes, code, &NpyType::code);
    ATHANOR_CHECK_TYPE(TypeError, type != std::end(kTypes), name_, ": npy array of dtype '", descr,
                       "': ", advice_for(code));
    header.dtype = type->dtype;
    header.swapped = order == '>' && item_size(type->dtype) > 1;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

std::string shape_text(const std::vector<std::int64_t>& sizes) {
  std::string text = "(";
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(sizes[d]);
  }
  return text + (sizes.size() == 1 ? ",)" : ")");
}

// NumPy leaves room for the first size to grow, for programs that append to files.
std::string header_text(const Array& array, std::string_view code) {
  constexpr std::size_t kGrowth = 21;
  const char order = item_size(array.dtype) == 1 ? '|' : '<';
  std::string text = athanor::detail::str("{'descr': '", order, code,
                                          "', 'fortran_order': False, 'shape': ", shape_text(array.sizes), ", }");
  if (!array.sizes.empty()) text.append(kGrowth - std::to_string(array.sizes[0]).size(), ' ');
  return text;
}

// Turns the values at `data` into an array with memory of its own.
Array copy_values(const NpyHeader& header, const std::byte* data, const std::string& name) {
  Array stored{header.dtype, header.sizes, row_major_strides(header.sizes), nullptr, nullptr};
  Array copy = empty_array(header.dtype, header.sizes);
  if (header.data_bytes == 0) return copy;
  std::memcpy(copy.data, data, header.data_bytes);
  const std::size_t item = item_size(header.dtype);
  if (header.swapped) swap_bytes(copy.data, header.data_bytes / item, item);
  if (header.dtype == DType::Bool) check_bools(copy, name);
  copy.strides = header.strides();
  return contiguous(copy);
}

}  // namespace

std::vector<std::int64_t> NpyHeader::strides() const {
  if (!fortran_order) return row_major_strides(sizes);
  const std::vector<std::int64_t> reversed(sizes.rbegin(), sizes.rend());
  std::vector<std::int64_t> result = row_major_strides(reversed);
  std::ranges::reverse(result);
  return result;
}

NpyHeader parse_npy_header(Bytes content, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  ATHANOR_CHECK_TYPE(IoError, text.starts_with(kMagic), name, ": not an npy file: it does not begin with \\x93NUMPY");
  ATHANOR_CHECK_TYPE(IoError, text.size() >= 10, name, ": truncated npy file of ", text.size(), " bytes");
  const auto byte = [&](std::size_t at) { return static_cast<std::size_t>(content[at]); };
  const std::size_t major = byte(6);
  ATHANOR_CHECK_TYPE(IoError, major >= 1 && major <= 3 && byte(7) == 0, name, ": npy format version ", major, '.',
                     byte(7), " is unknown, expected 1.0, 2.0 or 3.0");
  const std::size_t prefix = major == 1 ? 10 : 12;
  ATHANOR_CHECK_TYPE(IoError, text.size() >= prefix, name, ": truncated npy file of ", text.size(), " bytes");
  std::size_t length = byte(8) | byte(9) << 8;
  if (major > 1) length |= byte(10) << 16 | byte(11) << 24;
  ATHANOR_CHECK_TYPE(IoError, length <= kMaxHeader, name, ": npy header of ", length, " bytes, more than the limit of ",
                     kMaxHeader);
  ATHANOR_CHECK_TYPE(IoError, length <= text.size() - prefix, name, ": truncated npy file: its header has ", length,
                     " bytes, ", text.size() - prefix, " follow");

  NpyHeader header = HeaderParser(text.substr(prefix, length), name).parse();
  header.data_offset = prefix + length;
  const std::uint64_t present = text.size() - header.data_offset;
  const bool countable = dense_bytes(header.sizes, item_size(header.dtype), &header.data_bytes);
  ATHANOR_CHECK_TYPE(IoError, countable && header.data_bytes <= present, name, ": truncated npy file: sizes ",
                     header.sizes, " of ", header.dtype, " need more than the ", present, " bytes it holds");
  ATHANOR_CHECK_TYPE(IoError, header.data_bytes == present, name, ": ", present - header.data_bytes,
                     " bytes after the npy array; if the file holds several arrays, save each to a file of its own");
  return header;
}

Array parse_npy(Bytes content, const std::string& name, std::uint64_t max_bytes) {
  const NpyHeader header = parse_npy_header(content, name);
  ATHANOR_CHECK_TYPE(IoError, header.data_bytes <= max_bytes, name, ": npy array of ", header.data_bytes,
                     " bytes, more than the limit of ", max_bytes);
  return copy_values(header, content.data() + header.data_offset, name);
}

Array read_npy(const std::string& path, std::uint64_t max_bytes) {
  const MappedFile file(path);
  file.will_read_all();
  return parse_npy(file.bytes(), athanor::detail::str("'", path, "'"), max_bytes);
}

Array map_npy(const std::string& path) {
  auto file = std::make_shared<MappedFile>(path);
  const std::string name = athanor::detail::str("'", path, "'");
  const NpyHeader header = parse_npy_header(file->bytes(), name);
  std::byte* data = file->mutable_data() + header.data_offset;
  const bool aligned = header.data_offset % item_size(header.dtype) == 0;
  if (header.swapped || !aligned) return copy_values(header, data, name);
  Array array{header.dtype, header.sizes, header.strides(), data, std::move(file)};
  if (header.dtype == DType::Bool) check_bools(array, name);
  return array;
}

void write_npy(const std::string& path, const Array& array) {
  const auto* type = std::ranges::find(kTypes, array.dtype, &NpyType::dtype);
  ATHANOR_CHECK_TYPE(TypeError, type != std::end(kTypes), "write_npy: NumPy has no ", array.dtype,
                     "; convert to float32 first, or use safetensors");
  ATHANOR_CHECK_VALUE(array.sizes.size() <= kMaxRank, "write_npy: at most ", kMaxRank, " dimensions, got ",
                      array.sizes.size());
  std::string header = header_text(array, type->code);
  const bool wide = header.size() + 64 > 0xffff;
  const std::size_t prefix = wide ? 12 : 10;
  header.append(63 - (prefix + header.size()) % 64, ' ');
  header += '\n';

  const Array values = contiguous(array);
  AtomicFile file(path);
  file.write(kMagic);
  const std::size_t length = header.size();
  const unsigned char tail[] = {static_cast<unsigned char>(wide ? 2 : 1), 0,
                                static_cast<unsigned char>(length),       static_cast<unsigned char>(length >> 8),
                                static_cast<unsigned char>(length >> 16), static_cast<unsigned char>(length >> 24)};
  file.write(tail, prefix - kMagic.size());
  file.write(header);
  file.write(values.data, values.nbytes());
  file.commit();
}

}  // namespace athanor::io
