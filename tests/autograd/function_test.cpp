#include "athanor/autograd/function.h"

#include <gtest/gtest.h>

#include "athanor/base/warning.h"
#include "athanor/ops/factory.h"
#include "athanor/tape/anomaly.h"

namespace athanor::autograd {
namespace {

struct Cube : Function<Cube> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, double scale) {
    ctx->save_for_backward({x});
    ctx->saved_data["scale"] = scale;
    return x * x * x * scale;
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    const Tensor x = ctx->get_saved_variables()[0];
    return {g[0] * x * x * (3 * ctx->saved_data["scale"].toDouble()), Tensor()};
  }
};

struct DoubleInPlace : Function<DoubleInPlace> {
  static Tensor forward(AutogradContext* ctx, Tensor x) {
    x.mul_(2);
    ctx->mark_dirty({x});
    return x;
  }
  static variable_list backward(AutogradContext*, variable_list g) { return {g[0] * 2}; }
};

struct SplitParts : Function<SplitParts> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x) {
    const Tensor positive = x.gt(0);
    ctx->mark_non_differentiable({positive});
    return {x * 2, positive};
  }
  static variable_list backward(AutogradContext*, variable_list g) { return {g[0] * 2}; }
};

struct KeepsSecond : Function<KeepsSecond> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& y) {
    ctx->mark_non_differentiable({y});
    return {x * 2, y};
  }
  static variable_list backward(AutogradContext*, variable_list g) { return {g[0] * 2, Tensor()}; }
};

struct WrongCount : Function<WrongCount> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x * 1; }
  static variable_list backward(AutogradContext*, variable_list g) { return {g[0], g[0]}; }
};

struct NotANumber : Function<NotANumber> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x * 1; }
  static variable_list backward(AutogradContext*, variable_list g) { return {g[0] * NAN}; }
};

}  // namespace

TEST(Function, ReceivesSavedTensorsAndIsDifferentiableTwice) {
  Tensor x = full({}, 2.0, kDouble).requires_grad_();
  const Tensor g = grad({Cube::apply(x, 0.5)}, {x}, {}, true, true)[0];
  EXPECT_EQ(g.item<double>(), 6);
  EXPECT_EQ(grad({g}, {x})[0].item<double>(), 6);
}

TEST(Function, MarksDirtyInputs) {
  Tensor x = ones({2}).requires_grad_();
  Tensor y = x * 3;
  const Tensor z = DoubleInPlace::apply(y);
  EXPECT_TRUE(z.is_same(y));
  z.sum().backward();
  EXPECT_EQ(x.grad().select(0, 0).item<float>(), 6.0F);
  EXPECT_THROW(DoubleInPlace::apply(x), Error);
}

TEST(Function, NonDifferentiableResultsCarryNoGradient) {
  Tensor x = tensor({1.0, -1.0}).requires_grad_();
  const auto out = SplitParts::apply(x);
  EXPECT_TRUE(out[0].requires_grad());
  EXPECT_FALSE(out[1].requires_grad());
  EXPECT_FALSE(KeepsSecond::apply(x, tensor({1.0, 2.0}))[1].requires_grad());
  out[0].sum().backward();
  EXPECT_EQ(x.grad().select(0, 1).item<float>(), 2.0F);
}

TEST(Function, WrongNumberOfGradientsIsAnError) {
  Tensor x = ones({1}).requires_grad_();
  try {
    WrongCount::apply(x).backward();
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("incorrect number of gradients (expected 1, got 2)"), std::string::npos);
  }
}

TEST(Function, SavedTensorsAreFreedWithTheGraph) {
  Tensor x = ones({1}).requires_grad_();
  const Tensor y = Cube::apply(x, 1.0);
  y.backward();
  EXPECT_THROW(y.backward(), Error);
}

