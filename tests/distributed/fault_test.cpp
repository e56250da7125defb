// Ranks that die or hang: the others end by themselves, say who it was, and leave nothing.
#include "tests/distributed/faults.h"

#include <gmock/gmock.h>

#include "athanor/distributed/backend.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/tensor.h"
#include "tests/distributed/served_store.h"
#include "tests/distributed/variables.h"

namespace athanor::distributed::fault_test {
namespace {

using faults::Plan;
using faults::Scene;
using faults::str;
using std::chrono::milliseconds;

const std::vector<const char*> kCalls = {"send, recv", "broadcast", "all_reduce",     "reduce",     "all_gather",
                                         "gather",     "scatter",   "reduce_scatter", "all_to_all", "barrier"};
constexpr const char* kHere = "at fault_test\\.cpp:[0-9]+";

std::vector<const char*> all_phases() {
  std::vector<const char*> all = kCalls;
  all.insert(all.begin(), faults::kInit);
  all.push_back(faults::kTeardown);
  return all;
}

void exchange_in_a_ring(ProcessGroup& group, const Tensor& x) {
  const int n = group.size(), me = group.rank();
  Tensor z = empty_like(x);
  const WorkPtr sent = group.isend(x, (me + 1) % n, 3), received = group.irecv(z, (me + n - 1) % n, 3);
  received->wait();
  sent->wait();
}

// A call of that name, of `count` elements a rank.
void call(ProcessGroup& group, const std::string& name, std::int64_t count, int root, bool async) {
  const int n = group.size();
  const bool is_root = group.rank() == root;
  Tensor x = ones({count}), y = zeros({count * n});
  const std::vector<Tensor> parts = y.chunk(n), none;
  WorkPtr work;
  if (name == "send, recv") exchange_in_a_ring(group, x);
  if (name == "broadcast") work = group.broadcast(x, root, async);
  if (name == "all_reduce") work = group.all_reduce(x, async ? ReduceOp::MAX : ReduceOp::SUM, async);
  if (name == "reduce") work = group.reduce(x, root, ReduceOp::SUM, async);
  if (name == "all_gather") work = group.all_gather_into_tensor(y, x, async);
  if (name == "gather") work = group.gather(is_root ? parts : none, x, root, async);
  if (name == "scatter") work = group.scatter(x, is_root ? parts : none, root, async);
  if (name == "reduce_scatter") work = group.reduce_scatter_tensor(x, y, ReduceOp::SUM, async);
  if (name == "all_to_all") work = group.all_to_all_single(y, zeros({count * n}), {}, {}, async);
  if (name == "barrier") work = group.barrier(async);
  if (work) work->wait();
}

// The same random calls on every rank, until something goes wrong or all is done.
void random_calls(Scene& scene) {
  ProcessGroup& group = *scene.group;
  std::mt19937 random(scene.plan.seed);
  const int calls = scene.plan.phase.empty() ? 400 : 60;
  for (int i = 0; i < calls; ++i) {
    // A few are so large that they are read from the other's memory.
    const auto count = static_cast<std::int64_t>(1) << (random() % 16 == 0 ? 22 : random() % 18);
    const int root = static_cast<int>(random() % static_cast<unsigned>(group.size()));
    const char* name = kCalls[random() % kCalls.size()];
    const bool async = random() % 4 == 0;
    scene.enter(name);
    call(group, name, name == std::string("all_to_all") ? count / 4 + 1 : count, root, async);
  }
}

TEST(Faults, SurvivorsOfARandomFaultNameTheRankAndEnd) {
  ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN();
  faults::run_with_faults(16, all_phases(), {random_calls, kHere});
}

// Calls of the plan's phase, the root going round, until all is done.
void calls_of_the_phase(Scene& scene) {
  constexpr int kRounds = 6;
  if (scene.plan.phase != faults::kInit && scene.plan.phase != faults::kTeardown)
    for (int i = 0; i < kRounds; ++i) {
      scene.enter(
          kCalls[static_cast<std::size_t>(std::find(kCalls.begin(), kCalls.end(), scene.plan.phase) - kCalls.begin())]);
      call(*scene.group, scene.plan.phase, 1000, i % scene.group->size(), false);
    }
  scene.group->barrier();
}

// One at least is in a call of the phase, the others there or in the next.
std::string expect_the_phase_in(const Plan& plan, const faults::Outcome& outcome) {
  if (plan.phase == faults::kTeardown) return {};
  std::string said;
  bool named = plan.phase == faults::kInit, raised = true;
  for (std::size_t rank = 0; rank < outcome.ends.size(); ++rank) {
    if (static_cast<int>(rank) == plan.victim) continue;
    const std::string& error = outcome.ends[rank].error;
    const std::string name = plan.phase == "send, recv" ? "recv from rank" : plan.phase;
    named = named || error.find(name) != std::string::npos;
    raised = raised && !error.empty();
    said += str("\n  rank ", rank, ": ", error);
  }
  return named && raised ? std::string()
                         : str(plan.text(), ": a survivor did not raise, or none names the phase", said);
}

TEST(Faults, InEveryPhaseAreEverybodysErrorAndLeaveNothing) {
  ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN();
  std::vector<Plan> plans;
  for (const bool kill : {false, true})
    for (const std::string phase : all_phases()) {
      Plan plan;
      plan.name = "by phase";
      plan.phase = phase;
      plan.kill = kill;
      plan.count = phase == faults::kInit || phase == faults::kTeardown ? 1 : 3;
      plan.timeout = milliseconds(kill ? 20'000 : 1500) * faults::kSlow;
      // Before all have met, only the deadline tells that one will not come.
      if (phase == faults::kInit) plan.timeout = milliseconds(1500) * faults::kSlow;
      for (const std::vector<int>& apart : {std::vector<int>{}, std::vector<int>{0, 1, 2}, std::vector<int>{1}}) {
        plan.apart = apart;
        plans.push_back(plan);
      }
    }
  EXPECT_EQ(faults::run_side_by_side(plans, {calls_of_the_phase, kHere}, 8, expect_the_phase_in), "");
}

// Fails in the middle of a sum, in the operator's `nth` block.
void sums_with_a_fatal_operator(Scene& scene, std::int64_t count, int nth, bool shared) {
  ProcessGroup& group = *scene.group;
  int blocks = 0;
  const auto fatal = ReduceOp::user("fatal", [&](void* inout, const void* in, std::int64_t n, DType) {
    for (std::int64_t i = 0; i < n; ++i) static_cast<float*>(inout)[i] += static_cast<const float*>(in)[i];
    if (++blocks == nth && scene.is_victim()) scene.fail();
  });
  std::shared_ptr<void> memory;
  if (shared) memory = group.allocate_shared(static_cast<std::size_t>(count) * sizeof(float));
  ATHANOR_CHECK(!shared || memory, "there is no shared memory");
  Tensor sum = shared ? from_blob(memory.get(), {count}, TensorOptions(kFloat)) : empty({count});
  for (int i = 0; i < 3; ++i) {
    sum.fill_(1);
    group.all_reduce(sum, fatal);
  }
  group.barrier();
}

struct Sum {
  const char* name;
  std::int64_t count;
  int nth;
  bool shared = false;
  const char* staged = nullptr;  // ATHANOR_STAGED_SUMS
};
void PrintTo(const Sum& sum, std::ostream* out) { *out << sum.name; }

class FaultInASum : public testing::TestWithParam<Sum> {};

TEST_P(FaultInASum, IsEverybodysError) {
  const Sum sum = GetParam();
  std::optional<ScopedVariable> staged;
  if (sum.staged != nullptr) staged.emplace("ATHANOR_STAGED_SUMS", sum.staged);
  for (const bool kill : {true, false}) {
    Plan plan;
    plan.name = sum.name;
    plan.kill = kill;
    // The group's set-up has to be over by then, too.
    plan.timeout = milliseconds(kill ? 20'000 : 1500 * std::min(faults::busyness(), 5)) * faults::kSlow;
    const auto outcome = faults::run_with_fault(
        plan, {[&](Scene& scene) { sums_with_a_fatal_operator(scene, sum.count, sum.nth, sum.shared); }, kHere});
    EXPECT_EQ(outcome.problems, "");
    for (const int rank : {0, 2}) EXPECT_FALSE(outcome.ends[static_cast<std::size_t>(rank)].good()) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, FaultInASum,
                         testing::Values(Sum{"OnePhase", 10'000, 2}, Sum{"TwoPhases", 200'000, 5},
                                         Sum{"FromTheOthersMemory", 1'500'000, 20, false, "0"},
                                         Sum{"LargeInTwoPhases", 1'500'000, 20, false, "1"},
                                         Sum{"InPlace", 1'500'000, 20, true}),
                         [](const auto& info) { return info.param.name; });

// What rank 0 says when rank 2 is killed while rank 1 computes outside of calls.
std::string error_beside_a_busy_rank(Plan plan) {
  const faults::Shared<std::atomic<bool>> busy, raised;
  const auto outcome = faults::run_with_fault(plan, {[&](Scene& scene) {
                                                       scene.group->barrier();
                                                       const Deadline limit = Deadline::after(plan.timeout);
                                                       if (scene.rank == 1) *busy = true;
                                                       if (scene.is_victim()) {
                                                         while (!*busy && !limit.expired()) {
                                                         }
                                                         scene.fail();
                                                       }
                                                       while (scene.rank == 1 && !*raised && !limit.expired())
                                                         std::this_thread::yield();
                                                       try {
                                                         scene.group->all_reduce(ones({8}));
                                                       } catch (const Error&) {
                                                         if (scene.rank == 0) *raised = true;
                                                         throw;
                                                       }
                                                     },
                                                     kHere});
  EXPECT_EQ(outcome.problems, "");
  EXPECT_THAT(outcome.ends[0].error, testing::HasSubstr("rank 2 is gone"));
  return outcome.ends[0].error;
}

// Rank 1 computes and hears nothing, rank 2 is gone: rank 0 must not wait for a word of rank 1. A thread of rank 1
// tells in time what it did last, unless other programs keep it from running: then rank 0 says that it heard nothing.
TEST(Faults, ARankThatIsBusyOutsideOfCallsDoesNotHoldUpTheErrorOfAKilledOne) {
  for (const bool apart : {false, true}) {
    Plan plan;
    plan.name = "busy";
    plan.victim = 2;
    plan.only_timed = 0;  // rank 1 learns of it later, as it comes to its call
    plan.timeout = std::chrono::seconds(20) * faults::kSlow;
    if (apart) plan.apart = {0, 1, 2};
    constexpr int kTurns = 8;
    std::string error;
    bool told = false;
    for (int turn = 0; turn < kTurns && !told && !HasFailure(); ++turn) {
      error = error_beside_a_busy_rank(plan);
      told = error.find("rank 1: completed up to number 1") != std::string::npos;
      if (!told) {
        EXPECT_THAT(error, testing::HasSubstr("rank 1: left no record within"));
      }
    }
    EXPECT_TRUE(told) << error;
  }
}

// Rank 3 hangs on the stopped rank 1, and rank 2, which has all it needs of rank 1, waits for rank 3.
TEST(Faults, WhoeverWaitsForARankThatIsHeldUpNamesTheOneThatHoldsItUp) {
  const ServedStore store;
  constexpr int kRanks = 4, kStopped = 1, kLate = 3;
  const auto ends = run_processes(
      kRanks,
      [&](int rank) {
        ::setenv("ATHANOR_TRANSPORT", "tcp", 1);
        BackendOptions options;
        options.store = store.connect();
        options.rank = rank;
        options.size = kRanks;
        options.group_name = "held up";
        options.timeout = std::chrono::milliseconds(rank == kLate ? 30'000 : 10'000);
        if (rank == kStopped) options.store->set("pid", std::to_string(::getpid()));
        if (rank == kLate) {
          // The others only need to see some card of the last rank to go as far as they can without it.
          std::istringstream words(options.store->get_text("mesh/0"));
          std::string network, host, rest;
          words >> network >> host;
          std::getline(words, rest);
          options.store->set("mesh/3", faults::str(network, " ", network, "/", rank, rest));
          for (int r = 0; r < kLate; ++r)
            while (options.store->get_text(faults::str("setup/waits/", r)) != std::to_string(kLate)) ::usleep(5'000);
          ::kill(std::stoi(options.store->get_text("pid")), SIGSTOP);
        }
        make_backend("tcp", options);
      },
      std::chrono::seconds(40), {}, kStopped);
  for (const int rank : {0, 2, 3}) {
    EXPECT_FALSE(ends[static_cast<std::size_t>(rank)].good()) << "rank " << rank;
    EXPECT_NE(ends[static_cast<std::size_t>(rank)].error.find("rank 1"), std::string::npos)
        << "rank " << rank << ": " << ends[static_cast<std::size_t>(rank)].error;
  }
}

// Rank 0 gives up first. It waits for rank 2, to pass on what rank 1 should have sent: rank 2 says so in time.
TEST(Faults, ARankThatGivesUpNamesWhomTheOneItWaitsForWaitsFor) {
  const ServedStore store;
  constexpr int kRanks = 4, kStopped = 1;
  const auto ends = run_processes(
      kRanks,
      [&](int rank) {
        ::setenv("ATHANOR_TRANSPORT", "tcp", 1);
        ProcessGroupOptions options;
        options.backend = "tcp";
        options.name = "gives up";
        options.rank = rank;
        options.size = kRanks;
        options.timeout = milliseconds(rank == 0 ? 2000 : 25'000);
        ProcessGroup group(store.connect(), options);
        group.barrier();
        if (rank == kStopped) ::raise(SIGSTOP);
        group.broadcast(ones({1 << 22}), kStopped);
      },
      std::chrono::seconds(40), {}, kStopped);
  for (const int rank : {0, 2, 3})
    EXPECT_THAT(ends[static_cast<std::size_t>(rank)].error,
                testing::AllOf(testing::HasSubstr("rank 0 waited 2000 ms for rank 2"),
                               testing::ContainsRegex("Others wait too: .*rank 2: for rank 1.* in broadcast")))
        << "rank " << rank;
}

}  // namespace
}  // namespace athanor::distributed::fault_test
