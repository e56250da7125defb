// Scans along a dim; sorting, selecting by rank.
#include "athanor/ops/scan_sort.h"

#include "athanor/ops/binary.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/kernels/index.h"
#include "athanor/ops/kernels/scan_sort.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reduce_extreme.h"
#include "athanor/ops/reduce_op.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

// What undoes a selection: the gradients of everything that returns indices along a dim.

/// out[.., index, ..] of self along dim; index has the result's shape.
struct GatherAlong {
  ATHANOR_OP("_gather_along(Tensor self, Tensor index, int dim) -> Tensor | function");
  std::int64_t dim;
  std::int64_t size = 1;
  SavedTensor index;
  Meta infer(const Tensor& self, const Tensor& i) {
    size = self.dim() == 0 ? 1 : self.size(dim);
    return {DimVector(i.sizes()), self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& i) { launch(gather_kernel, out, self, i, dim); }
  void save(const Node&, const Tensor&, const Tensor& i) { index.save(i); }
  void grad(GradCall& g) { g.set(0, _scatter_along(g.grad(), g.get(index), dim, size)); }
};

/// Zeros of self's shape but for `size` at dim, to which self is added at index along dim.
struct ScatterAlong {
  ATHANOR_OP("_scatter_along(Tensor self, Tensor index, int dim, int size) -> Tensor | function");
  std::int64_t dim, size;
  SavedTensor index;
  Meta infer(const Tensor& self, const Tensor&) {
    DimVector shape(self.sizes());
    if (!shape.empty()) shape[static_cast<std::size_t>(dim)] = size;
    return {shape, self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& i) {
    launch(fill_kernel, out, Scalar(0));
    launch(scatter_kernel, out, i, self, dim, IndexReduce::Add, true);
  }
  void save(const Node&, const Tensor&, const Tensor& i) { index.save(i); }
  void grad(GradCall& g) { g.set(0, _gather_along(g.grad(), g.get(index), dim)); }
};

// Scans.

namespace {

DType scan_type(const Tensor& self, std::optional<DType> dtype) {
  return dtype.value_or(is_floating_point(self.dtype()) ? self.dtype() : DType::Long);
}

template <bool Reverse>
Tensor cumulative_sum(const Tensor& t, std::int64_t dim) {
  return Reverse ? _cumsum_reverse(t, dim) : cumsum(t, dim, std::nullopt);
}

template <bool Reverse>
Tensor cumulative_product(const Tensor& t, std::int64_t dim) {
  return Reverse ? _cumprod_reverse(t, dim) : cumprod(t, dim, std::nullopt);
}

/// The gradient of a running product over elements that may be 0: element j gets the product of what comes before it,
/// times the sum over k from j on of grad[k] and the product of what lies between. Quadratic, in ops that can be
/// differentiated again.
template <bool Reverse>
Tensor running_product_gradient(const Tensor& grad, const Tensor& x, std::int64_t dim) {
  const std::int64_t n = x.size(dim);
  Tensor out = zeros_like(x);
  for (std::int64_t j = 0; j < n; ++j) {
    const std::int64_t later = Reverse ? 0 : j + 1, later_count = Reverse ? j : n - 1 - j;
    const std::int64_t before = Reverse ? j + 1 : 0, before_count = n - 1 - later_count;
    Tensor part = narrow(grad, dim, j, 1);
    if (later_count > 0) {
      const Tensor between = cumulative_product<Reverse>(narrow(x, dim, later, later_count), dim);
      const Tensor weighted = mul(narrow(grad, dim, later, later_count), between);
      part = add(part, sum(weighted, IntArrayRef(dim), true, std::nullopt));
    }
    if (before_count > 0) part = mul(part, prod(narrow(x, dim, before, before_count), dim, true, std::nullopt));
    copy_(narrow(out, dim, j, 1), part);
  }
  return out;
}

}  // namespace

template <class Derived, bool Reverse>
struct CumSumBase {
  Meta infer_sum(const Tensor& self, std::int64_t& dim, DType t) {
    dim = wrap_dim(dim, self.dim(), "cumsum");
    return {DimVector(self.sizes()), t, self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self) {
    launch(scan_kernel, ScanOp::CumSum, out, self, static_cast<Derived&>(*this).dim, Reverse);
  }
  void grad(GradCall& g) { g.set(0, cumulative_sum<!Reverse>(g.grad(), static_cast<Derived&>(*this).dim)); }
};

/// Running sum along dim; integers are summed in int64.
struct CumSum : CumSumBase<CumSum, false> {
  ATHANOR_OP("cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor | inplace out");
  std::int64_t dim;
  std::optional<DType> dtype;
  Meta infer(const Tensor& self) { return infer_sum(self, dim, scan_type(self, dtype)); }
};
struct CumSumReverse : CumSumBase<CumSumReverse, true> {
  ATHANOR_OP("_cumsum_reverse(Tensor self, int dim) -> Tensor | function");
  std::int64_t dim;
  Meta infer(const Tensor& self) { return infer_sum(self, dim, self.dtype()); }
};

template <class Derived, bool Reverse>
struct CumProdBase {
  SavedTensor x, y;
  static constexpr bool keeps_self = true;
  Meta infer_product(const Tensor& self, std::int64_t& dim, DType t) {
    dim = wrap_dim(dim, self.dim(), "cumprod");
    return {DimVector(self.sizes()), t, self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self) {
    launch(scan_kernel, ScanOp::CumProd, out, self, static_cast<Derived&>(*this).dim, Reverse);
  }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) {
    const std::int64_t dim = static_cast<Derived&>(*this).dim;
    const Tensor v = g.get(x);
    if (v.dim() == 0 || v.numel() == 0) return g.set(0, g.grad());
    if (any(eq(v, 0)).item().toBool()) return g.set(0, running_product_gradient<Reverse>(g.grad(), v, dim));
    g.set(0, div(cumulative_sum<!Reverse>(mul(g.grad(), g.get(y)), dim), v));
  }
};

/// Running product along dim; integers are multiplied in int64.
struct CumProd : CumProdBase<CumProd, false> {
  ATHANOR_OP("cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor | inplace out");
  std::int64_t dim;
  std::optional<DType> dtype;
  void prepare(Tensor& self) {
    if (dtype) self = cast(self, *dtype);
  }
  Meta infer(const Tensor& self) { return infer_product(self, dim, scan_type(self, dtype)); }
};
struct CumProdReverse : CumProdBase<CumProdReverse, true> {
  ATHANOR_OP("_cumprod_reverse(Tensor self, int dim) -> Tensor | function");
  std::int64_t dim;
  Meta infer(const Tensor& self) { return infer_product(self, dim, self.dtype()); }
};

struct LogCumSumExpOp {
  ATHANOR_OP("_logcumsumexp(Tensor self, int dim, bool reverse=False) -> Tensor | function out");
  static constexpr const char* grad_name = "LogcumsumexpBackward0";
  std::int64_t dim;
  bool reverse;
  SavedTensor x, y;
  void prepare(Tensor& self) { self = cast(self, float_type(self.dtype())); }
  Meta infer(const Tensor& self) {
    dim = wrap_dim(dim, self.dim(), "logcumsumexp");
    return {DimVector(self.sizes()), self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self) {
    launch(scan_kernel, ScanOp::LogCumSumExp, out, self, dim, reverse);
  }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) {
    // exp(x_j) sum over k of grad_k exp(-y_k), in logarithms, positive and negative gradients apart.
    // Where nothing but -inf came, any finite stand-in for the result gives 0, and no NaN.
    const Tensor up = g.grad(), v = g.get(x), saved = g.get(y), result = where(eq(saved, -INFINITY), Scalar(0), saved);
    auto part = [&](const Tensor& chosen, const Tensor& size) {
      const Tensor logs = where(chosen, log(where(chosen, size, Scalar(1))), Scalar(-INFINITY));
      return exp(add(_logcumsumexp(sub(logs, result), dim, !reverse), v));
    };
    g.set(0, sub(part(logical_or(gt(up, 0), ne(up, up)), up), part(lt(up, 0), neg(up))));
  }
};

/// log of the running sum of exp(self) along dim, without overflow.
ATHANOR_FUNCTION("logcumsumexp(Tensor self, int dim) -> Tensor | out");
Tensor logcumsumexp(const Tensor& self, std::int64_t dim) { return _logcumsumexp(self, dim, false); }

template <class Derived, ScanExtremeOp Op>
struct ScanExtreme {
  std::int64_t size = 1;
  SavedTensor place;
  std::array<Meta, 2> infer(const Tensor& self) {
    std::int64_t& dim = static_cast<Derived&>(*this).dim;
    dim = wrap_dim(dim, self.dim(), op_name(Derived::schema).c_str());
    size = self.dim() == 0 ? 1 : self.size(dim);
    return {Meta{DimVector(self.sizes()), self.dtype(), self.device(), {}},
            Meta{DimVector(self.sizes()), DType::Long, self.device(), {}}};
  }
  void run(const Tensor& values, const Tensor& indices, const Tensor& self) {
    launch<2>(scan_extreme_kernel, Op, values, indices, self, static_cast<Derived&>(*this).dim);
  }
  void save_results(Node* n, const Tensor&, const Tensor& indices) { place.save_result(indices, n); }
  void grad(GradCall& g) { g.set(0, _scatter_along(g.grad(), g.get(place), static_cast<Derived&>(*this).dim, size)); }
};

/// Running maximum along dim and the index of its latest occurrence.
struct CumMax : ScanExtreme<CumMax, ScanExtremeOp::CumMax> {
  ATHANOR_OP("cummax(Tensor self, int dim) -> (Tensor, Tensor) | out");
  std::int64_t dim;
};
/// Running minimum along dim and the index of its latest occurrence.
struct CumMin : ScanExtreme<CumMin, ScanExtremeOp::CumMin> {
  ATHANOR_OP("cummin(Tensor self, int dim) -> (Tensor, Tensor) | out");
  std::int64_t dim;
};

// Sorting.

/// self in order along dim, and where each element was. The sort is always stable; NaN is the greatest.
struct Sort {
  ATHANOR_OP("sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor, Tensor) | out");
  std::int64_t dim;
  bool descending;
  std::int64_t size = 1;
  SavedTensor place;
  std::array<Meta, 2> infer(const Tensor& self) {
    dim = wrap_dim(dim, self.dim(), "sort");
    size = self.dim() == 0 ? 1 : self.size(dim);
    return {Meta{DimVector(self.sizes()), self.dtype(), self.device(), {}},
            Meta{DimVector(self.sizes()), DType::Long, self.device(), {}}};
  }
  void run(const Tensor& values, const Tensor& indices, const Tensor& self) {
    launch<2>(sort_kernel, values, indices, self, dim, descending);
  }
  void save_results(Node* n, const Tensor&, const Tensor& indices) { place.save_result(indices, n); }
  void grad(GradCall& g) { g.set(0, _scatter_along(g.grad(), g.get(place), dim, size)); }
};

ATHANOR_FUNCTION(
    "sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor, Tensor) | out");
std::tuple<Tensor, Tensor> sort(const Tensor& self, std::optional<bool> /*stable*/, std::int64_t dim, bool descending) {
  return sort(self, dim, descending);
}

/// The places that sort the elements along dim.
struct ArgSort {
  ATHANOR_OP("argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor");
  std::int64_t dim;
  bool descending;
  Meta infer(const Tensor& self) {
    dim = wrap_dim(dim, self.dim(), "argsort");
    return {DimVector(self.sizes()), DType::Long, self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self) { launch<2>(sort_kernel, Tensor(), out, self, dim, descending); }
};
ATHANOR_FUNCTION("argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor | out");
Tensor argsort(const Tensor& self, bool /*stable*/, std::int64_t dim, bool descending) {
  return argsort(self, dim, descending);
}

/// self sorted along the first dim.
ATHANOR_FUNCTION("msort(Tensor self) -> Tensor | out");
Tensor msort(const Tensor& self) { return std::get<0>(sort(given("msort", self), 0, false)); }

/// The k greatest (or least) elements along dim and their indices.
struct TopK {
  ATHANOR_OP("topk(Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor, Tensor) | out");
  std::int64_t k, dim;
  bool largest, sorted;
  std::int64_t size = 1;
  SavedTensor place;
  std::array<Meta, 2> infer(const Tensor& self) {
    dim = wrap_dim(dim, self.dim(), "topk");
    size = self.dim() == 0 ? 1 : self.size(dim);
    ATHANOR_CHECK(k >= 0 && k <= size, "topk: selected index k out of range: k is ", k, ", dim ", dim, " has size ",
                  size);
    DimVector shape(self.sizes());
    if (!shape.empty()) shape[static_cast<std::size_t>(dim)] = k;
    return {Meta{shape, self.dtype(), self.device(), {}}, Meta{shape, DType::Long, self.device(), {}}};
  }
  void run(const Tensor& values, const Tensor& indices, const Tensor& self) {
    launch<2>(topk_kernel, values, indices, self, dim, largest, sorted);
  }
  void save_results(Node* n, const Tensor&, const Tensor& indices) { place.save_result(indices, n); }
  void grad(GradCall& g) { g.set(0, _scatter_along(g.grad(), g.get(place), dim, size)); }
};

// One element of each line, by rank or frequency.

template <class Derived>
struct SelectAlong : Reduction {
  SavedTensor place;
  std::array<Meta, 2> infer(const Tensor& self) {
    auto& op = static_cast<Derived&>(*this);
    const std::string name = op_name(Derived::schema);
    const Meta m = reduced(Derived::schema, self, op.dim, op.keepdim, self.dtype());
    check_not_empty(name.c_str());
    op.dim = wrap_dim(op.dim, self.dim(), name.c_str());
    if constexpr (requires { op.check(self); }) op.check(self);
    Meta indices = m;
    indices.dtype = DType::Long;
    return {m, indices};
  }
  void run(const Tensor& values, const Tensor& indices, const Tensor& self) {
    const DimVector shape = reduced_keepdim(from, mask);
    static_cast<Derived&>(*this).fill(keepdim_alias(values, shape), keepdim_alias(indices, shape), self);
  }
  void save_results(Node* n, const Tensor&, const Tensor& indices) { place.save_result(indices, n); }
  void grad(GradCall& g) {
    if (from.empty()) return g.set(0, g.grad());
    const std::int64_t dim = static_cast<Derived&>(*this).dim;
    g.set(0, _scatter_along(restored(g.grad()), restored(g.get(place)), dim, from[static_cast<std::size_t>(dim)]));
  }
};

/// The k-th least element (from 1) along dim and its index.
struct KthValue : SelectAlong<KthValue> {
  ATHANOR_OP("kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False) -> (Tensor, Tensor) | out");
  std::int64_t k, dim;
  bool keepdim;
  void check(const Tensor& self) const {
    const std::int64_t n = self.dim() == 0 ? 1 : self.size(dim);
    ATHANOR_CHECK(k >= 1 && k <= n, "kthvalue(): selected number k out of range for dimension ", dim, ": k is ", k,
                  ", the size is ", n);
  }
  void fill(const Tensor& values, const Tensor& indices, const Tensor& self) const {
    launch<2>(kthvalue_kernel, values, indices, self, k, dim);
  }
};

/// The lower median along dim and its index; NaN if there is one.
struct MedianDim : SelectAlong<MedianDim> {
  ATHANOR_OP("median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor) | out");
  std::int64_t dim;
  bool keepdim;
  void fill(const Tensor& values, const Tensor& indices, const Tensor& self) const {
    launch<2>(median_kernel, values, indices, self, dim, false);
  }
};

/// The lower median of what is not NaN along dim, and its index.
struct NanMedianDim : SelectAlong<NanMedianDim> {
  ATHANOR_OP("nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor) | out");
  std::int64_t dim;
  bool keepdim;
  void fill(const Tensor& values, const Tensor& indices, const Tensor& self) const {
    launch<2>(median_kernel, values, indices, self, dim, true);
  }
};

namespace {

/// `value` as a function of all elements of `flat` that equal it: they share its gradient. amax shares so, but
/// not what is NaN or its filler; a mean does, but rounds what is finite.
Tensor shared_value(const Tensor& flat, const Tensor& value) {
  const Tensor equal = logical_or(eq(flat, value), logical_and(isnan(flat), isnan(value)));
  const Tensor finite = amax(where(logical_and(equal, isfinite(value)), flat, Scalar(-INFINITY)), {}, false);
  const Tensor other = div(sum(where(equal, flat, Scalar(0))), cast(sum(equal), flat.dtype()));
  return where(isfinite(value), finite, other);
}

/// The median of nothing is NaN (0 for integers has no meaning: the least value, as the reference does).
Tensor flat_median(const Tensor& self, bool ignore_nan) {
  if (given(ignore_nan ? "nanmedian" : "median", self).numel() == 0) {
    ATHANOR_CHECK(self.is_floating_point(), "median: an empty integer tensor has no median");
    return full({}, NAN, self.options());
  }
  const Tensor flat = reshape(self, {-1});
  const Tensor plain = detach(flat);
  const Tensor value = std::get<0>(ignore_nan ? nanmedian(plain, 0, false) : median(plain, 0, false));
  return GradMode::is_enabled() && self.requires_grad() ? shared_value(flat, value) : value;
}

}  // namespace

/// The lower median of all elements.
ATHANOR_FUNCTION("median(Tensor self) -> Tensor");
Tensor median(const Tensor& self) { return flat_median(self, false); }
ATHANOR_FUNCTION("nanmedian(Tensor self) -> Tensor");
Tensor nanmedian(const Tensor& self) { return flat_median(self, true); }

/// The most frequent value along dim (the least of equals) and the index of its last occurrence.
struct Mode : SelectAlong<Mode> {
  ATHANOR_OP("mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor, Tensor) | out");
  std::int64_t dim;
  bool keepdim;
  void fill(const Tensor& values, const Tensor& indices, const Tensor& self) const {
    launch<2>(mode_kernel, values, indices, self, dim);
  }
};

}  // namespace athanor::ops

#include "athanor/ops/scan_sort.glue.inc"
