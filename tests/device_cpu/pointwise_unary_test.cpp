#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "athanor/ops/kernels/pointwise.h"
#include "each_target.h"
#include "pointwise_util.h"

namespace athanor::pointwise_unary_test {
namespace {

using testing::Box;
using testing::kAllDTypes;
using testing::same;
using testing::ulps;
using Real = long double;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void run(UnaryOp op, const Box& out, const Box& in, Scalar p0 = 0, Scalar p1 = 0) {
  unary_kernel.get(kCPU)(op, out.view(), in.view(), p0, p1);
}

using testing::on_each_target;

Real normal_cdf(Real x) { return 0.5L * std::erfc(-x * 0.70710678118654752440084436210485L); }
Real softplus(Real x) { return std::fmax(x, 0.0L) + std::log1p(std::exp(-std::fabs(x))); }
Real sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }

struct Case {
  UnaryOp op;
  Real (*reference)(Real x, Real p0, Real p1);
  double low, high;  ///< range of the dense samples
  double p0 = 0, p1 = 0;
  double bound = 4;     ///< allowed error in ulp
  double absolute = 0;  ///< or this absolute error (relative to max(1, |x|))
};

const Case kCases[] = {
    {UnaryOp::Abs, [](Real x, Real, Real) { return std::fabs(x); }, -10, 10},
    {UnaryOp::Neg, [](Real x, Real, Real) { return -x; }, -10, 10},
    {UnaryOp::Square, [](Real x, Real, Real) { return x * x; }, -10, 10},
    {UnaryOp::Ceil, [](Real x, Real, Real) { return std::ceil(x); }, -10, 10},
    {UnaryOp::Floor, [](Real x, Real, Real) { return std::floor(x); }, -10, 10},
    {UnaryOp::Round, [](Real x, Real, Real) { return std::nearbyint(x); }, -10, 10},
    {UnaryOp::Trunc, [](Real x, Real, Real) { return std::trunc(x); }, -10, 10},
    {UnaryOp::Frac, [](Real x, Real, Real) { return x - std::trunc(x); }, -10, 10},
    {UnaryOp::Sqrt, [](Real x, Real, Real) { return std::sqrt(x); }, -1, 100},
    {UnaryOp::Rsqrt, [](Real x, Real, Real) { return 1 / std::sqrt(x); }, -1, 100},
    {UnaryOp::Reciprocal, [](Real x, Real, Real) { return 1 / x; }, -10, 10},
    {UnaryOp::Exp, [](Real x, Real, Real) { return std::exp(x); }, -105, 90},
    {UnaryOp::Exp2, [](Real x, Real, Real) { return std::exp2(x); }, -150, 130},
    {UnaryOp::Expm1, [](Real x, Real, Real) { return std::expm1(x); }, -20, 90},
    {UnaryOp::Log, [](Real x, Real, Real) { return std::log(x); }, -1, 4},
    {UnaryOp::Log2, [](Real x, Real, Real) { return std::log2(x); }, -1, 4},
    {UnaryOp::Log10, [](Real x, Real, Real) { return std::log10(x); }, -1, 4},
    {UnaryOp::Log1p, [](Real x, Real, Real) { return std::log1p(x); }, -1.5, 4},
    {UnaryOp::Sin, [](Real x, Real, Real) { return std::sin(x); }, -50, 50},
    {UnaryOp::Cos, [](Real x, Real, Real) { return std::cos(x); }, -50, 50},
    {UnaryOp::Tan, [](Real x, Real, Real) { return std::tan(x); }, -50, 50},
    {UnaryOp::Asin, [](Real x, Real, Real) { return std::asin(x); }, -1.1, 1.1},
    {UnaryOp::Acos, [](Real x, Real, Real) { return std::acos(x); }, -1.1, 1.1},
    {UnaryOp::Atan, [](Real x, Real, Real) { return std::atan(x); }, -20, 20},
    {UnaryOp::Sinh, [](Real x, Real, Real) { return std::sinh(x); }, -90, 90},
    {UnaryOp::Cosh, [](Real x, Real, Real) { return std::cosh(x); }, -90, 90},
    {UnaryOp::Tanh, [](Real x, Real, Real) { return std::tanh(x); }, -20, 20},
    {UnaryOp::Asinh, [](Real x, Real, Real) { return std::asinh(x); }, -20, 20},
    {UnaryOp::Acosh, [](Real x, Real, Real) { return std::acosh(x); }, 0.5, 20},
    {UnaryOp::Atanh, [](Real x, Real, Real) { return std::atanh(x); }, -1.1, 1.1},
    {UnaryOp::Erf, [](Real x, Real, Real) { return std::erf(x); }, -6, 6},
    {UnaryOp::Erfc, [](Real x, Real, Real) { return std::erfc(x); }, -6, 9},
    {UnaryOp::Sigmoid, [](Real x, Real, Real) { return sigmoid(x); }, -86, 40, 0, 0, 4, 3e-39},
    {UnaryOp::LogSigmoid, [](Real x, Real, Real) { return -softplus(-x); }, -30, 30},
    {UnaryOp::Relu, [](Real x, Real, Real) { return x > 0 ? x : std::isnan(x) ? x : 0; }, -10, 10},
    {UnaryOp::Relu6, [](Real x, Real, Real) { return x < 0 ? 0 : x > 6 ? 6 : x; }, -10, 10},
    {UnaryOp::Hardtanh, [](Real x, Real a, Real b) { return x < a ? a : x > b ? b : x; }, -10, 10, -2, 3},
    {UnaryOp::Clamp, [](Real x, Real a, Real b) { return x < a ? a : x > b ? b : x; }, -10, 10, -1, 1},
    {UnaryOp::ClampMin, [](Real x, Real a, Real) { return x < a ? a : x; }, -10, 10, -1},
    {UnaryOp::ClampMax, [](Real x, Real a, Real) { return x > a ? a : x; }, -10, 10, -1},
    {UnaryOp::Threshold, [](Real x, Real a, Real b) { return x <= a ? b : x; }, -10, 10, 1, 20},
    {UnaryOp::LeakyRelu, [](Real x, Real a, Real) { return x > 0 ? x : x * a; }, -10, 10, 0.125},
    {UnaryOp::Elu, [](Real x, Real a, Real) { return x > 0 ? x : a * std::expm1(x); }, -20, 10, 1.5},
    {UnaryOp::Selu,
     [](Real x, Real, Real) {
       return 1.0507009873554804934193349852946L * (x > 0 ? x : 1.6732632423543772848170429916717L * std::expm1(x));
     },
     -20, 10},
    {UnaryOp::Celu, [](Real x, Real a, Real) { return x > 0 ? x : a * std::expm1(x / a); }, -20, 10, 2},
    {UnaryOp::Gelu, [](Real x, Real, Real) { return x < -50 ? -0.0L : x * normal_cdf(x); }, -12, 12, 0, 0, 4, 2e-7},
    {UnaryOp::GeluTanh,
     [](Real x, Real, Real) {
       return x * sigmoid(2 * 0.79788456080286535587989211986876L * (x + 0.044715L * x * x * x));
     },
     -4, 12, 0, 0, 16, 2e-7},
    {UnaryOp::Silu, [](Real x, Real, Real) { return x * sigmoid(x); }, -80, 40, 0, 0, 4, 1e-40},
    {UnaryOp::Mish, [](Real x, Real, Real) { return x * std::tanh(softplus(x)); }, -80, 40, 0, 0, 6, 1e-40},
    {UnaryOp::Softplus, [](Real x, Real b, Real t) { return x * b > t ? x : softplus(x * b) / b; }, -30, 30, 2, 20},
    {UnaryOp::Softsign, [](Real x, Real, Real) { return x / (1 + std::fabs(x)); }, -10, 10},
    {UnaryOp::Hardsigmoid, [](Real x, Real, Real) { return x < -3 ? 0 : x > 3 ? 1 : (x + 3) / 6; }, -5, 5, 0, 0, 4, 1e-7},
    {UnaryOp::Hardswish, [](Real x, Real, Real) { return x * (x < -3 ? 0 : x > 3 ? 1 : (x + 3) / 6); }, -5, 5, 0, 0, 4, 2e-7},
    {UnaryOp::Hardshrink, [](Real x, Real l, Real) { return std::fabs(x) <= l ? 0 : x; }, -2, 2, 0.5},
    {UnaryOp::Softshrink, [](Real x, Real l, Real) { return x > l ? x - l : x < -l ? x + l : std::isnan(x) ? x : 0; },
     -2, 2, 0.5},
    {UnaryOp::Tanhshrink, [](Real x, Real, Real) { return x - std::tanh(x); }, -10, 10, 0, 0, 4, 1e-7},
    {UnaryOp::Deg2Rad, [](Real x, Real, Real) { return x * 0.017453292519943295769236907684886L; }, -400, 400},
    {UnaryOp::Rad2Deg, [](Real x, Real, Real) { return x * 57.295779513082320876798154814105L; }, -7, 7},
    {UnaryOp::PowScalar, [](Real x, Real p, Real) { return std::pow(x, p); }, -3, 30, 2.5},
    {UnaryOp::PowScalar, [](Real x, Real p, Real) { return std::pow(x, p); }, -9, 9, 3},
    {UnaryOp::PowScalar, [](Real x, Real, Real) { return x * x; }, -9, 9, 2},
    {UnaryOp::PowScalar, [](Real x, Real, Real) { return 1 / x; }, -9, 9, -1},
    {UnaryOp::Lgamma, [](Real x, Real, Real) { return std::lgamma(x); }, -3.5, 30, 0, 0, 4, 1e-15},
    {UnaryOp::Erfinv,
     [](Real x, Real, Real) {  // by bisection
       if (x == 0) return x;
       if (!(std::fabs(x) < 1)) return std::fabs(x) == 1 ? std::copysign(Real(kInf), x) : Real(kNaN);
       Real low = 0, high = std::fmin(7, 2 * std::fabs(x) + (std::fabs(x) < 0.5L ? 0 : 6));
       for (int i = 0; i < 80; ++i) {
         const Real mid = (low + high) / 2;
         (std::fabs(x) < 0.5L ? std::erf(mid) < std::fabs(x) : std::erfc(mid) > 1 - std::fabs(x)) ? low = mid : high = mid;
       }
       return std::copysign(high, x);
     },
     -1.01, 1.01},
};

template <class T>
void expect_close(const Case& c, const Box& in, const Box& out) {
  for (std::int64_t i = 0; i < in.numel(); ++i) {
    const T x = static_cast<T>(in.get(i));
    const Real want = c.reference(x, c.p0, c.p1);
    const T got = static_cast<T>(out.get(i));
    const double scale = std::max(1.0, std::fabs(static_cast<double>(x)));
    if (std::isfinite(got) && std::fabs(static_cast<double>(got - want)) <= c.absolute * scale) continue;
    ASSERT_LE(ulps<T>(got, want), c.bound) << name(c.op) << '(' << x << ") = " << got << ", expected " << want;
  }
}

template <class T>
void check_dense_and_special(const Case& c) {
  constexpr double kSpecial[] = {0.0,  -0.0,  kInf,   -kInf, kNaN,  1,     -1,   0.5,
                                 -0.5, 1e-30, -1e-30, 3e38,  -3e38, 1e-40, 1e-45};
  const std::int64_t special = std::size(kSpecial), dense = 5003;
  Box in(dtype_of_v<T>, {special + dense}), out(dtype_of_v<T>, {special + dense});
  in.fill([&](std::int64_t i) {
    return i < special ? kSpecial[i]
                       : c.low + (c.high - c.low) * static_cast<double>(i - special) / static_cast<double>(dense - 1);
  });
  run(c.op, out, in, c.p0, c.p1);
  expect_close<T>(c, in, out);
}

TEST(Unary, Float32IsAccurateOnEveryInstructionSet) {
  on_each_target([] {
    for (const Case& c : kCases) check_dense_and_special<float>(c);
  });
}

TEST(Unary, Float64IsAccurateOnEveryInstructionSet) {
  on_each_target([] {
    for (const Case& c : kCases) check_dense_and_special<double>(c);
  });
}

TEST(Unary, Float32IsAccurateOverAllMagnitudes) {
  on_each_target([] {
    for (const Case& c : kCases) {
      if (c.absolute > 1e-30 || c.op == UnaryOp::Erfinv) continue;
      Box in(kFloat, {20000}), out(kFloat, {20000});
      std::mt19937 random(11);
      for (std::int64_t i = 0; i < in.numel(); ++i) {
        const std::uint32_t bits = random();
        std::memcpy(in.at(i), &bits, 4);
      }
      run(c.op, out, in, c.p0, c.p1);
      expect_close<float>(c, in, out);
    }
  });
}

TEST(Unary, KeepsNegativeZero) {
  for (UnaryOp op : {UnaryOp::Tanh, UnaryOp::Erf, UnaryOp::Sin, UnaryOp::Asin, UnaryOp::Atan, UnaryOp::Sinh,
                     UnaryOp::Asinh, UnaryOp::Atanh, UnaryOp::Expm1, UnaryOp::Log1p, UnaryOp::Sqrt, UnaryOp::Tan,
                     UnaryOp::Trunc, UnaryOp::Round, UnaryOp::Ceil, UnaryOp::Floor, UnaryOp::Erfinv})
    for (DType t : {kFloat, kDouble}) {
      const Box in = Box(t, {3}).fill([](auto) { return -0.0; });
      const Box out(t, {3});
      run(op, out, in);
      EXPECT_TRUE(out.get(0) == 0 && std::signbit(out.get(0))) << name(op) << ' ' << dtype_name(t);
    }
}

TEST(Unary, TanhErfAndSigmoidStayInTheirRange) {
  Box in(kFloat, {40001}), out(kFloat, {40001});
  in.fill([](std::int64_t i) { return (static_cast<double>(i) - 20000) / 1000; });
  for (UnaryOp op : {UnaryOp::Tanh, UnaryOp::Erf, UnaryOp::Sigmoid}) {
    run(op, out, in);
    for (std::int64_t i = 0; i < out.numel(); ++i)
      ASSERT_LE(std::fabs(out.get(i)), 1) << name(op) << " at " << in.get(i);
  }
}

TEST(Unary, SigmoidOfLargeNegativeNumbersKeepsNormalResults) {
  on_each_target([] {
    const Box in = Box(kDouble, {2}).fill([](auto i) { return i ? -700 : -100; }), out(kDouble, {2});
    run(UnaryOp::Sigmoid, out, in);
    EXPECT_NEAR(out.get(0) / std::exp(-100.0), 1, 1e-15);
    EXPECT_NEAR(out.get(1) / std::exp(-700.0), 1, 1e-15);
    const Box x = Box(kFloat, {3}).fill([](auto i) { return i == 0 ? -87 : i == 1 ? -1000 : 1000; }), y(kFloat, {3});
    run(UnaryOp::Sigmoid, y, x);
    EXPECT_NEAR(y.get(0) / std::exp(-87.0), 1, 1e-6);
    EXPECT_EQ(y.get(1), 0);
    EXPECT_EQ(y.get(2), 1);
  });
}

TEST(Unary, GeluEndsInZeroBelowAndInItsArgumentAbove) {
  constexpr double kFar[] = {5.6, 6, 100, 1e30, 3e38, kInf};
  on_each_target([&] {
    const std::int64_t far = std::size(kFar), near = 4001, all = 2 * far + near;
    const Box in = Box(kFloat, {all}).fill([&](std::int64_t i) {
      return i < far ? -kFar[i] : i < 2 * far ? kFar[i - far] : -6 + static_cast<double>(i - 2 * far) / (near - 1);
    });
    const Box out(kFloat, {all});
    run(UnaryOp::Gelu, out, in);
    for (std::int64_t i = 0; i < all; ++i) {
      const double x = in.get(i);
      if (i >= 2 * far)
        ASSERT_NEAR(out.get(i), 0.5 * x * std::erfc(-x * std::sqrt(0.5)), 2.2e-7 * std::fabs(x)) << "at " << x;
      else
        ASSERT_EQ(out.get(i), i < far ? 0 : x);
    }
  });
}

TEST(Unary, HalvesComputeInFloat32AndRoundOnce) {
  for (DType t : {kHalf, kBFloat16})
    for (UnaryOp op : {UnaryOp::Exp, UnaryOp::Tanh, UnaryOp::Relu, UnaryOp::Gelu, UnaryOp::Sqrt, UnaryOp::Neg}) {
      Box in(t, {3001}), out(t, {3001}), wide(kFloat, {3001}), wide_out(kFloat, {3001});
      in.fill([](std::int64_t i) { return (static_cast<double>(i) - 1500) / 150; });
      wide.fill([&](std::int64_t i) { return in.get(i); });
      run(op, out, in);
      run(op, wide_out, wide);
      for (std::int64_t i = 0; i < in.numel(); ++i) {
        const auto x = static_cast<float>(wide_out.get(i));
        ASSERT_TRUE(same(out.get(i), t == kHalf ? float(Half(x)) : float(BFloat16(x)))) << name(op) << ' ' << in.get(i);
      }
    }
}

TEST(Unary, AnyStridesAndInPlaceGiveTheSameValues) {
  for (DType t : {kFloat, kDouble, kHalf, kInt, kByte})
    for (UnaryOp op : {UnaryOp::Relu, UnaryOp::Square}) {
      const testing::Dims shape{5, 37, 3};
      const auto value = [](std::int64_t i) { return (i * 7) % 12; };
      const Box dense = Box(t, shape).fill(value), expected(t, shape);
      run(op, expected, dense);
      for (const testing::Dims& strides : {testing::Dims{111, 3, 1}, {1, 5, 185}, {400, 8, 2}, {3, 15, 1}})
        for (std::int64_t lead : {0, 1}) {
          const Box in = Box(t, shape, strides, lead).fill(value);
          const Box out(t, shape, {111, 3, 1}, lead), strided_out(t, shape, {300, 6, 2}, lead);
          run(op, out, in);
          run(op, strided_out, in);
          run(op, in, in);
          for (std::int64_t i = 0; i < in.numel(); ++i) {
            ASSERT_EQ(out.get(i), expected.get(i));
            ASSERT_EQ(strided_out.get(i), expected.get(i));
            ASSERT_EQ(in.get(i), expected.get(i));
          }
        }
    }
}

TEST(Unary, HandlesEveryLengthAndScalars) {
  on_each_target([] {
    for (std::int64_t n = 0; n < 70; ++n) {
      Box in = Box(kFloat, {n}).fill([](std::int64_t i) { return static_cast<double>(i) / 8; });
      Box out(kFloat, {n + 1});
      out.set(n, 77);
      View v = out.view();
      const std::int64_t size = n;
      v.sizes = &size;
      v.numel = n;
      unary_kernel.get(kCPU)(UnaryOp::Exp, v, in.view(), 0, 0);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_NEAR(out.get(i), std::exp(in.get(i)), 1e-3 * out.get(i));
      ASSERT_EQ(out.get(n), 77) << "wrote past the end, length " << n;
    }
  });
  const Box in = Box(kFloat, {}).fill([](auto) { return 4; }), out(kFloat, {});
  run(UnaryOp::Sqrt, out, in);
  EXPECT_EQ(out.get(0), 2);
}

TEST(Unary, LargeOutputsAreWholeOnAnyThreadCount) {
  const std::int64_t n = (9 << 20) + 3;
  Box in(kFloat, {n}), out(kFloat, {n});
  auto* x = in.view().ptr<float>();
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 1000) - 500;
  run(UnaryOp::Abs, out, in);
  const auto* y = out.view().ptr<float>();
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], std::fabs(x[i])) << i;
}

