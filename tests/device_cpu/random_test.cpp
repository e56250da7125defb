#include "athanor/ops/kernels/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "athanor/base/parallel.h"
#include "device_cpu/strided_array.h"

namespace athanor {
namespace {

using testing::StridedArray;
using Shape = std::vector<std::int64_t>;

/// Philox written again from its definition.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::uint32_t k0, std::uint32_t k1) {
  for (int i = 0; i < 10; ++i) {
    const std::uint64_t a = 0xD2511F53ULL * c[0], b = 0xCD9E8D57ULL * c[2];
    const auto hi = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
    c = {hi(b) ^ c[1] ^ k0, static_cast<std::uint32_t>(b), hi(a) ^ c[3] ^ k1, static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}
std::array<std::uint32_t, 4> block(PhiloxState s, std::uint64_t b, std::uint32_t attempt = 0) {
  const std::uint64_t at = s.offset + b;
  return philox({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32), attempt, 0},
                static_cast<std::uint32_t>(s.seed), static_cast<std::uint32_t>(s.seed >> 32));
}
std::uint32_t draw32(PhiloxState s, std::uint64_t i, std::uint32_t attempt = 0) {
  return block(s, i / 4, attempt)[i % 4];
}
std::uint64_t draw64(PhiloxState s, std::uint64_t i, std::uint32_t attempt = 0) {
  const auto w = block(s, i / 2, attempt);
  return w[i % 2 * 2] | static_cast<std::uint64_t>(w[i % 2 * 2 + 1]) << 32;
}

void fill(RandomOp op, const View& out, double a, double b, PhiloxState s) {
  random_kernel.get(DeviceType::CPU)(op, out, a, b, s);
}
void integers(const View& out, std::int64_t low, std::uint64_t range, PhiloxState s) {
  random_integer_kernel.get(DeviceType::CPU)(out, low, range, s);
}

const PhiloxState kStates[] = {{0, 0}, {0x123456789abcdefULL, 7}, {42, 0xfffffffffffffff0ULL}, {1, 0xfffffff0ULL}};

TEST(Random, ReferenceGivesThePublishedVectors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0, 0), (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0U, ~0U, ~0U, ~0U}, ~0U, ~0U),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, UniformsAreTheTopBitsOfTheDraws) {
  for (const PhiloxState s : kStates)
    for (std::int64_t n : {1, 2, 3, 5, 17, 1023, 5003}) {
      StridedArray f(DType::Float, {n}), d(DType::Double, {n}), h(DType::Half, {n}), b(DType::BFloat16, {n});
      fill(RandomOp::Uniform, f.view(), -1, 2.5, s);
      fill(RandomOp::Uniform, d.view(), -1, 2.5, s);
      fill(RandomOp::Uniform, h.view(), 0, 1, s);
      fill(RandomOp::Uniform, b.view(), 0, 1, s);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto k = static_cast<std::uint64_t>(i);
        const float u = static_cast<float>(draw32(s, k) >> 8) * 0x1p-24F;
        const volatile float scaled = u * 3.5F;
        ASSERT_EQ(f.at({i}), static_cast<double>(scaled + -1.0F));
        const volatile double wide = static_cast<double>(draw64(s, k) >> 11) * 0x1p-53 * 3.5;
        ASSERT_EQ(d.at({i}), wide + -1.0);
        ASSERT_EQ(h.at({i}), (draw32(s, k) >> 21) / 2048.0);
        ASSERT_EQ(b.at({i}), (draw32(s, k) >> 24) / 256.0);
      }
      EXPECT_TRUE(f.margins_intact());
    }
}

TEST(Random, StridesDoNotChangeTheNumbers) {
  StridedArray plain(DType::Float, {13, 7, 11}), turned(DType::Float, {13, 7, 11}, {2, 0, 1}),
      gapped(DType::Float, {13, 7, 11}, {}, 3);
  for (RandomOp op : {RandomOp::Uniform, RandomOp::Normal}) {
    fill(op, plain.view(), 0, 1, {5, 3});
    fill(op, turned.view(), 0, 1, {5, 3});
    fill(op, gapped.view(), 0, 1, {5, 3});
    EXPECT_EQ(plain.values(), turned.values());
    EXPECT_EQ(plain.values(), gapped.values());
    EXPECT_TRUE(gapped.margins_intact());
  }
}

