// Singular value decompositions by bidiagonalization in blocks (Dongarra, Hammarling & Sorensen, "Block reduction of
// matrices to condensed forms for eigenvalue computations", 1989) and implicit QR steps, with the shift of zero where
// the matrix is singular (Demmel & Kahan, "Accurate singular values of bidiagonal matrices", 1990). The time goes to
// products, sums and rotations of columns; what calls them is "cold", which makes it small.
#include <algorithm>
#include <cmath>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/linalg_dense.h"

namespace athanor::cpu::dense {

namespace {

constexpr std::int64_t kBidiagonalSteps = 30;  // a singular value; about two are needed

struct Bidiagonal {
  std::vector<double> d, e;  // e[k] is right of d[k]
  Reflections left, right;
  explicit Bidiagonal(std::int64_t n)
      : d(static_cast<std::size_t>(n)),
        e(static_cast<std::size_t>(n)),
        left(n, n, 0),
        right(std::max<std::int64_t>(n - 1, 0), n, 1) {}
};

/// y -= the columns of `of` from `begin`, with weights that are the products of those of `by` with x; rows from `top`
/// count.
[[gnu::cold]] void subtract_products(double* y, const Columns& of, std::int64_t of_begin, const Columns& by,
                                     std::int64_t by_begin, std::int64_t count, const double* x, std::int64_t y_top,
                                     std::int64_t x_top) {
  for (std::int64_t k = 0; k < count; ++k)
    add_scaled(y + y_top, of[of_begin + k] + y_top, -dot(by[by_begin + k] + x_top, x + x_top, by.rows - x_top),
               of.rows - y_top);
}

/// a = left B rightᵀ, in blocks: within one, a itself stays as it is, less left yᵀ and x rightᵀ.
[[gnu::cold]] Bidiagonal bidiagonalize(Columns& a) {
  const std::int64_t n = a.count;
  Bidiagonal b(n);
  std::vector<double> row(static_cast<std::size_t>(n));
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, n);
    Columns x(kBlock, n), y(kBlock, n);
    for (std::int64_t j = begin; j < end; ++j) {
      const std::int64_t before = j - begin, top = j + 1, rest = n - top;
      Columns &u = b.left.v, &v = b.right.v;
      double* const column = a[j];
      for (std::int64_t k = 0; k < before; ++k) {
        add_scaled(column + j, u[begin + k] + j, -y[k][j], n - j);
        add_scaled(column + j, x[k] + j, -v[begin + k][j], n - j);
      }
      double& left_tau = b.left.tau[static_cast<std::size_t>(j)];
      std::copy_n(column + j, n - j, u[j] + j);
      b.d[static_cast<std::size_t>(j)] = reflect(u[j] + j, n - j, left_tau);
      if (rest == 0) break;
      double* const to = y[before];
      parallel_for(top, n, 1 + kGrain / (n - j), [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) to[i] = dot(a[i] + j, u[j] + j, n - j);
      });
      subtract_products(to, y, 0, u, begin, before, u[j], top, j);
      subtract_products(to, v, begin, x, 0, before, u[j], top, j);
      for (std::int64_t i = top; i < n; ++i) to[i] *= left_tau;
      // Row j as it is now.
      for (std::int64_t i = top; i < n; ++i) row[static_cast<std::size_t>(i)] = a[i][j];
      for (std::int64_t k = 0; k <= before; ++k) add_scaled(row.data() + top, y[k] + top, -u[begin + k][j], rest);
      for (std::int64_t k = 0; k < before; ++k) add_scaled(row.data() + top, v[begin + k] + top, -x[k][j], rest);
      double& right_tau = b.right.tau[static_cast<std::size_t>(j)];
      std::copy_n(row.data() + top, rest, v[j] + top);
      b.e[static_cast<std::size_t>(j)] = reflect(v[j] + top, rest, right_tau);
      double* const across = x[before];
      parallel_for(top, n, 1 + kGrain / rest, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = top; i < n; ++i) add_scaled(across + first, a[i] + first, v[j][i], last - first);
      });
      subtract_products(across, u, begin, y, 0, before + 1, v[j], top, top);
      subtract_products(across, x, 0, v, begin, before, v[j], top, top);
      for (std::int64_t i = top; i < n; ++i) across[i] *= right_tau;
    }
    const std::int64_t rest = n - end, width = end - begin;
    if (rest == 0) break;
    double* const corner = a[end] + end;
    product({corner, 1, n}, {b.left.v[begin] + end, 1, n}, {y[0] + end, n, 1}, rest, rest, width, -1, 1);
    product({corner, 1, n}, {x[0] + end, 1, n}, {b.right.v[begin] + end, n, 1}, rest, rest, width, -1, 1);
  }
  return b;
}

