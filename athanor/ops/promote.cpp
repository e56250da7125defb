#include "athanor/ops/promote.h"
#include "athanor/ops/kept_strides.h"

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

DimVector kept_strides(const Tensor& t) {
  const IntArrayRef sizes = t.sizes(), strides = t.strides();
  if (t.is_non_overlapping_and_dense()) return DimVector(strides);
  SmallVector<std::size_t, 8> order;  // from the dim that runs fastest
  for (std::size_t d = sizes.size(); d-- > 0;) order.push_back(d);
  const auto before = [&](std::size_t a, std::size_t b) {  // 1: b belongs before a, -1: not, 0: either
    if (strides[a] == 0 || strides[b] == 0) return 0;
    if (strides[a] != strides[b]) return strides[a] < strides[b] ? -1 : 1;
    return sizes[a] > sizes[b] ? 1 : 0;
  };
  for (std::size_t i = 1; i < order.size(); ++i)
    for (std::size_t at = i, other = i; other-- > 0;) {
      const int compared = before(order[other], order[at]);
      if (compared < 0) break;
      if (compared == 0) continue;
      std::swap(order[other], order[at]);
      at = other;
    }
  DimVector kept(sizes.size());
  std::int64_t step = 1;
  bool row_major = true;
  for (std::size_t i = 0; i < order.size(); ++i) {
    kept[order[i]] = step;
    row_major = row_major && order[i] + i + 1 == order.size();
    step *= std::max<std::int64_t>(sizes[order[i]], 1);
  }
  return row_major ? DimVector() : kept;
}

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
  // The layout of the first input of the full shape wins.
  for (const Tensor* t : inputs)
    if (t->defined() && t->sizes() == IntArrayRef(m.sizes) && t->dim() > 1) {
      if (!t->is_contiguous()) m.strides = kept_strides(*t);
      break;
    }
  return m;
}

}  // namespace athanor::ops
