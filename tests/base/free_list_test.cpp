#include "athanor/base/free_list.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace athanor {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCaches = false;
#else
constexpr bool kCaches = true;
#endif

struct Node : FreeList<Node> {
  virtual ~Node() = default;
  std::int64_t value = 1;
};
struct BigNode : Node {
  char more[200] = {};
};
struct alignas(64) Wide : FreeList<Wide> {
  char bytes[64];
};

void* address_after_reuse() {
  auto* first = new Node;
  delete first;
  auto* second = new Node;
  delete second;
  return first == second ? second : nullptr;
}

TEST(FreeList, ReusesAFreedObject) {
  if (!kCaches) GTEST_SKIP();
  EXPECT_NE(address_after_reuse(), nullptr);
}

TEST(FreeList, KeepsABoundedNumber) {
  if (!kCaches) GTEST_SKIP();
  std::vector<std::unique_ptr<Node>> nodes;
  for (int i = 0; i < 3000; ++i) nodes.push_back(std::make_unique<Node>());
  nodes.clear();
  EXPECT_EQ(Node::kept(), Node::kLimit);
}

TEST(FreeList, LargerDerivedObjectsGoToTheHeap) {
  const auto kept = Node::kept();
  std::unique_ptr<Node> p = std::make_unique<BigNode>();
  p.reset();
  EXPECT_EQ(Node::kept(), kept);
}

TEST(FreeList, RespectsLargeAlignment) {
  std::vector<std::unique_ptr<Wide>> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(std::make_unique<Wide>());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all.back().get()) % 64, 0U);
  }
}

TEST(FreeList, ObjectsMayBeFreedOnAnotherThread) {
  std::vector<std::unique_ptr<Node>> nodes;
  for (int i = 0; i < 3000; ++i) nodes.push_back(std::make_unique<Node>());
  const auto kept = Node::kept();
  std::uint32_t there = 0;
  std::thread([&] {
    nodes.clear();
    there = Node::kept();
  }).join();
  EXPECT_EQ(Node::kept(), kept);
  if (kCaches) {
    EXPECT_EQ(there, Node::kLimit);
  }
}

struct Holder {
  std::unique_ptr<Node> node;
};
Holder at_exit;

TEST(FreeList, ObjectsMayBeFreedAfterTheirThreadsListIsGone) {
  at_exit.node = std::make_unique<Node>();  // freed by a static destructor
  std::thread([] {
    thread_local Holder holder;  // destroyed after the list, which is set up later
    holder.node = std::make_unique<Node>();
    delete new Node;
  }).join();
}

}  // namespace
}  // namespace athanor
