#pragma once
/// The loops of reading planes at the points of a grid: a block of points at a time, whose taps are made once, from the
/// coordinates, and serve all channels.

#include <cstdint>
#include <type_traits>

#include "athanor/ops/kernels/sample.h"

namespace athanor::cpu {

struct GridCall {
  static constexpr std::int64_t kTaps = 1024;   ///< of a block: they stay in the first cache while channels go by
  static constexpr std::int64_t kPoints = 256;  ///< of a block, at most
  GridSampling how;
  int spatial = 0;        ///< dims of a plane
  int each_bits = 0;      ///< 1 << that: taps along a dim
  std::int64_t taps = 0;  ///< of a point
  std::int64_t block = 0;
  std::int64_t channels = 0, points = 0, plane = 0;
  std::int64_t extent[3] = {}, step[3] = {};  ///< of a plane's dims
  // Null but for halves, which are computed in float32.
  void (*widen)(float* to, const std::uint16_t* from, std::int64_t n) = nullptr;
  void (*narrow)(std::uint16_t* to, const float* from, std::int64_t n) = nullptr;
  std::int64_t each() const { return std::int64_t{1} << each_bits; }
};

/// Tap k of point p is [k * GridCall::block + p]. Rows of a last block that is shorter are filled up with points in the
/// middle, so that loops need no tails.
template <class T>
struct GridTaps {
  using I = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  static constexpr std::int64_t kDimTaps = 2 * GridCall::kPoints;  ///< two of 256 points, four of 64
  alignas(64) I index[GridCall::kTaps];                            ///< below 0: outside
  alignas(64) T weight[GridCall::kTaps];
  // Of single dims; the index is multiplied by the dim's step, the slope is the weight's by the coordinate.
  alignas(64) I at[3][kDimTaps];
  alignas(64) T part[3][kDimTaps];
  alignas(64) T slope[3][kDimTaps];
};

/// Where the taps of the single dims begin whose product tap k is.
struct GridRows {
  GridRows(const GridCall& call, std::int64_t k) {
    for (std::int64_t& row : at) row = (k & (call.each() - 1)) * call.block, k >>= call.each_bits;
  }
  std::int64_t at[3];
};

template <class T>
struct GridFns {
  /// The taps along a dim. `scaled` holds (x + 1) times (extent - 1) / 2, or without align_corners times the extent:
  /// rounded, since one instruction for that and what follows would move points that lie in the middle between two
  /// elements.
  void (*dim_taps)(const GridCall&, int dim, const T* scaled, GridTaps<T>& taps);
  /// index and weight from those.
  void (*combine)(const GridCall&, GridTaps<T>& taps);
  /// One plane at `count` points, four taps or any number each.
  void (*gather_four)(const GridCall&, const GridTaps<T>& taps, T* to, const T* from, std::int64_t count);
  void (*gather)(const GridCall&, const GridTaps<T>& taps, T* to, const T* from, std::int64_t count);
  /// Adds one channel's part of the gradient of the weights to `weight`; that of taps outside may be NaN.
  void (*add_weight_gradient_four)(const GridCall&, GridTaps<T>& taps, const T* grad, const T* source,
                                   std::int64_t count);
  void (*add_weight_gradient)(const GridCall&, GridTaps<T>& taps, const T* grad, const T* source, std::int64_t count);
  /// Of a plane of halves: to[k * to_step + p] += factor[k * factor_step + p] times the element that tap k of point p
  /// reads.
  void (*add_halves)(const GridCall&, const GridTaps<float>& taps, float* to, std::int64_t to_step, const float* factor,
                     std::int64_t factor_step, const std::uint16_t* plane);
  /// What the gradient of the weights gives for the coordinate of each dim, GridCall::kPoints apart.
  void (*chain2)(const GridCall&, const GridTaps<T>& taps, T* to);
  void (*chain3)(const GridCall&, const GridTaps<T>& taps, T* to);
};
/// Those of the best instruction set of this CPU.
template <class T>
const GridFns<T>& grid_fns();
template <>
const GridFns<float>& grid_fns<float>();
template <>
const GridFns<double>& grid_fns<double>();

}  // namespace athanor::cpu
