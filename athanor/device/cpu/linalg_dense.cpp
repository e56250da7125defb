// Matrices of columns, products, Householder reflections in blocks, sequences of rotations. "Cold" makes what only
// calls other loops small.
#include "athanor/device/cpu/linalg_dense.h"

#include <algorithm>
#include <cmath>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/gemm.h"

namespace athanor::cpu::dense {

namespace {

constexpr std::int64_t kStrip = 32;          // rows that are rotated together
constexpr std::size_t kManyTurns = 1 << 14;  // that stay in the second cache

std::int64_t offset_of(const View& v, std::int64_t index, int inner) {
  std::int64_t offset = 0;
  for (int d = v.ndim - inner - 1; d >= 0; --d) {
    offset += index % v.size(d) * v.stride(d);
    index /= v.size(d);
  }
  return offset;
}

template <class Fn>
void with_elements(const View& v, std::int64_t offset, Fn&& fn) {
  if (v.dtype == DType::Float)
    fn(v.ptr<float>() + offset);
  else
    fn(v.ptr<double>() + offset);
}

}  // namespace

Columns identity(std::int64_t columns, std::int64_t rows) {
  Columns c(columns, rows);
  for (std::int64_t j = 0; j < std::min(columns, rows); ++j) c[j][j] = 1;
  return c;
}

std::int64_t batch_of(const View& v) {
  std::int64_t n = 1;
  for (int d = 0; d + 2 < v.ndim; ++d) n *= v.size(d);
  return n;
}

Columns load(const View& v, std::int64_t index, bool transposed) {
  const int along = transposed ? -1 : -2, across = transposed ? -2 : -1;
  Columns to(v.size(across), v.size(along));
  const std::int64_t row = v.stride(along), column = v.stride(across);
  with_elements(v, offset_of(v, index, 2), [&](const auto* from) {
    for (std::int64_t j = 0; j < to.count; ++j)
      for (std::int64_t i = 0; i < to.rows; ++i) to[j][i] = static_cast<double>(from[j * column + i * row]);
  });
  return to;
}

void store(const View& v, std::int64_t index, const Columns& from, bool transposed) {
  const int along = transposed ? -1 : -2, across = transposed ? -2 : -1;
  const std::int64_t row = v.stride(along), column = v.stride(across), rows = v.size(along);
  with_elements(v, offset_of(v, index, 2), [&]<class T>(T* to) {
    for (std::int64_t j = 0; j < v.size(across); ++j)
      for (std::int64_t i = 0; i < rows; ++i)
        to[j * column + i * row] = j < from.count && i < from.rows ? static_cast<T>(from[j][i]) : T(0);
  });
}

void store(const View& v, std::int64_t index, const std::vector<double>& from) {
  const std::int64_t stride = v.stride(-1);
  with_elements(v, offset_of(v, index, 1), [&]<class T>(T* to) {
    for (std::size_t i = 0; i < from.size(); ++i) to[static_cast<std::int64_t>(i) * stride] = static_cast<T>(from[i]);
  });
}

double dot(const double* x, const double* y, std::int64_t n) {
  double sum[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) sum[k] += x[i + k] * y[i + k];
  for (; i < n; ++i) sum[0] += x[i] * y[i];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

void add_scaled(double* __restrict y, const double* __restrict x, double a, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

void product(Part c, Part a, Part b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha, double beta) {
  if (m == 0 || n == 0 || k == 0) return;
  GemmProblem g;
  g.dtype = DType::Double;
  g.m = m;
  g.n = n;
  g.k = k;
  g.a = a.data;
  g.a_row = a.row;
  g.a_col = a.column;
  g.b = b.data;
  g.b_row = b.row;
  g.b_col = b.column;
  g.c = c.data;
  g.c_row = c.row;
  g.c_col = c.column;
  g.alpha = alpha;
  g.beta = beta;
  if (beta != 0) {
    g.bias = c.data;
    g.bias_row = c.row;
    g.bias_col = c.column;
  }
  gemm(g);
}

[[gnu::cold]] std::vector<std::int64_t> order_of(const std::vector<double>& values, bool greatest_first) {
  std::vector<std::int64_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const double x = values[static_cast<std::size_t>(a)], y = values[static_cast<std::size_t>(b)];
    return x == y ? a < b : (x < y) != greatest_first;
  });
  return order;
}

double reflect(double* x, std::int64_t n, double& tau) {
  tau = 0;
  const double alpha = x[0];
  x[0] = 1;
  double below = dot(x + 1, x + 1, n - 1), scale = 1;
  // Squares neither overflow nor vanish beside each other. A power of two rounds nothing.
  if (!(below > 1e-250 && below < 1e250)) {
    double most = 0;
    for (std::int64_t i = 1; i < n; ++i) most = std::max(most, std::abs(x[i]));
    if (most == 0 && below == 0) return alpha;
    if (most > 0 && std::isfinite(most)) {
      scale = std::scalbn(1.0, std::clamp(-std::ilogb(most), -1000, 1000));
      for (std::int64_t i = 1; i < n; ++i) x[i] *= scale;
      below = dot(x + 1, x + 1, n - 1);
    }
  }
  const double first = alpha * scale;
  if (std::isinf(first) && std::isfinite(alpha)) {  // what is below vanishes beside it
    std::fill_n(x + 1, n - 1, 0.0);
    return alpha;
  }
  const double beta = std::copysign(std::isfinite(first) ? std::hypot(first, std::sqrt(below)) : NAN, -alpha);
  tau = (beta - first) / beta;
  const double inverse = 1 / (first - beta);
  for (std::int64_t i = 1; i < n; ++i) x[i] *= inverse;
  return beta / scale;
}

namespace {

/// Reflections first … first + count - 1 of h as I - V T Vᵀ (or with Tᵀ) on columns begin … end of c.
[[gnu::cold]] void apply_block(const Reflections& h, std::int64_t first, std::int64_t count, Columns& c,
                               std::int64_t begin, std::int64_t end, bool transposed) {
  const std::int64_t top = first + h.shift, rows = h.v.rows - top, columns = end - begin;
  if (rows <= 0 || columns <= 0) return;
  const auto v = [&](std::int64_t k) { return h.v[first + k] + top; };
  if (count == 1 || rows * columns < 256) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t k = transposed ? i : count - 1 - i;
      const double tau = h.tau[static_cast<std::size_t>(first + k)];
      for (std::int64_t j = begin; j < end; ++j)
        add_scaled(c[j] + top + k, v(k) + k, -tau * dot(v(k) + k, c[j] + top + k, rows - k), rows - k);
    }
    return;
  }
  Columns t(count, count), w(columns, count), tw(columns, count);
  for (std::int64_t j = 0; j < count; ++j) {
    const double tau = h.tau[static_cast<std::size_t>(first + j)];
    std::vector<double> along(static_cast<std::size_t>(j));
    for (std::int64_t k = 0; k < j; ++k) along[static_cast<std::size_t>(k)] = dot(v(k) + j, v(j) + j, rows - j);
    for (std::int64_t k = 0; k < j; ++k) add_scaled(t[j], t[k], -tau * along[static_cast<std::size_t>(k)], k + 1);
    t[j][j] = tau;
  }
  double* const vectors = const_cast<double*>(v(0));
  double* const to = c[begin] + top;
  product({w[0], 1, count}, {vectors, h.v.rows, 1}, {to, 1, c.rows}, count, columns, rows, 1, 0);
  product({tw[0], 1, count}, transposed ? Part{t[0], count, 1} : Part{t[0], 1, count}, {w[0], 1, count}, count, columns,
          count, 1, 0);
  product({to, 1, c.rows}, {vectors, 1, h.v.rows}, {tw[0], 1, count}, rows, columns, count, -1, 1);
}

}  // namespace

