#include "athanor/ops/kernels/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "athanor/base/parallel.h"
#include "device_cpu/strided_array.h"

namespace athanor::softmax_test {
namespace {

using testing::StridedArray;
using Shape = std::vector<std::int64_t>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const DType kFloating[] = {DType::Half, DType::Float, DType::Double, DType::BFloat16};

void softmax(bool log, const View& out, const View& in, std::int64_t dim) {
  (log ? log_softmax_kernel : softmax_kernel).get(DeviceType::CPU)(out, in, dim);
}

double tolerance(DType t) {
  switch (t) {
    case DType::Half:
      return 2e-3;
    case DType::BFloat16:
      return 1.6e-2;
    case DType::Float:
      return 2e-6;
    default:
      return 1e-13;
  }
}

/// Calls fn(indices of one line) for every line along `dim`.
template <class F>
void each_line(const StridedArray& a, std::size_t dim, F&& fn) {
  a.each_index([&](const Shape& index) {
    if (!index.empty() && index[dim] != 0) return;
    std::vector<Shape> line;
    for (std::int64_t i = 0; i < (index.empty() ? 1 : a.sizes()[dim]); ++i) {
      line.push_back(index);
      if (!index.empty()) line.back()[dim] = i;
    }
    fn(line);
  });
}

std::vector<double> reference(bool log, const std::vector<double>& x) {
  double max = -kInf, sum = 0;
  for (double v : x) max = std::max(max, v);
  for (double v : x) sum += std::exp(v - max);
  std::vector<double> y;
  for (double v : x) y.push_back(log ? v - max - std::log(sum) : std::exp(v - max) / sum);
  return y;
}

void expect_near(double got, double want, double tol) {
  if (std::isnan(want))
    EXPECT_TRUE(std::isnan(got));
  else if (std::isinf(want))
    EXPECT_EQ(got, want);
  else
    EXPECT_NEAR(got, want, tol * std::max(1.0, std::abs(want)));
}

struct Geometry {
  Shape sizes;
  std::vector<int> order;
  std::int64_t gap = 0;
};
const Geometry kGeometries[] = {{{}, {}, 0},
                                {{1}, {}, 0},
                                {{10}, {}, 0},
                                {{1000}, {}, 0},
                                {{17, 10}, {}, 0},
                                {{10, 17}, {1, 0}, 0},
                                {{5, 33, 3}, {}, 0},
                                {{5, 33, 40}, {}, 0},
                                {{5, 33, 40}, {0, 2, 1}, 1},
                                {{4, 9, 300}, {1, 0, 2}, 0},
                                {{2, 5000}, {}, 0}};

TEST(Softmax, AgreesWithTheReferenceAlongEveryDim) {
  for (const auto& g : kGeometries)
    for (DType t : kFloating)
      for (bool log : {false, true})
        for (std::size_t d = 0; d < std::max<std::size_t>(1, g.sizes.size()); ++d) {
          StridedArray in(t, g.sizes, g.order, g.gap), out(t, g.sizes);
          in.fill(31, 6);
          softmax(log, out.view(), in.view(), static_cast<std::int64_t>(d));
          each_line(in, d, [&](const std::vector<Shape>& line) {
            std::vector<double> x;
            for (const auto& i : line) x.push_back(in.at(i));
            const auto y = reference(log, x);
            for (std::size_t i = 0; i < line.size(); ++i) expect_near(out.at(line[i]), y[i], tolerance(t));
          });
          EXPECT_TRUE(out.margins_intact());
          EXPECT_TRUE(in.margins_intact());
        }
}

TEST(Softmax, WritesOverItsInput) {
  for (std::int64_t dim : {0, 1})
    for (bool log : {false, true}) {
      StridedArray a(DType::Float, {40, 70}), out(DType::Float, {40, 70});
      a.fill(3, 4);
      softmax(log, out.view(), a.view(), dim);
      softmax(log, a.view(), a.view(), dim);
      EXPECT_EQ(a.bytes(), out.bytes());
    }
}

TEST(Softmax, GivesFloatsForHalves) {
  StridedArray in(DType::BFloat16, {3, 50}), out(DType::Float, {3, 50});
  in.fill(3, 4);
  softmax(false, out.view(), in.view(), 1);
  double sum = 0;
  for (int i = 0; i < 50; ++i) sum += out.at({1, i});
  EXPECT_NEAR(sum, 1, 1e-6);
}

TEST(Softmax, TakesExtremeLines) {
  for (std::int64_t n : {6, 40}) {
    StridedArray in(DType::Float, {5, n}), out(DType::Float, {5, n}), across(DType::Float, {n, 5}),
        turned(DType::Float, {n, 5});
    in.fill(7);
    for (int i = 0; i < n; ++i) {
      in.put({0, i}, -kInf);
      in.put({1, i}, i == 3 ? 0 : -kInf);
      in.put({4, i}, i % 2 ? 3e38 : -3e38);
    }
    in.put({2, 4}, kInf);
    in.put({3, 4}, kNaN);
    for (int r = 0; r < 5; ++r)
      for (int i = 0; i < n; ++i) turned.put({i, r}, in.at({r, i}));
    for (bool log : {false, true}) {
      softmax(log, out.view(), in.view(), 1);
      softmax(log, across.view(), turned.view(), 0);
      for (int r : {0, 2, 3})
        for (int i = 0; i < n; ++i) {
          EXPECT_TRUE(std::isnan(out.at({r, i}))) << r;
          EXPECT_TRUE(std::isnan(across.at({i, r}))) << r;
        }
      EXPECT_EQ(out.at({1, 3}), log ? 0 : 1);
      EXPECT_EQ(out.at({1, 2}), log ? -kInf : 0);
      EXPECT_EQ(across.at({2, 1}), log ? -kInf : 0);
      if (!log) {
        EXPECT_NEAR(out.at({4, 1}), 2.0 / n, 1e-6);
      }
    }
  }
}

TEST(Softmax, EmptyInputsAreFine) {
  StridedArray in(DType::Float, {0, 5}), out(DType::Float, {0, 5}), none(DType::Float, {5, 0}),
      same(DType::Float, {5, 0});
  EXPECT_NO_THROW(softmax(false, out.view(), in.view(), 1));
  EXPECT_NO_THROW(softmax(true, same.view(), none.view(), 1));
}

TEST(SoftmaxBackward, AgreesWithTheReference) {
  for (const auto& g : kGeometries)
    for (DType t : kFloating)
      for (bool log : {false, true})
        for (std::size_t d = 0; d < std::max<std::size_t>(1, g.sizes.size()); ++d) {
          StridedArray x(t, g.sizes), y(t, g.sizes, g.order, g.gap), grad(t, g.sizes), din(t, g.sizes);
          x.fill(4, 3);
          grad.fill(5);
          softmax(log, y.view(), x.view(), static_cast<std::int64_t>(d));
          (log ? log_softmax_backward_kernel : softmax_backward_kernel)
              .get(DeviceType::CPU)(din.view(), grad.view(), y.view(), static_cast<std::int64_t>(d));
          each_line(y, d, [&](const std::vector<Shape>& line) {
            double sum = 0;
            for (const auto& i : line) sum += grad.at(i) * (log ? 1 : y.at(i));
            for (const auto& i : line)
              expect_near(din.at(i), log ? grad.at(i) - std::exp(y.at(i)) * sum : y.at(i) * (grad.at(i) - sum),
                          tolerance(t) * 8);
          });
        }
}

TEST(Softmax, GivesTheSameBitsOnAnyNumberOfThreads) {
  const int before = get_num_threads();
  for (std::int64_t dim : {0, 1}) {
    std::vector<std::vector<char>> bytes;
    for (int threads : {1, 2, 7}) {
      set_num_threads(threads);
      StridedArray in(DType::Float, {300, 301}), out(DType::Float, {300, 301});
      in.fill(3, 5);
      softmax(false, out.view(), in.view(), dim);
      bytes.push_back(out.bytes());
    }
    EXPECT_EQ(bytes[0], bytes[1]);
    EXPECT_EQ(bytes[0], bytes[2]);
  }
  set_num_threads(before);
}

TEST(Softmax, StreamsLargeResults) {
  const std::int64_t sizes[] = {9001, 1003}, strides[] = {1003, 1};
  std::vector<float> x(9001 * 1003), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 2654435761U % 1000) * 0.01F;
  const View in{x.data(), sizes, strides, static_cast<std::int64_t>(x.size()), DType::Float, 2, true};
  View out = in;
  out.data = y.data();
  for (bool log : {false, true}) {
    softmax(log, out, in, 1);
    for (std::int64_t r : {0, 1, 4500, 9000}) {
      const std::vector<double> line(x.begin() + r * 1003, x.begin() + (r + 1) * 1003);
      const auto want = reference(log, line);
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(y[static_cast<std::size_t>(r) * 1003 + i], want[i], 2e-6 * std::max(1.0, std::abs(want[i])));
    }
  }
}

// ---- losses

struct Losses {
  std::vector<double> each, weights;
  double value(LossReduction r) const {
    double sum = 0, w = 0;
    for (double v : each) sum += v;
    for (double v : weights) w += v;
    return r == LossReduction::Mean ? sum / w : sum;
  }
};

struct LossCase {
  Shape logits;
  std::vector<int> order;
  bool weighted;
  double smoothing;
};

Shape without_class(const Shape& s) {
  Shape out = s;
  out.erase(out.begin() + (s.size() > 1 ? 1 : 0));
  return out;
}

TEST(CrossEntropy, AgreesWithTheReferenceForwardAndBackward) {
  for (const auto& c :
       {LossCase{{10}, {}, false, 0}, LossCase{{64, 10}, {}, false, 0}, LossCase{{7, 40}, {1, 0}, true, 0.1},
        LossCase{{300, 5}, {}, true, 0}, LossCase{{3, 6, 4, 5}, {}, true, 0.2},
        LossCase{{3, 6, 9}, {0, 2, 1}, false, 0.3}, LossCase{{900, 30}, {}, false, 0}})
    for (DType t : kFloating)
      for (LossReduction r : {LossReduction::None, LossReduction::Mean, LossReduction::Sum}) {
        const Shape positions = without_class(c.logits);
        const std::size_t axis = c.logits.size() > 1 ? 1 : 0;
        const std::int64_t classes = c.logits[axis];
        const DType stat = t == DType::Double ? t : DType::Float;
        const Shape loss_shape = r == LossReduction::None ? positions : Shape{};
        StridedArray x(t, c.logits, c.order), dx(t, c.logits), target(DType::Long, positions), loss(t, loss_shape),
            grad(t, loss_shape), lse(DType::Double, positions), total(stat, {}), weight(t, {classes});
        x.fill(5, 3);
        grad.fill(8).fill_with(0.5);
        weight.each_index([&](const Shape& i) { weight.put(i, c.weighted ? 0.5 + static_cast<double>(i[0]) / 4 : 1); });
        std::int64_t k = 0;
        target.each_index(
            [&](const Shape& i) { target.put(i, k++ % 7 == 3 && !positions.empty() ? 2 : k * 5 % classes); });
        ClassLossParams p{r, positions.empty() ? -100 : 2, c.smoothing};
        const View w = c.weighted ? weight.view() : View{};
        cross_entropy_kernel.get(DeviceType::CPU)(loss.view(), lse.view(), total.view(), x.view(), target.view(), w, p);
        cross_entropy_backward_kernel.get(DeviceType::CPU)(dx.view(), grad.view(), x.view(), lse.view(), total.view(),
                                                           target.view(), w, p);
        Losses want;
        double weight_sum = 0;
        for (int i = 0; i < classes; ++i) weight_sum += weight.at({i});
        std::vector<std::vector<double>> logp;
        each_line(x, axis, [&](const std::vector<Shape>& line) {
          std::vector<double> v;
          for (const auto& i : line) v.push_back(x.at(i));
          const auto lp = reference(true, v);
          Shape at = line[0];
          at.erase(at.begin() + static_cast<std::ptrdiff_t>(axis));
          const auto y = static_cast<std::int64_t>(target.at(at));
          double one = 0, wt = 0;
          if (y != p.ignore_index) {
            wt = weight.at({y});
            one = -(1 - c.smoothing) * wt * lp[static_cast<std::size_t>(y)];
            for (int i = 0; i < classes; ++i)
              one -= c.smoothing / static_cast<double>(classes) * weight.at({i}) * lp[static_cast<std::size_t>(i)];
          }
          want.each.push_back(one);
          want.weights.push_back(wt);
          if (r == LossReduction::None) expect_near(loss.at(at), one, tolerance(t) * 4);
        });
        if (r != LossReduction::None) expect_near(loss.at({}), want.value(r), tolerance(t) * 4);
        double total_weight = 0;
        for (double v : want.weights) total_weight += v;
        expect_near(total.at({}), total_weight, 1e-6);
        each_line(x, axis, [&](const std::vector<Shape>& line) {
          std::vector<double> v;
          for (const auto& i : line) v.push_back(x.at(i));
          const auto q = reference(false, v);
          Shape at = line[0];
          at.erase(at.begin() + static_cast<std::ptrdiff_t>(axis));
          const auto y = static_cast<std::int64_t>(target.at(at));
          const double g = 0.5 / (r == LossReduction::Mean ? total_weight : 1);
          for (std::int64_t i = 0; i < classes; ++i) {
            double d = 0;
            if (y != p.ignore_index)
              d = (1 - c.smoothing) * weight.at({y}) * (q[static_cast<std::size_t>(i)] - (i == y)) +
                  c.smoothing / static_cast<double>(classes) *
                      (weight_sum * q[static_cast<std::size_t>(i)] - weight.at({i}));
            expect_near(dx.at(line[static_cast<std::size_t>(i)]), g * d, tolerance(t) * 4);
          }
        });
      }
}

TEST(CrossEntropy, RefusesTargetsOutOfRange) {
  StridedArray x(DType::Float, {2, 3}), target(DType::Long, {2}), loss(DType::Float, {}), lse(DType::Float, {2}),
      total(DType::Float, {});
  target.put({0}, 0);
  for (double bad : {3.0, -1.0}) {
    target.put({1}, bad);
    EXPECT_THROW(cross_entropy_kernel.get(DeviceType::CPU)(loss.view(), lse.view(), total.view(), x.view(),
                                                           target.view(), View{}, {}),
                 IndexError);
    EXPECT_THROW(nll_loss_kernel.get(DeviceType::CPU)(loss.view(), total.view(), x.view(), target.view(), View{}, {}),
                 IndexError);
  }
}

TEST(CrossEntropy, MeanOfNothingIsNaN) {
  StridedArray x(DType::Float, {2, 3}), target(DType::Long, {2}), loss(DType::Float, {}), lse(DType::Float, {2}),
      total(DType::Float, {});
  target.fill_with(-100);
  cross_entropy_kernel.get(DeviceType::CPU)(loss.view(), lse.view(), total.view(), x.view(), target.view(), View{}, {});
  EXPECT_TRUE(std::isnan(loss.at({})));
}

TEST(NllLoss, PicksTheTargetForwardAndBackward) {
  for (DType t : kFloating)
    for (LossReduction r : {LossReduction::None, LossReduction::Mean, LossReduction::Sum}) {
      const Shape loss_shape = r == LossReduction::None ? Shape{5, 4} : Shape{};
      StridedArray lp(t, {5, 3, 4}, {0, 2, 1}), d(t, {5, 3, 4}, {2, 0, 1}), target(DType::Long, {5, 4}),
          loss(t, loss_shape), grad(t, loss_shape), total(t == DType::Double ? t : DType::Float, {}), weight(t, {3});
      lp.fill(2);
      grad.fill_with(2);
      d.fill(9);
      for (int i = 0; i < 3; ++i) weight.put({i}, 1 + 0.5 * i);
      target.each_index([&](const Shape& i) { target.put(i, (i[0] + i[1]) % 3); });
      const ClassLossParams p{r, 1, 0};
      nll_loss_kernel.get(DeviceType::CPU)(loss.view(), total.view(), lp.view(), target.view(), weight.view(), p);
      nll_loss_backward_kernel.get(DeviceType::CPU)(d.view(), grad.view(), total.view(), target.view(), weight.view(),
                                                    p);
      double sum = 0, w = 0;
      target.each_index([&](const Shape& i) {
        const auto y = static_cast<std::int64_t>(target.at(i));
        const double wt = y == 1 ? 0 : weight.at({y}), one = -wt * lp.at({i[0], y, i[1]});
        sum += one;
        w += wt;
        if (r == LossReduction::None) expect_near(loss.at(i), one, tolerance(t));
      });
      if (r != LossReduction::None) expect_near(loss.at({}), r == LossReduction::Mean ? sum / w : sum, tolerance(t));
      d.each_index([&](const Shape& i) {
        const auto y = static_cast<std::int64_t>(target.at({i[0], i[2]}));
        const double g = y == 1 || y != i[1] ? 0 : -2 * weight.at({y}) / (r == LossReduction::Mean ? w : 1);
        expect_near(d.at(i), g, tolerance(t));
      });
    }
}

}  // namespace
}  // namespace athanor::softmax_test
