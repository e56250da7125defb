// Singular value decompositions by one-sided Jacobi rotations (Golub & Van Loan, "Matrix Computations", 8.6.3; de Rijk,
// "A one-sided Jacobi algorithm for computing the singular value decomposition", 1989). In double for any dtype.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/ops/kernels/linalg.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kSvdGrain = 1 << 15;  // multiplications for which a second thread pays
constexpr int kSvdSweeps = 60;               // about ten are needed
constexpr double kSvdRounding = 2.3e-16;

/// The columns of a tall matrix, each `rows` numbers, or as many vectors of another length.
struct Columns {
  std::int64_t count, rows;
  std::vector<double> values;
  Columns(std::int64_t n, std::int64_t m) : count(n), rows(m), values(static_cast<std::size_t>(n * m)) {}
  double* operator[](std::int64_t j) { return values.data() + j * rows; }
};

double svd_dot(const double* x, const double* y, std::int64_t n) {
  double sum[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; ++k) sum[k] += x[i + k] * y[i + k];
  for (; i < n; ++i) sum[0] += x[i] * y[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

void svd_rotate(double* __restrict x, double* __restrict y, double c, double s, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double a = x[i], b = y[i];
    x[i] = c * a - s * b;
    y[i] = s * a + c * b;
  }
}

/// Makes the columns of w orthogonal; v goes through the same rotations.
void orthogonalize(Columns& w, Columns& v) {
  for (int sweep = 0; sweep < kSvdSweeps; ++sweep) {
    bool rotated = false;
    for (std::int64_t p = 0; p + 1 < w.count; ++p)
      for (std::int64_t q = p + 1; q < w.count; ++q) {
        const double pp = svd_dot(w[p], w[p], w.rows), qq = svd_dot(w[q], w[q], w.rows),
                     pq = svd_dot(w[p], w[q], w.rows);
        if (std::abs(pq) <= 4 * kSvdRounding * std::sqrt(pp) * std::sqrt(qq)) continue;
        rotated = true;
        const double zeta = (qq - pp) / (2 * pq);
        const double t = std::copysign(1 / (std::abs(zeta) + std::hypot(1, zeta)), zeta);
        const double c = 1 / std::hypot(1, t);
        svd_rotate(w[p], w[q], c, c * t, w.rows);
        svd_rotate(v[p], v[q], c, c * t, v.rows);
      }
    if (!rotated) return;
  }
}

/// Makes column j of u a unit vector orthogonal to those before it. One that is mostly rounding is replaced.
void complete(Columns& u, std::int64_t j) {
  double* const x = u[j];
  for (std::int64_t attempt = -1; attempt < u.rows; ++attempt) {
    if (attempt >= 0) {
      std::fill_n(x, u.rows, 0.0);
      x[attempt] = 1;
    }
    const double before = std::sqrt(svd_dot(x, x, u.rows));
    for (int again = 0; again < 2; ++again)
      for (std::int64_t k = 0; k < j; ++k) {
        const double part = svd_dot(x, u[k], u.rows);
        for (std::int64_t i = 0; i < u.rows; ++i) x[i] -= part * u[k][i];
      }
    const double size = std::sqrt(svd_dot(x, x, u.rows));
    // Some unit vector has at least 1 / sqrt(rows) outside any space of fewer dims.
    const double least = attempt < 0 ? 0.5 : 0.7 / std::sqrt(static_cast<double>(u.rows));
    if (before == 0 || size < least * before) continue;
    for (std::int64_t i = 0; i < u.rows; ++i) x[i] /= size;
    return;
  }
}

/// w (tall) = u diag(s) vᵀ: u takes w's place.
void decompose(Columns& w, std::vector<double>& s, Columns& v) {
  for (std::int64_t j = 0; j < v.count; ++j) v[j][j] = 1;
  double scale = 0;
  for (const double x : w.values) scale = std::max(scale, std::abs(x));
  s.assign(static_cast<std::size_t>(w.count), 0);
  if (scale > 0) {
    // Squares must neither overflow nor vanish. A power of two rounds nothing.
    const int power = std::ilogb(scale);
    for (double& x : w.values) x = std::scalbn(x, -power);
    orthogonalize(w, v);
    for (std::int64_t j = 0; j < w.count; ++j) s[static_cast<std::size_t>(j)] = std::sqrt(svd_dot(w[j], w[j], w.rows));
    std::vector<std::int64_t> order(s.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return s[static_cast<std::size_t>(a)] > s[static_cast<std::size_t>(b)];
    });
    Columns sorted_w(w.count, w.rows), sorted_v(v.count, v.rows);
    std::vector<double> sorted_s;
    for (std::int64_t j = 0; j < w.count; ++j) {
      const std::int64_t from = order[static_cast<std::size_t>(j)];
      std::copy_n(w[from], w.rows, sorted_w[j]);
      std::copy_n(v[from], v.rows, sorted_v[j]);
      sorted_s.push_back(s[static_cast<std::size_t>(from)]);
    }
    w = std::move(sorted_w), v = std::move(sorted_v), s = std::move(sorted_s);
    // What is left of columns that depended on others says nothing of a direction.
    const double noise = kSvdRounding * static_cast<double>(w.rows) * s[0];
    for (std::int64_t j = 0; j < w.count; ++j) {
      double& size = s[static_cast<std::size_t>(j)];
      if (size > noise)
        for (std::int64_t i = 0; i < w.rows; ++i) w[j][i] /= size;
      else
        complete(w, j);
      size = std::scalbn(size, power);
    }
    return;
  }
  for (std::int64_t j = 0; j < w.count; ++j) complete(w, j);
}

