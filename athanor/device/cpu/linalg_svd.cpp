// Singular value decompositions. Small ones by one-sided Jacobi rotations (Golub & Van Loan, "Matrix Computations",
// 8.6.3; de Rijk, "A one-sided Jacobi algorithm for computing the singular value decomposition", 1989), which give
// small singular values all their digits; larger ones by bidiagonalization; where there are many more rows, of R in
// a = Q R.
// In double for any dtype.
#include <algorithm>
#include <cmath>
#include <vector>

#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/device/cpu/linalg_dense.h"
#include "athanor/ops/kernels/linalg.h"

namespace athanor::cpu {
namespace {

using dense::Columns;

constexpr int kSvdFineSweeps = 12;         // after which columns of rounding count as zeros
constexpr int kSvdSweeps = 60;             // about ten are needed
constexpr std::int64_t kSvdByJacobi = 24;  // columns, at most
constexpr double kSvdRounding = 2.3e-16;
constexpr double kSvdLeastSquare = 1e-280;  // sums of squares below have lost digits

void svd_rotate(double* __restrict x, double* __restrict y, double c, double s, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double a = x[i], b = y[i];
    x[i] = c * a - s * b;
    y[i] = s * a + c * b;
  }
}

bool is_zero(const double* x, std::int64_t n) {
  return std::all_of(x, x + n, [](double value) { return value == 0; });
}

/// The power of two of the greatest of n numbers, not all of them 0.
int power_of(const double* x, std::int64_t n) {
  double most = 0;
  for (std::int64_t i = 0; i < n; ++i) most = std::max(most, std::abs(x[i]));
  return std::ilogb(most);
}

double norm_of(const double* x, std::int64_t n) {
  const double square = dense::dot(x, x, n);
  if (square >= kSvdLeastSquare || is_zero(x, n)) return std::sqrt(square);
  const int power = power_of(x, n);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::pow(std::scalbn(x[i], -power), 2);
  return std::scalbn(std::sqrt(sum), power);
}

/// Sums of squares of two columns and of their products, of which the rotation follows that makes them orthogonal.
struct Pair {
  double pp, qq, pq;
  int powers = 0;  ///< the sums are of columns divided by powers of two, of the second by so many more

  Pair(const double* x, const double* y, std::int64_t n)
      : pp(dense::dot(x, x, n)), qq(dense::dot(y, y, n)), pq(dense::dot(x, y, n)) {
    if (std::min(pp, qq) < kSvdLeastSquare) scale(x, y, n);
  }
  bool orthogonal() const { return std::abs(pq) <= 4 * kSvdRounding * std::sqrt(pp) * std::sqrt(qq); }
  double tangent() const {
    const double factor = powers == 0 ? 1 : std::scalbn(1.0, std::clamp(powers, -1000, 1000));
    const double zeta = (qq * factor - pp / factor) / (2 * pq);
    return std::copysign(1 / (std::abs(zeta) + std::hypot(1, zeta)), zeta);
  }

