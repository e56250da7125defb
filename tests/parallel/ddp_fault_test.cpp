// A rank that dies or hangs in the middle of data-parallel training.
#include "athanor/parallel/ddp.h"
#include "tests/distributed/faults.h"

namespace athanor::nn::parallel {
namespace {

// Several buckets, reduced beside backward or at its end.
void train(const distributed::ProcessGroupPtr& group, unsigned seed) {
  set_num_threads(1);
  manual_seed(seed);
  Sequential net(Linear(64, 256), ReLU(), Linear(256, 256), ReLU(), Linear(256, 64));
  DistributedDataParallel ddp(
      net, DistributedDataParallelOptions().process_group(group).overlap(seed % 2 == 0).bucket_cap_mb(0.1));
  const Tensor x = randn({32, 64});
  for (int step = 0; step < 60; ++step) {
    ddp->zero_grad();
    ddp(x).pow(2).mean().backward();
  }
}

TEST(Faults, RankLostDuringDataParallelBackwardIsNamedByTheOthers) { distributed::faults::run_with_faults(8, train); }

// What the program never called itself is said in words, not as a line of the library.
TEST(Faults, AMismatchInBackwardNamesTheBucket) {
  distributed::TCPStoreOptions server;
  server.port = 0;
  server.is_server = true;
  const distributed::TCPStore store("127.0.0.1", server);
  const auto ends = distributed::run_processes(2, [&](int rank) {
    distributed::TCPStoreOptions client;
    client.port = store.port();
    distributed::ProcessGroupOptions options;
    options.rank = rank;
    options.size = 2;
    options.name = "mismatch";
    options.timeout = std::chrono::seconds(20);
    const auto group = std::make_shared<distributed::ProcessGroup>(
        std::make_shared<distributed::TCPStore>("127.0.0.1", client), options);
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

}  // namespace
}  // namespace athanor::nn::parallel
