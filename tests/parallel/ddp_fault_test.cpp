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

}  // namespace
}  // namespace athanor::nn::parallel
