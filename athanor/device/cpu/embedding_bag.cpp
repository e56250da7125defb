// Rows of a table combined bag by bag.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/embedding_bag.cpp"
#include "athanor/device/cpu/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "athanor/device/cpu/simd_tail-inl.h"
// clang-format on

#include "athanor/ops/kernels/embedding_bag.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "athanor/base/half.h"
#include "athanor/base/parallel.h"
#include "athanor/device/cpu/owned_view.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// sums[d] += table[rows[0] * stride + d], then that of rows[1] and so on: up to four vectors of sums stay in registers
/// over all rows.
template <class T>
void add_rows(T* sums, const T* table, std::int64_t stride, const std::int64_t* rows, std::int64_t count,
              std::int64_t width) {
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t at = 0;
  for (; at + 4 * n <= width; at += 4 * n) {
    auto a = hn::LoadU(d, sums + at), b = hn::LoadU(d, sums + at + n);
    auto c = hn::LoadU(d, sums + at + 2 * n), e = hn::LoadU(d, sums + at + 3 * n);
    for (std::int64_t k = 0; k < count; ++k) {
      const T* const row = table + rows[k] * stride + at;
      a = hn::Add(a, hn::LoadU(d, row));
      b = hn::Add(b, hn::LoadU(d, row + n));
      c = hn::Add(c, hn::LoadU(d, row + 2 * n));
      e = hn::Add(e, hn::LoadU(d, row + 3 * n));
    }
    hn::StoreU(a, d, sums + at);
    hn::StoreU(b, d, sums + at + n);
    hn::StoreU(c, d, sums + at + 2 * n);
    hn::StoreU(e, d, sums + at + 3 * n);
  }
  for (; at + n <= width; at += n) {
    auto sum = hn::LoadU(d, sums + at);
    for (std::int64_t k = 0; k < count; ++k) sum = hn::Add(sum, hn::LoadU(d, table + rows[k] * stride + at));
    hn::StoreU(sum, d, sums + at);
  }
  if (at == width) return;
  auto sum = load_tail(d, sums + at, width - at);
  for (std::int64_t k = 0; k < count; ++k) sum = hn::Add(sum, load_tail(d, table + rows[k] * stride + at, width - at));
  store_tail(d, sum, sums + at, width - at);
}

void add_float_rows(float* sums, const float* table, std::int64_t stride, const std::int64_t* rows, std::int64_t count,
                    std::int64_t width) {
  add_rows(sums, table, stride, rows, count, width);
}
void add_double_rows(double* sums, const double* table, std::int64_t stride, const std::int64_t* rows,
                     std::int64_t count, std::int64_t width) {
  add_rows(sums, table, stride, rows, count, width);
}

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
namespace {

HWY_EXPORT(add_float_rows);
HWY_EXPORT(add_double_rows);

template <class T>
using Wide = std::conditional_t<is_half_v<T>, float, T>;

template <class T>
class Bags {
 public:
  Bags(const View& out, const View& sizes, const View& places, const View& weight, const std::int64_t* indices,
       const View& weights, BagMode mode, std::int64_t padding_idx)
      : out_(out),
        sizes_(sizes),
        places_(places),
        weight_(weight),
        indices_(indices),
        weights_(weights),
        mode_(mode),
        padding_(padding_idx),
        width_(weight.size(1)),
        sums_(static_cast<std::size_t>(width_)) {}

  void combine(std::int64_t bag, std::int64_t begin, std::int64_t end) {
    std::int64_t counted = 0;
    std::fill(sums_.begin(), sums_.end(), Wide<T>(0));
    std::int64_t* const places = places_.defined() ? places_.ptr<std::int64_t>() + bag * width_ : nullptr;
    if (places) std::fill_n(places, width_, -1);
    std::int64_t i = begin;
    if constexpr (!is_half_v<T>)
      if (mode_ != BagMode::Max && !weights_.defined() && weight_.stride(1) == 1)
        counted = add_all(begin, end), i = end;
    for (; i < end; ++i) {
      const std::int64_t row = indices_[i];
      if (row == padding_) continue;
      const T* from = weight_.ptr<T>() + row * weight_.stride(0);
      if (mode_ == BagMode::Max)
        take_largest(from, row, counted == 0, places);
      else
        add(from, weights_.defined() ? static_cast<Wide<T>>(weights_.ptr<T>()[i * weights_.stride(0)]) : Wide<T>(1));
      ++counted;
    }
    sizes_.ptr<std::int64_t>()[bag] = counted;
    T* to = out_.ptr<T>() + bag * width_;
    const Wide<T> divisor = mode_ == BagMode::Mean && counted > 0 ? static_cast<Wide<T>>(counted) : Wide<T>(1);
    for (std::int64_t d = 0; d < width_; ++d) to[d] = static_cast<T>(sums_[static_cast<std::size_t>(d)] / divisor);
  }

