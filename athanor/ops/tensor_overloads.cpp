// Forms of ops that libtorch has beside those of their schemas, written with the ops.
#include "athanor/ops/all_ops.h"
#include "athanor/ops/op.h"
#include "athanor/ops/tensor.h"

namespace athanor {
namespace {

/// A number that does not decide the dtype of a result.
Tensor operand(const Scalar& s) {
  const Tensor t = scalar_tensor(s, s.isFloatingPoint() ? TensorOptions(kDouble) : TensorOptions(s.type()));
  t.impl()->wrapped_number = true;
  return t;
}

Tensor combined(const Tensor& self, std::int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce) {
  ATHANOR_CHECK_VALUE(reduce == "add" || reduce == "multiply",
                      "scatter: reduce argument must be either add or multiply, got '", std::string(reduce), "'");
  return self.scatter_reduce(dim, index, src, reduce == "add" ? "sum" : "prod");
}

Tensor combined(const Tensor& self, std::int64_t dim, const Tensor& index, const Scalar& value,
                std::string_view reduce) {
  return combined(self, dim, index, full(index.sizes(), value, TensorOptions(self.dtype()).device(self.device())),
                  reduce);
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
  return combined(*this, dim, index, src, reduce);
}
Tensor Tensor::scatter(std::int64_t dim, const Tensor& index, const Scalar& value, std::string_view reduce) const {
  return combined(*this, dim, index, value, reduce);
}
Tensor& Tensor::scatter_(std::int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce) const {
  return copy_(combined(*this, dim, index, src, reduce));
}
Tensor& Tensor::scatter_(std::int64_t dim, const Tensor& index, const Scalar& value, std::string_view reduce) const {
  return copy_(combined(*this, dim, index, value, reduce));
}

Tensor Tensor::index_fill(std::int64_t along, const Tensor& index, const Tensor& value) const {
  ATHANOR_CHECK(value.dim() == 0, "index_fill only supports a 0-dimensional value tensor, but got one of shape ",
                value.sizes());
  const std::int64_t last = std::max<std::int64_t>(this->dim(), 1) - 1;
  ATHANOR_CHECK_INDEX(along >= -last - 1 && along <= last, "index_fill: dim ", along, " is out of range for ", sizes());
  const std::int64_t d = along < 0 ? along + last + 1 : along;
  DimVector shape(static_cast<std::size_t>(this->dim()), 1);
  if (this->dim() > 0) shape[static_cast<std::size_t>(d)] = size(d);
  Tensor named = zeros({this->dim() > 0 ? size(d) : 1}, TensorOptions(kBool).device(device()));
  named.index_fill_(0, index, true);
  return masked_fill(named.view(shape), value);
}
Tensor& Tensor::index_fill_(std::int64_t along, const Tensor& index, const Tensor& value) const {
  return copy_(index_fill(along, index, value));
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
