#include <limits>

#include "numeric.h"

namespace athanor {

// Also where the value is an infinity or NaN, which a sum over "those that are equal" must not lose.
TEST(Median, EqualsShareTheGradient) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto gradient = [](std::vector<double> values) {
    const Tensor x = tensor(values, kDouble).requires_grad_(true);
    median(x).backward();
    return x.grad();
  };
  EXPECT_TRUE(equal(gradient({1, 2, 2, 3, 0}), tensor({0., .5, .5, 0., 0.}, kDouble)));
  EXPECT_TRUE(equal(gradient({-inf, 7, -inf}), tensor({.5, 0., .5}, kDouble)));
  EXPECT_TRUE(equal(gradient({inf, inf, 1}), tensor({.5, .5, 0.}, kDouble)));
  EXPECT_TRUE(equal(gradient({nan, 1, 2, nan}), tensor({.5, 0., 0., .5}, kDouble)));
}

}  // namespace athanor
