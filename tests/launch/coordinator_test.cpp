#include "athanor/launch/coordinator.h"

#include <gtest/gtest.h>

#include "athanor/base/error.h"

namespace athanor::launch {
namespace {

using athanor::detail::str;
using Time = Coordinator::Time;
using std::chrono::seconds;

// A coordinator with a clock of its own. Nodes are named "n0", "n1", …; n0 serves the store.
class Rounds : public testing::Test {
 protected:
  void begin(Backend backend, int min, int max, int restarts = 0) {
    options_.backend = backend;
    options_.min_nodes = min;
    options_.max_nodes = max;
    options_.max_restarts = restarts;
    coordinator_.emplace(options_, "n0", now_);
  }
  Member node(int number) const {
    Member m;
    m.id = m.host = str("n", number);
    m.node_rank = options_.backend == Backend::Static ? number : -1;
    m.run_id = options_.run_id;
    m.min_nodes = options_.min_nodes;
    m.max_nodes = options_.max_nodes;
    return m;
  }
  void join(int number) {
    Request request;
    request.id = str("n", number);
    request.member = node(number);
    send(request);
  }
  void say(Request::Kind kind, int number, int rank = 0) {
    Request request;
    request.kind = kind;
    request.id = str("n", number);
    request.round = state().round;
    if (kind == Request::Failed) request.failure.emplace().rank = rank;
    send(request);
  }
  // As it arrives over the wire.
  void send(const Request& request) { coordinator_->on_request(Request::from_json(request.json()), now_); }
  void pass(Seconds time) {
    now_ += std::chrono::duration_cast<Time::duration>(time);
    coordinator_->on_time(now_);
  }
  const State& state() const { return coordinator_->state(); }
  std::string order() const {
    std::string all;
    for (const Member& m : state().members) all += m.id + " ";
    return all;
  }

