#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "index_util.h"

namespace athanor {
namespace {

using namespace testing;

constexpr IndexReduce kReductions[] = {IndexReduce::None, IndexReduce::Add,  IndexReduce::Multiply,
                                       IndexReduce::Amax, IndexReduce::Amin, IndexReduce::Mean};

double combine(IndexReduce r, DType t, double a, double b) {
  switch (r) {
    case IndexReduce::None:
      return b;
    case IndexReduce::Multiply:
      return a * b;
    case IndexReduce::Amax:
      return std::max(a, b);
    case IndexReduce::Amin:
      return std::min(a, b);
    default:
      return t == kBool ? double(a != 0 || b != 0) : a + b;
  }
}

/// Reduces (destination, value) pairs into `out` in order.
void reduce_pairs(Box& out, const std::vector<std::pair<std::int64_t, double>>& pairs, IndexReduce r,
                  bool include_self) {
  const bool integral = is_integral(out.dtype(), true);
  std::vector<double> sum(static_cast<std::size_t>(out.numel()));
  std::vector<std::int64_t> count(sum.size(), 0);
  for (auto [to, v] : pairs) {
    auto& s = sum[static_cast<std::size_t>(to)];
    auto& n = count[static_cast<std::size_t>(to)];
    if (n == 0) s = include_self ? combine(r, out.dtype(), out.get(to), v) : v;
    if (n > 0) s = combine(r, out.dtype(), s, v);
    ++n;
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (count[i] == 0) continue;
    double v = sum[i];
    if (r == IndexReduce::Mean) {
      v /= static_cast<double>(count[i] + (include_self ? 1 : 0));
      if (integral) v = std::floor(v);
    }
    out.set(static_cast<std::int64_t>(i), v);
  }
}

void expect_near(const Box& got, const Box& want, double tolerance) {
  for (std::int64_t i = 0; i < got.numel(); ++i)
    ASSERT_NEAR(got.get(i), want.get(i), tolerance * std::fabs(want.get(i))) << "element " << i;
}
double tolerance(DType t) { return t == kHalf ? 2e-3 : t == kBFloat16 ? 2e-2 : t == kFloat ? 1e-6 : 1e-12; }

/// Whole numbers small enough that products of a few stay exact in every dtype.
Box factors(DType t, const Dims& sizes, int layout, unsigned seed) {
  std::mt19937 rng(seed);
  Box box = make(t, sizes, layout);
  return box.fill(
      [&](std::int64_t) { return t == kBool ? static_cast<int>(rng() % 2) : 1 + static_cast<int>(rng() % 3); });
}

void check_scatter(DType t, const Dims& sizes, const Dims& index_sizes, std::int64_t dim, IndexReduce r,
                   bool include_self, int layout) {
  if (t == kBool && r == IndexReduce::Mean) return;
  const auto d = static_cast<std::size_t>(dim);
  Box out = factors(t, sizes, layout, 1), want = clone(out);
  const Box index = indices(kLong, index_sizes, layout, 0, sizes[d], 2), src = factors(t, index_sizes, layout, 3);
  std::vector<std::pair<std::int64_t, double>> pairs;
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    Dims at = coordinates(index_sizes, i);
    at[d] = index.get_int(i);
    pairs.emplace_back(position(sizes, at), src.get(i));
  }
  reduce_pairs(want, pairs, r, include_self || r == IndexReduce::None);
  call(scatter_kernel, out.view(), index.view(), src.view(), dim, r, include_self);
  expect_near(out, want, r == IndexReduce::Mean ? tolerance(t) : 0);
}

TEST(Scatter, FollowsItsDefinitionForEveryDTypeAndReduction) {
  for (DType t : kAllDTypes)
    for (IndexReduce r : kReductions)
      for (bool include_self : {true, false})
        for (int layout : {0, 1, 2})
          for (std::int64_t dim : {0, 1}) {
            SCOPED_TRACE(::testing::Message() << dtype_name(t) << " reduce " << int(r) << " self " << include_self
                                              << " layout " << layout << " dim " << dim);
            check_scatter(t, {6, 7}, {6, 7}, dim, r, include_self, layout);
            check_scatter(t, {6, 7}, dim == 0 ? Dims{9, 4} : Dims{3, 12}, dim, r, include_self, layout);
          }
}

TEST(Scatter, HandlesLargeInputsOnSeveralThreads) {
  with_thread_counts([](int) {
    for (IndexReduce r : {IndexReduce::None, IndexReduce::Add, IndexReduce::Amax}) {
      check_scatter(kInt, {2000}, {50000}, 0, r, true, 0);
      check_scatter(kInt, {2000000}, {50000}, 0, r, true, 0);
      check_scatter(kInt, {100, 600}, {100, 600}, 0, r, true, 0);
      check_scatter(kInt, {600, 100}, {600, 100}, 1, r, true, 0);
      check_scatter(kInt, {1200000, 2}, {30000, 2}, 0, r, true, 0);
    }
  });
}

TEST(Scatter, SumsInOneOrderOnAnyThreadCount) {
  const Box index = indices(kLong, {60000}, 0, 0, 1500000, 1), few = indices(kLong, {60000}, 0, 0, 10, 1);
  std::mt19937 rng(5);
  Box src(kFloat, {60000});
  src.fill([&](std::int64_t) { return std::ldexp(static_cast<double>(rng()), static_cast<int>(rng() % 40) - 40); });
  for (const Box* i : {&index, &few}) {
    std::vector<Box> results;
    with_thread_counts([&](int) {
      Box out(kFloat, {1500000});
      call(scatter_kernel, out.view(), i->view(), src.view(), 0, IndexReduce::Add, true);
      results.push_back(out);
    });
    for (const Box& r : results) ASSERT_EQ(0, std::memcmp(r.at(0), results[0].at(0), 1500000 * sizeof(float)));
  }
}

TEST(Scatter, ReachesEveryPlaceOnceWhereThreadsShareTheResult) {
  constexpr std::int64_t kN = 1500000;
  Box index(kLong, {kN}), src(kInt, {kN});
  index.fill([](std::int64_t i) { return kN - 1 - i; });
  src.fill([](std::int64_t) { return 1; });
  with_thread_counts([&](int) {
    const Box out(kInt, {kN});
    call(scatter_kernel, out.view(), index.view(), src.view(), 0, IndexReduce::Add, true);
    const auto* values = reinterpret_cast<const std::int32_t*>(out.at(0));
    ASSERT_TRUE(std::all_of(values, values + kN, [](std::int32_t v) { return v == 1; }));
  });
}

TEST(Scatter, AcceptsAnExpandedIndex) {
  constexpr std::int64_t kRows = 5, kColumns = 20000;
  const Box row = indices(kLong, {kColumns}, 0, 0, kRows, 1), src = factors(kInt, {kRows, kColumns}, 0, 2);
  const std::int64_t sizes[] = {kRows, kColumns}, strides[] = {0, 1};
  View index = row.view();
  index.ndim = 2;
  index.sizes = sizes;
  index.strides = strides;
  index.numel = kRows * kColumns;
  index.contiguous = false;
  with_thread_counts([&](int) {
    const Box out(kInt, {kRows, kColumns});
    Box want(kInt, {kRows, kColumns});
    std::vector<std::pair<std::int64_t, double>> pairs;
    for (std::int64_t i = 0; i < src.numel(); ++i)
      pairs.emplace_back(row.get_int(i % kColumns) * kColumns + i % kColumns, src.get(i));
    reduce_pairs(want, pairs, IndexReduce::Amax, true);
    call(scatter_kernel, out.view(), index, src.view(), 0, IndexReduce::Amax, true);
    expect_near(out, want, 0);
  });
}

TEST(Scatter, KeepsNanInAmaxAndAmin) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (IndexReduce r : {IndexReduce::Amax, IndexReduce::Amin})
    for (int first : {0, 1}) {
      Box out(kFloat, {2}), index(kLong, {2}), src(kFloat, {2});
      src.set(first, nan);
      src.set(1 - first, 3);
      call(scatter_kernel, out.view(), index.view(), src.view(), 0, r, true);
      EXPECT_TRUE(std::isnan(out.get(0)));
      EXPECT_EQ(out.get(1), 0);
    }
}

