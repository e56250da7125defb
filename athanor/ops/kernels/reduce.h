#pragma once
#include "athanor/ops/kernels/kernel.h"
namespace athanor {
enum class ReduceOp : std::int8_t { Sum };
extern Kernel<void(ReduceOp op, const View& out, const View& in, std::uint64_t dim_mask, double param)> reduce_kernel;
}  // namespace athanor
