// Reductions over any set of dimensions: sums, means, products, norms, truth, counts.
#include "athanor/ops/reduce.h"

#include <cmath>

#include "athanor/ops/autocast.h"
#include "athanor/ops/binary.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce_op.h"
#include "athanor/ops/scan_sort.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

std::uint64_t reduce_mask(OptionalIntArrayRef dims, std::int64_t ndim, const char* op, bool empty_is_all) {
  ATHANOR_CHECK(ndim <= 64, op, ": tensors of at most 64 dims can be reduced, got ", ndim);
  const std::uint64_t all = ndim == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << ndim) - 1;
  if (!dims || (dims->empty() && empty_is_all)) return all;
  std::uint64_t mask = 0;
  for (const std::int64_t d : *dims) {
    const std::int64_t w = wrap_dim(d, ndim, op);
    ATHANOR_CHECK(!(mask >> w & 1), op, ": dim ", w, " appears multiple times in the list of dims");
    mask |= std::uint64_t{1} << w;
  }
  return ndim == 0 ? 0 : mask;
}

DimVector reduced_keepdim(IntArrayRef sizes, std::uint64_t mask) {
  DimVector out(sizes);
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (mask >> d & 1) out[d] = 1;
  return out;
}

DimVector reduced_shape(IntArrayRef sizes, std::uint64_t mask) {
  DimVector out;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (!(mask >> d & 1)) out.push_back(sizes[d]);
  return out;
}

Tensor restore_dims(const Tensor& out, std::uint64_t mask, std::int64_t ndim) {
  DimVector shape;
  std::size_t next = 0;
  for (std::int64_t d = 0; d < ndim; ++d) shape.push_back(mask >> d & 1 ? 1 : out.sizes()[next++]);
  return reshape(out, shape);
}

Tensor keepdim_alias(const Tensor& out, IntArrayRef keepdim_sizes) {
  if (out.sizes() == keepdim_sizes) return out;
  // Sizes other than 1 are those of kept dims, in order; the strides of size-1 dims do not matter.
  DimVector strides;
  std::int64_t kept = 0;
  for (const std::int64_t s : keepdim_sizes) {
    if (s == 1) {
      strides.push_back(1);
      continue;
    }
    while (out.size(kept) == 1) ++kept;
    strides.push_back(out.stride(kept++));
  }
  return detail::alias(out, keepdim_sizes, strides, out.storage_offset());
}

Meta Reduction::reduced(const char* schema, const Tensor& self, OptionalIntArrayRef dims, bool keepdim, DType dtype,
                        bool empty_is_all) {
  ATHANOR_CHECK(self.defined(), op_name(schema), ": expected a tensor, got an undefined one");
  mask = reduce_mask(dims, self.dim(), op_name(schema).c_str(), empty_is_all);
  from = DimVector(self.sizes());
  keep = keepdim;
  return {keepdim ? reduced_keepdim(from, mask) : reduced_shape(from, mask), dtype, self.device(), {}};
}

Tensor Reduction::spread(const Tensor& t) const { return expand(restored(t), from); }

std::int64_t Reduction::count() const {
  std::int64_t n = 1;
  for (std::size_t d = 0; d < from.size(); ++d)
    if (mask >> d & 1) n *= from[d];
  return n;
}

DimVector Reduction::dims() const {
  DimVector out;
  for (std::size_t d = 0; d < from.size(); ++d)
    if (mask >> d & 1) out.push_back(static_cast<std::int64_t>(d));
  return out;
}

void Reduction::check_not_empty(const char* op) const {
  bool result_empty = false;
  std::int64_t empty = -1;
  for (std::size_t d = 0; d < from.size(); ++d)
    if (from[d] == 0) (mask >> d& 1 ? empty = static_cast<std::int64_t>(d) : result_empty = true);
  ATHANOR_CHECK_INDEX(empty < 0 || result_empty, op, "(): Expected reduction dim ", empty,
                      " to have non-zero size, got a tensor of shape ", IntArrayRef(from));
}

