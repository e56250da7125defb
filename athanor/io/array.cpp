#include "athanor/io/array.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

namespace athanor::io {

static_assert(std::endian::native == std::endian::little, "the file formats assume a little-endian machine");

namespace {

constexpr std::size_t kAlignment = 64;
// No allocator can give more; some abort when asked to.
constexpr std::uint64_t kAddressSpace = std::uint64_t{1} << 47;

std::uint64_t checked_bytes(DType dtype, IntArrayRef sizes) {
  ATHANOR_CHECK_TYPE(TypeError, dtype != DType::Undefined, "array: undefined dtype");
  std::uint64_t bytes = 0;
  ATHANOR_CHECK_VALUE(dense_bytes(sizes, item_size(dtype), &bytes), "array: sizes ", sizes, " of ", dtype_name(dtype),
                      " are negative or need more than 2^63 bytes");
  return bytes;
}

// Aligned memory, or null. Large blocks ask for huge pages: the first write to a small one costs more than the copy.
void* allocate(std::uint64_t bytes) {
  constexpr std::uint64_t kHugePage = std::uint64_t{1} << 21;
  if (bytes > kAddressSpace) return nullptr;
  const std::uint64_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory && alignment == kHugePage) ::madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

template <class T>
void swap_all(std::byte* data, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    if constexpr (sizeof(T) == 2)
      value = __builtin_bswap16(value);
    else if constexpr (sizeof(T) == 4)
      value = __builtin_bswap32(value);
    else
      value = __builtin_bswap64(value);
    std::memcpy(data + i * sizeof(T), &value, sizeof(T));
  }
}

// Copies dimension by dimension; the last one in a tight loop.
void copy_strided(const Array& from, std::size_t item, std::size_t dim, const std::byte* source, std::byte*& out) {
  const auto n = static_cast<std::size_t>(from.sizes[dim]);
  const auto step = static_cast<std::size_t>(from.strides[dim]) * item;
  if (dim + 1 < from.sizes.size()) {
    for (std::size_t i = 0; i < n; ++i) copy_strided(from, item, dim + 1, source + i * step, out);
    return;
  }
  if (step == item) {
    std::memcpy(out, source, n * item);
    out += n * item;
    return;
  }
  const auto copy = [&](auto size) {
    for (std::size_t i = 0; i < n; ++i, out += size) std::memcpy(out, source + i * step, size);
  };
  switch (item) {
    case 1:
      return copy(std::integral_constant<std::size_t, 1>{});
    case 2:
      return copy(std::integral_constant<std::size_t, 2>{});
    case 4:
      return copy(std::integral_constant<std::size_t, 4>{});
    default:
      return copy(std::integral_constant<std::size_t, 8>{});
  }
}

}  // namespace

std::int64_t Array::numel() const {
  std::int64_t n = 1;
  for (const std::int64_t size : sizes) {
    if (size == 0) return 0;
    n *= size;
  }
  return n;
}

bool Array::is_contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 0) return true;
    if (sizes[d] != 1 && strides[d] != expected) return numel() == 0;
    expected *= sizes[d];
  }
  return true;
}

void Array::check_values(DType wanted) const {
  ATHANOR_CHECK_TYPE(TypeError, wanted == dtype, "array: expected values of ", dtype_name(wanted), ", it holds ",
                     dtype_name(dtype));
  ATHANOR_CHECK(is_contiguous(), "array: sizes ", sizes, " with strides ", strides, " are not contiguous");
}

Array empty_array(DType dtype, IntArrayRef sizes) {
  const std::uint64_t bytes = checked_bytes(dtype, sizes);
  Array array{dtype, sizes.vec(), row_major_strides(sizes), nullptr, nullptr};
  if (bytes == 0) return array;
  void* memory = allocate(bytes);
  ATHANOR_CHECK_TYPE(OutOfMemoryError, memory, "array: no memory for ", bytes, " bytes, sizes ", sizes, " of ",
                     dtype_name(dtype));
  array.owner = std::shared_ptr<void>(memory, std::free);
  array.data = static_cast<std::byte*>(memory);
  return array;
}

Array borrow_array(DType dtype, IntArrayRef sizes, const void* data) {
  const std::uint64_t bytes = checked_bytes(dtype, sizes);
  ATHANOR_CHECK_VALUE(data || bytes == 0, "array: null data for sizes ", sizes);
  auto* address = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  return {dtype, sizes.vec(), row_major_strides(sizes), address, nullptr};
}

Array contiguous(const Array& array) {
  if (array.is_contiguous()) return array;
  Array copy = empty_array(array.dtype, array.sizes);
  std::byte* out = copy.data;
  copy_strided(array, item_size(array.dtype), 0, array.data, out);
  return copy;
}

std::vector<std::int64_t> row_major_strides(IntArrayRef sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::uint64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = static_cast<std::int64_t>(step);
    // Wraps only for arrays without elements, whose strides nobody follows.
    step *= static_cast<std::uint64_t>(std::max<std::int64_t>(sizes[d], 1));
  }
  return strides;
}

bool dense_bytes(IntArrayRef sizes, std::size_t item_bytes, std::uint64_t* bytes) {
  bool empty = false;
  for (const std::int64_t size : sizes) {
    if (size < 0) return false;
    empty |= size == 0;
  }
  *bytes = 0;
  if (empty) return true;
  std::uint64_t total = item_bytes;
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(size), &total)) return false;
    if (total > INT64_MAX - kAlignment) return false;
  }
  *bytes = total;
  return true;
}

void check_bools(const Array& array, std::string_view what) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(array.data);
  const std::size_t n = array.nbytes();
  std::uint8_t all = 0;
  for (std::size_t i = 0; i < n; ++i) all |= bytes[i];
  if (all <= 1) return;
  const auto* bad = std::find_if(bytes, bytes + n, [](std::uint8_t b) { return b > 1; });
  ATHANOR_THROW(IoError, what, ": byte ", bad - bytes, " of a bool array is ", static_cast<int>(*bad),
                ", expected 0 or 1");
}

void swap_bytes(std::byte* data, std::size_t count, std::size_t item_bytes) {
  switch (item_bytes) {
    case 2:
      return swap_all<std::uint16_t>(data, count);
    case 4:
      return swap_all<std::uint32_t>(data, count);
    case 8:
      return swap_all<std::uint64_t>(data, count);
    default:
      return;
  }
}

}  // namespace athanor::io
