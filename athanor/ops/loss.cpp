// Losses. Reductions are PyTorch's numbers: 0 none, 1 mean, 2 sum.
#include "athanor/ops/loss.h"

#include "athanor/ops/activation.h"
#include "athanor/ops/autocast.h"
#include "athanor/ops/binary.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/kernels/softmax.h"
#include "athanor/ops/loss_op.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/pointwise_op.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reduce_extreme.h"
#include "athanor/ops/softmax.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

LossReduction reduction_of(const char* op, std::int64_t reduction) {
  ATHANOR_CHECK_VALUE(reduction >= 0 && reduction <= 2, op, ": ", reduction,
                      " is not a valid value for reduction; use 0 (none), 1 (mean) or 2 (sum)");
  return static_cast<LossReduction>(reduction);
}

}  // namespace

Tensor reduced(const char* op, const Tensor& loss, std::int64_t reduction) {
  switch (reduction_of(op, reduction)) {
    case LossReduction::None:
      return loss;
    case LossReduction::Mean:
      return mean(loss);
    default:
      return sum(loss);
  }
}

namespace {

/// Logits or log-probabilities with their class indices: dtypes and shapes.
void check_class_target(const char* op, const Tensor& self, const Tensor& target, const Tensor& weight) {
  ATHANOR_CHECK(self.defined() && target.defined(), op, ": expected tensors, got an undefined one");
  ATHANOR_CHECK_TYPE(NotImplementedError, is_floating_point(self.dtype()), op, ": not implemented for '",
                     dtype_libtorch_name(self.dtype()), "'; the input must be floating");
  ATHANOR_CHECK(target.dtype() == DType::Long, op, ": expected target of dtype int64 (class indices), got ",
                target.dtype());
  ATHANOR_CHECK(self.dim() >= 1, op, ": input tensor should be at least 1D, got a 0-d one");
  const std::size_t class_dim = self.dim() == 1 ? 0 : 1;
  DimVector expected(self.sizes());
  expected.erase(class_dim);
  ATHANOR_CHECK(target.sizes() == IntArrayRef(expected), op, ": Expected target size ", IntArrayRef(expected),
                " for input of size ", self.sizes(), ", got ", target.sizes());
  if (!weight.defined()) return;
  const std::int64_t classes = self.sizes()[class_dim];
  ATHANOR_CHECK(weight.dim() == 1 && weight.size(0) == classes, op, ": weight tensor should be defined either for all ",
                classes, " classes or no classes but got weight tensor of shape: ", weight.sizes());
  ATHANOR_CHECK(weight.dtype() == self.dtype(), op, ": expected weight of dtype ", self.dtype(), ", got ",
                weight.dtype());
}

/// Losing the gradient of class weights in silence would be worse than refusing it.
void refuse_weight_gradient(const char* op, const Node& node) {
  ATHANOR_CHECK(!node.needs(2), op, ": not differentiable with respect to argument 'weight'; pass weight.detach()");
}

/// A result saved as it is would keep its own node alive; an alias of its memory does not.
Tensor plain(const Tensor& t) { return detail::alias(t, t.sizes(), t.strides(), t.storage_offset()); }

DimVector loss_shape(const Tensor& target, std::int64_t reduction) {
  return reduction == 0 ? DimVector(target.sizes()) : DimVector();
}

}  // namespace

/// -weight[target] * log_probs[target], and the sum of the weights that count.
struct NllLossForward : Autocast<AutocastTo::Float32> {
  ATHANOR_OP(
      "nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index) -> "
      "(Tensor, Tensor) | function out");
  static constexpr const char* grad_name = "NllLossBackward0";
  std::int64_t reduction, ignore_index;
  SavedTensor where, class_weight, total;
  DimVector from;
  std::array<Meta, 2> infer(const Tensor& self, const Tensor& target, const Tensor& weight) {
    check_class_target("nll_loss", self, target, weight);
    reduction_of("nll_loss", reduction);
    from = DimVector(self.sizes());
    std::array<Meta, 2> m;
    m[0] = {loss_shape(target, reduction), self.dtype(), self.device(), {}};
    m[1] = {{}, self.dtype() == DType::Double ? DType::Double : DType::Float, self.device(), {}};
    return m;
  }
  void run(const Tensor& loss, const Tensor& total_weight, const Tensor& self, const Tensor& target,
           const Tensor& weight) {
    ClassLossParams p{reduction_of("nll_loss", reduction), ignore_index};
    launch<2>(nll_loss_kernel, loss, total_weight, self, target, weight, p);
  }
  void save(const Node& n, const Tensor&, const Tensor& target, const Tensor& weight) {
    refuse_weight_gradient("nll_loss", n);
    where.save(target);
    class_weight.save(weight);
  }
  void save_results(Node*, const Tensor&, const Tensor& total_weight) { total.save(plain(total_weight)); }
  void grad(GradCall& g) {
    if (g.needs(0) && g.has(0))
      g.set(0, nll_loss_backward(g.grad(), g.get(where), g.get(class_weight), g.get(total), from, reduction,
                                 ignore_index));
  }
};

