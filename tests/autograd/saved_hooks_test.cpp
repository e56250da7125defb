#include "athanor/tape/saved_hooks.h"

#include <gtest/gtest.h>

#include "athanor/autograd/function.h"
#include "athanor/autograd/gradcheck.h"
#include "athanor/ops/all_ops.h"
#include "athanor/ops/tensor.h"

namespace athanor {
namespace {

// Everything saved becomes a copy of its values; the tensors themselves are free to go and to change.
struct Copies final : SavedTensorHooks {
  struct Copy final : PackedTensor {
    explicit Copy(const TensorBase& t) : values(ops::clone(t)) {}
    TensorBase unpack() override { return values; }
    TensorBase values;
  };
  std::unique_ptr<PackedTensor> pack(const TensorBase& t) override {
    ++packed;
    return std::make_unique<Copy>(t);
  }
  int packed = 0;
};

struct Other final : SavedTensorHooks {
  explicit Other(TensorBase t) : other(std::move(t)) {}
  struct Same final : PackedTensor {
    explicit Same(TensorBase t) : t(std::move(t)) {}
    TensorBase unpack() override { return t; }
    TensorBase t;
  };
  std::unique_ptr<PackedTensor> pack(const TensorBase&) override { return std::make_unique<Same>(other); }
  TensorBase other;
};

TEST(SavedTensorHooks, InputsAndResultsGoThroughThem) {
  const Tensor x = full({3}, 2.0).requires_grad_(), y = full({3}, 5.0).requires_grad_();
  Tensor z;
  {
    Copies hooks;
    z = (x * y).exp();
    EXPECT_EQ(hooks.packed, 3);
    EXPECT_EQ(SavedTensorHooks::current(), &hooks);
  }
  EXPECT_EQ(SavedTensorHooks::current(), nullptr);
  z.sum().backward();
  EXPECT_TRUE(x.grad().allclose(full({3}, 5 * std::exp(10.0))));
}

TEST(SavedTensorHooks, ChangesInPlaceOfWhatWasPackedDoNotMatter) {
  const Tensor x = full({3}, 2.0).requires_grad_(), y = full({3}, 5.0);
  Copies hooks;
  const Tensor z = (x * y).sum();
  y.zero_();
  z.backward();
  EXPECT_EQ(x.grad()[0].item<float>(), 5);
}

TEST(SavedTensorHooks, GradientsOfGradientsKeepTheHistoryOfWhatWasSaved) {
  const Tensor x = rand({2, 3}, kDouble).requires_grad_(), w = rand({4, 3}, kDouble).requires_grad_();
  const auto f = [](const autograd::variable_list& in) {
    return autograd::variable_list{linear(in[0].exp(), in[1]).tanh()};
  };
  Copies hooks;
  EXPECT_TRUE(autograd::gradcheck(f, {x, w}));
  EXPECT_TRUE(autograd::gradgradcheck(f, {x, w}));
  EXPECT_GT(hooks.packed, 0);
}

TEST(SavedTensorHooks, SomethingElseThanWhatWasPackedIsRefused) {
  const Tensor x = full({2, 3}, 2.0).requires_grad_();
  for (const Tensor& wrong : {ones({2}), ones({2, 3}, kDouble), ones({3, 2}).t(), Tensor()}) {
    Tensor y;
    {
      Other hooks(wrong);
      y = x.exp();
    }
    EXPECT_THROW(y.sum().backward(), Error);
  }
}

TEST(SavedTensorHooks, WhatWasPackedGoesWithTheGraph) {
  const Tensor x = full({3}, 2.0).requires_grad_(), kept = ones({3});
  const auto before = kept.use_count();
  {
    Other hooks(kept);
    Tensor y = x.exp(), z = x.exp();
    EXPECT_GT(kept.use_count(), before + 1);
    y.sum().backward();
  }
  EXPECT_EQ(kept.use_count(), before);
}

TEST(Hooks, MayTakeThemselvesAwayAndRegisterOthers) {
  const Tensor x = full({3}, 2.0).requires_grad_();
  std::vector<int> order;
  std::uint64_t first = 0, second = 0;
  first = x.register_hook([&](const Tensor&) {
    order.push_back(1);
    x.remove_hook(first);
    x.remove_hook(second);
    for (int i = 0; i < 20; ++i) x.register_post_accumulate_grad_hook([&](const Tensor&) { order.push_back(4); });
    return Tensor();
  });
  second = x.register_hook([&](const Tensor&) {
    order.push_back(2);
    return Tensor();
  });
  x.register_hook([&, calls = 0](const Tensor&) mutable {
    order.push_back(30 + calls++);
    return Tensor();
  });
  (x * 2).sum().backward();
  EXPECT_EQ(order.size(), 22u);
  order.resize(2);
  EXPECT_EQ(order, (std::vector<int>{1, 30}));
  order.clear();
  (x * 2).sum().backward();
  EXPECT_EQ(order.front(), 31) << "a hook's own state stays";
}

}  // namespace
}  // namespace athanor