TEST(Scatter, IntegerMeanRoundsDown) {
  Box out(kLong, {2}), index(kLong, {2}), src(kLong, {2});
  src.set(0, -3);
  src.set(1, -4);
  call(scatter_kernel, out.view(), index.view(), src.view(), 0, IndexReduce::Mean, false);
  EXPECT_EQ(out.get_int(0), -4);
}

TEST(Scatter, ChecksBeforeWritingAndRefusesBoolMean) {
  Box out(kFloat, {3, 2}), index(kLong, {2, 2}), src(kFloat, {2, 2});
  src.fill([](std::int64_t) { return 1; });
  index.set(3, 3);
  EXPECT_EQ(message_of<Error>(
                [&] { call(scatter_kernel, out.view(), index.view(), src.view(), 0, IndexReduce::Add, false); }),
            "scatter: index 3 is out of bounds for dimension 0 with size 3");
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(out.get(i), 0);
  const Box b(kBool, {2});
  EXPECT_THROW(call(scatter_kernel, b.view(), index.view(), b.view(), 0, IndexReduce::Mean, true), NotImplementedError);
}

TEST(ScatterValue, SetsAddsAndMultiplies) {
  for (DType t : {kByte, kFloat, kHalf, kLong})
    for (IndexReduce r : {IndexReduce::None, IndexReduce::Add, IndexReduce::Multiply}) {
      Box out(t, {2, 3}), index(kLong, {2, 2});
      out.fill([](std::int64_t i) { return i; });
      index.set(0, 2);
      index.set(1, 2);
      index.set(2, 1);
      const Box want = clone(out);
      std::vector<std::pair<std::int64_t, double>> pairs{{2, 3}, {2, 3}, {4, 3}, {3, 3}};
      reduce_pairs(const_cast<Box&>(want), pairs, r, true);
      call(scatter_value_kernel, out.view(), index.view(), Scalar(3), 1, r);
      expect_same(out, want);
    }
}

