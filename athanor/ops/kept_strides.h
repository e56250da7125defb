#pragma once

#include "athanor/ops/op.h"

namespace athanor::ops {

/// Strides of a copy of t without gaps whose dims lie in memory in t's order, as channels_last does in a slice of
/// channels; empty if that is row-major. Dims repeated with stride 0, or with equal strides, stay in their order.
DimVector kept_strides(const Tensor& t);

/// t in channels_last where `like` is so and not row-major; differentiable.
Tensor in_format_of(const Tensor& like, const Tensor& t);

}  // namespace athanor::ops
