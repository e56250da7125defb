// Running sums, products and extremes against plain loops: dtypes, directions, strides, threads.
#include <gtest/gtest.h>

#include <cmath>

#include "athanor/base/parallel.h"
#include "athanor/ops/kernels/scan_sort.h"
#include "device_cpu/strided_array.h"

namespace athanor {
namespace {

using testing::StridedArray;
using Shape = std::vector<std::int64_t>;

void scan(ScanOp op, View out, View in, std::int64_t dim, bool reverse) {
  scan_kernel.get(DeviceType::CPU)(op, out, in, dim, reverse);
}

}  // namespace

TEST(Scan, SumsEveryDTypeAlongEveryDimBothWays) {
  for (const DType t : {DType::Float, DType::Double, DType::Half, DType::Int, DType::Byte})
    for (const DType result : {DType::Float, DType::Double, DType::BFloat16, DType::Long, DType::Short})
      for (const int dim : {0, 1, 2})
        for (const bool reverse : {false, true}) {
          const Shape sizes{3, 70, 41};
          StridedArray in(t, sizes, {2, 0, 1}, 1), out(result, sizes, {1, 0, 2}, 1);
          in.fill(7);
          scan(ScanOp::CumSum, out.view(), in.view(), dim, reverse);
          Shape outer = sizes;
          const auto d = static_cast<std::size_t>(dim);
          outer[d] = 1;
          StridedArray(DType::Byte, outer).each_index([&](Shape index) {
            double sum = 0;
            for (std::int64_t k = 0; k < sizes[d]; ++k) {
              index[d] = reverse ? sizes[d] - 1 - k : k;
              // What `out` would hold of the element: integers drop the fraction.
              const double v = in.at(index);
              sum += is_integral(result) ? std::trunc(v) : v;
              const double want = is_integral(result) ? testing::wrapped(static_cast<std::int64_t>(sum), result) : sum;
              // The elements are multiples of 1/64, so float sums are exact but for their last rounding.
              if (result == DType::BFloat16)
                ASSERT_NEAR(out.at(index), want, std::abs(want) / 256);
              else
                ASSERT_EQ(out.at(index), want) << dtype_name(t) << " to " << dtype_name(result);
            }
          });
          EXPECT_TRUE(out.margins_intact());
        }
}

TEST(Scan, HasTheSameBitsForAnyNumberOfThreads) {
  constexpr std::int64_t kLength = 1000003;
  const int threads = get_num_threads();
  for (const bool reverse : {false, true})
    for (const DType t : {DType::Float, DType::Double, DType::BFloat16}) {
      StridedArray in(t, {kLength}), one(t, {kLength}), many(t, {kLength});
      in.fill(3, 3);
      for (std::int64_t i = 0; i < kLength; i += 7) in.put({i}, 0.1 * static_cast<double>(i % 11));
      set_num_threads(1);
      scan(ScanOp::CumSum, one.view(), in.view(), 0, reverse);
      for (const int team : {2, 7}) {
        set_num_threads(team);
        many.fill(0);
        scan(ScanOp::CumSum, many.view(), in.view(), 0, reverse);
        EXPECT_EQ(one.bytes(), many.bytes()) << team << " threads";
      }
      set_num_threads(threads);
      double sum = 0;
      const std::vector<double> v = in.values(), got = one.values();
      for (std::int64_t k = 0; k < kLength; ++k) {
        const auto i = static_cast<std::size_t>(reverse ? kLength - 1 - k : k);
        sum += v[i];
        ASSERT_NEAR(got[i], sum, 1e-9 * kLength + std::abs(sum) * (t == DType::BFloat16 ? 1e-2 : 1e-6)) << i;
      }
    }
}

TEST(Scan, SumsLinesOfAnyLengthAndKeepsWhatStandsBeforeAnInfinity) {
  for (const DType t : {DType::Float, DType::Double})
    for (std::int64_t n = 1; n <= 40; ++n) {
      StridedArray in(t, {n}), out(t, {n});
      double sum = 0;
      for (std::int64_t i = 0; i < n; ++i)
        in.put({i}, i == 29 ? INFINITY : i == 33 ? -INFINITY : 3.0 * static_cast<double>(i) - 7);
      scan(ScanOp::CumSum, out.view(), in.view(), 0, false);
      for (std::int64_t i = 0; i < n; ++i) {
        sum += in.at({i});
        if (std::isnan(sum))
          ASSERT_TRUE(std::isnan(out.at({i}))) << n << " at " << i;
        else
          ASSERT_EQ(out.at({i}), sum) << n << " at " << i;
      }
    }
}

TEST(Scan, MayOverwriteItsInput) {
  StridedArray in(DType::Float, {300000}), out(DType::Float, {300000});
  in.fill(3);
  scan(ScanOp::CumSum, out.view(), in.view(), 0, false);
  scan(ScanOp::CumSum, in.view(), in.view(), 0, false);
  EXPECT_EQ(in.bytes(), out.bytes());
}

TEST(Scan, ProductStaysZeroAfterAZeroWhateverFollows) {
  constexpr std::int64_t kLength = 5000;
  StridedArray in(DType::Double, {kLength}), out(DType::Double, {kLength});
  in.fill_with(1e30);
  in.put({3}, 0);
  scan(ScanOp::CumProd, out.view(), in.view(), 0, false);
  EXPECT_NEAR(out.at({2}), 1e90, 1e75);
  for (std::int64_t i = 3; i < kLength; ++i) ASSERT_EQ(out.at({i}), 0);
}

TEST(Scan, LogSumExpNeitherOverflowsNorForgets) {
  StridedArray in(DType::Double, {4}), out(DType::Double, {4});
  const double x[] = {-1e4, 800, -INFINITY, 799};
  for (std::int64_t i = 0; i < 4; ++i) in.put({i}, x[i]);
  scan(ScanOp::LogCumSumExp, out.view(), in.view(), 0, false);
  const double want[] = {-1e4, 800, 800, 800 + std::log1p(std::exp(-1.0))};
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_NEAR(out.at({i}), want[i], 1e-12 * std::abs(want[i]));
}

TEST(Scan, RefusesBoolResults) {
  StridedArray in(DType::Bool, {4}), out(DType::Bool, {4});
  EXPECT_THROW(scan(ScanOp::CumSum, out.view(), in.view(), 0, false), NotImplementedError);
}

TEST(ScanExtreme, IsTheSameInChunksAndKeepsTheLatestOfEquals) {
  constexpr std::int64_t kLength = 200001;
  const int threads = get_num_threads();
  for (const bool largest : {true, false})
    for (const bool with_nan : {false, true}) {
      StridedArray in(DType::Float, {kLength}), values(DType::Float, {kLength}), places(DType::Long, {kLength});
      in.fill(5, 200);
      if (with_nan) in.put({70000}, NAN), in.put({150000}, NAN);
      for (const int team : {1, 2, 7}) {
        set_num_threads(team);
        scan_extreme_kernel.get(DeviceType::CPU)(largest ? ScanExtremeOp::CumMax : ScanExtremeOp::CumMin, values.view(),
                                                 places.view(), in.view(), 0);
        set_num_threads(threads);
        const std::vector<double> v = in.values(), got = values.values(), at = places.values();
        std::size_t best = 0;
        for (std::size_t i = 0; i < v.size(); ++i) {
          if (std::isnan(v[i]) || (!std::isnan(v[best]) && (largest ? v[i] >= v[best] : v[i] <= v[best]))) best = i;
          ASSERT_EQ(at[i], static_cast<double>(best)) << i;
          ASSERT_TRUE(got[i] == v[best] || (std::isnan(got[i]) && std::isnan(v[best]))) << i;
        }
      }
    }
}

}  // namespace athanor
