// Sorting and selecting against std::stable_sort: every dtype, every size class of the radix sort, strides, threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "athanor/base/parallel.h"
#include "athanor/ops/kernels/scan_sort.h"
#include "device_cpu/strided_array.h"

namespace athanor {
namespace {

using testing::StridedArray;
using Shape = std::vector<std::int64_t>;

constexpr DType kDTypes[] = {DType::Byte, DType::Char,  DType::Short,  DType::Int,  DType::Long,
                             DType::Half, DType::Float, DType::Double, DType::Bool, DType::BFloat16};

/// NaN is greatest; stable in both directions.
std::vector<std::int64_t> stable_order(const std::vector<double>& v, bool descending) {
  std::vector<std::int64_t> p(v.size());
  std::iota(p.begin(), p.end(), std::int64_t{0});
  std::stable_sort(p.begin(), p.end(), [&](std::int64_t a, std::int64_t b) {
    const double x = v[static_cast<std::size_t>(descending ? b : a)];
    const double y = v[static_cast<std::size_t>(descending ? a : b)];
    return !std::isnan(x) && (std::isnan(y) || x < y);
  });
  return p;
}

/// Values of all magnitudes, repeated ones, and where there are such, NaN, infinities and zeros of both signs.
void fill_widely(StridedArray& a, DType t, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> exponent(-12, 12);
  a.each_index([&](const auto& index) {
    double v = (random() % 2 ? 1 : -1) * std::exp2(exponent(random));
    if (!is_floating_point(t)) v = static_cast<double>(static_cast<std::int64_t>(v * 4));
    if (t == DType::Bool) v = random() % 2;
    if (is_floating_point(t)) {
      const auto kind = random() % 40;
      if (kind == 0) v = std::numeric_limits<double>::quiet_NaN();
      if (kind == 1) v = random() % 2 ? INFINITY : -INFINITY;
      if (kind == 2) v = 0.0;
      if (kind == 3) v = -0.0;
    }
    a.put(index, v);
  });
}

void sort(View values, View indices, View in, std::int64_t dim, bool descending) {
  sort_kernel.get(DeviceType::CPU)(values, indices, in, dim, descending);
}

void expect_same(double actual, double expected, std::int64_t at) {
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(actual)) << "at " << at;
  } else {
    ASSERT_EQ(actual, expected) << "at " << at;
    ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << "at " << at;
  }
}

/// Integral values from -bound to bound, all as likely.
void fill_evenly(StridedArray& a, std::int64_t bound, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<std::int64_t> value(-bound, bound);
  a.each_index([&](const auto& index) { a.put(index, static_cast<double>(value(random))); });
}

void check_sorted(StridedArray& in, DType t, std::int64_t n, bool descending) {
  StridedArray values(t, {n}), indices(DType::Long, {n});
  sort(values.view(), indices.view(), in.view(), 0, descending);
  const std::vector<double> v = in.values(), sorted = values.values(), places = indices.values();
  const auto want = stable_order(v, descending);
  for (std::size_t i = 0; i < v.size(); ++i) {
    ASSERT_EQ(places[i], static_cast<double>(want[i])) << dtype_name(t) << ", n = " << n << ", at " << i;
    expect_same(sorted[i], v[static_cast<std::size_t>(want[i])], static_cast<std::int64_t>(i));
  }
  EXPECT_TRUE(values.margins_intact() && indices.margins_intact());
}

void check_line(DType t, std::int64_t n, bool descending) {
  StridedArray in(t, {n});
  fill_widely(in, t, static_cast<unsigned>(n));
  check_sorted(in, t, n, descending);
}

}  // namespace

TEST(Sort, IsStableForEveryDTypeAndSize) {
  for (const DType t : kDTypes)
    for (const std::int64_t n : {0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 255, 256, 1000, 5000})
      for (const bool descending : {false, true}) check_line(t, n, descending);
}

TEST(Sort, IsStableForLongLinesOnAnyNumberOfThreads) {
  const int threads = get_num_threads();
  for (const int n : {1, 3}) {
    set_num_threads(n);
    check_line(DType::BFloat16, 140000, true);
    check_line(DType::Double, 140000, false);
    // More than 4 MB of records.
    check_line(DType::Float, 530001, n == 1);
    check_line(DType::Long, 530001, n == 3);
  }
  set_num_threads(threads);
}

