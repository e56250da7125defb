#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "athanor/ops/factory.h"
#include "athanor/optim/adaptive.h"
#include "athanor/optim/algorithms.h"
#include "athanor/optim/scheduler.h"

namespace athanor::optim::optim_test {
namespace {

/// Five steps on a small problem; the expected values are PyTorch's.
template <class Make>
std::vector<double> trajectory(Make make, DType dtype = kDouble) {
  Tensor p = tensor({1.0, -2.0, 0.5}, TensorOptions(dtype)).requires_grad_();
  const Tensor target = tensor({0.3, 0.7, -1.1}, TensorOptions(dtype));
  const Tensor weight = tensor({1.0, 2.0, 0.5}, TensorOptions(dtype));
  auto optimizer = make(std::vector<Tensor>{p});
  for (int i = 0; i < 5; ++i) {
    optimizer->zero_grad();
    const Tensor d = p - target;
    ((d * d * weight).sum() + p.sin().sum()).backward();
    optimizer->step();
  }
  std::vector<double> out;
  for (int i = 0; i < 3; ++i) out.push_back(p.select(0, i).item<double>());
  return out;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
}

template <class Algorithm, class Options>
auto with(Options o) {
  return [o](std::vector<Tensor> p) { return std::make_unique<Algorithm>(std::move(p), o); };
}

}  // namespace

TEST(Sgd, FollowsPyTorch) {
  expect_near(trajectory(with<SGD>(SGDOptions(0.1))), {0.25610797135056756, 0.2889747030927275, -0.5455569274570445});
  expect_near(trajectory(with<SGD>(SGDOptions(0.05).momentum(0.9))),
              {-0.08606510452860233, 2.1163194267340852, -0.9744402848141056});
  expect_near(trajectory(with<SGD>(SGDOptions(0.05).momentum(0.9).dampening(0.3).weight_decay(0.1))),
              {0.06481823324787513, 1.7639382696620334, -0.7166082985137667});
  expect_near(trajectory(with<SGD>(SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(0.01))),
              {-0.2213059265476299, 1.6353464313572377, -1.2101916877747094});
  expect_near(trajectory(with<SGD>(SGDOptions(0.01).momentum(0.5).maximize(true))),
              {1.1606201869461374, -3.009156192252212, 0.7019785705892512});
}

TEST(Adam, FollowsPyTorch) {
  expect_near(trajectory(with<Adam>(AdamOptions(0.1))),
              {0.504197937053875, -1.5025232781509517, 0.0013884314637627043});
  expect_near(trajectory(with<Adam>(AdamOptions(0.1).betas({0.8, 0.95}).eps(1e-6).weight_decay(0.1).amsgrad(true))),
              {0.5063745373855761, -1.5038144445997403, 0.002469205986360176});
  expect_near(trajectory(with<AdamW>(AdamWOptions(0.1))),
              {0.5002605424282943, -1.4936015225523847, -0.00010089359692223854});
}

TEST(Adadelta, FollowsPyTorch) {
  expect_near(trajectory(with<Adadelta>(AdadeltaOptions(1.0))),
              {0.9836054971539562, -1.9835951479553282, 0.48358066409096867});
  expect_near(trajectory(with<Adadelta>(AdadeltaOptions(0.5).rho(0.8).eps(1e-4).weight_decay(0.1))),
              {0.9399317207183976, -1.9397785309037845, 0.4396287686542661});
}

TEST(Optimizers, Float32AndHalfStayCloseToFloat64) {
  const auto exact = trajectory(with<Adam>(AdamOptions(0.1)));
  expect_near(trajectory(with<Adam>(AdamOptions(0.1)), kFloat), exact, 1e-5);
  expect_near(trajectory(with<SGD>(SGDOptions(0.1)), kBFloat16), trajectory(with<SGD>(SGDOptions(0.1))), 0.05);
}

namespace {

/// What is kept of a parameter by these names after one step with a gradient and 2000 without.
template <class Make>
std::vector<Tensor> averages_of_an_idle_weight(Make make, const std::vector<std::string>& names) {
  Tensor p = tensor({1.0, -2.0, 0.5}, TensorOptions(kFloat)).requires_grad_();
  auto optimizer = make(std::vector<Tensor>{p});
  p.mutable_grad() = tensor({1e-3, -2.0, std::numeric_limits<double>::quiet_NaN()}, TensorOptions(kFloat));
  optimizer->step();
  p.mutable_grad() = zeros({3}, kFloat);
  for (int i = 0; i < 2000; ++i) optimizer->step();
  std::vector<Tensor> out;
  for (const auto& name : names) out.push_back(optimizer->state().at(p.unsafeGetTensorImpl())->tensors.at(name));
  return out;
}

}  // namespace

// Numbers of fewer digits than others slow every further step down, and rounding keeps them from reaching 0.
TEST(Optimizers, AveragesOfWeightsWithoutGradientEndAtZeroAndKeepNan) {
  const auto check = [](const char* what, const std::vector<Tensor>& averages) {
    for (const Tensor& t : averages) {
      for (int i = 0; i < 2; ++i) EXPECT_EQ(t.select(0, i).item<float>(), 0.0F) << what << " " << i;
      EXPECT_TRUE(std::isnan(t.select(0, 2).item<float>())) << what;
    }
  };
  check("SGD", averages_of_an_idle_weight(with<SGD>(SGDOptions(0.1).momentum(0.9)), {"momentum_buffer"}));
  check("Adam", averages_of_an_idle_weight(with<Adam>(AdamOptions(0.1).betas({0.9, 0.9})), {"exp_avg", "exp_avg_sq"}));
  check("Adadelta", averages_of_an_idle_weight(with<Adadelta>(AdadeltaOptions(1.0)), {"square_avg", "acc_delta"}));
  check("RMSprop", averages_of_an_idle_weight(with<RMSprop>(RMSpropOptions(0.1).alpha(0.9).momentum(0.9)),
                                              {"square_avg", "momentum_buffer"}));
  check("RMSprop, centered", averages_of_an_idle_weight(with<RMSprop>(RMSpropOptions(0.1).alpha(0.9).centered(true)),
                                                        {"square_avg", "grad_avg"}));
  check("NAdam",
        averages_of_an_idle_weight(with<NAdam>(NAdamOptions(0.1).betas({0.9, 0.9})), {"exp_avg", "exp_avg_sq"}));
  check("Adamax", averages_of_an_idle_weight(with<Adamax>(AdamaxOptions(0.1)), {"exp_avg"}));
}

TEST(Optimizers, TinySquaresCountWhereEpsDoesNotHideThem) {
  // The square of the gradient is below the least normal float32; with eps 0 the step is lr all the same.
  Tensor p = ones({4}).requires_grad_();
  p.mutable_grad() = full({4}, 1e-20);
  Adam adam({p}, AdamOptions(0.125).betas({0.5, 0.5}).eps(0));
  adam.step();
  const NoGradGuard off;
  EXPECT_NEAR(p.select(0, 0).item<float>(), 0.875, 1e-3);
  RMSprop rmsprop({p}, RMSpropOptions(0.125).alpha(0.75).eps(0));
  rmsprop.step();
  EXPECT_NEAR(p.select(0, 0).item<float>(), 0.875 - 0.25, 1e-2);
}

TEST(Optimizers, ParameterOfAnyLayoutIsUpdatedInPlace) {
  Tensor base = ones({4, 6});
  Tensor p = base.slice(1, 0, 6, 2);  // strided, not dense
  p.requires_grad_();
  p.mutable_grad() = full({4, 3}, 2.0);
  SGD sgd({p}, SGDOptions(0.5).momentum(0.9));
  sgd.step();
  const NoGradGuard off;
  EXPECT_EQ(base.select(0, 0).select(0, 0).item<float>(), 0.0F);
  EXPECT_EQ(base.select(0, 0).select(0, 1).item<float>(), 1.0F);
}

TEST(Optimizers, StateDictContinuesExactly) {
  auto run = [](bool interrupt) {
    Tensor p = tensor({1.0, 2.0}).requires_grad_();
    auto adam = std::make_unique<Adam>(std::vector<Tensor>{p}, AdamOptions(0.1));
    for (int i = 0; i < 6; ++i) {
      if (interrupt && i == 3) {
        const auto dict = adam->state_dict();
        adam = std::make_unique<Adam>(std::vector<Tensor>{p}, AdamOptions(0.7));
        adam->load_state_dict(dict);
      }
      adam->zero_grad();
      (p * p).sum().backward();
      adam->step();
    }
    return std::pair(p.select(0, 0).item<float>(), p.select(0, 1).item<float>());
  };
  EXPECT_EQ(run(false), run(true));
}

TEST(Optimizers, GroupsHaveTheirOwnOptions) {
  Tensor a = ones({1}).requires_grad_(), b = ones({1}).requires_grad_();
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<Tensor>{a});
  groups.emplace_back(std::vector<Tensor>{b}, std::make_unique<SGDOptions>(0.5));
  SGD sgd(std::move(groups), SGDOptions(0.1));
  (a + b).sum().backward();
  sgd.step();
  EXPECT_FLOAT_EQ(a.item<float>(), 0.9F);
  EXPECT_FLOAT_EQ(b.item<float>(), 0.5F);
}