/// The gradient of nll_loss with respect to its input of shape `input_size`.
struct NllLossBackward {
  ATHANOR_OP(
      "nll_loss_backward(Tensor grad_output, Tensor target, Tensor? weight, Tensor total_weight, int[] input_size, "
      "int reduction, int ignore_index) -> Tensor");
  static constexpr const char* grad_name = "NllLossBackwardBackward0";
  DimVector input_size;
  std::int64_t reduction, ignore_index;
  SavedTensor where, class_weight;
  Meta infer(const Tensor& grad_output, const Tensor& target, const Tensor&, const Tensor&) {
    DimVector expected = input_size;
    ATHANOR_CHECK(!expected.empty(), "nll_loss_backward: input_size must have at least one dimension");
    expected.erase(expected.size() == 1 ? 0 : 1);
    ATHANOR_CHECK(target.sizes() == IntArrayRef(expected) && target.dtype() == DType::Long,
                  "nll_loss_backward: target of size ", target.sizes(), " does not fit input_size ",
                  IntArrayRef(input_size));
    ATHANOR_CHECK(grad_output.sizes() == IntArrayRef(loss_shape(target, reduction)),
                  "nll_loss_backward: grad_output of size ", grad_output.sizes(), " does not fit the loss");
    return {input_size, grad_output.dtype(), grad_output.device(), {}};
  }
  void run(const Tensor& out, const Tensor& grad_output, const Tensor& target, const Tensor& weight,
           const Tensor& total_weight) {
    ClassLossParams p{reduction_of("nll_loss_backward", reduction), ignore_index};
    launch(nll_loss_backward_kernel, out, grad_output, total_weight, target, weight, p);
  }
  void save(const Node&, const Tensor&, const Tensor& target, const Tensor& weight, const Tensor&) {
    where.save(target);
    class_weight.save(weight);
  }
  void grad(GradCall& g) {
    // Linear in grad_output: the same sum over the incoming gradient.
    if (g.needs(0))
      g.set(0, std::get<0>(nll_loss_forward(g.grad(), g.get(where), g.get(class_weight), reduction, ignore_index)));
  }
};

/// Negative log likelihood of class indices; the class dim of self is 1 (0 if self is 1-d).
ATHANOR_FUNCTION(
    "nll_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, int ignore_index=-100) -> Tensor | "
    "function out");
Tensor nll_loss(const Tensor& self, const Tensor& target, const Tensor& weight, std::int64_t reduction,
                std::int64_t ignore_index) {
  return std::get<0>(nll_loss_forward(self, target, weight, reduction, ignore_index));
}

/// The negative log-likelihood loss of input, (N, C, H, W), and targets, (N, H, W), that are classes.
ATHANOR_FUNCTION(
    "nll_loss2d(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, int ignore_index=-100) -> Tensor | "
    "function out");
Tensor nll_loss2d(const Tensor& self, const Tensor& target, const Tensor& weight, std::int64_t reduction,
                  std::int64_t ignore_index) {
  return nll_loss(self, target, weight, reduction, ignore_index);
}