  LaunchOptions options_;
  Time now_{};
  std::optional<Coordinator> coordinator_;
};

TEST_F(Rounds, StaticNodesAreOrderedByNumber) {
  begin(Backend::Static, 3, 3);
  for (const int n : {2, 0, 1}) {
    EXPECT_EQ(state().phase, State::Forming);
    join(n);
  }
  EXPECT_EQ(state().phase, State::Running);
  EXPECT_EQ(order(), "n0 n1 n2 ");
}

TEST_F(Rounds, StoresHostIsFirstOtherwiseTheOrderOfComing) {
  begin(Backend::C10d, 3, 3);
  for (const int n : {2, 1, 0}) join(n);
  EXPECT_EQ(order(), "n0 n2 n1 ");
}

TEST_F(Rounds, OrderIsKeptOverRestarts) {
  begin(Backend::C10d, 3, 3, 1);
  for (const int n : {0, 2, 1}) join(n);
  say(Request::Failed, 1);
  for (const int n : {1, 2, 0}) join(n);
  EXPECT_EQ(order(), "n0 n2 n1 ");
  EXPECT_EQ(state().restarts, 1);
}

TEST_F(Rounds, LastCallStartsWithFewer) {
  begin(Backend::C10d, 2, 4);
  join(0);
  pass(seconds(100));
  join(1);
  pass(seconds(29));
  EXPECT_EQ(state().phase, State::Forming);
  pass(seconds(1));
  EXPECT_EQ(state().phase, State::Running);
  EXPECT_EQ(coordinator_->next_time(), Time::max());
}

TEST_F(Rounds, ThoseWhoAreStillStoppingAreAwaitedBeyondTheLastCall) {
  begin(Backend::C10d, 1, 3);
  join(0);
  pass(seconds(30));
  ASSERT_EQ(state().phase, State::Running);
  join(1);
  pass(seconds(100));
  EXPECT_EQ(state().phase, State::Forming);
  join(0);
  EXPECT_EQ(state().phase, State::Running);
  EXPECT_EQ(order(), "n0 n1 ");
  EXPECT_EQ(state().restarts, 0);
}

TEST_F(Rounds, EveryStateIsTold) {
  begin(Backend::C10d, 1, 2);
  join(0);
  pass(seconds(30));
  coordinator_->take_news();
  join(1);
  join(0);
  const auto news = coordinator_->take_news();
  ASSERT_EQ(news.size(), 2u);
  EXPECT_EQ(news[0].phase, State::Forming);
  EXPECT_EQ(news[1].phase, State::Running);
  EXPECT_TRUE(coordinator_->take_news().empty());
}

TEST_F(Rounds, FirstFailureOfARoundCounts) {
  begin(Backend::Static, 2, 2, 1);
  join(0);
  join(1);
  say(Request::Failed, 1, 5);
  Request late;
  late.kind = Request::Failed;
  late.id = "n0";
  late.round = 0;
  late.failure.emplace().rank = 3;
  send(late);
  EXPECT_EQ(state().round, 1);
  EXPECT_EQ(state().failure->rank, 5);
  join(0);
  join(1);
  say(Request::Failed, 0, 2);
  EXPECT_EQ(state().phase, State::Closed);
  EXPECT_FALSE(state().success);
  EXPECT_EQ(state().failure->rank, 2);
}

TEST_F(Rounds, JobEndsWhenAllHaveFinished) {
  begin(Backend::Static, 2, 2);
  join(0);
  join(1);
  say(Request::Finished, 1);
  say(Request::Finished, 1);
  EXPECT_EQ(state().phase, State::Running);
  coordinator_->on_silence("n1", now_);
  EXPECT_EQ(state().phase, State::Running) << "what it had to do was done";
  say(Request::Finished, 0);
  EXPECT_EQ(state().phase, State::Closed);
  EXPECT_TRUE(state().success);
}

TEST_F(Rounds, NewcomerDoesNotDisturbAJobThatEnds) {
  begin(Backend::C10d, 1, 3);
  join(0);
  join(1);
  pass(seconds(30));
  say(Request::Finished, 0);
  join(2);
  EXPECT_EQ(state().phase, State::Running);
  say(Request::Finished, 1);
  EXPECT_TRUE(state().success);
}

TEST_F(Rounds, LostNodeOfAnElasticJobCostsNoRestart) {
  begin(Backend::C10d, 1, 3);
  for (const int n : {0, 1, 2}) join(n);
  coordinator_->on_silence("n1", now_);
  EXPECT_EQ(state().phase, State::Forming);
  EXPECT_NE(state().message.find("n1 gave no sign of life for 15"), std::string::npos) << state().message;
  join(2);
  join(0);
  EXPECT_EQ(order(), "n0 n2 ");
  EXPECT_EQ(state().restarts, 0);
}

// Its ranks' ends make the others' workers fail long before its silence is noticed.
TEST_F(Rounds, FailuresThatBlameALostNodeCostNoRestartEither) {
  const auto blame = [this](int number) {
    Request request;
    request.kind = Request::Failed;
    request.id = str("n", number);
    request.round = state().round;
    request.failure.emplace().rank = number;
    request.failure->ending.exit_code = 1;
    request.failure->message = str("all_reduce: rank ", number == 2 ? 0 : 2, " is gone: its process ended");
    send(request);
  };
  const auto begin_round = [this](int min) {
    begin(Backend::C10d, min, 3);
    for (const int n : {0, 1, 2}) join(n);
    ASSERT_EQ(state().phase, State::Running);
  };
  const Seconds patience = options_.times.keep_alive * options_.times.keep_alive_misses;

  begin_round(1);
  blame(0);
  blame(1);
  EXPECT_EQ(state().phase, State::Running);
  pass(patience);
  coordinator_->on_silence("n2", now_);
  EXPECT_EQ(state().phase, State::Forming);
  EXPECT_EQ(state().restarts, 0);
  EXPECT_FALSE(state().failure);
  join(0);
  join(1);
  EXPECT_EQ(order(), "n0 n1 ");
  // What they blamed is forgotten: the next failure is judged by itself.
  blame(1);
  EXPECT_EQ(state().phase, State::Running);

  begin_round(1);  // nobody is silent
  blame(1);
  EXPECT_LE(coordinator_->next_time(), now_ + std::chrono::duration_cast<Time::duration>(2 * patience));
  pass(2 * patience);
  EXPECT_EQ(state().phase, State::Closed);
  EXPECT_EQ(state().failure->rank, 1);

  begin_round(1);  // a better reason comes
  blame(1);
  say(Request::Failed, 2, 5);
  EXPECT_EQ(state().phase, State::Closed);
  EXPECT_EQ(state().failure->rank, 5);

  begin_round(1);  // all are there: the first counts
  for (const int n : {1, 0, 2}) blame(n);
  EXPECT_EQ(state().phase, State::Closed);
  EXPECT_EQ(state().failure->rank, 1);

  begin_round(3);  // a job of a fixed size would not go on in any case
  blame(1);
  EXPECT_EQ(state().phase, State::Closed);
}

TEST_F(Rounds, NodeLostWhileItIsAwaitedIsNotAwaitedAnyLonger) {
  begin(Backend::C10d, 1, 3, 1);
  for (const int n : {0, 1, 2}) join(n);
  say(Request::Failed, 2);
  join(0);
  join(2);
  EXPECT_EQ(state().phase, State::Forming);
  coordinator_->on_silence("n1", now_);
  EXPECT_EQ(state().phase, State::Running);
  EXPECT_EQ(order(), "n0 n2 ");
}

TEST_F(Rounds, LostNodeOfAFixedJobEndsItUnlessARestartIsLeft) {
  begin(Backend::Static, 2, 2);
  join(0);
  join(1);
  coordinator_->on_silence("n1", now_);
  EXPECT_EQ(state().phase, State::Closed);
  EXPECT_NE(state().message.find("node 1 (n1)"), std::string::npos) << state().message;

  begin(Backend::Static, 2, 2, 1);
  join(0);
  join(1);
  coordinator_->on_silence("n1", now_);
  EXPECT_EQ(state().phase, State::Forming);
  EXPECT_EQ(state().restarts, 1);
  join(0);
  Request successor;
  successor.id = "new";
  successor.member = node(1);
  successor.member.id = "new";
  send(successor);
  EXPECT_EQ(order(), "n0 new ");
}

TEST_F(Rounds, SuccessorThatComesBeforeTheLossIsNoticedWaits) {
  begin(Backend::Static, 2, 2, 1);
  join(0);
  join(1);
  Request successor;
  successor.id = "new";
  successor.member = node(1);
  successor.member.id = "new";
  send(successor);
  EXPECT_EQ(state().phase, State::Running);
  coordinator_->on_silence("n1", now_);
  join(0);
  EXPECT_EQ(state().phase, State::Running);
  EXPECT_EQ(order(), "n0 new ");
}

TEST_F(Rounds, LossOfTheStoresHostEndsTheJob) {
  begin(Backend::C10d, 1, 3, 5);
  join(0);
  join(1);
  join(2);
  say(Request::Leave, 0);
  EXPECT_EQ(state().phase, State::Closed);
  EXPECT_FALSE(state().success);
}

TEST_F(Rounds, SpareTakesAFreePlaceButNotThatOfOneWhoReturns) {
  begin(Backend::C10d, 2, 2, 1);
  for (const int n : {0, 1, 2}) join(n);
  say(Request::Failed, 0);
  join(0);
  EXPECT_EQ(state().phase, State::Forming);
  coordinator_->on_silence("n1", now_);
  EXPECT_EQ(state().phase, State::Closed) << "no restart is left";

  begin(Backend::C10d, 2, 2, 2);
  for (const int n : {0, 1, 2}) join(n);
  say(Request::Failed, 0);
  join(0);
  coordinator_->on_silence("n1", now_);
  EXPECT_EQ(order(), "n0 n2 ");
}

TEST_F(Rounds, SpareIsSentAwayInTheEnd) {
  begin(Backend::C10d, 1, 1);
  join(0);
  join(1);
  pass(coordinator_->next_time() - now_);
  EXPECT_NE(state().refused.at("n1").find("places"), std::string::npos);
  EXPECT_EQ(state().phase, State::Running);
  EXPECT_EQ(coordinator_->known(), std::vector<std::string>{"n0"});
}

TEST_F(Rounds, MissingNodesAreNamed) {
  begin(Backend::Static, 4, 4);
  join(0);
  join(2);
  pass(seconds(599));
  EXPECT_EQ(state().phase, State::Forming);
  pass(seconds(1));
  EXPECT_EQ(state().phase, State::Closed);
  EXPECT_EQ(state().message, "2 of 4 nodes came: n0 as 0, n2 as 2; missing: node 1, 3 within 600 s");
}

TEST_F(Rounds, StrangersAreRefusedWithTheReason) {
  begin(Backend::Static, 2, 2);
  join(0);
  Request request;
  const auto refused = [&](auto&& change) {
    request.member = node(1);
    request.id = request.member.id = str("stranger", state().refused.size());
    change(request.member);
    send(request);
    return state().refused.at(request.id);
  };
  EXPECT_NE(refused([](Member& m) { m.run_id = "other"; }).find("'other'"), std::string::npos);
  EXPECT_NE(refused([](Member& m) { m.max_nodes = 3; }).find("--nnodes"), std::string::npos);
  EXPECT_NE(refused([](Member& m) { m.node_rank = 0; }).find("--node-rank=0 is taken"), std::string::npos);
  join(1);
  EXPECT_EQ(state().phase, State::Running);
}

TEST(CoordinatorTexts, StatesAndRequestsSurviveTheWay) {
  State state;
  state.phase = State::Running;
  state.round = 3;
  state.restarts = 2;
  state.master_port = 4711;
  state.members.resize(2);
  state.members[1].id = "b";
  state.members[1].workers = 8;
  state.refused["c"] = "why \"not\"";
  state.failure.emplace().last_lines = "any\nbytes \xff here";
  const State back = State::from_json(state.json());
  EXPECT_EQ(back.json(), state.json());
  EXPECT_EQ(back.members[1].workers, 8);
  EXPECT_EQ(back.refused.at("c"), "why \"not\"");
  EXPECT_TRUE(back.failure->last_lines.starts_with("any\nbytes "));
}

TEST(CoordinatorTexts, MalformedTextsAreErrors) {
  for (const char* text : {"", "{", "[]", "{\"phase\":7}", "{\"kind\":0}", "null"}) {
    EXPECT_THROW(State::from_json(text), Error) << text;
    EXPECT_THROW(Request::from_json(text), Error) << text;
  }
}

}  // namespace
}  // namespace athanor::launch
