// Expected values were computed with PyTorch in float64.
#include <cmath>
#include <limits>

#include "numeric.h"

namespace athanor {
namespace {

using test::error_of;
using test::expect_close;
using test::gradcheck;
using test::gradgradcheck;
using test::list;
using test::values;

Tensor logits() { return tensor({{0.5, -1.0, 2.0}, {1.5, 0.25, -0.75}}, kDouble); }
Tensor class_weights() { return tensor({0.2, 0.3, 0.5}, kDouble); }
Tensor classes(std::vector<std::int64_t> v) { return tensor(v, kLong); }

void expect_values(const Tensor& actual, const std::vector<double>& expected) {
  expect_close(actual.flatten(), tensor(expected, kDouble), 1e-8, 1e-9);
}

}  // namespace

TEST(CrossEntropy, AgreesWithPyTorchForEveryReduction) {
  const std::vector<double> plain[] = {{0.2413112967, 0.3306726094}, {0.285991953}, {0.5719839061}};
  const std::vector<double> weighted[] = {{0.1206556483, 0.06613452188}, {0.2668431003}, {0.1867901702}};
  const std::vector<double> smooth[] = {{0.1566337934, 0.12054349}, {0.3959675477}, {0.2771772834}};
  const std::vector<double> ignoring[] = {{0.1566337934, 0.0}, {0.3132675868}, {0.1566337934}};
  const std::vector<double> soft[] = {{0.4275721733, 0.5245300783}, {0.4760511258}, {0.9521022517}};
  const Tensor x = logits(), w = class_weights(), t = classes({2, 0});
  const Tensor p = tensor({{0.2, 0.3, 0.5}, {0.1, 0.8, 0.1}}, kDouble);
  for (int r = 0; r < 3; ++r) {
    expect_values(cross_entropy_loss(x, t, {}, r), plain[r]);
    expect_values(cross_entropy_loss(x, t, w, r), weighted[r]);
    expect_values(cross_entropy_loss(x, t, w, r, -100, 0.1), smooth[r]);
    expect_values(cross_entropy_loss(x, classes({2, -100}), w, r, -100, 0.1), ignoring[r]);
    expect_values(cross_entropy_loss(x, p, w, r, -100, 0.1), soft[r]);
  }
}

TEST(CrossEntropy, FusedFormEqualsItsParts) {
  const Tensor x = values({4, 5, 3}, kDouble, 1), t = classes({0, 4, 2, 1, 3, 3, 0, 0, 1, 2, 4, 4}).reshape({4, 3});
  const Tensor w = values({5}, kDouble, 2).abs();
  for (const int r : {0, 1, 2})
    expect_close(cross_entropy_loss(x, t, w, r, 3), nll_loss(log_softmax(x, 1), t, w, r, 3), 1e-10, 1e-12);
}

TEST(CrossEntropy, GradientsToSecondOrder) {
  Tensor x = values({3, 4, 2}, kDouble, 1).requires_grad_();
  const Tensor t = classes({0, 3, 2, -100, 1, 1}).reshape({3, 2}), w = values({4}, kDouble, 2).abs();
  for (const int r : {0, 1, 2})
    for (const double smoothing : {0.0, 0.2}) {
      const auto f = [&](const std::vector<Tensor>& in) { return cross_entropy_loss(in[0], t, w, r, -100, smoothing); };
      gradcheck(f, {x});
      gradgradcheck(f, {x});
    }
  Tensor soft = values({3, 4, 2}, kDouble, 3).abs().detach().requires_grad_();
  gradgradcheck([&](const std::vector<Tensor>& in) { return cross_entropy_loss(in[0], in[1], w); }, {x, soft});
  Tensor one = values({4}, kDouble, 1).requires_grad_();
  gradgradcheck([&](const std::vector<Tensor>& in) { return cross_entropy_loss(in[0], classes({2}).squeeze(0)); },
                {one});
}

TEST(CrossEntropy, GradientsOfFloat32LogitsUpTo1e8AreExact) {
  for (const float large : {100.F, 1e5F, 1e8F}) {
    const Tensor x = full({2, 3}, large).requires_grad_(true);
    cross_entropy_loss(x, zeros({2}, kLong), {}, 2).backward();
    EXPECT_TRUE(allclose(x.grad(), tensor({-2. / 3, 1. / 3, 1. / 3}).to(kFloat).expand({2, 3}), 1e-6, 0)) << large;
  }
}

TEST(CrossEntropy, MeanOfNothingIsNaN) {
  EXPECT_TRUE(std::isnan(cross_entropy_loss(logits(), classes({-100, -100})).item<double>()));
}

TEST(CrossEntropy, BadInputNamesShapes) {
  const Tensor x = logits();
  EXPECT_NE(error_of([&] {
              cross_entropy_loss(x, classes({1, 2, 0}));
            }).find("Expected target size [2]"),
            std::string::npos);
  EXPECT_NE(error_of([&] { cross_entropy_loss(x, tensor({1, 2}, kInt)); }).find("int64"), std::string::npos);
  EXPECT_NE(error_of([&] {
              cross_entropy_loss(x, classes({1, 2}), ones({2}, kDouble));
            }).find("either for all 3 classes or no classes"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              cross_entropy_loss(x, classes({1, 2}), {}, 1, -100, 1.5);
            }).find("label_smoothing"),
            std::string::npos);
  EXPECT_THROW(cross_entropy_loss(x, classes({1, 3})), IndexError);
  EXPECT_THROW(cross_entropy_loss(x, classes({1, 2}), {}, 7), ValueError);
}