TEST(Checkpoint, GradientsEqualThoseWithoutIt) {
  Tensor x = full({3}, 1.5).requires_grad_(), w = full({3}, 2.0).requires_grad_();
  const auto f = [&](const variable_list& in) { return variable_list{(in[0] * w).exp()}; };
  f({x})[0].sum().backward();
  const Tensor gx = x.grad().clone(), gw = w.grad().clone();
  x.mutable_grad().reset();
  w.mutable_grad().reset();
  checkpoint(f, {x})[0].sum().backward();
  EXPECT_EQ(x.grad().select(0, 0).item<float>(), gx.select(0, 0).item<float>());
  EXPECT_EQ(w.grad().select(0, 2).item<float>(), gw.select(0, 2).item<float>());
}

TEST(Anomaly, NamesTheFunctionThatMadeNaN) {
  const DetectAnomalyGuard guard;
  Tensor x = ones({2}).requires_grad_();
  const Tensor y = NotANumber::apply(x).sum();
  try {
    y.backward();
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("Function 'NotANumber' returned nan values in its 0th output"),
              std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find("Forward call was made at"), std::string::npos);
  }
}

TEST(Hooks, RunInOrderAndMayReplaceTheGradient) {
  Tensor x = ones({1}).requires_grad_();
  Tensor y = x * 2;
  std::vector<int> order;
  y.register_hook([&](const Tensor& g) -> Tensor {
    order.push_back(1);
    return g * 10;
  });
  const auto id = y.register_hook([&](const Tensor&) { order.push_back(2); });
  x.register_hook([&](const Tensor&) { order.push_back(3); });
  x.register_post_accumulate_grad_hook([&](const Tensor& t) {
    EXPECT_EQ(t.grad().item<float>(), 20.0F);
    order.push_back(4);
  });
  y.retain_grad();
  y.sum().backward();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(y.grad().item<float>(), 10.0F);
  y.remove_hook(id);
}

TEST(Backward, RefusesVectorsAndUsedGraphs) {
  Tensor x = ones({2}).requires_grad_();
  EXPECT_THROW((x * 2).backward(), Error);
  EXPECT_THROW(ones({}).backward(), Error);
  const Tensor y = (x * x).sum();
  y.backward(std::nullopt, true);
  y.backward();
  EXPECT_EQ(x.grad().select(0, 0).item<float>(), 4.0F);
  EXPECT_THROW(y.backward(), Error);
}

TEST(Hooks, MayNotChangeAGradientsSizeOrDtype) {
  for (const bool leaf : {true, false}) {
    Tensor x = ones({3}).requires_grad_();
    const Tensor y = x * 2;
    Tensor result;
    (leaf ? x : y).register_hook([&](const Tensor&) -> Tensor { return result; });
    const auto backward = [&] { y.sum().backward({}, true); };
    const auto refusal = [&] {
      try {
        backward();
      } catch (const Error& e) {
        return std::string(e.what());
      }
      return std::string();
    };
    result = full({1}, 7.0);
    EXPECT_NE(refusal().find("changed the size of a gradient from [3] to [1]"), std::string::npos);
    result = full({3}, 7.0, kDouble);
    EXPECT_NE(refusal().find("changed the type of a gradient from"), std::string::npos);
    EXPECT_FALSE(x.grad().defined());
    result = full({3}, 7.0);
    backward();
    EXPECT_EQ(x.grad()[2].item<float>(), leaf ? 7.0F : 14.0F);
  }
}

TEST(Hooks, OfALeafRunWhereItsGradientIsNotAccumulatedToo) {
  const Tensor x = ones({2}, kDouble).requires_grad_();
  int calls = 0;
  x.register_hook([&](const Tensor& g) { return ++calls, g * 2; });
  EXPECT_TRUE(equal(autograd::grad({(x * 3).sum()}, {x})[0], full({2}, 6.0, kDouble)));
  EXPECT_FALSE(x.grad().defined());
  (x * 3).sum().backward({}, std::nullopt, false, TensorList({x}));
  EXPECT_TRUE(equal(x.grad(), full({2}, 6.0, kDouble)));
  EXPECT_EQ(calls, 2);
  // Not asked for: not computed, and no hook is called.
  const Tensor w = ones({2}, kDouble).requires_grad_();
  autograd::grad({(x * w).sum()}, {w});
  EXPECT_EQ(calls, 2);
}

