#pragma once
/// Reduction: a ReduceOp made ready for the values of one call.

#include "athanor/device/cpu/combine.h"
#include "athanor/distributed/reduce_op.h"

namespace athanor::distributed {

class Reduction {
 public:
  /// `ranks`: how many AVG divides by. PREMUL_SUM is a sum here: the values have been multiplied before.
  Reduction(const ReduceOp& op, DType dtype, int ranks);

  DType dtype() const { return dtype_; }
  /// Each call then costs an allocation and a call of the program's function per rank and block.
  bool user_defined() const { return user_ != nullptr; }
  /// A reduction in two stages: within parts of at most `most` values each, then of what the parts gave. AVG divides
  /// in the second one; float16's first stage has a share in that, since the sum of a part may be beyond what it holds
  /// though the mean is not. The share is a power of two, by which quotients are as exact as the sums unless they are
  /// subnormal: of those each part is off by up to half the least number above zero, 2^-25.
  struct Stages;
  Stages stages(int most) const;
  /// Whether one value alone gives something else.
  bool divides() const { return divisor_ != 1; }
  /// out = in[0] op in[1] op … of `count` elements, from left to right. out may be in[k]. See cpu::combine.
  void operator()(void* out, const void* const* in, int n, std::int64_t count, bool stream = false) const;

 private:
  void apply_user(void* out, const void* const* in, int n, std::int64_t count) const;

  DType dtype_;
  cpu::Combine combine_ = cpu::Combine::Sum;
  double divisor_ = 1;
  const ReduceOp::Function* user_ = nullptr;  // the call's ReduceOp outlives this
};

struct Reduction::Stages {
  Reduction first, second;
};

}  // namespace athanor::distributed
