// A rank that dies or hangs in the middle of data-parallel training.
#include "athanor/athanor.h"
#include "athanor/distributed/flight_recorder.h"
#include "athanor/parallel/average_gradients.h"
#include "athanor/parallel/comm_hooks.h"
#include "athanor/parallel/ddp.h"
#include "tests/distributed/faults.h"
#include "tests/distributed/served_store.h"

namespace athanor::nn::parallel {
namespace {

using distributed::faults::Plan;
using distributed::faults::Scene;

// Of the bucket in backward, and in words of what else ranks do for it.
constexpr const char* kPlace =
    "in (DistributedDataParallel's backward, bucket [0-9]+ \\([^\n]*\\)|DistributedDataParallel: how to reduce|"
    "comparing the ranks' models|[^\n]*DistributedDataParallel[^\n]*)";

// Several buckets, reduced beside backward or at its end.
void train(Scene& scene) {
  set_num_threads(1);
  manual_seed(scene.plan.seed);
  Sequential net(Linear(64, 256), ReLU(), Linear(256, 256), ReLU(), Linear(256, 64));
  scene.enter("construction");
  DistributedDataParallel ddp(
      net,
      DistributedDataParallelOptions().process_group(scene.group).overlap(scene.plan.seed % 2 == 0).bucket_cap_mb(0.1));
  const Tensor x = randn({32, 64});
  for (int step = 0; step < 60; ++step) {
    ddp->zero_grad();
    scene.enter("forward");
    const Tensor loss = ddp(x).pow(2).mean();
    scene.enter("backward");
    loss.backward();
  }
}

TEST(Faults, RankLostDuringDataParallelBackwardIsNamedByTheOthers) {
  ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN();
  using namespace distributed::faults;
  run_with_faults(8, {kInit, "construction", "forward", "backward", kTeardown}, {train, kPlace});
}

TEST(Faults, InBackwardAreNamedWithTheirBucket) {
  ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN();
  using namespace distributed::faults;
  std::vector<Plan> plans;
  for (const bool kill : {false, true})
    for (const bool overlap : {false, true})
      for (const std::vector<int>& apart : {std::vector<int>{}, std::vector<int>{0, 1, 2}, std::vector<int>{1}}) {
        Plan plan;
        plan.name = overlap ? "beside backward" : "at the end of backward";
        plan.seed = overlap ? 2 : 1;
        plan.phase = "backward";
        plan.count = 3;
        plan.kill = kill;
        plan.timeout = milliseconds(kill ? 20'000 : 2000) * kSlow;
        plan.apart = apart;
        plans.push_back(plan);
      }
  const auto named = [](const Plan& plan, const Outcome& outcome) {
    std::string problems;
    for (std::size_t rank = 0; rank < outcome.ends.size(); ++rank)
      if (static_cast<int>(rank) != plan.victim &&
          outcome.ends[rank].error.find("backward, bucket ") == std::string::npos)
        problems += str(plan.text(), ": rank ", rank, " names no bucket: ", outcome.ends[rank].error, "\n");
    return problems;
  };
  EXPECT_EQ(run_side_by_side(plans, {train, kPlace}, 6, named), "");
}

// What the program never called itself is said in words, not as a line of the library.
TEST(Faults, AMismatchInBackwardNamesTheBucket) {
  const distributed::ServedStore store;
  const auto ends = distributed::run_processes(2, [&](int rank) {
    distributed::ProcessGroupOptions options;
    options.rank = rank;
    options.size = 2;
    options.name = "mismatch";
    options.timeout = std::chrono::seconds(20);
    const auto group = std::make_shared<distributed::ProcessGroup>(store.connect(), options);
    Sequential net(Linear(4, 3), Linear(3, 2));
    DistributedDataParallel ddp(net, DistributedDataParallelOptions().process_group(group));
    Tensor loss = ddp(ones({1, 4})).sum();
    if (rank == 0) loss.backward();
    Tensor other = ones({5});
    group->all_reduce(other);
  });
  for (const distributed::RankEnd& end : ends) {
    EXPECT_NE(end.error.find("in DistributedDataParallel's backward, bucket 0 ("), std::string::npos) << end.error;
    EXPECT_NE(end.error.find(".bias"), std::string::npos) << end.error;
    EXPECT_EQ(end.error.find("reducer.cpp"), std::string::npos) << end.error;
  }
}

TEST(Faults, NoCallOfDataParallelTrainingIsNamedByALineOfTheLibrary) {
  const distributed::ServedStore store;
  const auto ends = distributed::run_processes(2, [&](int rank) {
    distributed::ProcessGroupOptions options;
    options.rank = rank;
    options.size = 2;
    options.timeout = std::chrono::seconds(20);
    const auto group = std::make_shared<distributed::ProcessGroup>(store.connect(), options);
    Sequential net(Linear(4, 3), Linear(3, 2)), other(Linear(4, 3));
    const auto wrapped = DistributedDataParallelOptions().process_group(group).overlap(true);
    comm_hooks::PowerSGDOptions power;
    power.start_powerSGD_iter = 2, power.min_compression_rate = 0.1;
    DistributedDataParallel plain(net, DistributedDataParallelOptions(wrapped).find_unused_parameters(true));
    DistributedDataParallel hooked(other, wrapped);
    hooked->register_comm_hook(std::make_shared<comm_hooks::PowerSGDState>(group, power), comm_hooks::powerSGD_hook);
    plain(ones({1, 4})).sum().backward();
    for (int step = 0; step < 4; ++step) hooked(ones({1, 4})).sum().backward();
    average_gradients(*net, group);
    const std::string calls = group->flight_recorder().text();
    if (calls.find("the order of its gradients") == std::string::npos || calls.find(".cpp") != std::string::npos)
      throw Error(calls);
  });
  for (const distributed::RankEnd& end : ends) EXPECT_TRUE(end.good()) << end.error;
}

}  // namespace
}  // namespace athanor::nn::parallel
