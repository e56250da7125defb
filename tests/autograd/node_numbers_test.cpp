#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "athanor/ops/factory.h"
#include "athanor/ops/history.h"

namespace athanor::autograd {

namespace {
/// Whether the node of `t` has a greater number than all that it leads to.
bool is_above_its_edges(const Tensor& t) {
  const auto node = grad_fn(t);
  for (std::size_t i = 0; i < node->num_edges(); ++i)
    if (node->edge(i).node && node->edge(i).node->sequence_nr() >= node->sequence_nr()) return false;
  return true;
}
}  // namespace

// Threads take numbers in blocks: the one that began first has smaller ones left than the nodes it builds on.
TEST(NodeNumbers, RiseFromWhatAnotherThreadRecordedLater) {
  const Tensor x = full({1}, 2.0, kDouble).requires_grad_();
  std::promise<void> began;
  std::promise<Tensor> longer;
  auto other = std::async(std::launch::async, [&, given = longer.get_future()]() mutable {
    const Tensor first = x * 3;
    began.set_value();
    if (given.wait_for(std::chrono::seconds(60)) != std::future_status::ready) return Tensor();
    const Tensor joined = given.get() * first;
    EXPECT_TRUE(is_above_its_edges(joined));
    return joined;
  });
  ASSERT_EQ(began.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  Tensor chain = x;
  for (int i = 0; i < 3000; ++i) chain = chain + 1;
  longer.set_value(chain);
  const Tensor joined = other.get();
  ASSERT_TRUE(joined.defined());
  const Tensor y = joined * chain;
  EXPECT_TRUE(is_above_its_edges(y));
  y.backward();
  EXPECT_EQ(x.grad().item<double>(), 3 * 3002.0 * 3002.0 + 3 * 2.0 * 2 * 3002.0);  // of 3 x (x + 3000)²
}

}  // namespace athanor::autograd
