// What libtorch keeps of parameters in its optimizers, by its names, and optimizers of one's own that keep such states.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <sstream>
#include <tuple>
#include <vector>

namespace optimizer_state_test {
namespace {

namespace optim = torch::optim;

/// A parameter of two elements after some steps on the gradient (1, -2).
template <class Optimizer, class Options>
struct Trained {
  explicit Trained(Options options, int steps = 2)
      : x(torch::ones({2}, torch::requires_grad())), optimizer(std::vector<torch::Tensor>{x}, options) {
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      (x * torch::tensor({1.0F, -2.0F})).sum().backward();
      optimizer.step([] { return torch::Tensor(); });
    }
  }
  template <class State>
  State& state() {
    return static_cast<State&>(*optimizer.state().at(x.unsafeGetTensorImpl()));
  }
  torch::Tensor x;
  Optimizer optimizer;
};

void expect_near(const torch::Tensor& t, double first, double second) {
  ASSERT_TRUE(t.defined());
  EXPECT_NEAR(t[0].item<double>(), first, 1e-6);
  EXPECT_NEAR(t[1].item<double>(), second, 1e-6);
}

TEST(OptimizerState, OfSgdIsTheMomentumBuffer) {
  Trained<optim::SGD, optim::SGDOptions> sgd(optim::SGDOptions(0.1).momentum(0.5));
  expect_near(sgd.state<optim::SGDParamState>().momentum_buffer(), 1.5, -3);
  sgd.state<optim::SGDParamState>().momentum_buffer(torch::zeros({2}));
  expect_near(sgd.state<optim::SGDParamState>().momentum_buffer(), 0, 0);
}

TEST(OptimizerState, OfAdamAndAdamWIsWhatTheyAverage) {
  const auto expect = [](auto& state, bool amsgrad) {
    EXPECT_EQ(state.step(), 2);
    expect_near(state.exp_avg(), 0.19, -0.38);
    expect_near(state.exp_avg_sq(), 0.001999, 0.007996);
    EXPECT_EQ(state.max_exp_avg_sq().defined(), amsgrad);
  };
  Trained<optim::Adam, optim::AdamOptions> adam(optim::AdamOptions(0.1));
  expect(adam.state<optim::AdamParamState>(), false);
  Trained<optim::AdamW, optim::AdamWOptions> adamw(optim::AdamWOptions(0.1).amsgrad(true));
  expect(adamw.state<optim::AdamWParamState>(), true);
  EXPECT_NE(dynamic_cast<optim::AdamWOptions*>(&adamw.optimizer.defaults()), nullptr);
  auto& state = adam.state<optim::AdamParamState>();
  state.step(state.step() + 1).exp_avg().zero_();
  EXPECT_EQ(adam.state<optim::AdamParamState>().step(), 3);
  expect_near(state.exp_avg(), 0, 0);
}

TEST(OptimizerState, OfAdagradAndRmspropIsTheirSums) {
  Trained<optim::Adagrad, optim::AdagradOptions> adagrad(optim::AdagradOptions(0.1));
  EXPECT_EQ(adagrad.state<optim::AdagradParamState>().step(), 2);
  expect_near(adagrad.state<optim::AdagradParamState>().sum(), 2, 8);
  Trained<optim::RMSprop, optim::RMSpropOptions> rmsprop(
      optim::RMSpropOptions(0.1).alpha(0.5).centered(true).momentum(0.5));
  auto& state = rmsprop.state<optim::RMSpropParamState>();
  expect_near(state.square_avg(), 0.75, 3);
  expect_near(state.grad_avg(), 0.75, -1.5);
  EXPECT_TRUE(state.momentum_buffer().defined());
}

TEST(OptimizerState, OfLbfgsHasItsCountsAndHistory) {
  torch::Tensor x = torch::tensor({3.0, -2.0}, torch::kFloat64).requires_grad_();
  optim::LBFGS lbfgs({x}, optim::LBFGSOptions(0.5).max_iter(4));
  lbfgs.step([&] {
    lbfgs.zero_grad();
    torch::Tensor loss = (x.pow(4) + x.pow(2)).sum();
    loss.backward();
    return loss;
  });
  const auto& state = static_cast<optim::LBFGSParamState&>(*lbfgs.state().at(x.unsafeGetTensorImpl()));
  EXPECT_EQ(state.n_iter(), 4);
  EXPECT_EQ(state.func_evals(), 4);
  EXPECT_GT(state.t(), 0);
  EXPECT_EQ(state.d().numel(), 2);
  EXPECT_EQ(state.prev_flat_grad().numel(), 2);
  EXPECT_EQ(state.old_dirs().size(), state.old_stps().size());
  EXPECT_EQ(state.old_dirs().size(), 3U);
  ASSERT_EQ(state.ro().size(), 3U);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(state.ro()[i].item<double>() * state.old_dirs()[i].dot(state.old_stps()[i]).item<double>(), 1, 1e-9);
  EXPECT_FALSE(state.al().has_value());
}

TEST(OptimizerState, OfLbfgsTakesAnotherHistory) {
  torch::Tensor x = torch::tensor({3.0, -2.0}, torch::kFloat64).requires_grad_();
  const auto closure = [&](torch::optim::LBFGS& lbfgs) {
    return [&] {
      lbfgs.zero_grad();
      torch::Tensor loss = (x.pow(4) + x.pow(2)).sum();
      loss.backward();
      return loss;
    };
  };
  optim::LBFGS lbfgs({x}, optim::LBFGSOptions(0.5).max_iter(4));
  lbfgs.step(closure(lbfgs));
  auto& state = static_cast<optim::LBFGSParamState&>(*lbfgs.state().at(x.unsafeGetTensorImpl()));
  state.old_dirs({state.old_dirs().back()}).old_stps({state.old_stps().back()}).ro({state.ro().back()});
  EXPECT_EQ(state.old_dirs().size(), 1U);
  EXPECT_EQ(state.ro().size(), 1U);
  state.al(std::vector<torch::Tensor>{torch::ones({})});
  EXPECT_EQ(state.al()->size(), 1U);
  state.al(std::nullopt);
  EXPECT_FALSE(state.al().has_value());
  lbfgs.step(closure(lbfgs));
  EXPECT_EQ(state.old_dirs().size(), state.ro().size());
  EXPECT_GT(state.ro().size(), 1U);
}

TEST(OptimizerState, IsClonedComparedSavedAndLoaded) {
  Trained<optim::Adam, optim::AdamOptions> adam(optim::AdamOptions(0.1)), other(optim::AdamOptions(0.5), 1);
  const std::unique_ptr<optim::OptimizerParamState> before = adam.state<optim::AdamParamState>().clone();
  EXPECT_NE(dynamic_cast<optim::AdamParamState*>(before.get()), nullptr);
  EXPECT_TRUE(*before == adam.state<optim::AdamParamState>());
  EXPECT_FALSE(*before == other.state<optim::AdamParamState>());
  std::stringstream file;
  torch::save(adam.optimizer, file);
  torch::load(other.optimizer, file);
  EXPECT_TRUE(*before == other.state<optim::AdamParamState>());
  EXPECT_NE(dynamic_cast<optim::AdamParamState*>(other.optimizer.state().begin()->second.get()), nullptr);
  adam.state<optim::AdamParamState>().max_exp_avg_sq();  // looking does not put an empty tensor into what is saved
  EXPECT_EQ(adam.optimizer.state_dict().state[0].tensors.size(), 2U);
}

TEST(OptimizerState, GoesAlongWhenAnOptimizerMoves) {
  Trained<optim::Adam, optim::AdamOptions> adam(optim::AdamOptions(0.1));
  optim::Adam moved = std::move(adam.optimizer);
  EXPECT_EQ(static_cast<optim::AdamParamState&>(*moved.state().at(adam.x.unsafeGetTensorImpl())).step(), 2);
  moved.step();
  EXPECT_EQ(static_cast<optim::AdamParamState&>(*moved.state().at(adam.x.unsafeGetTensorImpl())).step(), 3);
}

TEST(OptimizerGroups, TakeWhatWasNotSetFromTheDefaults) {
  const torch::Tensor a = torch::ones({1}, torch::requires_grad()), b = torch::ones({1}, torch::requires_grad());
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{a},
                      std::make_unique<optim::AdamOptions>(optim::AdamOptions().weight_decay(0.5)));
  groups.emplace_back(std::vector<torch::Tensor>{b}, std::make_unique<optim::AdamOptions>(optim::AdamOptions(0.25)));
  optim::Adam adam(groups, optim::AdamOptions(0.1).betas({0.8, 0.9}).weight_decay(0.125));
  const auto& first = static_cast<optim::AdamOptions&>(adam.param_groups()[0].options());
  EXPECT_EQ(first.lr(), 0.1);
  EXPECT_EQ(first.weight_decay(), 0.5);
  EXPECT_EQ(std::get<1>(first.betas()), 0.9);
  const auto& second = static_cast<optim::AdamOptions&>(adam.param_groups()[1].options());
  EXPECT_EQ(second.lr(), 0.25);
  EXPECT_EQ(second.weight_decay(), 0.125);
  // AdamW decays by itself: 0.01 is what was not set.
  optim::AdamW adamw({optim::OptimizerParamGroup(
                         {a}, std::make_unique<optim::AdamWOptions>(optim::AdamWOptions(0.5).weight_decay(0)))},
                     optim::AdamWOptions().weight_decay(0.25).eps(1e-4));
  const auto& options = static_cast<optim::AdamWOptions&>(adamw.param_groups()[0].options());
  EXPECT_EQ(options.weight_decay(), 0);
  EXPECT_EQ(options.eps(), 1e-4);
}

