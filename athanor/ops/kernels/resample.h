#pragma once
/// Seam of linear maps along one dim, by which images are resized.

#include <memory>
#include <vector>

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

/// A sparse matrix by rows: row r is the sum of weight[k] * source[at[k]] for k in [begin[r], begin[r + 1]).
struct ResampleTable {
  std::int64_t sources = 0;
  std::vector<std::int64_t> begin{0}, at;
  std::vector<double> weight;
  std::int64_t rows() const { return static_cast<std::int64_t>(begin.size()) - 1; }
  /// The entries of every row if all have as many, else 0.
  std::int64_t taps() const;
  /// Its transpose, rows in order of their sources.
  ResampleTable transposed() const;
};
using ResampleTableRef = std::shared_ptr<const ResampleTable>;

/// out = the table applied to every line of `in` along the dim that has `inner` elements after it in memory. Both are
/// dense with one order of dims, Float or Double. Thread-safe; parallel inside.
extern Kernel<void(const View& out, const View& in, std::int64_t inner, const ResampleTableRef& table)> resample_kernel;

}  // namespace athanor
