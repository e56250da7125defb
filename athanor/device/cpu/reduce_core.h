#pragma once
/// Reductions of any geometry, on top of a few functions per operation that fold dense memory into states.
///
/// A state is what is known of one output so far. The work is cut by size only, and states are joined in a fixed order,
/// so results do not depend on the number of threads.

#include <cstdint>

#include "athanor/tensor/view.h"

namespace athanor::cpu {

/// Greatest number of columns that Reducer::columns takes.
inline constexpr std::int64_t kReduceStrip = 1024;

struct Reducer {
  DType compute;  ///< dtype of the dense elements that rows and columns read
  DType result;   ///< dtype that finish writes
  std::int64_t state_size;
  void (*init)(void* states, std::int64_t count);
  /// states[r] += the n elements from in + r * stride on.
  void (*rows)(void* states, const void* in, std::int64_t stride, std::int64_t rows, std::int64_t n, double param);
  /// states[c] += in[r * stride + c] for all r < rows.
  void (*columns)(void* states, const void* in, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                  double param);
  /// states[i] += others[i], which saw later elements.
  void (*join)(void* states, const void* others, std::int64_t count);
  /// results[i] = the value of states[i], which saw n elements.
  void (*finish)(void* results, const void* states, std::int64_t count, std::int64_t n, double param);
};

enum class Fold : std::int8_t {
  Sum,
  Prod,
  Min,
  Max,
  SumAbs,
  SumSquares,
  SumPowers,
  MinAbs,
  MaxAbs,
  NanSum,
  Moments,
  LogSumExp
};

/// The functions of the best instruction set for elements of `compute`: float32, float64 or int64; Min and Max take
/// every dtype but the halves and bool (use uint8). `finish` is left for the caller to fill.
Reducer float_reducer(Fold fold);
Reducer double_reducer(Fold fold);
Reducer integer_reducer(Fold fold, DType compute);
/// Moments and LogSumExp.
Reducer moments_reducer(DType compute);
Reducer logsumexp_reducer(DType compute);

/// State of NanSum: what was added and how many.
struct NanSumState {
  double sum;
  std::int64_t count;
};
/// State of Moments: number of elements, mean, sum of squared deviations.
struct MomentsState {
  double n, mean, m2;
};
/// State of LogSumExp: value = max + log(sum).
struct LogSumExpState {
  double max, sum;
};
/// a += b by the pairwise update of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing
/// sample variances", 1979).
inline void join_moments(MomentsState& a, const MomentsState& b) {
  if (b.n == 0) return;
  if (a.n == 0) {
    a = b;
    return;
  }
  const double n = a.n + b.n, delta = b.mean - a.mean;
  a.mean += delta * (b.n / n);
  a.m2 += b.m2 + delta * delta * (a.n * b.n / n);
  a.n = n;
}

struct ReduceOutput {
  const View* view;
  void (*finish)(void* results, const void* states, std::int64_t count, std::int64_t n, double param);
  DType result;
  int reducer;  ///< whose states it reads
};

/// One pass over `in` with `reducer_count` reducers of the same compute dtype (at most 2).
void run_reduce(const Reducer* reducers, int reducer_count, const ReduceOutput* outputs, int output_count,
                const View& in, std::uint64_t dim_mask, double param);

}  // namespace athanor::cpu