TEST(Sort, IsStableForRanksOfAnyWidth) {
  const int threads = get_num_threads();
  for (const int n : {1, 3}) {
    set_num_threads(n);
    // Bounds whose ranks have 16 bits, 17 and more, up to 32 and more: from there on other ways to sort begin.
    for (const std::int64_t bound : {32767, 32768, 100000, 1000000000, 2147483647})
      for (const DType t : {DType::Int, DType::Long, DType::Float, DType::Double})
        for (const bool descending : {false, true})
          for (const std::int64_t length : {65, 9000, 140000}) {
            StridedArray in(t, {length});
            fill_evenly(in, bound, static_cast<unsigned>(length));
            ASSERT_NO_FATAL_FAILURE(check_sorted(in, t, length, descending)) << "up to " << bound << ", " << n;
          }
    // Three digits of 11 bits each.
    StridedArray in(DType::Long, {530001});
    fill_evenly(in, std::int64_t{1} << 32, 7);
    check_sorted(in, DType::Long, 530001, n == 1);
  }
  set_num_threads(threads);
}

TEST(Sort, IsStableWhereNumbersCrowdFarFromAFewOthers) {
  const int threads = get_num_threads();
  for (const int team : {1, 3}) {
    set_num_threads(team);
    // All but a few share their highest bits, or they come in crowds of that size.
    for (const std::int64_t crowd : {3, 40, 1000000})
      for (const DType t : {DType::Int, DType::Long, DType::Float, DType::Double})
        for (const bool descending : {false, true})
          for (const std::int64_t length : {65, 3000, 140000}) {
            StridedArray in(t, {length});
            std::mt19937_64 random(static_cast<unsigned>(length + crowd));
            in.each_index([&](const auto& index) {
              const auto draw = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(length));
              const std::int64_t far = std::min<std::int64_t>(draw / crowd, 2000) * 1000000 - 1000000000;
              in.put(index, static_cast<double>(draw < 3 ? 2000000000 : far + draw % crowd % 10007));
            });
            ASSERT_NO_FATAL_FAILURE(check_sorted(in, t, length, descending)) << "crowds of " << crowd << ", " << team;
          }
  }
  set_num_threads(threads);
}

TEST(Sort, KeepsIntegersThatDifferInTheirHighestAndLowestBits) {
  const std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                     greatest = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t n : {6, 3000}) {
    std::vector<std::int64_t> in, want;
    for (std::int64_t i = 0; i < n; ++i)
      in.push_back(std::array{greatest, least, i, -i, greatest - i, least + i}[i % 6]);
    want = in;
    std::sort(want.begin(), want.end());
    std::vector<std::int64_t> out(in.size()), places(in.size());
    const std::int64_t one = 1;
    const View from{in.data(), &n, &one, n, DType::Long, 1, true}, to{out.data(), &n, &one, n, DType::Long, 1, true},
        at{places.data(), &n, &one, n, DType::Long, 1, true};
    sort(to, at, from, 0, false);
    EXPECT_EQ(out, want);
    for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(in[static_cast<std::size_t>(places[i])], out[i]);
  }
}

TEST(Sort, SortsAlongEveryDimOfStridedMemory) {
  for (const DType t : {DType::Float, DType::Half, DType::Byte})
    for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 0, 1}, {1, 2, 0}})
      for (const std::int64_t gap : {0, 1})
        for (const int dim : {0, 1, 2}) {
          const Shape sizes{5, 13, 70};
          StridedArray in(t, sizes, order, gap), values(t, sizes, {}, gap), indices(DType::Long, sizes, {1, 0, 2});
          fill_widely(in, t, 9);
          sort(values.view(), indices.view(), in.view(), dim, false);
          Shape outer = sizes;
          outer[static_cast<std::size_t>(dim)] = 1;
          StridedArray(DType::Byte, outer).each_index([&](Shape index) {
            std::vector<double> line;
            const auto d = static_cast<std::size_t>(dim);
            for (index[d] = 0; index[d] < sizes[d]; ++index[d]) line.push_back(in.at(index));
            const auto want = stable_order(line, false);
            for (index[d] = 0; index[d] < sizes[d]; ++index[d]) {
              const auto k = want[static_cast<std::size_t>(index[d])];
              ASSERT_EQ(indices.at(index), static_cast<double>(k));
              expect_same(values.at(index), line[static_cast<std::size_t>(k)], index[d]);
            }
          });
          EXPECT_TRUE(values.margins_intact() && indices.margins_intact());
        }
}

