#include <gtest/gtest.h>

#include "athanor/autograd/autograd.h"
#include "athanor/ops/tensor.h"

namespace athanor {
namespace {

TEST(SetData, LaterGraphsGiveGradientsOfTheNewDtype) {
  const Tensor p = ones({1}, TensorOptions(kFloat).requires_grad(true));
  const Tensor kept = p * 2;  // keeps the leaf's accumulator alive
  p.set_data(p.data().to(kDouble));
  const double third = 1.0 / 3;
  (p * third).sum().backward();
  ASSERT_EQ(p.grad().dtype(), kDouble);
  EXPECT_EQ(p.grad().item<double>(), third);
}

TEST(SetData, LaterGraphsGiveGradientsOfTheNewShape) {
  const Tensor p = ones({1}, TensorOptions(kFloat).requires_grad(true));
  const Tensor kept = p * 2;
  p.set_data(ones({3}));
  (p * 2).sum().backward();
  EXPECT_EQ(p.grad().sizes(), (IntArrayRef{3}));
}

TEST(SetData, OlderGraphsStillReachTheLeaf) {
  const Tensor p = ones({2}, TensorOptions(kFloat).requires_grad(true));
  const Tensor before = (p * 3).sum();
  p.set_data(p.data().to(kDouble));
  before.backward();
  ASSERT_TRUE(p.grad().defined());
  EXPECT_EQ(p.grad().sum().item<double>(), 6.0);
}

}  // namespace
}  // namespace athanor
