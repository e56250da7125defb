#pragma once
/// Seam of the reductions.
///
/// Geometry. Bit d of `dim_mask` set: dim d of `in` is reduced. `out` has in's shape with the reduced dims of size 1
/// (keepdim). All strides are allowed on both sides, including stride 0 on `in`. Outputs share no memory with inputs,
/// except that a call whose reduced dims all have size 1 may write over its input.
///
/// Values. Sums of float32 are formed in blocks of float32 lanes whose results are added in float64 and rounded once;
/// halves likewise from float32; integers wrap. The result does not depend on the number of threads. Thread-safe;
/// parallel inside for large inputs.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

/// The reduction of a set of elements x. Of an empty set: Sum, NanSum, CountNonzero 0; Prod 1; Any false; All true;
/// Mean, NanMean, Var, Std NaN; LogSumExp -inf; Norm 0 for p >= 0. Min and Max of nothing throw IndexError.
///
/// Dtypes of (in, out). Sum, Prod, NanSum: `in` any, `out` any; elements are converted to the computing type of `out`
/// (float32 for floating dtypes but float64, float64, or int64) before they are combined; bool out means "non-zero".
/// Mean, NanMean, Var, Std, Norm, LogSumExp: `out` floating, `in` any. Min, Max: out's dtype is in's; NaN propagates;
/// bool is "and"/"or". Any, All: `in` any, `out` bool or uint8; NaN counts as true. CountNonzero: `in` any, out int64.
///
/// param: Var and Std: the correction c, sum (x - mean)^2 / max(0, n - c). Norm: p; 0 counts the non-zero elements,
/// +inf and -inf are the greatest and least |x|, any other p gives (sum |x|^p)^(1/p). Others: not read.
enum class ReduceOp : std::int8_t {
  Sum,
  Mean,
  Prod,
  Min,
  Max,
  Any,
  All,
  Var,
  Std,
  Norm,
  LogSumExp,
  NanSum,   ///< NaN counts as 0
  NanMean,  ///< the mean of those that are not NaN
  CountNonzero
};
extern Kernel<void(ReduceOp op, const View& out, const View& in, std::uint64_t dim_mask, double param)> reduce_kernel;

/// Min and Max in one pass; dtypes as there.
extern Kernel<void(const View& min, const View& max, const View& in, std::uint64_t dim_mask)> min_max_kernel;

/// Var (or Std, with `std`) with `correction`, and Mean, in one pass; dtypes as there, both outputs of one dtype.
extern Kernel<void(const View& var, const View& mean, const View& in, std::uint64_t dim_mask, double correction,
                   bool std)>
    var_mean_kernel;

enum class ArgReduceOp : std::int8_t { Max, Min };
/// Value and place of the extreme along `dim`. `values` (in's dtype) and `indices` (int64) have in's shape with size 1
/// at `dim`; either may be an undefined View. The first occurrence wins; NaN is greater than any number for Max and
/// smaller for Min. A 0-d `in` counts as 1-d. Throws IndexError if the dim is empty while the output is not.
extern Kernel<void(ArgReduceOp op, const View& values, const View& indices, const View& in, std::int64_t dim)>
    arg_reduce_kernel;

}  // namespace athanor
