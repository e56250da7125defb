// Losses of margins, triplets and several labels. Reductions are PyTorch's numbers: 0 none, 1 mean, 2 sum.
#include "athanor/ops/loss_margin.h"

#include "athanor/ops/activation.h"
#include "athanor/ops/autocast.h"
#include "athanor/ops/binary.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/distance.h"
#include "athanor/ops/index.h"
#include "athanor/ops/loss_op.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/scan_sort.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

void check_floating(const char* op, const Tensor& t) {
  ATHANOR_CHECK(t.defined(), op, ": expected a tensor, got an undefined one");
  ATHANOR_CHECK_TYPE(NotImplementedError, is_floating_point(t.dtype()), op, ": not implemented for '",
                     dtype_libtorch_name(t.dtype()), "'; the input must be floating");
}

}  // namespace

/// 1 - cos(input1, input2) where target is 1, max(0, cos - margin) where it is -1. Vectors with a target of no dims, or
/// rows with one target each.
ATHANOR_FUNCTION(
    "cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1) -> Tensor");
Tensor cosine_embedding_loss(const Tensor& input1_, const Tensor& input2_, const Tensor& target_, double margin,
                             std::int64_t reduction) {
  const Tensor input1 = autocast_to_float(input1_), input2 = autocast_to_float(input2_);
  const Tensor target = autocast_to_float(target_);
  ATHANOR_CHECK(target.dim() <= 1,
                "cosine_embedding_loss: 0D or 1D target tensor expected, multi-target not supported");
  const std::int64_t wanted = target.dim() + 1;
  ATHANOR_CHECK(input1.dim() == wanted && input2.dim() == wanted, "cosine_embedding_loss: ", target.dim(),
                "D target tensor expects ", wanted, "D input tensors, but found inputs with sizes ", input1.sizes(),
                " and ", input2.sizes(), ".");
  const std::int64_t last = target.dim();
  const IntArrayRef dims(&last, 1);
  constexpr double kEps = 1e-12;
  const Tensor product = sum(mul(input1, input2), dims);
  const Tensor norms = mul(add(sum(mul(input1, input1), dims), kEps), add(sum(mul(input2, input2), dims), kEps));
  const Tensor cosine = div(product, sqrt(norms));
  const Tensor near = where(eq(target, 1), rsub(cosine, 1), Scalar(0));
  const Tensor far = where(eq(target, -1), clamp_min(sub(cosine, margin), 0), Scalar(0));
  return reduced("cosine_embedding_loss", add(near, far), reduction);
}

/// max(0, margin + d(anchor, positive) - d(anchor, negative)) with pairwise_distance; swap takes d(positive, negative)
/// where that is smaller (Balntas et al., BMVC 2016).
ATHANOR_FUNCTION(
    "triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, "
    "float eps=1e-06, bool swap=False, int reduction=1) -> Tensor");
Tensor triplet_margin_loss(const Tensor& anchor_, const Tensor& positive_, const Tensor& negative_, double margin,
                           double p, double eps, bool swap, std::int64_t reduction) {
  const Tensor anchor = autocast_to_float(anchor_), positive = autocast_to_float(positive_);
  const Tensor negative = autocast_to_float(negative_);
  ATHANOR_CHECK(anchor.defined() && anchor.dim() == positive.dim() && positive.dim() == negative.dim(),
                "triplet_margin_loss: The anchor, positive, and negative tensors are expected to have the same number "
                "of dimensions, but got: ",
                "anchor ", anchor.dim(), "D, positive ", positive.dim(), "D, and negative ", negative.dim(),
                "D inputs");
  ATHANOR_CHECK(margin > 0, "triplet_margin_loss: margin must be greater than 0, got ", margin);
  const Tensor near = pairwise_distance(anchor, positive, p, eps);
  Tensor far = pairwise_distance(anchor, negative, p, eps);
  if (swap) far = minimum(far, pairwise_distance(positive, negative, p, eps));
  return reduced("triplet_margin_loss", clamp_min(add(sub(near, far), margin), 0), reduction);
}

namespace {

/// Rows of scores and their class: a single row without batch becomes one of a batch.
struct Rows {
  Tensor scores, target;
  bool single;
};
Rows rows_of(const char* op, const Tensor& self, const Tensor& target, bool per_class) {
  check_floating(op, self);
  ATHANOR_CHECK(target.defined() && target.dtype() == DType::Long, op, ": expected target of dtype int64, got ",
                target.defined() ? target.dtype() : DType::Undefined);
  ATHANOR_CHECK(self.dim() <= 2 && (self.dim() == 0 || self.size(-1) > 0), op,
                ": Expected non-empty vector or matrix with optional 0-dim batch size, but got: ", self.sizes());
  const bool single = self.dim() < 2;
  const Tensor x = single ? reshape(self, {1, self.numel()}) : self;
  const bool fits =
      per_class ? (single ? target.dim() <= 1 && target.numel() == self.numel() : target.sizes() == self.sizes())
                : target.dim() <= 1 && target.numel() == x.size(0);
  ATHANOR_CHECK(fits, op, ": inconsistent target size ", target.sizes(), " for input of shape ", self.sizes());
  return {x, per_class ? reshape(target, x.sizes()) : reshape(target, {x.size(0)}), single};
}

}  // namespace

/// The mean over the classes c other than the target y of max(0, margin - x_y + x_c)^p, times weight_y; p is 1 or 2.
ATHANOR_FUNCTION(
    "multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, int reduction=1) "
    "-> "
    "Tensor | function out");
