// The reduction kernels: which fold and which last step each operation is.
#include "athanor/ops/kernels/reduce.h"

#include <cmath>
#include <limits>

#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/reduce_core.h"

namespace athanor::cpu {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using Finish = void (*)(void*, const void*, std::int64_t, std::int64_t, double);

/// results[i] = F(states[i], n, param).
template <class State, class Result, Result (*F)(const State&, double n, double param)>
void finish_with(void* results, const void* states, std::int64_t count, std::int64_t n, double param) {
  auto* r = static_cast<Result*>(results);
  const auto* s = static_cast<const State*>(states);
  for (std::int64_t i = 0; i < count; ++i) r[i] = F(s[i], static_cast<double>(n), param);
}
template <class T>
T keep(const T& s, double, double) {
  return s;
}
double mean_of_sum(const double& s, double n, double) { return s / n; }
double root(const double& s, double, double p) { return std::pow(s, 1 / p); }
double square_root(const double& s, double, double) { return std::sqrt(s); }
double nan_sum(const NanSumState& s, double, double) { return s.sum; }
double nan_mean(const NanSumState& s, double, double) { return s.sum / static_cast<double>(s.count); }
double variance(const MomentsState& s, double n, double correction) {
  return s.n == 0 ? kNaN : s.m2 / (n - correction > 0 ? n - correction : 0);
}
double deviation(const MomentsState& s, double n, double correction) { return std::sqrt(variance(s, n, correction)); }
double mean_of_moments(const MomentsState& s, double, double) { return s.n == 0 ? kNaN : s.mean; }
double log_sum(const LogSumExpState& s, double, double) {
  return s.sum == 0 ? -std::numeric_limits<double>::infinity() : s.max + std::log(s.sum);
}

constexpr Finish kKeepDouble = &finish_with<double, double, &keep<double>>;
constexpr Finish kKeepLong = &finish_with<std::int64_t, std::int64_t, &keep<std::int64_t>>;

Finish keep_finish(DType t) {
  switch (t) {
    case DType::Byte:
      return &finish_with<std::uint8_t, std::uint8_t, &keep<std::uint8_t>>;
    case DType::Char:
      return &finish_with<std::int8_t, std::int8_t, &keep<std::int8_t>>;
    case DType::Short:
      return &finish_with<std::int16_t, std::int16_t, &keep<std::int16_t>>;
    case DType::Int:
      return &finish_with<std::int32_t, std::int32_t, &keep<std::int32_t>>;
    case DType::Long:
      return kKeepLong;
    case DType::Double:
      return kKeepDouble;
    default:
      return &finish_with<float, float, &keep<float>>;
  }
}

Reducer reducer_for(Fold fold, DType compute) {
  if (fold == Fold::Moments) return moments_reducer(compute);
  if (fold == Fold::LogSumExp) return logsumexp_reducer(compute);
  if (compute == DType::Double) return double_reducer(fold);
  if (compute == DType::Float) return float_reducer(fold);
  return integer_reducer(fold, compute);
}

void run_one(Fold fold, DType compute, Finish finish, const View& out, const View& in, std::uint64_t mask,
             double param) {
  const Reducer reducer = reducer_for(fold, compute);
  const ReduceOutput output{&out, finish ? finish : keep_finish(reducer.result),
                            !finish ? reducer.result : DType::Double, 0};
  run_reduce(&reducer, 1, &output, 1, in, mask, param);
}

/// Compute dtype of a sum or product written to `out`.
DType summing_dtype(DType out) {
  if (out == DType::Double) return DType::Double;
  return is_floating_point(out) ? DType::Float : DType::Long;
}

/// `v` with its bools called uint8, of which they are the values 0 and 1.
View as_bytes(View v) {
  if (v.dtype == DType::Bool) v.dtype = DType::Byte;
  return v;
}

DType extreme_dtype(DType in) { return in == DType::Bool ? DType::Byte : computing_dtype(in); }

void require(bool ok, const char* op, const View& out, const View& in) {
  ATHANOR_CHECK_TYPE(TypeError, ok, op, ": cannot reduce ", dtype_name(in.dtype), " to ", dtype_name(out.dtype));
}

bool reduces_nothing_to_something(const View& in, std::uint64_t mask) {
  bool empty = false;
  for (int d = 0; d < in.ndim; ++d) {
    if (in.sizes[d] != 0) continue;
    if (!(mask >> d & 1)) return false;
    empty = true;
  }
  return empty;
}

void require_elements(const char* op, const View& in, std::uint64_t mask) {
  ATHANOR_CHECK_INDEX(!reduces_nothing_to_something(in, mask), op,
                      ": expected a reduced dim of size greater than 0, got shape ", in.shape(),
                      "; an extreme of nothing is not defined");
}

void reduce_extreme(ReduceOp op, const View& out, const View& in, std::uint64_t mask) {
  const char* name = op == ReduceOp::Max ? "max" : "min";
  require(out.dtype == in.dtype, name, out, in);
  require_elements(name, in, mask);
  run_one(op == ReduceOp::Max ? Fold::Max : Fold::Min, extreme_dtype(in.dtype), nullptr, as_bytes(out), as_bytes(in),
          mask, 0);
}

/// Any and All are the greatest and least of the elements' truth values.
void reduce_truth(bool any, const View& out, const View& in, std::uint64_t mask) {
  require(out.dtype == DType::Bool || out.dtype == DType::Byte, any ? "any" : "all", out, in);
  if (reduces_nothing_to_something(in, mask)) {
    // The identity of a byte's minimum is 255, but "all" of nothing is 1.
    return run_one(any ? Fold::Sum : Fold::Prod, DType::Long, nullptr, as_bytes(out), in, mask, 0);
  }
  Reducer reducer = integer_reducer(any ? Fold::Max : Fold::Min, DType::Byte);
  const View to = as_bytes(out);
  const ReduceOutput output{&to, keep_finish(DType::Byte), DType::Byte, 0};
  if (in.dtype != DType::Bool) reducer.compute = DType::Bool;  // elements are converted to truth values first
  run_reduce(&reducer, 1, &output, 1, in.dtype == DType::Bool ? as_bytes(in) : in, mask, 0);
}

void count_nonzero(const View& out, const View& in, std::uint64_t mask);

void reduce_norm(const View& out, const View& in, std::uint64_t mask, double p) {
  const DType t = summing_dtype(out.dtype);
  if (p == 0) return count_nonzero(out, in, mask);
  if (p == 1) return run_one(Fold::SumAbs, t, nullptr, out, in, mask, p);
  if (p == 2) return run_one(Fold::SumSquares, t, &finish_with<double, double, &square_root>, out, in, mask, p);
  if (std::isinf(p)) {
    if (p < 0) require_elements("norm", in, mask);
    return run_one(p > 0 ? Fold::MaxAbs : Fold::MinAbs, t, nullptr, out, in, mask, p);
  }
  run_one(Fold::SumPowers, t, &finish_with<double, double, &root>, out, in, mask, p);
}

/// Sums truth values: in blocks, each converted to bool and summed as integers.
void count_nonzero(const View& out, const View& in, std::uint64_t mask) {
  if (in.dtype == DType::Bool) return run_one(Fold::Sum, DType::Long, nullptr, out, in, mask, 0);
  Reducer reducer = integer_reducer(Fold::Sum, DType::Long);
  reducer.compute = DType::Bool;
  reducer.rows = [](void* states, const void* elements, std::int64_t stride, std::int64_t rows, std::int64_t n,
                    double) {
    const auto* p = static_cast<const std::uint8_t*>(elements);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < n; ++i) count += p[r * stride + i];
      static_cast<std::int64_t*>(states)[r] += count;
    }
  };
  reducer.columns = [](void* states, const void* elements, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                       double) {
    const auto* p = static_cast<const std::uint8_t*>(elements);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) static_cast<std::int64_t*>(states)[c] += p[r * stride + c];
  };
  const ReduceOutput output{&out, kKeepLong, DType::Long, 0};
  run_reduce(&reducer, 1, &output, 1, in, mask, 0);
}

