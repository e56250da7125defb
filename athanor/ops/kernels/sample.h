#pragma once
/// Seam of reading a tensor at points between its elements: sums of a few weighted elements for every point.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

// All operands are row-major: source (N, C, S), index (N, K, P) int64, weight (N, K, P), result (N, C, P), each of them
// but index of one floating dtype. An index below 0 is a tap outside the source: it reads and adds nothing. Halves are
// summed in float32. Thread-safe; parallel inside; sums are in one order for any number of threads.

/// out[n][c][p] = sum over k of weight[n][k][p] * source[n][c][index[n][k][p]].
extern Kernel<void(const View& out, const View& source, const View& index, const View& weight)> sample_points_kernel;

/// The gradient of source: out[n][c][index[n][k][p]] sums weight[n][k][p] * grad[n][c][p].
extern Kernel<void(const View& out, const View& grad, const View& index, const View& weight)>
    sample_points_scatter_kernel;

/// The gradient of weight: out[n][k][p] = sum over c of grad[n][c][p] * source[n][c][index[n][k][p]].
extern Kernel<void(const View& out, const View& grad, const View& source, const View& index)>
    sample_points_weight_kernel;

}  // namespace athanor