namespace {

/// The gradient of cross entropy in plain ops, differentiable again. With A the matrix of what each class counts in a
/// position, the loss is sum_c A_c (log sum exp(x) - x_c), so the gradient is softmax(x) * sum_c A_c - A.
Tensor cross_entropy_gradient(const Tensor& grad, const Tensor& logits, const Tensor& target, const Tensor& weight,
                              const Tensor& total_weight, std::int64_t reduction, std::int64_t ignore_index,
                              double label_smoothing) {
  const std::int64_t class_dim = logits.dim() == 1 ? 0 : 1;
  const Tensor ones_like_loss = ones(target.sizes(), logits.options());
  Tensor counts = neg(nll_loss_backward(ones_like_loss, target, weight, total_weight, logits.sizes(), 0, ignore_index));
  if (label_smoothing > 0) {
    const auto classes = static_cast<double>(logits.size(class_dim));
    Tensor each = full({}, label_smoothing / classes, logits.options());
    if (weight.defined()) {
      DimVector shape(static_cast<std::size_t>(logits.dim()), 1);
      shape[static_cast<std::size_t>(class_dim)] = logits.size(class_dim);
      each = mul(reshape(weight, shape), label_smoothing / classes);
    }
    const Tensor valid = cast(unsqueeze(ne(target, ignore_index), class_dim), logits.dtype());
    counts = add(mul(counts, 1 - label_smoothing), mul(each, valid));
  }
  Tensor scale = reduction == 0 ? unsqueeze(grad, class_dim) : grad;
  if (reduction == 1) scale = div(scale, cast(total_weight, logits.dtype()));
  const Tensor whole = sum(counts, IntArrayRef{class_dim}, true, std::nullopt);
  return mul(sub(mul(softmax(logits, class_dim, std::nullopt), whole), counts), scale);
}

}  // namespace

/// log_softmax and nll_loss in one pass: loss, log sum exp, and the sum of the weights that count.
struct CrossEntropy : Autocast<AutocastTo::Float32> {
  ATHANOR_OP(
      "_cross_entropy(Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index, "
      "float label_smoothing) -> (Tensor, Tensor, Tensor) | function");
  static constexpr const char* grad_name = "NllLossBackward0";
  std::int64_t reduction, ignore_index;
  double label_smoothing;
  SavedTensor x, where, class_weight;
  Tensor lse, total;
  ClassLossParams params() const { return {reduction_of("cross_entropy", reduction), ignore_index, label_smoothing}; }
  std::array<Meta, 3> infer(const Tensor& self, const Tensor& target, const Tensor& weight) {
    check_class_target("cross_entropy", self, target, weight);
    reduction_of("cross_entropy", reduction);
    const DType statistics = self.dtype() == DType::Double ? DType::Double : DType::Float;
    std::array<Meta, 3> m;
    m[0] = {loss_shape(target, reduction), self.dtype(), self.device(), {}};
    m[1] = {DimVector(target.sizes()), DType::Double, self.device(), {}};
    m[2] = {{}, statistics, self.device(), {}};
    return m;
  }
  void run(const Tensor& loss, const Tensor& log_sum_exp, const Tensor& total_weight, const Tensor& self,
           const Tensor& target, const Tensor& weight) {
    lse = log_sum_exp;
    total = total_weight;
    launch<3>(cross_entropy_kernel, loss, log_sum_exp, total_weight, self, target, weight, params());
  }
  void save(const Node& n, const Tensor& self, const Tensor& target, const Tensor& weight) {
    refuse_weight_gradient("cross_entropy", n);
    x.save(self);
    where.save(target);
    class_weight.save(weight);
  }
  void save_results(Node*, const Tensor&, const Tensor&, const Tensor&) {
    lse = plain(lse);
    total = plain(total);
  }
  void grad(GradCall& g) {
    if (!g.needs(0) || !g.has(0)) return;
    const Tensor logits = g.get(x), target = g.get(where), weight = g.get(class_weight);
    if (GradMode::is_enabled()) {
      g.set(0,
            cross_entropy_gradient(g.grad(0), logits, target, weight, total, reduction, ignore_index, label_smoothing));
      return;
    }
    const Tensor out = empty_like(logits);
    launch(cross_entropy_backward_kernel, out, g.grad(0), logits, lse, total, target, weight, params());
    g.set(0, out);
  }
};

