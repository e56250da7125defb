#pragma once
/// base op= flat at the points of an index space, in the arithmetic of one dtype.

#include "athanor/device/cpu/index_space.h"

namespace athanor::cpu {

enum class Combine : std::int8_t { Add, Multiply, Amax, Amin };

/// What Combine::Add multiplies flat with.
struct CombineScale {
  double real = 1;
  std::int64_t whole = 1;
  CombineScale() = default;
  explicit CombineScale(Scalar s) : real(s.toDouble()), whole(s.toLong()) {}
};

/// `scale` must outlive the action; Add needs it, the others ignore it.
IndexAction combine_action(Combine op, DType t, const CombineScale* scale);

/// The value that leaves others unchanged under `op`.
Scalar combine_identity(Combine op, DType t);

}  // namespace athanor::cpu
