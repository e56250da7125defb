#pragma once
#include <cstdint>

namespace athanor::cpu {

/// The n-th derivative of digamma for n >= 1, computed in float64: (-1)^(n+1) n! zeta(n + 1, x), with the sum of
/// Hurwitz's zeta function by Euler and Maclaurin (Abramowitz and Stegun 6.4.10 and 23.1.30). At its poles it is
/// infinite, for even n with the sign that it has to the right of them.
double polygamma(std::int64_t n, double x);

}  // namespace athanor::cpu
