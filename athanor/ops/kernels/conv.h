#pragma once
/// Seam of the convolutions over 1 to 3 spatial dimensions. Activations are (batch, channels, spatial…), any strides;
/// contiguous and channels-last ones are fastest; those of two spatial dimensions may be in blocks of channels
/// (View::block), each on its own. All operands of a call have one dtype (every dtype but bool); sums
/// are formed as in matmul.h. Empty batches are fine: weight gradients of nothing are zero.

#include <array>

#include "athanor/ops/kernels/matmul.h"
#include "athanor/tensor/kept_forms.h"

namespace athanor {

/// Geometry of a convolution. With `transposed`, what is called forward is the map that PyTorch's conv_transpose
/// computes: weight is (in_channels, out_channels / groups, kernel…) instead of (out_channels, in_channels / groups,
/// kernel…), and `output_padding` extends the far side of the output. The shape of the output is the op's affair; the
/// kernels only need it to be consistent.
struct ConvParams {
  int spatial = 2;  ///< 1, 2 or 3; entries beyond it are not read
  std::array<std::int64_t, 3> stride{1, 1, 1};
  std::array<std::int64_t, 3> padding{0, 0, 0};  ///< zeros on both sides
  std::array<std::int64_t, 3> dilation{1, 1, 1};
  std::array<std::int64_t, 3> output_padding{0, 0, 0};
  std::int64_t groups = 1;
  bool transposed = false;
  KeptValues kept;  ///< of the weight that is read
};

enum class ConvPass : std::int8_t { Forward, Input, Weight };

/// Sets `block` to the number of channels in whose blocks a call should find its row-major activations and leave its
/// result, 0 if they are best plain; before, it is that in which one of them lies already, or 0. x, weight, y: the
/// shapes of the convolution's input, weight and output. Not launched: the answer is needed at once.
extern Kernel<void(int& block, ConvPass pass, DType dtype, IntArrayRef x, IntArrayRef weight, IntArrayRef y,
                   const ConvParams& params)>
    conv_layout_kernel;

/// out = epilogue(conv(in, weight) + bias); bias (out_channels) or absent.
extern Kernel<void(const View& out, const View& in, const View& weight, const View& bias, const ConvParams& params,
                   Epilogue epilogue)>
    conv_forward_kernel;

/// din = gradient of conv with respect to its input, given dout.
extern Kernel<void(const View& din, const View& dout, const View& weight, const ConvParams& params)>
    conv_backward_input_kernel;

/// dweight and, unless absent, dbias: gradients with respect to the parameters. That of the weight is added to
/// `before`, which is dweight itself, contiguous, or absent.
extern Kernel<void(const View& dweight, const View& dbias, const View& dout, const View& in, const ConvParams& params,
                   const View& before)>
    conv_backward_weight_kernel;

}  // namespace athanor
