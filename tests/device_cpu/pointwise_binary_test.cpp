#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "athanor/base/parallel.h"
#include "athanor/ops/kernels/pointwise.h"
#include "each_target.h"
#include "pointwise_util.h"

namespace athanor::pointwise_binary_test {
namespace {

using testing::Box;
using testing::broadcast_index;
using testing::Dims;
using testing::kAllDTypes;
using testing::same;
using testing::ulps;
using Real = long double;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void run(BinaryOp op, const Box& out, const Box& a, const Box& b, Scalar p0 = 1, Scalar p1 = 0) {
  binary_kernel.get(kCPU)(op, out.view(), a.view(), b.view(), p0, p1);
}

using testing::on_each_target;

Real python_mod(Real a, Real b) {
  const Real r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
Real sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }
Real softplus(Real x) { return std::fmax(x, 0.0L) + std::log1p(std::exp(-std::fabs(x))); }

struct Case {
  BinaryOp op;
  Real (*reference)(Real a, Real b, Real p0, Real p1);
  double p0 = 1, p1 = 0;
  double bound = 4;     ///< error in ulp
  double absolute = 0;  ///< or relative to |a| + |b|
};

#define REF [](Real a, Real b, [[maybe_unused]] Real p, [[maybe_unused]] Real q) -> Real
const Case kCases[] = {{BinaryOp::Add, REF{return a + p * b;
}  // namespace
, 1, 0, 1
}  // namespace athanor::pointwise_binary_test
, {BinaryOp::Add, REF{return a + p * b;
}
, -2.5, 0, 1, 1e-6
}
, {BinaryOp::Sub, REF{return a - p * b;
}
, 1, 0, 1
}
, {BinaryOp::Mul, REF{return a * b;
}
, 1, 0, 1
}
, {BinaryOp::Div, REF{return a / b;
}
, 1, 0, 1
}
, {BinaryOp::Maximum, REF{return std::isnan(a) ? a : std::isnan(b) ? b : std::fmax(a, b);
}
, 1, 0, 0
}
, {BinaryOp::Minimum, REF{return std::isnan(a) ? a : std::isnan(b) ? b : std::fmin(a, b);
}
, 1, 0, 0
}
, {BinaryOp::Fmax, REF{return std::fmax(a, b);
}
, 1, 0, 0
}
, {BinaryOp::Fmin, REF{return std::fmin(a, b);
}
, 1, 0, 0
}
, {BinaryOp::Fmod, REF{return std::fmod(a, b);
}
, 1, 0, 0
}
, {BinaryOp::Remainder, REF{return python_mod(a, b);
}
, 1, 0, 1
}
, {BinaryOp::Pow, REF{return std::pow(a, b);
}
}
, {BinaryOp::Atan2, REF{return std::atan2(a, b);
}
}
, {BinaryOp::Hypot, REF{return std::hypot(a, b);
}
}
, {BinaryOp::Copysign, REF{return std::copysign(a, b);
}
, 1, 0, 0
}
, {BinaryOp::Xlogy, REF{return std::isnan(b) ? b : a == 0 ? 0 : a * std::log(b);
}
}
, {BinaryOp::LogAddExp, REF{if (std::isnan(a) || std::isnan(b)) return kNaN;
return a == b ? a + 0.69314718055994530942L : std::fmax(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}
, 1, 0, 4, 2e-7
}
, {BinaryOp::Lerp, REF{return a + p * (b - a);
}
, 0.25, 0, 4, 2e-7
}
, {BinaryOp::Lerp, REF{return b - (1 - p) * (b - a);
}
, 0.75, 0, 4, 2e-7
}
, {BinaryOp::Prelu, REF{return a > 0 ? a : a* b;
}
, 1, 0, 1
}
, {BinaryOp::Heaviside, REF{return a == 0 ? b : a > 0 ? 1 : 0;
}
, 1, 0, 0
}
, {BinaryOp::SmoothL1, REF{const Real d = std::fabs(a - b);
return d < p ? d * d / (2 * p) : d - p / 2;
}
, 0.75, 0, 4, 2e-7
}
, {BinaryOp::Huber, REF{const Real d = std::fabs(a - b);
return d < p ? d * d / 2 : p * (d - p / 2);
}
, 1.5, 0, 4, 2e-7
}
,
}
;

/// Gradients: a is the incoming gradient, b the input or the result.
const Case kBackwardCases[] = {{BinaryOp::ThresholdBackward, REF{return b <= p ? 0 : a;
}
, 0.5, 0, 0
}
, {BinaryOp::HardtanhBackward, REF{return b <= p || b >= q ? 0 : a;
}
, -1, 1.5, 0
}
, {BinaryOp::LeakyReluBackward, REF{return b > 0 ? a : a* p;
}
, 0.125, 0, 1
}
, {BinaryOp::EluBackward, REF{return b > 0 ? a : a* p* std::exp(b);
}
, 1.5
}
, {BinaryOp::SeluBackward,
   REF{return a * 1.0507009873554804934193349852946L * (b > 0 ? 1 : 1.6732632423543772848170429916717L * std::exp(b));
}
}
, {BinaryOp::CeluBackward, REF{return b > 0 ? a : a* std::exp(b / p);
}
, 2
}
, {BinaryOp::GeluBackward,
   REF{return a * (0.5L * std::erfc(-b * 0.70710678118654752440L) + b * 0.39894228040143267794L * std::exp(-b * b / 2));
}
, 1, 0, 8, 2e-7
}
, {BinaryOp::GeluTanhBackward, REF{const Real k = 1.5957691216057307118L, s = sigmoid(k * (b + 0.044715L * b * b * b));
return a * (s + b * s * (1 - s) * k * (1 + 3 * 0.044715L * b * b));
}
, 1, 0, 8, 4e-7
}
, {BinaryOp::SiluBackward, REF{return a * sigmoid(b) * (1 + b * (1 - sigmoid(b)));
}
, 1, 0, 8, 2e-7
}
, {BinaryOp::MishBackward, REF{const Real t = std::tanh(softplus(b));
return a * (t + b * (1 - t * t) * sigmoid(b));
}
, 1, 0, 8, 4e-7
}
, {BinaryOp::SoftplusBackward, REF{return b * p > q ? a : a* sigmoid(b* p);
}
, 2, 9
}
, {BinaryOp::LogSigmoidBackward, REF{return a * sigmoid(-b);
}
}
, {BinaryOp::HardsigmoidBackward, REF{return std::fabs(b) < 3 ? a / 6 : 0;
}
, 1, 0, 2
}
, {BinaryOp::HardswishBackward, REF{return b <= -3 ? 0 : b < 3 ? a * (b / 3 + 0.5L) : a;
}
, 1, 0, 4, 2e-7
}
, {BinaryOp::ShrinkBackward, REF{return std::fabs(b) <= p ? 0 : a;
}
, 0.5, 0, 0
}
, {BinaryOp::SoftsignBackward, REF{return a / ((1 + std::fabs(b)) * (1 + std::fabs(b)));
}
}
, {BinaryOp::LogitBackward, REF{return b < 0 || b > 1 ? kNaN : a / (b * (1 - b));
}
, -1, 0, 4, 2e-7
}
, {BinaryOp::LogitBackward, REF{return b < p || b > 1 - p ? 0 : a / (b * (1 - b));
}
, 0.125, 0, 4, 2e-7
}
, {BinaryOp::SigmoidBackward, REF{return a * b * (1 - b);
}
, 1, 0, 4, 2e-7
}
, {BinaryOp::TanhBackward, REF{return a * (1 - b * b);
}
, 1, 0, 4, 4e-7
}
, {BinaryOp::SqrtBackward, REF{return a / (2 * b);
}
, 1, 0, 2
}
, {BinaryOp::RsqrtBackward, REF{return -a * b * b * b / 2;
}
, 1, 0, 4
}
, {BinaryOp::ReciprocalBackward, REF{return -a * b * b;
}
, 1, 0, 4
}
,
}
;
#undef REF

template <class T>
void check(const Case& c, const Box& a, const Box& b) {
  const Box out(a.dtype(), a.sizes());
  run(c.op, out, a, b, c.p0, c.p1);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const T x = static_cast<T>(a.get(i)), y = static_cast<T>(b.get(i)), got = static_cast<T>(out.get(i));
    const Real want = c.reference(x, y, c.p0, c.p1);
    const double room = c.absolute * std::max(std::fabs(static_cast<double>(x)), 1.0) *
                        std::max(std::fabs(static_cast<double>(y)), 1.0);
    if (std::isfinite(got) && std::fabs(static_cast<double>(got - want)) <= room) continue;
    ASSERT_LE(ulps<T>(got, want), c.bound)
        << name(c.op) << '(' << x << ", " << y << ") = " << got << ", expected " << want;
  }
}

template <class T>
void check_random(const Case& c) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(-8, 8);
  Box a(dtype_of_v<T>, {5003}), b(dtype_of_v<T>, {5003});
  a.fill([&](auto) { return uniform(random); });
  b.fill([&](auto) { return uniform(random); });
  check<T>(c, a, b);
}

/// All pairs of special values.
template <class T>
void check_special(const Case& c) {
  const double special[] = {0.0, -0.0, 1, -1, 0.5, -2, 3, 7.5, kInf, -kInf, kNaN, 1e-3, 1e30, -1e30, 1e-30};
  const std::int64_t n = std::size(special);
  Box a(dtype_of_v<T>, {n * n}), b(dtype_of_v<T>, {n * n});
  a.fill([&](std::int64_t i) { return special[i / n]; });
  b.fill([&](std::int64_t i) { return special[i % n]; });
  check<T>(c, a, b);
}

TEST(Binary, FloatsAreAccurateOnEveryInstructionSet) {
  on_each_target([] {
    for (const Case& c : kCases) {
      check_random<float>(c);
      check_random<double>(c);
    }
  });
}

TEST(Binary, SpecialValuesAreThoseOfTheReference) {
  on_each_target([] {
    for (const Case& c : kCases) {
      check_special<float>(c);
      check_special<double>(c);
    }
  });
}

TEST(Binary, GradientsAreAccurateOnEveryInstructionSet) {
  on_each_target([] {
    for (const Case& c : kBackwardCases) {
      check_random<float>(c);
      check_random<double>(c);
    }
  });
}

TEST(Binary, InPlaceIsTheSameAtEveryLength) {
  on_each_target([] {
    for (const DType t : {kFloat, kDouble, kBFloat16})
      for (std::int64_t n = 1; n < 70; ++n) {
        const auto box = [&](int seed) {
          return Box(t, {n}).fill([&](std::int64_t i) { return (i * 37 + seed) % 19 - 9; });
        };
        const Box a = box(1), b = box(5), one = Box(t, {1}).fill([](auto) { return 3; }), want(t, {n}), scaled(t, {n});
        run(BinaryOp::Sub, want, a, b, 1);
        run(BinaryOp::Sub, a, a, b, 1);
        run(BinaryOp::Mul, scaled, want, one);
        run(BinaryOp::Mul, want, want, one);
        for (std::int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(a.get(i) * 3, want.get(i)) << dtype_name(t) << ' ' << i << " of " << n;
          ASSERT_EQ(scaled.get(i), want.get(i)) << dtype_name(t) << ' ' << i << " of " << n;
        }
      }
  });
}

TEST(Binary, GradientsPassNaNAndStayFiniteFarOut) {
  const double x[] = {kNaN, -200, 200, 0, -3, 3};
  const Box b = Box(kFloat, {6}).fill([&](std::int64_t i) { return x[i]; });
  const Box g = Box(kFloat, {6}).fill([](auto) { return 2; }), out(kFloat, {6});
  for (const Case& c : kBackwardCases) {
    run(c.op, out, g, b, c.p0, c.p1);
    for (std::int64_t i = 1; i < 6; ++i)
      if (c.op < BinaryOp::SigmoidBackward) {
        EXPECT_TRUE(std::isfinite(out.get(i))) << name(c.op) << ' ' << x[i];
      }
  }
  run(BinaryOp::ThresholdBackward, out, g, b, 0);
  EXPECT_EQ(out.get(0), 2);
  EXPECT_EQ(out.get(3), 0);
  run(BinaryOp::HardtanhBackward, out, g, b, -3, 3);
  EXPECT_EQ(out.get(0), 2);
  EXPECT_EQ(out.get(4), 0);
  EXPECT_EQ(out.get(5), 0);
  run(BinaryOp::GeluBackward, out, g, b);
  EXPECT_TRUE(std::isnan(out.get(0)));
  EXPECT_EQ(out.get(2), 2);
}

TEST(Binary, FmodIsExactForHugeQuotients) {
  on_each_target([] {
    std::mt19937_64 random(5);
    Box a(kFloat, {4000}), b(kFloat, {4000});
    for (std::int64_t i = 0; i < 4000; ++i)
      for (Box* box : {&a, &b}) {
        const auto bits = static_cast<std::uint32_t>(random());
        std::memcpy(box->at(i), &bits, 4);
      }
    const Box out(kFloat, {4000});
    run(BinaryOp::Fmod, out, a, b);
    for (std::int64_t i = 0; i < 4000; ++i)
      ASSERT_TRUE(same(out.get(i), std::fmod(a.get(i), b.get(i)))) << a.get(i) << ' ' << b.get(i) << ' ' << out.get(i);
  });
}

TEST(Binary, FloorDivisionFollowsPython) {
  on_each_target([] {
    const double a[] = {5, -5, 5, kInf, 1, -1, 0, -0.0, 1, 7, 6, -6, 0.3};
    const double b[] = {3, 3, -3, 2, kInf, kInf, 0, 1, 0, 0.1, 3, 3, 0.1};
    const double want[] = {1, -2, -2, kNaN, 0, -1, kNaN, -0.0, kInf, 69, 2, -2, 2};
    const Box x = Box(kDouble, {13}).fill([&](std::int64_t i) { return a[i]; });
    const Box y = Box(kDouble, {13}).fill([&](std::int64_t i) { return b[i]; });
    const Box out(kDouble, {13});
    run(BinaryOp::DivFloor, out, x, y);
    for (int i = 0; i < 13; ++i)
      EXPECT_TRUE(same(out.get(i), want[i])) << a[i] << " // " << b[i] << " = " << out.get(i);
    EXPECT_TRUE(std::signbit(out.get(7)));
    run(BinaryOp::DivTrunc, out, x, y);
    EXPECT_EQ(out.get(1), -1);
  });
}

TEST(Binary, ComparisonsGiveBool) {
  struct Comparison {
    BinaryOp op;
    bool (*reference)(double, double);
  };
  const Comparison comparisons[] = {
      {BinaryOp::Eq, [](double a, double b) { return a == b; }},
      {BinaryOp::Ne, [](double a, double b) { return a != b; }},
      {BinaryOp::Lt, [](double a, double b) { return a < b; }},
      {BinaryOp::Le, [](double a, double b) { return a <= b; }},
      {BinaryOp::Gt, [](double a, double b) { return a > b; }},
      {BinaryOp::Ge, [](double a, double b) { return a >= b; }},
      {BinaryOp::LogicalAnd, [](double a, double b) { return a != 0 && b != 0; }},
      {BinaryOp::LogicalOr, [](double a, double b) { return a != 0 || b != 0; }},
      {BinaryOp::LogicalXor, [](double a, double b) { return (a != 0) != (b != 0); }},
  };
  on_each_target([&] {
    for (DType t : kAllDTypes) {
      const auto value = [&](std::int64_t i) {
        const double values[] = {0, 1, 2, 3, is_signed(t) ? -1.0 : 4.0, is_floating_point(t) ? kNaN : 5.0};
        return t == kBool ? static_cast<double>(i % 2) : values[i % 6];
      };
      const Box a = Box(t, {36, 10}).fill([&](std::int64_t i) { return value(i / 10 / 6); });
      const Box b = Box(t, {36, 1}).fill([&](std::int64_t i) { return value(i); });
      const Box out(kBool, {36, 10});
      for (const Comparison& c : comparisons) {
        run(c.op, out, a, b);
        for (std::int64_t i = 0; i < out.numel(); ++i)
          ASSERT_EQ(out.get(i), static_cast<double>(c.reference(a.get(i), b.get(i / 10))))
              << name(c.op) << ' ' << dtype_name(t) << ' ' << a.get(i) << ' ' << b.get(i / 10);
      }
    }
  });
}

TEST(Binary, BroadcastsAnyShapesAndStrides) {
  const Dims shapes[][2] = {{{3, 4, 5}, {3, 4, 5}},      {{3, 4, 5}, {5}},     {{3, 4, 5}, {}},     {{3, 4, 5}, {4, 1}},
                            {{3, 1, 5}, {3, 4, 5}},      {{1}, {3, 4, 5}},     {{3, 4, 1}, {1, 5}}, {{3, 1, 1}, {4, 5}},
                            {{40, 300}, {300}},          {{40, 300}, {40, 1}}, {{40, 1}, {300}},    {{2000, 10}, {10}},
                            {{7, 1, 9, 1}, {8, 1, 300}}, {{0, 3}, {3}},        {{2, 3, 0}, {1}}};
  for (DType t : {kFloat, kDouble, kHalf, kInt, kByte})
    for (const auto& pair : shapes) {
      Dims shape(std::max(pair[0].size(), pair[1].size()), 1);
      for (const Dims& s : {pair[0], pair[1]})
        for (std::size_t k = 1; k <= s.size(); ++k)
          if (s[s.size() - k] != 1) shape[shape.size() - k] = s[s.size() - k];
      const auto reversed = [](const Dims& sizes) {
        Dims strides(sizes.size());
        std::int64_t step = 2;
        for (std::size_t d = 0; d < sizes.size(); ++d, step *= std::max<std::int64_t>(sizes[d - 1], 1))
          strides[d] = step;
        return strides;
      };
      const auto value = [](std::int64_t i) { return i * 5 % 13; };
      for (bool strided_a : {false, true})
        for (bool strided_b : {false, true})
          for (bool strided_out : {false, true}) {
            const Box a =
                Box(t, pair[0], strided_a ? reversed(pair[0]) : testing::dense_strides(pair[0]), 1).fill(value);
            const Box b = Box(t, pair[1], strided_b ? reversed(pair[1]) : testing::dense_strides(pair[1])).fill(value);
            const Box out(t, shape, strided_out ? reversed(shape) : testing::dense_strides(shape));
            run(BinaryOp::Sub, out, a, b, 2);
            for (std::int64_t i = 0; i < out.numel(); ++i) {
              const double want =
                  a.get(broadcast_index(pair[0], shape, i)) - 2 * b.get(broadcast_index(pair[1], shape, i));
              ASSERT_EQ(out.get(i), t == kByte ? static_cast<std::uint8_t>(static_cast<int>(want)) : want) << i;
            }
          }
    }
}

TEST(Binary, InPlaceOnEitherOperand) {
  for (DType t : {kFloat, kBFloat16, kInt, kLong})
    for (const Dims& strides : {Dims{100, 1}, {1, 30}, {400, 4}}) {
      const auto value = [](std::int64_t i) { return i % 50; };
      for (bool second : {false, true}) {
        const Box x = Box(t, {30, 100}, strides).fill(value), y = Box(t, {30, 100}).fill([](auto) { return 3; });
        run(BinaryOp::Sub, x, second ? y : x, second ? x : y);
        for (std::int64_t i = 0; i < x.numel(); ++i) ASSERT_EQ(x.get(i), second ? 3 - value(i) : value(i) - 3);
      }
    }
}

TEST(Binary, ScalarOperandOnEitherSide) {
  for (DType t : {kFloat, kHalf, kInt, kLong})
    for (std::int64_t n : {0, 5, 3000}) {
      const Box x = Box(t, {n}).fill([](std::int64_t i) { return i % 40 + 1; }), out(t, {n}), flags(kBool, {n});
      binary_scalar_kernel.get(kCPU)(BinaryOp::Sub, out.view(), x.view(), 10, false, 1, 0);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(out.get(i), x.get(i) - 10);
      binary_scalar_kernel.get(kCPU)(BinaryOp::Sub, out.view(), x.view(), 10, true, 1, 0);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(out.get(i), 10 - x.get(i));
      binary_scalar_kernel.get(kCPU)(BinaryOp::Lt, flags.view(), x.view(), 10, true, 1, 0);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(flags.get(i), 10 < x.get(i));
    }
}

TEST(Binary, LargeOutputsAreWhole) {
  const std::int64_t rows = 3000, cols = 3001;
  Box a(kFloat, {rows, cols}), row(kFloat, {cols}), column(kFloat, {rows, 1}), out(kFloat, {rows, cols});
  auto* x = a.view().ptr<float>();
  for (std::int64_t i = 0; i < rows * cols; ++i) x[i] = static_cast<float>(i % 8191);
  row.fill([](std::int64_t i) { return i; });
  column.fill([](std::int64_t i) { return i * 3; });
  const auto* y = out.view().ptr<float>();
  run(BinaryOp::Add, out, a, row);
  for (std::int64_t i = 0; i < rows * cols; ++i) ASSERT_EQ(y[i], x[i] + static_cast<float>(i % cols));
  run(BinaryOp::Add, out, a, column);
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const std::int64_t row_number = i / cols;
    ASSERT_EQ(y[i], x[i] + static_cast<float>(row_number * 3));
  }
  run(BinaryOp::Mul, out, a, a);
  for (std::int64_t i = 0; i < rows * cols; ++i) ASSERT_EQ(y[i], x[i] * x[i]);
}

