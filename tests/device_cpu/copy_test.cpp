#include "athanor/ops/kernels/copy.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/pointwise_tables.h"
#include "pointwise_util.h"

namespace athanor {
namespace {

using testing::Box;
using testing::broadcast_index;
using testing::Dims;
using testing::kAllDTypes;
using testing::same;

void copy(const Box& out, const Box& in) { copy_kernel.get(kCPU)(out.view(), in.view()); }
void fill(const Box& out, Scalar value) { fill_kernel.get(kCPU)(out.view(), value); }

Box numbers(DType t, Dims sizes, Dims strides, std::int64_t lead = 0) {
  Box box(t, std::move(sizes), std::move(strides), lead);
  return box.fill([&](std::int64_t i) { return t == kBool ? i % 3 == 1 : (i * 7 + 3) % 101; });
}

void expect_copied(const Box& out, const Box& in) {
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const double want = in.get(broadcast_index(in.sizes(), out.sizes(), i));
    ASSERT_EQ(out.get(i), out.dtype() == kBool ? want != 0 : want) << "element " << i;
  }
}

TEST(Copy, ConvertsEveryDTypeToEveryOther) {
  for (DType from : kAllDTypes)
    for (DType to : kAllDTypes) {
      SCOPED_TRACE(std::string(dtype_name(from)) + " to " + dtype_name(to));
      for (std::int64_t n : {0, 1, 15, 67, 1025, 2500}) {
        const Box in = numbers(from, {n}, {1});
        const Box out(to, {n});
        copy(out, in);
        expect_copied(out, in);
      }
    }
}

TEST(Copy, HandlesStridesAndUnalignedMemory) {
  for (DType from : {kFloat, kHalf, kLong, kByte})
    for (DType to : {kFloat, kBFloat16, kDouble, kByte, kShort}) {
      SCOPED_TRACE(std::string(dtype_name(from)) + " to " + dtype_name(to));
      const Box every_other = numbers(from, {7, 300}, {602, 2}, 1);
      const Box narrow = numbers(from, {50, 3}, {5, 1}, 3);
      const Box dense_out(to, {7, 300}, {300, 1}, 1), strided_out(to, {7, 300}, {1, 7});
      copy(dense_out, every_other);
      expect_copied(dense_out, every_other);
      copy(strided_out, every_other);
      expect_copied(strided_out, every_other);
      const Box narrow_out(to, {50, 3}, {4, 1});
      copy(narrow_out, narrow);
      expect_copied(narrow_out, narrow);
    }
}

TEST(Copy, ShortRowsMayBeCutAnywhere) {
  for (DType t : {kByte, kHalf, kFloat, kDouble})
    for (std::int64_t width : {1, 2, 3, 7, 8, 9}) {
      SCOPED_TRACE(std::string(dtype_name(t)) + " of width " + std::to_string(width));
      const Box in = numbers(t, {5, 7001, width}, {7001 * 12, 12, 1}, 1),
                turned = numbers(t, {5, 7001, width}, {1, 5, 5 * 7001});
      const Box out(t, {5, 7001, width}, {7003 * 10, 10, 1}, 1);
      const int before = get_num_threads();
      for (int threads : {1, 2, 7}) {
        set_num_threads(threads);
        fill(out, 0);
        copy(out, in);
        expect_copied(out, in);
        copy(out, turned);
        expect_copied(out, turned);
      }
      set_num_threads(before);
    }
}

TEST(Copy, Broadcasts) {
  for (DType from : {kFloat, kInt})
    for (DType to : {kFloat, kBFloat16}) {
      for (const Dims& small : {Dims{}, Dims{1}, Dims{5}, Dims{4, 1}, Dims{3, 1, 5}, Dims{3, 4, 5}}) {
        const Box in = numbers(from, small, testing::dense_strides(small));
        const Box out(to, {3, 4, 5});
        copy(out, in);
        expect_copied(out, in);
      }
    }
}

TEST(Copy, RefusesAShapeThatDoesNotBroadcast) {
  const Box in(kFloat, {3}), out(kFloat, {4});
  EXPECT_THROW(copy(out, in), Error);
}

TEST(Copy, TransposesEveryItemSize) {
  for (DType t : {kByte, kHalf, kFloat, kDouble, kBool})
    for (auto [rows, cols] : {std::pair{1, 1}, {3, 200}, {64, 64}, {65, 33}, {130, 257}, {600, 70}}) {
      SCOPED_TRACE(std::string(dtype_name(t)) + " " + std::to_string(rows) + " by " + std::to_string(cols));
      const Box in = numbers(t, {rows, cols}, {1, rows});
      const Box out(t, {rows, cols});
      copy(out, in);
      expect_copied(out, in);
      const Box padded(t, {rows, cols}, {cols + 1, 1}, 1);
      copy(padded, in);
      expect_copied(padded, in);
    }
}

TEST(Copy, PermutesInnerAndOuterDims) {
  // NCHW to NHWC, back, and a swap of two middle dims.
  const Box nchw = numbers(kFloat, {3, 6, 7, 5}, {6 * 35, 35, 5, 1});
  const Box nhwc(kFloat, {3, 6, 7, 5}, {6 * 35, 1, 30, 6});
  copy(nhwc, nchw);
  expect_copied(nhwc, nchw);
  const Box back(kFloat, {3, 6, 7, 5});
  copy(back, nhwc);
  expect_copied(back, nhwc);
  const Box swapped = numbers(kFloat, {2, 9, 4, 8}, {288, 8, 72, 1});
  const Box dense(kFloat, {2, 9, 4, 8});
  copy(dense, swapped);
  expect_copied(dense, swapped);
}

TEST(Copy, LargeTransposeAndCopyUseStreamingStoresCorrectly) {
  const std::int64_t rows = 3001, cols = 3008;
  Box in(kFloat, {rows, cols}, {1, rows});
  for (std::int64_t i = 0; i < rows * cols; ++i) reinterpret_cast<float*>(in.view().data)[i] = static_cast<float>(i);
  const Box out(kFloat, {rows, cols}), again(kFloat, {rows, cols});
  copy(out, in);
  copy(again, out);
  const auto* a = out.view().ptr<float>();
  const auto* b = again.view().ptr<float>();
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      ASSERT_EQ(a[r * cols + c], static_cast<float>(c * rows + r));
      ASSERT_EQ(b[r * cols + c], static_cast<float>(c * rows + r));
    }
}

