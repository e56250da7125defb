#pragma once
/// Arrays with any strides for kernel tests: filled with small numbers, read back as double, viewed as View.

#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "athanor/tensor/view.h"

namespace athanor::testing {

class StridedArray {
 public:
  /// `order` lists the dimensions from the slowest to the fastest in memory; row-major if empty. `gap` elements are
  /// left unused after each step of the fastest dimension and around the array, filled with a mark that must survive.
  StridedArray(DType dtype, std::vector<std::int64_t> sizes, std::vector<int> order = {}, std::int64_t gap = 0)
      : dtype_(dtype), sizes_(std::move(sizes)), strides_(sizes_.size()) {
    if (order.empty()) {
      order.resize(sizes_.size());
      std::iota(order.begin(), order.end(), 0);
    }
    std::int64_t step = 1 + gap;
    for (auto d = order.rbegin(); d != order.rend(); ++d) {
      strides_[*d] = step;
      step *= sizes_[*d];
    }
    for (auto s : sizes_) numel_ *= s;
    bytes_.assign((step + 2 * kMargin) * item_size(dtype), 0);
    dispatch_all(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* p = reinterpret_cast<T*>(bytes_.data());
      for (std::size_t i = 0; i < bytes_.size() / sizeof(T); ++i) p[i] = T(kMark);
    });
    bool plain = gap == 0;
    for (std::size_t i = 0; i < order.size(); ++i) plain = plain && order[i] == static_cast<int>(i);
    contiguous_ = plain;
  }

  /// Small integers for integer dtypes, else multiples of 1/64 below `range` in magnitude.
  StridedArray& fill(unsigned seed, double range = 1) {
    std::mt19937 random(seed);
    each([&](std::int64_t offset) {
      const bool whole = is_integral(dtype_);
      const int n = whole ? 5 : static_cast<int>(64 * range);
      const int v = static_cast<int>(random() % (2 * n + 1)) - n;
      set(offset, whole ? v : v / 64.0);
    });
    return *this;
  }
  StridedArray& fill_with(double value) {
    each([&](std::int64_t offset) { set(offset, value); });
    return *this;
  }

  double at(const std::vector<std::int64_t>& index) const { return get(offset(index)); }
  void put(const std::vector<std::int64_t>& index, double value) { set(offset(index), value); }

  /// Makes dimension `d` one that repeats its first element.
  StridedArray& broadcast(int d, std::int64_t size) {
    numel_ = numel_ / std::max<std::int64_t>(sizes_[d], 1) * size;
    sizes_[d] = size;
    strides_[d] = 0;
    contiguous_ = false;
    return *this;
  }

  View view() {
    return {bytes_.data() + kMargin * item_size(dtype_), sizes_.data(), strides_.data(), numel_, dtype_,
            static_cast<std::int8_t>(sizes_.size()),     contiguous_};
  }

  /// Calls fn(index) for every index in row-major order.
  void each_index(const std::function<void(const std::vector<std::int64_t>&)>& fn) const {
    if (numel_ == 0) return;
    std::vector<std::int64_t> index(sizes_.size());
    for (std::int64_t i = 0; i < numel_; ++i) {
      fn(index);
      for (int d = static_cast<int>(sizes_.size()) - 1; d >= 0 && ++index[d] == sizes_[d]; --d) index[d] = 0;
    }
  }
  std::vector<double> values() const {
    std::vector<double> out;
    each_index([&](const auto& index) { out.push_back(at(index)); });
    return out;
  }
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  /// True while nothing but the elements has been written.
  bool margins_intact() const {
    std::vector<char> element(bytes_.size() / item_size(dtype_));
    each_index([&](const auto& index) { element[offset(index)] = 1; });
    for (std::size_t i = 0; i < element.size(); ++i)
      if (!element[i] && get(static_cast<std::int64_t>(i)) != mark()) return false;
    return true;
  }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  static constexpr std::int64_t kMargin = 19;  // odd: views start unaligned
  static constexpr int kMark = 77;

  double mark() const { return dtype_ == DType::Bool ? 1 : kMark; }
  void each(const std::function<void(std::int64_t)>& fn) {
    each_index([&](const auto& index) { fn(offset(index)); });
  }
  std::int64_t offset(const std::vector<std::int64_t>& index) const {
    std::int64_t o = kMargin;
    for (std::size_t d = 0; d < index.size(); ++d) o += index[d] * strides_[d];
    return o;
  }
  double get(std::int64_t offset) const {
    return dispatch_all(dtype_, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return static_cast<double>(reinterpret_cast<const T*>(bytes_.data())[offset]);
    });
  }
  void set(std::int64_t offset, double value) {
    dispatch_all(dtype_, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T& at = reinterpret_cast<T*>(bytes_.data())[offset];
      if constexpr (is_half_v<T>)
        at = T(static_cast<float>(value));
      else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
        at = static_cast<T>(static_cast<std::int64_t>(value));
      else
        at = static_cast<T>(value);
    });
  }

  DType dtype_;
  std::vector<std::int64_t> sizes_, strides_;
  std::int64_t numel_ = 1;
  bool contiguous_ = true;
  std::vector<char> bytes_;
};

/// `value` as an element of integer dtype `t` would hold it.
inline double wrapped(std::int64_t value, DType t) {
  switch (t) {
    case DType::Byte:
      return static_cast<std::uint8_t>(value);
    case DType::Char:
      return static_cast<std::int8_t>(value);
    case DType::Short:
      return static_cast<std::int16_t>(value);
    case DType::Int:
      return static_cast<std::int32_t>(value);
    default:
      return static_cast<double>(value);
  }
}

}  // namespace athanor::testing
