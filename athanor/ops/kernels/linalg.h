#pragma once
/// Seam of the small dense linear algebra: batches of matrices in the last two dims, Float or Double. Operands of a
/// call share dtype and batch dims; outputs may have any strides. Thread-safe; parallel over the batch or, for one
/// large matrix, over its rows; results do not depend on the number of threads. `op` names the caller in errors.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

/// out (n, m) = a⁻¹ b for a (n, n), by LU with partial pivoting, whose factors are left in lu (n, n), and in pivots
/// (n), of int64, the row exchanged with each. Throws LinAlgError naming the first zero pivot; `inverts` says that the
/// caller wants an inverse. out, lu and pivots are contiguous.
extern Kernel<void(const View& out, const View& lu, const View& pivots, const View& a, const View& b, bool inverts)>
    solve_kernel;
/// out (n, m) = a⁻¹ b, or that of a's transpose, with what solve_kernel or slogdet_kernel left of a. All but b are
/// contiguous.
extern Kernel<void(const View& out, const View& lu, const View& pivots, const View& b, bool transposed)>
    solve_again_kernel;
/// sign and log of the absolute value of the determinants of a (n, n), by LU as in solve_kernel; 0 and -inf where
/// singular. Without `logabs`, `sign` is the determinants. All but a are contiguous.
extern Kernel<void(const View& sign, const View& logabs, const View& lu, const View& pivots, const View& a)>
    slogdet_kernel;
/// out (n, n) = the lower factor L with L Lᵀ = a, zeros above. Only a's lower triangle is read. Throws Error for a
/// matrix that is not positive-definite.
extern Kernel<void(const View& out, const View& a, const char* op)> cholesky_kernel;
/// a (m, n) = u diag(s) vh with k = min(m, n) singular values, the greatest first; u (m, k) and vh (k, n) have
/// orthonormal columns and rows; without u and vh, s alone. Throws LinAlgError for what is not finite, and if the
/// iteration does not end.
extern Kernel<void(const View& u, const View& s, const View& vh, const View& a)> svd_kernel;

}  // namespace athanor