TEST(Copy, CastsOfSpecialValuesAreDefined) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (DType from : {kDouble, kFloat, kHalf, kBFloat16}) {
    const double values[] = {nan, inf, -inf, 1e30, -1e30, -0.0, 0.4, -3.7, 300.0};
    const Box in = Box(from, {9}).fill([&](std::int64_t i) { return values[i]; });
    for (DType to : kAllDTypes) {
      const Box out(to, {9});
      copy(out, in);
      if (to == kBool) {
        EXPECT_EQ(out.get(0), 1);
        EXPECT_EQ(out.get(5), 0);
        EXPECT_EQ(out.get(6), 1);
      } else if (is_floating_point(to)) {
        EXPECT_TRUE(std::isnan(out.get(0)));
        EXPECT_EQ(out.get(1), inf);
        EXPECT_EQ(out.get(2), -inf);
        EXPECT_TRUE(std::signbit(out.get(5)));
      } else {
        EXPECT_EQ(out.get_int(5), 0);
        EXPECT_EQ(out.get_int(6), 0);
        if (is_signed(to)) {
          EXPECT_EQ(out.get_int(7), -3);
        }
        if (item_size(to) > 1) {
          EXPECT_EQ(out.get_int(8), 300);
        }
      }
    }
  }
}

TEST(Copy, RoundsHalvesToNearestEvenAndKeepsSpecials) {
  std::mt19937 random(7);
  Box in(kFloat, {4099});
  for (std::int64_t i = 0; i < in.numel(); ++i) {
    const std::uint32_t bits = random();
    std::memcpy(in.at(i), &bits, 4);
  }
  for (DType to : {kHalf, kBFloat16}) {
    const Box out(to, {4099}), back(kFloat, {4099});
    copy(out, in);
    copy(back, out);
    for (std::int64_t i = 0; i < in.numel(); ++i) {
      const auto x = static_cast<float>(in.get(i));
      const float want = to == kHalf ? float(Half(x)) : float(BFloat16(x));
      ASSERT_TRUE(same(out.get(i), want)) << x;
      ASSERT_TRUE(same(back.get(i), want)) << x;
    }
  }
}

