#include "athanor/device/cpu/grid_sample.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/copy_blocks.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;  // taps for which a second thread pays
constexpr std::int64_t kPoints = GridCall::kPoints;

/// `planes` is (N, C, spatial…), `points` (N, C, the grid's…).
GridCall call_of(const View& planes, const View& points, const GridSampling& how) {
  GridCall call;
  call.how = how;
  call.spatial = planes.ndim - 2;
  call.each_bits = how.interpolation == GridSampling::kNearest ? 0 : how.interpolation == GridSampling::kLinear ? 1 : 2;
  call.channels = planes.sizes[1];
  call.taps = call.points = call.plane = 1;
  for (int d = call.spatial; d-- > 0;) {
    call.taps *= call.each();
    call.points *= points.sizes[d + 2];
    call.extent[d] = planes.sizes[d + 2];
    call.step[d] = call.plane;
    call.plane *= call.extent[d];
  }
  call.block = std::min(kPoints, GridCall::kTaps / call.taps);
  const BlockOps& ops = block_ops();
  if (planes.dtype == DType::Half) call.widen = ops.half_to_float, call.narrow = ops.float_to_half;
  if (planes.dtype == DType::BFloat16) call.widen = ops.bfloat16_to_float, call.narrow = ops.float_to_bfloat16;
  return call;
}

/// n elements of an operand from `at` on: themselves, or halves as float32 in `buffer`.
template <class T>
const T* elements(const GridCall& call, const View& operand, std::int64_t at, std::int64_t n, T* buffer) {
  if constexpr (sizeof(T) == 4) {
    if (call.widen) {
      call.widen(buffer, operand.ptr<std::uint16_t>() + at, n);
      return buffer;
    }
  }
  return operand.ptr<T>() + at;
}

/// The taps of `count` points of an example from `first` on.
template <class T>
void make_taps(const GridCall& call, const View& grid, std::int64_t example, std::int64_t first, std::int64_t count,
               GridTaps<T>& taps) {
  alignas(64) T scaled[3][kPoints], wide[3 * kPoints];
  const int dims = call.spatial;
  const T* const x = elements(call, grid, (example * call.points + first) * dims, count * dims, wide);
  T scale[3] = {};
  for (int d = 0; d < dims; ++d) {
    const auto n = static_cast<double>(call.extent[d]);
    scale[d] = static_cast<T>(call.how.align_corners ? (n - 1) / 2 : n);
    std::fill(scaled[d] + count, scaled[d] + std::max(count, call.block), scale[d]);
  }
  // The last coordinate belongs to the first spatial dim.
  if (dims == 2)
    for (std::int64_t p = 0; p < count; ++p) {
      scaled[1][p] = (x[p * 2] + 1) * scale[1];
      scaled[0][p] = (x[p * 2 + 1] + 1) * scale[0];
    }
  else
    for (std::int64_t p = 0; p < count; ++p)
      for (int d = 0; d < 3; ++d) scaled[2 - d][p] = (x[p * 3 + d] + 1) * scale[2 - d];
  for (int d = 0; d < dims; ++d) grid_fns<T>().dim_taps(call, d, scaled[d], taps);
  grid_fns<T>().combine(call, taps);
}

/// Calls fn(example, first point, points) for all blocks.
template <class F>
void each_block(const GridCall& call, std::int64_t batch, F&& fn) {
  const std::int64_t blocks = (call.points + call.block - 1) / call.block;
  // A point costs something without channels, too.
  const std::int64_t work =
      std::max<std::int64_t>(1, (call.channels + 1) * call.taps * std::min(call.block, call.points));
  parallel_for(0, batch * blocks, 1 + kGrain / work, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % blocks * call.block;
      fn(i / blocks, first, std::min(call.block, call.points - first));
    }
  });
}