namespace {

DType sum_type(const char* schema, const Tensor& self, std::optional<DType> dtype) {
  return dtype.value_or(is_floating_point(given(schema, self).dtype()) ? self.dtype() : DType::Long);
}

/// The dtype of a result that must be floating.
DType floating_result(const char* op, const Tensor& self, std::optional<DType> dtype) {
  const DType t = dtype.value_or(given(op, self).dtype());
  ATHANOR_CHECK_TYPE(
      NotImplementedError, is_floating_point(t), op,
      "(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: ",
      dtype_libtorch_name(t), "; pass a floating dtype= or convert with .to(kFloat)");
  return t;
}

}  // namespace

// Sums and means.

/// Sum over dims (all by default); integers and bool are summed in int64.
struct SumDim : Reduction {
  ATHANOR_OP("sum.dim_IntList(Tensor self, int[]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor | out");
  static constexpr const char* grad_name = "SumBackward1";
  std::optional<DimVector> dim;
  bool keepdim;
  std::optional<DType> dtype;
  Meta infer(const Tensor& self) { return reduced(schema, self, dim, keepdim, sum_type(schema, self, dtype)); }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::Sum, out, self); }
  void grad(GradCall& g) { g.set(0, spread(g.grad())); }
};

struct SumAll : Reduction {
  ATHANOR_OP("sum(Tensor self, *, ScalarType? dtype=None) -> Tensor");
  std::optional<DType> dtype;
  Meta infer(const Tensor& self) { return reduced_all(schema, self, sum_type(schema, self, dtype)); }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::Sum, out, self); }
  void grad(GradCall& g) { g.set(0, expand(g.grad(), from)); }
};

/// Mean over dims (all by default). Floating input, or a floating dtype=.
struct MeanDim : Reduction {
  ATHANOR_OP("mean.dim(Tensor self, int[]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor | out");
  static constexpr const char* grad_name = "MeanBackward1";
  std::optional<DimVector> dim;
  bool keepdim;
  std::optional<DType> dtype;
  Meta infer(const Tensor& self) { return reduced(schema, self, dim, keepdim, floating_result("mean", self, dtype)); }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::Mean, out, self); }
  void grad(GradCall& g) { g.set(0, spread(div(g.grad(), count()))); }
};

struct MeanAll : Reduction {
  ATHANOR_OP("mean(Tensor self, *, ScalarType? dtype=None) -> Tensor | out");
  std::optional<DType> dtype;
  Meta infer(const Tensor& self) { return reduced_all(schema, self, floating_result("mean", self, dtype)); }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::Mean, out, self); }
  void grad(GradCall& g) { g.set(0, expand(div(g.grad(), count()), from)); }
};

/// Sum with NaN counted as 0.
struct NanSum : Reduction {
  ATHANOR_OP("nansum(Tensor self, int[]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor | out");
  std::optional<DimVector> dim;
  bool keepdim;
  std::optional<DType> dtype;
  SavedTensor x;
  Meta infer(const Tensor& self) { return reduced(schema, self, dim, keepdim, sum_type(schema, self, dtype)); }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::NanSum, out, self); }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void grad(GradCall& g) { g.set(0, where(isnan(g.get(x)), Scalar(0), spread(g.grad()))); }
};

/// Mean of the elements that are not NaN.
struct NanMean : Reduction {
  ATHANOR_OP("nanmean(Tensor self, int[]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor | out");
  std::optional<DimVector> dim;
  bool keepdim;
  std::optional<DType> dtype;
  SavedTensor x;
  Meta infer(const Tensor& self) {
    return reduced(schema, self, dim, keepdim, floating_result("nanmean", self, dtype));
  }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::NanMean, out, self); }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void grad(GradCall& g) {
    const Tensor nan = isnan(g.get(x));
    const DimVector over = dims();
    const Tensor n = over.empty() ? logical_not(nan) : sum(logical_not(nan), over, true, std::nullopt);
    g.set(0, where(nan, Scalar(0), expand(div(restored(g.grad()), cast(n, g.grad().dtype())), from)));
  }
};

