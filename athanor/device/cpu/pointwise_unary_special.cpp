// Gamma family and inverse error function: scalar, in double, on every instruction set.

#include <cmath>
#include <limits>

#include "athanor/device/cpu/pointwise_tables.h"

namespace athanor::cpu {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// log |gamma(x)|. std::lgamma writes a global and is no choice for several threads.
double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

/// Reflection for x < 0, recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.7, 6.3.5, 6.3.18).
double digamma(double x) {
  if (x == 0) return std::copysign(kInf, -x);
  double sum = 0;
  if (x < 0) {
    const double fraction = x - std::trunc(x);
    if (!(fraction != 0)) return kNaN;  // a pole, or -infinity
    sum = -kPi / std::tan(kPi * fraction);
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  if (std::isinf(x)) return x;
  const double z = 1 / (x * x);
  constexpr double kSeries[] = {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12};
  double tail = 0;
  for (int i = 6; i >= 0; --i) tail = tail * z + kSeries[i];
  return sum + std::log(x) - 0.5 / x - tail * z;
}

/// Likewise (Abramowitz and Stegun 6.4.7, 6.4.6, 6.4.12).
double trigamma(double x) {
  double sum = 0, sign = 1;
  if (x <= 0) {
    const double fraction = x - std::trunc(x);
    if (std::isinf(x)) return kNaN;
    if (fraction == 0) return kInf;
    const double s = std::sin(kPi * fraction);
    sum = kPi * kPi / (s * s);
    sign = -1;
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum += sign / (x * x);
  if (std::isinf(x)) return 0;
  const double z = 1 / (x * x);
  constexpr double kSeries[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6};
  double tail = 0;
  for (int i = 6; i >= 0; --i) tail = tail * z + kSeries[i];
  return sum + sign * (1 / x + 0.5 * z + tail * z / x);
}

double horner(double x, const double (&c)[9]) {
  double sum = c[0];
  for (int i = 1; i < 9; ++i) sum = sum * x + c[i];
  return sum;
}

/// M. Giles, "Approximating the erfinv function" (the single-precision form), then one step of Halley's method.
double erfinv(double x) {
  const double a = std::fabs(x);
  if (!(a < 1)) return a == 1 ? std::copysign(kInf, x) : kNaN;
  if (a == 0) return x;
  constexpr double kCentre[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
  constexpr double kTail[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                              -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
  const double w = -std::log((1 - a) * (1 + a));
  double y = a * (w < 5 ? horner(w - 2.5, kCentre) : horner(std::sqrt(w) - 3, kTail));
  const double excess = a < 0.5 ? std::erf(y) - a : (1 - a) - std::erfc(y);
  const double step = excess / (1.12837916709551257390 * std::exp(-y * y));
  y -= step / (1 + y * step);
  return std::copysign(y, x);
}

template <class T, double (*f)(double)>
void loop(char* const* ptrs, const std::int64_t*, std::int64_t n, const void*) {
  T* out = reinterpret_cast<T*>(ptrs[0]);
  const T* in = reinterpret_cast<const T*>(ptrs[1]);
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(f(static_cast<double>(in[i])));
}

template <class T>
void add(PointwiseTables& t, DType dtype) {
  t.at(UnaryOp::Lgamma, dtype) = &loop<T, log_gamma>;
  t.at(UnaryOp::Digamma, dtype) = &loop<T, digamma>;
  t.at(UnaryOp::Trigamma, dtype) = &loop<T, trigamma>;
  t.at(UnaryOp::Erfinv, dtype) = &loop<T, erfinv>;
}

}  // namespace

void add_unary_special(PointwiseTables& tables) {
  add<float>(tables, DType::Float);
  add<double>(tables, DType::Double);
}

}  // namespace athanor::cpu
