#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/pointwise_tables.h"
#include "athanor/device/cpu/walk_order.h"
#include "athanor/ops/kernels/pointwise.h"
#include "pointwise_util.h"

namespace athanor {
namespace {

using testing::Box;
using testing::broadcast_index;
using testing::Dims;

void subtract(const Box& out, const Box& a, const Box& b) {
  binary_kernel.get(kCPU)(BinaryOp::Sub, out.view(), a.view(), b.view(), 1, 0);
}

double value(std::int64_t i) { return static_cast<double>(i * 7 % 31); }

void expect_difference(const Box& out, const Box& a, const Box& b) {
  for (std::int64_t i = 0; i < out.numel(); ++i)
    ASSERT_EQ(out.get(i),
              a.get(broadcast_index(a.sizes(), out.sizes(), i)) - b.get(broadcast_index(b.sizes(), out.sizes(), i)))
        << i;
}

TEST(StridedLoop, SpreadsOneElementOverEachShortRow) {
  for (DType t : {kFloat, kDouble, kShort, kChar, kHalf, kBFloat16})
    for (std::int64_t width : {2, 3, 8, 15, 23, 24, 63, 64, 65, 200, 255, 256, 300}) {
      SCOPED_TRACE(std::string(dtype_name(t)) + ' ' + std::to_string(width));
      const std::int64_t rows = std::max<std::int64_t>(2500 / width, 9) / 3 * 3;
      const Box a = Box(t, {rows, width}).fill(value), column = Box(t, {rows, 1}).fill(value);
      const Box out(t, {rows, width});
      subtract(out, a, column);
      expect_difference(out, a, column);
      subtract(out, column, a);
      expect_difference(out, column, a);
      // Rows of several outer dims, and a column that is strided itself.
      const Box cube = Box(t, {3, rows / 3, width}).fill(value);
      const Box points = Box(t, {3, rows / 3, 1}, {1, 3, 1}).fill(value), difference(t, {3, rows / 3, width});
      subtract(difference, cube, points);
      expect_difference(difference, cube, points);
    }
}

TEST(StridedLoop, AnElementMeetsEachRowOfWholeLinesOnEveryInstructionSet) {
  const auto apply = [](BinaryOp op, double a, double b) {
    return op == BinaryOp::Add ? a + b : op == BinaryOp::Sub ? a - b : op == BinaryOp::Mul ? a * b : a / b;
  };
  const ThreadTeamGuard team(3);
  for (int target = 0; cpu::use_simd_target(target); ++target)
    for (DType t : {kFloat, kDouble})
      for (std::int64_t width : {16, 48, 256})
        for (BinaryOp op : {BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div}) {
          const std::int64_t rows = 100000 / width;
          // Away from the beginning of a cache line; powers of 2 divide exactly.
          const Box a = Box(t, {rows, width}, {width, 1}, 1).fill([](std::int64_t i) { return std::exp2(i % 7 - 3); });
          const Box column = Box(t, {rows, 1}, {1, 1}, 3).fill([](std::int64_t i) { return std::exp2(i % 5 - 2); });
          const Box out(t, {rows, width}, {width, 1}, 5);
          std::int64_t wrong = 0;
          binary_kernel.get(kCPU)(op, out.view(), a.view(), column.view(), 1, 0);
          for (std::int64_t i = 0; i < out.numel(); ++i)
            wrong += out.get(i) != apply(op, a.get(i), column.get(i / width));
          binary_kernel.get(kCPU)(op, out.view(), column.view(), a.view(), 1, 0);
          for (std::int64_t i = 0; i < out.numel(); ++i)
            wrong += out.get(i) != apply(op, column.get(i / width), a.get(i));
          binary_kernel.get(kCPU)(op, a.view(), column.view(), a.view(), 1, 0);
          for (std::int64_t i = 0; i < out.numel(); ++i) wrong += out.get(i) != a.get(i);
          ASSERT_EQ(wrong, 0) << name(op) << " of " << dtype_name(t) << ", rows of " << width << ", set " << target;
        }
  cpu::use_simd_target(0);
}

TEST(StridedLoop, TurnsOverOperandsThatAreDenseInAnotherDim) {
  for (DType t : {kFloat, kDouble, kShort, kChar, kHalf})
    for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{16, 16}, {17, 130}, {90, 67}, {15, 100}}) {
      SCOPED_TRACE(std::string(dtype_name(t)) + ' ' + std::to_string(rows) + 'x' + std::to_string(cols));
      const Box plain = Box(t, {rows, cols}).fill(value), turned = Box(t, {rows, cols}, {1, rows}).fill(value);
      const Box row = Box(t, {cols}).fill(value), column = Box(t, {rows, 1}).fill(value);
      const Box out(t, {rows, cols}), turned_out(t, {rows, cols}, {1, rows}), gaps(t, {rows, cols}, {2 * cols, 1}, 3);
      for (const Box* result : {&out, &turned_out, &gaps})
        for (const Box* other : {&plain, &row, &column}) {
          subtract(*result, turned, *other);
          expect_difference(*result, turned, *other);
          subtract(*result, *other, turned);
          expect_difference(*result, *other, turned);
        }
    }
}