void reduce_sum(ReduceOp op, const View& out, const View& in, std::uint64_t mask) {
  if (out.dtype == DType::Bool) return reduce_truth(op != ReduceOp::Prod, out, in, mask);
  const DType t = summing_dtype(out.dtype);
  if (op == ReduceOp::NanSum && t != DType::Long)
    return run_one(Fold::NanSum, t, &finish_with<NanSumState, double, &nan_sum>, out, in, mask, 0);
  run_one(op == ReduceOp::Prod ? Fold::Prod : Fold::Sum, t, nullptr, out, in, mask, 0);
}

void reduce_cpu(ReduceOp op, const View& out, const View& in, std::uint64_t mask, double param) {
  const DType t = summing_dtype(out.dtype);
  if (op == ReduceOp::Mean || (op >= ReduceOp::Var && op <= ReduceOp::LogSumExp) || op == ReduceOp::NanMean) {
    const char* names[] = {"sum", "mean", "prod", "min",       "max",    "any",    "all",
                           "var", "std",  "norm", "logsumexp", "nansum", "nanmean"};
    require(is_floating_point(out.dtype), names[static_cast<int>(op)], out, in);
  }
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::NanSum:
    case ReduceOp::Prod:
      return reduce_sum(op, out, in, mask);
    case ReduceOp::Mean:
      return run_one(Fold::Sum, t, &finish_with<double, double, &mean_of_sum>, out, in, mask, 0);
    case ReduceOp::NanMean:
      return run_one(Fold::NanSum, t, &finish_with<NanSumState, double, &nan_mean>, out, in, mask, 0);
    case ReduceOp::Min:
    case ReduceOp::Max:
      return reduce_extreme(op, out, in, mask);
    case ReduceOp::Any:
      return reduce_truth(true, out, in, mask);
    case ReduceOp::All:
      return reduce_truth(false, out, in, mask);
    case ReduceOp::Var:
      return run_one(Fold::Moments, t, &finish_with<MomentsState, double, &variance>, out, in, mask, param);
    case ReduceOp::Std:
      return run_one(Fold::Moments, t, &finish_with<MomentsState, double, &deviation>, out, in, mask, param);
    case ReduceOp::Norm:
      return reduce_norm(out, in, mask, param);
    case ReduceOp::LogSumExp:
      return run_one(Fold::LogSumExp, t, &finish_with<LogSumExpState, double, &log_sum>, out, in, mask, 0);
    case ReduceOp::CountNonzero:
      return count_nonzero(out, in, mask);
  }
}

