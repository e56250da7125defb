// Places in sorted sequences, counts of values, differences between neighbours.
#include "athanor/ops/search.h"

#include <cmath>

#include "athanor/ops/binary.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/join.h"
#include "athanor/ops/kernels/scan_sort.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reduce_extreme.h"
#include "athanor/ops/scan_sort.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

bool wants_right(bool right, std::optional<std::string_view> side) {
  if (!side) return right;
  ATHANOR_CHECK(*side == "left" || *side == "right",
                "torch.searchsorted(): side can only be 'left' or 'right' but got ", *side);
  ATHANOR_CHECK(*side == "right" || !right,
                "torch.searchsorted(): side and right can't be set to opposites, got side of ", *side,
                " while right was True");
  return *side == "right";
}

void check_sequence(const Tensor& sequence, const Tensor& values, const Tensor& sorter) {
  ATHANOR_CHECK(sequence.dim() > 0,
                "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 "
                "dimension");
  ATHANOR_CHECK(values.dim() > 0 || sequence.dim() == 1,
                "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but we "
                "got boundaries tensor dim(",
                sequence.dim(), ") and input value's dim(0) numel(1)");
  bool fits = sequence.dim() == 1 || sequence.dim() == values.dim();
  for (std::int64_t d = 0; fits && sequence.dim() > 1 && d + 1 < sequence.dim(); ++d)
    fits = sequence.size(d) == values.size(d);
  ATHANOR_CHECK(fits,
                "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of "
                "boundaries tensor and input value tensor must match, but we got boundaries tensor ",
                sequence.sizes(), " and input value tensor ", values.sizes());
  if (!sorter.defined()) return;
  ATHANOR_CHECK(sorter.sizes() == sequence.sizes(),
                "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor ",
                sequence.sizes(), " and got sorter tensor ", sorter.sizes());
  ATHANOR_CHECK(sorter.dtype() == DType::Long, "torch.searchsorted(): sorter must be a tensor of long dtype but got ",
                "dtype ", sorter.dtype());
}

Tensor value_tensor(const Scalar& value, const Tensor& like) {
  return scalar_tensor(
      value, TensorOptions(like.device()).dtype(value.isFloatingPoint() ? get_default_dtype() : value.type()));
}

}  // namespace

struct SearchSorted {
  ATHANOR_OP(
      "_searchsorted(Tensor sorted_sequence, Tensor values, Tensor? sorter, bool out_int32, bool right) -> Tensor | "
      "function");
  bool out_int32, right;
  Meta infer(const Tensor&, const Tensor& values, const Tensor&) const {
    return {DimVector(values.sizes()), out_int32 ? DType::Int : DType::Long, values.device(), {}};
  }
  void run(const Tensor& out, const Tensor& sequence, const Tensor& values, const Tensor& sorter) const {
    launch(searchsorted_kernel, out, sequence, values, sorter, right);
  }
};

/// Where each of self would go in the ascending sorted_sequence (1-d, or self's shape but for the last dim) to keep it
/// ascending: before equals, or after them with right. NaN is the greatest. sorter gives the order that sorts it.
ATHANOR_FUNCTION(
    "searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? "
    "side=None, Tensor? sorter=None) -> Tensor | function out");
Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& self, bool out_int32, bool right,
                    std::optional<std::string_view> side, const Tensor& sorter) {
  check_sequence(sorted_sequence, self, sorter);
  const bool after = wants_right(right, side);
  const DType t = promote_types(sorted_sequence.dtype(), self.dtype());
  return _searchsorted(cast(sorted_sequence, t), cast(self, t), sorter, out_int32, after);
}
ATHANOR_FUNCTION(
    "searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? "
    "side=None, Tensor? sorter=None) -> Tensor | function out");
Tensor searchsorted(const Tensor& sorted_sequence, const Scalar& self, bool out_int32, bool right,
                    std::optional<std::string_view> side, const Tensor& sorter) {
  return searchsorted(sorted_sequence, value_tensor(self, sorted_sequence), out_int32, right, side, sorter);
}

/// The index of the bucket between ascending 1-d boundaries that each of self belongs to.
ATHANOR_FUNCTION(
    "bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor | function "
    "out");
