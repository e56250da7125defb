// A gradient that nobody else holds becomes .grad without a copy.
#include <gtest/gtest.h>

#include "athanor/autograd/autograd.h"
#include "athanor/ops/tensor.h"

namespace athanor {
namespace {

class LeafGradient : public testing::Test {
 protected:
  Tensor loss() const { return x.matmul(w.t()).pow(2).sum(); }
  Tensor expected() const { return autograd::grad({loss()}, {w})[0]; }
  const Tensor x = randn({3, 4}, kDouble), w = randn({5, 4}, kDouble).requires_grad_();
};

TEST_F(LeafGradient, ThatWasTheTransposeOfAProductIsTakenAsItIs) {
  const void* arrived = nullptr;
  w.register_hook([&](const Tensor& grad) { arrived = grad.data_ptr(); });
  loss().backward();
  EXPECT_EQ(w.grad().data_ptr(), arrived);
  EXPECT_FALSE(w.grad().is_view());
  EXPECT_TRUE(w.grad().is_contiguous());
  EXPECT_TRUE(w.grad().equal(expected()));
}

TEST_F(LeafGradient, ThatAHookKeptIsCopied) {
  const Tensor transposed = w.t();
  Tensor kept;
  transposed.register_hook([&](const Tensor& grad) { kept = grad; });
  x.matmul(transposed).pow(2).sum().backward();
  ASSERT_TRUE(kept.defined());
  const Tensor before = kept.clone();
  w.grad().zero_();
  EXPECT_TRUE(kept.equal(before));
}

TEST_F(LeafGradient, OfWhichAHookKeptAViewIsCopied) {
  Tensor kept;
  w.register_hook([&](const Tensor& grad) { kept = grad[0]; });
  loss().backward();
  const Tensor before = kept.clone();
  w.grad().zero_();
  EXPECT_TRUE(kept.equal(before));
}

TEST_F(LeafGradient, ThatIsAPartOfSomethingLargerIsCopied) {
  const Tensor p = randn({2, 3}, kDouble).requires_grad_();
  cat({p, p * 2}).mul(3).sum().backward();
  EXPECT_TRUE(p.grad().equal(full({2, 3}, 9.0, kDouble)));
  EXPECT_EQ(p.grad().storage().nbytes(), 6 * sizeof(double));
}

}  // namespace
}  // namespace athanor
