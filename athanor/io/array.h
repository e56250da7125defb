#pragma once
/// Array: the plain block of values that file readers return and writers take. It knows nothing of tensors.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "athanor/base/array_ref.h"
#include "athanor/tensor/dtype.h"

namespace athanor::io {

/// Values in this machine's byte order. Copies share them; `owner` keeps them alive (null: they belong to the caller,
/// who must keep them). Bools are 0 or 1.
struct Array {
  DType dtype = DType::Undefined;
  std::vector<std::int64_t> sizes;    ///< empty: one value, 0-d
  std::vector<std::int64_t> strides;  ///< in elements, none negative
  std::byte* data = nullptr;          ///< aligned for the dtype; may be null when there are no values
  std::shared_ptr<void> owner;

  std::int64_t numel() const;
  std::size_t nbytes() const { return static_cast<std::size_t>(numel()) * item_size(dtype); }
  /// Row-major without gaps.
  bool is_contiguous() const;
  /// The values of a contiguous array. Throws TypeError if T is not its dtype's type, Error if it is not contiguous.
  template <class T>
  std::span<T> values() const {
    check_values(dtype_of_v<T>);
    return {reinterpret_cast<T*>(data), static_cast<std::size_t>(numel())};
  }

 private:
  void check_values(DType wanted) const;
};

/// A new contiguous array, values not set, aligned to 64 bytes. Throws ValueError if a size is negative or the bytes
/// pass 2^63, OutOfMemoryError if there is no memory.
Array empty_array(DType dtype, IntArrayRef sizes);

/// Borrows contiguous values. Throws as empty_array, and ValueError for null `data` with values.
Array borrow_array(DType dtype, IntArrayRef sizes, const void* data);

/// The array itself if it is contiguous, else a contiguous copy.
Array contiguous(const Array& array);

/// Strides of a contiguous array, in elements.
std::vector<std::int64_t> row_major_strides(IntArrayRef sizes);

/// Bytes of a dense array, or false when a size is negative or the count passes 2^63 - 1. Zero-sized arrays have
/// zero bytes whatever their other sizes.
bool dense_bytes(IntArrayRef sizes, std::size_t item_bytes, std::uint64_t* bytes);

/// Throws IoError naming `what` unless every byte of a bool array is 0 or 1, as C++ requires of a bool.
void check_bools(const Array& array, std::string_view what);

/// Reverses the bytes of each of `count` items of 1, 2, 4 or 8 bytes.
void swap_bytes(std::byte* data, std::size_t count, std::size_t item_bytes);

}  // namespace athanor::io
