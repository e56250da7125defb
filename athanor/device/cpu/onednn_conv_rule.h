#pragma once
/// Which convolutions are oneDNN's: a rule by shape, measured (docs/notes/mnist_ceiling.md, docs/design.md).

#include "athanor/device/cpu/conv_shape.h"

namespace athanor::onednn {

/// How activations are handed over: as they are, or in blocks of channels after a reorder.
enum class Layout : std::int64_t { None, AsGiven, Blocked };

/// The blocks that oneDNN's kernels for this processor like, 0 where it has none.
int block_of_processor();
/// Three spatial axes.
bool has_volumes(const detail::ConvShape& s);
/// None where our kernels are faster or oneDNN has none.
Layout layout_for(const detail::ConvCall& call, ConvPass pass);

}  // namespace athanor::onednn
