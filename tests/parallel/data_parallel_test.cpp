// DataParallel over queued devices: results and gradients are those of the module alone.
#include "athanor/parallel/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "athanor/autograd/autograd.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/algorithms.h"
#include "athanor/tensor/device_memory.h"
#include "athanor/tensor/stream.h"

namespace athanor::nn::parallel {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Device on(int i) { return Device(DeviceType::CPU, static_cast<DeviceIndex>(i)); }

class NetImpl : public Cloneable<NetImpl> {
 public:
  NetImpl() { NetImpl::reset(); }
  void reset() override {
    conv = register_module("conv", Conv2d(Conv2dOptions(1, 4, 3)));
    norm = register_module("norm", BatchNorm2d(4));
    fc = register_module("fc", Linear(4 * 6 * 6, 5));
    shared = register_module("shared", fc);
  }
  Tensor forward(const Tensor& x) {
    ++calls;
    return shared(athanor::flatten(athanor::relu(with_norm ? norm(conv(x)) : conv(x)), 1));
  }
  Conv2d conv{nullptr};
  BatchNorm2d norm{nullptr};
  Linear fc{nullptr}, shared{nullptr};
  bool with_norm = false;
  int calls = 0;
};
ATHANOR_MODULE(Net);

class DataParallelOver : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { athanor::detail::configure_cpu_queues(GetParam()); }
  void TearDown() override { athanor::detail::configure_cpu_queues(0); }
};
INSTANTIATE_TEST_SUITE_P(Devices, DataParallelOver, testing::Values(2, 3, 4));

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_P(DataParallelOver, TrainsAsTheModuleAlone) {
  manual_seed(5);
  Net alone;
  alone->to(kDouble);
  Net inner(std::dynamic_pointer_cast<NetImpl>(alone->clone(on(0))));
  DataParallel ddp(inner);
  EXPECT_EQ(ddp->device_ids().size(), static_cast<std::size_t>(GetParam()));
  optim::SGD ours(ddp->parameters(), optim::SGDOptions(0.1).momentum(0.9)),
      theirs(alone->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  for (const std::int64_t batch : {8, 7, 1, 2, 5}) {  // uneven, and fewer than devices
    const Tensor x = randn({batch, 1, 8, 8}, kDouble), t = randint(5, {batch}, kLong);
    ours.zero_grad();
    theirs.zero_grad();
    const Tensor y = ddp(x.to(on(0)));
    EXPECT_EQ(y.device(), on(0));
    EXPECT_TRUE(athanor::allclose(y.cpu(), alone(x), 1e-10, 1e-12));
    functional::cross_entropy(y, t.to(on(0))).backward();
    functional::cross_entropy(alone(x), t).backward();
    ours.step();
    theirs.step();
    for (std::size_t i = 0; i < alone->parameters().size(); ++i)
      EXPECT_TRUE(athanor::allclose(inner->parameters()[i].cpu(), alone->parameters()[i], 1e-10, 1e-12));
  }
}

TEST_P(DataParallelOver, AReplicaThatAGraphStillNeedsIsLeftToIt) {
  manual_seed(6);
  Net inner;
  inner->to(on(0));
  DataParallel net(inner);
  const Tensor x = randn({4, 1, 8, 8}).to(on(0));
  const Tensor first = net(x).sum(), second = net(x * 2).sum();
  second.backward();
  first.backward();
  const Tensor both = inner->conv->weight.grad().clone();
  inner->zero_grad();
  (net(x).sum() + net(x * 2).sum()).backward();
  EXPECT_TRUE(athanor::allclose(both.cpu(), inner->conv->weight.grad().cpu(), 1e-5, 1e-5));
}

TEST_P(DataParallelOver, ReplicasFollowModeAndValues) {
  Net inner;
  inner->to(on(0));
  Replicas replicas(inner.ptr(), all_devices());
  EXPECT_EQ(replicas.refreshed(2)[0], inner.ptr());
  {
    const NoGradGuard off;
    inner->conv->weight.fill_(3);
    inner->norm->running_mean.fill_(2);
    inner->norm->eval();
  }
  const auto& copy = dynamic_cast<NetImpl&>(*replicas.refreshed(2)[1]);
  EXPECT_EQ(copy.conv->weight.device(), on(1));
  EXPECT_EQ(copy.conv->weight.cpu().min().item<float>(), 3);
  EXPECT_EQ(copy.norm->running_mean.cpu().max().item<float>(), 2);
  EXPECT_TRUE(copy.is_training());
  EXPECT_FALSE(copy.norm->is_training());
  copy.conv->weight.sum().backward();
  EXPECT_EQ(inner->conv->weight.grad().cpu().max().item<float>(), 1);
}

TEST_P(DataParallelOver, ReplicasFollowTheModulesDtype) {
  Net inner;
  inner->with_norm = true;
  inner->to(on(0));
  DataParallel net(inner);
  EXPECT_EQ(net(randn({8, 1, 8, 8}).to(on(0))).dtype(), kFloat);
  inner->to(kDouble);
  inner->with_norm = false;  // each part has statistics of its own
  const Tensor x = randn({8, 1, 8, 8}, kDouble).to(on(0));
  const Tensor y = net(x);
  EXPECT_EQ(y.dtype(), kDouble);
  EXPECT_TRUE(athanor::allclose(y.cpu(), inner(x).cpu(), 1e-12, 1e-12));
  y.sum().backward();
  EXPECT_EQ(inner->conv->weight.grad().dtype(), kDouble);
}

/// Draws in its reset() while another thread draws, too.
class DrawsImpl : public Cloneable<DrawsImpl> {
 public:
  DrawsImpl() { DrawsImpl::reset(); }
  void reset() override {
    athanor::rand({16});
    std::thread([] { elsewhere.push_back(athanor::rand({4})); }).join();
    manual_seed(77);
    fc = register_module("fc", Linear(3, 3));
  }
  Tensor forward(const Tensor& x) { return fc(x); }
  Linear fc{nullptr};
  static inline std::vector<Tensor> elsewhere;
};
ATHANOR_MODULE(Draws);

TEST_P(DataParallelOver, ReplicasLeaveRandomNumbersOfAllThreadsAlone) {
  Draws inner;
  inner->to(on(0));
  DataParallel net(inner);
  DrawsImpl::elsewhere.clear();
  manual_seed(5);
  net(ones({8, 3}, on(0)));
  EXPECT_EQ(DrawsImpl::elsewhere.size(), static_cast<std::size_t>(GetParam() - 1));
  DrawsImpl::elsewhere.push_back(athanor::rand({4}));
  manual_seed(5);
  for (const Tensor& drawn : DrawsImpl::elsewhere) EXPECT_TRUE(drawn.equal(athanor::rand({4})));
}

// No graph of an earlier call is alive, which would be a reason of its own for new replicas.
TEST_P(DataParallelOver, ReplicasFollowOptionsPlainMembersAndHooks) {
  Sequential inner(Net(), Dropout(DropoutOptions(1)));
  inner->to(on(0));
  DataParallel net(inner);
  const NoGradGuard off;
  const Tensor x = randn({8, 1, 8, 8}).to(on(0));
  EXPECT_EQ(net(x).abs().sum().cpu().item<float>(), 0);
  inner[1]->as<Dropout>()->options.p(0);
  EXPECT_TRUE(athanor::allclose(net(x).cpu(), inner(x).cpu(), 1e-5, 1e-6));
  inner->eval();
  inner[0]->as<Net>()->with_norm = true;
  EXPECT_TRUE(athanor::allclose(net(x).cpu(), inner(x).cpu(), 1e-5, 1e-6));
  const auto negates = [](Module&, const std::vector<Tensor>&, const Tensor& y) { return -y; };
  const auto within = inner[0]->children()[0]->register_forward_hook(negates);
  EXPECT_TRUE(athanor::allclose(net(x).cpu(), inner(x).cpu(), 1e-5, 1e-6));
  inner->register_forward_hook(negates);
  const Tensor y = net(x);
  EXPECT_TRUE(athanor::allclose(y.cpu(), inner(x).cpu(), 1e-5, 1e-6));
  inner[0]->children()[0]->remove_hook(within);
  EXPECT_FALSE(athanor::allclose(net(x).cpu(), y.cpu(), 1e-3, 1e-3));
  EXPECT_TRUE(athanor::allclose(net(x).cpu(), inner(x).cpu(), 1e-5, 1e-6));
}

TEST_P(DataParallelOver, ReplicasKeepTheModesOfInnerLayersOfContainers) {
  Sequential inner(Sequential(Linear(4, 4), Dropout()), Linear(4, 2));
  inner->to(on(0));
  inner[0]->children()[1]->eval();
  const auto replicas = replicate(inner, all_devices());
  for (const auto& replica : replicas) {
    EXPECT_TRUE(replica->ptr(0)->is_training());
    EXPECT_FALSE(replica->ptr(0)->children()[1]->is_training());
  }
}

TEST_P(DataParallelOver, MakingReplicasDrawsNoRandomNumbers) {
  struct DrawingImpl : Cloneable<DrawingImpl> {
    DrawingImpl() { DrawingImpl::reset(); }
    void reset() override {
      weight = register_parameter("weight", randn({3, 3}));
      layer = register_module("layer", Linear(3, 2));
    }
    Tensor forward(const Tensor& x) { return layer(x.matmul(weight)); }
    Tensor weight;
    Linear layer{nullptr};
  };
  auto inner = std::make_shared<DrawingImpl>();
  inner->to(on(0));
  DataParallel<DrawingImpl> net(inner);
  manual_seed(8);
  const Tensor next = randn({4});
  manual_seed(8);
  const Tensor x = ones({8, 3}, TensorOptions(on(0)));
  EXPECT_TRUE(athanor::allclose(net(x).cpu(), inner->forward(x).cpu(), 1e-5, 1e-6));
  EXPECT_TRUE(randn({4}).equal(next));
}

// What two layers share is two parameters of a replica, and one gradient.
TEST_P(DataParallelOver, ReplicasOfLaterStepsTakeTheMemoryOfEarlierOnes) {
  Net net;
  net->to(on(0));
  DataParallel parallel(net);
  const Tensor x = ones({8, 1, 8, 8}).to(on(0));
  const auto step = [&] {
    net->zero_grad();
    parallel->forward(x).sum().backward();
    for (int i = 0; i < GetParam(); ++i) synchronize(on(i));
  };
  for (int i = 0; i < 3; ++i) step();
  const auto reserved = memory_reserved(on(1));
  EXPECT_GT(reserved, 0);
  // How far a queue has come when memory is asked for again is a matter of time, and so is a block more or less.
  // Replicas that found no memory of earlier ones would add themselves each time.
  std::int64_t replica = 0;
  for (const Tensor& parameter : net->parameters()) replica += static_cast<std::int64_t>(parameter.nbytes());
  constexpr int kSteps = 40;
  for (int i = 0; i < kSteps; ++i) step();
  EXPECT_LT(memory_reserved(on(1)), reserved + kSteps * replica / 2) << "of replicas of " << replica << " bytes";
}

TEST_P(DataParallelOver, TiedWeightsGetTheGradientsOfAllTheirUses) {
  struct TiedImpl : Cloneable<TiedImpl> {
    TiedImpl() { TiedImpl::reset(); }
    void reset() override {
      a = register_module("a", Linear(LinearOptions(4, 4).bias(false)));
      b = register_module("b", Linear(LinearOptions(4, 4).bias(false)));
      c = register_module("c", Linear(4, 3));
      b->unregister_parameter("weight");
      b->weight = b->register_parameter("weight", a->weight);
    }
    Tensor forward(const Tensor& x) { return c(athanor::tanh(b(athanor::tanh(a(x))))); }
    Linear a{nullptr}, b{nullptr}, c{nullptr};
  };
  auto inner = std::make_shared<TiedImpl>();
  inner->to(on(0));
  ASSERT_EQ(inner->parameters().size(), 3U);
  DataParallel<TiedImpl> net(inner);
  const Tensor x = randn({8, 4}).to(on(0));
  net(x).pow(2).sum().backward();
  std::vector<Tensor> got;
  for (const Tensor& p : inner->parameters()) got.push_back(p.grad().clone());
  inner->zero_grad();
  inner->forward(x).pow(2).sum().backward();
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(athanor::allclose(got[i].cpu(), inner->parameters()[i].grad().cpu(), 1e-4, 1e-5)) << i;
}

TEST_P(DataParallelOver, WeightNormTrainsOnReplicasToo) {
  Linear layer = utils::weight_norm(Linear(4, 3));
  layer->to(on(0));
  DataParallel net(layer);
  const Tensor x = randn({8, 4}).to(on(0));
  net(x).pow(2).sum().backward();
  const Tensor got = layer->named_parameters()["weight_g"].grad().clone();
  layer->zero_grad();
  layer(x).pow(2).sum().backward();
  EXPECT_TRUE(athanor::allclose(got.cpu(), layer->named_parameters()["weight_g"].grad().cpu(), 1e-4, 1e-5));
}

TEST_P(DataParallelOver, ParallelApplyCallsEachModuleWithItsInput) {
  const auto devices = all_devices();
  Linear layer(4, 3);
  layer->to(on(0));
  const auto modules = replicate(layer, devices);
  const Tensor x = randn({8, 4}).to(on(0));
  const auto parts = scatter(x, devices);
  const auto outputs = parallel_apply(modules, parts);
  ASSERT_EQ(outputs.size(), parts.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(outputs[i].device(), devices[i]);
  EXPECT_TRUE(athanor::allclose(gather(outputs, on(0)).cpu(), layer(x).cpu(), 1e-5, 1e-6));
  EXPECT_EQ(parallel_apply(modules, {parts[0]}).size(), 1U);
  const std::vector<std::shared_ptr<LinearImpl>> one{modules[0]};
  EXPECT_THAT(error_of([&] { parallel_apply(one, {x, x}); }), HasSubstr("1 modules for 2 inputs"));
}

TEST_P(DataParallelOver, TrainsAfterAFirstCallInInferenceMode) {
  Net inner;
  inner->to(on(0));
  DataParallel net(inner);
  const Tensor x = randn({8, 1, 8, 8}).to(on(0));
  Tensor first;
  {
    const InferenceMode on;
    first = net(x);
  }
  const Tensor y = net(x);
  EXPECT_TRUE(y.detach().cpu().equal(first.cpu()));
  y.sum().backward();
  const Tensor got = inner->conv->weight.grad().clone();
  inner->zero_grad();
  inner(x).sum().backward();
  EXPECT_TRUE(athanor::allclose(got.cpu(), inner->conv->weight.grad().cpu(), 1e-4, 1e-4));
}

TEST_P(DataParallelOver, BuffersAreTheFirstDevices) {
  Net inner;
  inner->with_norm = true;
  inner->to(on(0));
  DataParallel net(inner);
  const Tensor x = randn({8, 1, 8, 8});
  net(x.to(on(0)));
  EXPECT_EQ(inner->norm->num_batches_tracked.cpu().item<std::int64_t>(), 1);
  EXPECT_NE(inner->norm->running_mean.cpu().abs().sum().item<float>(), 0);
}

TEST_P(DataParallelOver, WithoutGradNothingIsRecorded) {
  Net inner;
  inner->to(on(0));
  DataParallel net(inner);
  const NoGradGuard off;
  EXPECT_FALSE(net(randn({4, 1, 8, 8}).to(on(0))).requires_grad());
}

TEST_P(DataParallelOver, OneDeviceRunsTheModuleItself) {
  Net inner;
  inner->to(on(1));
  DataParallel net(inner, DataParallelOptions().device_ids({on(1)}).output_device(on(0)));
  EXPECT_EQ(net(randn({4, 1, 8, 8}).to(on(1))).device(), on(0));
  EXPECT_EQ(inner->calls, 1);
  EXPECT_TRUE(net->named_parameters().contains("module.conv.weight"));
}

TEST_P(DataParallelOver, ScattersAndGathersWithGradients) {
  Tensor x = arange(10, kFloat).reshape({5, 2}).to(on(0)).detach().requires_grad_();
  const auto parts = scatter(x, all_devices());
  const std::int64_t each = (5 + GetParam() - 1) / GetParam();
  EXPECT_EQ(parts.size(), static_cast<std::size_t>((5 + each - 1) / each));
  for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i].device(), on(static_cast<int>(i)));
  const Tensor back = gather(parts, on(0));
  EXPECT_TRUE(back.cpu().equal(x.cpu()));
  (back * back).sum().backward();
  EXPECT_TRUE(x.grad().cpu().equal(x.detach().cpu() * 2));
  const Tensor scalars = gather({parts[0].sum(), parts[1].sum()}, on(1));
  EXPECT_EQ(scalars.sizes().vec(), (std::vector<std::int64_t>{2}));
  EXPECT_TRUE(data_parallel(Net(), randn({3, 1, 8, 8}), std::vector<Device>{Device()}).device().is_host());
}

TEST_P(DataParallelOver, RefusesWhatCannotWork) {
  Net inner;
  EXPECT_THAT(error_of([&] {
                DataParallel(inner)->forward(randn({2, 1, 8, 8}));
              }),
              AllOf(HasSubstr("conv.weight"), HasSubstr("lies on cpu"), HasSubstr("cpu:0")));
  EXPECT_THAT(error_of([&] {
                DataParallel(inner, DataParallelOptions().device_ids({on(0), on(0)}));
              }),
              HasSubstr("cpu:0 is listed twice"));
  EXPECT_THAT(error_of([&] {
                DataParallel(inner, DataParallelOptions().device_ids({on(0), on(9)}));
              }),
              HasSubstr("cpu:9"));
  EXPECT_THAT(error_of([&] { scatter(tensor(1.0), all_devices()); }), HasSubstr("0-d"));
  EXPECT_THAT(error_of([&] { scatter(ones({2}), {}); }), HasSubstr("no devices"));
}

}  // namespace
}  // namespace athanor::nn::parallel
