// Rows of a table combined bag by bag.
#include "athanor/ops/kernels/embedding_bag.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "athanor/base/half.h"
#include "athanor/base/parallel.h"

namespace athanor::cpu {
namespace {

template <class T>
using Wide = std::conditional_t<is_half_v<T>, float, T>;

std::int64_t index_at(const View& indices, std::int64_t i) {
  return indices.dtype == DType::Long ? indices.ptr<std::int64_t>()[i * indices.stride(0)]
                                      : indices.ptr<std::int32_t>()[i * indices.stride(0)];
}

template <class T>
class Bags {
 public:
  Bags(const View& out, const View& sizes, const View& places, const View& weight, const View& indices,
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
    if (mode_ != BagMode::Max && !weights_.defined() && weight_.stride(1) == 1) {
      i = add_by_four(begin, end);
      counted = i - begin;
    }
    for (; i < end; ++i) {
      const std::int64_t row = index_at(indices_, i);
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
  /// Adds rows in their order, four in a pass over the sums, up to padding or the last few; returns where it stopped.
  std::int64_t add_by_four(std::int64_t i, std::int64_t end) {
    Wide<T>* __restrict const sums = sums_.data();
    for (; i + 4 <= end; i += 4) {
      const T* from[4];
      for (int k = 0; k < 4; ++k) {
        const std::int64_t row = index_at(indices_, i + k);
        if (row == padding_) return i;
        from[k] = weight_.ptr<T>() + row * weight_.stride(0);
      }
      const T* __restrict a = from[0], * __restrict b = from[1], * __restrict c = from[2], * __restrict e = from[3];
      for (std::int64_t d = 0; d < width_; ++d)
        sums[d] = sums[d] + static_cast<Wide<T>>(a[d]) + static_cast<Wide<T>>(b[d]) + static_cast<Wide<T>>(c[d]) +
                  static_cast<Wide<T>>(e[d]);
    }
    return i;
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

  const View &out_, &sizes_, &places_, &weight_, &indices_, &weights_;
  BagMode mode_;
  std::int64_t padding_, width_;
  std::vector<Wide<T>> sums_;
};

void embedding_bag_cpu(const View& out, const View& bag_of, const View& sizes, const View& places, const View& weight,
                       const View& indices, const View& bounds, const View& weights, BagMode mode,
                       std::int64_t padding_idx) {
  const std::int64_t bags = out.size(0), count = indices.numel, rows = weight.size(0);
  const std::int64_t* const bound = bounds.ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = index_at(indices, i);
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
      Bags<typename decltype(tag)::type> work(out, sizes, places, weight, indices, weights, mode, padding_idx);
      for (std::int64_t b = first; b < last; ++b) work.combine(b, bound[b], bound[b + 1]);
    });
  });
}

ATHANOR_REGISTER_KERNEL(embedding_bag_kernel, CPU, &embedding_bag_cpu);

}  // namespace
}  // namespace athanor::cpu