Tensor bucketize(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  ATHANOR_CHECK(boundaries.dim() == 1, "bucketize: boundaries tensor must be 1 dimension, but got dim(",
                boundaries.dim(), ")");
  return searchsorted(boundaries, self, out_int32, right, std::nullopt, Tensor());
}
ATHANOR_FUNCTION(
    "bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor | function");
Tensor bucketize(const Scalar& self, const Tensor& boundaries, bool out_int32, bool right) {
  return bucketize(value_tensor(self, boundaries), boundaries, out_int32, right);
}

/// How many elements lie in each of `bins` equal bins from min to max, both included. With min equal to max the range
/// is that of the elements.
struct Histc {
  ATHANOR_OP("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor | out");
  static constexpr bool inputs_apart = true;
  std::int64_t bins;
  Scalar min, max;
  double lo = 0, hi = 0;
  Meta infer(const Tensor& self) {
    ATHANOR_CHECK(bins > 0, "torch.histc(): bins must be > 0, but got ", bins);
    ATHANOR_CHECK_TYPE(NotImplementedError, self.dtype() != DType::Bool, "histc: not implemented for bool; got ",
                       self.dtype());
    lo = min.toDouble();
    hi = max.toDouble();
    if (lo == hi && self.numel() > 0) {
      const NoGradGuard off;
      const auto [least, greatest] = aminmax(self, std::nullopt, false);
      lo = least.item().toDouble();
      hi = greatest.item().toDouble();
    }
    if (lo == hi) {
      lo -= 1;
      hi += 1;
    }
    ATHANOR_CHECK(std::isfinite(lo) && std::isfinite(hi), "torch.histc: range of [", lo, ", ", hi, "] is not finite");
    ATHANOR_CHECK(lo < hi, "torch.histc: max must be larger than min, got min ", lo, " and max ", hi);
    return {{bins}, self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self) const { launch(histc_kernel, out, self, lo, hi); }
};

/// How often each of the values 0, 1, … occurs in self (1-d, not negative), or the sum of the weights of its
/// occurrences. At least minlength entries. Waits for the values on a queued device.
ATHANOR_FUNCTION("bincount(Tensor self, Tensor? weights=None, int minlength=0) -> Tensor");
Tensor bincount(const Tensor& self, const Tensor& weights, std::int64_t minlength) {
  const NoGradGuard off;
  ATHANOR_CHECK(minlength >= 0, "bincount: minlength should be >= 0, got ", minlength);
  ATHANOR_CHECK(self.dim() == 1 && is_integral(self.dtype()),
                "bincount only supports 1-d non-negative integral inputs., got shape ", self.sizes(), " of ",
                self.dtype());
  std::int64_t size = minlength;
  if (self.numel() > 0) {
    const auto [least, greatest] = aminmax(self, std::nullopt, false);
    ATHANOR_CHECK(least.item().toLong() >= 0, "bincount only supports 1-d non-negative integral inputs., got ",
                  least.item().toLong());
    const std::int64_t most = greatest.item().toLong();
    ATHANOR_CHECK(most < INT64_MAX, "bincount: no tensor has a place for each number up to ", most);
    size = std::max(minlength, most + 1);
  }
  Tensor used = weights;
  if (weights.defined()) {
    ATHANOR_CHECK(weights.dim() == 1 && weights.size(0) == self.size(0),
                  "bincount: weights should be 1-d and have the same length as input, got shape ", weights.sizes(),
                  " for input of length ", self.size(0));
    if (weights.dtype() != DType::Float) used = cast(weights, DType::Double);
  }
  Tensor out = detail::empty_tensor({size}, used.defined() ? used.dtype() : DType::Long, self.device());
  launch(bincount_kernel, out, self, used);
  return out;
}

namespace {

/// All but one of dim, from the first (0) or the second (1) on; nothing of an empty dim.
Tensor neighbours(const Tensor& t, std::int64_t dim, std::int64_t first) {
  return slice(t, dim, first, t.size(dim) - 1 + first, 1);
}

Tensor with_ends(const Tensor& self, std::int64_t dim, const Tensor& prepend, const Tensor& append) {
  if (!prepend.defined() && !append.defined()) return self;
  std::vector<Tensor> parts;
  if (prepend.defined()) parts.push_back(prepend);
  parts.push_back(self);
  if (append.defined()) parts.push_back(append);
  return cat(parts, dim);
}

/// Half the sums of neighbours of y, times the steps between them.
Tensor trapezoids(const Tensor& y, const Tensor& steps, std::int64_t dim) {
  return mul(mul(add(neighbours(y, dim, 0), neighbours(y, dim, 1)), steps), Scalar(0.5));
}
Tensor trapezoids(const Tensor& y, const Scalar& dx, std::int64_t dim) {
  return mul(mul(add(neighbours(y, dim, 0), neighbours(y, dim, 1)), dx), Scalar(0.5));
}

/// Steps between the points x, made to broadcast against y's neighbours along dim: a 1-d x lies along dim.
Tensor steps_of(const char* op, const Tensor& y, const Tensor& x, std::int64_t dim) {
  ATHANOR_CHECK(y.dtype() != DType::Bool && x.dtype() != DType::Bool, op,
                ": received a bool input for `x` or `y`, but bool is not supported");
  if (x.dim() != 1) return diff(x, 1, dim, Tensor(), Tensor());
  ATHANOR_CHECK(x.size(0) == y.size(dim), op, ": There must be one `x` value for each sample point, got ", x.size(0),
                " for ", y.size(dim));
  DimVector shape(static_cast<std::size_t>(y.dim()), 1);
  shape[static_cast<std::size_t>(wrap_dim(dim, y.dim(), op))] = std::max<std::int64_t>(x.size(0) - 1, 0);
  return reshape(diff(x, 1, 0, Tensor(), Tensor()), shape);
}

}  // namespace

/// n times over, the differences between neighbours along dim; prepend and append are joined to self before.
ATHANOR_FUNCTION("diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor | out");
Tensor diff(const Tensor& self, std::int64_t n, std::int64_t dim, const Tensor& prepend, const Tensor& append) {
  ATHANOR_CHECK(self.dim() > 0, "diff expects input to be at least one-dimensional");
  ATHANOR_CHECK(n >= 0, "diff: order must be non-negative but got ", n);
  dim = wrap_dim(dim, self.dim(), "diff");
  if (n == 0) return clone(self, std::nullopt);
  Tensor t = with_ends(self, dim, prepend, append);
  if (n >= t.size(dim)) return clone(narrow(t, dim, 0, 0), std::nullopt);
  for (; n > 0; --n)
    t = t.dtype() == DType::Bool ? ne(neighbours(t, dim, 1), neighbours(t, dim, 0))
                                 : sub(neighbours(t, dim, 1), neighbours(t, dim, 0));
  return t;
}

/// The integral of y along dim by the trapezoidal rule: points x, or a spacing of dx.
ATHANOR_FUNCTION("trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor | function");
Tensor trapezoid(const Tensor& y, const Tensor& x, std::int64_t dim) {
  dim = wrap_dim(dim, y.dim(), "trapezoid");
  if (y.size(dim) == 0) return sum(y, IntArrayRef(dim), false, std::nullopt);
  return sum(trapezoids(y, steps_of("trapezoid", y, x, dim), dim), IntArrayRef(dim), false, std::nullopt);
}
ATHANOR_FUNCTION("trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor | function");
Tensor trapezoid(const Tensor& y, const Scalar& dx, std::int64_t dim) {
  dim = wrap_dim(dim, y.dim(), "trapezoid");
  if (y.size(dim) == 0) return sum(y, IntArrayRef(dim), false, std::nullopt);
  return sum(trapezoids(y, dx, dim), IntArrayRef(dim), false, std::nullopt);
}

/// The same up to each point but the first.
ATHANOR_FUNCTION("cumulative_trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor | function");
Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, std::int64_t dim) {
  dim = wrap_dim(dim, y.dim(), "cumulative_trapezoid");
  return cumsum(trapezoids(y, steps_of("cumulative_trapezoid", y, x, dim), dim), dim, std::nullopt);
}
ATHANOR_FUNCTION("cumulative_trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor | function");
Tensor cumulative_trapezoid(const Tensor& y, const Scalar& dx, std::int64_t dim) {
  dim = wrap_dim(dim, y.dim(), "cumulative_trapezoid");
  return cumsum(trapezoids(y, dx, dim), dim, std::nullopt);
}

}  // namespace athanor::ops

#include "athanor/ops/search.glue.inc"
