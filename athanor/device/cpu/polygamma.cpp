#include "athanor/device/cpu/polygamma.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace athanor::cpu {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// B(2j) / (2j)! for j = 1 … 12.
constexpr double kBernoulli[] = {1.0 / 12,
                                 -1.0 / 720,
                                 1.0 / 30240,
                                 -1.0 / 1209600,
                                 1.0 / 47900160,
                                 -691.0 / 1307674368000,
                                 1.0 / 74724249600,
                                 -3617.0 / 10670622842880000,
                                 43867.0 / 5109094217170944000,
                                 -174611.0 / 802857662698291200000.0,
                                 77683.0 / 14101100039391805440000.0,
                                 -236364091.0 / 1693824136731743669452800000.0};

/// The sum of ((x + k) / unit)^-s over k >= 0, for x > 0 and s > 1.
double zeta(double s, double x, double unit) {
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon() / 4;
  constexpr int kFar = 10;
  double sum = 0, y = x;
  for (int i = 0; i < kFar || y < kFar; ++i, y += 1) sum += std::pow(y / unit, -s);
  double power = std::pow(y / unit, -s);
  sum += y * power / (s - 1) + power / 2;
  double factor = s;
  for (int j = 0; j < 12; ++j) {
    const double term = kBernoulli[j] * factor * (power /= y);
    sum += term;
    if (std::fabs(term) <= kEpsilon * sum) break;
    power /= y;
    factor *= (s + 2 * j + 1) * (s + 2 * j + 2);
  }
  return sum;
}

}  // namespace

double polygamma(std::int64_t n, double x) {
  const double s = static_cast<double>(n) + 1, sign = n % 2 == 0 ? -1 : 1;
  if (std::isnan(x) || x == -kInf) return kNaN;
  if (x <= 0 && x == std::floor(x)) return sign * kInf;
  if (x == kInf) return sign * 0.0;
  double sum = 0, unit = x;
  if (x > 0) {
    sum = zeta(s, x, unit);
  } else {
    // The terms below zero are those above it mirrored, up to where x begins.
    const double fraction = x - std::floor(x);
    unit = std::min(fraction, 1 - fraction);
    // In this order: halfway between poles the first two cancel for even n, and leave all digits of the last.
    sum = (zeta(s, fraction, unit) + sign * zeta(s, 1 - fraction, unit)) - sign * zeta(s, 1 - x, unit);
  }
  // The factorial and the power may leave the range of numbers where their product does not.
  const double power = std::pow(unit, -s);
  if (n <= 170 && std::isnormal(power)) return sign * (std::tgamma(s) * power * sum);
  int unused = 0;
  return sign * std::copysign(std::exp(::lgamma_r(s, &unused) - s * std::log(unit) + std::log(std::fabs(sum))), sum);
}

}  // namespace athanor::cpu
