// Extremes and their places; variance.
#include "athanor/ops/reduce_extreme.h"

#include "athanor/ops/binary.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reduce_op.h"
#include "athanor/ops/scan_sort.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

/// The gradient of an extreme: shared equally by all elements that have it. No element equals NaN, so there it is NaN,
/// unless NaNs count as equal to each other.
Tensor share_among_equals(const Reduction& r, const Tensor& grad, const Tensor& result, const Tensor& x,
                          bool nans_equal = false) {
  const Tensor value = r.restored(result);
  Tensor best = eq(x, value);
  if (nans_equal) best = logical_or(best, logical_and(isnan(x), isnan(value)));
  const DimVector over = r.dims();
  const Tensor n = cast(over.empty() ? best : sum(best, over, true, std::nullopt), grad.dtype());
  const Tensor share = expand(div(r.restored(grad), n), r.from);
  return where(logical_or(best, eq(n, Scalar(0))), mul(share, best), Scalar(0));
}

constexpr const char* kNeedsDim =
    "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' "
    "argument.";

void check_not_empty_all(const char* op, const Tensor& self) {
  ATHANOR_CHECK(self.defined() && self.numel() > 0, op, kNeedsDim);
}

}  // namespace

// Extremes over several dims.

template <class Derived, ReduceOp Op, bool NansEqual = false>
struct ExtremeReduction : Reduction {
  SavedTensor x, y;
  void run(const Tensor& out, const Tensor& self) { launch_reduce(Op, out, self); }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) { g.set(0, share_among_equals(*this, g.grad(), g.get(y), g.get(x), NansEqual)); }
};

/// The greatest element over dims (all by default); NaN if there is one. Equals share the gradient.
struct Amax : ExtremeReduction<Amax, ReduceOp::Max> {
  ATHANOR_OP("amax(Tensor self, int[] dim=[], bool keepdim=False) -> Tensor | out");
  DimVector dim;
  bool keepdim;
  Meta infer(const Tensor& self) {
    Meta m = reduced(schema, self, dim, keepdim, self.dtype());
    check_not_empty("amax");
    return m;
  }
};

/// The least element over dims (all by default); NaN if there is one. Equals share the gradient.
struct Amin : ExtremeReduction<Amin, ReduceOp::Min> {
  ATHANOR_OP("amin(Tensor self, int[] dim=[], bool keepdim=False) -> Tensor | out");
  DimVector dim;
  bool keepdim;
  Meta infer(const Tensor& self) {
    Meta m = reduced(schema, self, dim, keepdim, self.dtype());
    check_not_empty("amin");
    return m;
  }
};

/// The greatest element.
struct MaxAll : ExtremeReduction<MaxAll, ReduceOp::Max, true> {
  ATHANOR_OP("max(Tensor self) -> Tensor | out");
  static constexpr const char* grad_name = "MaxBackward1";
  Meta infer(const Tensor& self) {
    check_not_empty_all("max", self);
    return reduced_all(schema, self, self.dtype());
  }
};

/// The least element.
struct MinAll : ExtremeReduction<MinAll, ReduceOp::Min, true> {
  ATHANOR_OP("min(Tensor self) -> Tensor | out");
  static constexpr const char* grad_name = "MinBackward1";
  Meta infer(const Tensor& self) {
    check_not_empty_all("min", self);
    return reduced_all(schema, self, self.dtype());
  }
};

