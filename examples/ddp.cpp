// Data-parallel training from beginning to end: two ranks fit a line. Start it by itself, or one process per rank with
// `athanor run --nproc-per-node 2 build/bin/ddp`.
#include <cstdio>
#include <cstdlib>

#include "athanor/athanor.h"
#include "athanor/data/distributed_sampler.h"
#include "athanor/distributed/collectives.h"
#include "athanor/distributed/spawn.h"
#include "athanor/parallel/ddp.h"

using namespace athanor;

void train(const std::string& init_method, int rank, int size) {
  distributed::init_process_group("tcp", init_method, size, rank);
  // y = 3 x - 2, all of it on every rank; the sampler gives each rank its share.
  const Tensor x = linspace(-1, 1, 512).unsqueeze(1), y = 3 * x - 2;
  data::DistributedSampler sampler(512);
  nn::Linear net(1, 1);  // whatever each rank begins with, all get rank 0's
  nn::parallel::DistributedDataParallel ddp(net);
  optim::SGD optimizer(ddp->parameters(), 0.2);
  for (std::size_t epoch = 0; epoch < 20; ++epoch) {
    sampler.set_epoch(epoch);
    sampler.reset();
    while (const auto picked = sampler.next(32)) {
      const Tensor rows = tensor(std::vector<std::int64_t>(picked->begin(), picked->end()));
      optimizer.zero_grad();
      mse_loss(ddp(x.index_select(0, rows)), y.index_select(0, rows)).backward();  // averages the gradients
      optimizer.step();
    }
  }
  if (distributed::get_rank() == 0)
    std::printf("y = %.3f x %+.3f, by %d ranks\n", net->weight.item<double>(), net->bias.item<double>(),
                distributed::get_world_size());
  distributed::destroy_process_group();
}

int main() {
  if (std::getenv("WORLD_SIZE"))
    train("env://", -1, -1);  // a launcher has started the ranks
  else
    distributed::spawn([](int rank) { train("env://", rank, 2); }, 2);
}
