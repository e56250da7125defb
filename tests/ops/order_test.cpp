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

TEST(Engine, NodesOfWideGraphsGetAllTheirGradientsBeforeTheyRun) {
  Tensor x = full({}, 2.0, kDouble).requires_grad_();
  // From each level's sum to the next as many ways as `width`, every one of them used twice.
  Tensor level = x * 1;
  double slope = 1;
  for (const int width : {3, 100, 5, 17, 40}) {
    std::vector<Tensor> parts;
    for (int i = 0; i < width; ++i) parts.push_back(level * (i + 1));
    for (int i = 0; i < width; ++i) parts.push_back(parts[static_cast<std::size_t>(i)]);
    level = stack(parts).sum() * 0.001;
    slope *= width * (width + 1) * 0.001;
  }
  level.backward();
  EXPECT_NEAR(x.grad().item<double>() / slope, 1, 1e-12);
}

}  // namespace athanor
