#include <gtest/gtest.h>

#include "athanor/autograd/function.h"
#include "athanor/ops/all_ops.h"
#include "athanor/ops/tensor.h"
#include "athanor/tape/node.h"

namespace athanor::node_hooks_test {
namespace {

struct Product {
  Tensor x = full({2}, 3.0, kDouble).requires_grad_(), y = full({2}, 5.0, kDouble).requires_grad_();
  Tensor z = x * y;
  IntrusivePtr<Node> node = z.grad_fn();
  void backward() const { z.backward(ones({2}, kDouble), true); }
  /// The gradient that the last backward added to x, whose elements are alike.
  double taken() const {
    const double g = x.grad()[0].item<double>();
    x.mutable_grad() = Tensor();
    return g;
  }
};

TEST(NodeHooks, BeforeTheNodeReplaceItsGradients) {
  const Product p;
  p.node->add_pre_hook([](GradList& grads) {
    ASSERT_EQ(grads.size(), 1U);
    grads[0] = ops::mul(grads[0], Scalar(10));
  });
  p.backward();
  EXPECT_EQ(p.taken(), 50);
  p.node->add_pre_hook([](GradList& grads) { grads[0] = ops::add(grads[0], Scalar(1)); });
  p.backward();
  EXPECT_EQ(p.taken(), 55) << "hooks run in the order of their registration";
}

TEST(NodeHooks, AfterTheNodeSeeWhatWentInAndCameOut) {
  const Product p;
  p.node->add_pre_hook([](GradList& grads) { grads[0] = ops::mul(grads[0], Scalar(2)); });
  std::vector<double> seen;
  p.node->add_post_hook([&seen](GradList& out, const GradList& in) {
    ASSERT_EQ(out.size(), 2U);
    ASSERT_EQ(in.size(), 1U);
    for (const TensorBase& t : {in[0], out[0], out[1]}) seen.push_back(Tensor(t)[0].item<double>());
    out[0] = ops::neg(out[0]);
  });
  p.backward();
  EXPECT_EQ(seen, (std::vector<double>{2, 10, 6}));
  EXPECT_EQ(p.taken(), -10);
  EXPECT_EQ(p.y.grad()[0].item<double>(), 6);
}

TEST(NodeHooks, AreGoneWhenTheirKeysAreDeleted) {
  const Product p;
  int before = 0, after = 0;
  const std::uint64_t pre = p.node->add_pre_hook([&](GradList&) { ++before; });
  const std::uint64_t post = p.node->add_post_hook([&](GradList&, const GradList&) { ++after; });
  const std::uint64_t kept = p.node->add_post_hook([&](GradList&, const GradList&) { after += 10; });
  EXPECT_NE(post, kept);
  p.backward();
  EXPECT_EQ(before, 1);
  EXPECT_EQ(after, 11);
  EXPECT_FALSE(p.node->del_pre_hook(post)) << "the key of a hook of the other kind";
  EXPECT_TRUE(p.node->del_pre_hook(pre));
  EXPECT_TRUE(p.node->del_post_hook(post));
  EXPECT_FALSE(p.node->del_post_hook(post));
  p.backward();
  EXPECT_EQ(before, 1);
  EXPECT_EQ(after, 21);
  EXPECT_FALSE(full({1}, 1.0).requires_grad_().exp().grad_fn()->del_post_hook(kept));
}

TEST(NodeHooks, MayRemoveThemselvesWhileTheyRun) {
  const Product p;
  int calls = 0;
  auto key = std::make_shared<std::uint64_t>();
  *key = p.node->add_post_hook([&calls, key, node = p.node.get()](GradList&, const GradList&) {
    ++calls;
    EXPECT_TRUE(node->del_post_hook(*key));
  });
  p.backward();
  p.backward();
  EXPECT_EQ(calls, 1);
}

TEST(NodeHooks, OfATensorAreHooksOfItsNode) {
  const Product p;
  const std::uint64_t id = p.z.register_hook([](const Tensor& g) { return g * 3; });
  p.backward();
  EXPECT_EQ(p.taken(), 15);
  EXPECT_TRUE(p.node->del_pre_hook(id));
  p.backward();
  EXPECT_EQ(p.taken(), 5);
  EXPECT_THROW(p.z.remove_hook(id), IndexError);
}

TEST(NodeHooks, ThatAreEmptyAreRefused) {
  const Product p;
  EXPECT_THROW(p.node->add_pre_hook(nullptr), Error);
  EXPECT_THROW(p.node->add_post_hook(nullptr), Error);
}

}  // namespace
}  // namespace athanor::node_hooks_test
