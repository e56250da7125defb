/// A second backward through one graph, changes of views that would get a history, and what may be kept for backward.

#include <gtest/gtest.h>

#include "athanor/autograd/autograd.h"
#include "athanor/autograd/function.h"
#include "athanor/ops/tensor.h"
#include "athanor/tape/grad_mode.h"

namespace athanor {
namespace {

std::string again_error(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

TEST(SecondBackward, GoesThroughCallsThatKeptNothing) {
  const std::function<Tensor(const Tensor&)> calls[] = {
      [](const Tensor& x) { return x.sum(); },
      [](const Tensor& x) { return (x + x).mean(); },
      [](const Tensor& x) {
        return cat({x, -x.t()}).flip(0).cumsum(0).sum();
      },
      [](const Tensor& x) {
        return x[0].expand({3, 2}).clone().view({6})[1];
      },
      [](const Tensor& x) {
        Tensor y = x + 0;
        y[0].add_(x[1]);
        return y.sum();
      },
  };
  for (const auto& call : calls) {
    const Tensor x = ones({2, 2}, kDouble).requires_grad_();
    const Tensor y = call(x);
    y.backward();
    const Tensor once = x.grad().clone();
    y.backward();
    EXPECT_TRUE(equal(x.grad(), once + once));
  }
}

TEST(SecondBackward, ThroughWhatWasFreedNamesTheNode) {
  const Tensor x = ones({2}, kDouble).requires_grad_();
  const Tensor y = x.exp(), z = x[0].exp() + x.sum();
  y.sum().backward();
  const std::string message = again_error([&] { y.sum().backward(); });
  EXPECT_NE(message.find("second time"), std::string::npos);
  EXPECT_NE(message.find("ExpBackward0"), std::string::npos);
  Tensor w = x + 0;
  w[0].exp_();
  const Tensor s = w.sum();
  s.backward();
  EXPECT_NE(again_error([&] { s.backward(); }).find("second time"), std::string::npos);
}

struct Threefold : autograd::Function<Threefold> {
  static Tensor forward(autograd::AutogradContext* c, const Tensor& x) {
    c->saved_data["factor"] = 3.0;
    return x * 3;
  }
  static autograd::variable_list backward(autograd::AutogradContext* c, autograd::variable_list g) {
    return {g[0] * c->saved_data["factor"].toDouble()};
  }
};

TEST(SecondBackward, GoesThroughAFunctionThatSavedNoTensors) {
  const Tensor x = ones({2}, kDouble).requires_grad_();
  const Tensor y = Threefold::apply(x).sum();
  y.backward();
  y.backward();
  EXPECT_TRUE(equal(x.grad(), full({2}, 6.0, kDouble)));
}

TEST(RecordedChanges, OfOneOfSeveralViewsAreRefusedWhereverTheHistoryComesFrom) {
  const Tensor w = ones({2}, kDouble).requires_grad_();
  for (const bool by_copy : {false, true}) {
    const Tensor x = zeros({4}, kDouble);
    Tensor part = x.chunk(2)[0];
    const std::string message = again_error([&] { by_copy ? part.copy_(w) : part.add_(w); });
    EXPECT_NE(message.find("multiple views"), std::string::npos) << by_copy;
    EXPECT_TRUE(equal(x, zeros({4}, kDouble)));
    part.add_(1);  // nothing is recorded
    EXPECT_EQ(x.sum().item<double>(), 2);
  }
}

TEST(RecordedChanges, OfPartsOfTensorSplitReachTheBase) {
  const Tensor x = ones({4}, kDouble).requires_grad_();
  for (const bool by_places : {false, true}) {
    const Tensor y = x * 2;
    const std::vector<Tensor> parts = by_places ? y.tensor_split(IntArrayRef{1, 2}) : y.tensor_split(3);
    parts[0].mul_(3);
    EXPECT_EQ(autograd::grad({y.sum()}, {x})[0][0].item<double>(), 6);
    EXPECT_EQ(autograd::grad({(y * 1).sum()}, {x})[0][3].item<double>(), 2);
  }
}

TEST(RecordedChanges, OfAnUnrecordedViewAreRefused) {
  const Tensor p = ones({4}, kDouble).requires_grad_(), inner = p * 1;
  for (const Tensor& base : {p, inner}) {
    Tensor flat;
    {
      const NoGradGuard off;
      flat = base.view({2, 2});
      flat.mul_(2);
    }
    EXPECT_NE(again_error([&] { flat.mul_(2); }).find("created in no_grad mode"), std::string::npos);
    EXPECT_NE(again_error([&] { flat.mul_(p.view({2, 2})); }).find("created in no_grad mode"), std::string::npos);
    EXPECT_EQ(base.sum().item<double>(), 8);
  }
  Tensor leaf = ones({4}, kDouble), part = leaf[0];
  leaf.requires_grad_();
  EXPECT_NE(again_error([&] { part.mul_(2); }).find("a view of a leaf"), std::string::npos);
}

struct AsItCame : autograd::Function<AsItCame> {
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) { return x; }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) { return g; }
};
struct ForgetsToReturn : autograd::Function<ForgetsToReturn> {
  static Tensor forward(autograd::AutogradContext* c, const Tensor& x) {
    c->mark_dirty({x});
    return x.mul_(2) + 1;
  }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) { return g; }
};

TEST(RecordedChanges, OfWhatAFunctionReturnedAsItCameAreRefused) {
  const Tensor x = ones({2}, kDouble).requires_grad_();
  const Tensor y = x * 2;
  Tensor z = AsItCame::apply(y);
  EXPECT_NE(again_error([&] { z.mul_(3); }).find("custom Function"), std::string::npos);
  EXPECT_NE(again_error([&] { ForgetsToReturn::apply(x * 1); }).find("were not returned as output"), std::string::npos);
}

TEST(InferenceTensors, AreNotKeptForBackward) {
  Tensor inference;
  {
    const InferenceMode on;
    inference = ones({2}, kDouble);
  }
  const Tensor w = ones({2}, kDouble).requires_grad_();
  EXPECT_NE(again_error([&] { inference* w; }).find("Inference tensors cannot be saved for backward"),
            std::string::npos);
  (inference + w).sum().backward();
  (inference.clone() * w).sum().backward();
  EXPECT_EQ(w.grad()[0].item<double>(), 2);
  EXPECT_EQ((inference * w.detach()).sum().item<double>(), 2);
}

}  // namespace
}  // namespace athanor
