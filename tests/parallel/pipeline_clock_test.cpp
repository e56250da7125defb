// How long a pipeline's schedule takes, by clocks that the devices keep instead of time: every stage's pass takes a
// tick or two, begins when its device is free and its input is there, and passes the tick of its end on as its value.
// The queues' order and the graphs' dependencies alone decide the result.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "athanor/autograd/function.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/launch.h"
#include "athanor/parallel/pipeline.h"
#include "athanor/tensor/stream.h"

namespace athanor::nn::parallel::pipeline_clock_test {
namespace {

constexpr int kForwardTicks = 1, kBackwardTicks = 2;

// Each is touched by the worker of its device only, but for the beginning and the end.
std::array<double, 4> clocks{};

constinit Kernel<void(const View&, const View&, int, int)> tick_kernel{"test_tick"};
void tick(const View& out, const View& in, int device, int ticks) {
  double& clock = clocks.at(static_cast<std::size_t>(device));
  for (std::int64_t i = 0; i < in.numel; ++i) clock = std::max(clock, in.ptr<double>()[i]);
  clock += ticks;
  std::fill_n(out.ptr<double>(), out.numel, clock);
}
ATHANOR_REGISTER_KERNEL(tick_kernel, CPU, &tick);

Tensor ticked(const Tensor& x, int ticks) {
  Tensor out = empty_like(x);
  launch(tick_kernel, out, x.contiguous(), static_cast<int>(x.device().index()), ticks);
  return out;
}

struct Tick : autograd::Function<Tick> {
  static Tensor forward(autograd::AutogradContext*, const Tensor& x, const Tensor& /*weight*/) {
    return ticked(x, kForwardTicks);
  }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    const Tensor d = ticked(g[0], kBackwardTicks);
    return {d, d.sum().reshape({1})};
  }
};

struct StageImpl : Cloneable<StageImpl> {
  StageImpl() { StageImpl::reset(); }
  void reset() override { weight = register_parameter("weight", zeros({1}, kDouble)); }
  Tensor forward(const Tensor& x) { return Tick::apply(x, weight); }
  Tensor weight;
};
ATHANOR_MODULE(Stage);

class PipelineClock : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { athanor::detail::configure_cpu_queues(GetParam()); }
  void TearDown() override { athanor::detail::configure_cpu_queues(0); }
};
INSTANTIATE_TEST_SUITE_P(Stages, PipelineClock, testing::Values(2, 4));

// (Narayanan et al., 2021): of p devices with m micro-batches each is idle for (p - 1) of (m + p - 1) parts.
TEST_P(PipelineClock, DevicesAreIdleForAsLongAsThePapersSay) {
  const int p = GetParam();
  for (const auto schedule : {PipelineSchedule::FillDrain, PipelineSchedule::OneForwardOneBackward})
    for (int m = 1; m <= 16; ++m) {
      Sequential stages;
      std::vector<Device> devices;
      for (int i = 0; i < p; ++i) {
        stages->push_back(Stage());
        devices.emplace_back(DeviceType::CPU, static_cast<DeviceIndex>(i));
      }
      Pipeline pipe(stages, PipelineOptions().devices(devices).chunks(m).schedule(schedule));
      clocks = {};
      pipe->train_step(zeros({m, 1}, kDouble), zeros({m, 1}, kDouble),
                       [](const Tensor& y, const Tensor&) { return y.sum(); });
      for (const Device device : devices) synchronize(device);
      EXPECT_EQ(*std::ranges::max_element(clocks), (m + p - 1) * (kForwardTicks + kBackwardTicks))
          << p << " stages, " << m << " micro-batches, schedule " << static_cast<int>(schedule);
    }
}

}  // namespace
}  // namespace athanor::nn::parallel::pipeline_clock_test