TEST(Copy, OntoItselfChangesNothing) {
  const Box box = numbers(kFloat, {100}, {1});
  copy(box, box);
  expect_copied(box, numbers(kFloat, {100}, {1}));
}

TEST(Copy, IntegersWrap) {
  const Box in = Box(kLong, {3}).fill([](std::int64_t i) { return i == 0 ? 257 : i == 1 ? -1 : (1LL << 40) + 5; });
  const Box out(kByte, {3});
  copy(out, in);
  EXPECT_EQ(out.get_int(0), 1);
  EXPECT_EQ(out.get_int(1), 255);
  EXPECT_EQ(out.get_int(2), 5);
}

TEST(Fill, WritesEveryDTypeAndStride) {
  for (DType t : kAllDTypes) {
    SCOPED_TRACE(dtype_name(t));
    for (const Box& out : {Box(t, {3, 1000}), Box(t, {10, 7}, {14, 2}, 1), Box(t, {}), Box(t, {0, 4})}) {
      fill(out, 3);
      for (std::int64_t i = 0; i < out.numel(); ++i) ASSERT_EQ(out.get(i), t == kBool ? 1 : 3);
      fill(out, 1.5);
      for (std::int64_t i = 0; i < out.numel(); ++i) ASSERT_EQ(out.get(i), is_floating_point(t) ? 1.5 : 1);
    }
  }
}

TEST(Fill, LeavesGapsAlone) {
  const Box whole = numbers(kFloat, {40}, {1});
  View every_other = whole.view();
  const std::int64_t size = 20, stride = 2;
  every_other.sizes = &size;
  every_other.strides = &stride;
  every_other.numel = 20;
  every_other.contiguous = false;
  fill_kernel.get(kCPU)(every_other, -1);
  const Box before = numbers(kFloat, {40}, {1});
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(whole.get(i), i % 2 ? before.get(i) : -1);
}

TEST(Fill, KeepsBigIntegersExactAndLargeOutputsWhole) {
  const Box out(kLong, {5});
  fill(out, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(out.get_int(4), std::numeric_limits<std::int64_t>::max());
  const Box large(kFloat, {(9 << 20) + 5});
  fill(large, 2.5);
  const auto* p = large.view().ptr<float>();
  for (std::int64_t i = 0; i < large.numel(); ++i) ASSERT_EQ(p[i], 2.5F);
}

TEST(Transpose, OfAnyNumberOfRowsAndColumnsOnEveryInstructionSet) {
  for (int target = 0; cpu::use_simd_target(target); ++target)
    for (const std::int64_t rows : {1, 3, 4, 7, 8, 12, 15, 16, 23, 24, 40})
      for (const std::int64_t cols : {1, 3, 4, 5, 8, 9, 16, 27}) {
        std::vector<float> from(static_cast<std::size_t>(rows * (cols + 2))),
            to(static_cast<std::size_t>(cols * (rows + 3)), -1);
        std::iota(from.begin(), from.end(), 1.0F);
        cpu::block_ops().transpose[2](to.data(), rows + 3, from.data(), cols + 2, rows, cols, false);
        for (std::int64_t c = 0; c < cols; ++c)
          for (std::int64_t r = 0; r < rows + 3; ++r)
            ASSERT_EQ(to[static_cast<std::size_t>(c * (rows + 3) + r)],
                      r < rows ? from[static_cast<std::size_t>(r * (cols + 2) + c)] : -1)
                << rows << " x " << cols << " at " << r << ", " << c;
      }
  cpu::use_simd_target(0);
}

}  // namespace
}  // namespace athanor
