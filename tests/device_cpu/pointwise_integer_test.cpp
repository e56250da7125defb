#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "athanor/ops/kernels/pointwise.h"
#include "each_target.h"
#include "pointwise_util.h"

namespace athanor::pointwise_integer_test {
namespace {

using testing::Box;

void run(BinaryOp op, const Box& out, const Box& a, const Box& b, Scalar p0 = 1) {
  binary_kernel.get(kCPU)(op, out.view(), a.view(), b.view(), p0, 0);
}

using testing::on_each_target;

/// The result in 128 bits, to be cut to the dtype.
__int128 integer_reference(BinaryOp op, __int128 a, __int128 b, int bits) {
  switch (op) {
    case BinaryOp::Add:
      return a + 3 * b;
    case BinaryOp::Sub:
      return a - 3 * b;
    case BinaryOp::Mul:
      return a * b;
    case BinaryOp::DivTrunc:
      return a / b;
    case BinaryOp::Fmod:
      return a % b;
    case BinaryOp::DivFloor:
      return a / b - ((a % b != 0) && ((a % b < 0) != (b < 0)));
    case BinaryOp::Remainder:
      return a % b + ((a % b != 0) && ((a % b < 0) != (b < 0)) ? b : 0);
    case BinaryOp::Maximum:
      return a > b ? a : b;
    case BinaryOp::Minimum:
      return a < b ? a : b;
    case BinaryOp::Fmax:
      return a > b ? a : b;
    case BinaryOp::Fmin:
      return a < b ? a : b;
    case BinaryOp::BitwiseAnd:
      return a & b;
    case BinaryOp::BitwiseOr:
      return a | b;
    case BinaryOp::BitwiseXor:
      return a ^ b;
    case BinaryOp::LeftShift:
      return b < 0 || b >= bits ? 0 : static_cast<__int128>(static_cast<unsigned __int128>(a) << b);
    case BinaryOp::RightShift:
      return b < 0 || b >= bits ? (a < 0 ? -1 : 0) : a >> b;
    case BinaryOp::Heaviside:
      return a == 0 ? b : a > 0;
    default:
      return 0;
  }
}

TEST(BinaryIntegers, IntegersMatchTheReferenceAtTheirEdges) {
  on_each_target([] {
    for (DType t : {kByte, kChar, kShort, kInt, kLong}) {
      const int bits = static_cast<int>(8 * item_size(t));
      const std::int64_t low = is_signed(t) ? std::numeric_limits<std::int64_t>::min() >> (64 - bits) : 0;
      const std::int64_t high = is_signed(t) ? std::numeric_limits<std::int64_t>::max() >> (64 - bits) : 255;
      std::vector<std::int64_t> values{low, low + 1, high, high - 1, 0, 1, 2, 3, 5, 7, 8, 31, 32, 63, 64, 100};
      if (is_signed(t)) values.insert(values.end(), {-1, -2, -3, -7, -100});
      std::mt19937_64 random(9);
      for (int i = 0; i < 30; ++i)
        values.push_back(low + static_cast<std::int64_t>(random() % 1000003) % (high / 2 - low / 2));
      const auto n = static_cast<std::int64_t>(values.size());
      Box a(t, {n * n}), b(t, {n * n}), out(t, {n * n});
      for (std::int64_t i = 0; i < n * n; ++i) {
        a.set(i, values[static_cast<std::size_t>(i / n)]);
        b.set(i, values[static_cast<std::size_t>(i % n)]);
      }
      for (int k = 0; k <= static_cast<int>(BinaryOp::RightShift); ++k) {
        const auto op = static_cast<BinaryOp>(k);
        if (is_floating_point(t) || op == BinaryOp::Div || op == BinaryOp::Pow ||
            (op >= BinaryOp::Atan2 && op <= BinaryOp::Prelu))
          continue;
        const bool divides = op >= BinaryOp::DivFloor && op <= BinaryOp::Fmod;
        Box divisor = b;
        if (divides)
          for (std::int64_t i = 0; i < n * n; ++i)
            if (divisor.get_int(i) == 0) divisor.set(i, 3);
        run(op, out, a, divisor, 3);
        for (std::int64_t i = 0; i < n * n; ++i) {
          const auto wide = integer_reference(op, a.get_int(i), divisor.get_int(i), bits);
          Box want(t, {1});
          want.set(0, static_cast<std::int64_t>(static_cast<unsigned __int128>(wide)));
          ASSERT_EQ(out.get_int(i), want.get_int(0))
              << name(op) << ' ' << dtype_name(t) << ' ' << a.get_int(i) << ' ' << divisor.get_int(i);
        }
      }
    }
  });
}

TEST(BinaryIntegers, IntegerPowersGcdAndLcm) {
  const std::int64_t a[] = {2, -3, 0, 1, -1, -1, 5, 0, 12, -4, 6, 0};
  const std::int64_t b[] = {10, 3, 0, -7, -7, -8, -1, 5, 18, 6, -9, 0};
  const std::int64_t power[] = {1024, -27, 1, 1, -1, 1, 0, 0};
  for (DType t : {kInt, kLong, kShort}) {
    const Box x = Box(t, {12}).fill([&](std::int64_t i) { return a[i]; });
    const Box y = Box(t, {12}).fill([&](std::int64_t i) { return b[i]; });
    const Box out(t, {12});
    run(BinaryOp::Pow, out, x, y);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(out.get_int(i), power[i]) << a[i] << " ** " << b[i];
    run(BinaryOp::Gcd, out, x, y);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(out.get_int(i), std::gcd(a[i], b[i]));
    run(BinaryOp::Lcm, out, x, y);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(out.get_int(i), std::lcm(a[i], b[i]));
  }
}

TEST(BinaryIntegers, IntegerDivisionByZeroThrows) {
  for (DType t : {kByte, kChar, kShort, kInt, kLong})
    for (BinaryOp op : {BinaryOp::DivFloor, BinaryOp::DivTrunc, BinaryOp::Remainder, BinaryOp::Fmod}) {
      const Box a = Box(t, {100000}).fill([](auto) { return 7; });
      const Box b = Box(t, {100000}).fill([](std::int64_t i) { return i == 99998 ? 0 : 3; });
      const Box zero = Box(t, {1}), out(t, {100000});
      for (const Box* divisor : {&b, &zero}) {
        try {
          run(op, out, a, *divisor);
          FAIL() << name(op) << ' ' << dtype_name(t);
        } catch (const Error& e) {
          EXPECT_NE(std::string(e.what()).find("ZeroDivisionError"), std::string::npos);
        }
      }
    }
}

TEST(BinaryIntegers, BoolArithmeticIsLogic) {
  const Box a = Box(kBool, {4}).fill([](std::int64_t i) { return i / 2; });
  const Box b = Box(kBool, {4}).fill([](std::int64_t i) { return i % 2; });
  const Box out(kBool, {4});
  for (BinaryOp op : {BinaryOp::Add, BinaryOp::Maximum, BinaryOp::Fmax, BinaryOp::BitwiseOr}) {
    run(op, out, a, b);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(out.get(i), i > 0) << name(op);
  }
  for (BinaryOp op : {BinaryOp::Mul, BinaryOp::Minimum, BinaryOp::Fmin, BinaryOp::BitwiseAnd}) {
    run(op, out, a, b);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(out.get(i), i == 3) << name(op);
  }
  for (BinaryOp op : {BinaryOp::Sub, BinaryOp::DivFloor, BinaryOp::Remainder, BinaryOp::Pow, BinaryOp::LeftShift})
    EXPECT_THROW(run(op, out, a, b), NotImplementedError) << name(op);
}

TEST(BinaryIntegers, ScalarsWrapButClampBoundsSaturate) {
  const Box x = Box(kByte, {2}).fill([](std::int64_t i) { return i ? 200 : 3; }), out(kByte, {2});
  binary_scalar_kernel.get(kCPU)(BinaryOp::Add, out.view(), x.view(), 300, false, 1, 0);
  EXPECT_EQ(out.get_int(0), 47);
  EXPECT_EQ(out.get_int(1), 244);
  unary_kernel.get(kCPU)(UnaryOp::Clamp, out.view(), x.view(), -1, 300);
  EXPECT_EQ(out.get_int(0), 3);
  EXPECT_EQ(out.get_int(1), 200);
  run(BinaryOp::Add, out, x, x, -1);
  EXPECT_EQ(out.get_int(1), 0);
}

}  // namespace
}  // namespace athanor::pointwise_integer_test