 private:
  /// Adds the rows of the indices but padding, in their order; returns how many.
  std::int64_t add_all(std::int64_t begin, std::int64_t end) {
    const auto add = [&](const std::int64_t* rows, std::int64_t count) {
      const std::int64_t stride = weight_.stride(0);
      if constexpr (std::is_same_v<T, float>)
        HWY_DYNAMIC_DISPATCH(add_float_rows)(sums_.data(), weight_.ptr<T>(), stride, rows, count, width_);
      else
        HWY_DYNAMIC_DISPATCH(add_double_rows)(sums_.data(), weight_.ptr<T>(), stride, rows, count, width_);
      return count;
    };
    if (padding_ < 0) return add(indices_ + begin, end - begin);
    std::int64_t counted = 0, from = begin;
    for (std::int64_t i = begin; i <= end; ++i)
      if (i == end || indices_[i] == padding_) counted += add(indices_ + from, i - from), from = i + 1;
    return counted;
  }

  void add(const T* from, Wide<T> factor) {
    const std::int64_t step = weight_.stride(1);
    Wide<T>* const sums = sums_.data();
    if (step == 1)
      for (std::int64_t d = 0; d < width_; ++d) sums[d] += factor * static_cast<Wide<T>>(from[d]);
    else
      for (std::int64_t d = 0; d < width_; ++d) sums[d] += factor * static_cast<Wide<T>>(from[d * step]);
  }
  /// The first of equals stays; NaN is the largest.
  void take_largest(const T* from, std::int64_t row, bool first, std::int64_t* places) {
    for (std::int64_t d = 0; d < width_; ++d) {
      const auto v = static_cast<Wide<T>>(from[d * weight_.stride(1)]);
      Wide<T>& best = sums_[static_cast<std::size_t>(d)];
      if (!first && !(v > best || (v != v && best == best))) continue;
      best = v;
      if (places) places[d] = row;
    }
  }

  const View &out_, &sizes_, &places_, &weight_;
  const std::int64_t* indices_;
  const View& weights_;
  BagMode mode_;
  std::int64_t padding_, width_;
  std::vector<Wide<T>> sums_;
};

void embedding_bag_cpu(const View& out, const View& bag_of, const View& sizes, const View& places, const View& weight,
                       const View& indices, const View& bounds, const View& weights, BagMode mode,
                       std::int64_t padding_idx) {
  const std::int64_t bags = out.size(0), count = indices.numel, rows = weight.size(0);
  const std::int64_t* const bound = bounds.ptr<std::int64_t>();
  std::vector<std::int64_t> dense;
  const std::int64_t* index = indices.ptr<std::int64_t>();
  if (indices.dtype != DType::Long || !indices.contiguous) {
    dense.resize(static_cast<std::size_t>(count));
    const OwnedGeometry to(dense.data(), DType::Long, {count}, {1});
    copy_kernel.get(DeviceType::CPU)(to.view(), indices);
    index = dense.data();
  }
  std::uint64_t signs = 0;  // the highest bit is set if an index or its distance to the last row is negative
  for (std::int64_t i = 0; i < count; ++i)
    signs |= static_cast<std::uint64_t>(index[i]) |
             (static_cast<std::uint64_t>(rows - 1) - static_cast<std::uint64_t>(index[i]));
  for (std::int64_t i = 0; signs >> 63 != 0 && i < count; ++i) {
    const std::int64_t row = index[i];
    ATHANOR_CHECK(row >= 0 && row < rows, "embedding_bag: index ", row, " is out of bounds for dimension 0 with size ",
                  rows);
  }
  for (std::int64_t b = 0; b < bags; ++b)
    ATHANOR_CHECK(bound[0] == 0 && bound[b] <= bound[b + 1] && bound[b + 1] <= count,
                  "embedding_bag: offsets must begin with 0, not fall and not exceed the number of indices, ", count,
                  "; got ", bound[b], " and then ", bound[b + 1], " for bag ", b);
  std::int64_t* const owner = bag_of.ptr<std::int64_t>();
  for (std::int64_t b = 0; b < bags; ++b) std::fill(owner + bound[b], owner + bound[b + 1], b);
  const std::int64_t cost = bags > 0 ? (count / bags + 1) * (weight.size(1) + 1) : 1;
  dispatch_floating(out.dtype, "embedding_bag", [&](auto tag) {
    parallel_for(0, bags, 1 + 16384 / cost, [&](std::int64_t first, std::int64_t last) {
      Bags<typename decltype(tag)::type> work(out, sizes, places, weight, index, weights, mode, padding_idx);
      for (std::int64_t b = first; b < last; ++b) work.combine(b, bound[b], bound[b + 1]);
    });
  });
}

ATHANOR_REGISTER_KERNEL(embedding_bag_kernel, CPU, &embedding_bag_cpu);

}  // namespace
}  // namespace athanor::cpu
#endif
