#include "athanor/ops/kernels/softmax.h"

namespace athanor {

using In = const View&;
using Params = const ClassLossParams&;
constinit Kernel<void(In, In, std::int64_t)> softmax_kernel{"softmax"};
constinit Kernel<void(In, In, std::int64_t)> log_softmax_kernel{"log_softmax"};
constinit Kernel<void(In, In, In, std::int64_t)> softmax_backward_kernel{"softmax_backward"};
constinit Kernel<void(In, In, In, std::int64_t)> log_softmax_backward_kernel{"log_softmax_backward"};
constinit Kernel<void(In, In, In, In, In, In, Params)> cross_entropy_kernel{"cross_entropy"};
constinit Kernel<void(In, In, In, In, In, In, In, Params)> cross_entropy_backward_kernel{"cross_entropy_backward"};
constinit Kernel<void(In, In, In, In, In, Params)> nll_loss_kernel{"nll_loss"};
constinit Kernel<void(In, In, In, In, In, Params)> nll_loss_backward_kernel{"nll_loss_backward"};

}  // namespace athanor