namespace {

/// Cross entropy with a probability per class in place of an index.
Tensor soft_cross_entropy(const Tensor& self, const Tensor& target, const Tensor& weight, std::int64_t reduction,
                          double label_smoothing) {
  const std::int64_t class_dim = self.dim() == 1 ? 0 : 1;
  const std::int64_t classes = self.size(class_dim);
  Tensor p = target;
  if (label_smoothing > 0) p = add(mul(p, 1 - label_smoothing), label_smoothing / static_cast<double>(classes));
  Tensor terms = mul(log_softmax(self, class_dim, std::nullopt), p);
  if (weight.defined()) {
    ATHANOR_CHECK(weight.dim() == 1 && weight.size(0) == classes, "cross_entropy: weight tensor should be defined ",
                  "either for all ", classes,
                  " classes or no classes but got weight tensor of shape: ", weight.sizes());
    DimVector shape(static_cast<std::size_t>(self.dim()), 1);
    shape[static_cast<std::size_t>(class_dim)] = classes;
    terms = mul(terms, reshape(weight, shape));
  }
  const Tensor loss = neg(sum(terms, IntArrayRef{class_dim}, false, std::nullopt));
  // The mean is over positions, whatever the weights.
  return reduced("cross_entropy", loss, reduction);
}

}  // namespace

/// Cross entropy of logits with class indices (int64) or, where target has self's shape and a floating dtype,
/// probabilities. The class dim is 1, or 0 if self is 1-d.
ATHANOR_FUNCTION(
    "cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, int ignore_index=-100, "
    "float label_smoothing=0.0) -> Tensor | function");
Tensor cross_entropy_loss(const Tensor& self, const Tensor& target, const Tensor& weight, std::int64_t reduction,
                          std::int64_t ignore_index, double label_smoothing) {
  ATHANOR_CHECK(self.defined() && target.defined(), "cross_entropy: expected tensors, got an undefined one");
  ATHANOR_CHECK(label_smoothing >= 0 && label_smoothing <= 1,
                "cross_entropy: label_smoothing must be between 0.0 and 1.0. Got: ", label_smoothing);
  if (self.sizes() == target.sizes() && is_floating_point(target.dtype())) {
    ATHANOR_CHECK(self.dim() >= 1, "cross_entropy: input tensor should be at least 1D, got a 0-d one");
    return soft_cross_entropy(autocast_to_float(self), autocast_to_float(target), autocast_to_float(weight), reduction,
                              label_smoothing);
  }
  return std::get<0>(_cross_entropy(self, target, weight, reduction, ignore_index, label_smoothing));
}

namespace {

/// A loss of self - target; Derived::slope(g, self, target) is what it hands on to self.
template <class Derived, BinaryOp kOp>
struct DifferenceLoss : BinaryPointwise<Derived, kOp> {
  static constexpr bool accepts_hidden = false;
  SavedTensor x, t;

  void save(const Node&, const Tensor& self, const Tensor& target) {
    x.save(self);
    t.save(target);
  }
  void grad(GradCall& g) {
    const Tensor into_self = static_cast<Derived*>(this)->slope(g.grad(), g.get(x), g.get(t));
    if (g.needs(0)) g.set(0, into_self);
    if (g.needs(1)) g.set(1, neg(into_self));
  }
};

struct MseLoss : DifferenceLoss<MseLoss, BinaryOp::SquaredDistance> {
  static constexpr const char* schema = "mse_loss(Tensor self, Tensor target) -> Tensor";

  static Tensor slope(const Tensor& g, const Tensor& self, const Tensor& target) {
    if (GradMode::is_enabled()) return mul(mul(g, sub(self, target)), 2);
    Tensor out = empty(g.sizes(), self.options());
    launch(ternary_kernel, TernaryOp::ScaledDifference, out, g, self, target, Scalar(2));
    return out;
  }
};

}  // namespace

/// (self - target)².
ATHANOR_FUNCTION("mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor | function out");
Tensor mse_loss(const Tensor& self_, const Tensor& target_, std::int64_t reduction) {
  const Tensor self = autocast_to_float(self_), target = autocast_to_float(target_);
  const bool fused =
      self.defined() && target.defined() && is_floating_point(self.dtype()) && is_floating_point(target.dtype());
  return reduced("mse_loss", fused ? call(MseLoss(), self, target) : square(sub(self, target)), reduction);
}

/// |self - target|.
ATHANOR_FUNCTION("l1_loss(Tensor self, Tensor target, int reduction=1) -> Tensor | function");
Tensor l1_loss(const Tensor& self_, const Tensor& target_, std::int64_t reduction) {
  const Tensor self = autocast_to_float(self_), target = autocast_to_float(target_);
  return reduced("l1_loss", abs(sub(self, target)), reduction);
}

