// LU and Cholesky factorizations of batches of matrices (Golub & Van Loan, "Matrix Computations", 3.2 and 4.2).
#include "athanor/ops/kernels/linalg.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/gemm.h"
#include "athanor/device/cpu/linalg_lines.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kPanel = 32;       // rows or columns eliminated at a time; the rest is products of matrices
constexpr std::int64_t kGrain = 1 << 15;  // multiplications for which a second thread pays

/// Matrix `index` of a batch, with its strides.
struct MatrixView {
  std::int64_t offset, row, column;
};
MatrixView matrix_of(const View& v, std::int64_t index) {
  MatrixView m{0, v.stride(-2), v.stride(-1)};
  for (int d = v.ndim - 3; d >= 0; --d) {
    m.offset += index % v.size(d) * v.stride(d);
    index /= v.size(d);
  }
  return m;
}
std::int64_t batch_of(const View& v) {
  std::int64_t n = 1;
  for (int d = 0; d + 2 < v.ndim; ++d) n *= v.size(d);
  return n;
}

template <class T>
void load(T* to, const View& v, std::int64_t index) {
  const MatrixView m = matrix_of(v, index);
  const std::int64_t rows = v.size(-2), columns = v.size(-1);
  const T* from = v.ptr<T>() + m.offset;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[i * columns + j] = from[i * m.row + j * m.column];
}
template <class T>
void store(const View& v, std::int64_t index, const std::vector<T>& from) {
  const MatrixView m = matrix_of(v, index);
  const std::int64_t rows = v.size(-2), columns = v.size(-1);
  T* to = v.ptr<T>() + m.offset;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      to[i * m.row + j * m.column] = from[static_cast<std::size_t>(i * columns + j)];
}

/// Columns of a row-major matrix of `stride`, side by side: column k at to + k * rows.
template <class T>
void load_columns(T* to, const T* from, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < columns; ++k) to[k * rows + i] = from[i * stride + k];
}
template <class T>
void store_columns(T* to, std::int64_t stride, const T* from, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < columns; ++k) to[i * stride + k] = from[k * rows + i];
}

/// A part of a matrix.
template <class T>
struct Block {
  T* data;
  std::int64_t row, column;
};

/// c (m, n) -= a (m, k) b (k, n).
template <class T>
void subtract_product(Block<T> c, Block<const T> a, Block<const T> b, std::int64_t m, std::int64_t n, std::int64_t k) {
  if (m == 0 || n == 0 || k == 0) return;
  GemmProblem g;
  g.dtype = dtype_of_v<T>;
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
  g.bias = c.data;
  g.c_row = g.bias_row = c.row;
  g.c_col = g.bias_col = c.column;
  g.alpha = -1;
  g.beta = 1;
  gemm(g);
}

template <class T>
bool is_upper(const T* a, std::int64_t n) {
  for (std::int64_t i = 1; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j)
      if (a[i * n + j] != T(0)) return false;
  return true;
}

/// P A = L U in place, row-major; pivots[k] is the row exchanged with row k. Gives the sign of P, and the first column
/// whose pivot is zero in `singular` (-1: none). A zero pivot's column is passed over.
template <class T>
int factor_lu(T* a, std::int64_t n, std::int64_t* pivots, std::int64_t& singular) {
  singular = -1;
  if (is_upper(a, n)) {
    for (std::int64_t k = n; k-- > 0;) {
      pivots[k] = k;
      if (a[k * n + k] == T(0)) singular = k;
    }
    return 1;
  }
  int sign = 1;
  std::vector<T> panel(static_cast<std::size_t>(n * std::min(n, kPanel)));
  for (std::int64_t begin = 0; begin < n; begin += kPanel) {
    const std::int64_t end = std::min(begin + kPanel, n), rows = n - begin, columns = end - begin;
    load_columns(panel.data(), a + begin * n + begin, n, rows, columns);
    for (std::int64_t k = 0; k < columns; ++k) {
      T* const column = panel.data() + k * rows;
      const std::int64_t best = k + largest_size(column + k, rows - k);
      pivots[begin + k] = begin + best;
      if (best != k) {
        T* const row = a + (begin + k) * n;
        std::swap_ranges(row, row + n, a + (begin + best) * n);
        for (std::int64_t j = 0; j < columns; ++j)
          std::swap(panel[static_cast<std::size_t>(j * rows + k)], panel[static_cast<std::size_t>(j * rows + best)]);
        sign = -sign;
      }
      const T pivot = column[k];
      if (pivot == T(0)) {
        if (singular < 0) singular = begin + k;
        continue;
      }
      for (std::int64_t i = k + 1; i < rows; ++i) column[i] /= pivot;
      for (std::int64_t j = k + 1; j < columns; ++j) {
        T* const other = panel.data() + j * rows;
        subtract_sum(other + k + 1, column + k + 1, 0, other + k, 0, 1, rows - k - 1);
      }
    }
    store_columns(a + begin * n + begin, n, panel.data(), rows, columns);
    // The panel's rows right of it, then everything below.
    for (std::int64_t i = begin + 1; i < end; ++i)
      subtract_sum(a + i * n + end, a + begin * n + end, n, a + i * n + begin, 1, i - begin, n - end);
    subtract_product<T>({a + end * n + end, n, 1}, {a + end * n + begin, n, 1}, {a + begin * n + end, n, 1}, n - end,
                        n - end, end - begin);
  }
  return sign;
}