 private:
  [[gnu::cold]] void scale(const double* x, const double* y, std::int64_t n) {
    pp = qq = pq = 0;
    if (is_zero(x, n) || is_zero(y, n)) return;
    const int px = power_of(x, n), py = power_of(y, n);
    powers = py - px;
    for (std::int64_t i = 0; i < n; ++i) {
      const double a = std::scalbn(x[i], -px), b = std::scalbn(y[i], -py);
      pp += a * a, qq += b * b, pq += a * b;
    }
  }
};

/// Makes the columns of w orthogonal; v goes through the same rotations. False if that takes too long.
bool orthogonalize(Columns& w, Columns& v) {
  double greatest = 0;
  for (std::int64_t j = 0; j < w.count; ++j) greatest = std::max(greatest, dense::dot(w[j], w[j], w.rows));
  const double noise = kSvdRounding * static_cast<double>(w.rows), least = noise * noise * greatest;
  for (int sweep = 0; sweep < kSvdSweeps; ++sweep) {
    bool rotated = false;
    for (std::int64_t p = 0; p + 1 < w.count; ++p)
      for (std::int64_t q = p + 1; q < w.count; ++q) {
        const Pair pair(w[p], w[q], w.rows);
        if (pair.orthogonal()) continue;
        // What is left of a column that depends on others is rounding, made anew by every rotation.
        if (sweep >= kSvdFineSweeps && (pair.powers != 0 || std::min(pair.pp, pair.qq) <= least)) continue;
        rotated = true;
        const double t = pair.tangent(), c = 1 / std::hypot(1, t);
        svd_rotate(w[p], w[q], c, c * t, w.rows);
        svd_rotate(v[p], v[q], c, c * t, v.rows);
      }
    if (!rotated) return true;
  }
  return false;
}

/// Makes column j of u a unit vector orthogonal to those before it. One that is mostly rounding is replaced.
[[gnu::cold]] void complete(Columns& u, std::int64_t j) {
  double* const x = u[j];
  const double given = norm_of(x, u.rows);
  if (given > 0 && given * given < kSvdLeastSquare) {
    const int power = std::ilogb(given);
    for (std::int64_t i = 0; i < u.rows; ++i) x[i] = std::scalbn(x[i], -power);
  }
  for (std::int64_t attempt = -1; attempt < u.rows; ++attempt) {
    if (attempt >= 0) {
      std::fill_n(x, u.rows, 0.0);
      x[attempt] = 1;
    }
    const double before = std::sqrt(dense::dot(x, x, u.rows));
    for (int again = 0; again < 2; ++again)
      for (std::int64_t k = 0; k < j; ++k) {
        const double part = dense::dot(x, u[k], u.rows);
        dense::add_scaled(x, u[k], -part, u.rows);
      }
    const double size = std::sqrt(dense::dot(x, x, u.rows));
    // Some unit vector has at least 1 / sqrt(rows) outside any space of fewer dims.
    const double least = attempt < 0 ? 0.5 : 0.7 / std::sqrt(static_cast<double>(u.rows));
    if (before == 0 || size < least * before) continue;
    for (std::int64_t i = 0; i < u.rows; ++i) x[i] /= size;
    return;
  }
}

/// Columns of w, and of v if it has any rows, in the order of s, the greatest first.
[[gnu::cold]] void sort_values(Columns& w, std::vector<double>& s, Columns& v) {
  const std::vector<std::int64_t> order = dense::order_of(s, true);
  Columns sorted_w(w.count, w.rows), sorted_v(v.count, v.rows);
  std::vector<double> sorted_s;
  for (std::int64_t j = 0; j < w.count; ++j) {
    const std::int64_t from = order[static_cast<std::size_t>(j)];
    std::copy_n(w[from], w.rows, sorted_w[j]);
    std::copy_n(v[from], v.rows, sorted_v[j]);
    sorted_s.push_back(s[static_cast<std::size_t>(from)]);
  }
  w = std::move(sorted_w), v = std::move(sorted_v), s = std::move(sorted_s);
}

/// decompose_scaled() for few columns.
bool decompose_by_jacobi(Columns& w, std::vector<double>& s, Columns& v, bool vectors) {
  if (!orthogonalize(w, v)) return false;
  for (std::int64_t j = 0; j < w.count; ++j) s[static_cast<std::size_t>(j)] = norm_of(w[j], w.rows);
  sort_values(w, s, v);
  if (!vectors) return true;
  // What is left of columns that depended on others says nothing of a direction.
  const double noise = kSvdRounding * static_cast<double>(w.rows) * s[0];
  for (std::int64_t j = 0; j < w.count; ++j) {
    const double size = s[static_cast<std::size_t>(j)];
    if (size > noise)
      for (std::int64_t i = 0; i < w.rows; ++i) w[j][i] /= size;
    else
      complete(w, j);
  }
  return true;
}

/// decompose() for numbers up to 2.
[[gnu::cold]] bool decompose_scaled(Columns& w, std::vector<double>& s, Columns& v, bool vectors) {
  const std::int64_t n = w.count, m = w.rows;
  if (n <= kSvdByJacobi && m <= 2 * n) return decompose_by_jacobi(w, s, v, vectors);
  if (m == n) {
    if (!dense::decompose_bidiagonal(w, s, v, vectors)) return false;
    sort_values(w, s, v);
    return true;
  }
  const dense::Reflections q = dense::factor_qr(w);
  Columns r(n, n);
  for (std::int64_t j = 0; j < n; ++j) std::copy_n(w[j], j + 1, r[j]);
  if (!decompose_scaled(r, s, v, vectors)) return false;
  if (!vectors) return true;
  w = Columns(n, m);
  for (std::int64_t j = 0; j < n; ++j) std::copy_n(r[j], n, w[j]);
  dense::apply(q, w, false);
  return true;
}

/// w (tall) = u diag(s) vᵀ: u takes w's place. Without `vectors`, s alone. False if the iteration does not end.
bool decompose(Columns& w, std::vector<double>& s, Columns& v, bool vectors) {
  for (std::int64_t j = 0; j < v.count && vectors; ++j) v[j][j] = 1;
  double scale = 0;
  for (const double x : w.values) scale = std::max(scale, std::abs(x));
  s.assign(static_cast<std::size_t>(w.count), 0);
  if (scale == 0) {
    for (std::int64_t j = 0; j < w.count && vectors; ++j) complete(w, j);
    return true;
  }
  // Squares must neither overflow nor vanish. A power of two rounds nothing.
  const int power = std::ilogb(scale);
  for (double& x : w.values) x = std::scalbn(x, -power);
  const bool done = decompose_scaled(w, s, v, vectors);
  for (double& size : s) size = std::scalbn(size, power);
  return done;
}

void svd_cpu(const View& u, const View& s, const View& vh, const View& a) {
  const std::int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n), tall = std::max(m, n);
  if (k == 0) return;
  const std::int64_t batch = dense::batch_of(a);
  const bool vectors = u.defined();
  dense::parallel_batch(a, 8 * tall * k * k, [&](std::int64_t b) {
    const auto where = [&] { return batch > 1 ? "(Batch element " + std::to_string(b) + "): " : std::string(); };
    // A wide matrix is its transpose here, so that u and v change places.
    Columns w = dense::load(a, b, m < n), v(k, vectors ? k : 0);
    for (const double x : w.values)
      ATHANOR_CHECK_TYPE(LinAlgError, std::isfinite(x), "linalg.svd: ", where(),
                         "The algorithm failed to converge because the input matrix contained non-finite values.");
    std::vector<double> values;
    ATHANOR_CHECK_TYPE(LinAlgError, decompose(w, values, v, vectors), "linalg.svd: ", where(),
                       "The algorithm failed to converge.");
    dense::store(s, b, values);
    if (!vectors) return;
    dense::store(u, b, m < n ? v : w, false);
    dense::store(vh, b, m < n ? w : v, true);
  });
}

ATHANOR_REGISTER_KERNEL(svd_kernel, CPU, &svd_cpu);

}  // namespace
}  // namespace athanor::cpu
