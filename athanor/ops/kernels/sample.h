#pragma once
/// Seam of reading a tensor at points between its elements: sums of a few weighted elements for every point.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

// All operands are row-major: source (N, C, S), index (N, K, P) int64, weight (N, K, P), result (N, C, P), each of them
// but index float32 or all float64. An index below 0 is a tap outside the source: it reads and adds nothing.
// Thread-safe; parallel inside; sums are in one order for any number of threads.

/// out[n][c][p] = sum over k of weight[n][k][p] * source[n][c][index[n][k][p]].
extern Kernel<void(const View& out, const View& source, const View& index, const View& weight)> sample_points_kernel;

/// The gradient of source: out[n][c][index[n][k][p]] sums weight[n][k][p] * grad[n][c][p].
extern Kernel<void(const View& out, const View& grad, const View& index, const View& weight)>
    sample_points_scatter_kernel;

/// The gradient of weight: out[n][k][p] = sum over c of grad[n][c][p] * source[n][c][index[n][k][p]].
extern Kernel<void(const View& out, const View& grad, const View& source, const View& index)>
    sample_points_weight_kernel;

/// How a tensor is read at the points of a grid.
struct GridSampling {
  enum Interpolation { kLinear = 0, kNearest = 1, kCubic = 2 };
  enum Padding { kZeros = 0, kBorder = 1, kReflection = 2 };
  std::int64_t interpolation = kLinear, padding = kZeros;
  bool align_corners = false;
};

// The same with taps that are made on the way: source (N, C, spatial…) of less than 2^31 elements a plane, grid
// (N, to…, coordinates), result (N, C, to…).

extern Kernel<void(const View& out, const View& source, const View& grid, const GridSampling& how)> grid_sample_kernel;

/// The gradient of source.
extern Kernel<void(const View& out, const View& grad, const View& grid, const GridSampling& how)>
    grid_sample_source_kernel;

/// The gradient of grid; not for the nearest element, where it is 0.
extern Kernel<void(const View& out, const View& grad, const View& source, const View& grid, const GridSampling& how)>
    grid_sample_grid_kernel;

}  // namespace athanor
