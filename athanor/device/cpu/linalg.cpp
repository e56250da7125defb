// LU and Cholesky factorizations of batches of matrices (Golub & Van Loan, "Matrix Computations", 3.2 and 4.2).
#include "athanor/ops/kernels/linalg.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "athanor/base/parallel.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kPanel = 64;       // columns eliminated at a time
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
void load(std::vector<T>& to, const View& v, std::int64_t index) {
  const MatrixView m = matrix_of(v, index);
  const std::int64_t rows = v.size(-2), columns = v.size(-1);
  to.resize(static_cast<std::size_t>(rows * columns));
  const T* from = v.ptr<T>() + m.offset;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      to[static_cast<std::size_t>(i * columns + j)] = from[i * m.row + j * m.column];
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

/// y -= a x.
template <class T>
void subtract_scaled(T* __restrict y, const T* __restrict x, T a, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] -= a * x[i];
}
/// Inner product in an order that depends on the length alone.
template <class T>
T dot(const T* x, const T* y, std::int64_t n) {
  constexpr int kParts = 16;
  T part[kParts] = {};
  std::int64_t i = 0;
  for (; i + kParts <= n; i += kParts)
    for (int j = 0; j < kParts; ++j) part[j] += x[i + j] * y[i + j];
  for (int j = 0; i < n; ++i, ++j) part[j] += x[i] * y[i];
  for (int half = kParts / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) part[j] += part[j + half];
  return part[0];
}

/// P A = L U in place, row-major; pivots[k] is the row exchanged with row k. Gives the sign of P, and the first column
/// whose pivot is zero in `singular` (-1: none). A zero pivot's column is passed over.
template <class T>
int factor_lu(T* a, std::int64_t n, std::vector<std::int64_t>& pivots, std::int64_t& singular) {
  pivots.resize(static_cast<std::size_t>(n));
  singular = -1;
  int sign = 1;
  for (std::int64_t begin = 0; begin < n; begin += kPanel) {
    const std::int64_t end = std::min(begin + kPanel, n);
    for (std::int64_t k = begin; k < end; ++k) {
      std::int64_t best = k;
      for (std::int64_t i = k + 1; i < n; ++i)
        if (std::abs(a[i * n + k]) > std::abs(a[best * n + k])) best = i;
      pivots[static_cast<std::size_t>(k)] = best;
      if (best != k) {
        std::swap_ranges(a + k * n, a + k * n + n, a + best * n);
        sign = -sign;
      }
      const T pivot = a[k * n + k];
      if (pivot == T(0)) {
        if (singular < 0) singular = k;
        continue;
      }
      for (std::int64_t i = k + 1; i < n; ++i) {
        const T l = a[i * n + k] /= pivot;
        subtract_scaled(a + i * n + k + 1, a + k * n + k + 1, l, end - k - 1);
      }
    }
    // The panel's rows right of it, then everything below: a row at a time, which stays in the first cache.
    for (std::int64_t k = begin; k < end; ++k)
      for (std::int64_t i = k + 1; i < end; ++i)
        subtract_scaled(a + i * n + end, a + k * n + end, a[i * n + k], n - end);
    parallel_for(end, n, 1 + kGrain / ((end - begin) * (n - end) + 1), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i)
        for (std::int64_t k = begin; k < end; ++k)
          subtract_scaled(a + i * n + end, a + k * n + end, a[i * n + k], n - end);
    });
  }
  return sign;
}

/// b (n, m) = (L U)⁻¹ P b in place. Columns are cut into strips, each on its own.
template <class T>
void solve_factored(const T* lu, const std::vector<std::int64_t>& pivots, T* b, std::int64_t n, std::int64_t m) {
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t other = pivots[static_cast<std::size_t>(k)];
    if (other != k) std::swap_ranges(b + k * m, b + k * m + m, b + other * m);
  }
  constexpr std::int64_t kStrip = 64;
  parallel_for(0, (m + kStrip - 1) / kStrip, 1 + kGrain / (n * n * kStrip + 1),
               [&](std::int64_t first, std::int64_t last) {
                 const std::int64_t begin = first * kStrip, width = std::min(last * kStrip, m) - begin;
                 for (std::int64_t i = 0; i < n; ++i)
                   for (std::int64_t k = 0; k < i; ++k)
                     subtract_scaled(b + i * m + begin, b + k * m + begin, lu[i * n + k], width);
                 for (std::int64_t i = n; i-- > 0;) {
                   for (std::int64_t k = i + 1; k < n; ++k)
                     subtract_scaled(b + i * m + begin, b + k * m + begin, lu[i * n + k], width);
                   for (std::int64_t j = 0; j < width; ++j) b[i * m + begin + j] /= lu[i * n + i];
                 }
               });
}

