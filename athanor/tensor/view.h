#pragma once
/// View: what a kernel sees of a tensor: an address, a dtype and a geometry, owning nothing. ArrayRef-like: valid for
/// the duration of the kernel call.

#include <cstring>

#include "athanor/base/array_ref.h"
#include "athanor/tensor/dtype.h"

namespace athanor {

struct View {
  void* data = nullptr;
  const std::int64_t* sizes = nullptr;
  const std::int64_t* strides = nullptr;  ///< in elements
  std::int64_t numel = 0;
  DType dtype = DType::Undefined;
  std::int8_t ndim = 0;
  bool contiguous = true;  ///< row-major without gaps
  /// Positive: stored as (size(0), size(1) / block, spatial…, block), and the strides say nothing. kOuterProduct: only
  /// factors are stored. Met only by kernels of ops that accept such hidden layouts.
  std::int16_t block = 0;
  /// The operand is an optional one that was not given.
  bool defined() const { return dtype != DType::Undefined; }

  template <class T>
  T* ptr() const {
    return static_cast<T*>(data);
  }
  std::int64_t size(int d) const { return sizes[d < 0 ? d + ndim : d]; }
  std::int64_t stride(int d) const { return strides[d < 0 ? d + ndim : d]; }
  IntArrayRef shape() const { return {sizes, static_cast<std::size_t>(ndim)}; }
  std::size_t item_size() const { return athanor::item_size(dtype); }
};

}  // namespace athanor
