#pragma once
/// What rnn.cpp and rnn_gradient.cpp share.

#include "athanor/ops/kernels/rnn.h"
#include "athanor/ops/op.h"

namespace athanor::ops {

/// Inputs of _rnn_sequence, as kernels/rnn.h describes them.
struct RnnInputs {
  Tensor input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr;
};

/// Gradients of the inputs, each undefined or of its input's shape; `up` are those of output, hy and cy (each may be
/// undefined). Composed of ops that can be differentiated again.
RnnInputs composed_rnn_gradient(const RnnInputs& in, const std::array<Tensor, 3>& up, IntArrayRef batch_sizes,
                                RnnMode mode, bool reverse);

}  // namespace athanor::ops