/// log(sum(exp(self))) over dims without overflow.
struct LogSumExp : Reduction {
  ATHANOR_OP("logsumexp(Tensor self, int[] dim, bool keepdim=False) -> Tensor | out");
  DimVector dim;
  bool keepdim;
  SavedTensor x, y;
  void prepare(Tensor& self) { self = cast(self, float_type(self.dtype())); }
  Meta infer(const Tensor& self) { return reduced(schema, self, dim, keepdim, self.dtype()); }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::LogSumExp, out, self); }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) {
    // A line of -inf throughout gives -inf: its gradient is 0, not exp(-inf + inf).
    const Tensor top = restored(g.get(y));
    const Tensor shift = where(isneginf(top), Scalar(0), top);
    g.set(0, mul(restored(g.grad()), exp(sub(g.get(x), shift))));
  }
};

// Products.

namespace {

/// The product of the others, for each element along `dim`; the elements may be 0.
Tensor product_of_others(const Tensor& x, std::int64_t dim) {
  const std::int64_t n = x.size(dim);
  const Tensor after = ones_like(x);
  Tensor before = ones_like(x);
  if (n < 2) return before;
  copy_(narrow(before, dim, 1, n - 1), cumprod(narrow(x, dim, 0, n - 1), dim, std::nullopt));
  copy_(narrow(after, dim, 0, n - 1), _cumprod_reverse(narrow(x, dim, 1, n - 1), dim));
  return mul(before, after);
}

bool has_zero(const Tensor& t) { return any(eq(t, 0)).item().toBool(); }

}  // namespace

/// Product along one dim.
struct ProdDim : Reduction {
  ATHANOR_OP("prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor | out");
  static constexpr const char* grad_name = "ProdBackward1";
  std::int64_t dim;
  bool keepdim;
  std::optional<DType> dtype;
  SavedTensor x, y;
  void prepare(Tensor& self) {
    Autocast<AutocastTo::Float32>::prepare(self);
    if (dtype) self = cast(self, *dtype);
  }
  Meta infer(const Tensor& self) { return reduced(schema, self, dim, keepdim, sum_type(schema, self, dtype)); }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::Prod, out, self); }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) {
    const Tensor v = g.get(x);
    if (v.dim() == 0) return g.set(0, g.grad());
    if (!has_zero(v)) return g.set(0, div(restored(mul(g.grad(), g.get(y))), v));
    g.set(0, mul(restored(g.grad()), product_of_others(v, wrap_dim(dim, v.dim(), "prod"))));
  }
};

/// Product of all elements.
struct ProdAll : Reduction {
  ATHANOR_OP("prod(Tensor self, *, ScalarType? dtype=None) -> Tensor");
  std::optional<DType> dtype;
  SavedTensor x, y;
  void prepare(Tensor& self) {
    Autocast<AutocastTo::Float32>::prepare(self);
    if (dtype) self = cast(self, *dtype);
  }
  Meta infer(const Tensor& self) { return reduced_all(schema, self, sum_type(schema, self, dtype)); }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::Prod, out, self); }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) {
    const Tensor v = g.get(x);
    if (v.dim() == 0) return g.set(0, g.grad());
    if (!has_zero(v)) return g.set(0, div(mul(g.grad(), g.get(y)), v));
    g.set(0, mul(g.grad(), reshape(product_of_others(reshape(v, {-1}), 0), from)));
  }
};

// Norms.

