#pragma once
/// Factors that are often one.

#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"

namespace athanor::ops {

inline bool is_one(const Scalar& s) { return s.toDouble() == 1.0; }
/// t times s; t itself if s is one.
inline Tensor scaled(const Tensor& t, const Scalar& s) { return is_one(s) ? t : mul(t, s); }

}  // namespace athanor::ops
