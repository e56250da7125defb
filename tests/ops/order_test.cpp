#include "athanor/autograd/function.h"
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

TEST(Engine, NodesOfWideGraphsRunOnceWithAllTheirGradients) {
  Tensor x = full({}, 1.0, kDouble).requires_grad_();
  // From each level's sum to the next as many ways as `width`, every one of them used twice. A product needs what it
  // saved, so that a node that ran twice would throw.
  Tensor level = x * 1;
  double slope = 1;
  for (const int width : {3, 15, 16, 17, 100, 5, 18, 40}) {
    std::vector<Tensor> parts;
    for (int i = 0; i < width; ++i) parts.push_back(level * level * (i + 1));
    for (int i = 0; i < width; ++i) parts.push_back(parts[static_cast<std::size_t>(i)]);
    level = stack(parts).sum() * (1.0 / (width * (width + 1)));
    slope *= 2;
  }
  level.backward();
  EXPECT_NEAR(x.grad().item<double>() / slope, 1, 1e-12);
}

namespace {

/// x to x times 1, 2, 3 ... `parts`. Its backward sees which of the gradients are there.
struct Multiples : autograd::Function<Multiples> {
  static autograd::variable_list forward(autograd::AutogradContext* c, const Tensor& x, std::int64_t parts) {
    c->set_materialize_grads(false);
    autograd::variable_list out;
    for (std::int64_t i = 1; i <= parts; ++i) out.push_back(x * i);
    return out;
  }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list grads) {
    Tensor sum;
    for (std::size_t i = 0; i < grads.size(); ++i)
      if (grads[i].defined()) {
        const Tensor part = grads[i] * static_cast<double>(i + 1);
        sum = sum.defined() ? sum + part : part;
      }
    return {sum, Tensor()};
  }
};

}  // namespace

TEST(Engine, NodesOfManyAndFewResultsFollowEachOtherWithoutStrayGradients) {
  Tensor x = full({}, 1.0, kDouble).requires_grad_();
  const autograd::variable_list first = Multiples::apply(x, 7);
  const autograd::variable_list second = Multiples::apply(first[5], 2);
  const autograd::variable_list third = Multiples::apply(second[0], 7);
  // A hook that makes its list shorter leaves nothing behind for the next node either.
  third[6].grad_fn()->add_pre_hook([](GradList& grads) {
    const TensorBase whole = grads[6];
    grads.resize(4);
    grads[0] = whole;
  });
  third[6].backward();
  EXPECT_EQ(x.grad().item<double>(), 6.0);  // by way of 1, 1 and 6 times
}

}  // namespace athanor
