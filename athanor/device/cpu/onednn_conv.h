#pragma once
/// Convolutions by oneDNN where it is faster than our kernels: a rule by shape, measured (docs/notes/mnist_ceiling.md).
/// Operands that oneDNN wants in blocks of channels are reordered on the way in and out. Results repeat on the same
/// number of threads.

#include "athanor/device/cpu/conv_shape.h"

namespace athanor::onednn {

/// Channels per block of the layout that oneDNN gives activations in such a call with plain ones, 0 where the call is
/// not oneDNN's or it takes them as they are.
int conv_block(const detail::ConvCall& call, ConvPass pass);

/// Whether the rule gives it such a call.
bool takes_conv(const detail::ConvCall& call, ConvPass pass);

/// y from x with the bias; epilogue None. Returns false, having done nothing, where the rule or oneDNN declines.
bool conv_forward(const detail::ConvCall& call);
/// x from y.
bool conv_input(const detail::ConvCall& call);
/// w and, if call.bias is given, the bias's gradient, from x and y.
bool conv_weight(const detail::ConvCall& call);

}  // namespace athanor::onednn
