// Eigenvalues and vectors of symmetric matrices: Householder tridiagonalization in blocks (Dongarra, Hammarling &
// Sorensen, "Block reduction of matrices to condensed forms for eigenvalue computations", 1989), then implicit QR steps
// with Wilkinson's shift (Golub & Van Loan, "Matrix Computations", 8.3). In double for any dtype. The time goes to
// products, sums and rotations of columns; what calls them is "cold", which makes it small.
#include <algorithm>
#include <cmath>

#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/device/cpu/linalg_dense.h"
#include "athanor/ops/kernels/linalg_decompose.h"

namespace athanor::cpu {
namespace {

using dense::Columns;

constexpr std::int64_t kEighSteps = 30;  // an eigenvalue; about two are needed

struct Tridiagonal {
  std::vector<double> d, e;  // e[k] is beside d[k]
  dense::Reflections q;
  explicit Tridiagonal(std::int64_t n)
      : d(static_cast<std::size_t>(n)), e(static_cast<std::size_t>(n)), q(std::max<std::int64_t>(n - 1, 0), n, 1) {}
};

/// a = Q T Qᵀ for a symmetric a, both of whose triangles are there.
[[gnu::cold]] Tridiagonal tridiagonalize(Columns& a) {
  const std::int64_t n = a.count;
  Tridiagonal t(n);
  for (std::int64_t begin = 0; begin < n; begin += dense::kBlock) {
    const std::int64_t end = std::min(begin + dense::kBlock, n);
    Columns w(dense::kBlock, n);
    for (std::int64_t j = begin; j < end; ++j) {
      double* const column = a[j];
      for (std::int64_t k = begin; k < j; ++k) {
        const double *const v = t.q.v[k], *const wk = w[k - begin];
        dense::add_scaled(column + j, v + j, -wk[j], n - j);
        dense::add_scaled(column + j, wk + j, -v[j], n - j);
      }
      t.d[static_cast<std::size_t>(j)] = column[j];
      if (j == n - 1) break;
      const std::int64_t top = j + 1, rows = n - top;
      double* const v = t.q.v[j] + top;
      double& tau = t.q.tau[static_cast<std::size_t>(j)];
      std::copy_n(column + top, rows, v);
      t.e[static_cast<std::size_t>(j)] = dense::reflect(v, rows, tau);
      double* const p = w[j - begin] + top;
      parallel_for(0, rows, 1 + dense::kGrain / rows, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) p[i] = dense::dot(a[top + i] + top, v, rows);
      });
      for (std::int64_t k = begin; k < j; ++k) {
        const double *const other = t.q.v[k] + top, *const wk = w[k - begin] + top;
        const double by_w = dense::dot(wk, v, rows), by_v = dense::dot(other, v, rows);
        dense::add_scaled(p, other, -by_w, rows);
        dense::add_scaled(p, wk, -by_v, rows);
      }
      for (std::int64_t i = 0; i < rows; ++i) p[i] *= tau;
      dense::add_scaled(p, v, -0.5 * tau * dense::dot(p, v, rows), rows);
    }
    const std::int64_t rest = n - end, width = end - begin;
    if (rest == 0) break;
    double *const corner = a[end] + end, *const v = t.q.v[begin] + end, *const left = w[0] + end;
    dense::product({corner, 1, n}, {v, 1, n}, {left, n, 1}, rest, rest, width, -1, 1);
    dense::product({corner, 1, n}, {left, 1, n}, {v, n, 1}, rest, rest, width, -1, 1);
  }
  return t;
}

/// One QR step on rows begin … end of the tridiagonal matrix.
void step(std::vector<double>& diagonal, std::vector<double>& beside, std::int64_t begin, std::int64_t end,
          dense::Rotations& turns) {
  double *const d = diagonal.data(), *const e = beside.data();
  const double half = (d[end - 1] - d[end]) / 2, last = e[end - 1];
  const double shift = d[end] - last * (last / (half + std::copysign(std::hypot(half, last), half)));
  double x = d[begin] - shift, z = e[begin];
  turns.begin(begin);
  for (std::int64_t k = begin; k < end; ++k) {
    const double r = dense::length_of(x, z), c = r > 0 ? x / r : 1, s = r > 0 ? z / r : 0;
    if (k > begin) e[k - 1] = r;
    const double p = d[k], q = d[k + 1], f = e[k], both = 2 * c * s * f;
    d[k] = c * c * p + both + s * s * q;
    d[k + 1] = s * s * p - both + c * c * q;
    e[k] = c * s * (q - p) + (c * c - s * s) * f;
    if (k + 1 < end) {
      x = e[k];
      z = s * e[k + 1];
      e[k + 1] *= c;
    }
    turns.add(c, s);
  }
}

