#pragma once
/// Seam of the hidden layouts: which a device likes, and the way into and out of them.

#include "athanor/ops/kernels/kernel.h"
#include "athanor/tensor/hidden_layout.h"

namespace athanor {

/// out = in, element by element, one shape and dtype; each may be in blocks of channels (View::block), in may have any
/// strides, out is row-major if it is plain. Thread-safe; parallel inside.
extern Kernel<void(const View& out, const View& in)> relayout_kernel;

/// Stores the factors of `out`, a hidden outer product: the values of `column`, then those of `row`, float32 matrices
/// of one row with any strides.
extern Kernel<void(const View& out, const View& column, const View& row)> outer_layout_kernel;

/// HiddenLayout::Restore of the device. Not launched: the storage calls it, in the queue's order.
extern Kernel<void(void* plain, const void* stored, const ChannelBlocks& blocks)> restore_layout_kernel;

}  // namespace athanor
