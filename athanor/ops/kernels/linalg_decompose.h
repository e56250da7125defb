#pragma once
/// Seam of the decompositions: batches of matrices in the last two dims, Float or Double. Operands of a call share
/// dtype and batch dims; all may have any strides. Computed in double. Thread-safe; parallel over the batch or within a
/// large matrix; results do not depend on the number of threads.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

/// a (m, n) = q r by Householder reflections. q is (m, min(m, n)) or (m, m), and r has as many rows as q columns;
/// without q, r is (min(m, n), n). Its diagonal has the sign opposite to that of what it replaced, as LAPACK's has.
extern Kernel<void(const View& q, const View& r, const View& a)> qr_kernel;
/// Eigenvalues, the least first, and eigenvectors (if defined) as columns, of symmetric a (n, n). Only its lower
/// triangle is read, or its upper one. Where that is not finite, all is NaN. Throws LinAlgError if the iteration does
/// not end.
extern Kernel<void(const View& values, const View& vectors, const View& a, bool upper)> eigh_kernel;
/// out (n, m) = a⁻¹ b for a triangular a (n, n), of which only the triangle is read; with `unit` its diagonal counts as
/// ones. A zero on the diagonal gives infinities and NaN.
extern Kernel<void(const View& out, const View& a, const View& b, bool upper, bool unit)> solve_triangular_kernel;

}  // namespace athanor
