#pragma once
/// Vector code of softmax and cross entropy on dense float32 or float64.

#include "athanor/device/cpu/line_driver.h"

namespace athanor::cpu {

/// softmax, log_softmax: a is the input. Their gradients: a is the gradient, b the output.
enum class SoftmaxKind : std::int8_t { Softmax, LogSoftmax, SoftmaxBackward, LogSoftmaxBackward };
LineFns softmax_fns(SoftmaxKind kind, DType compute);

struct CrossEntropyFns {
  /// log sum exp of n dense elements; if weight or `sum_all`, also dot = sum weight[c] x[c] (weight 1 if null).
  void (*row)(const void* x, const void* weight, std::int64_t n, bool sum_all, double* lse, double* dot);
  /// d[c] = exp(x[c] - lse) * a - weight[c] * b, weight 1 if null.
  void (*backward)(void* d, const void* x, const void* weight, std::int64_t n, double lse, double a, double b);
};
CrossEntropyFns cross_entropy_fns(DType compute);

}  // namespace athanor::cpu