TEST(Random, ThreadsDoNotChangeTheNumbers) {
  const int before = get_num_threads();
  std::vector<std::vector<char>> bytes;
  for (int threads : {1, 2, 7}) {
    set_num_threads(threads);
    StridedArray out(DType::Float, {50001});
    fill(RandomOp::Normal, out.view(), 0, 1, {5, 3});
    bytes.push_back(out.bytes());
  }
  set_num_threads(before);
  EXPECT_EQ(bytes[0], bytes[1]);
  EXPECT_EQ(bytes[0], bytes[2]);
}

TEST(Random, NormalsFollowBoxMuller) {
  const PhiloxState s{99, 1000};
  constexpr std::int64_t kN = 4001;
  StridedArray f(DType::Float, {kN}), d(DType::Double, {kN}), h(DType::BFloat16, {kN});
  fill(RandomOp::Normal, f.view(), 0.5, 2, s);
  fill(RandomOp::Normal, d.view(), 0.5, 2, s);
  fill(RandomOp::Normal, h.view(), 0.5, 2, s);
  const double turn = 2 * std::acos(-1.0);
  for (std::int64_t i = 0; i < kN; ++i) {
    const auto pair = static_cast<std::uint64_t>(i) / 2 * 2;
    const auto value = [&](double v, double w) {
      const double radius = std::sqrt(-2 * std::log(v)), angle = turn * (w - 0.125);
      return 0.5 + 2 * radius * (i % 2 ? std::sin(angle) : std::cos(angle));
    };
    const double f_want = value((draw32(s, pair) + 0.5) * 0x1p-32, (draw32(s, pair + 1) + 0.5) * 0x1p-32);
    const double d_want = value((static_cast<double>(draw64(s, pair)) + 0.5) * 0x1p-64,
                                (static_cast<double>(draw64(s, pair + 1)) + 0.5) * 0x1p-64);
    // A radius near 0 keeps the absolute error of the draw it comes from.
    ASSERT_NEAR(f.at({i}), f_want, 2e-3 * (std::abs(f_want - 0.5) < 0.01) + 3e-6 * std::max(1.0, std::abs(f_want)));
    ASSERT_NEAR(d.at({i}), d_want, 1e-12 * std::max(1.0, std::abs(d_want)));
    ASSERT_NEAR(h.at({i}), f_want, 1e-2 * std::max(1.0, std::abs(f_want)));
  }
}

struct Moments {
  double mean = 0, var = 0, skew = 0, kurtosis = 0;
  explicit Moments(const std::vector<double>& x) {
    const auto n = static_cast<double>(x.size());
    for (double v : x) mean += v / n;
    for (double v : x) {
      const double e = v - mean;
      var += e * e / n;
      skew += e * e * e / n;
      kurtosis += e * e * e * e / n;
    }
    skew /= std::pow(var, 1.5);
    kurtosis /= var * var;
  }
};

