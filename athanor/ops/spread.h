#pragma once
/// Gradients that are zero but where something is written or added.

#include "athanor/ops/create.h"
#include "athanor/ops/op.h"

namespace athanor::ops {

/// Sets the gradient of input 0 to zeros of `sizes` as write(zeros, args...), the form of an op that changes its
/// operand, leaves them: the other forms would copy the zeros.
template <class... Params, class... Args>
void spread(GradCall& g, IntArrayRef sizes, void (*write)(const Tensor&, Params...), const Args&... args) {
  const Tensor out = zeros(sizes, g.grad().options());
  write(out, args...);
  g.set(0, out);
}

}  // namespace athanor::ops