template <class T>
void sample(const GridCall& call, const View& out, const View& source, const View& grid) {
  const GridFns<T>& fns = grid_fns<T>();
  const auto gather = call.taps == 4 ? fns.gather_four : fns.gather;
  each_block(call, source.sizes[0], [&](std::int64_t example, std::int64_t first, std::int64_t count) {
    GridTaps<T> taps;
    make_taps(call, grid, example, first, count, taps);
    for (std::int64_t c = example * call.channels; c < (example + 1) * call.channels; ++c) {
      const std::int64_t to = c * call.points + first;
      if constexpr (sizeof(T) == 4) {
        if (call.narrow) {
          alignas(64) float sum[kPoints] = {};
          fns.add_halves(call, taps, sum, 0, taps.weight, call.block, source.ptr<std::uint16_t>() + c * call.plane);
          call.narrow(out.ptr<std::uint16_t>() + to, sum, count);
          continue;
        }
      }
      gather(call, taps, out.ptr<T>() + to, source.ptr<T>() + c * call.plane, count);
    }
  });
}

template <class T>
void grid_gradient(const GridCall& call, const View& out, const View& grad, const View& source, const View& grid) {
  const GridFns<T>& fns = grid_fns<T>();
  const auto add = call.taps == 4 ? fns.add_weight_gradient_four : fns.add_weight_gradient;
  const int dims = call.spatial;
  each_block(call, source.sizes[0], [&](std::int64_t example, std::int64_t first, std::int64_t count) {
    GridTaps<T> taps;
    alignas(64) T row[3 * kPoints] = {};
    make_taps(call, grid, example, first, count, taps);
    std::fill_n(taps.weight, call.taps * call.block, T(0));
    for (std::int64_t c = example * call.channels; c < (example + 1) * call.channels; ++c) {
      const T* const g = elements(call, grad, c * call.points + first, count, row);
      if constexpr (sizeof(T) == 4) {
        if (call.widen) {
          fns.add_halves(call, taps, taps.weight, call.block, g, 0, source.ptr<std::uint16_t>() + c * call.plane);
          continue;
        }
      }
      add(call, taps, g, source.ptr<T>() + c * call.plane, count);
    }
    (dims == 2 ? fns.chain2 : fns.chain3)(call, taps, row);
    const std::int64_t begin = (example * call.points + first) * dims;
    T wide[3 * kPoints], *const to = call.narrow ? wide : out.ptr<T>() + begin;
    if (dims == 2)
      for (std::int64_t p = 0; p < count; ++p) to[p * 2] = row[kPoints + p], to[p * 2 + 1] = row[p];
    else
      for (std::int64_t p = 0; p < count; ++p)
        for (int d = 0; d < 3; ++d) to[p * 3 + d] = row[(2 - d) * kPoints + p];
    if constexpr (sizeof(T) == 4)
      if (call.narrow) call.narrow(out.ptr<std::uint16_t>() + begin, wide, count * dims);
  });
}

/// Adds a block's gradient to kPlanes planes, kTaps taps for each point (0: any number): as many sums of one element go
/// on at a time, where points that follow each other lie so close that they share it.
template <class T, int kPlanes, int kTaps>
void scatter(const GridCall& call, const GridTaps<T>& taps, T* plane, const T* grad, std::int64_t grad_step,
             std::int64_t count) {
  for (std::int64_t p = 0; p < count; ++p) {
    T g[kPlanes];
    for (int c = 0; c < kPlanes; ++c) g[c] = grad[c * grad_step + p];
    for (std::int64_t k = 0, tap = p; k < (kTaps > 0 ? kTaps : call.taps); ++k, tap += call.block) {
      const auto at = taps.index[tap];
      const T weight = taps.weight[tap];
      if (at < 0) continue;
      for (int c = 0; c < kPlanes; ++c) plane[c * call.plane + at] += weight * g[c];
    }
  }
}