/// The least and the greatest element, of all or along dim.
struct AminMax : Reduction {
  ATHANOR_OP("aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor, Tensor) | out");
  std::optional<std::int64_t> dim;
  bool keepdim;
  SavedTensor x, low, high;
  std::array<Meta, 2> infer(const Tensor& self) {
    if (!dim) check_not_empty_all("aminmax", self);
    const Meta m =
        reduced(schema, self, dim ? OptionalIntArrayRef(*dim) : OptionalIntArrayRef(), keepdim, self.dtype());
    check_not_empty("aminmax");
    return {m, m};
  }
  void run(const Tensor& min, const Tensor& max, const Tensor& self) {
    const DimVector shape = reduced_keepdim(from, mask);
    launch<2>(min_max_kernel, keepdim_alias(min, shape), keepdim_alias(max, shape), self, mask);
  }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void save_results(Node* n, const Tensor& min, const Tensor& max) {
    low.save_result(min, n);
    high.save_result(max, n);
  }
  void grad(GradCall& g) {
    const Tensor v = g.get(x);
    Tensor total;
    if (g.has(0)) total = share_among_equals(*this, g.grad(0), g.get(low), v);
    if (g.has(1)) {
      const Tensor top = share_among_equals(*this, g.grad(1), g.get(high), v);
      total = total.defined() ? add(total, top) : top;
    }
    g.set(0, total);
  }
};

// Extremes along one dim with their place; the first of equals.

template <class Derived, ArgReduceOp Op>
struct ExtremeAlong : Reduction {
  SavedTensor place;
  std::array<Meta, 2> infer(const Tensor& self) {
    auto& op = static_cast<Derived&>(*this);
    const Meta m = reduced(Derived::schema, self, op.dim, op.keepdim, self.dtype());
    check_not_empty(op_name(Derived::schema).c_str());
    op.dim = wrap_dim(op.dim, self.dim(), op_name(Derived::schema).c_str());
    Meta indices = m;
    indices.dtype = DType::Long;
    return {m, indices};
  }
  void run(const Tensor& values, const Tensor& indices, const Tensor& self) {
    const DimVector shape = reduced_keepdim(from, mask);
    launch<2>(arg_reduce_kernel, Op, keepdim_alias(values, shape), keepdim_alias(indices, shape), self,
              static_cast<Derived&>(*this).dim);
  }
  void save_results(Node* n, const Tensor&, const Tensor& indices) { place.save_result(indices, n); }
  void grad(GradCall& g) {
    if (from.empty()) return g.set(0, g.grad());
    const std::int64_t dim = static_cast<Derived&>(*this).dim;
    g.set(0, _scatter_along(restored(g.grad()), restored(g.get(place)), dim, from[static_cast<std::size_t>(dim)]));
  }
};

/// The greatest element along dim and its index (the first of equals); NaN counts as the greatest.
struct MaxDim : ExtremeAlong<MaxDim, ArgReduceOp::Max> {
  ATHANOR_OP("max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor) | out");
  std::int64_t dim;
  bool keepdim;
};

/// The least element along dim and its index (the first of equals); NaN counts as the least.
struct MinDim : ExtremeAlong<MinDim, ArgReduceOp::Min> {
  ATHANOR_OP("min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor) | out");
  std::int64_t dim;
  bool keepdim;
};

template <class Derived, ArgReduceOp Op>
struct ArgExtreme : Reduction {
  Meta infer(const Tensor& self) {
    auto& op = static_cast<Derived&>(*this);
    const std::string name = op_name(Derived::schema);
    if (!op.dim) {
      ATHANOR_CHECK_INDEX(self.defined() && self.numel() > 0, name, kNeedsDim);
      const Meta m = reduced_all(Derived::schema, self, DType::Long);
      return op.keepdim ? Meta{reduced_keepdim(from, mask), m.dtype, m.device, {}} : m;
    }
    Meta m = reduced(Derived::schema, self, *op.dim, op.keepdim, DType::Long);
    check_not_empty(name.c_str());
    op.dim = wrap_dim(*op.dim, self.dim(), name.c_str());
    return m;
  }
  void run(const Tensor& out, const Tensor& self) {
    const auto dim = static_cast<Derived&>(*this).dim;
    if (dim) {
      launch<2>(arg_reduce_kernel, Op, Tensor(), keepdim_alias(out, reduced_keepdim(from, mask)), self, *dim);
      return;
    }
    const std::int64_t one = 1;
    const Tensor place = detail::alias(out, {one}, {one}, out.storage_offset());
    launch<2>(arg_reduce_kernel, Op, Tensor(), place, reshape(self, {-1}), std::int64_t{0});
  }
};

