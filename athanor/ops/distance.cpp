// Distances and similarities of vectors.
#include "athanor/ops/distance.h"

#include <cmath>

#include "athanor/ops/autocast.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/index.h"
#include "athanor/ops/kernels/pointwise.h"
#include "athanor/ops/matmul.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reduce_op.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

/// The norm of the last dim. A difference of zero has a gradient of zero.
Tensor last_norm(const Tensor& t, double p, bool keepdim = false) {
  return linalg_vector_norm(t, p, IntArrayRef{std::int64_t{-1}}, keepdim);
}

void check_floating(const char* op, const Tensor& t) {
  ATHANOR_CHECK(t.defined(), op, ": expected a tensor, got an undefined one");
  ATHANOR_CHECK(is_floating_point(t.dtype()), op, " only supports floating-point dtypes, got ", t.dtype());
}

}  // namespace

/// Euclidean distances of all pairs of rows from |a - b|² = |a|² + |b|² - 2 ab: one product instead of a difference per
/// pair. Equal rows have a gradient of zero rather than infinity.
struct EuclideanDist {
  ATHANOR_OP("_euclidean_dist(Tensor x1, Tensor x2) -> Tensor | function");
  SavedTensor x1, x2, distances;
  Meta infer(const Tensor& a, const Tensor& b) {
    DimVector sizes =
        broadcast_shapes(a.sizes().slice(0, a.sizes().size() - 2), b.sizes().slice(0, b.sizes().size() - 2), "cdist");
    sizes.push_back(a.size(-2));
    sizes.push_back(b.size(-2));
    return {sizes, a.dtype(), a.device(), {}};
  }
  void run(const Tensor& out, const Tensor& a, const Tensor& b) {
    const NoGradGuard guard;
    const autocast::AutocastGuard whole(false);  // squares cancel
    const auto squares = [](const Tensor& t) { return sum(square(t), IntArrayRef{std::int64_t{-1}}, true); };
    Tensor t = matmul(mul(a, -2), transpose(b, -2, -1));
    add_(t, squares(a));
    add_(t, transpose(squares(b), -2, -1));
    clamp_min_(t, 0);  // rounding may leave a negative; NaN stays
    launch(unary_kernel, UnaryOp::Sqrt, out, t, Scalar(0), Scalar(0));
  }
  void save(const Node&, const Tensor& a, const Tensor& b) {
    x1.save(a);
    x2.save(b);
  }
  void save_results(Node* n, const Tensor& out) { distances.save_result(out, n); }
  void grad(GradCall& g) {
    const autocast::AutocastGuard whole(false);
    const Tensor a = g.get(x1), b = g.get(x2), d = g.get(distances), equal = eq(d, 0);
    const Tensor share = where(equal, Scalar(0), div(g.grad(), where(equal, Scalar(1), d)));
    if (g.needs(0)) {
      const Tensor own = mul(a, sum(share, IntArrayRef{std::int64_t{-1}}, true));
      g.set(0, sum_to_size(sub(own, matmul(share, b)), a.sizes()));
    }
    if (g.needs(1)) {
      const Tensor turned = transpose(share, -2, -1), own = mul(b, sum(turned, IntArrayRef{std::int64_t{-1}}, true));
      g.set(1, sum_to_size(sub(own, matmul(turned, a)), b.sizes()));
    }
  }
};

/// The norm of order inf of the last dim, whose gradient goes to every greatest element in full, as PyTorch has it for
/// distances of pairs. linalg_vector_norm shares it among them.
struct GreatestDifference : Reduction {
  ATHANOR_OP("_greatest_difference(Tensor self) -> Tensor | function");
  static constexpr const char* grad_name = "CdistBackward0";
  SavedTensor x, y;
  Meta infer(const Tensor& self) { return reduced(schema, self, IntArrayRef{std::int64_t{-1}}, false, self.dtype()); }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::Norm, out, self, INFINITY); }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) {
    const Tensor t = g.get(x);
    g.set(0, mul(where(eq(abs(t), restored(g.get(y))), sgn(t), Scalar(0)), restored(g.grad())));
  }
};

namespace {

Tensor pair_distance(const Tensor& difference, double p) {
  return std::isinf(p) && difference.size(-1) > 0 ? _greatest_difference(difference) : last_norm(difference, p);
}

}  // namespace

