#pragma once
/// One optimizer step of one parameter in a single pass over its memory. All tensors of a call have the parameter's
/// dtype (floating) and are dense with the same strides, so that they are walked as flat memory; half types compute in
/// float32. Thread-safe for distinct parameters.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

struct SgdStep {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize;
  bool first;  ///< the momentum buffer is set to the gradient instead of being updated
};
/// buffer is undefined when momentum is 0. Sutskever et al., "On the importance of initialization and momentum in deep
/// learning", ICML 2013, in PyTorch's form (lr outside the velocity).
extern Kernel<void(const View& param, const View& buffer, const View& grad, SgdStep step)> sgd_step_kernel;

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  double bias_correction1, bias_correction2;  ///< 1 - beta^step
  bool decoupled;                             ///< AdamW: weight decay outside the gradient
  bool maximize;
};
/// Kingma & Ba, "Adam", ICLR 2015; Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019. max_square
/// is defined for AMSGrad (Reddi et al., ICLR 2018).
extern Kernel<void(const View& param, const View& average, const View& square, const View& max_square, const View& grad,
                   AdamStep step)>
    adam_step_kernel;

struct AdadeltaStep {
  double lr, rho, eps, weight_decay;
  bool maximize;
};
/// Zeiler, "ADADELTA: an adaptive learning rate method", 2012.
extern Kernel<void(const View& param, const View& square_average, const View& delta_average, const View& grad,
                   AdadeltaStep step)>
    adadelta_step_kernel;

}  // namespace athanor
