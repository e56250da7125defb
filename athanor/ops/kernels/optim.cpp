#include "athanor/ops/kernels/optim.h"

namespace athanor {

constinit Kernel<void(const View&, const View&, const View&, SgdStep)> sgd_step_kernel{"sgd_step"};
constinit Kernel<void(const View&, const View&, const View&, const View&, const View&, AdamStep)> adam_step_kernel{
    "adam_step"};
constinit Kernel<void(const View&, const View&, const View&, const View&, AdadeltaStep)> adadelta_step_kernel{
    "adadelta_step"};

}  // namespace athanor