/// The index of the greatest element along dim, or in the flattened tensor.
struct ArgMax : ArgExtreme<ArgMax, ArgReduceOp::Max> {
  ATHANOR_OP("argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor | out");
  std::optional<std::int64_t> dim;
  bool keepdim;
};

/// The index of the least element along dim, or in the flattened tensor.
struct ArgMin : ArgExtreme<ArgMin, ArgReduceOp::Min> {
  ATHANOR_OP("argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor | out");
  std::optional<std::int64_t> dim;
  bool keepdim;
};

// Variance.

namespace {

void check_var_dtype(const char* op, const Tensor& self) {
  ATHANOR_CHECK_TYPE(NotImplementedError, self.is_floating_point(), op,
                     ": std and var only support floating point and complex dtypes, got ", self.dtype(),
                     "; convert with .to(kFloat)");
}

/// d var / d self, times the gradient of the variance.
Tensor var_gradient(const Reduction& r, const Tensor& grad_var, const Tensor& x, double correction) {
  const double n = static_cast<double>(r.count());
  const DimVector over = r.dims();
  const Tensor centered = over.empty() ? sub(x, x) : sub(x, mean(x, over, true, std::nullopt));
  return mul(mul(r.restored(grad_var), 2 / (n - correction)), centered);
}

Tensor std_gradient(const Tensor& grad_std, const Tensor& std) {
  return where(eq(std, 0), Scalar(0), div(grad_std, mul(std, 2)));
}

}  // namespace

/// The variance over dims (all by default): sum of squared deviations over n - correction (1 by default).
struct Var : Reduction {
  ATHANOR_OP(
      "var.correction(Tensor self, int[]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor | out");
  std::optional<DimVector> dim;
  std::optional<Scalar> correction;
  bool keepdim;
  SavedTensor x;
  double removed() const { return correction ? correction->toDouble() : 1.0; }
  Meta infer(const Tensor& self) {
    check_var_dtype("var", self);
    return reduced(schema, self, dim, keepdim, self.dtype());
  }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::Var, out, self, removed()); }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void grad(GradCall& g) { g.set(0, var_gradient(*this, g.grad(), g.get(x), removed())); }
};

/// The square root of the variance.
struct Std : Reduction {
  ATHANOR_OP(
      "std.correction(Tensor self, int[]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor | out");
  std::optional<DimVector> dim;
  std::optional<Scalar> correction;
  bool keepdim;
  SavedTensor x, y;
  double removed() const { return correction ? correction->toDouble() : 1.0; }
  Meta infer(const Tensor& self) {
    check_var_dtype("std", self);
    return reduced(schema, self, dim, keepdim, self.dtype());
  }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::Std, out, self, removed()); }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) { g.set(0, var_gradient(*this, std_gradient(g.grad(), g.get(y)), g.get(x), removed())); }
};

/// Variance (or its root) and mean in one pass.
template <class Derived, bool Root>
struct VarMeanBase : Reduction {
  SavedTensor x, y;
  double removed() const {
    const auto& op = static_cast<const Derived&>(*this);
    return op.correction ? op.correction->toDouble() : 1.0;
  }
  std::array<Meta, 2> infer(const Tensor& self) {
    auto& op = static_cast<Derived&>(*this);
    check_var_dtype(op_name(Derived::schema).c_str(), self);
    const Meta m = reduced(Derived::schema, self, op.dim, op.keepdim, self.dtype());
    return {m, m};
  }
  void run(const Tensor& var, const Tensor& mean, const Tensor& self) {
    const DimVector shape = reduced_keepdim(from, mask);
    launch<2>(var_mean_kernel, keepdim_alias(var, shape), keepdim_alias(mean, shape), self, mask, removed(), Root);
  }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void save_results(Node* n, const Tensor& var, const Tensor&) {
    if (Root) y.save_result(var, n);
  }
  void grad(GradCall& g) {
    Tensor total;
    if (g.has(0))
      total = var_gradient(*this, Root ? std_gradient(g.grad(0), g.get(y)) : g.grad(0), g.get(x), removed());
    if (g.has(1)) {
      const Tensor part = spread(div(g.grad(1), count()));
      total = total.defined() ? add(total, part) : part;
    }
    g.set(0, total);
  }
};

