#include "helpers.h"

namespace athanor::nn {
namespace {

using test::error_of;
using test::expect_near;
using test::list;
using test::ramp;

double spread(const Tensor& t) {
  const auto v = list(t);
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum / static_cast<double>(v.size()));
}
double largest(const Tensor& t) { return t.abs().max().item<double>(); }

TEST(Init, GainsAndFans) {
  EXPECT_EQ(init::calculate_gain(kLinear), 1);
  EXPECT_EQ(init::calculate_gain(kSigmoid), 1);
  EXPECT_NEAR(init::calculate_gain(kTanh), 5.0 / 3, 1e-12);
  EXPECT_NEAR(init::calculate_gain(kReLU), std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(init::calculate_gain(kLeakyReLU, 2), std::sqrt(2.0 / 5), 1e-12);
  EXPECT_EQ(init::_calculate_fan_in_and_fan_out(empty({6, 4, 3, 2})), std::make_tuple(24, 36));
  EXPECT_NE(error_of([] { init::kaiming_uniform_(ones({3})); }).find("fewer than 2 dimensions"), std::string::npos);
}

TEST(Init, DistributionsHaveTheirSpread) {
  manual_seed(5);
  Tensor t = empty({200, 300});
  EXPECT_NEAR(spread(init::xavier_normal_(t, 2)), 2 * std::sqrt(2.0 / 500), 0.003);
  EXPECT_NEAR(largest(init::xavier_uniform_(t)), std::sqrt(6.0 / 500), 1e-3);
  EXPECT_NEAR(spread(init::kaiming_normal_(t, 0, kFanOut, kReLU)), std::sqrt(2.0 / 200), 0.003);
  EXPECT_NEAR(largest(init::kaiming_uniform_(t, std::sqrt(5.0))), std::sqrt(1.0 / 300), 1e-3);
  EXPECT_NEAR(spread(init::normal_(t, 0, 3)), 3, 0.05);
  EXPECT_LE(largest(init::uniform_(t, -2, 2)), 2);
  init::trunc_normal_(t, 0, 1, -1, 0.5);
  EXPECT_GE(t.min().item<double>(), -1);
  EXPECT_LE(t.max().item<double>(), 0.5);
  EXPECT_NEAR(t.mean().item<double>(), -0.2070, 0.01);  // of the truncated distribution
}

TEST(Init, WorksOnParametersWithoutRecording) {
  Tensor p = empty({3, 3}).requires_grad_();
  init::normal_(p);
  init::constant_(p, 2);
  EXPECT_TRUE(p.is_leaf());
  EXPECT_EQ(list(p), std::vector<double>(9, 2));
}

TEST(Init, IdentityForms) {
  EXPECT_EQ(list(init::eye_(empty({2, 3}))), (std::vector<double>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(list(init::eye_(ones({3, 2}).t())), (std::vector<double>{1, 0, 0, 0, 1, 0}));
  Conv1d conv(Conv1dOptions(4, 4, 3).padding(1).groups(2).bias(false));
  init::dirac_(conv->weight, 2);
  const Tensor x = ramp({1, 4, 5});
  EXPECT_EQ(list(conv(x)), list(x));
  EXPECT_THROW(init::dirac_(ones({2, 2})), Error);
  EXPECT_THROW(init::eye_(ones({2})), Error);
}

TEST(Init, OrthogonalRowsOrColumns) {
  manual_seed(1);
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{5, 3}, {3, 5}, {4, 4}}) {
    Tensor t = empty({rows, cols});
    init::orthogonal_(t, 2);
    const Tensor product = rows < cols ? t.mm(t.t()) : t.t().mm(t);
    Tensor expected = empty({std::min(rows, cols), std::min(rows, cols)});
    expect_near(product, list(init::eye_(expected) * 4), 1e-5);
  }
  const Tensor conv = empty({4, 3, 2, 2});
  init::orthogonal_(conv);
  expect_near(conv.view({4, 12}).mm(conv.view({4, 12}).t()), list(init::eye_(empty({4, 4}))), 1e-5);
  EXPECT_EQ(init::orthogonal_(empty({0, 3})).numel(), 0);
}

TEST(Init, SparseColumnsHaveTheirZeros) {
  manual_seed(2);
  const Tensor t = empty({10, 6});
  init::sparse_(t, 0.35, 1);
  const auto v = list(t);
  for (std::size_t j = 0; j < 6; ++j) {
    int zeros = 0;
    for (std::size_t i = 0; i < 10; ++i) zeros += v[i * 6 + j] == 0;
    EXPECT_EQ(zeros, 4);
  }
  EXPECT_THROW(init::sparse_(empty({2}), 0.5), Error);
  EXPECT_THROW(init::sparse_(empty({2, 2}), 1.5), ValueError);
}

TEST(Init, EmptyTensorsAreFine) {
  EXPECT_NO_THROW(init::kaiming_uniform_(empty({0, 3})));
  EXPECT_NO_THROW(init::kaiming_uniform_(empty({3, 0})));
  EXPECT_NO_THROW(init::xavier_normal_(empty({0, 0})));
}

Tensor with_grad(const std::vector<float>& g) {
  Tensor t = zeros({static_cast<std::int64_t>(g.size())}).requires_grad_();
  t.mutable_grad() = tensor(g);
  return t;
}

TEST(Clip, NormIsTakenOverAllGradients) {
  std::vector<Tensor> p = {with_grad({3, 4}), zeros({2}).requires_grad_(), with_grad({12})};
  EXPECT_NEAR(utils::clip_grad_norm_(p, 1.0), 13, 1e-5);
  expect_near(p[0].grad(), {0.2307692, 0.3076923});
  expect_near(p[2].grad(), {0.9230769});
  EXPECT_FALSE(p[1].grad().defined());
  p = {with_grad({3, 4}), with_grad({12})};
  EXPECT_NEAR(utils::clip_grad_norm_(p, 1.0, 1), 19, 1e-5);
  p = {with_grad({3, 4}), with_grad({12})};
  EXPECT_NEAR(utils::clip_grad_norm_(p, 5.0, INFINITY), 12, 1e-5);
  expect_near(p[0].grad(), {1.25, 1.666667});
}

TEST(Clip, SmallGradientsStayAsTheyAre) {
  const Tensor p = with_grad({0.3F, 0.4F});
  EXPECT_NEAR(utils::clip_grad_norm_(p, 1.0), 0.5, 1e-6);
  EXPECT_EQ(list(p.grad()), list(tensor({0.3F, 0.4F})));
  EXPECT_EQ(utils::clip_grad_norm_(std::vector<Tensor>{}, 1.0), 0);
  EXPECT_EQ(utils::clip_grad_norm_(zeros({2}).requires_grad_(), 1.0), 0);
}

TEST(Clip, NonFiniteNormIsAnErrorIfAsked) {
  const Tensor p = with_grad({NAN, 1});
  EXPECT_NE(error_of([&] { utils::clip_grad_norm_(p, 1.0, 2, true); }).find("is non-finite, so it cannot be clipped"),
            std::string::npos);
  EXPECT_TRUE(std::isnan(utils::clip_grad_norm_(p, 1.0)));
}

TEST(Clip, ValueLimitsEveryElement) {
  const Tensor p = with_grad({-5, 0.5F, 7});
  utils::clip_grad_value_(p, 2);
  EXPECT_EQ(list(p.grad()), (std::vector<double>{-2, 0.5, 2}));
}

TEST(ParameterVectors, GoThereAndBack) {
  Linear a(2, 3), b(2, 3);
  const Tensor vec = utils::parameters_to_vector(a->parameters());
  EXPECT_EQ(vec.numel(), 9);
  utils::vector_to_parameters(vec.detach(), b->parameters());
  EXPECT_EQ(list(a->weight), list(b->weight));
  EXPECT_EQ(list(a->bias), list(b->bias));
  EXPECT_TRUE(b->weight.requires_grad());
  EXPECT_EQ(b->weight.sizes().vec(), (std::vector<std::int64_t>{3, 2}));
  EXPECT_THROW(utils::vector_to_parameters(ones({4}), b->parameters()), ValueError);
}

}  // namespace
}  // namespace athanor::nn
