#include "athanor/ops/kernels/pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "athanor/base/parallel.h"
#include "strided_array.h"

namespace athanor::pool_test {
namespace {

using testing::StridedArray;
using Index = std::vector<std::int64_t>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  int spatial;
  std::int64_t batch, channels;
  Index size, kernel, stride, padding, dilation;
  bool ceil = false;
};

std::int64_t out_size(const Case& c, int e) {
  const std::int64_t room = c.size[e] + 2 * c.padding[e] - c.dilation[e] * (c.kernel[e] - 1) - 1;
  std::int64_t n = (c.ceil ? (room + c.stride[e] - 1) / c.stride[e] : room / c.stride[e]) + 1;
  // The last window must start inside the input or its left padding.
  if (c.ceil && (n - 1) * c.stride[e] >= c.size[e] + c.padding[e]) --n;
  return n;
}

PoolParams params_of(const Case& c) {
  PoolParams p;
  p.spatial = c.spatial;
  for (int e = 0; e < c.spatial; ++e) {
    p.kernel[e] = c.kernel[e];
    p.stride[e] = c.stride[e];
    p.padding[e] = c.padding[e];
    p.dilation[e] = c.dilation[e];
  }
  return p;
}

Index shape_of(const Case& c, bool out) {
  Index s{c.batch, c.channels};
  for (int e = 0; e < c.spatial; ++e) s.push_back(out ? out_size(c, e) : c.size[e]);
  return s;
}

std::vector<int> order(int spatial, bool channels_last) {
  if (!channels_last) return {};
  std::vector<int> o{0};
  for (int e = 0; e < spatial; ++e) o.push_back(2 + e);
  o.push_back(1);
  return o;
}

/// Calls fn(tap number, input index, flat position) for the taps of window `o` inside the input.
template <class F>
void each_tap(const Case& c, const Index& o, F&& fn) {
  StridedArray taps(DType::Byte, c.kernel);
  int number = 0;
  taps.each_index([&](const Index& t) {
    Index i{o[0], o[1]};
    std::int64_t flat = 0;
    bool inside = true;
    for (int e = 0; e < c.spatial; ++e) {
      i.push_back(o[2 + e] * c.stride[e] - c.padding[e] + t[e] * c.dilation[e]);
      inside = inside && i.back() >= 0 && i.back() < c.size[e];
      flat = flat * c.size[e] + i.back();
    }
    if (inside) fn(number, i, flat);
    ++number;
  });
}

std::vector<Case> cases() {
  return {{2, 2, 3, {8, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
          {2, 2, 5, {24, 25}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
          {2, 1, 2, {9, 10}, {3, 3}, {3, 3}, {0, 0}, {1, 1}},
          {2, 2, 17, {11, 13}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
          {2, 1, 3, {7, 40}, {3, 2}, {1, 1}, {1, 1}, {1, 1}},
          {2, 1, 3, {12, 11}, {2, 3}, {3, 2}, {1, 1}, {1, 1}, true},
          {2, 1, 3, {9, 9}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, true},
          {1, 3, 4, {600}, {5}, {2}, {2}, {1}},
          {1, 2, 4, {31}, {31}, {31}, {0}, {1}},
          {3, 2, 3, {5, 6, 7}, {2, 3, 2}, {2, 1, 2}, {1, 1, 0}, {1, 1, 1}},
          {3, 1, 2, {4, 4, 4}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}},
          {2, 0, 3, {8, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}}};
}

void check_max(DType t, const Case& c, bool last) {
  SCOPED_TRACE(::testing::Message() << dtype_name(t) << " " << c.spatial << "d size " << c.size[0] << " kernel "
                                    << c.kernel[0] << " stride " << c.stride[0] << " channels last " << last);
  const PoolParams p = params_of(c);
  StridedArray in(t, shape_of(c, false), order(c.spatial, last)), out(t, shape_of(c, true), order(c.spatial, last));
  StridedArray small(DType::Byte, shape_of(c, true), order(c.spatial, last)), flat(DType::Long, shape_of(c, true));
  in.fill(1, 20);
  max_pool_kernel.get(kCPU)(out.view(), flat.view(), in.view(), p);
  max_pool_kernel.get(kCPU)(out.view(), small.view(), in.view(), p);
  ASSERT_TRUE(out.margins_intact() && small.margins_intact() && flat.margins_intact());
  out.each_index([&](const Index& o) {
    double best = -kInfinity;
    std::int64_t number = -1, place = -1;
    each_tap(c, o, [&](int n, const Index& i, std::int64_t f) {
      if (number < 0 || in.at(i) > best) best = in.at(i), number = n, place = f;
    });
    ASSERT_EQ(out.at(o), best);
    ASSERT_EQ(small.at(o), number);
    ASSERT_EQ(flat.at(o), place);
  });
  if (!is_floating_point(t)) return;
  StridedArray grad(t, shape_of(c, true), order(c.spatial, last)), want(DType::Double, shape_of(c, false));
  grad.fill(2), want.fill_with(0);
  grad.each_index([&](const Index& o) {
    each_tap(c, o, [&](int, const Index& i, std::int64_t f) {
      if (f == flat.at(o)) want.put(i, want.at(i) + grad.at(o));
    });
  });
  for (StridedArray* index : {&small, &flat}) {
    StridedArray din(t, shape_of(c, false), order(c.spatial, last));
    max_pool_backward_kernel.get(kCPU)(din.view(), grad.view(), index->view(), p);
    ASSERT_TRUE(din.margins_intact());
    din.each_index([&](const Index& i) { ASSERT_NEAR(din.at(i), want.at(i), 0.02 * std::fabs(want.at(i)) + 1e-6); });
  }
}

TEST(MaxPool, ValuesIndicesAndGradients) {
  for (DType t : {DType::Float, DType::Double, DType::BFloat16, DType::Half, DType::Int, DType::Byte, DType::Long})
    for (const Case& c : cases())
      for (bool last : {false, true}) check_max(t, c, last);
}

TEST(MaxPool, Dilation) {
  for (bool last : {false, true}) check_max(DType::Float, {2, 2, 3, {12, 40}, {3, 3}, {2, 1}, {1, 1}, {2, 3}}, last);
}

TEST(MaxPool, WindowsOfManyTaps) {
  check_max(DType::Float, {2, 1, 2, {20, 20}, {12, 12}, {3, 3}, {0, 0}, {1, 1}}, false);
}

TEST(MaxPool, WindowsOfThreeEveryTwoOfEverySize) {
  for (const bool ceil : {false, true})
    for (std::int64_t width = 1; width < 70; ++width)
      check_max(DType::Float, {2, 2, 3, {1 + width % 7, width}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, ceil}, false);
  check_max(DType::Float, {2, 1, 1, {3, 530}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}, false);
}

TEST(MaxPool, NanWinsInWindowsOfThree) {
  const Case c{2, 1, 1, {3, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}};
  StridedArray in(DType::Float, shape_of(c, false)), out(DType::Float, shape_of(c, true)),
      rank(DType::Byte, shape_of(c, true));
  in.fill_with(-kInfinity);
  in.put({0, 0, 0, 3}, kNan);
  in.put({0, 0, 1, 4}, kNan);
  in.put({0, 0, 1, 5}, 7);
  max_pool_kernel.get(kCPU)(out.view(), rank.view(), in.view(), params_of(c));
  EXPECT_TRUE(std::isnan(out.at({0, 0, 0, 2})));
  EXPECT_EQ(rank.at({0, 0, 0, 2}), 7);  // the last NaN
  EXPECT_EQ(rank.at({0, 0, 0, 1}), 5);
  EXPECT_EQ(out.at({0, 0, 0, 3}), 7);
  EXPECT_EQ(out.at({0, 0, 1, 4}), -kInfinity);
  EXPECT_EQ(rank.at({0, 0, 1, 4}), 0);  // the first of equals
}

TEST(MaxPool, PairsOfEveryWidth) {
  for (std::int64_t width = 2; width < 80; ++width)
    check_max(DType::Float, {2, 2, 3, {5, width}, {2, 2}, {2, 2}, {0, 0}, {1, 1}}, false);
}

TEST(MaxPool, NanWinsInSmallIndicesToo) {
  const Case c{2, 1, 1, {2, 46}, {2, 2}, {2, 2}, {0, 0}, {1, 1}};
  StridedArray in(DType::Float, shape_of(c, false)), out(DType::Float, shape_of(c, true)),
      rank(DType::Byte, shape_of(c, true));
  in.fill_with(-kInfinity);
  for (const std::int64_t x : {0, 32, 42}) {
    in.put({0, 0, 0, x + 1}, kNan);
    in.put({0, 0, 1, x}, 5);
    in.put({0, 0, 0, x + 2}, kNan);
    in.put({0, 0, 1, x + 3}, kNan);
  }
  max_pool_kernel.get(kCPU)(out.view(), rank.view(), in.view(), params_of(c));
  for (const std::int64_t x : {0, 16, 21}) {
    EXPECT_TRUE(std::isnan(out.at({0, 0, 0, x})));
    EXPECT_EQ(rank.at({0, 0, 0, x}), 1);
    EXPECT_EQ(rank.at({0, 0, 0, x + 1}), 3);  // the last NaN
  }
  EXPECT_EQ(out.at({0, 0, 0, 5}), -kInfinity);
  EXPECT_EQ(rank.at({0, 0, 0, 5}), 0);  // the first of equals
}

TEST(MaxPool, NanWinsAndMinusInfinityHasAPlace) {
  const Case c{2, 1, 1, {2, 40}, {2, 2}, {2, 2}, {0, 0}, {1, 1}};
  StridedArray in(DType::Float, shape_of(c, false)), out(DType::Float, shape_of(c, true)),
      flat(DType::Long, shape_of(c, true));
  in.fill_with(-kInfinity);
  in.put({0, 0, 0, 1}, kNan);
  in.put({0, 0, 1, 0}, 5);
  in.put({0, 0, 0, 2}, kNan);
  in.put({0, 0, 1, 3}, kNan);
  max_pool_kernel.get(kCPU)(out.view(), flat.view(), in.view(), params_of(c));
  EXPECT_TRUE(std::isnan(out.at({0, 0, 0, 0})));
  EXPECT_EQ(flat.at({0, 0, 0, 0}), 1);
  EXPECT_EQ(flat.at({0, 0, 0, 1}), 43);  // the last NaN
  EXPECT_EQ(out.at({0, 0, 0, 2}), -kInfinity);
  EXPECT_EQ(flat.at({0, 0, 0, 2}), 4);  // the first of equals
}

TEST(MaxPool, IndicesAreOptional) {
  const Case c{2, 1, 2, {6, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}};
  StridedArray in(DType::Float, shape_of(c, false)), out(DType::Float, shape_of(c, true)),
      both = out, flat(DType::Long, shape_of(c, true));
  in.fill(1);
  max_pool_kernel.get(kCPU)(out.view(), View{}, in.view(), params_of(c));
  max_pool_kernel.get(kCPU)(both.view(), flat.view(), in.view(), params_of(c));
  EXPECT_EQ(out.values(), both.values());
}

TEST(MaxPool, ForeignIndicesAreChecked) {
  StridedArray din(DType::Float, {1, 1, 2, 2}), dout(DType::Float, {1, 1, 1, 1}), index(DType::Long, {1, 1, 1, 1});
  for (double bad : {-1.0, 4.0}) {
    index.fill_with(bad);
    EXPECT_THROW(max_pool_backward_kernel.get(kCPU)(din.view(), dout.view(), index.view(), PoolParams{}), IndexError);
  }
}

void check_avg(DType t, const Case& c, bool last, bool count_pad, std::int64_t divisor) {
  SCOPED_TRACE(::testing::Message() << dtype_name(t) << " " << c.spatial << "d size " << c.size[0] << " kernel "
                                    << c.kernel[0] << " count padding " << count_pad << " divisor " << divisor);
  PoolParams p = params_of(c);
  p.count_include_pad = count_pad;
  p.divisor_override = divisor;
  StridedArray in(t, shape_of(c, false), order(c.spatial, last)), out(t, shape_of(c, true), order(c.spatial, last));
  in.fill(1);
  avg_pool_kernel.get(kCPU)(out.view(), in.view(), p);
  ASSERT_TRUE(out.margins_intact());
  auto divide_by = [&](const Index& o) {
    double n = 1;
    for (int e = 0; e < c.spatial; ++e) {
      const std::int64_t start = o[2 + e] * c.stride[e] - c.padding[e];
      const std::int64_t stop = std::min(start + c.kernel[e], c.size[e] + c.padding[e]);
      n *= static_cast<double>(count_pad ? stop - start : std::min(stop, c.size[e]) - std::max<std::int64_t>(start, 0));
    }
    return divisor ? static_cast<double>(divisor) : n;
  };
  const double eps = t == DType::BFloat16 ? 1e-2 : t == DType::Half ? 1e-3 : t == DType::Float ? 1e-6 : 1e-13;
  StridedArray grad(t, shape_of(c, true), order(c.spatial, last)), want(DType::Double, shape_of(c, false));
  grad.fill(2), want.fill_with(0);
  out.each_index([&](const Index& o) {
    double sum = 0;
    each_tap(c, o, [&](int, const Index& i, std::int64_t) {
      sum += in.at(i);
      want.put(i, want.at(i) + grad.at(o) / divide_by(o));
    });
    ASSERT_NEAR(out.at(o), sum / divide_by(o), eps);
  });
  StridedArray din(t, shape_of(c, false), order(c.spatial, last));
  avg_pool_backward_kernel.get(kCPU)(din.view(), grad.view(), p);
  ASSERT_TRUE(din.margins_intact());
  din.each_index([&](const Index& i) { ASSERT_NEAR(din.at(i), want.at(i), 4 * eps); });
}

TEST(AvgPool, ValuesAndGradients) {
  for (DType t : {DType::Float, DType::Double, DType::BFloat16, DType::Half})
    for (const Case& c : cases())
      for (bool last : {false, true})
        for (bool count_pad : {false, true}) check_avg(t, c, last, count_pad, 0);
}

TEST(AvgPool, DivisorOverride) {
  for (const Case& c : cases()) check_avg(DType::Float, c, false, true, 3);
}

TEST(AdaptivePool, AverageAndMaximumOfUnevenWindows) {
  for (DType t : {DType::Float, DType::Double, DType::BFloat16})
    for (const auto& shapes : std::vector<std::pair<Index, Index>>{{{2, 3, 7, 10}, {2, 3, 3, 4}},
                                                                   {{2, 3, 7, 7}, {2, 3, 1, 1}},
                                                                   {{1, 20, 5}, {1, 20, 8}},
                                                                   {{1, 2, 4, 5, 6}, {1, 2, 2, 5, 4}}})
      for (bool last : {false, true}) {
        const Index &size = shapes.first, &out_shape = shapes.second;
        const int spatial = static_cast<int>(size.size()) - 2;
        StridedArray in(t, size, order(spatial, last)), avg(t, out_shape, order(spatial, last)),
            top = avg, din(t, size, order(spatial, last)), grad = avg;
        StridedArray flat(DType::Long, out_shape), want_avg(DType::Double, size), want_max(DType::Double, size);
        in.fill(1, 9), grad.fill(2), want_avg.fill_with(0), want_max.fill_with(0);
        adaptive_avg_pool_kernel.get(kCPU)(avg.view(), in.view());
        adaptive_max_pool_kernel.get(kCPU)(top.view(), flat.view(), in.view());
        const double eps = t == DType::BFloat16 ? 4e-2 : 1e-5;
        avg.each_index([&](const Index& o) {
          double sum = 0, best = -kInfinity, count = 0;
          std::int64_t place = -1;
          auto inside = [&](const Index& i) {
            for (int e = 0; e < spatial; ++e) {
              const std::int64_t n = out_shape[2 + e], s = size[2 + e];
              if (i[2 + e] < o[2 + e] * s / n || i[2 + e] >= ((o[2 + e] + 1) * s + n - 1) / n) return false;
            }
            return i[0] == o[0] && i[1] == o[1];
          };
          Index where;
          in.each_index([&](const Index& i) {
            if (!inside(i)) return;
            sum += in.at(i), count += 1;
            if (in.at(i) > best) {
              best = in.at(i), place = 0, where = i;
              for (int e = 0; e < spatial; ++e) place = place * size[2 + e] + i[2 + e];
            }
          });
          ASSERT_NEAR(avg.at(o), sum / count, eps);
          ASSERT_EQ(top.at(o), best);
          ASSERT_EQ(flat.at(o), place);
          in.each_index([&](const Index& i) {
            if (inside(i)) want_avg.put(i, want_avg.at(i) + grad.at(o) / count);
          });
          want_max.put(where, want_max.at(where) + grad.at(o));
        });
        adaptive_avg_pool_backward_kernel.get(kCPU)(din.view(), grad.view());
        din.each_index([&](const Index& i) { ASSERT_NEAR(din.at(i), want_avg.at(i), eps); });
        max_pool_backward_kernel.get(kCPU)(din.view(), grad.view(), flat.view(), PoolParams{});
        din.each_index([&](const Index& i) { ASSERT_NEAR(din.at(i), want_max.at(i), eps); });
        ASSERT_TRUE(din.margins_intact() && avg.margins_intact() && top.margins_intact());
      }
}

TEST(AvgPool, SameBitsOnAnyNumberOfThreads) {
  const int before = get_num_threads();
  StridedArray in(DType::Float, {9, 33, 30, 30}), out(DType::Float, {9, 33, 1, 1});
  in.fill(1);
  std::vector<char> first;
  for (int threads : {1, 2, 7}) {
    set_num_threads(threads);
    adaptive_avg_pool_kernel.get(kCPU)(out.view(), in.view());
    if (first.empty()) first = out.bytes();
    EXPECT_EQ(first, out.bytes());
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace athanor::pool_test
