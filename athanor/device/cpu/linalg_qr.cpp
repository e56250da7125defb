// QR factorizations by Householder reflections, and triangular systems (Golub & Van Loan, "Matrix Computations", 5.2
// and 3.1), in double for any dtype.
#include <algorithm>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/linalg_dense.h"
#include "athanor/ops/kernels/linalg_decompose.h"

namespace athanor::cpu {
namespace {

using dense::Columns;

void qr_cpu(const View& q, const View& r, const View& a) {
  const std::int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  dense::parallel_batch(a, m * n * k, [&](std::int64_t i) {
    Columns matrix = dense::load(a, i, false);
    const dense::Reflections h = dense::factor_qr(matrix);
    dense::store(r, i, matrix, false);
    if (q.defined()) dense::store(q, i, dense::columns_of(h, q.size(-1)), false);
  });
}

/// b = a⁻¹ b. A column of `a` is a row of the system, one of b a row of right sides. Blocks of rows: what others
/// contribute to one, then within it.
void solve_triangle(Columns& a, Columns& b, bool upper, bool unit) {
  const std::int64_t n = a.count, m = b.rows, blocks = (n + dense::kBlock - 1) / dense::kBlock;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = (upper ? blocks - 1 - block : block) * dense::kBlock,
                       end = std::min(begin + dense::kBlock, n);
    const std::int64_t known = upper ? end : 0, count = upper ? n - end : begin;
    if (count > 0)
      dense::product({b[begin], m, 1}, {a[begin] + known, n, 1}, {b[known], m, 1}, end - begin, m, count, -1, 1);
    const std::int64_t cost = (end - begin) * (end - begin);
    parallel_for(0, m, 1 + dense::kGrain / cost, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t step = 0; step < end - begin; ++step) {
        const std::int64_t i = upper ? end - 1 - step : begin + step;
        double* const x = b[i];
        for (std::int64_t k = upper ? i + 1 : begin; k < (upper ? end : i); ++k)
          dense::add_scaled(x + first, b[k] + first, -a[i][k], last - first);
        if (unit) continue;
        for (std::int64_t j = first; j < last; ++j) x[j] /= a[i][i];
      }
    });
  }
}

void solve_triangular_cpu(const View& out, const View& a, const View& b, bool upper, bool unit) {
  const std::int64_t n = a.size(-1), m = b.size(-1);
  dense::parallel_batch(out, n * n * m, [&](std::int64_t i) {
    Columns matrix = dense::load(a, i, true), x = dense::load(b, i, true);
    solve_triangle(matrix, x, upper, unit);
    dense::store(out, i, x, true);
  });
}

ATHANOR_REGISTER_KERNEL(qr_kernel, CPU, &qr_cpu);
ATHANOR_REGISTER_KERNEL(solve_triangular_kernel, CPU, &solve_triangular_cpu);

}  // namespace
}  // namespace athanor::cpu
