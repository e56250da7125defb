#include "athanor/ops/kernels/attention.h"

namespace athanor {

using In = const View&;
constinit Kernel<void(In, In, In, In, In, In, const AttentionParams&)> attention_kernel{"attention"};
constinit Kernel<void(In, In, In, In, In, In, In, In, In, In, const AttentionParams&)> attention_backward_kernel{
    "attention_backward"};

}  // namespace athanor
