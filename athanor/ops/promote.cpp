#include "athanor/ops/promote.h"

#include "athanor/ops/copy.h"

namespace athanor::ops {

Tensor cast(const Tensor& t, DType dtype) { return !t.defined() || t.dtype() == dtype ? t : to_dtype(t, dtype); }

namespace {

/// The blocks of the first hidden input if all can follow it.
std::int16_t common_block(const Meta& m, std::initializer_list<const Tensor*> inputs) {
  int block = 0;
  for (const Tensor* t : inputs) {
    if (!t->defined() || t->sizes() != IntArrayRef(m.sizes) || !(t->device() == m.device) || t->dtype() != m.dtype)
      return 0;
    if (!block) block = detail::hidden_block(*t);
  }
  return static_cast<std::int16_t>(block);
}

}  // namespace

Meta pointwise_meta(const char* schema, DType dtype, std::initializer_list<const Tensor*> inputs) {
  Meta m;
  m.dtype = dtype;
  const Tensor& first = **inputs.begin();
  m.device = first.impl()->device;
  m.sizes = DimVector(first.impl()->sizes());
  bool contiguous = first.impl()->contiguous, hidden = first.impl()->storage->is_hidden();
  for (auto it = inputs.begin() + 1; it != inputs.end(); ++it) {
    const TensorImpl* i = (*it)->impl();
    if (!i) continue;
    contiguous = contiguous && i->contiguous;
    hidden = hidden || i->storage->is_hidden();
    if (!i->device.is_host()) m.device = i->device;
    if (i->sizes() == IntArrayRef(m.sizes)) continue;
    m.sizes = broadcast_shapes(m.sizes, i->sizes(), op_name(schema).c_str());
  }
  if (__builtin_expect(hidden && contiguous, 0)) m.block = common_block(m, inputs);
  if (__builtin_expect(contiguous, 1)) return m;
  // The layout of the first input of the full shape that is dense but not row-major wins.
  for (const Tensor* t : inputs)
    if (t->defined() && t->sizes() == IntArrayRef(m.sizes) && t->dim() > 1) {
      if (!t->is_contiguous() && t->is_non_overlapping_and_dense()) m.strides = DimVector(t->strides());
      break;
    }
  return m;
}

}  // namespace athanor::ops
