#include "athanor/ops/kernels/conv.h"

namespace athanor {

constinit Kernel<void(const View&, const View&, const View&, const View&, const ConvParams&, Epilogue)>
    conv_forward_kernel{"conv_forward"};
constinit Kernel<void(const View&, const View&, const View&, const ConvParams&)> conv_backward_input_kernel{
    "conv_backward_input"};
constinit Kernel<void(const View&, const View&, const View&, const View&, const ConvParams&)>
    conv_backward_weight_kernel{"conv_backward_weight"};

}  // namespace athanor
