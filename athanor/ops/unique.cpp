// Distinct values, membership.
#include "athanor/ops/unique.h"

#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/index.h"
#include "athanor/ops/kernels/scan_sort.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reshape.h"
#include "athanor/ops/scan_sort.h"
#include "athanor/ops/search.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

using Distinct = std::tuple<Tensor, Tensor, Tensor>;

Tensor places(IntArrayRef sizes, const Tensor& like) { return detail::empty_tensor(sizes, DType::Long, like.device()); }

/// The first `count` entries along dim 0, without the rest of the memory.
Tensor shortened(const Tensor& t, std::int64_t count) {
  return t.size(0) == count ? t : clone(narrow(t, 0, 0, count), std::nullopt);
}

/// What was not asked for is empty, as in libtorch. Waits for the number of results on a queued device.
Distinct trimmed(const Tensor& values, const Tensor& inverse, const Tensor& counts, const Tensor& number) {
  const std::int64_t count = number.item().toLong();
  return {shortened(values, count), inverse.defined() ? inverse : places({0}, values),
          counts.defined() ? shortened(counts, count) : places({0}, values)};
}

Distinct distinct_elements(const Tensor& self, bool consecutive, bool with_inverse, bool with_counts) {
  const NoGradGuard off;
  const DType dtype = given("unique", self).dtype();
  const Tensor values = detail::empty_tensor({self.numel()}, dtype, self.device());
  const Tensor inverse = with_inverse ? places(self.sizes(), self) : Tensor();
  const Tensor counts = with_counts ? places({self.numel()}, self) : Tensor(), number = places({1}, self);
  launch<4>(unique_kernel, values, inverse, counts, number, self, consecutive);
  return trimmed(values, inverse, counts, number);
}

Distinct distinct_slices(const char* op, const Tensor& self, std::int64_t dim, bool consecutive, bool with_inverse,
                         bool with_counts) {
  const NoGradGuard off;
  dim = wrap_dim(dim, self.dim(), op);
  if (self.dim() == 0) {
    auto [values, inverse, counts] = distinct_elements(self, consecutive, with_inverse, with_counts);
    return {reshape(values, {}), inverse, counts};
  }
  const std::int64_t n = self.size(dim);
  ATHANOR_CHECK(self.numel() > 0 || n == 0,
                "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied: ", op,
                " along dim ", dim, " of shape ", self.sizes());
  const Tensor front = contiguous(movedim(self, dim, 0));
  DimVector shape(front.sizes());
  const Tensor rows = reshape(front, {n, n ? self.numel() / n : 0});
  const Tensor values = detail::empty_tensor(rows.sizes(), self.dtype(), self.device());
  const Tensor inverse = with_inverse ? places({n}, self) : Tensor();
  const Tensor counts = with_counts ? places({n}, self) : Tensor(), number = places({1}, self);
  launch<4>(unique_rows_kernel, values, inverse, counts, number, rows, consecutive);
  auto [kept, back, times] = trimmed(values, inverse, counts, number);
  shape[0] = kept.size(0);
  return {contiguous(movedim(reshape(kept, shape), 0, dim)), back, times};
}

}  // namespace

/// The distinct values, always in ascending order; where each element's value is among them; how often each occurs.
/// What was not asked for is an empty tensor.
ATHANOR_FUNCTION(
    "_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, "
    "Tensor) | function");
Distinct _unique2(const Tensor& self, bool /*sorted*/, bool return_inverse, bool return_counts) {
  return distinct_elements(self, false, return_inverse, return_counts);
}

ATHANOR_FUNCTION("_unique(Tensor self, bool sorted=True, bool return_inverse=False) -> (Tensor, Tensor) | function");
std::tuple<Tensor, Tensor> _unique(const Tensor& self, bool /*sorted*/, bool return_inverse) {
  auto [values, inverse, counts] = distinct_elements(self, false, return_inverse, false);
  return {values, inverse};
}

/// The distinct slices along dim, in lexicographic order.
ATHANOR_FUNCTION(
    "unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> "
    "(Tensor, Tensor, Tensor) | function internal");
Distinct unique_dim(const Tensor& self, std::int64_t dim, bool /*sorted*/, bool return_inverse, bool return_counts) {
  return distinct_slices("unique_dim", self, dim, false, return_inverse, return_counts);
}

/// The first of each run of equal elements, or of equal slices along dim.
ATHANOR_FUNCTION(
    "unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> (Tensor, "
    "Tensor, Tensor)");
Distinct unique_consecutive(const Tensor& self, bool return_inverse, bool return_counts,
                            std::optional<std::int64_t> dim) {
  if (dim) return distinct_slices("unique_consecutive", self, *dim, true, return_inverse, return_counts);
  return distinct_elements(self, true, return_inverse, return_counts);
}

/// Python's torch.unique: _unique2, or unique_dim if dim is given.
ATHANOR_FUNCTION(
    "unique(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False, int? dim=None) -> "
    "(Tensor, Tensor, Tensor)");
Distinct unique(const Tensor& self, bool sorted, bool return_inverse, bool return_counts,
                std::optional<std::int64_t> dim) {
  if (dim) return unique_dim(self, *dim, sorted, return_inverse, return_counts);
  return _unique2(self, sorted, return_inverse, return_counts);
}

/// For each of elements, whether test_elements has it (with invert: has it not). NaN is in nothing.
ATHANOR_FUNCTION(
    "isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> "
    "Tensor | function out own_dtype");
Tensor isin(const Tensor& elements, const Tensor& test_elements, bool /*assume_unique*/, bool invert) {
  const NoGradGuard off;
  const std::int64_t n = given("isin", test_elements).numel();
  static_cast<void>(given("isin", elements));
  if (n == 0) return full(elements.sizes(), invert, TensorOptions(elements.device()).dtype(DType::Bool));
  const DType t = Promotion().add(elements).add(test_elements).type();
  const Tensor all = std::get<0>(sort(cast(reshape(test_elements, {n}), t), 0, false)), wanted = cast(elements, t);
  // NaN comes last; searches need an order.
  const Tensor keys = is_floating_point(t) ? where(isnan(all), Scalar(INFINITY), all) : all;
  const Tensor place = clamp_max(searchsorted(keys, wanted, false, false, std::nullopt, Tensor()), Scalar(n - 1));
  const Tensor found = take(all, place);
  return invert ? ne(found, wanted) : eq(found, wanted);
}
ATHANOR_FUNCTION(
    "isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False) -> "
    "Tensor | function out own_dtype");
Tensor isin(const Tensor& elements, const Scalar& test_element, bool /*assume_unique*/, bool invert) {
  return invert ? ne(given("isin", elements), test_element) : eq(elements, test_element);
}
ATHANOR_FUNCTION(
    "isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> "
    "Tensor | function out own_dtype");
Tensor isin(const Scalar& element, const Tensor& test_elements, bool assume_unique, bool invert) {
  return isin(scalar_tensor(element, TensorOptions(given("isin", test_elements).device()).dtype(element.type())),
              test_elements, assume_unique, invert);
}

}  // namespace athanor::ops

#include "athanor/ops/unique.glue.inc"