namespace {

/// A loss of d = |self - target|: a parabola up to `knee`, and a straight line from there on. Its slope in self is
/// clamp(factor (self - target), -top, top).
template <class Derived, BinaryOp kOp>
struct KneeLoss : DifferenceLoss<Derived, kOp> {
  double knee, factor, top;
  KneeLoss(double knee, double factor, double top) : knee(knee), factor(factor), top(top) {}

  void run(const Tensor& out, const Tensor& self, const Tensor& target) {
    launch(binary_kernel, kOp, out, self, target, Scalar(knee), Scalar(0));
  }
  Tensor slope(const Tensor& g, const Tensor& self, const Tensor& target) const {
    Tensor d = sub(self, target);
    if (GradMode::is_enabled()) return mul(g, clamp(factor == 1 ? d : mul(d, factor), -top, top));
    if (factor != 1) launch(binary_scalar_kernel, BinaryOp::Mul, d, d, Scalar(factor), false, Scalar(1), Scalar(0));
    launch(unary_kernel, UnaryOp::Clamp, d, d, Scalar(-top), Scalar(top));
    launch(binary_kernel, BinaryOp::Mul, d, d, g, Scalar(1), Scalar(0));
    return d;
  }
};

struct SmoothL1Loss : KneeLoss<SmoothL1Loss, BinaryOp::SmoothL1> {
  static constexpr const char* schema = "smooth_l1_loss(Tensor self, Tensor target) -> Tensor";
  explicit SmoothL1Loss(double beta) : KneeLoss(beta, 1 / beta, 1) {}
};
struct HuberLoss : KneeLoss<HuberLoss, BinaryOp::Huber> {
  static constexpr const char* schema = "huber_loss(Tensor self, Tensor target) -> Tensor";
  explicit HuberLoss(double delta) : KneeLoss(delta, 1, delta) {}
};

/// Whether a KneeLoss fits: its numbers are ones of the tensors' dtypes too, and these no integers.
bool has_knee(const Tensor& self, const Tensor& target, double at) {
  if (!self.defined() || !target.defined()) return false;
  for (const Tensor* t : {&self, &target}) {
    if (!is_floating_point(t->dtype())) return false;
    const bool half = t->dtype() == DType::Half || t->dtype() == DType::BFloat16;
    const double most = half ? 1e3 : t->dtype() == DType::Float ? 1e30 : 1e300;
    if (at < 1 / most || at > most) return false;
  }
  return true;
}

/// A dtype with room for a knee that the tensors' own have no number for, if there is one.
std::optional<DType> wider_for_knee(const Tensor& self, const Tensor& target) {
  if (!self.defined() || !target.defined()) return std::nullopt;
  const DType both = promote_types(self.dtype(), target.dtype());
  if (both == DType::Half || both == DType::BFloat16) return DType::Float;
  return both == DType::Float ? std::optional(DType::Double) : std::nullopt;
}

}  // namespace

/// |d| - beta / 2, or d² / (2 beta) where |d| < beta.
ATHANOR_FUNCTION(
    "smooth_l1_loss(Tensor self, Tensor target, int reduction=1, float beta=1.0) -> Tensor | function out");
Tensor smooth_l1_loss(const Tensor& self_, const Tensor& target_, std::int64_t reduction, double beta) {
  const Tensor self = autocast_to_float(self_), target = autocast_to_float(target_);
  ATHANOR_CHECK(beta >= 0, "smooth_l1_loss does not support negative values for beta, got ", beta);
  if (beta == 0) return l1_loss(self, target, reduction);
  if (has_knee(self, target, beta)) return reduced("smooth_l1_loss", call(SmoothL1Loss(beta), self, target), reduction);
  if (const auto wide = wider_for_knee(self, target)) {
    const Tensor loss = smooth_l1_loss(to_dtype(self, *wide), to_dtype(target, *wide), reduction, beta);
    return to_dtype(loss, promote_types(self.dtype(), target.dtype()));
  }
  const Tensor d = abs(sub(self, target));
  const Tensor loss = where(lt(d, beta), div(mul(square(d), 0.5), beta), sub(d, 0.5 * beta));
  return reduced("smooth_l1_loss", loss, reduction);
}