TEST(Binary, ResultsDoNotDependOnTheThreadCount) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Box a(kFloat, {100003}), b(kFloat, {100003});
  a.fill([&](auto) { return normal(random); });
  b.fill([&](auto) { return normal(random); });
  const Box one(kFloat, {100003});
  {
    const ThreadTeamGuard guard(1);
    run(BinaryOp::Pow, one, a, b);
  }
  for (int threads : {2, 7}) {
    const ThreadTeamGuard guard(threads);
    const Box many(kFloat, {100003});
    run(BinaryOp::Pow, many, a, b);
    ASSERT_EQ(std::memcmp(one.at(0), many.at(0), 100003 * sizeof(float)), 0);
  }
}

TEST(Binary, RefusesDTypesByName) {
  const Box floats(kFloat, {2}), ints(kInt, {2});
  for (BinaryOp op : {BinaryOp::BitwiseAnd, BinaryOp::LeftShift, BinaryOp::Gcd})
    EXPECT_THROW(run(op, floats, floats, floats), NotImplementedError);
  for (BinaryOp op : {BinaryOp::Div, BinaryOp::Atan2, BinaryOp::Lerp, BinaryOp::GeluBackward})
    EXPECT_THROW(run(op, ints, ints, ints), NotImplementedError);
}

}  // namespace
}  // namespace athanor::pointwise_binary_test
