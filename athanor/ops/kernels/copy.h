#pragma once
/// Copying with conversion, and filling. Thread-safe; parallel inside for large outputs.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

/// out = in, any dtype to any dtype, any strides; `in` broadcasts against out's shape. Exactly the same memory is
/// allowed (a no-op), other overlap is the caller's mistake. Conversions: float to integer truncates towards zero; NaN
/// and values out of range give some integer without undefined behaviour (on x86 the low bits of the int64
/// conversion, as PyTorch); integers wrap; anything non-zero, NaN included, is true; doubles beyond float's or half's
/// range become infinite; halves round to nearest even.
extern Kernel<void(const View& out, const View& in)> copy_kernel;

/// Every element of out = value, converted as above.
extern Kernel<void(const View& out, Scalar value)> fill_kernel;

}  // namespace athanor
