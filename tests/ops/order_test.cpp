#include "numeric.h"

namespace athanor {

TEST(Engine, LeafUsedByItsOwnFirstNodeTwiceGetsBothGradients) {
  Tensor x = full({}, 3.0, kDouble).requires_grad_();
  const Tensor y = x * x;
  EXPECT_EQ(autograd::grad({y}, {x}, {}, true)[0].item<double>(), 6);
  const Tensor z = y * x;
  EXPECT_EQ(autograd::grad({z}, {x})[0].item<double>(), 27);
}

TEST(Engine, ViewWhoseBaseChangedRunsAfterAllItsUsers) {
  Tensor x = full({3}, 2.0, kDouble).requires_grad_();
  Tensor base = x * 1;
  const Tensor view = base.slice(0, 0, 2);
  base.mul_(3);
  const Tensor first = view * 2, second = view * 5;  // the view's node is made by the first use
  (first + second).sum().backward();
  EXPECT_EQ(test::list(x.grad()), (std::vector<double>{21, 21, 0}));
}

}  // namespace athanor