TEST(StridedLoop, TurnsOverUnderOuterDims) {
  const Dims sizes{3, 20, 5, 70};
  const Box a = Box(kFloat, sizes).fill(value);
  for (const Dims& strides :
       {Dims{1, 3 * 5 * 70, 3 * 70, 3}, {7000, 1, 20, 100}, {100, 5, 1, 300}, {7000, 70, 1400, 1}}) {
    const Box b = Box(kFloat, sizes, strides).fill(value), out(kFloat, sizes);
    subtract(out, a, b);
    expect_difference(out, a, b);
  }
}

TEST(StridedLoop, TurnsOverAllOperandsOfThree) {
  const Dims sizes{90, 150};
  const Box a = Box(kFloat, sizes, {1, 90}).fill(value), b = Box(kFloat, sizes).fill(value),
            c = Box(kFloat, sizes, {1, 90}).fill(value), out(kFloat, sizes);
  ternary_kernel.get(kCPU)(TernaryOp::Addcmul, out.view(), a.view(), b.view(), c.view(), 2);
  for (std::int64_t i = 0; i < out.numel(); ++i) ASSERT_EQ(out.get(i), a.get(i) + 2 * b.get(i) * c.get(i)) << i;
}

/// Small numbers that do not repeat with the cache lines; cheap, for many millions of elements.
std::int64_t spread_value(std::int64_t i) { return (i + (i >> 6) + (i >> 12)) & 63; }

/// Results of 33 MB, which bypass the caches.
template <class T>
void check_large(DType t) {
  const auto n = static_cast<std::int64_t>((std::size_t{33} << 20) / sizeof(T)) + 5;
  const Box a(t, {n}), out(t, {n}, {1}, 3);
  auto* x = a.view().ptr<T>();
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(spread_value(i));
  const auto* y = out.view().ptr<T>();
  for (int threads : {1, 3}) {
    const ThreadTeamGuard guard(threads);
    std::memset(out.view().data, 0, static_cast<std::size_t>(n) * sizeof(T));
    binary_scalar_kernel.get(kCPU)(BinaryOp::Add, out.view(), a.view(), 2, false, 1, 0);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < n; ++i) wrong += y[i] != static_cast<T>(spread_value(i) + 2);
    ASSERT_EQ(wrong, 0);
  }
}

TEST(StridedLoop, LargeOperandsAreWalkedFromEitherEndAlike) {
  // Beyond kTurnBytes calls take turns; the sizes leave parts of stretches at both ends of each thread's share.
  for (std::int64_t n : {300001, 524288})
    for (int threads : {1, 2, 3}) {
      const ThreadTeamGuard team(threads);
      const Box a = Box(kFloat, {n}).fill(value),
                b = Box(kFloat, {n}).fill([](std::int64_t i) { return value(3 * i); });
      for (int call = 0; call < 3; ++call) {
        const Box out(kFloat, {n});
        subtract(out, a, b);
        expect_difference(out, a, b);
      }
      const Box in_place = Box(kFloat, {n}).fill(value);
      for (int call = 1; call <= 2; ++call) {
        subtract(in_place, in_place, b);
        for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(in_place.get(i), a.get(i) - call * b.get(i)) << i;
      }
    }
}