void check_index_add(DType t, const Dims& sizes, std::int64_t dim, std::int64_t n, double alpha, int layout) {
  const auto d = static_cast<std::size_t>(dim);
  Dims source_sizes = sizes;
  source_sizes[d] = n;
  const Box out = values(t, sizes, layout, 1), index = indices(kLong, {n}, layout, 0, sizes[d], 2);
  const Box source = values(t, source_sizes, layout, 3);
  Box want = clone(out);
  for (std::int64_t i = 0; i < source.numel(); ++i) {
    Dims at = coordinates(source_sizes, i);
    at[d] = index.get_int(at[d]);
    const std::int64_t to = position(sizes, at);
    want.set(to, t == kBool ? double(want.get(to) != 0 || source.get(i) != 0) : want.get(to) + alpha * source.get(i));
  }
  call(index_add_kernel, out.view(), index.view(), source.view(), dim, Scalar(alpha));
  expect_same(out, want);
}

TEST(IndexAdd, AddsScaledEntriesAlongAnyDim) {
  for (DType t : kAllDTypes)
    for (int layout : {0, 1, 2})
      for (std::int64_t dim : {0, 1, 2})
        for (double alpha : {1.0, 2.0}) check_index_add(t, {4, 5, 3}, dim, 6, alpha, layout);
}

TEST(IndexAdd, HandlesLargeInputsOnSeveralThreads) {
  with_thread_counts([](int) {
    check_index_add(kInt, {100}, 0, 40000, 1, 0);
    check_index_add(kFloat, {100, 70}, 0, 700, 1, 0);
    check_index_add(kInt, {100, 700}, 1, 800, 3, 0);
  });
}

TEST(IndexReduceAlongDim, CombinesWithAndWithoutSelf) {
  for (DType t : {kChar, kInt, kHalf, kFloat, kDouble})
    for (IndexReduce r : {IndexReduce::Multiply, IndexReduce::Amax, IndexReduce::Amin, IndexReduce::Mean})
      for (bool include_self : {true, false})
        for (int layout : {0, 1}) {
          Box out = factors(t, {4, 3}, layout, 1), want = clone(out);
          const Box index = indices(kLong, {5}, 0, 0, 4, 2), source = factors(t, {5, 3}, layout, 3);
          std::vector<std::pair<std::int64_t, double>> pairs;
          for (std::int64_t i = 0; i < 15; ++i) pairs.emplace_back(index.get_int(i / 3) * 3 + i % 3, source.get(i));
          reduce_pairs(want, pairs, r, include_self);
          call(index_reduce_kernel, out.view(), index.view(), source.view(), 0, r, include_self);
          expect_near(out, want, tolerance(t));
        }
}