/// Distances of order p between the rows of x1 (…, P, M) and those of x2 (…, R, M), as (…, P, R). compute_mode: 0 (or
/// none) uses a matrix product for p = 2 and more than 25 rows, 1 always, 2 never.
ATHANOR_FUNCTION("cdist(Tensor x1, Tensor x2, float p=2, int? compute_mode=None) -> Tensor");
Tensor cdist(const Tensor& x1_, const Tensor& x2_, double p, std::optional<std::int64_t> compute_mode) {
  const Tensor x1 = autocast_to_float(x1_), x2 = autocast_to_float(x2_);
  check_floating("cdist", x1);
  check_floating("cdist", x2);
  ATHANOR_CHECK(x1.dim() >= 2 && x2.dim() >= 2, "cdist only supports at least 2D tensors, got ", x1.dim(), "D and ",
                x2.dim(), "D");
  ATHANOR_CHECK(x1.size(-1) == x2.size(-1), "cdist: X1 and X2 must have the same number of columns. X1: ", x1.size(-1),
                " X2: ", x2.size(-1));
  ATHANOR_CHECK(x1.dtype() == x2.dtype(), "cdist: X1 and X2 must have the same dtype, got ", x1.dtype(), " and ",
                x2.dtype());
  ATHANOR_CHECK(p >= 0, "cdist only supports non-negative p values, got ", p);
  const std::int64_t mode = compute_mode.value_or(0);
  ATHANOR_CHECK(mode >= 0 && mode <= 2, "cdist: possible modes: 0, 1, 2, but was: ", mode);
  if (x1.size(-1) == 0) {  // no norm of nothing, but a distance of zero
    DimVector sizes = broadcast_shapes(x1.sizes().slice(0, x1.sizes().size() - 2),
                                       x2.sizes().slice(0, x2.sizes().size() - 2), "cdist");
    sizes.push_back(x1.size(-2));
    sizes.push_back(x2.size(-2));
    return zeros(sizes, x1.options());
  }
  if (p == 2 && (mode == 1 || (mode == 0 && (x1.size(-2) > 25 || x2.size(-2) > 25)))) return _euclidean_dist(x1, x2);
  return pair_distance(sub(unsqueeze(x1, -2), unsqueeze(x2, -3)), p);
}

/// Distances of order p between all pairs of rows of a matrix, the upper triangle of cdist(self, self) row by row.
ATHANOR_FUNCTION("pdist(Tensor self, float p=2) -> Tensor | function");
Tensor pdist(const Tensor& self_, double p) {
  const Tensor self = autocast_to_float(self_);
  check_floating("pdist", self);
  ATHANOR_CHECK(self.dim() == 2, "pdist only supports 2D tensors, got: ", self.dim(), "D");
  ATHANOR_CHECK(p >= 0, "pdist only supports non-negative p values, got ", p);
  const Tensor pairs = triu_indices(self.size(0), self.size(0), 1, TensorOptions(self.device()));
  auto rows = [&](std::int64_t side) { return index_select(self, 0, select(pairs, 0, side)); };
  return pair_distance(sub(rows(0), rows(1)), p);
}

/// The norm of order p of x1 - x2 + eps over the last dim.
ATHANOR_FUNCTION("pairwise_distance(Tensor x1, Tensor x2, float p=2, float eps=1e-06, bool keepdim=False) -> Tensor");
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, double eps, bool keepdim) {
  check_floating("pairwise_distance", x1);
  check_floating("pairwise_distance", x2);
  return last_norm(add(sub(x1, x2), eps), p, keepdim);
}

/// The cosine of the angle between x1 and x2 along dim; norms count as eps at least, which gradients do not see.
ATHANOR_FUNCTION("cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor");
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, std::int64_t dim, double eps) {
  check_floating("cosine_similarity", x1);
  check_floating("cosine_similarity", x2);
  ATHANOR_CHECK(eps >= 0, "cosine_similarity: eps must be non-negative, got: ", eps);
  const DType type = promote_types(x1.dtype(), x2.dtype());
  const DimVector common = broadcast_shapes(x1.sizes(), x2.sizes(), "cosine_similarity");
  auto direction = [&](const Tensor& t) {
    const Tensor full = expand(cast(t, type), common);
    const Tensor norm = clone(linalg_vector_norm(full, 2, IntArrayRef{dim}, true));
    {
      const NoGradGuard hidden;
      clamp_min_(norm, eps);
    }
    return div(full, norm);
  };
  return sum(mul(direction(x1), direction(x2)), IntArrayRef{dim});
}

/// self with every slice along dim whose norm of order p exceeds maxnorm scaled down to it.
ATHANOR_FUNCTION("renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor | inplace out");
Tensor renorm(const Tensor& self, const Scalar& p, std::int64_t dim, const Scalar& maxnorm) {
  check_floating("renorm", self);
  ATHANOR_CHECK(p.toDouble() > 0, "renorm: non-positive norm not supported, got ", p.toDouble());
  ATHANOR_CHECK(maxnorm.toDouble() >= 0, "renorm: expected maxnorm to be >= 0 but got ", maxnorm.toDouble());
  ATHANOR_CHECK(self.dim() > 1, "renorm: input needs at least 2 dimensions, got shape ", self.sizes());
  const std::int64_t d = wrap_dim(dim, self.dim(), "renorm");
  DimVector others;
  for (std::int64_t k = 0; k < self.dim(); ++k)
    if (k != d) others.push_back(k);
  const Tensor norm = linalg_vector_norm(self, p, IntArrayRef(others), true);
  const Tensor factor = where(gt(norm, maxnorm), mul(reciprocal(add(norm, 1e-7)), maxnorm), Scalar(1));
  return mul(self, factor);
}

}  // namespace athanor::ops

#include "athanor/ops/distance.glue.inc"