/// (sum |self|^ord)^(1/ord) over dims (all by default); ord 0 counts what is not 0, inf and -inf give the greatest and
/// the least |self|.
struct VectorNorm : Reduction {
  ATHANOR_OP(
      "linalg_vector_norm(Tensor self, Scalar ord=2, int[]? dim=None, bool keepdim=False, *, "
      "ScalarType? dtype=None) -> Tensor | function out");
  Scalar ord;
  std::optional<DimVector> dim;
  bool keepdim;
  std::optional<DType> dtype;
  SavedTensor x, y;
  void prepare(Tensor& self) {
    if (dtype) {
      floating_result("norm", self, dtype);
      self = cast(self, *dtype);
    }
  }
  Meta infer(const Tensor& self) {
    Meta m = reduced(schema, self, dim, keepdim, floating_result("norm", self, dtype));
    const bool result_empty = std::find(m.sizes.begin(), m.sizes.end(), 0) != m.sizes.end();
    if (!result_empty && (ord.toDouble() < 0 || std::isinf(ord.toDouble())))
      for (const std::int64_t d : dims())
        ATHANOR_CHECK(from[static_cast<std::size_t>(d)] > 0, "linalg.vector_norm cannot compute the ", ord.toDouble(),
                      " norm on the dimension ", d,
                      " because this dimension is empty and the operation does not have an ",
                      "identity, got a tensor of shape ", IntArrayRef(from));
    return m;
  }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::Norm, out, self, ord.toDouble()); }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) {
    const double p = ord.toDouble();
    const Tensor v = g.get(x);
    if (p == 0) return g.set(0, zeros_like(v));
    if (p == 1) return g.set(0, mul(restored(g.grad()), sgn(v)));
    const Tensor norm = restored(g.get(y)), up = restored(g.grad());
    if (std::isinf(p)) {
      const Tensor best = eq(abs(v), norm);
      const DimVector over = dims();
      const Tensor n = over.empty() ? best : sum(best, over, true, std::nullopt);
      return g.set(0, mul(where(best, sgn(v), Scalar(0)), div(up, cast(n, v.dtype()))));
    }
    // A norm of 0 has the subgradient 0.
    const Tensor zero = eq(norm, 0);
    if (p == 2) return g.set(0, mul(v, where(zero, Scalar(0), div(up, norm))));
    const Tensor slope = p < 2 ? where(eq(v, 0), Scalar(0), mul(sgn(v), pow(abs(v), Scalar(p - 1))))
                               : mul(v, pow(abs(v), Scalar(p - 2)));
    g.set(0, mul(slope, where(zero, Scalar(0), div(up, pow(norm, Scalar(p - 1))))));
  }
};

/// The p-norm of all elements.
ATHANOR_FUNCTION("norm(Tensor self, Scalar p=2) -> Tensor");
Tensor norm(const Tensor& self, const Scalar& p) {
  return linalg_vector_norm(self, p, std::nullopt, false, std::nullopt);
}
ATHANOR_FUNCTION("norm.ScalarOpt_dtype(Tensor self, Scalar? p, ScalarType dtype) -> Tensor");
Tensor norm(const Tensor& self, const std::optional<Scalar>& p, DType dtype) {
  return linalg_vector_norm(self, p.value_or(2), std::nullopt, false, dtype);
}
/// The p-norm over dims.
ATHANOR_FUNCTION("norm.ScalarOpt_dim(Tensor self, Scalar? p, int[] dim, bool keepdim=False) -> Tensor | out");
Tensor norm(const Tensor& self, const std::optional<Scalar>& p, IntArrayRef dim, bool keepdim) {
  return linalg_vector_norm(self, p.value_or(2), dim, keepdim, std::nullopt);
}
ATHANOR_FUNCTION(
    "norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[] dim, bool keepdim, ScalarType dtype) -> Tensor | out");
Tensor norm(const Tensor& self, const std::optional<Scalar>& p, IntArrayRef dim, bool keepdim, DType dtype) {
  return linalg_vector_norm(self, p.value_or(2), dim, keepdim, dtype);
}

/// The p-norm of the difference.
ATHANOR_FUNCTION("dist(Tensor self, Tensor other, Scalar p=2) -> Tensor");
Tensor dist(const Tensor& self, const Tensor& other, const Scalar& p) { return norm(sub(self, other), p); }

// Truth and counts. uint8 stays uint8, all else gives bool.

template <class Derived, ReduceOp Op>
struct TruthReduction : Reduction {
  static constexpr OutRule out_rule = kOwnDtypeOrByte;
  static DType result(const Tensor& self) {
    return given(Derived::schema, self).dtype() == DType::Byte ? DType::Byte : DType::Bool;
  }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(Op, out, self); }
};

