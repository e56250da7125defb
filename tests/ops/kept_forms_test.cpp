// What convolutions keep of their weights between calls: used while the values stay, never afterwards.
#include "athanor/tensor/kept_forms.h"

#include <thread>

#include "athanor/nn/nn.h"
#include "athanor/optim/algorithms.h"
#include "athanor/tensor/stream.h"
#include "numeric.h"

namespace athanor {
namespace {

using test::expect_close;
using test::values;

/// A convolution whose kernels read the weight in an order of their own: one for Winograd, the others for oneDNN.
struct Layer {
  const char* name;
  std::vector<std::int64_t> input, weight;
  std::int64_t padding;
};
const Layer kLayers[] = {{"3 x 3 by Winograd", {2, 32, 16, 16}, {48, 32, 3, 3}, 1},
                         {"1 x 1", {2, 64, 14, 14}, {256, 64, 1, 1}, 0},
                         {"3 x 3 on a small plane", {2, 256, 6, 6}, {256, 256, 3, 3}, 1}};

class KeptFormsOf : public ::testing::TestWithParam<Layer> {
 protected:
  void TearDown() override { KeptForms::set_limit(std::size_t{512} << 20); }
  const Layer& layer = GetParam();
  Tensor x = values(layer.input, kFloat, 1);
  Tensor w = values(layer.weight, kFloat, 2);