TEST(WalkOrder, StretchesCoverTheRangeOnceFromEitherEnd) {
  for (bool backwards : {false, true})
    for (std::int64_t end : {7, 8, 15, 16, 17, 100}) {
      std::vector<int> visits(100, 0);
      std::int64_t last = backwards ? end : 7;
      cpu::walk_stretches(7, end, 8, backwards, [&](std::int64_t b, std::int64_t e) {
        EXPECT_EQ(backwards ? e : b, last);
        last = backwards ? b : e;
        for (std::int64_t i = b; i < e; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(visits[static_cast<std::size_t>(i)], i >= 7 && i < end) << i;
    }
}

TEST(WalkOrder, LargeOperationsTakeTurnsAndSmallOnesDoNotCount) {
  const bool first = cpu::begins_at_end(cpu::kTurnBytes);
  EXPECT_FALSE(cpu::begins_at_end(cpu::kTurnBytes - 1));
  EXPECT_EQ(cpu::begins_at_end(cpu::kTurnBytes), !first);
  EXPECT_EQ(cpu::begins_at_end(cpu::kTurnBytes), first);
}

TEST(StridedLoop, StreamsLargeResultsOfEveryItemSize) {
  check_large<std::int8_t>(kChar);
  check_large<std::int16_t>(kShort);
  check_large<float>(kFloat);
  check_large<double>(kDouble);
}

TEST(StridedLoop, StreamsResultsThatBeginWithinACacheLineOnEveryInstructionSet) {
  const std::int64_t n = (8 << 20) + 37, margin = 16;
  const Box a(kFloat, {n}), room(kFloat, {n + margin});
  auto* x = a.view().ptr<float>();
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(spread_value(i));
  std::int64_t begin = 3;
  for (int target = 0; cpu::use_simd_target(target); ++target, begin += 5) {
    View out = a.view();
    out.data = room.view().ptr<float>() + begin;
    const auto* y = out.ptr<float>();
    std::memset(room.view().data, 0xff, static_cast<std::size_t>(n + margin) * sizeof(float));
    unary_kernel.get(kCPU)(UnaryOp::Neg, out, a.view(), 0, 0);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < n; ++i) wrong += y[i] != -x[i];
    binary_kernel.get(kCPU)(BinaryOp::Mul, out, a.view(), a.view(), 1, 0);
    for (std::int64_t i = 0; i < n; ++i) wrong += y[i] != x[i] * x[i];
    ASSERT_EQ(wrong, 0) << "instruction set " << target;
    for (std::int64_t i = -begin; i < n + margin - begin; ++i) wrong += (i < 0 || i >= n) && !std::isnan(y[i]);
    ASSERT_EQ(wrong, 0) << "wrote past its ends, instruction set " << target;
  }
  cpu::use_simd_target(0);
}

TEST(StridedLoop, StreamsOneElementOverEachShortRow) {
  for (std::int64_t width : {23, 64}) {
    const std::int64_t rows = (8 << 20) / width + 1, n = rows * width;
    const Box a(kFloat, {rows, width}), column(kFloat, {rows, 1}), out(kFloat, {rows, width});
    auto *x = a.view().ptr<float>(), *c = column.view().ptr<float>(), *y = out.view().ptr<float>();
    for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(spread_value(i));
    for (std::int64_t i = 0; i < rows; ++i) c[i] = static_cast<float>(spread_value(5 * i + 1));
    for (int threads : {1, 3}) {
      const ThreadTeamGuard team(threads);
      std::memset(y, 0xff, static_cast<std::size_t>(n) * sizeof(float));
      subtract(out, a, column);
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < n; ++i) wrong += y[i] != x[i] - c[i / width];
      ASSERT_EQ(wrong, 0) << "rows of " << width << ", " << threads << " threads";
      subtract(out, column, a);
      for (std::int64_t i = 0; i < n; ++i) wrong += y[i] != c[i / width] - x[i];
      ASSERT_EQ(wrong, 0) << "rows of " << width << ", turned round, " << threads << " threads";
    }
  }
}

/// Rows and columns that come round again under every row, or element, of a large result that begins within a line.
template <class T>
void check_streamed_rows(DType dtype, std::int64_t width, int target) {
  constexpr std::int64_t kMargin = 16, kBegin = 3;
  const std::int64_t rows = (32 << 20) / static_cast<std::int64_t>(sizeof(T)) / width + 2, n = rows * width;
  const Box a(dtype, {rows, width}), row(dtype, {width}), column(dtype, {rows, 1}), room(dtype, {n + kMargin});
  auto *x = a.view().ptr<T>(), *r = row.view().ptr<T>(), *c = column.view().ptr<T>(), *y = room.view().ptr<T>();
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(spread_value(i));
  for (std::int64_t i = 0; i < width; ++i) r[i] = static_cast<T>(spread_value(3 * i + 2));
  for (std::int64_t i = 0; i < rows; ++i) c[i] = static_cast<T>(spread_value(5 * i + 1));
  View out = a.view();
  out.data = y + kBegin;
  const auto check = [&](const Box& p, const Box& q, int threads, const auto& expected) {
    const ThreadTeamGuard team(threads);
    std::memset(y, 0xff, static_cast<std::size_t>(n + kMargin) * sizeof(T));
    binary_kernel.get(kCPU)(BinaryOp::Sub, out, p.view(), q.view(), 1, 0);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0, at = kBegin; i < rows; ++i)
      for (std::int64_t j = 0; j < width; ++j, ++at) wrong += y[at] != expected(x[at - kBegin], r[j], c[i]);
    for (std::int64_t i = 0; i < kMargin; ++i) wrong += !std::isnan(y[i < kBegin ? i : n + i]);
    ASSERT_EQ(wrong, 0) << dtype_name(dtype) << ", rows of " << width << ", instruction set " << target;
  };
  check(a, row, 1, [](T from, T in_row, T) { return from - in_row; });
  check(row, a, 3, [](T from, T in_row, T) { return in_row - from; });
  check(a, column, 3, [](T from, T, T in_column) { return from - in_column; });
  check(column, row, 1, [](T, T in_row, T in_column) { return in_column - in_row; });
}