template <class T>
void svd(const View& u, const View& s, const View& vh, const View& a) {
  const std::int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  if (k == 0) return;
  const std::int64_t batch = s.numel / k, tall = std::max(m, n);
  parallel_for(0, batch, 1 + kSvdGrain / (tall * k * k), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      std::int64_t offset = 0, rest = b;
      for (int d = a.ndim - 3; d >= 0; --d) {
        offset += rest % a.size(d) * a.stride(d);
        rest /= a.size(d);
      }
      const T* const from = a.ptr<T>() + offset;
      Columns w(k, tall), v(k, k);
      std::vector<double> values;
      const std::int64_t along = m >= n ? a.stride(-2) : a.stride(-1), across = m >= n ? a.stride(-1) : a.stride(-2);
      for (std::int64_t j = 0; j < k; ++j)
        for (std::int64_t i = 0; i < tall; ++i) {
          const T x = from[i * along + j * across];
          ATHANOR_CHECK_TYPE(LinAlgError, std::isfinite(x),
                             "linalg.svd: ", batch > 1 ? "(Batch element " + std::to_string(b) + "): " : "",
                             "The algorithm failed to converge because the input matrix contained non-finite values.");
          w[j][i] = static_cast<double>(x);
        }
      decompose(w, values, v);
      // A wide matrix was its transpose here, so that u and v change places.
      Columns& left = m >= n ? w : v;
      Columns& right = m >= n ? v : w;
      for (std::int64_t j = 0; j < k; ++j) {
        s.ptr<T>()[b * k + j] = static_cast<T>(values[static_cast<std::size_t>(j)]);
        for (std::int64_t i = 0; i < m; ++i) u.ptr<T>()[(b * m + i) * k + j] = static_cast<T>(left[j][i]);
        for (std::int64_t i = 0; i < n; ++i) vh.ptr<T>()[(b * k + j) * n + i] = static_cast<T>(right[j][i]);
      }
    }
  });
}

void svd_cpu(const View& u, const View& s, const View& vh, const View& a) {
  a.dtype == DType::Float ? svd<float>(u, s, vh, a) : svd<double>(u, s, vh, a);
}

ATHANOR_REGISTER_KERNEL(svd_kernel, CPU, &svd_cpu);

}  // namespace
}  // namespace athanor::cpu