  std::vector<Tensor> results(const Tensor& weight) const {
    const Tensor in = x.detach().requires_grad_();
    const Tensor y = conv2d(in, weight, {}, 1, layer.padding);
    return {y.detach(), autograd::grad({y}, {in}, {y.detach()})[0]};
  }
  /// The weight's results are those of a weight that has never been seen.
  void expect_fresh(const char* after) const {
    SCOPED_TRACE(after);
    const auto got = results(w), wanted = results(w.clone());
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(equal(got[i], wanted[i]));
  }
  std::size_t kept(const Tensor& weight, int calls) const {
    const std::size_t before = KeptForms::total_bytes();
    for (int i = 0; i < calls; ++i) results(weight);
    return KeptForms::total_bytes() - before;
  }
};
INSTANTIATE_TEST_SUITE_P(Layers, KeptFormsOf, ::testing::ValuesIn(kLayers),
                         [](const auto& info) { return "layer" + std::to_string(info.index); });

TEST_P(KeptFormsOf, TheSecondCallWithTheSameValuesKeepsThem) {
  EXPECT_EQ(kept(w, 1), 0U);
  const std::size_t both = kept(w, 1);
  if (both == 0) GTEST_SKIP() << "no kernel of this processor wants the weight in another order";
  EXPECT_EQ(kept(w, 3), 0U);  // the same ones are used
  expect_fresh("the kept form itself");
  const std::size_t all = KeptForms::total_bytes();
  w = Tensor();
  EXPECT_EQ(KeptForms::total_bytes(), all - both);  // they go with the weight
}

TEST_P(KeptFormsOf, TrainingStepsThatUseAWeightOnceKeepNothing) {
  w.requires_grad_();
  optim::SGD optimizer({w}, optim::SGDOptions(0.1));
  const std::size_t before = KeptForms::total_bytes();
  for (int i = 0; i < 4; ++i) {
    optimizer.zero_grad();
    conv2d(x, w, {}, 1, layer.padding).sum().backward();
    optimizer.step();
    EXPECT_EQ(KeptForms::total_bytes(), before);
  }
}

TEST_P(KeptFormsOf, EveryWayToChangeTheWeightIsSeen) {
  const auto use = [&] { kept(w, 3); };
  use();
  w.mul_(0.5);
  expect_fresh("an in-place op");
  use();
  w.select(0, 0).add_(1);
  expect_fresh("an in-place op on a view");
  use();
  w.data().add_(0.25);
  expect_fresh("an in-place op on .data()");
  use();
  w.detach().zero_().add_(0.5);
  expect_fresh("an in-place op on detach()");
  use();
  w.copy_(values(layer.weight, kFloat, 7));
  expect_fresh("copy_");
  use();
  w.index_put_({0}, 3.0);
  expect_fresh("index_put_");
  use();
  athanor::add_out(w, w, ones({1}));
  expect_fresh("an out-variant");
  use();
  {
    Tensor p = w.requires_grad_();
    optim::Adam optimizer({p}, optim::AdamOptions(0.1));
    p.mutable_grad() = ones(layer.weight);
    optimizer.step();
    w = w.detach();
  }
  expect_fresh("an optimizer's step");
  use();
  w.data_ptr<float>()[3] += 1;
  expect_fresh("a write to data_ptr()");
  use();
  w.data_ptr<float>()[3] += 1;
  expect_fresh("another write to the same address");
}

TEST_P(KeptFormsOf, WritesBehindAnAddressKnownBeforeAreSeen) {
  float* const p = w.data_ptr<float>();
  EXPECT_EQ(kept(w, 3), 0U);
  p[0] += 1;
  expect_fresh("a write");
}

TEST_P(KeptFormsOf, NothingIsKeptBeyondTheLimit) {
  KeptForms::set_limit(KeptForms::total_bytes());
  EXPECT_EQ(kept(w, 3), 0U);
  expect_fresh("a limit");
}

TEST_P(KeptFormsOf, ManyThreadsMayUseOneWeight) {
  const auto wanted = results(w.clone());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 4; ++i) {
        const auto got = results(w);
        if (!allclose(got[0], wanted[0], 1e-4, 1e-4) || !allclose(got[1], wanted[1], 1e-4, 1e-4)) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(KeptFormsOf, QueuedCallsUseTheValuesOfTheirTurn) {
  athanor::detail::configure_cpu_queues(2);
  {
    const Device device(DeviceType::CPU, 1);
    const Tensor there = x.to(device);
    Tensor weight = w.to(device), expected = w.clone();
    for (int round = 0; round < 3; ++round) {
      std::vector<Tensor> got;
      for (int i = 0; i < 3; ++i) got.push_back(conv2d(there, weight, {}, 1, layer.padding));
      weight.mul_(0.5);  // enqueued behind them, long before they have run
      for (const Tensor& y : got) expect_close(y.cpu(), conv2d(x, expected, {}, 1, layer.padding), 1e-4, 1e-4);
      expected.mul_(0.5);
    }
  }
  athanor::detail::configure_cpu_queues(0);
}

TEST(KeptForms, ANewFormReplacesTheOldOneOfItsKey) {
  KeptForms forms;
  const KeptForms::Key key{1};
  const std::size_t before = KeptForms::total_bytes();
  EXPECT_FALSE(forms.find(key, 1));
  EXPECT_FALSE(forms.room(key, 1, 100));  // the first use
  EXPECT_FALSE(forms.find(key, 1));
  forms.keep(key, 1, forms.room(key, 1, 100));
  EXPECT_TRUE(forms.find(key, 1));
  EXPECT_EQ(KeptForms::total_bytes(), before + 100);
  EXPECT_FALSE(forms.find(key, 2));
  EXPECT_EQ(KeptForms::total_bytes(), before);
  EXPECT_TRUE(forms.room(key, 2, 100));  // since the values before were used more than once
  EXPECT_FALSE(forms.find(key, 3));
  EXPECT_FALSE(forms.room(key, 3, 100));  // values 2 were used once
  EXPECT_FALSE(forms.find({2}, 3));
}

TEST(Convolution, OnPlanesSmallerThanTheKernelEqualsTheExactOne) {
  for (const auto& [size, stride] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 2}, {2, 2}, {2, 1}}) {
    const Tensor x = values({16, 256, size, size}, kFloat, 1), w = values({272, 256, 3, 3}, kFloat, 2);
    const auto gradients = [&, stride = stride](DType t) {
      const Tensor a = x.to(t).requires_grad_(), b = w.to(t).requires_grad_();
      const Tensor y = conv2d(a, b, {}, stride, 1);
      const auto g = autograd::grad({y}, {a, b}, {values(y.sizes(), kFloat, 3).to(t)});
      return std::vector<Tensor>{y.detach(), g[0], g[1]};
    };
    const auto single = gradients(kFloat), exact = gradients(kDouble);
    for (std::size_t i = 0; i < 3; ++i) expect_close(single[i], exact[i], 1e-4, 1e-3);
  }
}

}  // namespace
}  // namespace athanor
