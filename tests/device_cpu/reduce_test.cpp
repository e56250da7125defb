#include "athanor/ops/kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "athanor/base/parallel.h"
#include "device_cpu/strided_array.h"

namespace athanor::reduce_test {
namespace {

using testing::StridedArray;
using Shape = std::vector<std::int64_t>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const DType kAll[] = {DType::Byte, DType::Char,  DType::Short,  DType::Int,  DType::Long,
                      DType::Half, DType::Float, DType::Double, DType::Bool, DType::BFloat16};
const DType kFloating[] = {DType::Half, DType::Float, DType::Double, DType::BFloat16};

void reduce(ReduceOp op, const View& out, const View& in, std::uint64_t mask, double param = 0) {
  reduce_kernel.get(DeviceType::CPU)(op, out, in, mask, param);
}

double reference(ReduceOp op, const std::vector<double>& x, double param) {
  const auto n = static_cast<double>(x.size());
  double sum = 0, prod = 1, low = kInf, high = -kInf, count = 0, numbers = 0, nan_sum = 0, norm = 0;
  double least = kInf, most = 0;
  for (const double v : x) {
    sum += v;
    prod *= v;
    low = v < low || std::isnan(v) ? v : low;
    high = v > high || std::isnan(v) ? v : high;
    count += v != 0;
    numbers += !std::isnan(v);
    nan_sum += std::isnan(v) ? 0 : v;
    least = std::abs(v) < least || std::isnan(v) ? std::abs(v) : least;
    most = std::abs(v) > most || std::isnan(v) ? std::abs(v) : most;
    norm += std::pow(std::abs(v), param);
  }
  double m2 = 0, exps = 0;
  const double center = std::isfinite(high) ? high : 0;
  for (const double v : x) {
    m2 += (v - sum / n) * (v - sum / n);
    exps += std::exp(v - center);
  }
  switch (op) {
    case ReduceOp::Sum:
      return sum;
    case ReduceOp::Mean:
      return sum / n;
    case ReduceOp::Prod:
      return prod;
    case ReduceOp::Min:
      return low;
    case ReduceOp::Max:
      return high;
    case ReduceOp::Any:
      return count > 0;
    case ReduceOp::All:
      return count == n;
    case ReduceOp::Var:
      return m2 / std::max(0.0, n - param);
    case ReduceOp::Std:
      return std::sqrt(m2 / std::max(0.0, n - param));
    case ReduceOp::Norm:
      if (param == 0) return count;
      if (param == kInf) return most;
      if (param == -kInf) return least;
      return std::pow(norm, 1 / param);
    case ReduceOp::LogSumExp:
      return x.empty() ? -kInf : center + std::log(exps);
    case ReduceOp::NanSum:
      return nan_sum;
    case ReduceOp::NanMean:
      return nan_sum / numbers;
    case ReduceOp::CountNonzero:
      return count;
  }
  return kNaN;
}

double tolerance(DType t) {
  switch (t) {
    case DType::Half:
      return 1e-3;
    case DType::BFloat16:
      return 8e-3;
    case DType::Float:
      return 2e-6;
    case DType::Double:
      return 1e-13;
    default:
      return 0;
  }
}

void expect_close(double got, double want, double tol, const std::string& what) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << what << " got " << got << ", expected NaN";
  } else if (std::isinf(want)) {
    EXPECT_EQ(got, want) << what;
  } else {
    EXPECT_LE(std::abs(got - want), tol * std::max(1.0, std::abs(want)))
        << what << " got " << got << ", expected " << want;
  }
}

Shape reduced_shape(const Shape& sizes, std::uint64_t mask) {
  Shape out = sizes;
  for (std::size_t d = 0; d < out.size(); ++d)
    if (mask >> d & 1) out[d] = 1;
  return out;
}

/// The elements that each output, in row-major order, is made of.
std::vector<std::vector<double>> groups(const StridedArray& in, std::uint64_t mask) {
  const Shape sizes = reduced_shape(in.sizes(), mask);
  std::int64_t n = 1;
  for (auto s : sizes) n *= s;
  std::vector<std::vector<double>> out(static_cast<std::size_t>(n));
  in.each_index([&](const Shape& index) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at = at * sizes[d] + (mask >> d & 1 ? 0 : index[d]);
    out[static_cast<std::size_t>(at)].push_back(in.at(index));
  });
  return out;
}

