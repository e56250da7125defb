#pragma once
/// Seam of tensors made from a rule. Outputs may have any strides. Thread-safe; parallel inside for large outputs.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

/// out[i] = start + i * step, i in row-major order; every dtype but bool. Integers: in int64, start and step truncated
/// to it, wrapping. Floating dtypes: in float64, rounded once to out's dtype.
extern Kernel<void(const View& out, Scalar start, Scalar step)> arange_kernel;

/// n = out.numel values evenly from start to end, both reached exactly; every dtype but bool. With step = (end - start)
/// / (n - 1), the first half (n / 2 values) is start + i * step and the rest end - (n - 1 - i) * step, so a range that
/// is symmetric about 0 stays so. Computed in float64 and rounded once; integers truncate start and end first and each
/// value then. One value is start.
extern Kernel<void(const View& out, Scalar start, Scalar end)> linspace_kernel;

/// out: Int or Long [2, n], the coordinates of the elements of a `rows` by `columns` matrix on or below (upper: on or
/// above) diagonal `offset`, in row-major order; n is triangle_size().
extern Kernel<void(const View& out, std::int64_t rows, std::int64_t columns, std::int64_t offset, bool upper)>
    triangle_indices_kernel;

/// Elements of a lower (upper) triangle, as above. Sizes are not negative. Throws Error if they do not fit int64.
std::int64_t triangle_size(std::int64_t rows, std::int64_t columns, std::int64_t offset, bool upper);

/// First and past-the-last column of row i of that triangle.
struct TriangleRow {
  std::int64_t begin, end;
};
inline TriangleRow triangle_row(std::int64_t i, std::int64_t columns, std::int64_t offset, bool upper) {
  // The diagonal meets row i at column i + offset; both terms may be huge.
  std::int64_t at = 0;
  if (__builtin_add_overflow(i, offset, &at)) at = columns;
  if (upper) return {at < 0 ? 0 : at > columns ? columns : at, columns};
  return {0, at < 0 ? 0 : at >= columns ? columns : at + 1};
}

}  // namespace athanor
