#pragma once
/// Combination of equal blocks of values from several places, as a collective's reduction needs it. One thread.

#include <cstddef>
#include <cstdint>

#include "athanor/tensor/dtype.h"

namespace athanor::cpu {

enum class Combine : std::uint8_t { Sum, Product, Min, Max, And, Or, Xor };

/// out[i] = in[0][i] op in[1][i] op … op in[n - 1][i], from left to right, for `count` elements; n >= 1. Halves are
/// combined in float32 and rounded once. A NaN wins Min and Max; of bool, Sum and Max are or, Product and Min and.
/// And, Or and Xor are bitwise. `divisor` other than 1 divides the result (floating-point dtypes). out may be in[k].
/// `stream`: with stores that bypass the caches, for results that will not be read soon.
void combine(void* out, const void* const* in, int n, std::int64_t count, DType dtype, Combine op, double divisor = 1,
             bool stream = false);
/// x[i] *= factor, rounded to the dtype; floating-point dtypes.
void scale(void* out, const void* in, std::int64_t count, DType dtype, double factor);
/// memcpy, with stores that bypass the caches if `stream`.
void copy_bytes(void* to, const void* from, std::size_t bytes, bool stream = false);

}  // namespace athanor::cpu
