// Windows of signal processing: int n > 0 values, "periodic" ones being the first n of n + 1 symmetric ones.
#include "athanor/ops/window.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/op.h"

namespace athanor::ops {

namespace {

/// value(i, last) for i = 0 … n - 1, where `last` ends the symmetric window; one value is 1.
template <class F>
Tensor made(const char* op, std::int64_t n, bool periodic, const TensorOptions& options, F&& value) {
  const DType type = options.dtype();
  ATHANOR_CHECK(is_floating_point(type), op, " expects floating point dtypes, got: ", type);
  ATHANOR_CHECK(n >= 0, op, " requires non-negative window_length, got window_length=", n);
  Tensor t = detail::empty_tensor({n}, DType::Double, Device());
  auto* out = static_cast<double*>(t.data_ptr());
  const std::int64_t last = periodic ? n : n - 1;
  for (std::int64_t i = 0; i < n; ++i) out[i] = n == 1 ? 1 : value(static_cast<double>(i), static_cast<double>(last));
  if (type != DType::Double) t = to_dtype(t, type);
  if (!options.device().is_host()) t = to_device(t, options.device());
  return t;
}

/// The modified Bessel function of the first kind of order 0, by its power series: all terms are positive.
double bessel_i0(double x) {
  double term = 1, total = 1;
  for (double k = 1; term > total * 1e-17; ++k) {
    term *= x * x / (4 * k * k);
    total += term;
  }
  return total;
}

}  // namespace

/// alpha - beta cos(2πi / last).
ATHANOR_FUNCTION(
    "hamming_window(int window_length, bool periodic=True, float alpha=0.54, float beta=0.46, "
    "TensorOptions options={}) -> Tensor");
Tensor hamming_window(std::int64_t window_length, bool periodic, double alpha, double beta,
                      const TensorOptions& options) {
  return made("hamming_window", window_length, periodic, options,
              [=](double i, double last) { return alpha - beta * std::cos(2 * std::numbers::pi * i / last); });
}

/// (1 - cos(2πi / last)) / 2.
ATHANOR_FUNCTION("hann_window(int window_length, bool periodic=True, TensorOptions options={}) -> Tensor");
Tensor hann_window(std::int64_t window_length, bool periodic, const TensorOptions& options) {
  return made("hann_window", window_length, periodic, options,
              [](double i, double last) { return 0.5 - 0.5 * std::cos(2 * std::numbers::pi * i / last); });
}

/// Blackman's window of window_length floats: the beginning of one that is longer by one if periodic.
ATHANOR_FUNCTION("blackman_window(int window_length, bool periodic=True, TensorOptions options={}) -> Tensor");
Tensor blackman_window(std::int64_t window_length, bool periodic, const TensorOptions& options) {
  return made("blackman_window", window_length, periodic, options, [](double i, double last) {
    return 0.42 - 0.5 * std::cos(2 * std::numbers::pi * i / last) + 0.08 * std::cos(4 * std::numbers::pi * i / last);
  });
}

/// A triangle from 0 over 1 to 0.
ATHANOR_FUNCTION("bartlett_window(int window_length, bool periodic=True, TensorOptions options={}) -> Tensor");
Tensor bartlett_window(std::int64_t window_length, bool periodic, const TensorOptions& options) {
  return made("bartlett_window", window_length, periodic, options,
              [](double i, double last) { return 2 * i <= last ? 2 * i / last : 2 - 2 * i / last; });
}

/// I0(beta sqrt(1 - (2i / last - 1)²)) / I0(beta).
ATHANOR_FUNCTION(
    "kaiser_window(int window_length, bool periodic=True, float beta=12.0, TensorOptions options={}) -> Tensor");
Tensor kaiser_window(std::int64_t window_length, bool periodic, double beta, const TensorOptions& options) {
  return made("kaiser_window", window_length, periodic, options, [=](double i, double last) {
    const double x = 2 * i / last - 1;
    return bessel_i0(beta * std::sqrt(std::max(0.0, 1 - x * x))) / bessel_i0(beta);
  });
}

}  // namespace athanor::ops

#include "athanor/ops/window.glue.inc"
