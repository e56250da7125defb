// Sums of weighted elements at the places of an index, the same for all channels.
#include "athanor/ops/kernels/sample.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "athanor/base/parallel.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;  // taps for which a second thread pays
constexpr std::int64_t kPoints = 256;   // points whose taps stay in the first cache while channels go by

/// values[i], or 0 where i is below 0: by masks, since which taps are outside is not to be foreseen.
template <class T>
T masked(const T* values, std::int64_t i, std::int64_t mask) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(values[i]) & mask));
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

template <class T>
void gather(const View& out, const View& source, const View& index, const View& weight, const Shape& s) {
  each_block(s, [&](const Block& b) {
    const std::int64_t taps_at = b.example * s.taps * s.points + b.first;
    const std::int64_t* const at = index.ptr<std::int64_t>() + taps_at;
    const T* const factor = weight.ptr<T>() + taps_at;
    for (std::int64_t c = 0; c < s.channels; ++c) {
      const std::int64_t plane = b.example * s.channels + c;
      const T* const from = source.ptr<T>() + plane * s.size;
      T* const to = out.ptr<T>() + plane * s.points + b.first;
      for (std::int64_t p = 0; p < b.count; ++p) {
        T sum = 0;
        for (std::int64_t k = 0, tap = p; k < s.taps; ++k, tap += s.points) {
          const std::int64_t mask = mask_of(at[tap]);
          // Of four taps one that is outside counts if its weight is NaN, as PyTorch has it in two dims; of eight it
          // does not.
          const T w = s.taps == 8 ? masked(factor, tap, mask) : factor[tap];
          sum += w * masked(from, at[tap] & mask, mask);
        }
        to[p] = sum;
      }
    }
  });
}

template <class T>
void weight_gradient(const View& out, const View& grad, const View& source, const View& index, const Shape& s) {
  each_block(s, [&](const Block& b) {
    const std::int64_t taps_at = b.example * s.taps * s.points + b.first;
    std::array<T, kPoints> sum;
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
      for (std::int64_t p = 0; p < b.count; ++p) to[p] = sum[p];
    }
  });
}

/// Points may meet in an element, so a plane has one thread.
template <class T>
void scatter(const View& out, const View& grad, const View& index, const View& weight, const Shape& s) {
  const std::int64_t work = std::max<std::int64_t>(1, s.size + s.taps * s.points);
  parallel_for(0, s.batch * s.channels, 1 + kGrain / work, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      const std::int64_t taps_at = plane / s.channels * s.taps * s.points;
      T* const to = out.ptr<T>() + plane * s.size;
      const T* const g = grad.ptr<T>() + plane * s.points;
      const std::int64_t* const at = index.ptr<std::int64_t>() + taps_at;
      const T* const w = weight.ptr<T>() + taps_at;
      std::fill_n(to, s.size, T(0));
      for (std::int64_t p = 0; p < s.points; ++p)
        for (std::int64_t k = 0, tap = p; k < s.taps; ++k, tap += s.points)
          if (at[tap] >= 0) to[at[tap]] += w[tap] * g[p];
    }
  });
}

/// `planes` is (N, C, S), `points` (N, C, P).
Shape shape_of(const View& planes, const View& points, const View& index) {
  return {planes.sizes[0], planes.sizes[1], planes.sizes[2], index.sizes[1], points.sizes[2]};
}

void sample_points(const View& out, const View& source, const View& index, const View& weight) {
  (out.dtype == DType::Double ? gather<double> : gather<float>)(out, source, index, weight,
                                                                shape_of(source, out, index));
}

void sample_points_scatter(const View& out, const View& grad, const View& index, const View& weight) {
  (out.dtype == DType::Double ? scatter<double> : scatter<float>)(out, grad, index, weight, shape_of(out, grad, index));
}

void sample_points_weight(const View& out, const View& grad, const View& source, const View& index) {
  (out.dtype == DType::Double ? weight_gradient<double> : weight_gradient<float>)(out, grad, source, index,
                                                                                  shape_of(source, grad, index));
}

ATHANOR_REGISTER_KERNEL(sample_points_kernel, CPU, &sample_points);
ATHANOR_REGISTER_KERNEL(sample_points_scatter_kernel, CPU, &sample_points_scatter);
ATHANOR_REGISTER_KERNEL(sample_points_weight_kernel, CPU, &sample_points_weight);

}  // namespace
}  // namespace athanor::cpu