TEST(Random, DistributionsHaveTheirMoments) {
  for (DType t : {DType::Float, DType::Double}) {
    StridedArray out(t, {200000});
    fill(RandomOp::Normal, out.view(), 3, 2, {1, 0});
    const Moments normal(out.values());
    EXPECT_NEAR(normal.mean, 3, 0.02);
    EXPECT_NEAR(normal.var, 4, 0.06);
    EXPECT_NEAR(normal.skew, 0, 0.03);
    EXPECT_NEAR(normal.kurtosis, 3, 0.06);
    fill(RandomOp::Exponential, out.view(), 4, 0, {1, 0});
    const Moments exponential(out.values());
    EXPECT_NEAR(exponential.mean, 0.25, 0.003);
    EXPECT_NEAR(exponential.skew, 2, 0.12);
    fill(RandomOp::LogNormal, out.view(), 0.2, 0.5, {1, 0});
    EXPECT_NEAR(Moments(out.values()).mean, std::exp(0.2 + 0.125), 0.01);
    fill(RandomOp::Geometric, out.view(), 0.25, 0, {1, 0});
    const Moments geometric(out.values());
    EXPECT_NEAR(geometric.mean, 4, 0.04);
    EXPECT_NEAR(geometric.var, 12, 0.4);
    fill(RandomOp::Cauchy, out.view(), 1, 2, {1, 0});
    auto sorted = out.values();
    std::sort(sorted.begin(), sorted.end());
    EXPECT_NEAR(sorted[100000], 1, 0.03);
    EXPECT_NEAR(sorted[150000], 3, 0.06);
  }
}

TEST(Random, GeometricTakesIntegersAndCertainty) {
  StridedArray ints(DType::Long, {1000}), floats(DType::Float, {1000});
  fill(RandomOp::Geometric, ints.view(), 0.3, 0, {8, 0});
  fill(RandomOp::Geometric, floats.view(), 0.3, 0, {8, 0});
  EXPECT_EQ(ints.values(), floats.values());
  fill(RandomOp::Geometric, ints.view(), 1, 0, {8, 0});
  for (double v : ints.values()) ASSERT_EQ(v, 1);
}

TEST(Random, IntegersAreEvenlyScaledDraws) {
  const std::uint64_t ranges[] = {
      1, 2, 10, 1000, 3 << 20, 1U << 24, (1U << 24) + 1, 3'000'000'000U, 1ULL << 40, (3ULL << 62), 0};
  for (const PhiloxState s : kStates)
    for (const std::uint64_t range : ranges)
      for (std::int64_t n : {1, 7, 2050}) {
        StridedArray out(DType::Long, {n});
        const std::int64_t low = -5;
        integers(out.view(), low, range, s);
        for (std::int64_t i = 0; i < n; ++i) {
          std::uint64_t want = 0;
          for (std::uint32_t attempt = 0;; ++attempt) {
            if (random_integer_bits(range) == 32) {
              const std::uint64_t p = draw32(s, static_cast<std::uint64_t>(i), attempt) * range;
              want = p >> 32;
              if ((p & 0xffffffffU) >= (std::uint64_t{1} << 32) % range) break;
            } else {
              const std::uint64_t w = draw64(s, static_cast<std::uint64_t>(i), attempt);
              const auto p = static_cast<unsigned __int128>(w) * range;
              want = range ? static_cast<std::uint64_t>(p >> 64) : w;
              if (range == 0 || static_cast<std::uint64_t>(p) >= -range % range) break;
            }
          }
          ASSERT_EQ(out.view().ptr<std::int64_t>()[i],
                    static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + want))
              << range;
        }
      }
}

TEST(Random, IntegersFillEveryDtype) {
  for (DType t : {DType::Byte, DType::Char, DType::Short, DType::Int, DType::Half, DType::Float, DType::Double,
                  DType::BFloat16}) {
    StridedArray out(t, {3000}), want(DType::Long, {3000});
    integers(out.view(), 3, 20, {4, 4});
    integers(want.view(), 3, 20, {4, 4});
    EXPECT_EQ(out.values(), want.values());
  }
  StridedArray flags(DType::Bool, {3000});
  integers(flags.view(), 0, 2, {4, 4});
  const auto v = flags.values();
  EXPECT_NEAR(std::accumulate(v.begin(), v.end(), 0.0), 1500, 150);
}

