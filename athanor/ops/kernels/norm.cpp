#include "athanor/ops/kernels/norm.h"

namespace athanor {

using In = const View&;
constinit Kernel<void(In, In, In, In, In, In, std::int64_t, double)> layer_norm_kernel{"layer_norm"};
constinit Kernel<void(In, In, In, In, In, In, In, In, std::int64_t)> layer_norm_backward_kernel{"layer_norm_backward"};
constinit Kernel<void(In, In, In, In, std::int64_t, double)> rms_norm_kernel{"rms_norm"};
constinit Kernel<void(In, In, In, In, In, In, std::int64_t)> rms_norm_backward_kernel{"rms_norm_backward"};
constinit Kernel<void(In, In, In, In, In, In, In, In, double, double, bool, In)> batch_norm_kernel{"batch_norm",
                                                                                                   kUpdates};
constinit Kernel<void(In, In, In, In, In, In, double, bool, In)> batch_norm_eval_kernel{"batch_norm"};
constinit Kernel<void(In, In, In, In, In, In, In, In, In, bool)> batch_norm_backward_kernel{"batch_norm_backward"};
constinit Kernel<void(In, In, In, In, In, In, std::int64_t, double)> group_norm_kernel{"group_norm"};
constinit Kernel<void(In, In, In, In, In, In, In, In, std::int64_t)> group_norm_backward_kernel{"group_norm_backward"};

}  // namespace athanor
