// Methods of class Tensor about its memory, and others that change or ask about a whole tensor and are not ops.
#include <algorithm>

#include "athanor/ops/all_ops.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/tensor.h"

namespace athanor {
namespace {

/// The elements of a diagonal of `x` that begins in row `top`, as a view.
TensorBase diagonal_of(const TensorBase& x, std::int64_t top, std::int64_t length) {
  std::int64_t step = 0;
  for (const std::int64_t stride : x.strides()) step += stride;
  return ops::as_strided(x, {length}, {step}, x.storage_offset() + top * x.stride(0));
}

void check_float_power(const TensorBase& base) {
  ATHANOR_CHECK(base.dtype() == kDouble, "the base given to float_power_ has dtype ", dtype_libtorch_name(base.dtype()),
                " but the operation's result requires dtype Double; convert it, or use x = x.float_power(exponent)");
}

/// How many elements the storage holds from the tensor's first on.
std::int64_t room(const TensorBase& t) {
  return static_cast<std::int64_t>(t.storage()->nbytes() / t.itemsize()) - t.storage_offset();
}

}  // namespace

void* StorageHandle::mutable_data() const {
  get()->expose_to_host();
  get()->note_address();
  return get()->data();
}

Tensor& Tensor::resize_(IntArrayRef sizes, std::optional<MemoryFormat> format) const {
  auto& self = const_cast<Tensor&>(*this);
  ATHANOR_CHECK(!requires_grad(), "cannot resize variables that require grad");
  for (const std::int64_t n : sizes) ATHANOR_CHECK(n >= 0, "resize_: sizes should not be negative, got ", sizes);
  if (this->sizes() == sizes) return self;
  const MemoryFormat wanted = format.value_or(MemoryFormat::Contiguous);
  const DimVector strides =
      detail::strides_for(sizes, wanted == MemoryFormat::Preserve ? MemoryFormat::Contiguous : wanted);
  const Tensor old = detach();
  if (checked_numel(sizes, "resize_") <= room(old)) {
    set_data(detail::alias(old, sizes, strides, old.storage_offset()));
    return self;
  }
  const NoGradGuard off;
  const TensorBase larger = detail::empty_tensor(sizes, dtype(), device(), strides);
  const std::int64_t kept = room(old);
  if (kept > 0)
    ops::copy_(detail::alias(larger, {kept}, {1}, 0), detail::alias(old, {kept}, {1}, old.storage_offset()));
  set_data(larger);
  return self;
}

Tensor& Tensor::set_(const Tensor& source) const {
  ATHANOR_CHECK(source.dtype() == dtype(), "Could not set tensor of type ", dtype_libtorch_name(source.dtype()),
                " to a tensor of type ", dtype_libtorch_name(dtype()));
  set_data(source.detach());
  return const_cast<Tensor&>(*this);
}

Tensor& Tensor::set_() const { return set_(Tensor(detail::empty_tensor({0}, dtype(), device()))); }

Tensor& Tensor::set_(const Tensor& source, std::int64_t storage_offset, IntArrayRef size, IntArrayRef stride) const {
  const DimVector strides = stride.empty() ? detail::strides_for(size, MemoryFormat::Contiguous) : DimVector(stride);
  return set_(Tensor(ops::as_strided(source.detach(), size, strides, storage_offset)));
}

Tensor& Tensor::set_(const StorageHandle& source, std::int64_t storage_offset, IntArrayRef size,
                     IntArrayRef stride) const {
  Tensor whole(detail::empty_tensor({0}, dtype(), source.device()));
  whole.impl()->storage = source;
  return set_(whole, storage_offset, size, stride);
}

bool Tensor::is_set_to(const Tensor& other) const {
  return is_alias_of(other) && storage_offset() == other.storage_offset() && sizes() == other.sizes() &&
         strides() == other.strides();
}

MemoryFormat Tensor::suggest_memory_format() const {
  if (!is_contiguous()) {
    if (dim() == 4 && is_contiguous(MemoryFormat::ChannelsLast)) return MemoryFormat::ChannelsLast;
    if (dim() == 5 && is_contiguous(MemoryFormat::ChannelsLast3d)) return MemoryFormat::ChannelsLast3d;
  }
  return MemoryFormat::Contiguous;
}

bool Tensor::is_nonzero() const {
  ATHANOR_CHECK(numel() != 0, "Boolean value of Tensor with no values is ambiguous");
  ATHANOR_CHECK(numel() == 1, "Boolean value of Tensor with more than one value is ambiguous");
  return !item().equal(0);
}

Tensor& Tensor::fill_diagonal_(const Scalar& value, bool wrap) const {
  auto& self = const_cast<Tensor&>(*this);
  ATHANOR_CHECK(dim() >= 2, "fill_diagonal_: dimensions must larger than 1, got a tensor of sizes ", sizes());
  const std::int64_t shortest = *std::min_element(sizes().begin(), sizes().end());
  for (const std::int64_t n : sizes())
    ATHANOR_CHECK(dim() == 2 || n == shortest, "fill_diagonal_: all dimensions of input must be of equal length, got ",
                  sizes());
  if (numel() == 0) return self;
  ops::fill_(diagonal_of(*this, 0, shortest), value);
  if (wrap && dim() == 2)
    for (std::int64_t top = size(1) + 1; top < size(0); top += size(1) + 1)
      ops::fill_(diagonal_of(*this, top, std::min(size(0) - top, size(1))), value);
  return self;
}

Tensor& Tensor::float_power_(const Tensor& exponent) const {
  check_float_power(*this);
  return pow_(exponent.to(kDouble));
}
Tensor& Tensor::float_power_(const Scalar& exponent) const {
  check_float_power(*this);
  return pow_(exponent);
}

DType result_type(const Tensor& a, const Tensor& b) { return ops::Promotion().add(a).add(b).type(); }
DType result_type(const Tensor& a, const Scalar& b) { return ops::Promotion().add(a).add(b).type(); }

}  // namespace athanor
