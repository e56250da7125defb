// Networks whose layers lie on different devices, written by hand: `.to(device)` inside forward is all there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "athanor/autograd/autograd.h"
#include "athanor/autograd/fork.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/adaptive.h"
#include "athanor/optim/algorithms.h"
#include "athanor/parallel/data_parallel.h"
#include "athanor/parallel/pipeline.h"
#include "athanor/tensor/stream.h"

namespace athanor::nn {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Device kFirst(DeviceType::CPU, 0), kSecond(DeviceType::CPU, 1);

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class ModelParallel : public testing::Test {
 protected:
  void SetUp() override {
    athanor::detail::configure_cpu_queues(2);
    manual_seed(9);
  }
  void TearDown() override { athanor::detail::configure_cpu_queues(0); }
};

template <class M>
M in_double(M layer) {
  layer->to(kDouble);
  return layer;
}

void expect_same(const Tensor& got, const Tensor& expected) {
  ASSERT_TRUE(got.defined() && expected.defined());
  EXPECT_TRUE(allclose(got.cpu(), expected.cpu(), 1e-10, 1e-12));
}

// The same layers on the host and over two devices.
struct TwoLayers {
  Linear net1{nullptr}, net2{nullptr};
  explicit TwoLayers(Device first = {}, Device second = {}) {
    manual_seed(3);
    net1 = in_double(Linear(10, 10));
    net2 = in_double(Linear(10, 5));
    net1->to(first);
    net2->to(second);
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = relu(net1(x.to(net1->weight.device())));
    return net2(y.to(net2->weight.device()));
  }
  std::vector<Tensor> parameters() const { return {net1->weight, net1->bias, net2->weight, net2->bias}; }
};

TEST_F(ModelParallel, TwoLayersTrainAsOnTheHost) {
  const std::vector<std::function<std::unique_ptr<optim::Optimizer>(std::vector<Tensor>)>> makers = {
      [](std::vector<Tensor> p) {
        return std::make_unique<optim::SGD>(std::move(p), optim::SGDOptions(0.1).momentum(0.9));
      },
      [](std::vector<Tensor> p) { return std::make_unique<optim::AdamW>(std::move(p), optim::AdamWOptions(0.01)); },
      [](std::vector<Tensor> p) { return std::make_unique<optim::RMSprop>(std::move(p), optim::RMSpropOptions(0.01)); },
  };
  for (const auto& make : makers) {
    TwoLayers ours(kFirst, kSecond), theirs;
    const auto a = make(ours.parameters()), b = make(theirs.parameters());
    for (int step = 0; step < 5; ++step) {
      const Tensor x = randn({20, 10}, kDouble), t = randn({20, 5}, kDouble);
      a->zero_grad();
      b->zero_grad();
      const Tensor y = ours.forward(x);
      EXPECT_EQ(y.device(), kSecond);
      mse_loss(y, t.to(kSecond)).backward();
      mse_loss(theirs.forward(x), t).backward();
      EXPECT_EQ(ours.net1->weight.grad().device(), kFirst);
      const double norm = utils::clip_grad_norm_(ours.parameters(), 0.05);
      EXPECT_NEAR(norm, utils::clip_grad_norm_(theirs.parameters(), 0.05), 1e-12);
      a->step();
      b->step();
    }
    for (std::size_t i = 0; i < 4; ++i) expect_same(ours.parameters()[i].detach(), theirs.parameters()[i].detach());
  }
}

TEST_F(ModelParallel, ClippingByValueTakesParametersOfBothDevices) {
  TwoLayers net(kFirst, kSecond);
  (net.forward(randn({4, 10}, kDouble)) * 100).sum().backward();
  utils::clip_grad_value_(net.parameters(), 0.5);
  for (const Tensor& p : net.parameters()) EXPECT_LE(p.grad().abs().max().item<double>(), 0.5);
}

TEST_F(ModelParallel, BranchesOnTheirOwnDevicesMeetInTheEnd) {
  Linear left = in_double(Linear(6, 4)), right = in_double(Linear(6, 4));
  Linear left_there = in_double(Linear(6, 4)), right_there = in_double(Linear(6, 4));
  left_there->load_state_dict(left->state_dict());
  right_there->load_state_dict(right->state_dict());
  left_there->to(kFirst);
  right_there->to(kSecond);
  const Tensor x = randn({5, 6}, kDouble);
  const Tensor a = x.clone().requires_grad_(), b = x.clone().requires_grad_();
  const Tensor expected = tanh(left(a)) * sigmoid(right(a));
  const Tensor got = tanh(left_there(b.to(kFirst))).to(kSecond) * sigmoid(right_there(b.to(kSecond)));
  expect_same(got, expected);
  expected.sum().backward();
  got.sum().backward();
  expect_same(b.grad(), a.grad());
  expect_same(left_there->weight.grad(), left->weight.grad());
  expect_same(right_there->weight.grad(), right->weight.grad());
}

TEST_F(ModelParallel, BranchesByForkAreThoseInARow) {
  Linear left = in_double(Linear(6, 4)), right = in_double(Linear(6, 4));
  const Tensor x = randn({5, 6}, kDouble).requires_grad_();
  const auto branch = [](Linear layer, const Tensor& v) { return tanh(layer(v)); };
  auto later = fork([&] { return branch(left, x); });
  const Tensor here = branch(right, x);
  const Tensor joined = wait(later) * here;
  const Tensor expected = branch(left, x) * branch(right, x);
  expect_same(joined, expected);
  const auto got = autograd::grad({joined.sum()}, {x}), wanted = autograd::grad({expected.sum()}, {x});
  expect_same(got[0], wanted[0]);
}

// Each layer of an LSTM on a device.
TEST_F(ModelParallel, AnLstmSplitByLayersIsTheLstm) {
  LSTM whole = in_double(LSTM(LSTMOptions(3, 5).num_layers(2)));
  std::vector<LSTM> layers;
  for (int i = 0; i < 2; ++i) {
    LSTM& layer = layers.emplace_back(in_double(LSTM(i == 0 ? 3 : 5, 5)));
    const NoGradGuard guard;
    auto to = layer->named_parameters(), from = whole->named_parameters();
    for (const char* name : {"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"})
      to[std::string(name) + "0"].copy_(from[name + std::to_string(i)]);
    layer->to(i == 0 ? kFirst : kSecond);
  }
  const Tensor x = randn({7, 2, 3}, kDouble);
  const Tensor a = x.clone().requires_grad_(), b = x.clone().requires_grad_();
  const Tensor expected = std::get<0>(whole->forward(a));
  const Tensor middle = std::get<0>(layers[0]->forward(b.to(kFirst)));
  const Tensor got = std::get<0>(layers[1]->forward(middle.to(kSecond)));
  expect_same(got, expected);
  expected.pow(2).sum().backward();
  got.pow(2).sum().backward();
  expect_same(b.grad(), a.grad());
  expect_same(layers[0]->named_parameters()["weight_hh_l0"].grad(), whole->named_parameters()["weight_hh_l0"].grad());
  expect_same(layers[1]->named_parameters()["weight_ih_l0"].grad(), whole->named_parameters()["weight_ih_l1"].grad());
}

// The first half of the steps on one device, the second on the other, with the state handed over and shared weights.
TEST_F(ModelParallel, AnLstmSplitBySegmentsOfTheSequenceIsTheLstm) {
  LSTM whole = in_double(LSTM(3, 4)), first = in_double(LSTM(3, 4));
  first->load_state_dict(whole->state_dict());
  first->to(kFirst);
  const auto replicas = parallel::replicate(first, {kFirst, kSecond});
  const Tensor x = randn({9, 2, 3}, kDouble);
  const Tensor expected = std::get<0>(whole->forward(x));
  const auto [y1, state] = replicas[0]->forward(x.narrow(0, 0, 5).to(kFirst));
  const auto handed = std::make_tuple(std::get<0>(state).to(kSecond), std::get<1>(state).to(kSecond));
  const Tensor y2 = std::get<0>(replicas[1]->forward(x.narrow(0, 5, 4).to(kSecond), handed));
  const Tensor got = cat({y1.to(kSecond), y2}, 0);
  expect_same(got, expected);
  expected.pow(2).sum().backward();
  got.pow(2).sum().backward();
  for (const auto& p : whole->named_parameters())
    expect_same(first->named_parameters()[p.key()].grad(), p.value().grad());
}

TEST_F(ModelParallel, MistakesAreNamed) {
  Linear layer(4, 4);
  layer->to(kFirst);
  EXPECT_THAT(error_of([&] {
                layer(ones({2, 4}, TensorOptions(kSecond)));
              }),
              AllOf(HasSubstr("cpu:0"), HasSubstr("cpu:1")));
  EXPECT_THAT(error_of([&] { layer(ones({2, 4})); }), HasSubstr("cpu:0"));
  EXPECT_THAT(error_of([&] { layer->to(Device(DeviceType::CPU, 5)); }), HasSubstr("cpu:5"));
  EXPECT_THAT(error_of([&] { ones({2}).to(Device("cuda:0")); }), HasSubstr("cuda"));
  EXPECT_THAT(error_of([&] { ones({6, 2}).split(0); }), HasSubstr("split"));
  EXPECT_THAT(error_of([&] {
                parallel::DataParallel(layer, parallel::DataParallelOptions().device_ids({kFirst, kFirst}));
              }),
              HasSubstr("listed twice"));
  using parallel::Pipeline;
  using parallel::PipelineOptions;
  // The first stage's output does not fit the second.
  Pipeline mismatched(Sequential(Linear(4, 3), Linear(4, 2)), PipelineOptions().devices({kFirst, kSecond}));
  EXPECT_THAT(error_of([&] { mismatched(ones({2, 4})); }), AllOf(HasSubstr("3"), HasSubstr("4")));
  Pipeline pipe(Sequential(Linear(4, 3), Linear(3, 2)), PipelineOptions().devices({kFirst, kSecond}).split_size(3));
  EXPECT_THAT(error_of([&] { pipe(ones({2, 5})); }), HasSubstr("beyond the batch"));
  EXPECT_THAT(error_of([&] {
                Pipeline(Sequential(Linear(4, 3)), PipelineOptions().devices({kFirst, kSecond}));
              }),
              HasSubstr("every stage needs a layer"));
}

}  // namespace
}  // namespace athanor::nn