TEST(Random, BernoulliComparesDraws) {
  const PhiloxState s{3, 9};
  for (double p : {0.0, 0.3, 0.5, 1.0})
    for (DType t : {DType::Float, DType::Bool, DType::Long, DType::Half, DType::Byte}) {
      StridedArray out(t, {2, 1501});
      bernoulli_kernel.get(DeviceType::CPU)(out.view(), p, s);
      const auto v = out.values();
      for (std::size_t i = 0; i < v.size(); ++i) ASSERT_EQ(v[i], draw32(s, i) < p * 4294967296.0);
    }
  StridedArray out(DType::Float, {2});
  EXPECT_THROW(bernoulli_kernel.get(DeviceType::CPU)(out.view(), 1.5, s), Error);
  EXPECT_THROW(bernoulli_kernel.get(DeviceType::CPU)(out.view(), std::nan(""), s), Error);
}

TEST(Random, BernoulliTakesAProbabilityPerElement) {
  const PhiloxState s{3, 9};
  for (DType t : {DType::Half, DType::Float, DType::Double}) {
    StridedArray p(t, {40, 50}, {1, 0}), out(DType::Float, {40, 50});
    p.each_index([&](const Shape& i) { p.put(i, static_cast<double>((i[0] + i[1]) % 5) / 4); });
    bernoulli_tensor_kernel.get(DeviceType::CPU)(out.view(), p.view(), s);
    out.each_index([&](const Shape& i) {
      ASSERT_EQ(out.at(i), draw32(s, static_cast<std::uint64_t>(i[0] * 50 + i[1])) < p.at(i) * 4294967296.0);
    });
    p.put({3, 3}, -0.5);
    EXPECT_THROW(bernoulli_tensor_kernel.get(DeviceType::CPU)(out.view(), p.view(), s), Error);
  }
}

TEST(Dropout, KeepsAndScalesByTheDraws) {
  const PhiloxState s{17, 2};
  for (DType t : {DType::Half, DType::Float, DType::Double, DType::BFloat16})
    for (double p : {0.0, 0.5, 0.75, 1.0})
      for (const std::vector<int>& order : {std::vector<int>{0, 1}, std::vector<int>{1, 0}}) {
        StridedArray in(t, {33, 65}, order), out(t, {33, 65}), mask(DType::Bool, {33, 65}), again(t, {33, 65});
        in.fill(3);
        dropout_kernel.get(DeviceType::CPU)(out.view(), mask.view(), in.view(), p, s);
        dropout_kernel.get(DeviceType::CPU)(again.view(), View{}, in.view(), p, s);
        EXPECT_EQ(out.values(), again.values());
        out.each_index([&](const Shape& i) {
          const bool keep = draw32(s, static_cast<std::uint64_t>(i[0] * 65 + i[1])) >= p * 4294967296.0;
          ASSERT_EQ(mask.at(i), keep);
          ASSERT_EQ(out.at(i), keep ? in.at(i) / (1 - p) : 0);
        });
        dropout_kernel.get(DeviceType::CPU)(in.view(), View{}, in.view(), p, s);
        EXPECT_EQ(in.values(), out.values());
      }
}

TEST(Randperm, HasEveryNumberOnceForAnyNumberOfThreads) {
  const int threads = get_num_threads();
  for (std::int64_t n : {0, 1, 2, 3, 49, 1000, 1025, 16384, 16385, 70001, 300000}) {
    StridedArray first(DType::Long, {n}), second(DType::Long, {n});
    set_num_threads(1);
    randperm_kernel.get(DeviceType::CPU)(first.view(), {5, 11});
    set_num_threads(3);
    randperm_kernel.get(DeviceType::CPU)(second.view(), {5, 11});
    set_num_threads(threads);
    EXPECT_EQ(first.values(), second.values());
    std::vector<double> sorted = first.values();
    std::sort(sorted.begin(), sorted.end());
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(sorted[static_cast<std::size_t>(i)], static_cast<double>(i));
  }
}

TEST(Randperm, GivesEveryOrderOfFourEquallyOften) {
  std::map<std::vector<double>, int> seen;
  for (std::uint64_t i = 0; i < 24000; ++i) {
    StridedArray out(DType::Long, {4});
    randperm_kernel.get(DeviceType::CPU)(out.view(), {7, 2 * i});
    ++seen[out.values()];
  }
  ASSERT_EQ(seen.size(), 24U);
  double chi = 0;
  for (const auto& [order, count] : seen) chi += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_LT(chi, 50);  // 23 degrees of freedom: one in a thousand passes 49.7
}