/// Whether all elements, or all along dim, are nonzero. True of none. With an empty list of dims, whether each is.
struct AllAll : TruthReduction<AllAll, ReduceOp::All> {
  ATHANOR_OP("all(Tensor self) -> Tensor | out");
  Meta infer(const Tensor& self) { return reduced_all(schema, self, result(self)); }
};
struct AllDim : TruthReduction<AllDim, ReduceOp::All> {
  ATHANOR_OP("all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor | out");
  std::int64_t dim;
  bool keepdim;
  Meta infer(const Tensor& self) { return reduced(schema, self, dim, keepdim, result(self)); }
};
struct AllDims : TruthReduction<AllDims, ReduceOp::All> {
  ATHANOR_OP("all.dims(Tensor self, int[]? dim, bool keepdim=False) -> Tensor | out");
  std::optional<DimVector> dim;
  bool keepdim;
  Meta infer(const Tensor& self) { return reduced(schema, self, dim, keepdim, result(self), false); }
};
/// Whether any element, or any along dim, is nonzero. False of none. With an empty list of dims, whether each is.
struct AnyAll : TruthReduction<AnyAll, ReduceOp::Any> {
  ATHANOR_OP("any(Tensor self) -> Tensor | out");
  Meta infer(const Tensor& self) { return reduced_all(schema, self, result(self)); }
};
struct AnyDim : TruthReduction<AnyDim, ReduceOp::Any> {
  ATHANOR_OP("any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor | out");
  std::int64_t dim;
  bool keepdim;
  Meta infer(const Tensor& self) { return reduced(schema, self, dim, keepdim, result(self)); }
};
struct AnyDims : TruthReduction<AnyDims, ReduceOp::Any> {
  ATHANOR_OP("any.dims(Tensor self, int[]? dim, bool keepdim=False) -> Tensor | out");
  std::optional<DimVector> dim;
  bool keepdim;
  Meta infer(const Tensor& self) { return reduced(schema, self, dim, keepdim, result(self), false); }
};

/// How many elements are not 0, over dims.
struct CountNonzero : Reduction {
  ATHANOR_OP("count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor");
  DimVector dim;
  Meta infer(const Tensor& self) { return reduced(schema, self, dim, false, DType::Long); }
  void run(const Tensor& out, const Tensor& self) { launch_reduce(ReduceOp::CountNonzero, out, self); }
};
ATHANOR_FUNCTION("count_nonzero(Tensor self, int? dim=None) -> Tensor");
Tensor count_nonzero(const Tensor& self, std::optional<std::int64_t> dim) {
  return dim ? count_nonzero(self, IntArrayRef(*dim)) : count_nonzero(self, IntArrayRef{});
}

/// self summed over what broadcasting had repeated, so that its shape becomes `size`.
ATHANOR_FUNCTION("sum_to_size(Tensor self, int[] size) -> Tensor | method");
Tensor sum_to_size(const Tensor& self, IntArrayRef size) {
  if (self.sizes() == size) return self;
  const std::int64_t extra = self.dim() - static_cast<std::int64_t>(size.size());
  ATHANOR_CHECK(extra >= 0, "sum_to_size: size ", size, " is not expandable to ", self.sizes());
  DimVector dims;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const std::int64_t want = d < extra ? 1 : size[static_cast<std::size_t>(d - extra)];
    ATHANOR_CHECK(want == self.size(d) || want == 1, "sum_to_size: size ", size, " is not expandable to ",
                  self.sizes());
    if (d < extra || (want == 1 && self.size(d) != 1)) dims.push_back(d);
  }
  Tensor out = dims.empty() ? self : sum(self, IntArrayRef(dims), true, std::nullopt);
  return extra > 0 || out.sizes() != size ? reshape(out, size) : out;
}

// Comparisons of whole tensors.

/// All elements are close. Waits for pending work.
ATHANOR_FUNCTION(
    "allclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> bool");
bool allclose(const Tensor& self, const Tensor& other, double rtol, double atol, bool equal_nan) {
  return all(isclose(self, other, rtol, atol, equal_nan)).item().toBool();
}

/// Same shape and same elements (NaN is not equal to itself). Waits for pending work.
ATHANOR_FUNCTION("equal(Tensor self, Tensor other) -> bool");
bool equal(const Tensor& self, const Tensor& other) {
  ATHANOR_CHECK(given("equal", self).device() == given("equal", other).device(),
                "equal: expected tensors on one device, got ", self.device(), " and ", other.device());
  if (self.sizes() != other.sizes()) return false;
  return all(eq(self, other)).item().toBool();
}

}  // namespace athanor::ops

#include "athanor/ops/reduce.glue.inc"
