// Steps of PyTorch's MNIST example on several ranks: what benchmarks/ddp_mnist.py starts.
//   bench_ddp [--ranks N] [--batch 64] [--threads 1] [--plain] [--overlap | --no-overlap] [--fp16]
// It starts the ranks itself, unless the environment says which one it is (RANK, as benchmarks/links.py does).
// Prints one JSON line: the median time of a step and the images per second of all ranks together.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include "athanor/athanor.h"
#include "athanor/base/env.h"
#include "athanor/distributed/collectives.h"
#include "athanor/distributed/spawn.h"
#include "athanor/models/mnist.h"
#include "athanor/parallel/comm_hooks.h"
#include "athanor/parallel/ddp.h"
#include "cli/command_line.h"

namespace {

using namespace athanor;
using Clock = std::chrono::steady_clock;

struct Flags {
  int ranks = 1, threads = 1, blocks = 9, steps = 10, warm_up = 10;
  std::int64_t batch = 64;
  bool plain = false, overlap = false, no_overlap = false, fp16 = false;
};

void run(const Flags& f, int rank) {
  set_num_threads(f.threads);
  if (f.ranks > 1) distributed::init_process_group("tcp", "env://", f.ranks, rank);
  manual_seed(static_cast<std::uint64_t>(rank));
  models::ConvNet net;
  std::function<Tensor(const Tensor&)> forward = [net](const Tensor& x) mutable { return net(x); };
  if (f.ranks > 1 && !f.plain) {
    auto options = nn::parallel::DistributedDataParallelOptions();
    if (f.overlap || f.no_overlap) options.overlap(f.overlap);
    nn::parallel::DistributedDataParallel ddp(net, options);
    if (f.fp16) ddp->register_comm_hook(distributed::ProcessGroupPtr(), nn::parallel::comm_hooks::fp16_compress_hook);
    forward = [ddp](const Tensor& x) mutable { return ddp(x); };
  }
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.01).momentum(0.5));
  const Tensor x = randn({f.batch, 1, 28, 28}), t = randint(10, {f.batch}, kLong);
  const auto step = [&] {
    optimizer.zero_grad();
    nll_loss(forward(x), t).backward();
    optimizer.step();
  };
  const auto together = [&] {
    if (f.ranks > 1) distributed::barrier();
  };
  for (int i = 0; i < f.warm_up; ++i) step();
  std::vector<double> seconds;
  for (int block = 0; block < f.blocks; ++block) {
    together();
    const auto begin = Clock::now();
    for (int i = 0; i < f.steps; ++i) step();
    together();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / f.steps);
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  if (rank == 0)
    std::printf("{\"ranks\": %d, \"step_ms\": %.3f, \"best_ms\": %.3f, \"images_per_s\": %.1f}\n", f.ranks,
                median * 1e3, seconds[0] * 1e3, static_cast<double>(f.ranks) * static_cast<double>(f.batch) / median);
  std::fflush(stdout);
  if (f.ranks > 1) distributed::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  Flags f;
  cli::CommandLine app{"Times data-parallel training steps"};
  app.add("--ranks", f.ranks, "processes").range(1, 64);
  app.add("--threads", f.threads, "threads of each").range(1, 1024);
  app.add("--batch", f.batch, "images per rank and step").positive();
  app.add("--blocks", f.blocks, "measurements").positive();
  app.add("--steps", f.steps, "steps of a measurement").positive();
  app.add("--warm-up", f.warm_up, "steps before the first").range(1, 1000);
  app.add_flag("--fp16", f.fp16, "gradients travel as float16");
  app.add_flag("--plain", f.plain, "the ranks train beside each other without exchanging anything");
  app.add_flag("--overlap", f.overlap, "buckets are reduced by another thread");
  app.add_flag("--no-overlap", f.no_overlap, "buckets are reduced at the end of backward");
  if (const auto status = app.parse(argc, argv)) return *status;
  try {
    if (const auto rank = env::integer("RANK", 0)) {
      f.ranks = static_cast<int>(env::integer("WORLD_SIZE", 1, 1024).value_or(1));
      run(f, static_cast<int>(*rank));
    } else if (f.ranks == 1)
      run(f, 0);
    else
      distributed::spawn([&](int rank) { run(f, rank); }, f.ranks);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_ddp: %s\n", error.what());
    return 1;
  }
  return 0;
}
