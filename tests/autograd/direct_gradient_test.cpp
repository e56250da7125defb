// Convolutions add their weight's gradient to .grad themselves, unless somebody wants to see it pass.
#include "athanor/ops/direct_gradient.h"

#include <gtest/gtest.h>

#include "athanor/autograd/autograd.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/tensor.h"
#include "athanor/tensor/stream.h"

namespace athanor {
namespace {

// One that oneDNN computes in tiles, one for Winograd, one for the kernels of few channels, and one of float64.
struct Layer {
  std::vector<std::int64_t> input, weight;
  std::int64_t padding;
  DType dtype;
};
const Layer kLayers[] = {{{2, 64, 14, 14}, {256, 64, 1, 1}, 0, kFloat}, {{2, 256, 6, 6}, {256, 256, 3, 3}, 1, kFloat},
                         {{2, 32, 16, 16}, {48, 32, 3, 3}, 1, kFloat},  {{16, 256, 1, 1}, {64, 256, 3, 3}, 1, kFloat},
                         {{2, 3, 9, 9}, {5, 3, 3, 3}, 1, kFloat},       {{2, 3, 9, 9}, {5, 3, 3, 3}, 1, kDouble}};

class DirectGradientsOf : public testing::TestWithParam<Layer> {
 protected:
  void SetUp() override { manual_seed(3); }
  Tensor input() const { return randn(GetParam().input, GetParam().dtype); }
  Tensor weight() const { return randn(GetParam().weight, GetParam().dtype).requires_grad_(); }
  Tensor loss(const Tensor& x, const Tensor& w) const { return conv2d(x, w, {}, 1, GetParam().padding).pow(2).sum(); }
  // By the way that has no .grad to add to.
  Tensor gradient(const Tensor& x, const Tensor& w) const { return autograd::grad({loss(x, w)}, {w})[0]; }
  static void expect_close(const Tensor& a, const Tensor& b) {
    const double scale = b.abs().max().item<double>();
    EXPECT_LE((a - b).abs().max().item<double>(), 1e-5 * scale);
  }
};
INSTANTIATE_TEST_SUITE_P(Layers, DirectGradientsOf, testing::ValuesIn(kLayers),
                         [](const auto& info) { return "layer" + std::to_string(info.index); });

TEST_P(DirectGradientsOf, MicroBatchesAddUp) {
  const Tensor w = weight();
  Tensor expected = zeros(w.sizes(), w.options().requires_grad(false));
  for (int i = 0; i < 4; ++i) {
    const Tensor x = input();
    expected += gradient(x, w);
    loss(x, w).backward();
    expect_close(w.grad(), expected);
  }
}

TEST_P(DirectGradientsOf, TheGradientStaysTheTensorItWas) {
  const Tensor w = weight(), x = input();
  loss(x, w).backward();
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): w may get another gradient
  const Tensor before = w.grad();
  const auto version = before._version();
  loss(x, w).backward();
  EXPECT_TRUE(w.grad().is_same(before));
  EXPECT_GT(before._version(), version);
}

TEST_P(DirectGradientsOf, AWeightUsedTwiceGetsBoth) {
  const Tensor w = weight(), x = input(), z = input();
  loss(x, w).backward();
  const Tensor expected = gradient(x, w) * 2 + gradient(z, w);
  (loss(x, w) + loss(z, w)).backward();
  expect_close(w.grad(), expected);
}

TEST_P(DirectGradientsOf, HooksSeeWhatIsAdded) {
  const Tensor w = weight(), x = input();
  loss(x, w).backward();
  const Tensor once = w.grad().clone();
  int seen = 0;
  w.register_hook([&](const Tensor& g) {
    expect_close(g, once);
    ++seen;
    return g * 3;
  });
  loss(x, w).backward();
  EXPECT_EQ(seen, 1);
  expect_close(w.grad(), once * 4);
}

TEST_P(DirectGradientsOf, HooksBehindTheSumAreCalled) {
  const Tensor w = weight(), x = input();
  loss(x, w).backward();
  int calls = 0;
  w.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  loss(x, w).backward();
  EXPECT_EQ(calls, 1);
}

TEST_P(DirectGradientsOf, AskingForGradientsLeavesThoseOfLeavesAlone) {
  const Tensor w = weight(), x = input();
  loss(x, w).backward();
  const Tensor before = w.grad().clone();
  expect_close(autograd::grad({loss(x, w)}, {w})[0], before);
  EXPECT_TRUE(equal(w.grad(), before));
  Tensor in = x.detach().requires_grad_();
  loss(in, w).backward({}, std::nullopt, false, std::vector<Tensor>{in});  // of these leaves only
  EXPECT_TRUE(equal(w.grad(), before));
}

TEST_P(DirectGradientsOf, AGradientThatIsPartOfAGraphIsNotChangedInPlace) {
  const Tensor w = weight(), x = input();
  loss(x, w).backward({}, true, true);
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): w may get another gradient
  const Tensor first = w.grad();
  const Tensor values = first.detach().clone();
  EXPECT_TRUE(first.requires_grad());
  loss(x, w).backward({}, true, true);
  EXPECT_TRUE(equal(first.detach(), values));
  expect_close(w.grad().detach(), values * 2);
  w.mutable_grad() = Tensor();  // its graph holds w
}

TEST_P(DirectGradientsOf, OnADeviceTheSumsComeInOrder) {
  athanor::detail::configure_cpu_queues(2);
  {
    const Tensor host = weight();
    const Tensor w = host.detach().to(Device(DeviceType::CPU, 1)).requires_grad_();
    Tensor expected = zeros(host.sizes(), host.options().requires_grad(false));
    for (int i = 0; i < 3; ++i) {
      const Tensor x = input();
      expected += gradient(x, host);
      loss(x.to(w.device()), w).backward();
    }
    expect_close(w.grad().cpu(), expected);
  }
  athanor::detail::configure_cpu_queues(0);
}

}  // namespace
}  // namespace athanor
