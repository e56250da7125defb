#include <gtest/gtest.h>

#include "athanor/autograd/autograd.h"
#include "athanor/ops/tensor.h"

namespace athanor {

TEST(OpPattern, AddsWithBroadcastAndAlpha) {
  const Tensor a = ones({2, 3}), b = full({3}, 2.0);
  const Tensor c = a.add(b, 0.5);
  EXPECT_EQ(c.sizes(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(c.select(0, 1).select(0, 2).item<float>(), 2.0F);
}

TEST(OpPattern, GradientOfBroadcastOperandIsSummed) {
  Tensor a = ones({2, 3}), b = full({3}, 2.0);
  a.requires_grad_();
  b.requires_grad_();
  (a * b).sum().backward();
  EXPECT_EQ(b.grad().sizes(), b.sizes());
  EXPECT_EQ(b.grad().select(0, 0).item<float>(), 2.0F);
  EXPECT_EQ(a.grad().select(0, 0).select(0, 0).item<float>(), 2.0F);
}

TEST(OpPattern, InPlaceOnViewOfNonLeafReachesTheBase) {
  Tensor x = full({3}, 3.0);
  x.requires_grad_();
  Tensor y = x * 2;
  y.select(0, 1).mul_(5);
  y.sum().backward();
  EXPECT_EQ(x.grad().select(0, 0).item<float>(), 2.0F);
  EXPECT_EQ(x.grad().select(0, 1).item<float>(), 10.0F);
}

TEST(OpPattern, ThirdOrderGradient) {
  Tensor x = full({}, 2.0, kDouble);
  x.requires_grad_();
  const Tensor y = x * x * x * x;
  const Tensor g1 = autograd::grad({y}, {x}, {}, true, true)[0];
  const Tensor g2 = autograd::grad({g1}, {x}, {}, true, true)[0];
  const Tensor g3 = autograd::grad({g2}, {x})[0];
  EXPECT_EQ(g1.item<double>(), 32);
  EXPECT_EQ(g2.item<double>(), 48);
  EXPECT_EQ(g3.item<double>(), 48);
}

TEST(OpPattern, SavedTensorChangedInPlaceIsReported) {
  Tensor x = ones({2});
  x.requires_grad_();
  Tensor w = full({2}, 3.0);
  const Tensor y = (x * w).sum();
  w.add_(1);
  try {
    y.backward();
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("modified by an inplace operation: [FloatTensor [2]]"), std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find("MulBackward0"), std::string::npos) << e.what();
  }
}

TEST(OpPattern, MillionNodeChainNeitherOverflowsOnBackwardNorOnDestruction) {
  Tensor x = ones({1});
  x.requires_grad_();
  Tensor y = x;
  for (int i = 0; i < 1000000; ++i) y = y + 1;
  y.backward();
  EXPECT_EQ(x.grad().item<float>(), 1.0F);
  Tensor z = x;
  for (int i = 0; i < 1000000; ++i) z = z + 1;
}

}  // namespace athanor