/// b (n, m) = t⁻¹ b in place for a triangle t, its diagonal ones if `unit`: what panels of rows solved before
/// contribute to one, then within it.
template <class T>
void substitute(Block<const T> t, bool upper, bool unit, T* b, std::int64_t n, std::int64_t m) {
  const auto row = [&](std::int64_t i) { return b + i * m; };
  const auto entry = [&](std::int64_t i, std::int64_t k) { return t.data + i * t.row + k * t.column; };
  const std::int64_t panels = (n + kPanel - 1) / kPanel;
  for (std::int64_t p = 0; p < panels; ++p) {
    const std::int64_t begin = (upper ? panels - 1 - p : p) * kPanel, end = std::min(begin + kPanel, n);
    const std::int64_t from = upper ? end : 0, count = upper ? n - end : begin;
    if (count > 0)
      subtract_product<T>({row(begin), m, 1}, {entry(begin, from), t.row, t.column}, {row(from), m, 1}, end - begin, m,
                          count);
    parallel_for(0, m, 1 + kGrain / (kPanel * kPanel), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t done = 0; done < end - begin; ++done) {
        const std::int64_t i = upper ? end - 1 - done : begin + done, k = upper ? i + 1 : begin;
        T* const here = row(i) + first;
        if (done > 0) subtract_sum(here, row(k) + first, m, entry(i, k), t.column, done, last - first);
        if (unit) continue;
        const T pivot = *entry(i, i);
        for (std::int64_t j = 0; j < last - first; ++j) here[j] /= pivot;
      }
    });
  }
}

/// b (n, m) = (L U)⁻¹ P b in place, or that of the transpose, Pᵀ (Uᵀ Lᵀ)⁻¹ b.
template <class T>
void solve_factored(const T* lu, const std::int64_t* pivots, T* b, std::int64_t n, std::int64_t m, bool transposed) {
  const auto exchange = [&](std::int64_t k) {
    if (pivots[k] != k) std::swap_ranges(b + k * m, b + k * m + m, b + pivots[k] * m);
  };
  if (transposed) {
    substitute<T>({lu, 1, n}, false, false, b, n, m);
    substitute<T>({lu, 1, n}, true, true, b, n, m);
    for (std::int64_t k = n; k-- > 0;) exchange(k);
  } else {
    for (std::int64_t k = 0; k < n; ++k) exchange(k);
    substitute<T>({lu, n, 1}, false, true, b, n, m);
    substitute<T>({lu, n, 1}, true, false, b, n, m);
  }
}

[[noreturn, gnu::cold]] void fail_singular(bool inverts, std::int64_t element, std::int64_t pivot) {
  ATHANOR_THROW(LinAlgError, inverts ? "linalg.inv" : "linalg.solve", element >= 0 ? ": (Batch element " : "",
                element >= 0 ? std::to_string(element) + ")" : "", ": The diagonal element ", pivot + 1,
                " is zero, the ", inverts ? "inversion" : "solve",
                " could not be completed because the input matrix is singular.");
}

template <class T>
void solve(const View& out, const View& lu, const View& pivots, const View& a, const View& b, bool inverts) {
  const std::int64_t n = a.size(-1), m = b.size(-1), batch = batch_of(out);
  parallel_for(0, batch, 1 + kGrain / (n * n * (n + m) + 1), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      T* const factors = lu.ptr<T>() + i * n * n;
      T* const x = out.ptr<T>() + i * n * m;
      std::int64_t* const rows = pivots.ptr<std::int64_t>() + i * n;
      load(factors, a, i);
      load(x, b, i);
      std::int64_t singular = -1;
      factor_lu(factors, n, rows, singular);
      if (singular >= 0) fail_singular(inverts, batch > 1 ? i : -1, singular);
      solve_factored(factors, rows, x, n, m, false);
    }
  });
}

template <class T>
void solve_again(const View& out, const View& lu, const View& pivots, const View& b, bool transposed) {
  const std::int64_t n = lu.size(-1), m = b.size(-1), batch = batch_of(out);
  parallel_for(0, batch, 1 + kGrain / (n * n * m + 1), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      T* const x = out.ptr<T>() + i * n * m;
      load(x, b, i);
      solve_factored(lu.ptr<T>() + i * n * n, pivots.ptr<std::int64_t>() + i * n, x, n, m, transposed);
    }
  });
}