void min_max_cpu(const View& min, const View& max, const View& in, std::uint64_t mask) {
  require(min.dtype == in.dtype && max.dtype == in.dtype, "aminmax", min, in);
  require_elements("aminmax", in, mask);
  const DType t = extreme_dtype(in.dtype);
  const Reducer reducers[2] = {reducer_for(Fold::Min, t), reducer_for(Fold::Max, t)};
  const View views[2] = {as_bytes(min), as_bytes(max)};
  const ReduceOutput outputs[2] = {{&views[0], keep_finish(t), t, 0}, {&views[1], keep_finish(t), t, 1}};
  run_reduce(reducers, 2, outputs, 2, as_bytes(in), mask, 0);
}

void var_mean_cpu(const View& var, const View& mean, const View& in, std::uint64_t mask, double correction, bool std) {
  require(is_floating_point(var.dtype) && var.dtype == mean.dtype, "var_mean", var, in);
  const Reducer reducer = moments_reducer(summing_dtype(var.dtype));
  const Finish spread =
      std ? &finish_with<MomentsState, double, &deviation> : &finish_with<MomentsState, double, &variance>;
  const ReduceOutput outputs[2] = {{&var, spread, DType::Double, 0},
                                   {&mean, &finish_with<MomentsState, double, &mean_of_moments>, DType::Double, 0}};
  run_reduce(&reducer, 1, outputs, 2, in, mask, correction);
}

}  // namespace

ATHANOR_REGISTER_KERNEL(reduce_kernel, CPU, &reduce_cpu);
ATHANOR_REGISTER_KERNEL(min_max_kernel, CPU, &min_max_cpu);
ATHANOR_REGISTER_KERNEL(var_mean_kernel, CPU, &var_mean_cpu);

}  // namespace athanor::cpu
