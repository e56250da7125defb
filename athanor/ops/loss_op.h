#pragma once
/// What the losses share.

#include "athanor/ops/op.h"

namespace athanor::ops {

/// The loss as it is (reduction 0), its mean (1) or its sum (2). Throws ValueError, naming `op`, for other reductions.
Tensor reduced(const char* op, const Tensor& loss, std::int64_t reduction);

}  // namespace athanor::ops