/// Without `logabs`, `sign` is the determinants themselves.
template <class T>
void slogdet(const View& sign, const View& logabs, const View& factors, const View& pivots, const View& a) {
  const std::int64_t n = a.size(-1), batch = batch_of(a);
  parallel_for(0, batch, 1 + kGrain / (n * n * n + 1), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      T* const lu = factors.ptr<T>() + i * n * n;
      load(lu, a, i);
      std::int64_t singular = -1;
      T s = static_cast<T>(factor_lu(lu, n, pivots.ptr<std::int64_t>() + i * n, singular)), total = 0;
      double product = static_cast<double>(s);  // of more range than float: a part of it may overflow
      for (std::int64_t k = 0; k < n; ++k) {
        const T u = lu[k * n + k];
        if (u < 0) s = -s;
        if (logabs.defined())
          total += std::log(std::abs(u));
        else
          product *= static_cast<double>(u);
      }
      if (!logabs.defined()) {
        sign.ptr<T>()[i] = singular >= 0 && !std::isnan(product) ? T(0) : static_cast<T>(product);
        continue;
      }
      if (singular >= 0) {
        s = 0;
        total = -std::numeric_limits<T>::infinity();
      }
      // The outputs are contiguous.
      sign.ptr<T>()[i] = s;
      logabs.ptr<T>()[i] = total;
    }
  });
}

template <class T>
void cholesky(const View& out, const View& a, const char* op) {
  const std::int64_t n = a.size(-1), batch = batch_of(a);
  parallel_for(0, batch, 1 + kGrain / (n * n * n + 1), [&](std::int64_t first, std::int64_t last) {
    std::vector<T> l(static_cast<std::size_t>(n * n));
    for (std::int64_t b = first; b < last; ++b) {
      load(l.data(), a, b);
      std::vector<T> panel(static_cast<std::size_t>(n * std::min(n, kPanel)));
      for (std::int64_t start = 0; start < n; start += kPanel) {
        const std::int64_t end = std::min(start + kPanel, n), rows = n - start, columns = end - start;
        T* const from = l.data() + start * n;
        subtract_product<T>({from + start, n, 1}, {from, n, 1}, {from, 1, n}, rows, columns, start);
        load_columns(panel.data(), from + start, n, rows, columns);
        for (std::int64_t j = 0; j < columns; ++j) {
          T* const column = panel.data() + j * rows;
          ATHANOR_CHECK_TYPE(LinAlgError, column[j] > 0, op, batch > 1 ? ": (Batch element " : "",
                             batch > 1 ? std::to_string(b) + ")" : "",
                             ": The factorization could not be completed because the input is not positive-definite ",
                             "(the leading minor of order ", start + j + 1, " is not positive-definite).");
          column[j] = std::sqrt(column[j]);
          for (std::int64_t i = j + 1; i < rows; ++i) column[i] /= column[j];
          for (std::int64_t k = j + 1; k < columns; ++k)
            subtract_sum(panel.data() + k * rows + k, column + k, 0, column + k, 0, 1, rows - k);
          std::fill_n(column, j, T(0));
        }
        store_columns(from + start, n, panel.data(), rows, columns);
        for (std::int64_t i = start; i < end; ++i) std::fill(l.data() + i * n + end, l.data() + i * n + n, T(0));
      }
      store(out, b, l);
    }
  });
}

void solve_cpu(const View& out, const View& lu, const View& pivots, const View& a, const View& b, bool inverts) {
  (out.dtype == DType::Float ? solve<float> : solve<double>)(out, lu, pivots, a, b, inverts);
}
void solve_again_cpu(const View& out, const View& lu, const View& pivots, const View& b, bool transposed) {
  (out.dtype == DType::Float ? solve_again<float> : solve_again<double>)(out, lu, pivots, b, transposed);
}
void slogdet_cpu(const View& sign, const View& logabs, const View& lu, const View& pivots, const View& a) {
  (a.dtype == DType::Float ? slogdet<float> : slogdet<double>)(sign, logabs, lu, pivots, a);
}
void cholesky_cpu(const View& out, const View& a, const char* op) {
  out.dtype == DType::Float ? cholesky<float>(out, a, op) : cholesky<double>(out, a, op);
}

ATHANOR_REGISTER_KERNEL(solve_kernel, CPU, &solve_cpu);
ATHANOR_REGISTER_KERNEL(solve_again_kernel, CPU, &solve_again_cpu);
ATHANOR_REGISTER_KERNEL(slogdet_kernel, CPU, &slogdet_cpu);
ATHANOR_REGISTER_KERNEL(cholesky_kernel, CPU, &cholesky_cpu);

}  // namespace
}  // namespace athanor::cpu
