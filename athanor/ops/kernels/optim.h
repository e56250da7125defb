#pragma once
/// One optimizer step of any number of parameters in a single pass over their memory. A parameter, its gradient and its
/// state have one floating dtype and are dense with the same strides, so that they are walked as flat memory; half
/// types compute in float32. A gradient of float32 may be a hidden outer product (View::block is kOuterProduct): its
/// data are a column of size(0) and a row of size(1) factors. `state` holds the same number of tensors for each
/// parameter, those of the first parameter first. Thread-safe for distinct parameters.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

template <class Step>
using StepKernel = Kernel<void(ArrayRef<View> params, ArrayRef<View> state, ArrayRef<View> grads, Step step)>;

/// State: the momentum buffer, unless momentum is 0. Sutskever et al., "On the importance of initialization and
/// momentum in deep learning", ICML 2013, in PyTorch's form (lr outside the velocity).
struct SgdStep {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize;
  bool first;  ///< the momentum buffer is set to the gradient instead of being updated
  bool operator==(const SgdStep&) const = default;
};
extern StepKernel<SgdStep> sgd_step_kernel;

/// State: average and average square of the gradient, then for AMSGrad (Reddi et al., ICLR 2018) the largest average
/// square. Kingma & Ba, "Adam", ICLR 2015; Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019.
struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  double bias_correction1, bias_correction2;  ///< 1 - beta^step
  bool amsgrad;
  bool decoupled;  ///< AdamW: weight decay outside the gradient
  bool maximize;
  bool operator==(const AdamStep&) const = default;
};
extern StepKernel<AdamStep> adam_step_kernel;

/// State: averages of the squares of gradients and of updates. Zeiler, "ADADELTA: an adaptive learning rate method",
/// 2012.
struct AdadeltaStep {
  double lr, rho, eps, weight_decay;
  bool maximize;
  bool operator==(const AdadeltaStep&) const = default;
};
extern StepKernel<AdadeltaStep> adadelta_step_kernel;

/// State: the sum of squared gradients. `lr` is the decayed one. Duchi et al., "Adaptive subgradient methods", JMLR
/// 2011.
struct AdagradStep {
  double lr, weight_decay, eps;
  bool maximize;
  bool operator==(const AdagradStep&) const = default;
};
extern StepKernel<AdagradStep> adagrad_step_kernel;

/// State: average square; if centered, the average gradient; if momentum is positive, the momentum buffer. Tieleman &
/// Hinton, "Lecture 6.5", 2012; centered: Graves, "Generating sequences", 2013.
struct RmspropStep {
  double lr, alpha, eps, weight_decay, momentum;
  bool centered, maximize;
  bool operator==(const RmspropStep&) const = default;
};
extern StepKernel<RmspropStep> rmsprop_step_kernel;

/// State: average gradient and its largest magnitude, decaying. Kingma & Ba, "Adam", section 7.1.
struct AdamaxStep {
  double lr;  ///< over 1 - beta1^step
  double beta1, beta2, eps, weight_decay;
  bool maximize;
  bool operator==(const AdamaxStep&) const = default;
};
extern StepKernel<AdamaxStep> adamax_step_kernel;

/// What Adam's relatives do with the average gradient m and the average square v, the state:
/// p -= (average_rate * m + gradient_rate * g) / (sqrt(v / bias_correction2) + eps), or without a denominator where
/// `adaptive` is false. NAdam: Dozat, "Incorporating Nesterov momentum into Adam", 2016. RAdam: Liu et al., "On the
/// variance of the adaptive learning rate and beyond", ICLR 2020; there eps is added before the bias is corrected.
struct AdamRelativeStep {
  double beta1, beta2, eps, weight_decay;
  double average_rate, gradient_rate, bias_correction2;
  double shrink;  ///< 1 - lr * weight_decay if that is decoupled, else 1
  bool adaptive, decoupled, maximize;
  bool operator==(const AdamRelativeStep&) const = default;
};
extern StepKernel<AdamRelativeStep> adam_relative_step_kernel;

/// State: the averaged parameter. Polyak & Juditsky, "Acceleration of stochastic approximation by averaging", 1992.
struct AsgdStep {
  double eta, lambd, mu, weight_decay;
  bool maximize;
  bool operator==(const AsgdStep&) const = default;
};
extern StepKernel<AsgdStep> asgd_step_kernel;

/// State: the previous gradient and the step sizes. Riedmiller & Braun, "A direct adaptive method for faster
/// backpropagation learning", ICNN 1993.
struct RpropStep {
  double eta_minus, eta_plus, smallest, largest;
  bool maximize;
  bool operator==(const RpropStep&) const = default;
};
extern StepKernel<RpropStep> rprop_step_kernel;

// What training does with many tensors at once. Tensors are dense; their order in memory does not matter here.

/// tensor *= factor for each. `found` is undefined or a 0-d float32 tensor, set to 1 if any result is not finite and
/// left alone otherwise.
extern Kernel<void(ArrayRef<View> tensors, const View& found, double factor)> scale_all_kernel;

/// to += weight * (from - to), element by element; both lists have the same geometries and dtypes.
extern Kernel<void(ArrayRef<View> to, ArrayRef<View> from, double weight)> lerp_all_kernel;

/// out, a 0-d tensor of float64, becomes the norm of order p of all elements together; p may be infinite, 0 counts what
/// is not zero. Summed in float64 in pieces of fixed size, whatever the number of threads.
extern Kernel<void(const View& out, ArrayRef<View> tensors, double p)> norm_all_kernel;

}  // namespace athanor
