// What always-on parts cost, those of athanor.distributed as shares of what they accompany:
//   bench_costs
// - what a caller pays to put an empty task, and an op, into the queue of a virtual device whose worker is awake;
// - the flight recorder's notes of a call, beside the median time of a blocking all_reduce of 64 KB between two ranks;
// - the search for unused parameters in a step of DistributedDataParallel, beside the same step with static_graph,
//   which does without; the two take turns in one process.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>

#include "athanor/athanor.h"
#include "athanor/distributed/collectives.h"
#include "athanor/distributed/flight_recorder.h"
#include "athanor/distributed/spawn.h"
#include "athanor/models/mnist.h"
#include "athanor/ops/launch.h"
#include "athanor/parallel/ddp.h"

namespace {

using namespace athanor;
using Clock = std::chrono::steady_clock;

double nanoseconds(const std::function<void()>& act, int times) {
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) act();
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / times;
}

std::atomic<bool> held{false};
constinit Kernel<void(const View&)> empty_kernel{"bench_empty"}, hold_kernel{"bench_hold"};
void nothing(const View&) {}
void hold(const View&) {
  while (held.load(std::memory_order_relaxed)) {
  }
}
ATHANOR_REGISTER_KERNEL(empty_kernel, CPU, &nothing);
ATHANOR_REGISTER_KERNEL(hold_kernel, CPU, &hold);

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void flight_recorder(int rank) {
  Tensor x = ones({16384});
  for (int i = 0; i < 200; ++i) distributed::all_reduce(x.fill_(1));
  std::vector<double> calls, notes;
  distributed::FlightRecorder recorder("costs", rank, 2);
  distributed::Call call;
  call.op = distributed::OpType::AllReduce;
  call.dtype = kFloat;
  call.count = x.numel();
  call.where = distributed::CallSite::current();
  for (int block = 0; block < 15; ++block) {
    calls.push_back(nanoseconds([&] { distributed::all_reduce(x); }, 200));
    x.fill_(1);
    const auto note = [&] {
      call.sequence++;
      recorder.ended(recorder.note(call, distributed::CallState::Started), true);
    };
    notes.push_back(nanoseconds(note, 2000));
  }
  if (rank == 0)
    std::printf("flight recorder: %.0f ns a call, %.2f %% of an all_reduce of 64 KB (%.1f us)\n", median(notes),
                100 * median(notes) / median(calls), median(calls) / 1e3);
}

struct Mlp : nn::Module {
  explicit Mlp(int layers) {
    for (int i = 0; i < layers; ++i) body->push_back(nn::Linear(64, 64));
    register_module("body", body);
  }
  Tensor forward(const Tensor& x) { return log_softmax(body->forward(x), 1); }
  nn::Sequential body;
};

// Ratios of neighbouring blocks, which share whatever disturbs the machine.
template <class Net>
void unused_parameters(const char* name, int rank, const std::vector<Net>& nets, const Tensor& x, const Tensor& t,
                       int steps) {
  using nn::parallel::DistributedDataParallelOptions;
  std::vector<std::function<void()>> sides;
  for (const bool fixed : {true, false}) {
    nn::parallel::DistributedDataParallel ddp(nets[fixed ? 0 : 1],
                                              DistributedDataParallelOptions().static_graph(fixed));
    const auto optimizer = std::make_shared<optim::SGD>(ddp->parameters(), optim::SGDOptions(1e-4));
    sides.push_back([ddp, optimizer, x, t]() mutable {
      optimizer->zero_grad();
      nll_loss(ddp(x), t).backward();
      optimizer->step();
    });
  }
  for (const auto& side : sides) nanoseconds(side, 2 * steps);
  std::vector<double> ratios, times;
  for (int block = 0; block < 41; ++block) {
    distributed::barrier();
    const bool first = block % 2 == 0;
    const double one = nanoseconds(sides[first ? 0 : 1], steps);
    distributed::barrier();
    const double other = nanoseconds(sides[first ? 1 : 0], steps);
    ratios.push_back(first ? other / one : one / other);
    times.push_back(first ? one : other);
  }
  if (rank == 0)
    std::printf("unused parameters, %s: %+.2f %% of a step of %.2f ms\n", name, 100 * (median(ratios) - 1),
                median(times) / 1e6);
}

void run(int rank) {
  set_num_threads(1);
  distributed::init_process_group("tcp", "env://", 2, rank);
  flight_recorder(rank);
  manual_seed(1);
  unused_parameters("MNIST network, batch 64", rank, std::vector<models::ConvNet>{models::ConvNet(), models::ConvNet()},
                    randn({64, 1, 28, 28}), randint(10, {64}, kLong), 8);
  unused_parameters("40 linear layers of 64, batch 64", rank,
                    std::vector<std::shared_ptr<Mlp>>{std::make_shared<Mlp>(40), std::make_shared<Mlp>(40)},
                    randn({64, 64}), randint(10, {64}, kLong), 30);
  distributed::destroy_process_group();
}

/// The worker is busy with a task before while the caller enqueues, or takes the tasks as they come.
void enqueueing() {
  constexpr int kTasks = 1000;
  const NoGradGuard off;
  athanor::detail::configure_cpu_queues(2);
  const Device device("cpu:1");
  const Tensor x = zeros({16}, TensorOptions(device));
  const auto cost = [&](bool busy, const std::function<void()>& act) {
    std::vector<double> times;
    for (int block = 0; block < 41; ++block) {
      held = busy;
      launch(hold_kernel, x);
      times.push_back(nanoseconds(act, kTasks));
      held = false;
      synchronize(device);
    }
    return median(times);
  };
  for (const bool busy : {true, false})
    std::printf("enqueueing, worker %s: an empty task %.0f ns, x.add_(1) %.0f ns, x + 1 %.0f ns\n",
                busy ? "in a long task" : "taking them", cost(busy, [&] { launch(empty_kernel, x); }),
                cost(busy, [&] { x.add_(1); }), cost(busy, [&] { x + 1; }));
}

}  // namespace

int main() {
  try {
    distributed::spawn(run, 2);
    enqueueing();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_costs: %s\n", error.what());
    return 1;
  }
  return 0;
}