struct Geometry {
  Shape sizes;
  std::vector<int> order;
  std::int64_t gap = 0;
};

const Geometry kGeometries[] = {
    {{}, {}, 0},         {{1}, {}, 0},          {{7}, {}, 0},
    {{300}, {}, 2},      {{5, 33}, {}, 0},      {{33, 5}, {1, 0}, 0},
    {{4, 3, 70}, {}, 0}, {{4, 3, 70}, {}, 1},   {{6, 5, 9}, {2, 0, 1}, 0},
    {{40, 2, 3}, {}, 0}, {{3, 1, 130}, {}, 0},  {{2, 3, 4, 5}, {3, 1, 2, 0}, 0},
    {{90, 17}, {}, 0},   {{17, 90}, {1, 0}, 2}, {{70, 3}, {}, 0},
};

void check(ReduceOp op, DType in_type, DType out_type, const Geometry& g, double param) {
  StridedArray in(in_type, g.sizes, g.order, g.gap);
  in.fill(11);
  const std::uint64_t masks = std::uint64_t{1} << g.sizes.size();
  for (std::uint64_t mask = 0; mask < masks; ++mask) {
    StridedArray out(out_type, reduced_shape(g.sizes, mask), g.order, g.gap);
    reduce(op, out.view(), in.view(), mask, param);
    const auto values = out.values();
    const auto parts = groups(in, mask);
    for (std::size_t i = 0; i < values.size(); ++i) {
      double want = reference(op, parts[i], param);
      if (out_type == DType::Half && std::abs(want) > 65520) want = std::copysign(kInf, want);
      if (is_integral(out_type)) want = testing::wrapped(static_cast<std::int64_t>(want), out_type);
      expect_close(values[i], want, tolerance(out_type),
                   "op " + std::to_string(static_cast<int>(op)) + " of " + dtype_name(in_type) + " rank " +
                       std::to_string(g.sizes.size()) + " mask " + std::to_string(mask));
    }
    EXPECT_TRUE(out.margins_intact());
  }
}

TEST(Reduce, SumsEveryDtypeOverEverySetOfDims) {
  for (const auto& g : kGeometries)
    for (DType t : kAll) check(ReduceOp::Sum, t, is_floating_point(t) ? t : DType::Long, g, 0);
}

TEST(Reduce, ConvertsToTheResultDtypeBeforeSumming) {
  for (DType t : kAll) {
    check(ReduceOp::Sum, t, DType::Double, {{6, 40}, {1, 0}, 0}, 0);
    check(ReduceOp::Sum, t, DType::Float, {{6, 40}, {}, 0}, 0);
    if (!is_floating_point(t)) check(ReduceOp::Sum, t, DType::Int, {{6, 40}, {}, 0}, 0);
  }
}

TEST(Reduce, SumToBoolTellsWhetherAnythingIsNonZero) {
  StridedArray in(DType::Float, {3, 2}), out(DType::Bool, {3, 1});
  in.fill_with(0).put({1, 0}, 2);
  in.put({2, 0}, 0.25);
  in.put({2, 1}, -0.25);
  reduce(ReduceOp::Sum, out.view(), in.view(), 2);
  EXPECT_EQ(out.values(), (std::vector<double>{0, 1, 1}));
  reduce(ReduceOp::Prod, out.view(), in.view(), 2);
  EXPECT_EQ(out.values(), (std::vector<double>{0, 0, 1}));
}

TEST(Reduce, FindsExtremesOfEveryDtype) {
  for (const auto& g : kGeometries)
    for (DType t : kAll) {
      check(ReduceOp::Min, t, t, g, 0);
      check(ReduceOp::Max, t, t, g, 0);
    }
}

TEST(Reduce, TellsAnyAllAndCountsNonZero) {
  for (const auto& g : kGeometries)
    for (DType t : kAll) {
      check(ReduceOp::Any, t, DType::Bool, g, 0);
      check(ReduceOp::All, t, DType::Byte, g, 0);
      check(ReduceOp::CountNonzero, t, DType::Long, g, 0);
    }
}

