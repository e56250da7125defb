#pragma once
/// Seam of the matrix products. All operands of a call have one dtype. Allowed: every dtype but bool. float32 and the
/// half types accumulate in float32, float64 in float64, integers modulo 2^bits (as C++ unsigned arithmetic wraps).
/// Any strides are accepted, transposed or broadcast (stride 0) inputs included. The output has distinct elements and
/// shares none with `a` or `b`. Empty sizes are fine; an inner size of 0 counts as a sum of nothing. Results do not
/// depend on the number of threads where the kernel is ours, except for the last bits of sums that share a part of the
/// output with values that are infinite, not numbers or huge (device/cpu/gemm_f32_amx.h); oneDNN's repeat on the same
/// number of threads.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

/// A function of one value applied to a result before it is stored.
enum class Epilogue : std::uint8_t {
  None,
  Relu,      ///< max(x, 0), NaN stays NaN
  Gelu,      ///< x * Phi(x), by erf
  GeluTanh,  ///< gelu's tanh form
  Sigmoid,
  Tanh,
  Silu,  ///< x * sigmoid(x)
};

/// out (m × n) = alpha · a (m × k) @ b (k × n) + beta · bias. `bias` is absent (undefined), or a view with out's shape
/// (stride 0 where it was broadcast) that may be `out` itself. beta == 0 ignores bias, NaN in it included.
extern Kernel<void(const View& out, const View& a, const View& b, const View& bias, Scalar alpha, Scalar beta)>
    gemm_kernel;

/// The same for every matrix of a batch: out (c × m × n), a (c × m × k), b (c × k × n), bias as out or absent.
extern Kernel<void(const View& out, const View& a, const View& b, const View& bias, Scalar alpha, Scalar beta)>
    bmm_kernel;

/// out (rows × out_features) = epilogue(in (rows × in_features) @ weightᵀ + bias). `weight` is (out_features ×
/// in_features), `bias` (out_features) or absent. An epilogue other than None and Relu needs a floating dtype.
extern Kernel<void(const View& out, const View& in, const View& weight, const View& bias, Epilogue epilogue)>
    linear_kernel;

}  // namespace athanor
