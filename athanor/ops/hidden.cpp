#include "athanor/ops/hidden.h"

#include <atomic>

#include "athanor/base/env.h"
#include "athanor/ops/kernels/hidden.h"
#include "athanor/ops/kernels/kernels_of.h"
#include "athanor/ops/launch.h"

namespace athanor {
namespace {

std::atomic<bool>& enabled() {
  static std::atomic<bool> on{env::flag("ATHANOR_HIDDEN_LAYOUTS", true)};
  return on;
}

bool matches(const TensorBase& t, const ChannelBlocks& b, bool product) {
  return (b.block == kOuterProduct) == product && t.is_contiguous() && t.storage_offset() == 0 && t.dim() >= 2 &&
         t.nbytes() == b.nbytes() && t.itemsize() == b.item_size && t.size(0) == b.samples && t.size(1) == b.channels;
}

}  // namespace

bool hidden_layouts_enabled() { return enabled().load(std::memory_order_relaxed); }
void set_hidden_layouts_enabled(bool on) { enabled().store(on, std::memory_order_relaxed); }

namespace detail {

int find_block(const TensorBase& t) {
  const auto layout = t.storage()->hidden();
  return layout && matches(t, layout->blocks(), false) ? layout->blocks().block : 0;
}

bool can_block(const TensorBase& t, int block) {
  return t.dim() >= 2 && t.numel() > 0 && block > 1 && block <= 64 && (block & (block - 1)) == 0 &&
         t.size(1) % block == 0;
}

Stored::Stored(const TensorBase& t, HiddenForm accepted) : tensor_(t) {
  if (!t.defined() || !t.storage()->is_hidden()) return;
  layout_ = t.storage()->hidden();
  if (layout_ && !matches(t, layout_->blocks(), accepted == HiddenForm::OuterProduct)) layout_.reset();
}

Stored::Stored(const TensorBase& t, int block) : Stored(t) {
  if (layout_ && layout_->blocks().block == block) return;
  tensor_ = to_blocks(t, block);
  layout_ = tensor_.storage()->hidden();
}

View Stored::view() const {
  if (!layout_) return view_of(tensor_);
  const TensorImpl* i = tensor_.impl();
  View v;
  v.data = layout_->data();
  v.sizes = i->dims;
  v.strides = i->dims + i->ndim;
  v.numel = i->numel;
  v.dtype = i->dtype;
  v.ndim = i->ndim;
  v.block = static_cast<std::int16_t>(layout_->blocks().block);
  return v;
}

TensorBase to_blocks(const TensorBase& t, int block) {
  ATHANOR_CHECK(can_block(t, block), "hidden layout: ", t, " cannot be cut into blocks of ", block, " channels");
  TensorBase out =
      empty_hidden_tensor(t.sizes(), t.dtype(), t.device(), block, restore_layout_kernel.get(kernels_of(t.device())));
  launch(relayout_kernel, Stored(out), Stored(t));
  return out;
}

TensorBase hidden_outer(const TensorBase& column, const TensorBase& row) {
  TensorBase out = empty_hidden_tensor({column.size(1), row.size(1)}, DType::Float, row.device(), kOuterProduct,
                                       restore_layout_kernel.get(kernels_of(row.device())));
  launch(outer_layout_kernel, Stored(out, HiddenForm::OuterProduct), column, row);
  return out;
}

}  // namespace detail
}  // namespace athanor