TEST(NllLoss, GradientsToSecondOrder) {
  Tensor x = values({3, 4}, kDouble, 1).requires_grad_();
  const Tensor w = values({4}, kDouble, 2).abs();
  for (const int r : {0, 1, 2}) {
    const auto f = [&](const std::vector<Tensor>& in) { return nll_loss(in[0].sin(), classes({0, 3, -1}), w, r, -1); };
    gradcheck(f, {x});
    gradgradcheck(f, {x});
  }
}

TEST(ElementwiseLosses, AgreeWithPyTorch) {
  const Tensor a = tensor({0.5, -2.0, 3.0}, kDouble), b = tensor({1.0, 1.0, 0.0}, kDouble);
  const Tensor w = tensor({2.0, 1.0, 0.5}, kDouble), sign = tensor({1.0, -1.0, -1.0}, kDouble);
  expect_values(mse_loss(a, b), {6.083333333333333});
  expect_values(l1_loss(a, b), {2.1666666666666665});
  expect_values(smooth_l1_loss(a, b), {1.7083333333333333});
  expect_values(smooth_l1_loss(a, b, 1, 4.0), {0.7604166666666666});
  expect_values(smooth_l1_loss(a, b, 1, 0.0), {2.1666666666666665});
  expect_values(huber_loss(a, b, 1, 2.0), {2.7083333333333335});
  expect_values(binary_cross_entropy_with_logits(a, b), {1.883197449});
  expect_values(binary_cross_entropy_with_logits(a, b, w, w), {1.849176541});
  const Tensor p = tensor({0.3, 0.0, 1.0}, kDouble);
  expect_values(binary_cross_entropy(p, b), {67.06799093});
  expect_values(binary_cross_entropy(p, b, w, 0), {2.407945609, 100.0, 50.0});
  expect_values(kl_div(a, tensor({0.2, 0.0, 0.8}, kDouble), 2), {-3.000402424});
  expect_values(poisson_nll_loss(a, tensor({2.0, 3.0, 1.0}, kDouble), true, true, 1e-8, 1), {8.761827168});
  expect_values(hinge_embedding_loss(a, sign), {1.1666666666666667});
  expect_values(margin_ranking_loss(a, b, tensor({1.0, -1.0, 1.0}, kDouble), 0.5), {0.3333333333333333});
  expect_values(soft_margin_loss(a, sign), {1.216530782});
}

TEST(ElementwiseLosses, KneesHoldForExtremeNumbersBroadcastsAndMixedDtypes) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  Tensor x = tensor({inf, nan, -2.0, 0.0, 1.0}, kFloat).requires_grad_();
  const Tensor zero = zeros({1}, kFloat);
  const Tensor smooth = smooth_l1_loss(x, zero, 0, 0.5), huber = huber_loss(x, zero, 0, 0.5);
  EXPECT_EQ(list(smooth)[0], inf);
  EXPECT_EQ(list(huber)[0], inf);
  EXPECT_TRUE(std::isnan(list(smooth)[1]) && std::isnan(list(huber)[1]));
  smooth.sum().backward();
  const std::vector<double> slope = list(x.grad());
  EXPECT_EQ(slope[0], 1);
  EXPECT_TRUE(std::isnan(slope[1]));
  EXPECT_EQ((std::vector<double>{slope[2], slope[3], slope[4]}), (std::vector<double>{-1, 0, 1}));
  // A knee too narrow for the dtype leaves the straight line.
  const Tensor half = tensor({-2.0, 0.0, 1.0}, kHalf);
  EXPECT_EQ(list(smooth_l1_loss(half, zero.to(kHalf), 0, 1e-6)), (std::vector<double>{2, 0, 1}));
  EXPECT_EQ(list(smooth_l1_loss(half.to(kFloat), zero, 0, 1e-42)), (std::vector<double>{2, 0, 1}));
  for (const DType dtype : {kHalf, kBFloat16, kFloat}) {
    Tensor ends = tensor({inf, -inf, -2.0, 0.0, 1.0}, dtype).requires_grad_();
    smooth_l1_loss(ends, zero.to(dtype), 2, dtype == kFloat ? 1e-42 : 1e-8).backward();
    EXPECT_EQ(list(ends.grad()), (std::vector<double>{1, -1, -1, 0, 1})) << dtype_name(dtype);
    EXPECT_EQ(huber_loss(ends, zero.to(dtype), 0, 1e-42).dtype(), dtype);
  }
  // Rows against a column of another dtype, and no elements.
  Tensor rows = values({2, 3}, kDouble, 1).requires_grad_(), column = values({2, 1}, kDouble, 2).requires_grad_();
  gradcheck([](const std::vector<Tensor>& in) { return smooth_l1_loss(in[0], in[1], 1, 0.3); }, {rows, column});
  EXPECT_EQ(huber_loss(rows, zero, 0).dtype(), kDouble);
  EXPECT_EQ(smooth_l1_loss(zeros({0, 2}), zeros({0, 2}), 0).numel(), 0);
  expect_close(smooth_l1_loss(rows.t(), column.t().t().expand({2, 3}).t(), 0), smooth_l1_loss(rows, column, 0).t());
}

