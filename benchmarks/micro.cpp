// Figures of small pieces by Google Benchmark, for working on one piece at a time:
//   build/bin/bench_micro --benchmark_filter=Add
#include <benchmark/benchmark.h>

#include "athanor/athanor.h"

namespace {

using athanor::Tensor;

void add_no_grad(benchmark::State& state) {
  const athanor::NoGradGuard guard;
  const Tensor x = athanor::randn({state.range(0)}), y = athanor::randn({state.range(0)});
  for (auto _ : state) benchmark::DoNotOptimize(x.add(y));
}
BENCHMARK(add_no_grad)->Arg(1)->Arg(64)->Arg(1024)->Arg(65536);

void add_grad(benchmark::State& state) {
  const Tensor x = athanor::randn({state.range(0)}).requires_grad_(), y = athanor::randn({state.range(0)});
  for (auto _ : state) benchmark::DoNotOptimize(x.add(y));
}
BENCHMARK(add_grad)->Arg(64);

void add_in_place(benchmark::State& state) {
  const athanor::NoGradGuard guard;
  Tensor x = athanor::randn({state.range(0)});
  const Tensor y = athanor::randn({state.range(0)});
  for (auto _ : state) benchmark::DoNotOptimize(x.add_(y));
}
BENCHMARK(add_in_place)->Arg(64);

void add_scalar(benchmark::State& state) {
  const athanor::NoGradGuard guard;
  const Tensor x = athanor::randn({64});
  for (auto _ : state) benchmark::DoNotOptimize(x + 1);
}
BENCHMARK(add_scalar);

void add_broadcast(benchmark::State& state) {
  const athanor::NoGradGuard guard;
  const Tensor x = athanor::randn({8, 8}), y = athanor::randn({8, 1});
  for (auto _ : state) benchmark::DoNotOptimize(x + y);
}
BENCHMARK(add_broadcast);

void view(benchmark::State& state) {
  const athanor::NoGradGuard guard;
  const Tensor x = athanor::randn({1000});
  for (auto _ : state) benchmark::DoNotOptimize(x.view({10, 100}));
}
BENCHMARK(view);

void empty(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(athanor::empty({state.range(0)}));
}
BENCHMARK(empty)->Arg(64)->Arg(1 << 20)->Arg(64 << 20);

void sum_backward(benchmark::State& state) {
  Tensor x = athanor::randn({64}).requires_grad_();
  const Tensor y = athanor::randn({64});
  for (auto _ : state) {
    x.mutable_grad() = Tensor();
    x.add(y).sum().backward();
  }
}
BENCHMARK(sum_backward);

void item(benchmark::State& state) {
  const Tensor x = athanor::randn({1});
  for (auto _ : state) benchmark::DoNotOptimize(x.item<float>());
}
BENCHMARK(item);

void cat(benchmark::State& state) {
  const athanor::NoGradGuard guard;
  const Tensor x = athanor::randn({64}), y = athanor::randn({64});
  for (auto _ : state) benchmark::DoNotOptimize(athanor::cat({x, y}));
}
BENCHMARK(cat);

}  // namespace

BENCHMARK_MAIN();
