#include "athanor/autograd/graph_dot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "athanor/ops/factory.h"

namespace athanor::autograd {

using testing::HasSubstr;
using testing::Not;

TEST(ToDot, ShowsNodesLeavesAndArrowsOnce) {
  Tensor w = ones({3, 2}).requires_grad_(), x = ones({4, 3});
  const Tensor y = x.mm(w), loss = (y * y).sum();
  const std::string dot = to_dot({loss, y}, {{"fc.\"w\"", w}});
  EXPECT_EQ(dot,
            "digraph autograd {\n  node [shape=ellipse, fontname=\"monospace\"];\n"
            "  n1 [label=\"SumBackward0\\n[]\"];\n"
            "  n2 [label=\"MulBackward0\\n[4, 2]\"];\n"
            "  n3 [label=\"MmBackward0\\n[4, 2]\"];\n"
            "  n4 [label=\"fc.\\\"w\\\"\\n[3, 2]\", shape=box, style=filled, fillcolor=lightblue];\n"
            "  n1 -> n2;\n  n2 -> n3;\n  n2 -> n3;\n  n3 -> n4;\n}\n");
}

TEST(ToDot, GraphOfAnyDepthAndNoneAtAll) {
  Tensor x = ones({1}).requires_grad_(), y = x;
  for (int i = 0; i < 20000; ++i) y = y + 1;
  EXPECT_THAT(to_dot({y}), HasSubstr("n20001 [label=\"[1]\", shape=box"));
  EXPECT_THAT(to_dot({ones({1})}), Not(HasSubstr("n1")));
  EXPECT_THROW(to_dot({Tensor()}), ValueError);
}

}  // namespace athanor::autograd