TEST(Unary, IntegersWrapAndClamp) {
  const double lowest[] = {0, -128, -32768, -2147483648.0};
  const DType types[] = {kByte, kChar, kShort, kInt};
  for (int k = 0; k < 4; ++k) {
    const DType t = types[k];
    const Box in = Box(t, {4}).fill([&](std::int64_t i) { return i == 0 ? lowest[k] : static_cast<double>(i * 30); });
    const Box out(t, {4});
    run(UnaryOp::Abs, out, in);
    EXPECT_EQ(out.get(0), lowest[k]);
    run(UnaryOp::Neg, out, in);
    EXPECT_EQ(out.get(0), lowest[k]);
    EXPECT_EQ(out.get(1), t == kByte ? 226 : -30);
    run(UnaryOp::Clamp, out, in, 10, 70);
    EXPECT_EQ(out.get(0), 10);
    EXPECT_EQ(out.get(3), 70);
    run(UnaryOp::Sign, out, in);
    EXPECT_EQ(out.get(0), t == kByte ? 0 : -1);
    EXPECT_EQ(out.get(1), 1);
    run(UnaryOp::Relu6, out, in);
    EXPECT_EQ(out.get(1), 6);
    run(UnaryOp::Floor, out, in);
    EXPECT_EQ(out.get(2), 60);
    run(UnaryOp::BitwiseNot, out, in);
    EXPECT_EQ(out.get(1), t == kByte ? 225 : -31);
    run(UnaryOp::Threshold, out, in, 50, 5);
    EXPECT_EQ(out.get(1), 5);
    EXPECT_EQ(out.get(2), 60);
  }
  const Box in = Box(kLong, {1}).fill([](auto) { return 5; }), out(kLong, {1});
  run(UnaryOp::ClampMin, out, in, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(out.get_int(0), std::numeric_limits<std::int64_t>::max());
}

TEST(Unary, BoolResultsForEveryDType) {
  const double values[] = {0.0, -0.0, 1, 3, kNaN, kInf, -kInf, -2};
  for (DType t : kAllDTypes) {
    const bool floating = is_floating_point(t);
    const std::int64_t n = 40;
    const Box in = Box(t, {n}).fill([&](std::int64_t i) {
      return floating ? values[i % 8] : static_cast<double>(is_signed(t) && i % 8 == 7 ? -2 : i % 4);
    });
    const Box out(kBool, {n});
    const auto expect = [&](UnaryOp op, auto&& want) {
      run(op, out, in);
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_EQ(out.get(i), static_cast<double>(want(in.get(i))))
            << name(op) << ' ' << dtype_name(t) << ' ' << in.get(i);
    };
    expect(UnaryOp::IsNan, [](double x) { return std::isnan(x); });
    expect(UnaryOp::IsInf, [](double x) { return std::isinf(x); });
    expect(UnaryOp::IsFinite, [](double x) { return std::isfinite(x); });
    expect(UnaryOp::IsPosInf, [](double x) { return x == kInf; });
    expect(UnaryOp::IsNegInf, [](double x) { return x == -kInf; });
    expect(UnaryOp::Signbit, [](double x) { return std::signbit(x); });
    expect(UnaryOp::LogicalNot, [](double x) { return x == 0; });
  }
}

TEST(Unary, SpecialValuesFollowPyTorch) {
  const Box in = Box(kFloat, {5}).fill([](std::int64_t i) {
    return i == 0 ? kNaN : i == 1 ? -kInf : i == 2 ? kInf : i == 3 ? -0.0 : 2.5;
  });
  const Box out(kFloat, {5});
  run(UnaryOp::Sign, out, in);
  EXPECT_EQ(out.get(0), 0);
  EXPECT_EQ(out.get(1), -1);
  for (UnaryOp op : {UnaryOp::Clamp, UnaryOp::Hardtanh}) {
    run(op, out, in, -1, 1);
    EXPECT_TRUE(std::isnan(out.get(0)));
    EXPECT_EQ(out.get(1), -1);
    EXPECT_EQ(out.get(2), 1);
  }
  run(UnaryOp::Clamp, out, in, kNaN, 1);
  EXPECT_TRUE(std::isnan(out.get(4)));
  run(UnaryOp::Clamp, out, in, 8, 3);
  EXPECT_EQ(out.get(4), 3);
  run(UnaryOp::Logit, out, in, 0.25);
  EXPECT_TRUE(std::isnan(out.get(0)));
  EXPECT_NEAR(out.get(3), std::log(0.25 / 0.75), 1e-6);
  run(UnaryOp::Sinc, out, in);
  EXPECT_EQ(out.get(3), 1);
  run(UnaryOp::Gelu, out, in);
  EXPECT_TRUE(std::isnan(out.get(0)));
  EXPECT_EQ(out.get(2), kInf);
  run(UnaryOp::PowScalar, out, in, 0);
  EXPECT_EQ(out.get(0), 1);
  nan_to_num_kernel.get(kCPU)(out.view(), in.view(), 7, 8, 9);
  EXPECT_EQ(out.get(0), 7);
  EXPECT_EQ(out.get(1), 9);
  EXPECT_EQ(out.get(2), 8);
  EXPECT_EQ(out.get(4), 2.5);
}

TEST(Unary, DigammaAndTrigammaMatchKnownValues) {
  const double x[] = {1, 0.5, 10, -1.5, 1e6, 0, -2, kInf};
  const double digamma[] = {-0.57721566490153286061,
                            -1.9635100260214234794,
                            2.2517525890667211076,
                            0.70315664064524318723,
                            13.815510057964190771,
                            -kInf,
                            kNaN,
                            kInf};
  const double trigamma[] = {1.6449340668482264365,
                             4.9348022005446793094,
                             0.10516633568168574612,
                             9.3792466449891237,
                             1.0000005000001666667e-6,
                             kInf,
                             kInf,
                             0};
  for (DType t : {kDouble, kFloat}) {
    const Box in = Box(t, {8}).fill([&](std::int64_t i) { return x[i]; }), out(t, {8});
    const double relative = t == kDouble ? 1e-14 : 2e-7;
    run(UnaryOp::Digamma, out, in);
    for (int i = 0; i < 8; ++i)
      EXPECT_TRUE(same(out.get(i), digamma[i]) || std::fabs(out.get(i) / digamma[i] - 1) < relative) << x[i];
    run(UnaryOp::Trigamma, out, in);
    for (int i = 0; i < 8; ++i)
      EXPECT_TRUE(same(out.get(i), trigamma[i]) || std::fabs(out.get(i) / trigamma[i] - 1) < relative)
          << x[i] << ' ' << out.get(i);
  }
}

// Values by the definition's sum in 600 digits.
TEST(Unary, PolygammaMatchesKnownValuesOnBothSidesOfItsPoles) {
  const struct {
    int n;
    double x, value;
  } known[] = {{2, 1.5, -0.8287966442343199956},
               {3, -0.3, 766.61989041916858035},
               {2, -7.75, -124.03974558822776382},
               {20, 100, -1.3423500975739654937e-23},
               {100, 3, -6.0361069759381847785e109},
               {200, 50, -2.5829713930705356496e33},     // 200! and 50^-201 are out of range
               {40, -2.5, -4.02596322363595219133e+25},  // what is left where larger terms cancel
               {5, 1e4, 2.40060005999999944e-19},
               {2, 0, -kInf},
               {3, -4, kInf},
               {2, kInf, -0.0},
               {3, -kInf, kNaN},
               {4, kNaN, kNaN}};
  for (const auto& [n, x, value] : known) {
    const Box in = Box(kDouble, {1}).fill([x = x](std::int64_t) { return x; }), out(kDouble, {1});
    run(UnaryOp::Polygamma, out, in, n);
    EXPECT_TRUE(same(out.get(0), value) || std::fabs(out.get(0) / value - 1) < 5e-14)
        << "polygamma(" << n << ", " << x << ") gave " << out.get(0) << ", expected " << value;
  }
}

/// By the recurrence up to 40 and the first terms of the asymptotic series.
Real digamma(Real x) {
  constexpr Real kPi = 3.14159265358979323846264338327950288L;
  if (x < 0) return digamma(1 - x) - kPi / std::tan(kPi * (x - std::nearbyint(x)));
  Real sum = 0;
  for (; x < 40; ++x) sum -= 1 / x;
  const Real z = 1 / (x * x);
  return sum + std::log(x) - 1 / (2 * x) - z * (1 / 12.0L - z * (1 / 120.0L - z * (1 / 252.0L - z / 240)));
}
Real trigamma(Real x) {
  constexpr Real kPi = 3.14159265358979323846264338327950288L;
  if (x < 0) {
    const Real sine = std::sin(kPi * (x - std::nearbyint(x)));
    return kPi * kPi / (sine * sine) - trigamma(1 - x);
  }
  Real sum = 0;
  for (; x < 40; ++x) sum += 1 / (x * x);
  const Real z = 1 / (x * x);
  return sum + 1 / x + z / 2 + z / x * (1 / 6.0L - z * (1 / 30.0L - z * (1 / 42.0L - z / 30)));
}

TEST(Unary, GammaFamilyIsAccurateOnEveryInstructionSet) {
  constexpr int kSamples = 3001;
  on_each_target([] {
    const auto sample = [](std::int64_t i) {
      return i < 2500 ? -12.305 + 0.01 * static_cast<double>(i) : std::ldexp(1.1, static_cast<int>(i - 2500) / 5);
    };
    for (DType t : {kFloat, kDouble}) {
      const Box in = Box(t, {kSamples}).fill(sample), out(t, {kSamples});
      const double relative = t == kDouble ? 4e-15 : 2e-7;
      const auto check = [&](UnaryOp op, Real (*reference)(Real)) {
        run(op, out, in);
        for (std::int64_t i = 0; i < kSamples; ++i) {
          const Real x = in.get(i), want = reference(x);
          // Between two poles the function crosses 0: there an absolute error is all there can be.
          const Real tolerance = relative * std::fmax(std::fabs(want), x < 0 ? 8 : 1);
          ASSERT_LE(std::fabs(out.get(i) - want), tolerance) << name(op) << '(' << static_cast<double>(x) << ')';
        }
      };
      check(UnaryOp::Digamma, digamma);
      check(UnaryOp::Trigamma, trigamma);
      if (t == kFloat) check(UnaryOp::Lgamma, [](Real x) { return std::lgamma(x); });
    }
  });
}

TEST(Unary, LgammaOfSpecialValues) {
  const double x[] = {0, -0.0, 1, 2, -1, -2, kInf, -kInf, kNaN, 1e30, -1e30, 1e-38, -1e-38, 3e38};
  for (DType t : {kFloat, kDouble}) {
    const Box in = Box(t, {14}).fill([&](std::int64_t i) { return x[i]; }), out(t, {14});
    run(UnaryOp::Lgamma, out, in);
    for (std::int64_t i = 0; i < 14; ++i) {
      const double want = std::lgamma(in.get(i));
      const double rounded = t == kFloat ? static_cast<double>(static_cast<float>(want)) : want;
      EXPECT_TRUE(same(out.get(i), rounded) || std::fabs(out.get(i) - rounded) <= 2e-7 * std::fabs(rounded))
          << x[i] << ": " << out.get(i) << ", expected " << rounded;
    }
  }
}

TEST(Unary, RefusesDTypesByName) {
  const Box ints(kInt, {2}), bools(kBool, {2});
  for (UnaryOp op : {UnaryOp::Exp, UnaryOp::Frac, UnaryOp::Gelu, UnaryOp::Lgamma})
    EXPECT_THROW(run(op, ints, ints), NotImplementedError) << name(op);
  for (UnaryOp op : {UnaryOp::Abs, UnaryOp::Neg, UnaryOp::Relu, UnaryOp::Floor})
    EXPECT_THROW(run(op, bools, bools), NotImplementedError) << name(op);
  try {
    run(UnaryOp::Exp, ints, ints);
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("exp"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("int32"), std::string::npos);
  }
}

TEST(Unary, EveryOperationTakesEveryFloatingDType) {
  for (int i = 0; i < static_cast<int>(UnaryOp::Count); ++i) {
    const auto op = static_cast<UnaryOp>(i);
    for (DType t : {kFloat, kDouble, kHalf, kBFloat16}) {
      const Box in = Box(t, {3}).fill([](auto) { return 0.5; });
      const Box out(gives_bool(op) ? kBool : t, {3});
      if (op == UnaryOp::BitwiseNot)
        EXPECT_THROW(run(op, out, in), NotImplementedError);
      else
        EXPECT_NO_THROW(run(op, out, in, 1, 1)) << name(op);
    }
  }
}

}  // namespace
}  // namespace athanor::pointwise_unary_test
