// What ranks say to each other on their control connections when one of them does not listen.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "athanor/distributed/store/hash_store.h"
#include "athanor/distributed/transport/arena.h"
#include "athanor/distributed/transport/mesh.h"
#include "distributed/variables.h"

namespace athanor::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ControlFrames : public testing::TestWithParam<const char*> {
 protected:
  // Both ends of a group of two.
  std::pair<std::unique_ptr<Mesh>, std::unique_ptr<Mesh>> connect() const {
    const ScopedVariable transport("ATHANOR_TRANSPORT", GetParam());
    const auto store = std::make_shared<HashStore>();
    const auto make = [&](int rank) {
      BackendOptions options;
      options.store = store;
      options.rank = rank;
      options.size = 2;
      options.group_name = "test";
      options.timeout = seconds(40);
      return std::make_unique<Mesh>(options, &Arena::bytes);
    };
    auto other = std::async(std::launch::async, make, 1);
    auto own = make(0);
    return {std::move(own), other.get()};
  }
};

// More than the connection takes while nobody listens.
void tell_too_much(Mesh& talker) {
  for (int i = 0; i < 6000; ++i) talker.tell_wait(std::string(static_cast<std::size_t>(3000 + i % 1000), 'x'));
}

TEST_P(ControlFrames, ThatDidNotFitAtOnceLeaveTheNextOnesReadable) {
  const auto [talker, listener] = connect();
  for (int round = 0; round < 3; ++round) {
    tell_too_much(*talker);
    const std::string word = athanor::detail::str("word ", round);
    const Deadline deadline = Deadline::after(seconds(20));
    while (listener->told_waits().find(word) == std::string::npos && !listener->broken() && !deadline.expired()) {
      listener->hear();
      talker->hear();
      talker->tell_wait(word);
    }
    ASSERT_NO_THROW(listener->check());
    ASSERT_NE(listener->told_waits().find(word), std::string::npos) << "round " << round;
  }
}

TEST_P(ControlFrames, OfAnAbortComeThroughBehindAllOthers) {
  const auto [talker, listener] = connect();
  tell_too_much(*talker);
  talker->abort("the last word");
  const Deadline deadline = Deadline::after(seconds(20));
  while (!listener->broken() && !deadline.expired()) {
    listener->sleep(Bell::Messages, {}, Deadline::after(milliseconds(20)));
    talker->hear();
  }
  try {
    listener->check();
    FAIL() << "not broken";
  } catch (const DistBackendError& error) {
    EXPECT_STREQ(error.what(), "the last word");
  }
}

// A listener that comes to itself while the talker goes.
class Listening {
 public:
  explicit Listening(Mesh& mesh) : mesh_(mesh) {}
  ~Listening() { end(); }
  /// Hears what is left, and stops.
  void end() {
    if (!thread_.joinable()) return;
    ended_ = true;
    thread_.join();
    mesh_.hear();
  }

 private:
  Mesh& mesh_;
  std::atomic<bool> ended_{false};
  std::thread thread_{[this] {
    const Deadline deadline = Deadline::after(seconds(20));
    while (!ended_ && !deadline.expired()) mesh_.hear();
  }};
};

TEST_P(ControlFrames, OfAGoodbyeComeThroughBeforeTheEndOfTheTalker) {
  auto [talker, listener] = connect();
  tell_too_much(*talker);
  Listening listening(*listener);
  talker->say_goodbye();
  talker.reset();
  listening.end();
  EXPECT_TRUE(listener->has_left(0));
  EXPECT_NO_THROW(listener->check());
}

TEST_P(ControlFrames, OfAnAbortComeThroughBeforeTheEndOfTheTalker) {
  auto [talker, listener] = connect();
  tell_too_much(*talker);
  Listening listening(*listener);
  talker->abort("the last word");
  talker.reset();
  listening.end();
  try {
    listener->check();
    FAIL() << "not broken";
  } catch (const DistBackendError& error) {
    EXPECT_STREQ(error.what(), "the last word");
  }
}

TEST_P(ControlFrames, OfATalkerThatLeavesWaitOnlyAMomentForAListenerThatNeverListens) {
  auto [talker, listener] = connect();
  tell_too_much(*talker);
  const Deadline limit = Deadline::after(seconds(10));
  talker->say_goodbye();
  talker.reset();
  EXPECT_FALSE(limit.expired());
}

INSTANTIATE_TEST_SUITE_P(All, ControlFrames, testing::Values("auto", "tcp"),
                         [](const auto& info) { return info.index == 0 ? "shared" : "sockets"; });

}  // namespace
}  // namespace athanor::distributed
