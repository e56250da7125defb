// How long the devices of a pipeline are idle. The stages sleep instead of computing, so that neither processors nor
// work count, only the order and what it costs to enqueue it.
//   bench_pipeline [--nap-ms 50] [--stages 2,4] [--micro-batches 1,2,4,8,16] [--steps 2] [--tolerance 0]
// Prints the idle share of a step of each schedule beside the one of the papers, (p - 1) / (m + p - 1), and how far
// off it is in per cent of it. With a tolerance, a share further off is an error.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "athanor/athanor.h"
#include "athanor/autograd/function.h"
#include "athanor/ops/launch.h"
#include "athanor/parallel/pipeline.h"
#include "cli/command_line.h"

namespace {

using namespace athanor;
using Clock = std::chrono::steady_clock;
using nn::parallel::PipelineSchedule;

struct Flags {
  double nap_ms = 50, tolerance = 0;
  int steps = 2;
  std::vector<int> stages{2, 4}, micro_batches{1, 2, 4, 8, 16};
} flags;

// Of all devices. A sleep takes a little longer than asked for; that is not idle.
std::atomic<std::int64_t> slept_ns{0};

std::int64_t ns_since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
}

constinit Kernel<void(const View&, double)> nap_kernel{"nap"};
void nap(const View&, double ms) {
  const auto begin = Clock::now();
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
  slept_ns += ns_since(begin);
}
ATHANOR_REGISTER_KERNEL(nap_kernel, CPU, &nap);

Tensor after_nap(const Tensor& x) {
  Tensor out = zeros_like(x);
  launch(nap_kernel, out, flags.nap_ms);
  return out;
}

struct Nap : autograd::Function<Nap> {
  static Tensor forward(autograd::AutogradContext*, const Tensor& x, const Tensor& /*weight*/) { return after_nap(x); }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    const Tensor d = after_nap(g[0]);
    return {d, d.sum().reshape({1})};
  }
};

struct StageImpl : nn::Cloneable<StageImpl> {
  StageImpl() { StageImpl::reset(); }
  void reset() override { weight = register_parameter("weight", zeros({1})); }
  Tensor forward(const Tensor& x) { return Nap::apply(x, weight); }
  Tensor weight;
};
ATHANOR_MODULE(Stage);

// The share of p devices' time in which they do nothing, the least of some steps.
double idle_share(int p, int m, PipelineSchedule schedule) {
  nn::Sequential stages;
  for (int i = 0; i < p; ++i) stages->push_back(Stage());
  nn::parallel::Pipeline pipe(stages, nn::parallel::PipelineOptions().chunks(m).schedule(schedule));
  const Tensor x = zeros({m, 1});
  const auto step = [&] {
    slept_ns = 0;
    const auto begin = Clock::now();
    pipe->train_step(x, x, [](const Tensor& y, const Tensor&) { return y.sum(); });
    for (const Device device : pipe->devices()) synchronize(device);
    return 1 - static_cast<double>(slept_ns) / static_cast<double>(p * ns_since(begin));
  };
  // The first one starts threads and makes what is kept.
  const double nap_ms = std::exchange(flags.nap_ms, 0);
  step();
  flags.nap_ms = nap_ms;
  double least = 1;
  for (int i = 0; i < flags.steps; ++i) least = std::min(least, step());
  return least;
}

bool measure(int p) {
  bool good = true;
  for (const int m : flags.micro_batches) {
    const double expected = (p - 1.0) / (m + p - 1);
    std::printf("%7d %14d %10.4f", p, m, expected);
    for (const auto schedule : {PipelineSchedule::FillDrain, PipelineSchedule::OneForwardOneBackward}) {
      const double share = idle_share(p, m, schedule), off = 100 * (share / expected - 1);
      std::printf("  %10.4f (%+5.1f %%)", share, off);
      std::fflush(stdout);
      good = good && (flags.tolerance <= 0 || std::abs(off) <= flags.tolerance);
    }
    std::printf("\n");
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  cli::CommandLine app{"Measures how long the devices of a pipeline are idle"};
  app.add("--nap-ms", flags.nap_ms, "length of a stage's forward, and of its backward").show_default();
  app.add("--stages", flags.stages, "devices").separated_by(',').range(2, 64);
  app.add("--micro-batches", flags.micro_batches, "in a batch").separated_by(',').positive();
  app.add("--steps", flags.steps, "of which the best counts").positive().show_default();
  app.add("--tolerance", flags.tolerance, "greatest deviation in per cent; 0 accepts any").show_default();
  if (const auto status = app.parse(argc, argv)) return *status;
  bool good = true;
  std::printf("%7s %14s %10s  %20s  %20s\n", "stages", "micro-batches", "expected", "fill-drain", "1F1B");
  for (const int p : flags.stages) {
    athanor::detail::configure_cpu_queues(p);
    good = measure(p) && good;
    athanor::detail::configure_cpu_queues(0);
  }
  return good ? 0 : 1;
}
