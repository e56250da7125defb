#pragma once
/// Seam of the random numbers.
///
/// Source. Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Block b
/// of a call is philox(counter = {lo(offset + b), hi(offset + b), attempt, 0}, key = {lo(seed), hi(seed)}): four 32-bit
/// words. Elements are numbered in row-major order, whatever the strides. A 32-bit draw of element i is word i % 4 of
/// block i / 4; a 64-bit draw is words 2 (i % 2) (low) and 2 (i % 2) + 1 (high) of block i / 2. attempt is 0 but for
/// redraws, described below. So results depend on seed and offset only: not on threads, strides or instruction set.
/// Integers, uniforms and Bernoulli draws are equal in every bit on every device; normals and the other transforms
/// within a few ulp.
///
/// Offsets. A call over n elements uses random_blocks(n, bits) consecutive offsets from state.offset on; the caller
/// reserves them. The bits of a draw are given with each kernel.

#include "athanor/ops/kernels/kernel.h"
#include "athanor/tensor/generator.h"

namespace athanor {

/// Offsets used by n draws of 32 or 64 bits: ceil(n / 4) or ceil(n / 2).
constexpr std::uint64_t random_blocks(std::int64_t n, int bits) {
  return (static_cast<std::uint64_t>(n) + (bits == 64 ? 1 : 3)) / (bits == 64 ? 2 : 4);
}
/// Bits of a draw of the floating distributions: 64 for float64, else 32.
constexpr int random_bits(DType t) { return t == DType::Double ? 64 : 32; }
/// Bits of a draw among `range` integers: 32 up to 2^24, else 64 (0 stands for 2^64).
constexpr int random_integer_bits(std::uint64_t range) { return range != 0 && range <= (1U << 24) ? 32 : 64; }

/// Distributions of floating elements (`out` floating, any strides; draws of random_bits(out.dtype) bits). With u the
/// top m bits of a draw times 2^-m, in [0, 1), m = 24, 53, 11, 8 for float32, float64, half, bfloat16: Uniform(a =
/// from, b = to): from + u (to - from), computed in float32 (float64), rounded once. Normal(a = mean, b = std):
/// Box-Muller on the draws of elements 2k (radius) and 2k + 1 (angle). LogNormal(a, b): exp of it. Exponential(a =
/// rate): -log(v) / rate, v = (draw + 1/2) 2^-32 (or 2^-64). Cauchy(a = median, b = scale): a + b tan(pi (v - 1/2)).
/// Geometric(a = p): ceil(log v / log(1 - p)), at least 1.
enum class RandomOp : std::int8_t { Uniform, Normal, LogNormal, Exponential, Cauchy, Geometric };
/// Geometric takes integer dtypes also (32-bit draws).
extern Kernel<void(RandomOp op, const View& out, double a, double b, PhiloxState state)> random_kernel;

/// Integers from [low, low + range), range 0 meaning 2^64, converted to out's dtype (any). Draws of
/// random_integer_bits(range) bits: the high half of draw * range; a draw whose low half is below 2^bits mod range is
/// redrawn with attempt 1, 2, …, so that all values are equally likely.
extern Kernel<void(const View& out, std::int64_t low, std::uint64_t range, PhiloxState state)> random_integer_kernel;

/// out (any dtype) = 1 where draw < p 2^32, else 0; 32-bit draws.
extern Kernel<void(const View& out, double p, PhiloxState state)> bernoulli_kernel;
/// The same with a probability per element: p has out's shape and a floating dtype. Throws ValueError outside [0, 1].
extern Kernel<void(const View& out, const View& p, PhiloxState state)> bernoulli_tensor_kernel;

/// out = in / (1 - p) where draw >= p 2^32, else 0; 32-bit draws. mask (bool, out's shape; may be undefined) receives
/// the places kept. The gradient is the same call on the gradient with the same state. One floating dtype; out may be
/// in.
extern Kernel<void(const View& out, const View& mask, const View& in, double p, PhiloxState state)> dropout_kernel;

/// A permutation of 0 … n - 1 in out (1-d, n elements, any dtype that holds n - 1), all equally likely; the same for
/// the same state and n, whatever the number of threads. Uses at most (n + 1) / 2 blocks of draws.
extern Kernel<void(const View& out, PhiloxState state)> randperm_kernel;

/// Indices drawn by weight: weights (rows, n) floating, not negative, with a positive sum per row; out (rows, k) int64.
/// With `replacement`, k independent draws per row by inversion of the running sum (64-bit draws, one for each element
/// of out). Without, the k smallest of exponential(weight) (64-bit draws, one for each element of weights; zero weights
/// never). Throws ValueError for negative, infinite or NaN weights, a zero sum, or fewer than k positive weights.
extern Kernel<void(const View& out, const View& weights, bool replacement, PhiloxState state)> multinomial_kernel;

}  // namespace athanor
