// Checkpoints inside backward calls that are for some tensors only: the gradients are those without checkpoints, and
// nothing is added to the .grad of others.
#include <gtest/gtest.h>

#include "athanor/autograd/function.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"

namespace athanor::autograd {
namespace {

using Body = std::function<variable_list(const variable_list&)>;

/// Body, checkpointed or not.
variable_list run(bool checkpointed, const Body& body, const variable_list& inputs) {
  return checkpointed ? checkpoint(body, inputs) : body(inputs);
}

struct Parts {
  Tensor x = tensor({1.0, -2.0, 3.0}).requires_grad_(), w = tensor({0.5, 2.0, -1.0}).requires_grad_(),
         v = tensor({2.0, 3.0, 4.0}).requires_grad_();
  Body block = [this](const variable_list& in) { return variable_list{(in[0] * w).tanh() * v}; };
  variable_list all() const { return {x, w, v}; }
  bool no_grads() const { return !x.grad().defined() && !w.grad().defined() && !v.grad().defined(); }
};

TEST(Checkpoint, AResultThatDiffersWhenComputedAgainIsNamed) {
  const Tensor x = ones({4, 3}).requires_grad_();
  int calls = 0;
  const auto message = [&](const Body& body) {
    calls = 0;
    const Tensor y = checkpoint(body, {x})[0].sum();
    try {
      y.backward();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string shape =
      message([&](const variable_list& in) { return variable_list{in[0].narrow(0, 0, ++calls) * 2}; });
  EXPECT_NE(shape.find("result 0 of the forward had shape [1, 3], computed again for backward it has [2, 3]"),
            std::string::npos)
      << shape;
  const std::string count =
      message([&](const variable_list& in) { return variable_list(static_cast<std::size_t>(3 - ++calls), in[0] * 2); });
  EXPECT_NE(count.find("the forward gave 2 tensors, computed again for backward it gives 1"), std::string::npos)
      << count;
  EXPECT_EQ(message([](const variable_list& in) { return variable_list{in[0] * 2}; }), "");
}

TEST(CheckpointOfSome, GradLeavesAllGradsAlone) {
  Parts p;
  for (const variable_list& wanted : {variable_list{p.x}, {p.w}, {p.w, p.v}, {p.v, p.x}, {p.x, p.w, p.v}, {p.w, p.w}}) {
    const auto expected = grad({run(false, p.block, {p.x})[0].sum()}, wanted);
    const auto got = grad({run(true, p.block, {p.x})[0].sum()}, wanted);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i])) << i;
    EXPECT_TRUE(p.no_grads());
  }
}

TEST(CheckpointOfSome, BackwardAddsToItsInputsOnly) {
  Parts p;
  const Tensor expected = grad({run(false, p.block, {p.x})[0].sum()}, {p.w})[0];
  for (int i = 1; i <= 2; ++i) {
    run(true, p.block, {p.x})[0].sum().backward({}, std::nullopt, false, {p.w});
    EXPECT_TRUE(allclose(p.w.grad(), expected * i));
    EXPECT_FALSE(p.x.grad().defined());
    EXPECT_FALSE(p.v.grad().defined());
  }
}

TEST(CheckpointOfSome, NestingRowsAndOtherUsesAddUp) {
  Parts p;
  for (const bool used_later : {false, true}) {
    const auto loss = [&](bool checkpointed) {
      // By value: backward runs the block again, when this call has ended.
      const Body outer = [&p, checkpointed](const variable_list& in) {
        const Tensor inner = run(checkpointed, p.block, {in[0] + p.v})[0];
        return variable_list{inner * p.w};
      };
      Tensor y = (p.w * p.x).sum() + run(checkpointed, outer, {p.x * 2})[0].sum();
      y = y + run(checkpointed, outer, {p.x})[0].sum();
      return used_later ? y + (p.v * p.w).sum() : y;
    };
    const auto expected = grad({loss(false)}, p.all());
    const auto got = grad({loss(true)}, p.all());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(allclose(got[i], expected[i])) << i;
    EXPECT_TRUE(p.no_grads());
    loss(true).backward();
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(allclose(p.all()[i].grad(), expected[i])) << i;
    for (const Tensor& t : p.all()) t.mutable_grad().reset();
  }
}

TEST(CheckpointOfSome, AnIntermediateTensorMayBeAskedFor) {
  Parts p;
  const auto loss = [&](bool checkpointed, Tensor& middle) {
    middle = p.x * 3;  // reaches the block as its argument and by the closure
    const Body body = [&](const variable_list& in) { return variable_list{in[0] * middle * p.w}; };
    return run(checkpointed, body, {middle})[0].sum();
  };
  Tensor a, b;
  const Tensor plain = loss(false, a), kept = loss(true, b);
  EXPECT_TRUE(allclose(grad({kept}, {b})[0], grad({plain}, {a})[0]));
}

TEST(CheckpointOfSome, WhatIsNotUsedIsStillSaidToBe) {
  Parts p;
  const Tensor other = ones({3}).requires_grad_();
  EXPECT_THROW(grad({checkpoint(p.block, {p.x})[0].sum()}, {other}), Error);
  EXPECT_FALSE(grad({checkpoint(p.block, {p.x})[0].sum()}, {other}, {}, {}, false, true)[0].defined());
  EXPECT_TRUE(p.no_grads());
}

TEST(CheckpointOfSome, HooksOfParametersInsideRunOnce) {
  Parts p;
  int calls = 0;
  p.w.register_hook([&](const Tensor&) { ++calls; });
  checkpoint(p.block, {p.x})[0].sum().backward({}, std::nullopt, false, {p.w});
  EXPECT_EQ(calls, 1);
}

TEST(CheckpointOfSome, ConvolutionsDoNotAddTheirGradientsThemselves) {
  manual_seed(3);
  nn::Conv2d conv(nn::Conv2dOptions(2, 4, 3));
  const Tensor x = randn({2, 2, 8, 8}).requires_grad_();
  const Body body = [&](const variable_list& in) { return variable_list{conv(in[0])}; };
  conv(x).sum().backward();
  const Tensor weight = conv->weight.grad().clone(), expected = x.grad().clone();
  EXPECT_TRUE(allclose(grad({checkpoint(body, {x})[0].sum()}, {x})[0], expected));
  EXPECT_TRUE(conv->weight.grad().equal(weight));
}

TEST(CheckpointTwice, GradientsOfGradientsReachInputsAndParameters) {
  const auto values = [](bool save, bool leaves) {
    const Tensor x = tensor({1.0, 2.0}, kDouble).requires_grad_(), w = tensor({1.5, -0.5}, kDouble).requires_grad_();
    const Tensor h = x * x;
    const auto f = [&](const variable_list& in) -> variable_list { return {(in[0] * in[0] * w).sin() * w}; };
    const Tensor y = save ? checkpoint(f, {h})[0] : f({h})[0];
    Tensor gx, gw;
    if (leaves) {
      backward({y.sum()}, {}, {}, true);
      gx = x.grad(), gw = w.grad();
    } else {
      const variable_list g = grad({y.sum()}, {x, w}, {}, {}, true);
      gx = g[0], gw = g[1];
    }
    const variable_list second = grad({(gx * gx).sum() + (gx * gw).sum()}, {x, w}, {}, {}, true);
    const variable_list third = grad({(second[0] * second[1]).sum()}, {x, w});
    for (const Tensor& leaf : {x, w}) leaf.mutable_grad() = Tensor();  // its graph holds the leaf
    return cat({gx, gw, second[0], second[1], third[0], third[1]}).detach();
  };
  for (const bool leaves : {false, true}) {
    const Tensor want = values(false, leaves), got = values(true, leaves);
    EXPECT_TRUE(allclose(got, want, 1e-12, 1e-12)) << leaves << "\n" << got << want;
  }
}

}  // namespace
}  // namespace athanor::autograd