void apply(const Reflections& h, Columns& c, bool is_identity) {
  const std::int64_t n = h.v.count;
  for (std::int64_t first = n == 0 ? -1 : (n - 1) / kBlock * kBlock; first >= 0; first -= kBlock)
    apply_block(h, first, std::min(kBlock, n - first), c, is_identity ? first + h.shift : 0, c.count, false);
}

Columns columns_of(const Reflections& h, std::int64_t columns) {
  Columns c = identity(columns, h.v.rows);
  apply(h, c, true);
  return c;
}

[[gnu::cold]] Reflections factor_qr(Columns& a) {
  const std::int64_t m = a.rows, n = a.count, k = std::min(m, n);
  Reflections h(k, m, 0);
  for (std::int64_t begin = 0; begin < k; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, k);
    for (std::int64_t j = begin; j < end; ++j) {
      double* const v = h.v[j] + j;
      std::copy_n(a[j] + j, m - j, v);
      double& tau = h.tau[static_cast<std::size_t>(j)];
      a[j][j] = reflect(v, m - j, tau);
      std::fill_n(a[j] + j + 1, m - j - 1, 0.0);
      for (std::int64_t other = j + 1; other < end; ++other)
        add_scaled(a[other] + j, v, -tau * dot(v, a[other] + j, m - j), m - j);
    }
    apply_block(h, begin, end - begin, a, end, n, true);
  }
  return h;
}

void Rotations::apply_to_rows(std::int64_t begin, std::int64_t end) {
  Columns& c = *columns_;
  std::vector<double> strip(static_cast<std::size_t>(c.count * kStrip));
  const auto each = [&](auto&& fn) {
    for (std::int64_t j = 0; j < c.count; ++j)
      for (std::int64_t i = begin; i < end; ++i) fn(c[j][i], strip[static_cast<std::size_t>(j * kStrip + i - begin)]);
  };
  each([](double column, double& local) { local = column; });
  for (std::size_t k = 0; k < sweeps_.size(); ++k) {
    const std::int64_t from = sweeps_[k].at,
                       to = k + 1 < sweeps_.size() ? sweeps_[k + 1].at : static_cast<std::int64_t>(turns_.size());
    double* column = strip.data() + sweeps_[k].first * kStrip;
    double x[kStrip];
    std::copy_n(column, kStrip, x);
    for (std::int64_t t = from; t < to; ++t, column += kStrip) {
      const Turn turn = turns_[static_cast<std::size_t>(t)];
      for (std::int64_t i = 0; i < kStrip; ++i) {
        const double y = column[kStrip + i];
        column[i] = turn.c * x[i] + turn.s * y;
        x[i] = turn.c * y - turn.s * x[i];
      }
    }
    std::copy_n(x, kStrip, column);
  }
  each([](double& column, double local) { column = local; });
}

void Rotations::flush(bool now) {
  if (turns_.empty() || !(now || turns_.size() >= kManyTurns)) return;
  const std::int64_t rows = columns_->rows, strips = (rows + kStrip - 1) / kStrip;
  const auto cost = static_cast<std::int64_t>(turns_.size()) * kStrip;
  parallel_for(0, strips, 1 + kGrain / cost, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t s = first; s < last; ++s) apply_to_rows(s * kStrip, std::min((s + 1) * kStrip, rows));
  });
  sweeps_.clear();
  turns_.clear();
}

}  // namespace athanor::cpu::dense
