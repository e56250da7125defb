// Devices really work at once. Every pass of a stage is an appointment: its kernel goes on only when all the kernels
// that the plan has at the same time are running, each on its device. A call that waits for more than it needs misses
// one, and the deadline ends the test; how fast the machine is plays no part.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <string>

#include "athanor/autograd/autograd.h"
#include "athanor/autograd/function.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/hidden.h"
#include "athanor/ops/launch.h"
#include "athanor/parallel/data_parallel.h"
#include "athanor/parallel/pipeline.h"
#include "athanor/profiler/profiler.h"
#include "athanor/tensor/stream.h"

namespace athanor::nn::parallel {
namespace {

// Of each device, the numbers of the appointments it keeps, in its order.
using Plan = std::vector<std::vector<std::size_t>>;

class Appointments {
 public:
  void plan(const Plan& plan) {
    const std::lock_guard lock(mutex_);
    plan_ = plan;
    kept_.assign(plan.size(), 0);
    missing_.clear();
    missed_ = false;
    for (const auto& device : plan)
      for (const std::size_t number : device) {
        if (missing_.size() <= number) missing_.resize(number + 1);
        ++missing_[number];
      }
  }
  // On the device's worker.
  void keep(std::size_t device) {
    std::unique_lock lock(mutex_);
    const std::size_t mine = kept_.at(device)++;
    if (missed_ || mine >= plan_[device].size()) {
      missed_ = true;
      return;
    }
    int& missing = missing_[plan_[device][mine]];
    if (--missing == 0)
      all_here_.notify_all();
    else if (!all_here_.wait_for(lock, std::chrono::seconds(20), [&] { return missing == 0 || missed_; }))
      missed_ = true;
    if (missed_) all_here_.notify_all();
  }
  bool all_kept() const {
    const std::lock_guard lock(mutex_);
    bool all = !missed_;
    for (std::size_t d = 0; d < plan_.size(); ++d) all = all && kept_[d] == plan_[d].size();
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable all_here_;
  Plan plan_;
  std::vector<std::size_t> kept_;
  std::vector<int> missing_;  // devices that have not come yet, of each appointment
  bool missed_ = false;
};
Appointments appointments;

constinit Kernel<void(const View&, int)> meet_kernel{"test_meet"};
void meet(const View& out, int device) {
  appointments.keep(static_cast<std::size_t>(device));
  std::fill_n(out.ptr<float>(), out.numel, 1.0F);
}
ATHANOR_REGISTER_KERNEL(meet_kernel, CPU, &meet);

// Images come in the layout of convolutions, which a copy has to restore.
Tensor met(const Tensor& x) {
  Tensor out = empty_like(x);
  launch(meet_kernel, out, static_cast<int>(x.device().index()));
  return x.dim() == 4 ? Tensor(athanor::detail::to_blocks(out, 16)) : out;
}

struct Meet : autograd::Function<Meet> {
  static Tensor forward(autograd::AutogradContext*, const Tensor& x, const Tensor& /*weight*/) { return met(x); }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    return {met(g[0]), ones({1}, g[0].options())};
  }
};

struct StageImpl : Cloneable<StageImpl> {
  StageImpl() { StageImpl::reset(); }
  void reset() override { weight = register_parameter("weight", zeros({1})); }
  Tensor forward(const Tensor& x) { return Meet::apply(x, weight); }
  Tensor weight;
};
ATHANOR_MODULE(Stage);

// When the steps of a schedule take place if each takes as long as any other, and begins once its device and what it
// needs are there.
Plan plan_of(PipelineSchedule schedule, std::int64_t stages, std::int64_t micro_batches) {
  const auto steps = pipeline_steps(schedule, stages, micro_batches);
  const auto p = static_cast<std::size_t>(stages), m = static_cast<std::size_t>(micro_batches);
  constexpr std::size_t kNever = 1U << 30;
  // The end of [forward, backward] of a stage and micro-batch.
  std::vector ends(p, std::vector(m, std::array<std::size_t, 2>{kNever, kNever}));
  Plan plan(p);
  for (std::size_t now = 0; std::ranges::any_of(plan, [&](const auto& device) { return device.size() < 2 * m; }); ++now)
    for (std::size_t s = 0; s < p; ++s) {
      if (plan[s].size() == 2 * m) continue;
      const auto [k, backward] = steps[s][plan[s].size()];
      const auto i = static_cast<std::size_t>(k);
      const std::size_t needed = !backward    ? (s == 0 ? 0 : ends[s - 1][i][0])
                                 : s + 1 == p ? ends[s][i][0]
                                              : ends[s + 1][i][1];
      if (needed > now) continue;
      ends[s][i][backward ? 1 : 0] = now + 1;
      plan[s].push_back(now);
    }
  return plan;
}

std::size_t length_of(const Plan& plan) {
  std::size_t last = 0;
  for (const auto& device : plan) last = std::max(last, device.back());
  return last + 1;
}

std::vector<Device> first(int n) {
  std::vector<Device> devices;
  for (int i = 0; i < n; ++i) devices.emplace_back(DeviceType::CPU, static_cast<DeviceIndex>(i));
  return devices;
}

void wait_for_all() {
  for (const Device device : all_devices()) synchronize(device);
}

// More than is read when a copy from the host is enqueued.
constexpr std::int64_t kWidth = 20000;

class Overlap : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { athanor::detail::configure_cpu_queues(GetParam()); }
  void TearDown() override { athanor::detail::configure_cpu_queues(0); }
  Pipeline pipeline(int micro_batches, PipelineSchedule schedule) const {
    Sequential stages;
    for (int i = 0; i < GetParam(); ++i) stages->push_back(Stage());
    return Pipeline(stages, PipelineOptions().devices(first(GetParam())).chunks(micro_batches).schedule(schedule));
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Overlap, testing::Values(2, 4));

TEST_P(Overlap, StagesWorkAtOnceInBothSchedules) {
  const int p = GetParam();
  for (const auto schedule : {PipelineSchedule::FillDrain, PipelineSchedule::OneForwardOneBackward})
    for (const int m : {1, 2, 3, 4, 8, 16}) {
      const Plan plan = plan_of(schedule, p, m);
      ASSERT_EQ(length_of(plan), static_cast<std::size_t>(2 * (m + p - 1)));
      Pipeline pipe = pipeline(m, schedule);
      for (const Device source : {Device(), Device(DeviceType::CPU, 0)}) {
        const Tensor x = zeros({m, kWidth}, TensorOptions(source));
        appointments.plan(plan);
        pipe->train_step(x, x, [](const Tensor& y, const Tensor&) { return y.sum(); });
        wait_for_all();
        ASSERT_TRUE(appointments.all_kept()) << p << " stages, " << m << " micro-batches, schedule "
                                             << static_cast<int>(schedule) << ", from " << source.str();
      }
    }
}

TEST_P(Overlap, HiddenLayoutsOfConvolutionsHoldNobodyBack) {
  const int p = GetParam(), m = 8;
  ASSERT_TRUE(athanor::detail::to_blocks(ones({2, 16, 8, 8}), 16).storage()->is_hidden());
  for (const auto schedule : {PipelineSchedule::FillDrain, PipelineSchedule::OneForwardOneBackward}) {
    Pipeline pipe = pipeline(m, schedule);
    const Tensor x = ones({2 * m, 16, 8, 8});
    appointments.plan(plan_of(schedule, p, m));
    pipe->train_step(x, x, [](const Tensor& y, const Tensor&) { return y.mean(); });
    wait_for_all();
    ASSERT_TRUE(appointments.all_kept()) << p << " stages, schedule " << static_cast<int>(schedule);
  }
}

TEST_P(Overlap, StagesWorkAtOnceInABackwardThroughTheWholePipeline) {
  const int p = GetParam();
  for (const int m : {1, 3, 8}) {
    Pipeline pipe = pipeline(m, PipelineSchedule::FillDrain);
    appointments.plan(plan_of(PipelineSchedule::FillDrain, p, m));
    pipe(zeros({m, kWidth})).sum().backward();
    wait_for_all();
    ASSERT_TRUE(appointments.all_kept()) << p << " stages, " << m << " micro-batches";
  }
}

// Two halves with copies in between, and a loop over parts of the batch, as programs write it by hand.
TEST_P(Overlap, AHandWrittenPipelineOverlapsAsItStands) {
  const Device first_half(DeviceType::CPU, 0), second_half(DeviceType::CPU, 1);
  Stage seq1, seq2;
  seq1->to(first_half);
  seq2->to(second_half);
  for (const int m : {1, 2, 8}) {
    appointments.plan(plan_of(PipelineSchedule::FillDrain, 2, m));
    const std::vector<Tensor> splits = zeros({m, kWidth}).to(first_half).split(1);
    std::vector<Tensor> results;
    Tensor previous = seq1(splits[0]).to(second_half);
    for (std::size_t i = 1; i < splits.size(); ++i) {
      results.push_back(seq2(previous));
      previous = seq1(splits[i]).to(second_half);
    }
    results.push_back(seq2(previous));
    const Tensor labels = zeros({m, kWidth});
    functional::mse_loss(cat(results), labels.to(second_half)).backward();
    wait_for_all();
    ASSERT_TRUE(appointments.all_kept()) << m << " parts";
  }
}

// A network that splits into branches, each on its device, whose results meet on the first or on the last.
TEST_P(Overlap, BranchesWorkAtOnce) {
  const auto devices = first(GetParam());
  std::vector<Stage> branches(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) branches[i]->to(devices[i]);
  for (const Device source : {Device(), devices.front()})
    for (const Device end : {devices.front(), devices.back()}) {
      appointments.plan(Plan(devices.size(), {0, 1}));
      const Tensor x = zeros({1, kWidth}, TensorOptions(source));
      std::vector<Tensor> results;
      for (std::size_t i = 0; i < devices.size(); ++i) results.push_back(branches[i](x.to(devices[i])));
      for (Tensor& result : results) result = result.to(end);
      stack(results).sum().backward();
      wait_for_all();
      ASSERT_TRUE(appointments.all_kept())
          << devices.size() << " branches from " << source.str() << " to " << end.str();
    }
}

// The same, as the profiler's timeline shows it.
TEST_P(Overlap, BranchesMeetInTheTimeline) {
  const auto devices = first(GetParam());
  std::vector<Stage> branches(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) branches[i]->to(devices[i]);
  appointments.plan(Plan(devices.size(), {0, 1}));
  profiler::Profile profile;
  const Tensor x = zeros({1, kWidth});
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < devices.size(); ++i) results.push_back(branches[i](x.to(devices[i])));
  for (Tensor& result : results) result = result.to(devices.back());
  stack(results).sum().backward();
  wait_for_all();
  profile.stop();
  ASSERT_TRUE(appointments.all_kept());
  // Of each device its forward and its backward.
  std::map<std::string, std::vector<const profiler::Event*>> kernels;
  for (const profiler::Event& e : profile.events())
    if (e.kind == profiler::EventKind::Kernel && e.name == "test_meet") kernels[e.device].push_back(&e);
  ASSERT_EQ(kernels.size(), devices.size());
  for (const std::size_t pass : {0, 1}) {
    std::int64_t last_begin = 0, first_end = std::numeric_limits<std::int64_t>::max();
    for (const auto& [device, own] : kernels) {
      ASSERT_EQ(own.size(), 2U) << device;
      last_begin = std::max(last_begin, own[pass]->start);
      first_end = std::min(first_end, own[pass]->start + own[pass]->duration);
    }
    EXPECT_LT(last_begin, first_end) << (pass == 0 ? "forward" : "backward");
  }
}

TEST_P(Overlap, ReplicasOfDataParallelWorkAtOnce) {
  const int p = GetParam();
  Stage inner;
  inner->to(Device(DeviceType::CPU, 0));
  DataParallel net(inner);
  for (int step = 0; step < 3; ++step) {
    appointments.plan(Plan(static_cast<std::size_t>(p), {0, 1}));
    net(zeros({2 * p, kWidth})).sum().backward();
    wait_for_all();
    ASSERT_TRUE(appointments.all_kept()) << p << " replicas, step " << step;
  }
}

}  // namespace
}  // namespace athanor::nn::parallel
