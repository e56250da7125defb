#include <gtest/gtest.h>

#include <limits>

#include "athanor/ops/kernels/pointwise.h"
#include "pointwise_util.h"

namespace athanor::pointwise_ternary_test {
namespace {

using testing::Box;
using testing::kAllDTypes;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void run(TernaryOp op, const Box& out, const Box& a, const Box& b, const Box& c, Scalar p0 = 1) {
  ternary_kernel.get(kCPU)(op, out.view(), a.view(), b.view(), c.view(), p0);
}

TEST(Ternary, WhereSelectsForEveryDType) {
  for (DType t : kAllDTypes) {
    const Box condition = Box(kBool, {50, 7}).fill([](std::int64_t i) { return i % 3 == 0; });
    const Box a = Box(t, {50, 7}, {1, 50}).fill([](std::int64_t i) { return i % 2; });
    const Box b = Box(t, {7}).fill([](std::int64_t i) { return i % 2 == 0; });
    const Box out(t, {50, 7});
    run(TernaryOp::Where, out, condition, a, b);
    for (std::int64_t i = 0; i < out.numel(); ++i) ASSERT_EQ(out.get(i), i % 3 == 0 ? a.get(i) : b.get(i % 7));
    const Box scalar = Box(t, {}).fill([](auto) { return 1; });
    run(TernaryOp::Where, out, condition, scalar, out);
    for (std::int64_t i = 0; i < out.numel(); ++i) ASSERT_EQ(out.get(i), i % 3 == 0 ? 1 : b.get(i % 7));
  }
}

TEST(Ternary, ArithmeticMatchesTheReference) {
  for (DType t : {kFloat, kDouble, kHalf, kBFloat16}) {
    const Box a = Box(t, {300}).fill([](std::int64_t i) { return i % 16; });
    const Box b = Box(t, {300}).fill([](std::int64_t i) { return 2 + i % 3; });
    const Box c = Box(t, {300}).fill([](std::int64_t i) { return (i % 5) / 4.0; });
    const Box out(t, {300});
    run(TernaryOp::Lerp, out, a, b, c);
    const double tolerance = t == kBFloat16 ? 0.04 : 0.005;
    for (std::int64_t i = 0; i < 300; ++i)
      ASSERT_NEAR(out.get(i), a.get(i) + c.get(i) * (b.get(i) - a.get(i)), tolerance);
    run(TernaryOp::Addcmul, out, a, b, c, 2);
    for (std::int64_t i = 0; i < 300; ++i) ASSERT_EQ(out.get(i), a.get(i) + 2 * b.get(i) * c.get(i));
    run(TernaryOp::Addcdiv, out, c, a, b, 4);
    for (std::int64_t i = 0; i < 300; ++i) ASSERT_NEAR(out.get(i), c.get(i) + 4 * a.get(i) / b.get(i), tolerance * 8);
    run(TernaryOp::Clamp, out, a, b, a);
    for (std::int64_t i = 0; i < 300; ++i) ASSERT_EQ(out.get(i), a.get(i));
  }
}

TEST(Ternary, IntegersWrapAndClamp) {
  for (DType t : {kByte, kChar, kShort, kInt, kLong}) {
    const Box a = Box(t, {100}).fill([](std::int64_t i) { return i; });
    const Box low = Box(t, {}).fill([](auto) { return 20; }), high = Box(t, {1}).fill([](auto) { return 60; });
    const Box out(t, {100});
    run(TernaryOp::Clamp, out, a, low, high);
    for (std::int64_t i = 0; i < 100; ++i)
      ASSERT_EQ(out.get_int(i), std::min<std::int64_t>(std::max<std::int64_t>(i, 20), 60));
    run(TernaryOp::Addcmul, out, a, a, a, 2);
    Box want(t, {1});
    for (std::int64_t i = 0; i < 100; ++i) {
      want.set(0, i + 2 * i * i);
      ASSERT_EQ(out.get_int(i), want.get_int(0));
    }
    EXPECT_THROW(run(TernaryOp::Lerp, out, a, a, a), NotImplementedError);
    EXPECT_THROW(run(TernaryOp::Addcdiv, out, a, a, a), NotImplementedError);
  }
}

TEST(Ternary, ClampPropagatesNaN) {
  const double x[] = {1, kNaN, 5, 9}, low[] = {kNaN, 0, 6, 0}, high[] = {2, 2, 3, kNaN};
  const Box a = Box(kFloat, {4}).fill([&](std::int64_t i) { return x[i]; });
  const Box b = Box(kFloat, {4}).fill([&](std::int64_t i) { return low[i]; });
  const Box c = Box(kFloat, {4}).fill([&](std::int64_t i) { return high[i]; });
  const Box out(kFloat, {4});
  run(TernaryOp::Clamp, out, a, b, c);
  EXPECT_TRUE(std::isnan(out.get(0)));
  EXPECT_TRUE(std::isnan(out.get(1)));
  EXPECT_EQ(out.get(2), 3);
  EXPECT_TRUE(std::isnan(out.get(3)));
}

TEST(Ternary, LargeWhereStreamsCorrectly) {
  const std::int64_t n = (9 << 20) + 7;
  const Box condition(kBool, {n}), a(kFloat, {n}), b(kFloat, {1}), out(kFloat, {n});
  auto* c = condition.view().ptr<std::uint8_t>();
  auto* x = a.view().ptr<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    c[i] = i % 7 == 0;
    x[i] = static_cast<float>(i);
  }
  run(TernaryOp::Where, out, condition, a, b);
  const auto* y = out.view().ptr<float>();
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], i % 7 == 0 ? x[i] : 0.0F);
}

}  // namespace
}  // namespace athanor::pointwise_ternary_test
