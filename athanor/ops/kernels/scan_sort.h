#pragma once
/// Seam of scans along a dim, sorting and counting.
///
/// Common rules. All strides are allowed. A 0-d input counts as 1-d with one element. Indices are int64 positions along
/// `dim`. Order: NaN is greater than every number, -0 equals +0, false < true. Outputs share no memory with inputs
/// unless said otherwise. Thread-safe; parallel inside; results do not depend on the number of threads.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

/// CumSum and CumProd: `in` any dtype, `out` any; elements are converted to out's dtype first (half types accumulate in
/// float32 and round each result; bool out is refused with NotImplementedError). LogCumSumExp: one floating dtype.
enum class ScanOp : std::int8_t { CumSum, CumProd, LogCumSumExp };
/// out[i] = in[0] op … op in[i] along `dim`; with `reverse`, in[i] op … op in[last]. out may be in.
extern Kernel<void(ScanOp op, const View& out, const View& in, std::int64_t dim, bool reverse)> scan_kernel;

enum class ScanExtremeOp : std::int8_t { CumMax, CumMin };
/// Running extreme and the place of its latest occurrence. Once a NaN was met it stays. values: in's dtype.
extern Kernel<void(ScanExtremeOp op, const View& values, const View& indices, const View& in, std::int64_t dim)>
    scan_extreme_kernel;

/// Sorts along `dim`. `values` has in's dtype and shape, `indices` the shape; either may be undefined. Ascending puts
/// NaN last, descending first. The sort is stable, in both directions, whether asked for or not.
extern Kernel<void(const View& values, const View& indices, const View& in, std::int64_t dim, bool descending)>
    sort_kernel;

/// The k = values.size(dim) greatest (or least) elements along `dim`; of equals those of lower index. With `sorted`
/// best first (equals by index); without, in the order of their indices. Both outputs are required. k <= in.size(dim).
extern Kernel<void(const View& values, const View& indices, const View& in, std::int64_t dim, bool largest,
                   bool sorted)>
    topk_kernel;

/// The element that is k-th (1-based) in ascending order, and its index (the lowest of equals). Outputs have size 1 at
/// `dim`. 1 <= k <= in.size(dim).
extern Kernel<void(const View& values, const View& indices, const View& in, std::int64_t k, std::int64_t dim)>
    kthvalue_kernel;

/// The lower median along `dim` (not empty) and an index of it. NaN if the line has one, unless `ignore_nan`.
extern Kernel<void(const View& values, const View& indices, const View& in, std::int64_t dim, bool ignore_nan)>
    median_kernel;

/// The most frequent value along `dim` (not empty; the least of equals) and the index of its last occurrence.
extern Kernel<void(const View& values, const View& indices, const View& in, std::int64_t dim)> mode_kernel;

/// The distinct values of `in` (n elements, row-major order). values (n elements, in's dtype, contiguous) receives them
/// in ascending order, or, with `consecutive`, the first of each run of equals in order; inverse (in's shape, int64)
/// the place of each element's value among them; counts (n elements, int64, contiguous) how often each occurs; count
/// (int64, one element) their number. inverse and counts may be undefined. What lies beyond `count` is unspecified.
/// NaNs are all distinct.
extern Kernel<void(const View& values, const View& inverse, const View& counts, const View& count, const View& in,
                   bool consecutive)>
    unique_kernel;

/// The same for the rows of a contiguous 2-d `in`, compared lexicographically: rows (shape of `in`, contiguous)
/// receives the distinct rows; inverse and counts have in.size(0) elements and may be undefined.
extern Kernel<void(const View& rows, const View& inverse, const View& counts, const View& count, const View& in,
                   bool consecutive)>
    unique_rows_kernel;

/// Where each of `values` would go in the ascending `sequence`, which is 1-d or has the shape of `values` but for the
/// last dim: the first place whose element is >= the value, or > with `right`. sequence and values share one dtype; out
/// (values' shape) is int64 or int32. `sorter` (undefined, or int64 of sequence's shape) gives the order that sorts it.
extern Kernel<void(const View& out, const View& sequence, const View& values, const View& sorter, bool right)>
    searchsorted_kernel;

/// out (1-d, bins elements, in's dtype, or float64 or int64) counts the elements in each of equal bins between lo < hi,
/// both ends included; others, and NaN, are not counted. `in`: any dtype but bool, any shape.
extern Kernel<void(const View& out, const View& in, double lo, double hi)> histc_kernel;

/// out (1-d, contiguous) [v] = how many elements of `in` (integers) are v: int64; or the sum of their `weights` (in's
/// shape, same dtype as out: float32 or float64). Throws IndexError for elements outside [0, out.numel).
extern Kernel<void(const View& out, const View& in, const View& weights)> bincount_kernel;

}  // namespace athanor
