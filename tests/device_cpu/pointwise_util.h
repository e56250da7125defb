#pragma once
/// A small owning tensor for kernel tests: any dtype and strides, elements read and written as double.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "athanor/tensor/view.h"

namespace athanor::testing {

using Dims = std::vector<std::int64_t>;

inline Dims dense_strides(const Dims& sizes) {
  Dims strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step *= sizes[d];
  }
  return strides;
}

class Box {
 public:
  /// Dense, row-major.
  Box(DType t, Dims sizes) : Box(t, sizes, dense_strides(sizes)) {}
  /// Any strides; `lead` elements of room before the first, for unaligned addresses.
  Box(DType t, Dims sizes, Dims strides, std::int64_t lead = 0)
      : dtype_(t), sizes_(std::move(sizes)), strides_(std::move(strides)), lead_(lead) {
    std::int64_t span = 1;
    for (std::size_t d = 0; d < sizes_.size(); ++d) span += std::max<std::int64_t>(sizes_[d] - 1, 0) * strides_[d];
    const auto bytes = static_cast<std::size_t>(span + lead_) * item_size(t);
    storage_.assign(bytes / 64 + 2, Line{});
  }

  DType dtype() const { return dtype_; }
  const Dims& sizes() const { return sizes_; }
  std::int64_t numel() const {
    return std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{1}, std::multiplies<>());
  }
  View view() const {
    View v;
    v.data = const_cast<char*>(base());
    v.sizes = sizes_.data();
    v.strides = strides_.data();
    v.numel = numel();
    v.dtype = dtype_;
    v.ndim = static_cast<std::int8_t>(sizes_.size());
    v.contiguous = is_dense();
    return v;
  }
  /// Address of the element at row-major index i.
  char* at(std::int64_t i) const {
    std::int64_t offset = 0;
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      offset += i % sizes_[d] * strides_[d];
      i /= sizes_[d];
    }
    return const_cast<char*>(base()) + offset * static_cast<std::int64_t>(item_size(dtype_));
  }
  double get(std::int64_t i) const {
    return dispatch_all(dtype_, [&](auto tag) {
      typename decltype(tag)::type value;
      std::memcpy(&value, at(i), sizeof value);
      return static_cast<double>(value);
    });
  }
  std::int64_t get_int(std::int64_t i) const {
    return dispatch_all(dtype_, [&](auto tag) {
      typename decltype(tag)::type value;
      std::memcpy(&value, at(i), sizeof value);
      return static_cast<std::int64_t>(value);
    });
  }
  template <class V>
  void set(std::int64_t i, V x) {
    dispatch_all(dtype_, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T value;
      if constexpr (is_half_v<T>)
        value = T(static_cast<float>(x));
      else
        value = static_cast<T>(x);
      std::memcpy(at(i), &value, sizeof value);
    });
  }
  template <class F>
  Box& fill(F&& f) {
    for (std::int64_t i = 0; i < numel(); ++i) set(i, f(i));
    return *this;
  }

 private:
  struct Line {
    alignas(64) char bytes[64];
  };
  const char* base() const {
    return reinterpret_cast<const char*>(storage_.data()) + lead_ * static_cast<std::int64_t>(item_size(dtype_));
  }
  bool is_dense() const {
    std::int64_t step = 1;
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      if (sizes_[d] != 1 && strides_[d] != step) return false;
      step *= sizes_[d];
    }
    return true;
  }

  DType dtype_;
  Dims sizes_, strides_;
  std::int64_t lead_ = 0;
  std::vector<Line> storage_;
};

inline bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Row-major index of `small`'s element that broadcasts to element i of `big`.
inline std::int64_t broadcast_index(const Dims& small, const Dims& big, std::int64_t i) {
  std::int64_t index = 0, step = 1;
  for (std::size_t k = 1; k <= big.size(); ++k) {
    const std::int64_t at = i % big[big.size() - k];
    i /= big[big.size() - k];
    if (k > small.size()) continue;
    const std::int64_t size = small[small.size() - k];
    if (size != 1) index += at * step;
    step *= size;
  }
  return index;
}

inline constexpr DType kAllDTypes[] = {kByte, kChar, kShort, kInt, kLong, kHalf, kFloat, kDouble, kBool, kBFloat16};

/// Distance of `got` from `want` in units of the last place of T at `want`; 0 for equal non-finite values, huge for
/// others.
template <class T>
double ulps(T got, long double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e30;
  const T rounded = static_cast<T>(want);
  if (std::isinf(got) || std::isinf(rounded)) return got == rounded ? 0 : 1e30;
  int exponent = 0;
  std::frexp(rounded, &exponent);
  constexpr int kDigits = std::numeric_limits<T>::digits;
  const int lowest = std::numeric_limits<T>::min_exponent - kDigits;
  const long double unit = std::ldexp(1.0L, std::max(exponent - kDigits, lowest));
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / unit);
}

}  // namespace athanor::testing