// ---- embedding backward
// ----------------------------------------------------------------------------------------------

TEST(EmbeddingBackward, SumsRowsPerToken) {
  with_thread_counts([](int) {
    for (DType t : {kFloat, kDouble, kHalf, kBFloat16})
      for (std::int64_t padding : {-1, 2})
        for (bool average : {false, true})
          for (std::int64_t width : {1, 5, 300}) {
            const Box index = indices(kLong, {20, 10}, 1, 0, 9, 1), grad = values(t, {20, 10, width}, width % 2, 2);
            Box out(t, {11, width});
            out.fill([](std::int64_t) { return 99; });
            std::vector<double> sum(static_cast<std::size_t>(11 * width), 0), count(11, 0);
            for (std::int64_t i = 0; i < 200; ++i) {
              const std::int64_t row = index.get_int(i);
              if (row == padding) continue;
              ++count[static_cast<std::size_t>(row)];
              for (std::int64_t d = 0; d < width; ++d)
                sum[static_cast<std::size_t>(row * width + d)] += grad.get(i * width + d);
            }
            call(embedding_backward_kernel, out.view(), grad.view(), index.view(), padding, average);
            for (std::int64_t i = 0; i < out.numel(); ++i) {
              const double n = count[static_cast<std::size_t>(i / width)];
              const double want = sum[static_cast<std::size_t>(i)] / (average && n > 0 ? n : 1);
              ASSERT_NEAR(out.get(i), want, tolerance(t) * want);
            }
          }
  });
}

TEST(EmbeddingBackward, SumsHalvesWithoutLosingSmallParts) {
  const Box index(kLong, {3000}), out(kHalf, {2, 1});
  Box grad(kHalf, {3000, 1});
  grad.fill([](std::int64_t) { return 1; });
  call(embedding_backward_kernel, out.view(), grad.view(), index.view(), -1, false);
  EXPECT_EQ(out.get(0), 3000);
  EXPECT_EQ(out.get(1), 0);
}

TEST(EmbeddingBackward, RefusesWrongTokens) {
  Box index(kLong, {2});
  index.set(1, 4);
  const Box grad(kFloat, {2, 3}), out(kFloat, {4, 3});
  EXPECT_THROW(call(embedding_backward_kernel, out.view(), grad.view(), index.view(), -1, false), IndexError);
}

TEST(EmbeddingRenorm, ScalesLongRowsOnce) {
  for (double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    Box weight(kFloat, {3, 2}), index(kLong, {3});
    weight.fill([](std::int64_t i) { return i < 2 ? 3 + i : i == 5 ? 0.5 : 0.1; });
    index.set(1, 2);
    const Box before = clone(weight);
    call(embedding_renorm_kernel, weight.view(), index.view(), 1.0, p);
    const double norm = std::isinf(p) ? 4 : std::pow(std::pow(3, p) + std::pow(4, p), 1 / p);
    EXPECT_NEAR(weight.get(0), 3 / norm, 1e-6);
    EXPECT_NEAR(weight.get(1), 4 / norm, 1e-6);
    for (std::int64_t i = 2; i < 6; ++i) EXPECT_EQ(weight.get(i), before.get(i));
  }
}

TEST(OneHot, MarksTheClass) {
  const Box index = indices(kLong, {40, 3}, 1, 0, 7, 1);
  Box out(kLong, {40, 3, 7});
  out.fill([](std::int64_t) { return 9; });
  call(one_hot_kernel, out.view(), index.view());
  for (std::int64_t i = 0; i < out.numel(); ++i) ASSERT_EQ(out.get_int(i), i % 7 == index.get_int(i / 7) ? 1 : 0);
  Box wrong(kLong, {1});
  const Box one(kLong, {1, 7});
  for (std::int64_t v : {-1, 7}) {
    wrong.set(0, v);
    EXPECT_THROW(call(one_hot_kernel, one.view(), wrong.view()), Error);
  }
}

}  // namespace
}  // namespace athanor
