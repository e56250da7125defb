// Backward calls for some tensors only: what leads to no other tensor is not computed, and what is computed is the
// same.
#include <gtest/gtest.h>

#include <algorithm>

#include "athanor/autograd/function.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"
#include "athanor/profiler/profiler.h"

namespace athanor::autograd {
namespace {

/// x · y, noting which gradients its backward is asked for.
struct Asking : Function<Asking> {
  static inline std::vector<bool> asked;
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& y) {
    ctx->save_for_backward({x, y});
    return x * y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    asked = {ctx->needs_input_grad(0), ctx->needs_input_grad(1)};
    const variable_list saved = ctx->get_saved_variables();
    return {asked[0] ? grads[0] * saved[1] : Tensor(), asked[1] ? grads[0] * saved[0] : Tensor()};
  }
};

TEST(WantedGradients, AFunctionIsToldWhichOfItsGradientsThisBackwardUses) {
  const Tensor x = tensor({2.0, 3.0}).requires_grad_(), y = tensor({5.0, 7.0}).requires_grad_();
  const Tensor fixed = tensor({1.0, 1.0});
  const auto asked_by = [](const Tensor& out, const variable_list& inputs) {
    Asking::asked.clear();
    grad({out.sum()}, inputs);
    return Asking::asked;
  };
  EXPECT_EQ(asked_by(Asking::apply(x, y), {x}), (std::vector<bool>{true, false}));
  EXPECT_EQ(asked_by(Asking::apply(x, y), {y}), (std::vector<bool>{false, true}));
  EXPECT_EQ(asked_by(Asking::apply(x, y), {x, y}), (std::vector<bool>{true, true}));
  EXPECT_EQ(asked_by(Asking::apply(x, fixed), {x}), (std::vector<bool>{true, false}));
  EXPECT_EQ(asked_by(Asking::apply(x * 2, y.exp()), {y}), (std::vector<bool>{false, true}));

  Asking::apply(x, y).sum().backward({}, std::nullopt, false, {y});
  EXPECT_EQ(Asking::asked, (std::vector<bool>{false, true}));
  Asking::apply(x, y).sum().backward();
  EXPECT_EQ(Asking::asked, (std::vector<bool>{true, true}));
}

/// Products that a gradient for `inputs` runs.
std::int64_t products(const Tensor& out, const variable_list& inputs) {
  profiler::Profile profile;
  grad({out}, inputs);
  profile.stop();
  return std::count_if(profile.events().begin(), profile.events().end(),
                       [](const profiler::Event& e) { return e.name == "mm"; });
}

TEST(WantedGradients, OpsComputeOnlyThoseThatAreUsed) {
  const Tensor a = randn({4, 4}).requires_grad_(), b = randn({4, 4}).requires_grad_();
  EXPECT_EQ(products(a.mm(b).sum(), {a}), 1);
  EXPECT_EQ(products(a.mm(b).sum(), {b}), 1);
  EXPECT_EQ(products(a.mm(b).sum(), {a, b}), 2);
  // Only the way back to the first of a chain's factors.
  EXPECT_EQ(products(a.mm(b).mm(b).mm(b.detach()).sum(), {a}), 3);
}

TEST(WantedGradients, TheWalkEndsAtAnInputThatLeadsToNoOther) {
  const Tensor a = randn({4, 4}).requires_grad_(), b = randn({4, 4}).requires_grad_();
  const Tensor middle = a.mm(b);
  EXPECT_EQ(products((middle.mm(b) * 2).sum(), {middle}), 1);
  EXPECT_EQ(products((middle.mm(b) * 2).sum(), {middle, a}), 2);
  const Tensor normal = batch_norm(randn({8, 3}).requires_grad_(), {}, {}, {}, {}, true, 0.1, 1e-5);
  EXPECT_TRUE(grad({(normal * 3).sum()}, {normal})[0].equal(full({8, 3}, 3.0)));
}

TEST(WantedGradients, ABackwardInsideAnotherAsksForItsOwn) {
  const Tensor a = tensor({2.0}).requires_grad_(), b = tensor({3.0}).requires_grad_();
  const Tensor middle = Asking::apply(a, b * 1);
  variable_list inner;
  middle.register_hook([&](const Tensor& g) {
    const AutoGradMode recorded(true);
    const Tensor other = Asking::apply(a, b);
    inner = grad({other.sum()}, {a, b});
    EXPECT_EQ(Asking::asked, (std::vector<bool>{true, true}));
    Asking::apply(a, b).sum().backward();  // for all
    EXPECT_EQ(Asking::asked, (std::vector<bool>{true, true}));
    return g;
  });
  const Tensor out = Asking::apply(b * 1, middle);
  EXPECT_EQ(grad({out.sum()}, {a})[0].item<double>(), 9);
  EXPECT_EQ(Asking::asked, (std::vector<bool>{true, false}));  // of the outer one again
  ASSERT_EQ(inner.size(), 2U);
  EXPECT_EQ(inner[0].item<double>(), 3);
  EXPECT_EQ(inner[1].item<double>(), 2);
}

TEST(WantedGradients, AChangedViewPassesThemOnToItsBase) {
  const Tensor x = tensor({1.0, 2.0, 3.0}).requires_grad_(), w = tensor({4.0, 5.0}).requires_grad_();
  const auto changed = [&] {
    const Tensor y = x * 2;
    y.slice(0, 0, 2).mul_(w);
    return y.sum();
  };
  const Tensor of_x = tensor({8.0, 10.0, 2.0}), of_w = tensor({2.0, 4.0});
  EXPECT_TRUE(grad({changed()}, {x})[0].equal(of_x));
  EXPECT_TRUE(grad({changed()}, {w})[0].equal(of_w));
  const variable_list both = grad({changed()}, {w, x});
  EXPECT_TRUE(both[0].equal(of_w));
  EXPECT_TRUE(both[1].equal(of_x));
}

TEST(WantedGradients, EverySubsetOfANetworksTensorsGetsTheGradientsOfAll) {
  manual_seed(5);
  const Tensor x = randn({2, 3, 8, 8}, kDouble).requires_grad_();
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1)), nn::BatchNorm2d(4), nn::ReLU(),
                     nn::Conv2d(nn::Conv2dOptions(4, 4, 3).stride(2)), nn::Flatten(), nn::Linear(36, 5),
                     nn::LayerNorm(nn::LayerNormOptions({5})));
  net->to(kDouble);
  variable_list all = net->parameters();
  all.push_back(x);
  const auto loss = [&] { return (net->forward(x).softmax(1) * net->forward(x)).sum(); };
  for (const bool create_graph : {false, true}) {
    const variable_list expected = grad({loss()}, all, {}, create_graph, create_graph);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const variable_list some{all[i], all[(i + 3) % all.size()]};
      const variable_list got = grad({loss()}, some, {}, create_graph, create_graph);
      EXPECT_TRUE(allclose(got[0], expected[i], 1e-12, 1e-14)) << i;
      EXPECT_TRUE(allclose(got[1], expected[(i + 3) % all.size()], 1e-12, 1e-14)) << i;
      if (!create_graph) continue;
      const Tensor second = grad({got[0].square().sum()}, {x}, {}, {}, false, true)[0],
                   wanted = grad({expected[i].square().sum()}, {x}, {}, true, false, true)[0];
      ASSERT_EQ(second.defined(), wanted.defined()) << i;
      if (second.defined()) {
        EXPECT_TRUE(allclose(second, wanted, 1e-10, 1e-12)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace athanor::autograd
