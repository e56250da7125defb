// How much of the time the devices of a pipeline are idle: stages that sleep instead of computing, so that neither the
// processors nor the work count, only the order and what it costs to enqueue it.
//   bench_pipeline [--nap-ms 5] [--stages 2,4] [--micro-batches 1,2,4,8,16] [--tolerance 0]
// Prints measured and expected shares, (p - 1) / (m + p - 1). With a tolerance, a share further off is an error.
#include <CLI/CLI.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "athanor/athanor.h"
#include "athanor/autograd/function.h"
#include "athanor/ops/launch.h"
#include "athanor/parallel/pipeline.h"

namespace {

using namespace athanor;
using Clock = std::chrono::steady_clock;

constinit Kernel<void(const View&, const View&, double)> nap_kernel{"nap"};
void nap(const View&, const View&, double ms) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}
ATHANOR_REGISTER_KERNEL(nap_kernel, CPU, &nap);

double nap_ms = 5;

Tensor after_nap(const Tensor& x) {
  Tensor out = zeros_like(x);
  launch(nap_kernel, out, x, nap_ms);
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

// The share of p devices' time in which they do nothing, the least of three steps.
double idle_share(int p, int m, nn::parallel::PipelineSchedule schedule) {
  nn::Sequential stages;
  for (int i = 0; i < p; ++i) stages->push_back(Stage());
  nn::parallel::Pipeline pipe(stages, nn::parallel::PipelineOptions().chunks(m).schedule(schedule));
  const Tensor x = zeros({m, 1});
  double least = 1;
  for (int round = 0; round < 4; ++round) {
    const auto begin = Clock::now();
    pipe->train_step(x, x, [](const Tensor& y, const Tensor&) { return y.sum(); });
    for (const Device device : pipe->devices()) synchronize(device);
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    if (round > 0) least = std::min(least, 1 - 2 * m * nap_ms / ms);
  }
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> stages{2, 4}, micro_batches{1, 2, 4, 8, 16};
  double tolerance = 0;
  CLI::App app{"Measures how long the devices of a pipeline are idle"};
  app.add_option("--nap-ms", nap_ms, "length of a stage's forward, and of its backward")->capture_default_str();
  app.add_option("--stages", stages, "devices")->delimiter(',')->check(CLI::Range(2, 64));
  app.add_option("--micro-batches", micro_batches, "in a batch")->delimiter(',')->check(CLI::PositiveNumber);
  app.add_option("--tolerance", tolerance, "greatest difference of the shares; 0 accepts any")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  bool good = true;
  std::printf("%7s %14s %10s %12s %8s\n", "stages", "micro-batches", "expected", "fill-drain", "1F1B");
  for (const int p : stages) {
    athanor::detail::configure_cpu_queues(p);
    for (const int m : micro_batches) {
      const double expected = (p - 1.0) / (m + p - 1);
      const double fill = idle_share(p, m, nn::parallel::PipelineSchedule::FillDrain),
                   alternate = idle_share(p, m, nn::parallel::PipelineSchedule::OneForwardOneBackward);
      std::printf("%7d %14d %10.3f %12.3f %8.3f\n", p, m, expected, fill, alternate);
      std::fflush(stdout);
      if (tolerance > 0)
        good = good && std::abs(fill - expected) <= tolerance && std::abs(alternate - expected) <= tolerance;
    }
    athanor::detail::configure_cpu_queues(0);
  }
  return good ? 0 : 1;
}