TEST(Sort, GivesValuesOrIndicesAlone) {
  StridedArray in(DType::Float, {3000}), values(DType::Float, {3000}), indices(DType::Long, {3000}),
      both_values(DType::Float, {3000}), both_indices(DType::Long, {3000});
  fill_widely(in, DType::Float, 4);
  sort(both_values.view(), both_indices.view(), in.view(), 0, false);
  sort(values.view(), View(), in.view(), 0, false);
  sort(View(), indices.view(), in.view(), 0, false);
  EXPECT_EQ(values.bytes(), both_values.bytes());
  EXPECT_EQ(indices.bytes(), both_indices.bytes());
}

TEST(Select, FindsTheSameAsASortOnAnyNumberOfThreads) {
  const int threads = get_num_threads();
  constexpr std::int64_t kLength = 270001;  // two threads' shares
  for (const int team : {1, 3}) {
    set_num_threads(team);
    for (const DType t : {DType::Float, DType::Byte}) {
      StridedArray in(t, {kLength});
      fill_widely(in, t, 3);
      const std::vector<double> v = in.values();
      for (const bool largest : {true, false}) {
        const auto want = stable_order(v, largest);
        for (const std::int64_t k : {1, 50, 100, 8000, 20000}) {
          StridedArray values(t, {k}), indices(DType::Long, {k});
          topk_kernel.get(DeviceType::CPU)(values.view(), indices.view(), in.view(), 0, largest, true);
          const std::vector<double> places = indices.values(), found = values.values();
          for (std::size_t i = 0; i < places.size(); ++i) {
            ASSERT_EQ(places[i], static_cast<double>(want[i])) << dtype_name(t) << " k " << k << " at " << i;
            expect_same(found[i], v[static_cast<std::size_t>(want[i])], static_cast<std::int64_t>(i));
          }
        }
      }
      const auto ascending = stable_order(v, false);
      for (const std::int64_t k : {std::int64_t{1}, std::int64_t{100000}, kLength}) {
        StridedArray value(t, {1}), index(DType::Long, {1});
        kthvalue_kernel.get(DeviceType::CPU)(value.view(), index.view(), in.view(), k, 0);
        const double want = v[static_cast<std::size_t>(ascending[static_cast<std::size_t>(k - 1)])];
        std::size_t first = 0;
        while (!(v[first] == want || (std::isnan(want) && std::isnan(v[first])))) ++first;
        ASSERT_EQ(index.at({0}), static_cast<double>(first)) << dtype_name(t) << " k " << k;
      }
    }
  }
  set_num_threads(threads);
}

TEST(Select, KeepsTheFewBestOfShortLinesOfEveryDtype) {
  for (const DType t : kDTypes)
    for (const std::int64_t n : {1, 5, 63, 65, 69, 71, 133, 1000}) {
      StridedArray in(t, {n});
      fill_widely(in, t, 3);
      const std::vector<double> v = in.values();
      for (const bool largest : {true, false}) {
        const auto want = stable_order(v, largest);
        for (const std::int64_t k : {1, 5, 64}) {
          if (k > n) continue;
          StridedArray values(t, {k}), indices(DType::Long, {k});
          topk_kernel.get(DeviceType::CPU)(values.view(), indices.view(), in.view(), 0, largest, true);
          for (std::int64_t i = 0; i < k; ++i) {
            const std::size_t place = want[static_cast<std::size_t>(i)];
            ASSERT_EQ(indices.at({i}), static_cast<double>(place))
                << dtype_name(t) << " " << n << " k " << k << " " << i;
            expect_same(values.at({i}), v[place], i);
          }
        }
      }
    }
}