template <class T>
void solve(const View& out, const View& a, const View& b, const char* op) {
  const std::int64_t n = a.size(-1), m = b.size(-1), batch = batch_of(out);
  parallel_for(0, batch, 1 + kGrain / (n * n * (n + m) + 1), [&](std::int64_t first, std::int64_t last) {
    std::vector<T> lu, x;
    std::vector<std::int64_t> pivots;
    for (std::int64_t i = first; i < last; ++i) {
      load(lu, a, i);
      load(x, b, i);
      std::int64_t singular = -1;
      factor_lu(lu.data(), n, pivots, singular);
      ATHANOR_CHECK_TYPE(LinAlgError, singular<0, op, batch> 1 ? ": (Batch element " : "",
                         batch > 1 ? std::to_string(i) + ")" : "", ": The diagonal element ", singular + 1,
                         " is zero, the solve could not be completed because the input matrix is singular.");
      solve_factored(lu.data(), pivots, x.data(), n, m);
      store(out, i, x);
    }
  });
}

template <class T>
void slogdet(const View& sign, const View& logabs, const View& a) {
  const std::int64_t n = a.size(-1), batch = batch_of(a);
  parallel_for(0, batch, 1 + kGrain / (n * n * n + 1), [&](std::int64_t first, std::int64_t last) {
    std::vector<T> lu;
    std::vector<std::int64_t> pivots;
    for (std::int64_t i = first; i < last; ++i) {
      load(lu, a, i);
      std::int64_t singular = -1;
      T s = static_cast<T>(factor_lu(lu.data(), n, pivots, singular)), total = 0;
      for (std::int64_t k = 0; k < n; ++k) {
        const T u = lu[static_cast<std::size_t>(k * n + k)];
        if (u < 0) s = -s;
        total += std::log(std::abs(u));
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
    std::vector<T> l;
    for (std::int64_t b = first; b < last; ++b) {
      load(l, a, b);
      for (std::int64_t j = 0; j < n; ++j) {
        T* row = l.data() + j * n;
        const T rest = row[j] - dot(row, row, j);
        ATHANOR_CHECK_TYPE(
            LinAlgError, rest > 0, op, batch > 1 ? ": (Batch element " : "", batch > 1 ? std::to_string(b) + ")" : "",
            ": The factorization could not be completed because the input is not positive-definite (the ",
            "leading minor of order ", j + 1, " is not positive-definite).");
        row[j] = std::sqrt(rest);
        parallel_for(j + 1, n, 1 + kGrain / (j + 1), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            T* lower = l.data() + i * n;
            lower[j] = (lower[j] - dot(lower, row, j)) / row[j];
          }
        });
        std::fill(row + j + 1, row + n, T(0));
      }
      store(out, b, l);
    }
  });
}

void solve_cpu(const View& out, const View& a, const View& b, const char* op) {
  out.dtype == DType::Float ? solve<float>(out, a, b, op) : solve<double>(out, a, b, op);
}
void slogdet_cpu(const View& sign, const View& logabs, const View& a) {
  a.dtype == DType::Float ? slogdet<float>(sign, logabs, a) : slogdet<double>(sign, logabs, a);
}
void cholesky_cpu(const View& out, const View& a, const char* op) {
  out.dtype == DType::Float ? cholesky<float>(out, a, op) : cholesky<double>(out, a, op);
}

ATHANOR_REGISTER_KERNEL(solve_kernel, CPU, &solve_cpu);
ATHANOR_REGISTER_KERNEL(slogdet_kernel, CPU, &slogdet_cpu);
ATHANOR_REGISTER_KERNEL(cholesky_kernel, CPU, &cholesky_cpu);

}  // namespace
}  // namespace athanor::cpu
