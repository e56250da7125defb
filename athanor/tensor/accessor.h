#pragma once
/// TensorAccessor: typed n-dimensional access through strides; valid while the tensor lives.

#include <cstddef>
#include <cstdint>

#include "athanor/base/array_ref.h"

namespace athanor {

template <class T, std::size_t N>
class TensorAccessor {
 public:
  TensorAccessor(T* data, const std::int64_t* sizes, const std::int64_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  std::int64_t size(std::int64_t d) const { return sizes_[d]; }
  std::int64_t stride(std::int64_t d) const { return strides_[d]; }
  IntArrayRef sizes() const { return {sizes_, N}; }
  IntArrayRef strides() const { return {strides_, N}; }
  T* data() const { return data_; }
  decltype(auto) operator[](std::int64_t i) const {
    if constexpr (N == 1)
      return (data_[i * strides_[0]]);
    else
      return TensorAccessor<T, N - 1>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
  }

 private:
  T* data_;
  const std::int64_t *sizes_, *strides_;
};

/// What libtorch's kernels say about their pointers; accessors here are the same for both.
template <class T>
struct DefaultPtrTraits {
  using PtrType = T*;
};
template <class T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};

template <class T, std::size_t N, template <class> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor32 = TensorAccessor<T, N>;
template <class T, std::size_t N, template <class> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor64 = TensorAccessor<T, N>;

}  // namespace athanor
