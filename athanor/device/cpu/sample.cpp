// Sums of weighted elements at the places of an index, the same for all channels.
#include "athanor/ops/kernels/sample.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <vector>

#include "athanor/base/parallel.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;  // taps for which a second thread pays
constexpr std::int64_t kPoints = 256;   // points whose taps stay in the first cache while channels go by

template <class T>
using Sum = std::conditional_t<sizeof(T) == 2, float, T>;

/// values[i], or 0 where i is below 0: by masks, since which taps are outside is not to be foreseen.
template <class T>
Sum<T> masked(const T* values, std::int64_t i, std::int64_t mask) {
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
  return static_cast<Sum<T>>(std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(values[i]) & mask)));
}
inline std::int64_t mask_of(std::int64_t index) { return ~(index >> 63); }

struct Shape {
  std::int64_t batch, channels, size, taps, points;
};

/// Some points of one example.
struct Block {
  std::int64_t example, first, count;
};

template <class F>
void each_block(const Shape& s, F&& fn) {
  const std::int64_t blocks = (s.points + kPoints - 1) / kPoints;
  const std::int64_t work = std::max<std::int64_t>(1, s.channels * s.taps * std::min(kPoints, s.points));
  parallel_for(0, s.batch * blocks, 1 + kGrain / work, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % blocks * kPoints;
      fn(Block{i / blocks, first, std::min(kPoints, s.points - first)});
    }
  });
}

/// Elements of one plane at some points, K taps each (0: `taps`), `stride` apart.
template <class T, int K>
void gather_line(T* to, const T* from, const std::int64_t* at, const T* weight, std::int64_t stride, std::int64_t count,
                 std::int64_t taps) {
  for (std::int64_t p = 0; p < count; ++p) {
    Sum<T> sum = 0;
    for (std::int64_t k = 0; k < (K > 0 ? K : taps); ++k) {
      const std::int64_t tap = k * stride + p, mask = mask_of(at[tap]);
      // Of four taps one that is outside counts if its weight is NaN, as PyTorch has it in two dims; of eight it does
      // not.
      const Sum<T> w = K == 8 ? masked(weight, tap, mask) : static_cast<Sum<T>>(weight[tap]);
      sum += w * masked(from, at[tap] & mask, mask);
    }
    to[p] = static_cast<T>(sum);
  }
}

template <class T>
void gather(const View& out, const View& source, const View& index, const View& weight, const Shape& s) {
  const auto line = s.taps == 4 ? gather_line<T, 4> : s.taps == 8 ? gather_line<T, 8> : gather_line<T, 0>;
  each_block(s, [&](const Block& b) {
    const std::int64_t taps_at = b.example * s.taps * s.points + b.first;
    for (std::int64_t c = 0; c < s.channels; ++c) {
      const std::int64_t plane = b.example * s.channels + c;
      line(out.ptr<T>() + plane * s.points + b.first, source.ptr<T>() + plane * s.size,
           index.ptr<std::int64_t>() + taps_at, weight.ptr<T>() + taps_at, s.points, b.count, s.taps);
    }
  });
}

template <class T>
void weight_gradient(const View& out, const View& grad, const View& source, const View& index, const Shape& s) {
  each_block(s, [&](const Block& b) {
    const std::int64_t taps_at = b.example * s.taps * s.points + b.first;
    std::array<Sum<T>, kPoints> sum;
    for (std::int64_t k = 0; k < s.taps; ++k) {
      const std::int64_t* at = index.ptr<std::int64_t>() + taps_at + k * s.points;
      sum.fill(0);
      for (std::int64_t c = 0; c < s.channels; ++c) {
        const std::int64_t plane = b.example * s.channels + c;
        const T* from = source.ptr<T>() + plane * s.size;
        const T* g = grad.ptr<T>() + plane * s.points + b.first;
        for (std::int64_t p = 0; p < b.count; ++p) {
          const std::int64_t mask = mask_of(at[p]);
          sum[p] += masked(g, p, mask) * masked(from, at[p] & mask, mask);
        }
      }
      T* to = out.ptr<T>() + taps_at + k * s.points;
      for (std::int64_t p = 0; p < b.count; ++p) to[p] = static_cast<T>(sum[p]);
    }
  });
}

/// One plane's gradient; points may meet in an element, so a plane has one thread.
template <class T>
void scatter_plane(Sum<T>* to, const T* grad, const std::int64_t* index, const T* weight, const Shape& s) {
  for (std::int64_t first = 0; first < s.points; first += kPoints) {
    const std::int64_t last = std::min(first + kPoints, s.points);
    for (std::int64_t k = 0; k < s.taps; ++k)
      for (std::int64_t p = first, t = k * s.points + first; p < last; ++p, ++t)
        if (index[t] >= 0) to[index[t]] += static_cast<Sum<T>>(weight[t]) * static_cast<Sum<T>>(grad[p]);
  }
}

template <class T>
void scatter(const View& out, const View& grad, const View& index, const View& weight, const Shape& s) {
  const std::int64_t work = std::max<std::int64_t>(1, s.size + s.taps * s.points);
  parallel_for(0, s.batch * s.channels, 1 + kGrain / work, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Sum<T>> half(sizeof(T) == 2 ? static_cast<std::size_t>(s.size) : 0);
    for (std::int64_t plane = begin; plane < end; ++plane) {
      const std::int64_t taps_at = plane / s.channels * s.taps * s.points;
      T* result = out.ptr<T>() + plane * s.size;
      const T* g = grad.ptr<T>() + plane * s.points;
      const std::int64_t* at = index.ptr<std::int64_t>() + taps_at;
      const T* w = weight.ptr<T>() + taps_at;
      if constexpr (sizeof(T) == 2) {
        std::fill(half.begin(), half.end(), 0.0F);
        scatter_plane(half.data(), g, at, w, s);
        for (std::int64_t i = 0; i < s.size; ++i) result[i] = static_cast<T>(half[static_cast<std::size_t>(i)]);
      } else {
        std::fill_n(result, s.size, T(0));
        scatter_plane(result, g, at, w, s);
      }
    }
  });
}

/// `planes` is (N, C, S), `points` (N, C, P).
Shape shape_of(const View& planes, const View& points, const View& index) {
  return {planes.sizes[0], planes.sizes[1], planes.sizes[2], index.sizes[1], points.sizes[2]};
}

void sample_points(const View& out, const View& source, const View& index, const View& weight) {
  dispatch_floating(out.dtype, "grid_sampler", [&](auto tag) {
    gather<typename decltype(tag)::type>(out, source, index, weight, shape_of(source, out, index));
  });
}

void sample_points_scatter(const View& out, const View& grad, const View& index, const View& weight) {
  dispatch_floating(out.dtype, "grid_sampler", [&](auto tag) {
    scatter<typename decltype(tag)::type>(out, grad, index, weight, shape_of(out, grad, index));
  });
}

void sample_points_weight(const View& out, const View& grad, const View& source, const View& index) {
  dispatch_floating(out.dtype, "grid_sampler", [&](auto tag) {
    weight_gradient<typename decltype(tag)::type>(out, grad, source, index, shape_of(source, grad, index));
  });
}

ATHANOR_REGISTER_KERNEL(sample_points_kernel, CPU, &sample_points);
ATHANOR_REGISTER_KERNEL(sample_points_scatter_kernel, CPU, &sample_points_scatter);
ATHANOR_REGISTER_KERNEL(sample_points_weight_kernel, CPU, &sample_points_weight);

}  // namespace
}  // namespace athanor::cpu
