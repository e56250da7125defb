#include "athanor/ops/kernels/conv.h"

namespace athanor {

constinit Kernel<void(int&, ConvPass, DType, IntArrayRef, IntArrayRef, IntArrayRef, const ConvParams&)>
    conv_layout_kernel{"conv_layout"};
constinit Kernel<void(const View&, const View&, const View&, const View&, const ConvParams&, Epilogue)>
    conv_forward_kernel{"conv_forward"};
constinit Kernel<void(const View&, const View&, const View&, const ConvParams&)> conv_backward_input_kernel{
    "conv_backward_input"};
constinit Kernel<void(const View&, const View&, const View&, const View&, const ConvParams&, const View&)>
    conv_backward_weight_kernel{"conv_backward_weight"};

}  // namespace athanor
