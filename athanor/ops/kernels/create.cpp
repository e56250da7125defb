#include "athanor/ops/kernels/create.h"

#include <algorithm>

namespace athanor {

using In = const View&;
constinit Kernel<void(In, Scalar, Scalar)> arange_kernel{"arange"};
constinit Kernel<void(In, Scalar, Scalar)> linspace_kernel{"linspace"};
constinit Kernel<void(In, std::int64_t, std::int64_t, std::int64_t, bool)> triangle_indices_kernel{"triangle_indices"};

namespace {

/// Elements on or below diagonal `offset`.
__extension__ using Wide = __int128;
Wide lower_size(Wide rows, Wide columns, Wide offset) {
  const Wide first = std::clamp<Wide>(-offset, 0, rows);                  // the first row that has any
  const Wide full = std::clamp<Wide>(columns - offset - 1, first, rows);  // the first row that has all
  const Wide shortest = first + offset + 1;                               // of the rows between
  return (full - first) * (2 * shortest + full - first - 1) / 2 + (rows - full) * columns;
}

}  // namespace

std::int64_t triangle_size(std::int64_t rows, std::int64_t columns, std::int64_t offset, bool upper) {
  const Wide below = columns == 0 ? 0 : lower_size(rows, columns, upper ? Wide(offset) - 1 : Wide(offset));
  const Wide size = upper ? Wide(rows) * columns - below : below;
  ATHANOR_CHECK(size <= INT64_MAX / 2, upper ? "triu" : "tril", "_indices: the triangle of a ", rows, " by ", columns,
                " matrix has too many elements");
  return static_cast<std::int64_t>(size);
}

}  // namespace athanor
