// Forms of ops that libtorch has beside those of their schemas, written with the ops.
#include "athanor/ops/all_ops.h"
#include "athanor/ops/op.h"
#include "athanor/ops/tensor.h"

namespace athanor {
namespace {

/// A number that does not decide the dtype of a result.
Tensor operand(const Scalar& s) {
  Tensor t = scalar_tensor(s, s.isFloatingPoint() ? TensorOptions(kDouble) : TensorOptions(s.type()));
  t.impl()->wrapped_number = true;
  return t;
}

/// scatter_reduce's name of scatter's reduction.
std::string_view reduction(std::string_view reduce) {
  ATHANOR_CHECK_VALUE(reduce == "add" || reduce == "multiply",
                      "scatter: reduce argument must be either add or multiply, got '", std::string(reduce), "'");
  return reduce == "add" ? "sum" : "prod";
}
Tensor repeated(const Scalar& value, const Tensor& index, const Tensor& self) {
  return full(index.sizes(), value, TensorOptions(self.dtype()).device(self.device()));
}

/// Of a tensor of self's sizes, whether index names the place along `along`: of a shape that broadcasts.
Tensor named_places(const Tensor& self, std::int64_t along, const Tensor& index, const Tensor& value) {
  ATHANOR_CHECK(value.dim() == 0, "index_fill only supports a 0-dimensional value tensor, but got one of shape ",
                value.sizes());
  const std::int64_t last = std::max<std::int64_t>(self.dim(), 1) - 1;
  ATHANOR_CHECK_INDEX(along >= -last - 1 && along <= last, "index_fill: dim ", along, " is out of range for ",
                      self.sizes());
  const std::int64_t d = along < 0 ? along + last + 1 : along;
  DimVector shape(static_cast<std::size_t>(self.dim()), 1);
  if (self.dim() > 0) shape[static_cast<std::size_t>(d)] = self.size(d);
  Tensor named = zeros({self.dim() > 0 ? self.size(d) : 1}, TensorOptions(kBool).device(self.device()));
  named.index_fill_(0, index, true);
  return named.view(shape);
}

Tensor padded(const char* name, std::size_t dims, const Tensor& x, IntArrayRef padding, const char* mode) {
  ATHANOR_CHECK(padding.size() == 2 * dims, name, ": expected ", 2 * dims, " widths, got ", padding);
  const auto n = static_cast<std::int64_t>(dims);
  ATHANOR_CHECK(x.dim() == n + 1 || x.dim() == n + 2, name, ": expected an input of ", n + 1, " or ", n + 2,
                " dims, got one of shape ", x.sizes());
  return pad(x, padding, mode);
}

}  // namespace

Tensor Tensor::scatter(std::int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce) const {
  return scatter_reduce(dim, index, src, reduction(reduce));
}
Tensor Tensor::scatter(std::int64_t dim, const Tensor& index, const Scalar& value, std::string_view reduce) const {
  return scatter(dim, index, repeated(value, index, *this), reduce);
}
Tensor& Tensor::scatter_(std::int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce) const {
  return scatter_reduce_(dim, index, src, reduction(reduce));
}
Tensor& Tensor::scatter_(std::int64_t dim, const Tensor& index, const Scalar& value, std::string_view reduce) const {
  return scatter_(dim, index, repeated(value, index, *this), reduce);
}

Tensor Tensor::index_fill(std::int64_t along, const Tensor& index, const Tensor& value) const {
  return masked_fill(named_places(*this, along, index, value), value);
}
Tensor& Tensor::index_fill_(std::int64_t along, const Tensor& index, const Tensor& value) const {
  ops::check_no_internal_overlap(*this, "index_fill_");
  return masked_fill_(named_places(*this, along, index, value), value);
}

Tensor Tensor::where(const Tensor& condition, const Tensor& other) const {
  return athanor::where(condition, *this, other);
}
Tensor Tensor::where(const Tensor& condition, const Scalar& other) const {
  return athanor::where(condition, *this, other);
}
std::vector<Tensor> where(const Tensor& condition) {
  std::vector<Tensor> places;
  for (TensorBase& t : ops::nonzero_numpy(condition)) places.emplace_back(std::move(t));
  return places;
}

Tensor Tensor::polygamma(std::int64_t n) const { return athanor::polygamma(n, *this); }
Tensor& Tensor::polygamma_(std::int64_t n) const {
  // Backward needs the old values.
  const Tensor result = athanor::polygamma(n, requires_grad() ? clone() : *this);
  ATHANOR_CHECK(can_cast(result.dtype(), dtype()), "polygamma_: result type ", result.dtype(),
                " can't be cast to the desired output type ", dtype());
  return copy_(result);
}

#define ATHANOR_NUMBER_FIRST(name) \
  Tensor name(const Scalar& self, const Tensor& other) { return name(operand(self), other); }
ATHANOR_NUMBER_FIRST(bitwise_and)
ATHANOR_NUMBER_FIRST(bitwise_or)
ATHANOR_NUMBER_FIRST(bitwise_xor)
ATHANOR_NUMBER_FIRST(bitwise_left_shift)
ATHANOR_NUMBER_FIRST(bitwise_right_shift)
ATHANOR_NUMBER_FIRST(remainder)
ATHANOR_NUMBER_FIRST(float_power)
#undef ATHANOR_NUMBER_FIRST

#define ATHANOR_PAD(name, mode, n) \
  Tensor name##n##d(const Tensor& x, IntArrayRef padding) { return padded(#name #n "d", n, x, padding, mode); }
ATHANOR_PAD(reflection_pad, "reflect", 1)
ATHANOR_PAD(reflection_pad, "reflect", 2)
ATHANOR_PAD(reflection_pad, "reflect", 3)
ATHANOR_PAD(replication_pad, "replicate", 1)
ATHANOR_PAD(replication_pad, "replicate", 2)
ATHANOR_PAD(replication_pad, "replicate", 3)
#undef ATHANOR_PAD

}  // namespace athanor