TEST(Randperm, SpreadsEveryPartOfTheNumbersOverAllPlaces) {
  constexpr std::int64_t kParts = 10, kNumbers = 200000;
  StridedArray out(DType::Long, {kNumbers});
  randperm_kernel.get(DeviceType::CPU)(out.view(), {3, 4});
  const std::vector<double> values = out.values();
  double counts[kParts][kParts] = {}, chi = 0;
  for (std::int64_t i = 0; i < kNumbers; ++i)
    ++counts[i * kParts / kNumbers][static_cast<std::int64_t>(values[static_cast<std::size_t>(i)]) * kParts / kNumbers];
  constexpr double kExpected = double{kNumbers} / (kParts * kParts);
  for (const auto& row : counts)
    for (const double c : row) chi += (c - kExpected) * (c - kExpected) / kExpected;
  EXPECT_LT(chi, 130);  // 81 degrees of freedom: mean 81, deviation 13
  EXPECT_GT(chi, 40);
}

TEST(Randperm, FillsOtherDtypesAndStrides) {
  StridedArray a(DType::Int, {500}, {}, 2), b(DType::Long, {500}), c(DType::Float, {500});
  for (auto* x : {&a, &b, &c}) randperm_kernel.get(DeviceType::CPU)(x->view(), {1, 1});
  EXPECT_EQ(a.values(), b.values());
  EXPECT_EQ(a.values(), c.values());
  EXPECT_TRUE(a.margins_intact());
}

TEST(Multinomial, DrawsByWeight) {
  StridedArray w(DType::Float, {2, 4}), out(DType::Long, {2, 40000});
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < 4; ++i) w.put({r, i}, (i + r) % 4);
  multinomial_kernel.get(DeviceType::CPU)(out.view(), w.view(), true, {6, 0});
  for (int r = 0; r < 2; ++r) {
    double count[4] = {};
    for (int i = 0; i < 40000; ++i) ++count[static_cast<int>(out.at({r, i}))];
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(count[i] / 40000, w.at({r, i}) / 6, 0.02);
    EXPECT_EQ(count[(4 - r) % 4], 0);
  }
}

TEST(Multinomial, WithoutReplacementDrawsEachOnce) {
  StridedArray w(DType::Double, {300, 6}), out(DType::Long, {300, 5});
  w.fill_with(1);
  for (int r = 0; r < 300; ++r) w.put({r, r % 6}, 0);
  multinomial_kernel.get(DeviceType::CPU)(out.view(), w.view(), false, {6, 0});
  int first = 0;
  for (int r = 0; r < 300; ++r) {
    std::map<double, int> seen;
    for (int i = 0; i < 5; ++i) ++seen[out.at({r, i})];
    EXPECT_EQ(seen.size(), 5U);
    EXPECT_EQ(seen.count(r % 6), 0U);
    first += out.at({r, 0}) == (r + 1) % 6;
  }
  EXPECT_NEAR(first, 60, 30);
}

TEST(Multinomial, RefusesBadWeights) {
  StridedArray w(DType::Float, {3}), out(DType::Long, {2});
  const auto draw = [&](bool replacement) {
    multinomial_kernel.get(DeviceType::CPU)(out.view(), w.view(), replacement, {1, 0});
  };
  w.fill_with(0);
  EXPECT_THROW(draw(true), Error);
  w.put({0}, 1);
  EXPECT_NO_THROW(draw(true));
  EXPECT_THROW(draw(false), Error);
  w.put({1}, -1);
  EXPECT_THROW(draw(true), Error);
  w.put({1}, std::numeric_limits<double>::infinity());
  EXPECT_THROW(draw(true), Error);
}

}  // namespace
}  // namespace athanor
