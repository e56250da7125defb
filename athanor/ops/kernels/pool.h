#pragma once
/// Seam of the pooling ops over 1 to 3 spatial dimensions. Activations are (batch, channels, spatial…), any strides.
/// Floating dtypes (half types compute in float32); max pooling also takes the integers. All views of a call have one
/// dtype except `indices`.
///
/// `indices` of max pooling has out's shape and one of two forms, told by its dtype:
///  - int64: the position of the maximum in its input plane, flattened, as PyTorch returns it;
///  - uint8: its position in the window, flattened over the kernel (which must have at most 256 taps); an eighth of the
///    memory, for ops that only keep it for their gradient.
/// The first maximum of a window wins; a NaN counts as the largest value, and the last NaN of a window wins.

#include <array>

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

/// Geometry of a pooling window. The output shape, ceil_mode included, is the op's affair: windows may reach over the
/// far edge. Entries from `spatial` on are not read.
struct PoolParams {
  int spatial = 2;
  std::array<std::int64_t, 3> kernel{1, 1, 1};
  std::array<std::int64_t, 3> stride{1, 1, 1};
  std::array<std::int64_t, 3> padding{0, 0, 0};
  std::array<std::int64_t, 3> dilation{1, 1, 1};  ///< max pooling only
  bool count_include_pad = true;                  ///< average pooling only
  std::int64_t divisor_override = 0;              ///< average pooling only; 0: none
};

/// out = maximum of each window. `indices` may be absent.
extern Kernel<void(const View& out, const View& indices, const View& in, const PoolParams& params)> max_pool_kernel;
/// din = dout added at the places `indices` names, zero elsewhere. Uses `params` only for uint8 indices.
extern Kernel<void(const View& din, const View& dout, const View& indices, const PoolParams& params)>
    max_pool_backward_kernel;

extern Kernel<void(const View& out, const View& in, const PoolParams& params)> avg_pool_kernel;
extern Kernel<void(const View& din, const View& dout, const PoolParams& params)> avg_pool_backward_kernel;

/// Adaptive windows: output i of n over an input of size s covers [floor(i·s/n), ceil((i+1)·s/n)).
extern Kernel<void(const View& out, const View& in)> adaptive_avg_pool_kernel;
extern Kernel<void(const View& din, const View& dout)> adaptive_avg_pool_backward_kernel;
/// `indices` is int64; the gradient is max_pool_backward_kernel's.
extern Kernel<void(const View& out, const View& indices, const View& in)> adaptive_max_pool_kernel;

}  // namespace athanor