/// Adds to `planes`, which are [first_plane, first_plane + count), all of one example, their gradients.
template <class T>
void scatter_planes(const GridCall& call, const View& grad, const View& grid, T* planes, std::int64_t first_plane,
                    std::int64_t count) {
  constexpr std::int64_t kGroup = 4;
  using Loop = void (*)(const GridCall&, const GridTaps<T>&, T*, const T*, std::int64_t, std::int64_t);
  static constexpr Loop kLoops[2][kGroup] = {{scatter<T, 1, 0>, nullptr, nullptr, scatter<T, 4, 0>},
                                             {scatter<T, 1, 4>, scatter<T, 2, 4>, scatter<T, 3, 4>, scatter<T, 4, 4>}};
  GridTaps<T> taps;
  alignas(64) T wide[kGroup * kPoints];
  for (std::int64_t first = 0; first < call.points; first += call.block) {
    const std::int64_t points = std::min(call.block, call.points - first);
    make_taps(call, grid, first_plane / call.channels, first, points, taps);
    for (std::int64_t c = 0, together = 0; c < count; c += together) {
      together = count - c >= kGroup ? kGroup : call.taps == 4 ? count - c : 1;
      const T* g = nullptr;
      for (std::int64_t i = together; i-- > 0;)
        g = elements(call, grad, (first_plane + c + i) * call.points + first, points, wide + i * kPoints);
      kLoops[call.taps == 4][together - 1](call, taps, planes + c * call.plane, g, g == wide ? kPoints : call.points,
                                           points);
    }
  }
}

/// Points may meet in an element, so a plane has one thread.
template <class T>
void source_gradient(const GridCall& call, const View& out, const View& grad, const View& grid) {
  const std::int64_t work = std::max<std::int64_t>(1, call.plane + call.taps * call.points);
  parallel_for(0, out.sizes[0] * call.channels, 1 + kGrain / work, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> wide;
    for (std::int64_t count = 0; begin < end; begin += count) {
      // So many planes that the taps, which are made for each group of them anew, cost little.
      constexpr std::int64_t kPlanes = 16;
      const std::int64_t next_example = (begin / call.channels + 1) * call.channels;
      count = std::min({kPlanes, end - begin, next_example - begin});
      const std::int64_t at = begin * call.plane, n = count * call.plane;
      if constexpr (sizeof(T) == 4) {
        if (call.narrow) {
          wide.assign(static_cast<std::size_t>(n), T(0));
          scatter_planes(call, grad, grid, wide.data(), begin, count);
          call.narrow(out.ptr<std::uint16_t>() + at, wide.data(), n);
          continue;
        }
      }
      std::memset(out.ptr<T>() + at, 0, static_cast<std::size_t>(n) * sizeof(T));
      scatter_planes(call, grad, grid, out.ptr<T>() + at, begin, count);
    }
  });
}

void grid_sample(const View& out, const View& source, const View& grid, const GridSampling& how) {
  (out.dtype == DType::Double ? sample<double> : sample<float>)(call_of(source, out, how), out, source, grid);
}

void grid_sample_source(const View& out, const View& grad, const View& grid, const GridSampling& how) {
  (out.dtype == DType::Double ? source_gradient<double> : source_gradient<float>)(call_of(out, grad, how), out, grad,
                                                                                  grid);
}

void grid_sample_grid(const View& out, const View& grad, const View& source, const View& grid,
                      const GridSampling& how) {
  (out.dtype == DType::Double ? grid_gradient<double> : grid_gradient<float>)(call_of(source, grad, how), out, grad,
                                                                              source, grid);
}

ATHANOR_REGISTER_KERNEL(grid_sample_kernel, CPU, &grid_sample);
ATHANOR_REGISTER_KERNEL(grid_sample_source_kernel, CPU, &grid_sample_source);
ATHANOR_REGISTER_KERNEL(grid_sample_grid_kernel, CPU, &grid_sample_grid);

}  // namespace
}  // namespace athanor::cpu