TEST(Optimizers, GroupsTakePairsOfOptionsWhole) {
  const auto made = [](auto defaults, auto own) {
    using Options = decltype(own);
    return std::pair(std::make_unique<Options>(defaults), std::make_unique<Options>(own));
  };
  const auto values = [&](auto defaults, auto own, auto make) {
    auto [given, options] = made(defaults, own);
    std::vector<OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<Tensor>{ones({1}).requires_grad_()}, std::move(options));
    return make(std::move(groups), *given)->param_groups()[0].options().values();
  };
#define VALUES(Name, defaults, own) \
  values(defaults, own,             \
         [](std::vector<OptimizerParamGroup> g, Name##Options o) { return std::make_unique<Name>(std::move(g), o); })
#define EXPECT_BETAS(Name)                                                                                     \
  {                                                                                                            \
    const auto v = VALUES(Name, Name##Options(0.5).betas({0.8, 0.95}), Name##Options().betas({0.9, 0.99}));    \
    EXPECT_EQ(v.at("beta1"), 0.9) << #Name;                                                                    \
    EXPECT_EQ(v.at("beta2"), 0.99) << #Name;                                                                   \
    EXPECT_EQ(v.at("lr"), 0.5) << #Name;                                                                       \
    EXPECT_EQ(VALUES(Name, Name##Options().betas({0.8, 0.95}), Name##Options(0.5)).at("beta1"), 0.8) << #Name; \
  }
  EXPECT_BETAS(Adam);
  EXPECT_BETAS(AdamW);
  EXPECT_BETAS(Adamax);
  EXPECT_BETAS(NAdam);
  EXPECT_BETAS(RAdam);
#undef EXPECT_BETAS
  const auto v = VALUES(Rprop, RpropOptions().etas({0.3, 1.5}).step_sizes({1e-5, 10}),
                        RpropOptions().etas({0.5, 1.4}).step_sizes({1e-6, 20}));
  EXPECT_EQ(v.at("eta_minus"), 0.5);
  EXPECT_EQ(v.at("eta_plus"), 1.4);
  EXPECT_EQ(v.at("step_size_min"), 1e-6);
  EXPECT_EQ(v.at("step_size_max"), 20);
#undef VALUES
}

TEST(Optimizers, OptionsOfTwoAlgorithmsAreNotEqual) {
  const AdamOptions adam;
  const AdamWOptions decoupled = AdamWOptions().weight_decay(0);
  EXPECT_FALSE(static_cast<const OptimizerOptions&>(adam) == decoupled);
  EXPECT_TRUE(static_cast<const OptimizerOptions&>(adam) == AdamOptions());
  EXPECT_FALSE(static_cast<const OptimizerOptions&>(adam) == AdamOptions(0.5));
}

TEST(Optimizers, ClosureIsCalledWithGradModeOn) {
  Tensor p = ones({1}).requires_grad_();
  SGD sgd({p}, SGDOptions(0.1));
  const NoGradGuard off;
  const Tensor loss = sgd.step([&] {
    Tensor l = (p * p).sum();
    l.backward();
    return l;
  });
  EXPECT_EQ(loss.item<float>(), 1.0F);
  EXPECT_FLOAT_EQ(p.item<float>(), 0.8F);
}

TEST(Optimizers, BadInputIsRefused) {
  Tensor p = ones({2}).requires_grad_();
  EXPECT_THROW(SGD(std::vector<Tensor>{}), ValueError);
  EXPECT_THROW(SGD({p}, SGDOptions(-1)), ValueError);
  EXPECT_THROW(SGD({p}, SGDOptions(0.1).nesterov(true)), ValueError);
  EXPECT_THROW(Adam({p}, AdamOptions(0.1).betas({1.0, 0.9})), ValueError);
  EXPECT_THROW(SGD({p * 2}), ValueError);
  SGD sgd({p});
  EXPECT_THROW(sgd.add_param_group(OptimizerParamGroup({p})), ValueError);
  EXPECT_THROW(sgd.load_state_dict({}), ValueError);
}

}  // namespace athanor::optim::optim_test