TEST(Backward, TheGradientOfALeafThatTheCallerKeepsIsCopied) {
  const Tensor x = ones({2}, kDouble).requires_grad_(), g = ones({2}, kDouble);
  x.backward(g);
  x.grad().mul_(5);
  EXPECT_TRUE(equal(g, ones({2}, kDouble)));
}

TEST(Backward, InsideAHookIsANewLoop) {
  Tensor x = ones({1}).requires_grad_(), z = ones({1}).requires_grad_();
  const Tensor y = x * 3;
  y.register_hook([&](const Tensor&) {
    const AutoGradMode on(true);
    (z * 5).backward();
  });
  y.backward();
  EXPECT_EQ(z.grad().item<float>(), 5.0F);
  EXPECT_EQ(x.grad().item<float>(), 3.0F);
}

TEST(Hooks, RemovingAnUnknownOneIsAnError) {
  const Tensor x = ones({2}, TensorOptions().requires_grad(true));
  const auto id = x.register_hook([](const Tensor& g) { return g * 2; });
  EXPECT_THROW(x.remove_hook(id + 1000), IndexError);
  x.remove_hook(id);
  EXPECT_THROW(x.remove_hook(id), IndexError);
}

TEST(Backward, RefusesAnEmptyListOfInputs) {
  const Tensor x = ones({2}, TensorOptions().requires_grad(true)), y = x.sum();
  EXPECT_THROW(y.backward({}, false, false, std::vector<Tensor>()), Error);
  y.backward({}, false, false, std::vector<Tensor>{x});
  EXPECT_TRUE(x.grad().defined());
}

TEST(Variable, IsALeafOfTheSameStorage) {
  const Tensor x = ones({2}, TensorOptions().requires_grad(true)), y = x * 2;
  const Tensor v = autograd::make_variable(y, true);
  EXPECT_TRUE(v.is_leaf() && v.requires_grad());
  EXPECT_EQ(v.data_ptr(), y.data_ptr());
  EXPECT_FALSE(autograd::make_variable(y).requires_grad());
}

TEST(Grad, OfAResultThatDoesNotKeepItWarns) {
  struct Counter : WarningHandler {
    void process(const Warning& w) override { count += w.msg().find("is not a leaf") != std::string::npos; }
    int count = 0;
  } counter;
  WarningUtils::set_warning_handler(&counter);
  const Tensor x = ones({2}, TensorOptions().requires_grad(true)), y = x * 2, z = x * 3;
  z.retain_grad();
  EXPECT_FALSE(x.grad().defined() || z.grad().defined() || ones({1}).grad().defined());
  EXPECT_EQ(counter.count, 0);
  EXPECT_FALSE(y.grad().defined());
  EXPECT_EQ(counter.count, 1);
  WarningUtils::set_warning_handler(nullptr);
}

TEST(InPlace, RulesOfLeavesAndViews) {
  Tensor leaf = ones({2}).requires_grad_();
  EXPECT_THROW(leaf.add_(1), Error);
  EXPECT_THROW(leaf.select(0, 0).zero_(), Error);
  {
    const NoGradGuard off;
    leaf.add_(1);
  }
  EXPECT_EQ(leaf.select(0, 0).item<float>(), 2.0F);
  Tensor y = leaf * 1;
  const auto parts = y.unbind();
  EXPECT_THROW(parts[0].zero_(), Error);
  Tensor expanded = ones({1}).expand({3});
  EXPECT_THROW(expanded.add_(1), Error);
}

}  // namespace athanor::autograd