TEST(Select, FindsTheBestOfLinesInWhichEachElementBeatsTheLast) {
  constexpr std::int64_t kLength = 20000, k = 200;
  StridedArray in(DType::Int, {kLength}), values(DType::Int, {k}), indices(DType::Long, {k});
  for (std::int64_t i = 0; i < kLength; ++i) in.put({i}, std::floor(static_cast<double>(i) / 2));  // pairs of equals
  topk_kernel.get(DeviceType::CPU)(values.view(), indices.view(), in.view(), 0, true, true);
  for (std::int64_t i = 0; i < k; ++i) {
    const std::int64_t pair = kLength / 2 - 1 - i / 2;
    ASSERT_EQ(values.at({i}), static_cast<double>(pair)) << i;
    ASSERT_EQ(indices.at({i}), static_cast<double>(pair * 2 + i % 2)) << i;
  }
}

TEST(SearchSorted, CountsWhatIsLessForAnyLengthsOfRows) {
  for (const std::int64_t n : {0, 1, 2, 3, 15, 16, 17, 40})
    for (const std::int64_t m : {1, 15, 16, 17, 33})
      for (const bool right : {false, true}) {
        StridedArray keys(DType::Float, {2, n}), wanted(DType::Float, {2, m}), out(DType::Long, {2, m});
        for (std::int64_t r = 0; r < 2; ++r) {
          for (std::int64_t i = 0; i < n; ++i)
            keys.put({r, i}, std::floor(static_cast<double>(i) / 2 + r));  // pairs of equals
          for (std::int64_t i = 0; i < m; ++i) wanted.put({r, i}, i == 12 ? NAN : static_cast<double>(i * 7 % 23) - 1);
        }
        searchsorted_kernel.get(DeviceType::CPU)(out.view(), keys.view(), wanted.view(), View(), right);
        for (std::int64_t r = 0; r < 2; ++r)
          for (std::int64_t i = 0; i < m; ++i) {
            const double x = wanted.at({r, i});
            double before = 0;
            for (std::int64_t j = 0; j < n; ++j)
              before += std::isnan(x) || keys.at({r, j}) < x || (right && keys.at({r, j}) == x);
            ASSERT_EQ(out.at({r, i}), before) << n << " keys, " << m << " values, row " << r << " at " << i;
          }
      }
}

TEST(Unique, HandlesManyValuesFewValuesAndNaN) {
  const int threads = get_num_threads();
  for (const int team : {1, 3}) {
    set_num_threads(team);
    for (const DType t : {DType::Float, DType::Long, DType::Char}) {
      constexpr std::int64_t kLength = 70000;
      StridedArray in(t, {kLength}, {}, 1), values(t, {kLength}), inverse(DType::Long, {kLength}, {}, 1),
          counts(DType::Long, {kLength}), count(DType::Long, {1});
      fill_widely(in, t, 5);
      unique_kernel.get(DeviceType::CPU)(values.view(), inverse.view(), counts.view(), count.view(), in.view(), false);
      std::vector<double> sorted = in.values();
      std::int64_t nans = 0;
      for (const double v : sorted) nans += std::isnan(v);
      std::erase_if(sorted, [](double v) { return std::isnan(v); });
      std::sort(sorted.begin(), sorted.end());
      sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
      const auto plain = static_cast<std::int64_t>(sorted.size());
      ASSERT_EQ(count.at({0}), static_cast<double>(plain + nans));
      std::vector<double> times(static_cast<std::size_t>(plain + nans));
      for (std::int64_t i = 0; i < plain; ++i) ASSERT_EQ(values.at({i}), sorted[static_cast<std::size_t>(i)]);
      for (std::int64_t i = plain; i < plain + nans; ++i) ASSERT_TRUE(std::isnan(values.at({i})));
      for (std::int64_t i = 0; i < kLength; ++i) {
        const auto place = static_cast<std::int64_t>(inverse.at({i}));
        const double v = values.at({place}), x = in.at({i});
        ASSERT_TRUE(v == x || (std::isnan(v) && std::isnan(x)));
        ++times[static_cast<std::size_t>(place)];
      }
      for (std::int64_t i = 0; i < plain + nans; ++i) ASSERT_EQ(counts.at({i}), times[static_cast<std::size_t>(i)]);
      EXPECT_TRUE(inverse.margins_intact());
    }
  }
  set_num_threads(threads);
}

}  // namespace athanor