TEST(Reduce, MultipliesEveryDtype) {
  for (const auto& g : {kGeometries[0], kGeometries[2], kGeometries[4], kGeometries[8]})
    for (DType t : kAll) {
      if (is_integral(t)) continue;
      check(ReduceOp::Prod, t, is_floating_point(t) ? t : DType::Long, g, 0);
    }
  StridedArray in(DType::Int, {2, 70}), out(DType::Long, {2, 1});
  in.fill_with(3);
  reduce(ReduceOp::Prod, out.view(), in.view(), 2);
  std::uint64_t want = 1;
  for (int i = 0; i < 70; ++i) want *= 3;
  EXPECT_EQ(out.view().ptr<std::int64_t>()[0], static_cast<std::int64_t>(want));
}

TEST(Reduce, ComputesMeansVariancesNormsAndLogSumExp) {
  for (const auto& g : kGeometries)
    for (DType t : kFloating) {
      check(ReduceOp::Mean, t, t, g, 0);
      check(ReduceOp::NanMean, t, t, g, 0);
      check(ReduceOp::NanSum, t, t, g, 0);
      check(ReduceOp::Var, t, t, g, 1);
      check(ReduceOp::Std, t, t, g, 0);
      for (double p : {0.0, 1.0, 2.0, 3.0, 0.5, kInf, -kInf}) check(ReduceOp::Norm, t, t, g, p);
      check(ReduceOp::LogSumExp, t, t, g, 0);
    }
}

TEST(Reduce, MeansOfIntegersAreFloating) {
  for (DType t : kAll) check(ReduceOp::Mean, t, DType::Float, {{5, 40}, {}, 0}, 0);
}

TEST(Reduce, GivesIdentitiesForEmptySets) {
  const std::pair<ReduceOp, double> cases[] = {
      {ReduceOp::Sum, 0},    {ReduceOp::Prod, 1},       {ReduceOp::NanSum, 0},  {ReduceOp::CountNonzero, 0},
      {ReduceOp::Any, 0},    {ReduceOp::All, 1},        {ReduceOp::Mean, kNaN}, {ReduceOp::Var, kNaN},
      {ReduceOp::Std, kNaN}, {ReduceOp::NanMean, kNaN}, {ReduceOp::Norm, 0},    {ReduceOp::LogSumExp, -kInf}};
  for (const auto& [op, want] : cases) {
    const bool truth = op == ReduceOp::Any || op == ReduceOp::All;
    StridedArray in(DType::Float, {3, 0, 2}), out(truth                          ? DType::Bool
                                                  : op == ReduceOp::CountNonzero ? DType::Long
                                                                                 : DType::Float,
                                                  {3, 1, 2});
    reduce(op, out.view(), in.view(), 2, op == ReduceOp::Norm ? 2 : 1);
    for (const double v : out.values()) expect_close(v, want, 0, "op " + std::to_string(static_cast<int>(op)));
  }
  StridedArray in(DType::Float, {3, 0}), out(DType::Float, {3, 1}), none(DType::Float, {1, 0});
  EXPECT_THROW(reduce(ReduceOp::Max, out.view(), in.view(), 2), IndexError);
  EXPECT_NO_THROW(reduce(ReduceOp::Max, none.view(), in.view(), 1));
}

TEST(Reduce, PropagatesNaN) {
  for (std::int64_t at : {0, 3, 200, 999}) {
    StridedArray in(DType::Float, {2, 1000}), out(DType::Float, {2, 1}), across(DType::Float, {1, 1000});
    in.fill(3).put({1, at}, kNaN);
    for (ReduceOp op :
         {ReduceOp::Min, ReduceOp::Max, ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Var, ReduceOp::LogSumExp}) {
      reduce(op, out.view(), in.view(), 2, 1);
      EXPECT_FALSE(std::isnan(out.at({0, 0}))) << static_cast<int>(op);
      EXPECT_TRUE(std::isnan(out.at({1, 0}))) << static_cast<int>(op);
      reduce(op, across.view(), in.view(), 1, 1);
      EXPECT_TRUE(std::isnan(across.at({0, at}))) << static_cast<int>(op);
      EXPECT_FALSE(std::isnan(across.at({0, (at + 1) % 1000}))) << static_cast<int>(op);
    }
    reduce(ReduceOp::NanSum, out.view(), in.view(), 2, 1);
    EXPECT_FALSE(std::isnan(out.at({1, 0})));
  }
}

