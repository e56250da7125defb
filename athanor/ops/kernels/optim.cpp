#include "athanor/ops/kernels/optim.h"

namespace athanor {

constinit StepKernel<SgdStep> sgd_step_kernel{"sgd_step", kUpdates};
constinit StepKernel<AdamStep> adam_step_kernel{"adam_step", kUpdates};
constinit StepKernel<AdadeltaStep> adadelta_step_kernel{"adadelta_step", kUpdates};
constinit StepKernel<AdagradStep> adagrad_step_kernel{"adagrad_step", kUpdates};
constinit StepKernel<RmspropStep> rmsprop_step_kernel{"rmsprop_step", kUpdates};
constinit StepKernel<AdamaxStep> adamax_step_kernel{"adamax_step", kUpdates};
constinit StepKernel<AdamRelativeStep> adam_relative_step_kernel{"adam_relative_step", kUpdates};
constinit StepKernel<AsgdStep> asgd_step_kernel{"asgd_step", kUpdates};
constinit StepKernel<RpropStep> rprop_step_kernel{"rprop_step", kUpdates};
constinit Kernel<void(ArrayRef<View>, const View&, double)> scale_all_kernel{"scale_all", kUpdates};
constinit Kernel<void(ArrayRef<View>, ArrayRef<View>, double)> lerp_all_kernel{"lerp_all", kUpdates};
constinit Kernel<void(const View&, ArrayRef<View>, double)> norm_all_kernel{"norm_all"};

}  // namespace athanor