TEST(StridedLoop, StreamsUnderRowsThatComeRoundAndCutCacheLinesOnEveryInstructionSet) {
  for (int target = 0; cpu::use_simd_target(target); ++target)
    for (const std::int64_t width : {1003, 4096, 5003, 40001}) {
      check_streamed_rows<float>(kFloat, width, target);
      check_streamed_rows<double>(kDouble, width, target);
    }
  cpu::use_simd_target(0);
}

TEST(StridedLoop, StreamsTurnedOverOperandsAndHalves) {
  const std::int64_t rows = 2900, cols = 3001;
  const Box turned(kFloat, {rows, cols}, {1, rows}), plain(kFloat, {rows, cols}), out(kFloat, {rows, cols});
  auto* x = turned.view().ptr<float>();
  auto* y = plain.view().ptr<float>();
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    x[i] = static_cast<float>(spread_value(i));
    y[i] = static_cast<float>(spread_value(i + 7));
  }
  subtract(out, turned, plain);
  const auto* z = out.view().ptr<float>();
  std::int64_t wrong = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) wrong += z[r * cols + c] != x[c * rows + r] - y[r * cols + c];
  ASSERT_EQ(wrong, 0);

  const std::int64_t n = 18000001;
  const auto root = [](std::int64_t i) { return spread_value(i) & 31; };  // the square is exact in half precision
  const Box halves(kHalf, {n}), roots(kHalf, {n});
  auto* h = halves.view().ptr<Half>();
  for (std::int64_t i = 0; i < n; ++i) h[i] = Half(static_cast<float>(root(i) * root(i)));
  unary_kernel.get(kCPU)(UnaryOp::Sqrt, roots.view(), halves.view(), 0, 0);
  const auto* s = roots.view().ptr<Half>();
  for (std::int64_t i = 0; i < n; ++i) wrong += static_cast<float>(s[i]) != static_cast<float>(root(i));
  ASSERT_EQ(wrong, 0);
}

}  // namespace
}  // namespace athanor