Tensor multi_margin_loss(const Tensor& self_, const Tensor& target, const Scalar& p, const Scalar& margin,
                         const Tensor& weight_, std::int64_t reduction) {
  const Tensor self = autocast_to_float(self_), weight = autocast_to_float(weight_);
  const Rows rows = rows_of("multi_margin_loss", self, target, false);
  ATHANOR_CHECK(p.toDouble() == 1 || p.toDouble() == 2, "multi_margin_loss: only p == 1 and p == 2 supported, got ",
                p.toDouble());
  const std::int64_t classes = rows.scores.size(1);
  ATHANOR_CHECK(!weight.defined() || (weight.dim() <= 1 && weight.numel() == classes),
                "multi_margin_loss: inconsistent weight size, expected ", classes, " values but got shape ",
                weight.defined() ? weight.sizes() : IntArrayRef{});
  const Tensor column = unsqueeze(rows.target, 1);
  const Tensor own = gather(rows.scores, 1, column);
  Tensor terms = clamp_min(add(sub(rows.scores, own), margin), 0);
  if (p.toDouble() == 2) terms = square(terms);
  if (weight.defined()) terms = mul(terms, unsqueeze(index_select(reshape(weight, {classes}), 0, rows.target), 1));
  terms = scatter(terms, 1, column, Scalar(0));
  Tensor loss = div(sum(terms, IntArrayRef{std::int64_t{1}}), static_cast<double>(classes));
  if (rows.single) loss = reshape(loss, target.dim() == 0 || reduction != 0 ? IntArrayRef{} : target.sizes());
  return reduced("multi_margin_loss", loss, reduction);
}

/// Over the classes y listed in a row of target (up to the first -1) and the classes c not listed, the sum of
/// max(0, 1 - (x_y - x_c)), divided by the number of classes.
ATHANOR_FUNCTION("multilabel_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor | function out");
Tensor multilabel_margin_loss(const Tensor& self_, const Tensor& target, std::int64_t reduction) {
  const Tensor self = autocast_to_float(self_);
  const Rows rows = rows_of("multilabel_margin_loss", self, target, true);
  const Tensor& x = rows.scores;
  const std::int64_t classes = x.size(1);
  // 1 up to the first negative entry.
  const Tensor listed = cast(cumprod(cast(ge(rows.target, 0), DType::Long), 1), x.dtype());
  const Tensor places = where(gt(listed, 0), rows.target, Scalar(0));
  const Tensor is_listed = gt(scatter_add(zeros(x.sizes(), x.options()), 1, places, listed), 0);
  const Tensor own = gather(x, 1, places);
  // (row, listed, other)
  Tensor terms = clamp_min(rsub(sub(unsqueeze(own, 2), unsqueeze(x, 1)), 1), 0);
  terms = mul(terms, mul(unsqueeze(listed, 2), unsqueeze(cast(logical_not(is_listed), x.dtype()), 1)));
  const Tensor loss = div(sum(terms, IntArrayRef{std::int64_t{1}, std::int64_t{2}}), static_cast<double>(classes));
  return reduced("multilabel_margin_loss", rows.single ? reshape(loss, IntArrayRef{}) : loss, reduction);
}

/// The mean over the classes (the last dim) of the binary cross entropy of logits self and target, times weight.
ATHANOR_FUNCTION(
    "multilabel_soft_margin_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1) -> Tensor | "
    "function");
Tensor multilabel_soft_margin_loss(const Tensor& self, const Tensor& target, const Tensor& weight,
                                   std::int64_t reduction) {
  check_floating("multilabel_soft_margin_loss", self);
  ATHANOR_CHECK(self.dim() >= 1, "multilabel_soft_margin_loss: expected at least one dim of classes, got a 0-d input");
  const Tensor no = log_sigmoid(neg(self));
  Tensor terms = neg(add(no, mul(target, sub(log_sigmoid(self), no))));
  if (weight.defined()) terms = mul(terms, weight);
  return reduced("multilabel_soft_margin_loss", mean(terms, IntArrayRef{std::int64_t{-1}}), reduction);
}

/// (log var + (input - target)² / var) / 2, var not below eps; `full` adds log(2π) / 2. var has input's shape, or
/// lacks its last dim, or has 1 there. The bound has no gradient.
ATHANOR_FUNCTION(
    "gaussian_nll_loss(Tensor input, Tensor target, Tensor var, bool full=False, float eps=1e-06, int reduction=1) -> "
    "Tensor");
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var, bool full, double eps,
                         std::int64_t reduction) {
  check_floating("gaussian_nll_loss", input);
  check_floating("gaussian_nll_loss", var);
  Tensor v = var;
  if (v.sizes() != input.sizes()) {
    DimVector shape(input.sizes());
    const bool lacks = !shape.empty() && IntArrayRef(shape).slice(0, shape.size() - 1) == v.sizes();
    if (lacks) v = unsqueeze(v, -1);
    if (!shape.empty()) shape.back() = 1;
    ATHANOR_CHECK_VALUE(lacks || v.sizes() == IntArrayRef(shape),
                        "gaussian_nll_loss: var is of incorrect size: ", var.sizes(), " for input of shape ",
                        input.sizes());
  }
  {
    const NoGradGuard guard;
    ATHANOR_CHECK_VALUE(!any(lt(v, 0)).item().toBool(), "gaussian_nll_loss: var has negative entry/entries");
  }
  const Tensor plain = detach(v);
  v = add(v, sub(clamp_min(plain, eps), plain));
  Tensor loss = mul(add(log(v), div(square(sub(input, target)), v)), 0.5);
  if (full) loss = add(loss, 0.91893853320467274178);
  return reduced("gaussian_nll_loss", loss, reduction);
}

}  // namespace athanor::ops

#include "athanor/ops/loss_margin.glue.inc"