TEST(Reduce, LogSumExpTakesInfinities) {
  StridedArray in(DType::Float, {4, 40}), out(DType::Float, {4, 1});
  in.fill_with(-1000);
  for (int i = 0; i < 40; ++i) in.put({1, i}, -kInf);
  in.put({2, 5}, kInf);
  in.put({3, 7}, -kInf);
  reduce(ReduceOp::LogSumExp, out.view(), in.view(), 2);
  expect_close(out.at({0, 0}), -1000 + std::log(40), 1e-6, "row 0");
  EXPECT_EQ(out.at({1, 0}), -kInf);
  EXPECT_EQ(out.at({2, 0}), kInf);
  expect_close(out.at({3, 0}), -1000 + std::log(39), 1e-6, "row 3");
}

TEST(Reduce, VarianceSurvivesALargeMean) {
  for (std::uint64_t mask : {1U, 2U}) {
    StridedArray in(DType::Float, {600, 600});
    in.each_index([&](const Shape& i) { in.put(i, 10000 + (i[0] * 7 + i[1] * 3) % 8 / 8.0); });
    StridedArray out(DType::Float, reduced_shape(in.sizes(), mask));
    reduce(ReduceOp::Var, out.view(), in.view(), mask, 0);
    const auto parts = groups(in, mask);
    const auto got = out.values();
    for (std::size_t i = 0; i < got.size(); ++i)
      expect_close(got[i], reference(ReduceOp::Var, parts[i], 0), 1e-4, "var");
  }
}

TEST(Reduce, SumOfManyIsAccurate) {
  constexpr std::int64_t kN = 3'000'000;
  std::vector<float> x(kN, 0.1F);
  const std::int64_t sizes[] = {kN}, strides[] = {1}, one[] = {1};
  float out = 0;
  const View in{x.data(), sizes, strides, kN, DType::Float, 1, true}, to{&out, one, strides, 1, DType::Float, 1, true};
  reduce(ReduceOp::Sum, to, in, 1);
  EXPECT_NEAR(out, kN * static_cast<double>(0.1F), 0.15);  // half a millionth
}

TEST(Reduce, GivesTheSameBitsOnAnyNumberOfThreads) {
  struct Case {
    Shape sizes;
    std::uint64_t mask;
  };
  const int before = get_num_threads();
  for (const auto& [sizes, mask] :
       {Case{{700000}, 1}, Case{{1100, 1024}, 1}, Case{{1100, 1024}, 2}, Case{{300000, 3}, 1}, Case{{3, 250000}, 2},
        Case{{20, 31, 997}, 5}, Case{{200000, 5}, 2}, Case{{396, 400}, 1}, Case{{150, 1041}, 1}}) {
    for (const DType type : {DType::Float, DType::Double, DType::Half}) {
      StridedArray in(type, sizes);
      if (type != DType::Float && in.view().numel > 800000) continue;
      in.fill(5);
      const std::vector<double> drawn = in.values();
      const auto place = [&](double slope, double offset) {
        std::size_t k = 0;
        in.each_index([&](const Shape& i) { in.put(i, drawn[k++] * slope + offset); });
      };
      for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Var, ReduceOp::LogSumExp, ReduceOp::NanSum, ReduceOp::Prod}) {
        if (op == ReduceOp::Sum) place(1.1, type == DType::Half ? 0.03 : 0.3);
        if (op == ReduceOp::Prod) place(type == DType::Half ? 1e-3 : 1e-6, 1);  // a product that stays in range
        std::vector<std::vector<char>> bytes;
        for (int threads : {1, 2, 7}) {
          set_num_threads(threads);
          StridedArray out(type, reduced_shape(sizes, mask));
          reduce(op, out.view(), in.view(), mask, 1);
          bytes.push_back(out.bytes());
        }
        EXPECT_EQ(bytes[0], bytes[1]) << dtype_name(type) << " op " << static_cast<int>(op);
        EXPECT_EQ(bytes[0], bytes[2]) << dtype_name(type) << " op " << static_cast<int>(op);
      }
    }
  }
  set_num_threads(before);
}