TEST(ElementwiseLosses, SquaredErrorsHoldForExtremeNumbersBroadcastsAndMixedDtypes) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {kHalf, kBFloat16, kFloat, kDouble}) {
    Tensor x = tensor({inf, nan, -2.0, 0.0, 1.5}, dtype).requires_grad_();
    Tensor target = ones({1}, dtype).requires_grad_();
    const Tensor loss = mse_loss(x, target, 0);
    EXPECT_EQ(loss.dtype(), dtype);
    EXPECT_EQ(list(loss)[0], inf);
    EXPECT_TRUE(std::isnan(list(loss)[1]));
    EXPECT_EQ(list(loss.slice(0, 2)), (std::vector<double>{9, 1, 0.25}));
    loss.slice(0, 2).sum().backward();
    EXPECT_EQ(list(x.grad().slice(0, 2)), (std::vector<double>{-6, -2, 1}));
    EXPECT_TRUE(std::isnan(list(x.grad())[0]) && std::isnan(list(x.grad())[1])) << "0 times an infinite slope";
  }
  Tensor rows = values({2, 3}, kDouble, 1).requires_grad_(), column = values({2, 1}, kFloat, 2).requires_grad_();
  EXPECT_EQ(mse_loss(rows, column, 0).dtype(), kDouble);
  mse_loss(rows, column).backward();
  EXPECT_EQ(column.grad().dtype(), kFloat);
  expect_close(column.grad(), (-(rows - column) / 3).sum(1, true).to(kFloat));
  Tensor wide = values({2, 1}, kDouble, 2).requires_grad_();
  const auto f = [](const std::vector<Tensor>& in) { return mse_loss(in[0].t(), in[1].t(), 0); };
  gradcheck(f, {rows, wide});
  gradgradcheck(f, {rows, wide});
  EXPECT_EQ(mse_loss(zeros({0, 2}), zeros({0, 2}), 0).numel(), 0);
  EXPECT_EQ(list(mse_loss(tensor({1, 4}), tensor({3, 1}), 2)), (std::vector<double>{13}));
}

TEST(ElementwiseLosses, GradientsToSecondOrder) {
  Tensor x = values({3, 4}, kDouble, 1).requires_grad_(), y = values({3, 4}, kDouble, 2).requires_grad_();
  using Loss = std::function<Tensor(const Tensor&, const Tensor&)>;
  const Loss losses[] = {
      [](const Tensor& a, const Tensor& b) { return mse_loss(a, b); },
      [](const Tensor& a, const Tensor& b) { return l1_loss(a, b, 2); },
      [](const Tensor& a, const Tensor& b) { return smooth_l1_loss(a, b, 0, 0.7); },
      [](const Tensor& a, const Tensor& b) { return huber_loss(a, b, 1, 0.5); },
      [](const Tensor& a, const Tensor& b) { return binary_cross_entropy(a.sigmoid(), b.sigmoid()); },
      [](const Tensor& a, const Tensor& b) {
        return binary_cross_entropy_with_logits(a, b.sigmoid(), b.abs(), b.abs());
      },
      [](const Tensor& a, const Tensor& b) { return kl_div(a, b.abs(), 1); },
      [](const Tensor& a, const Tensor& b) { return kl_div(a, b, 2, true); },
      [](const Tensor& a, const Tensor& b) { return soft_margin_loss(a, b); },
  };
  for (const Loss& loss : losses) {
    const auto f = [&](const std::vector<Tensor>& in) { return loss(in[0], in[1]); };
    gradcheck(f, {x, y});
    gradgradcheck(f, {x, y});
  }
}

TEST(ElementwiseLosses, ProbabilitiesAtTheEdgeHaveFiniteGradients) {
  Tensor p = tensor({0.0, 1.0}, kDouble).requires_grad_();
  binary_cross_entropy(p, tensor({1.0, 1.0}, kDouble)).backward();
  for (const double g : list(p.grad())) EXPECT_TRUE(std::isfinite(g)) << g;
}

}  // namespace athanor