/// d becomes the eigenvalues; false if the iteration does not end.
[[gnu::cold]] bool diagonalize(std::vector<double>& d, std::vector<double>& e, dense::Rotations turns) {
  const auto n = static_cast<std::int64_t>(d.size());
  const auto negligible = [&](std::int64_t k) {
    const auto i = static_cast<std::size_t>(k);
    return std::abs(e[i]) <= 0.5 * dense::kRounding * (std::abs(d[i]) + std::abs(d[i + 1])) + 1e-150;
  };
  std::int64_t end = n - 1;
  for (std::int64_t steps = 0; steps < kEighSteps * n; ++steps) {
    while (end > 0 && negligible(end - 1)) --end;
    if (end <= 0) {
      turns.flush(true);
      return true;
    }
    std::int64_t begin = end - 1;
    while (begin > 0 && !negligible(begin - 1)) --begin;
    step(d, e, begin, end, turns);
    turns.flush(false);
  }
  return end <= 0;
}

/// Makes both triangles what the one is that counts, and scales so that squares neither overflow nor vanish. Gives the
/// power of two to multiply the eigenvalues with, or nothing if something is not finite.
[[gnu::cold]] bool prepare(Columns& a, bool upper, int& power) {
  const std::int64_t n = a.count;
  double most = 0;
  bool finite = true;
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = j; i < n; ++i) {
      const double x = upper ? a[i][j] : a[j][i];
      finite = finite && std::isfinite(x);
      most = std::max(most, std::abs(x));
      a[i][j] = a[j][i] = x;
    }
  power = most > 0 && finite ? std::ilogb(most) : 0;
  if (power != 0)
    for (double& x : a.values) x = std::scalbn(x, -power);
  return finite;
}

/// Matrix i of the batch.
[[gnu::cold]] void decompose_one(const View& values, const View& vectors, const View& a, bool upper, std::int64_t i) {
  const std::int64_t n = a.size(-1);
  Columns matrix = dense::load(a, i, false), basis(0, 0);
  int power = 0;
  if (!prepare(matrix, upper, power)) {
    std::fill(matrix.values.begin(), matrix.values.end(), NAN);
    dense::store(values, i, std::vector<double>(static_cast<std::size_t>(n), NAN));
    if (vectors.defined()) dense::store(vectors, i, matrix, false);
    return;
  }
  Tridiagonal t = tridiagonalize(matrix);
  if (vectors.defined()) basis = dense::columns_of(t.q, n);
  ATHANOR_CHECK_TYPE(LinAlgError, diagonalize(t.d, t.e, dense::Rotations(vectors.defined() ? &basis : nullptr)),
                     "linalg.eigh: ", dense::batch_of(a) > 1 ? "(Batch element " + std::to_string(i) + "): " : "",
                     "The algorithm failed to converge within ", kEighSteps * n, " steps.");
  const std::vector<std::int64_t> order = dense::order_of(t.d, false);
  std::vector<double> sorted;
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t from = order[static_cast<std::size_t>(k)];
    sorted.push_back(std::scalbn(t.d[static_cast<std::size_t>(from)], power));
    if (vectors.defined()) std::copy_n(basis[from], n, matrix[k]);
  }
  dense::store(values, i, sorted);
  if (vectors.defined()) dense::store(vectors, i, matrix, false);
}

void eigh_cpu(const View& values, const View& vectors, const View& a, bool upper) {
  const std::int64_t n = a.size(-1);
  if (n == 0) return;
  dense::parallel_batch(a, n * n * n, [&](std::int64_t i) { decompose_one(values, vectors, a, upper, i); });
}

ATHANOR_REGISTER_KERNEL(eigh_kernel, CPU, &eigh_cpu);

}  // namespace
}  // namespace athanor::cpu