/// Variance and mean over dims, all of them unless given; divided by the number less correction (1).
struct VarMean : VarMeanBase<VarMean, false> {
  ATHANOR_OP(
      "var_mean.correction(Tensor self, int[]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> "
      "(Tensor, Tensor) | function");
  std::optional<DimVector> dim;
  std::optional<Scalar> correction;
  bool keepdim;
};
/// Standard deviation and mean over dims, all of them unless given; divided by the number less correction (1).
struct StdMean : VarMeanBase<StdMean, true> {
  ATHANOR_OP(
      "std_mean.correction(Tensor self, int[]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> "
      "(Tensor, Tensor) | function");
  std::optional<DimVector> dim;
  std::optional<Scalar> correction;
  bool keepdim;
};

// libtorch's older forms: unbiased means correction 1, otherwise 0.

namespace {

std::optional<Scalar> correction_of(bool unbiased) { return Scalar(unbiased ? 1 : 0); }

}  // namespace

ATHANOR_FUNCTION("var(Tensor self, bool unbiased) -> Tensor");
Tensor var(const Tensor& self, bool unbiased) { return var(self, std::nullopt, correction_of(unbiased), false); }
ATHANOR_FUNCTION("var.dim(Tensor self, int[]? dim, bool unbiased, bool keepdim=False) -> Tensor | out");
Tensor var(const Tensor& self, OptionalIntArrayRef dim, bool unbiased, bool keepdim) {
  return var(self, dim, correction_of(unbiased), keepdim);
}
ATHANOR_FUNCTION("std(Tensor self, bool unbiased) -> Tensor");
Tensor std(const Tensor& self, bool unbiased) { return std(self, std::nullopt, correction_of(unbiased), false); }
ATHANOR_FUNCTION("std.dim(Tensor self, int[]? dim, bool unbiased, bool keepdim=False) -> Tensor | out");
Tensor std(const Tensor& self, OptionalIntArrayRef dim, bool unbiased, bool keepdim) {
  return std(self, dim, correction_of(unbiased), keepdim);
}
ATHANOR_FUNCTION("var_mean(Tensor self, bool unbiased) -> (Tensor, Tensor) | function");
std::tuple<Tensor, Tensor> var_mean(const Tensor& self, bool unbiased) {
  return var_mean(self, std::nullopt, correction_of(unbiased), false);
}
ATHANOR_FUNCTION(
    "var_mean.dim(Tensor self, int[]? dim, bool unbiased, bool keepdim=False) -> (Tensor, Tensor) | function");
std::tuple<Tensor, Tensor> var_mean(const Tensor& self, OptionalIntArrayRef dim, bool unbiased, bool keepdim) {
  return var_mean(self, dim, correction_of(unbiased), keepdim);
}
ATHANOR_FUNCTION("std_mean(Tensor self, bool unbiased) -> (Tensor, Tensor) | function");
std::tuple<Tensor, Tensor> std_mean(const Tensor& self, bool unbiased) {
  return std_mean(self, std::nullopt, correction_of(unbiased), false);
}
ATHANOR_FUNCTION(
    "std_mean.dim(Tensor self, int[]? dim, bool unbiased, bool keepdim=False) -> (Tensor, Tensor) | function");
std::tuple<Tensor, Tensor> std_mean(const Tensor& self, OptionalIntArrayRef dim, bool unbiased, bool keepdim) {
  return std_mean(self, dim, correction_of(unbiased), keepdim);
}

}  // namespace athanor::ops

#include "athanor/ops/reduce_extreme.glue.inc"