/// d² / 2, or delta (|d| - delta / 2) where |d| > delta.
ATHANOR_FUNCTION("huber_loss(Tensor self, Tensor target, int reduction=1, float delta=1.0) -> Tensor | function out");
Tensor huber_loss(const Tensor& self_, const Tensor& target_, std::int64_t reduction, double delta) {
  const Tensor self = autocast_to_float(self_), target = autocast_to_float(target_);
  ATHANOR_CHECK(delta > 0, "huber_loss does not support non-positive values for delta, got ", delta);
  if (has_knee(self, target, delta)) return reduced("huber_loss", call(HuberLoss(delta), self, target), reduction);
  if (const auto wide = wider_for_knee(self, target)) {
    const Tensor loss = huber_loss(to_dtype(self, *wide), to_dtype(target, *wide), reduction, delta);
    return to_dtype(loss, promote_types(self.dtype(), target.dtype()));
  }
  const Tensor d = abs(sub(self, target));
  const Tensor loss = where(le(d, delta), mul(square(d), 0.5), mul(sub(d, 0.5 * delta), delta));
  return reduced("huber_loss", loss, reduction);
}

// Devices with a queue have no values yet to look at.
void check_probabilities(const char* what, const Tensor& t) {
  if (!t.device().is_host() || t.numel() == 0) return;
  const auto [low, high] = aminmax(t, std::nullopt, false);
  const double least = low.item<double>(), greatest = high.item<double>();
  ATHANOR_CHECK(least >= 0 && greatest <= 1, "binary_cross_entropy: all elements of ", what,
                " should be between 0 and 1, got ", least, " to ", greatest,
                "; binary_cross_entropy_with_logits takes what is no probability");
}