/// As in libtorch's own optimizers: a state with members of its own, made in step().
struct CountingState : optim::OptimizerCloneableParamState<CountingState> {
  TORCH_ARG(int64_t, step) = 0;
  TORCH_ARG(torch::Tensor, last);
};

struct CountingOptions : optim::OptimizerCloneableOptions<CountingOptions> {
  CountingOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr) = 1;
};

class Counting : public optim::Optimizer {
 public:
  explicit Counting(std::vector<torch::Tensor> params, CountingOptions defaults)
      : Optimizer(std::move(params), std::make_unique<CountingOptions>(defaults)) {}
  torch::Tensor step(LossClosure closure = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups_)
      for (auto& p : group.params()) {
        if (!p.grad().defined()) continue;
        auto found = state_.find(p.unsafeGetTensorImpl());
        if (found == state_.end()) {
          auto made = std::make_unique<CountingState>();
          made->last(torch::zeros_like(p));
          state_[p.unsafeGetTensorImpl()] = std::move(made);
        }
        auto& state = static_cast<CountingState&>(*state_[p.unsafeGetTensorImpl()]);
        state.step(state.step() + 1);
        state.last().copy_(p.grad());
        p.sub_(p.grad() * static_cast<CountingOptions&>(group.options()).lr());
      }
    return closure ? closure() : torch::Tensor();
  }
  void save(torch::serialize::OutputArchive& archive) const override {
    for (const auto& [key, state] : state_) archive.write("step", static_cast<CountingState&>(*state).step());
  }
  void load(torch::serialize::InputArchive& archive) override {
    auto made = std::make_unique<CountingState>();
    int64_t steps = 0;
    archive.read("step", steps);
    made->step(steps);
    state_[param_groups_[0].params()[0].unsafeGetTensorImpl()] = std::move(made);
  }
};

TEST(OptimizerState, OfOnesOwnHasMembersOfItsOwn) {
  Trained<Counting, CountingOptions> counting(CountingOptions(0.25), 3), other(CountingOptions(0.25), 0);
  const auto& state = counting.state<CountingState>();
  EXPECT_EQ(state.step(), 3);
  expect_near(state.last(), 1, -2);
  expect_near(counting.x, 0.25, 2.5);
  EXPECT_EQ(static_cast<const CountingState&>(*state.clone()).step(), 3);
  std::stringstream file;
  torch::save(counting.optimizer, file);
  torch::load(other.optimizer, file);
  EXPECT_EQ(other.state<CountingState>().step(), 3);
}

}  // namespace
}  // namespace optimizer_state_test
