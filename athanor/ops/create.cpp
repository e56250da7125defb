// Creation: tensors made from sizes and values.
#include "athanor/ops/create.h"

#include <cmath>

#include "athanor/ops/copy.h"
#include "athanor/ops/op.h"

namespace athanor::ops {

namespace {

Tensor make(IntArrayRef size, const TensorOptions& options) {
  const MemoryFormat format = options.memory_format_opt().value_or(MemoryFormat::Contiguous);
  DimVector strides;
  if (format != MemoryFormat::Contiguous && format != MemoryFormat::Preserve)
    strides = detail::strides_for(size, format);
  return detail::empty_tensor(size, options.dtype(), resolve(options.device()), strides);
}

Tensor finish(Tensor t, const TensorOptions& options) {
  mark_inference(t);
  if (options.requires_grad()) set_requires_grad(t, true);
  return t;
}

TensorOptions like(const Tensor& self, const TensorOptions& options) {
  TensorOptions o = options;
  if (!o.has_dtype()) o = o.dtype(self.dtype());
  if (!o.has_device()) o = o.device(self.device());
  return o;
}

}  // namespace

/// Uninitialized values.
ATHANOR_FUNCTION("empty(int[] size, TensorOptions options={}) -> Tensor");
Tensor empty(IntArrayRef size, const TensorOptions& options) { return finish(make(size, options), options); }

/// Uninitialized values in the layout given by strides.
ATHANOR_FUNCTION("empty_strided(int[] size, int[] stride, TensorOptions options={}) -> Tensor");
Tensor empty_strided(IntArrayRef size, IntArrayRef stride, const TensorOptions& options) {
  ATHANOR_CHECK(size.size() == stride.size(), "empty_strided: got ", size.size(), " sizes and ", stride.size(),
                " strides");
  return finish(detail::empty_tensor(size, options.dtype(), resolve(options.device()), stride), options);
}

ATHANOR_FUNCTION("full(int[] size, Scalar fill_value, TensorOptions options={}) -> Tensor");
Tensor full(IntArrayRef size, const Scalar& fill_value, const TensorOptions& options) {
  TensorOptions o = options;
  if (!o.has_dtype() && !fill_value.isFloatingPoint()) o = o.dtype(fill_value.type());
  Tensor t = make(size, o);
  fill_(t, fill_value);
  return finish(std::move(t), options);
}

ATHANOR_FUNCTION("zeros(int[] size, TensorOptions options={}) -> Tensor");
Tensor zeros(IntArrayRef size, const TensorOptions& options) {
  Tensor t = make(size, options);
  fill_(t, 0);
  return finish(std::move(t), options);
}

ATHANOR_FUNCTION("ones(int[] size, TensorOptions options={}) -> Tensor");
Tensor ones(IntArrayRef size, const TensorOptions& options) {
  Tensor t = make(size, options);
  fill_(t, 1);
  return finish(std::move(t), options);
}

/// A tensor of self's shape; dense strides are kept unless a memory format is asked for.
ATHANOR_FUNCTION("empty_like(Tensor self, TensorOptions options={}) -> Tensor | function");
Tensor empty_like(const Tensor& self, const TensorOptions& options) {
  const TensorOptions o = like(self, options);
  const bool preserve = o.memory_format_opt().value_or(MemoryFormat::Preserve) == MemoryFormat::Preserve;
  if (preserve && !self.is_contiguous() && self.is_non_overlapping_and_dense())
    return finish(detail::empty_tensor(self.sizes(), o.dtype(), resolve(o.device()), self.strides()), options);
  return finish(make(self.sizes(), o), options);
}

ATHANOR_FUNCTION("full_like(Tensor self, Scalar fill_value, TensorOptions options={}) -> Tensor | function");
Tensor full_like(const Tensor& self, const Scalar& fill_value, const TensorOptions& options) {
  Tensor t = empty_like(self, options.requires_grad(false));
  fill_(t, fill_value);
  return finish(std::move(t), options);
}

ATHANOR_FUNCTION("zeros_like(Tensor self, TensorOptions options={}) -> Tensor | function");
Tensor zeros_like(const Tensor& self, const TensorOptions& options) { return full_like(self, 0, options); }

ATHANOR_FUNCTION("ones_like(Tensor self, TensorOptions options={}) -> Tensor | function");
Tensor ones_like(const Tensor& self, const TensorOptions& options) { return full_like(self, 1, options); }

ATHANOR_FUNCTION("new_empty(Tensor self, int[] size, TensorOptions options={}) -> Tensor | method");
Tensor new_empty(const Tensor& self, IntArrayRef size, const TensorOptions& options) {
  return empty(size, like(self, options));
}

ATHANOR_FUNCTION("new_zeros(Tensor self, int[] size, TensorOptions options={}) -> Tensor | method");
Tensor new_zeros(const Tensor& self, IntArrayRef size, const TensorOptions& options) {
  return zeros(size, like(self, options));
}

ATHANOR_FUNCTION("new_ones(Tensor self, int[] size, TensorOptions options={}) -> Tensor | method");
Tensor new_ones(const Tensor& self, IntArrayRef size, const TensorOptions& options) {
  return ones(size, like(self, options));
}

ATHANOR_FUNCTION("new_full(Tensor self, int[] size, Scalar fill_value, TensorOptions options={}) -> Tensor | method");
Tensor new_full(const Tensor& self, IntArrayRef size, const Scalar& fill_value, const TensorOptions& options) {
  return full(size, fill_value, like(self, options));
}

/// A 0-d tensor of the scalar's dtype (float values: the default dtype, or the one in options).
ATHANOR_FUNCTION("scalar_tensor(Scalar s, TensorOptions options={}) -> Tensor");
Tensor scalar_tensor(const Scalar& s, const TensorOptions& options) { return full({}, s, options); }

}  // namespace athanor::ops

#include "athanor/ops/create.glue.inc"
