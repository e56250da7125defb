#pragma once
/// What the decompositions of dense matrices share: matrices of columns in double, Householder reflections in blocks,
/// sequences of plane rotations. The order of every sum depends on the sizes alone.

#include <cmath>
#include <cstdint>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/ops/kernels/kernel.h"

namespace athanor::cpu::dense {

/// Multiplications for which a second thread pays.
inline constexpr std::int64_t kGrain = 1 << 15;
/// Reflections that are applied together, by products of matrices.
inline constexpr std::int64_t kBlock = 32;
inline constexpr double kRounding = 2.220446049250313e-16;

/// `count` vectors of `rows` numbers one after another: the columns of a matrix. Zeros at first.
struct Columns {
  std::int64_t count, rows;
  std::vector<double> values;
  Columns(std::int64_t n, std::int64_t m) : count(n), rows(m), values(static_cast<std::size_t>(n * m)) {}
  double* operator[](std::int64_t j) { return values.data() + j * rows; }
  const double* operator[](std::int64_t j) const { return values.data() + j * rows; }
};
Columns identity(std::int64_t columns, std::int64_t rows);

/// Number of matrices of a batch.
std::int64_t batch_of(const View& v);
/// fn(i) for each matrix i of a batch like v, of `cost` multiplications each.
template <class Fn>
void parallel_batch(const View& v, std::int64_t cost, Fn&& fn) {
  parallel_for(0, batch_of(v), 1 + kGrain / (cost + 1), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) fn(i);
  });
}
/// Matrix `index` of a batch, or its transpose.
Columns load(const View& v, std::int64_t index, bool transposed);
/// The reverse; zeros where `from` ends.
void store(const View& v, std::int64_t index, const Columns& from, bool transposed);
/// The vector `index` of a batch of vectors.
void store(const View& v, std::int64_t index, const std::vector<double>& from);

double dot(const double* x, const double* y, std::int64_t n);
/// The length of (x, y), also where squares vanish; not where they overflow.
inline double length_of(double x, double y) {
  const double r = std::sqrt(x * x + y * y);
  return r < 1e-140 ? std::hypot(x, y) : r;
}
/// y += a x.
void add_scaled(double* y, const double* x, double a, std::int64_t n);
/// A part of a matrix, with the distances of its rows and columns.
struct Part {
  double* data;
  std::int64_t row, column;
};
/// c (m, n) = beta c + alpha a (m, k) b (k, n).
void product(Part c, Part a, Part b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha, double beta);

/// Where the values are that come first, second, …: the least first, or the greatest. Equal ones keep their order.
std::vector<std::int64_t> order_of(const std::vector<double>& values, bool greatest_first);

/// H = I - tau v vᵀ with v[0] = 1 and H x = (result, 0, …): x is replaced by v (Golub & Van Loan, "Matrix
/// Computations", 5.1, with LAPACK's choice of sign). n ≥ 1.
double reflect(double* x, std::int64_t n, double& tau);

/// H_0 H_1 …, each I - tau v vᵀ; v[j] is 1 at row j + shift and 0 before.
struct Reflections {
  std::int64_t shift;
  Columns v;
  std::vector<double> tau;
  Reflections(std::int64_t count, std::int64_t rows, std::int64_t distance)
      : shift(distance), v(count, rows), tau(static_cast<std::size_t>(count)) {}
};
/// c = H_0 H_1 … c, by the blocked form of Schreiber & Van Loan, "A storage-efficient WY representation for products of
/// Householder transformations", 1989. `is_identity` says that c is the first columns of one, which saves a third.
void apply(const Reflections& h, Columns& c, bool is_identity);
/// The first columns of H_0 H_1 ….
Columns columns_of(const Reflections& h, std::int64_t columns);
/// a becomes R, upper triangular, of a = H_0 H_1 … R.
Reflections factor_qr(Columns& a);

/// Rotations of neighbouring columns, kept until there are enough to apply them to all rows at once: columns first + i
/// and first + i + 1 become c x + s y and c y - s x, i by i.
class Rotations {
 public:
  /// Null: nothing is to be rotated.
  explicit Rotations(Columns* columns) : columns_(columns) {}
  void begin(std::int64_t first) {
    if (columns_) sweeps_.push_back({first, static_cast<std::int64_t>(turns_.size())});
  }
  void add(double c, double s) {
    if (columns_) turns_.push_back({c, s});
  }
  /// Call between sweeps; applies what is there, if it is much or `now`.
  void flush(bool now);

 private:
  struct Sweep {
    std::int64_t first, at;
  };
  struct Turn {
    double c, s;
  };
  void apply_to_rows(std::int64_t begin, std::int64_t end);

  Columns* columns_;
  std::vector<Sweep> sweeps_;
  std::vector<Turn> turns_;
};

/// w (n, n) = u diag(s) vᵀ by bidiagonalization; s is neither sorted nor scaled against overflow. Without `vectors` w
/// and v are left undefined. False if the iteration did not end.
bool decompose_bidiagonal(Columns& w, std::vector<double>& s, Columns& v, bool vectors);

}  // namespace athanor::cpu::dense