/// The least singular value of [f g; 0 h].
double least_of(double f, double g, double h) {
  const double a = std::min(std::abs(f), std::abs(h)), b = std::max(std::abs(f), std::abs(h)), c = std::abs(g);
  if (a == 0) return 0;
  const double most = std::max(b, c), x = a / most, y = b / most, z = c / most;
  // Its product with the greatest is a b.
  const double greatest = (std::hypot(x + y, z) + std::hypot(y - x, z)) / 2;
  return x / greatest * b;
}

struct Turn {
  double c, s, r;
  /// c f + s g = r, c g - s f = 0.
  Turn(double f, double g) : r(dense::length_of(f, g)) {
    c = r > 0 ? f / r : 1;
    s = r > 0 ? g / r : 0;
  }
};

/// A QR step on rows begin … end with a shift, which is not 0, and neither is d[begin].
void step(double* d, double* e, std::int64_t begin, std::int64_t end, double shift, Rotations& left, Rotations& right) {
  double f = (std::abs(d[begin]) - shift) * (std::copysign(1.0, d[begin]) + shift / d[begin]), g = e[begin];
  for (std::int64_t i = begin; i < end; ++i) {
    const Turn by_right(f, g);
    if (i > begin) e[i - 1] = by_right.r;
    f = by_right.c * d[i] + by_right.s * e[i];
    e[i] = by_right.c * e[i] - by_right.s * d[i];
    g = by_right.s * d[i + 1];
    d[i + 1] *= by_right.c;
    right.add(by_right.c, by_right.s);
    const Turn by_left(f, g);
    d[i] = by_left.r;
    f = by_left.c * e[i] + by_left.s * d[i + 1];
    d[i + 1] = by_left.c * d[i + 1] - by_left.s * e[i];
    if (i + 1 < end) {
      g = by_left.s * e[i + 1];
      e[i + 1] *= by_left.c;
    }
    left.add(by_left.c, by_left.s);
  }
  e[end - 1] = f;
}

void step_without_shift(double* d, double* e, std::int64_t begin, std::int64_t end, Rotations& left, Rotations& right) {
  double c = 1, left_c = 1, left_s = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    const Turn by_right(d[i] * c, e[i]);
    if (i > begin) e[i - 1] = left_s * by_right.r;
    const Turn by_left(left_c * by_right.r, d[i + 1] * by_right.s);
    d[i] = by_left.r;
    c = by_right.c, left_c = by_left.c, left_s = by_left.s;
    right.add(by_right.c, by_right.s);
    left.add(by_left.c, by_left.s);
  }
  const double h = d[end] * c;
  d[end] = h * left_c;
  e[end - 1] = h * left_s;
}

/// The matrix becomes diagonal; false if the iteration does not end.
[[gnu::cold]] bool diagonalize(Bidiagonal& b, Rotations left, Rotations right) {
  double *const d = b.d.data(), *const e = b.e.data();
  const auto n = static_cast<std::int64_t>(b.d.size());
  double most = 0;
  for (std::int64_t k = 0; k < n; ++k) most = std::max({most, std::abs(d[k]), std::abs(e[k])});
  const double noise = 0.1 * kRounding * most;
  const auto negligible = [&](std::int64_t k) {
    return std::abs(e[k]) <= std::max(0.5 * kRounding * (std::abs(d[k]) + std::abs(d[k + 1])), noise);
  };
  std::int64_t end = n - 1;
  for (std::int64_t steps = 0; steps < kBidiagonalSteps * n; ++steps) {
    while (end > 0 && negligible(end - 1)) --end;
    if (end <= 0) {
      left.flush(true);
      right.flush(true);
      return true;
    }
    std::int64_t begin = end - 1;
    while (begin > 0 && !negligible(begin - 1)) --begin;
    double least = std::abs(d[begin]);
    for (std::int64_t k = begin; k <= end; ++k) least = std::min(least, std::abs(d[k]));
    const double shift = least <= noise ? 0 : least_of(d[end - 1], e[end - 1], d[end]);
    left.begin(begin);
    right.begin(begin);
    const double ratio = shift / std::abs(d[begin]);
    if (shift > 0 && ratio * ratio >= kRounding)
      step(d, e, begin, end, shift, left, right);
    else
      step_without_shift(d, e, begin, end, left, right);
    left.flush(false);
    right.flush(false);
  }
  return end <= 0;
}

}  // namespace

[[gnu::cold]] bool decompose_bidiagonal(Columns& w, std::vector<double>& s, Columns& v, bool vectors) {
  Bidiagonal b = bidiagonalize(w);
  if (vectors) {
    w = columns_of(b.left, w.count);
    v = columns_of(b.right, w.count);
  }
  if (!diagonalize(b, Rotations(vectors ? &w : nullptr), Rotations(vectors ? &v : nullptr))) return false;
  s = std::move(b.d);
  for (std::size_t j = 0; j < s.size(); ++j) {
    if (!std::signbit(s[j])) continue;
    s[j] = -s[j];
    if (vectors)
      for (std::int64_t i = 0; i < v.rows; ++i) v[static_cast<std::int64_t>(j)][i] *= -1;
  }
  return true;
}

}  // namespace athanor::cpu::dense