/// -(t log x + (1 - t) log(1 - x)), logarithms not below -100.
struct BinaryCrossEntropy : Autocast<AutocastTo::Float32> {
  ATHANOR_OP("_binary_cross_entropy(Tensor self, Tensor target) -> Tensor | function");
  static constexpr const char* grad_name = "BinaryCrossEntropyBackward0";
  SavedTensor x, t;
  Meta infer(const Tensor& self, const Tensor& target) {
    ATHANOR_CHECK(self.defined() && target.defined(), "binary_cross_entropy: expected tensors, got an undefined one");
    ATHANOR_CHECK(self.sizes() == target.sizes(), "binary_cross_entropy: Using a target size (", target.sizes(),
                  ") that is different to the input size (", self.sizes(),
                  ") is deprecated. Please ensure they have the same size.");
    ATHANOR_CHECK(is_floating_point(self.dtype()) && self.dtype() == target.dtype(),
                  "binary_cross_entropy: expected input and target of one floating dtype, got ", self.dtype(), " and ",
                  target.dtype());
    return {DimVector(self.sizes()), self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& target) {
    const NoGradGuard guard;
    check_probabilities("input", self);
    check_probabilities("target", target);
    const Tensor yes = clamp_min(log(self), -100), no = clamp_min(log1p(neg(self)), -100);
    launch(copy_kernel, out, neg(add(no, mul(target, sub(yes, no)))));
  }
  void save(const Node&, const Tensor& self, const Tensor& target) {
    x.save(self);
    t.save(target);
  }
  void grad(GradCall& g) {
    const Tensor p = g.get(x), target = g.get(t);
    if (g.needs(0)) g.set(0, slope(g.grad(), p, target));
    if (g.needs(1)) g.set(1, mul(g.grad(), sub(log1p(neg(p)), log(p))));
  }
  static Tensor slope(const Tensor& g, const Tensor& p, const Tensor& target) {
    constexpr double kLeast = 1e-12;  // PyTorch's
    if (GradMode::is_enabled()) return div(mul(g, sub(p, target)), clamp_min(mul(p, rsub(p, 1)), kLeast));
    Tensor out = empty(p.sizes(), p.options());
    launch(ternary_kernel, TernaryOp::CrossEntropyBackward, out, g, p, target, Scalar(kLeast));
    return out;
  }
};

/// The loss of probabilities against targets of the same shape, averaged with reduction 1, summed with 2. Throws Error
/// for an input outside [0, 1].
ATHANOR_FUNCTION(
    "binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=1) -> Tensor | function out");
Tensor binary_cross_entropy(const Tensor& self, const Tensor& target, const Tensor& weight, std::int64_t reduction) {
  // As PyTorch: dims of size one need not agree here, though they must in nn::functional.
  const bool same_but_ones = self.defined() && target.defined() && self.sizes() != target.sizes() &&
                             squeeze(self).sizes() == squeeze(target).sizes();
  const Tensor loss = _binary_cross_entropy(self, same_but_ones ? reshape(target, self.sizes()) : target);
  return reduced("binary_cross_entropy", weight.defined() ? mul(loss, weight) : loss, reduction);
}

/// binary_cross_entropy(sigmoid(self), target) without the loss of precision; pos_weight counts positive targets.
ATHANOR_FUNCTION(
    "binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, "
    "int reduction=1) -> Tensor | function");
Tensor binary_cross_entropy_with_logits(const Tensor& self_, const Tensor& target_, const Tensor& weight,
                                        const Tensor& pos_weight, std::int64_t reduction) {
  const Tensor self = autocast_to_float(self_), target = autocast_to_float(target_);
  ATHANOR_CHECK(self.sizes() == target.sizes(), "binary_cross_entropy_with_logits: Target size (", target.sizes(),
                ") must be the same as input size (", self.sizes(), ")");
  const Tensor log_p = log_sigmoid(self);
  Tensor loss = mul(rsub(target, 1), self);
  if (pos_weight.defined())
    loss = sub(loss, mul(add(mul(sub(pos_weight, 1), target), 1), log_p));
  else
    loss = sub(loss, log_p);
  if (weight.defined()) loss = mul(loss, weight);
  return reduced("binary_cross_entropy_with_logits", loss, reduction);
}

/// target (log target - self), self in logarithms, target too if log_target.
ATHANOR_FUNCTION("kl_div(Tensor self, Tensor target, int reduction=1, *, bool log_target=False) -> Tensor | function");
Tensor kl_div(const Tensor& self_, const Tensor& target_, std::int64_t reduction, bool log_target) {
  const Tensor self = autocast_to_float(self_), target = autocast_to_float(target_);
  const Tensor loss = log_target ? mul(exp(target), sub(target, self)) : sub(xlogy(target, target), mul(target, self));
  return reduced("kl_div", loss, reduction);
}

/// exp(x) - target x, or x - target log(x + eps); `full` adds Stirling's approximation of log target!.
ATHANOR_FUNCTION(
    "poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction) -> Tensor");
Tensor poisson_nll_loss(const Tensor& input_, const Tensor& target_, bool log_input, bool full, double eps,
                        std::int64_t reduction) {
  const Tensor input = autocast_to_float(input_), target = autocast_to_float(target_);
  Tensor loss = log_input ? sub(exp(input), mul(target, input)) : sub(input, mul(target, log(add(input, eps))));
  if (full) {
    const Tensor stirling =
        add(sub(mul(target, log(target)), target), mul(log(mul(target, 2 * 3.14159265358979323846)), 0.5));
    loss = add(loss, where(gt(target, 1), stirling, Scalar(0)));
  }
  return reduced("poisson_nll_loss", loss, reduction);
}

/// max(0, -target (input1 - input2) + margin).
ATHANOR_FUNCTION(
    "margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1) -> Tensor");
Tensor margin_ranking_loss(const Tensor& input1_, const Tensor& input2_, const Tensor& target, double margin,
                           std::int64_t reduction) {
  const Tensor input1 = autocast_to_float(input1_), input2 = autocast_to_float(input2_);
  return reduced("margin_ranking_loss", clamp_min(add(mul(neg(target), sub(input1, input2)), margin), 0), reduction);
}

/// x where target is 1, max(0, margin - x) where it is -1.
ATHANOR_FUNCTION(
    "hinge_embedding_loss(Tensor self, Tensor target, float margin=1.0, int reduction=1) -> Tensor | function");
Tensor hinge_embedding_loss(const Tensor& self_, const Tensor& target, double margin, std::int64_t reduction) {
  const Tensor self = autocast_to_float(self_);
  const Tensor far = where(ne(target, 1), clamp_min(rsub(self, margin), 0), Scalar(0));
  const Tensor near = where(ne(target, -1), self, Scalar(0));
  return reduced("hinge_embedding_loss", add(far, near), reduction);
}

/// log(1 + exp(-target x)).
ATHANOR_FUNCTION("soft_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor | function out");
Tensor soft_margin_loss(const Tensor& self_, const Tensor& target, std::int64_t reduction) {
  const Tensor self = autocast_to_float(self_);
  return reduced("soft_margin_loss", neg(log_sigmoid(mul(target, self))), reduction);
}

}  // namespace athanor::ops

#include "athanor/ops/loss.glue.inc"