TEST(Reduce, LargeShapesAgreeWithTheReference) {
  struct Case {
    Shape sizes;
    std::vector<int> order;
    std::uint64_t mask;
    DType type;
  };
  for (const auto& c : {Case{{300000}, {}, 1, DType::Half}, Case{{700, 1030}, {}, 1, DType::Float},
                        Case{{150000, 3}, {}, 1, DType::Float}, Case{{150000, 3}, {1, 0}, 1, DType::Int},
                        Case{{3, 150000}, {}, 2, DType::BFloat16}, Case{{70, 10, 300}, {1, 2, 0}, 5, DType::Float},
                        Case{{100000, 4}, {}, 2, DType::Double}, Case{{2, 300000}, {}, 1, DType::Char}}) {
    StridedArray in(c.type, c.sizes, c.order);
    in.fill(9);
    for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Max}) {
      const DType t = op == ReduceOp::Max || is_floating_point(c.type) ? c.type : DType::Long;
      StridedArray out(t, reduced_shape(c.sizes, c.mask));
      reduce(op, out.view(), in.view(), c.mask);
      const auto parts = groups(in, c.mask);
      const auto got = out.values();
      for (std::size_t i = 0; i < got.size(); ++i)
        expect_close(got[i], reference(op, parts[i], 0), tolerance(t), "large");
    }
  }
}

TEST(Reduce, ReadsBroadcastInputs) {
  StridedArray in(DType::Float, {3, 1});
  in.fill(4);
  const double first[] = {in.at({0, 0}), in.at({1, 0}), in.at({2, 0})};
  in.broadcast(1, 50);
  StridedArray rows(DType::Float, {3, 1}), all(DType::Float, {1, 1}), columns(DType::Float, {1, 50});
  reduce(ReduceOp::Sum, rows.view(), in.view(), 2);
  reduce(ReduceOp::Sum, all.view(), in.view(), 3);
  reduce(ReduceOp::Sum, columns.view(), in.view(), 1);
  for (int i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(rows.at({i, 0}), 50 * first[i]);
  EXPECT_FLOAT_EQ(all.at({0, 0}), 50 * (first[0] + first[1] + first[2]));
  EXPECT_FLOAT_EQ(columns.at({0, 49}), first[0] + first[1] + first[2]);
}

TEST(Reduce, RefusesResultsThatCannotHoldTheValue) {
  StridedArray in(DType::Float, {3}), out(DType::Long, {1});
  EXPECT_THROW(reduce(ReduceOp::Mean, out.view(), in.view(), 1), TypeError);
  EXPECT_THROW(reduce(ReduceOp::Max, out.view(), in.view(), 1), TypeError);
  EXPECT_THROW(reduce(ReduceOp::Any, out.view(), in.view(), 1), TypeError);
}

TEST(MinMax, AgreesWithMinAndMax) {
  for (const auto& g : kGeometries)
    for (DType t : kAll) {
      StridedArray in(t, g.sizes, g.order, g.gap);
      in.fill(21);
      for (std::uint64_t mask = 0; mask < std::uint64_t{1} << g.sizes.size(); ++mask) {
        StridedArray low(t, reduced_shape(g.sizes, mask), g.order, g.gap), high(t, reduced_shape(g.sizes, mask));
        min_max_kernel.get(DeviceType::CPU)(low.view(), high.view(), in.view(), mask);
        const auto parts = groups(in, mask);
        const auto a = low.values(), b = high.values();
        for (std::size_t i = 0; i < a.size(); ++i) {
          EXPECT_EQ(a[i], reference(ReduceOp::Min, parts[i], 0));
          EXPECT_EQ(b[i], reference(ReduceOp::Max, parts[i], 0));
        }
      }
    }
}

TEST(VarMean, GivesBoth) {
  for (DType t : kFloating) {
    StridedArray in(t, {9, 300}), var(t, {9, 1}), mean(t, {9, 1});
    in.fill(8, 3);
    var_mean_kernel.get(DeviceType::CPU)(var.view(), mean.view(), in.view(), 2, 1, false);
    const auto parts = groups(in, 2);
    for (int i = 0; i < 9; ++i) {
      expect_close(var.at({i, 0}), reference(ReduceOp::Var, parts[i], 1), tolerance(t), "var");
      expect_close(mean.at({i, 0}), reference(ReduceOp::Mean, parts[i], 0), tolerance(t), "mean");
    }
  }
}

}  // namespace
}  // namespace athanor::reduce_test
