// Residual networks: torchvision's names and sizes, and document-style subclassing over two devices.
#include "athanor/models/resnet.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "athanor/autograd/autograd.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/tensor.h"
#include "athanor/parallel/pipeline.h"
#include "athanor/tensor/stream.h"

namespace athanor::models {
namespace {

std::int64_t numbers(const nn::Module& net) {
  std::int64_t n = 0;
  for (const Tensor& p : net.parameters()) n += p.numel();
  return n;
}

TEST(ResNet, HasTorchvisionsParameters) {
  EXPECT_EQ(numbers(*resnet18()), 11'689'512);
  EXPECT_EQ(numbers(*resnet34()), 21'797'672);
  EXPECT_EQ(numbers(*resnet101(10)), 44'549'160 - 990 * 2049);
  const ResNet net = resnet50();
  EXPECT_EQ(numbers(*net), 25'557'032);
  const auto state = net->state_dict();
  EXPECT_EQ(state.size(), 320U);
  const auto shape = [&](const char* name) { return state[name].sizes().vec(); };
  EXPECT_EQ(shape("conv1.weight"), (std::vector<std::int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(shape("layer1.0.downsample.0.weight"), (std::vector<std::int64_t>{256, 64, 1, 1}));
  EXPECT_EQ(shape("layer1.0.downsample.1.running_var"), (std::vector<std::int64_t>{256}));
  EXPECT_EQ(shape("layer3.5.conv2.weight"), (std::vector<std::int64_t>{256, 256, 3, 3}));
  EXPECT_EQ(shape("layer4.0.bn3.num_batches_tracked"), (std::vector<std::int64_t>{}));
  EXPECT_EQ(shape("fc.weight"), (std::vector<std::int64_t>{1000, 2048}));
  EXPECT_FALSE(state.contains("layer1.1.downsample.0.weight"));
}

TEST(ResNet, TheBiggestHasItsBlocks) { EXPECT_EQ(numbers(*resnet152(1)), 60'192'808 - 999 * 2049); }

using Block = ResNetOptions::Block;

ResNet tiny(Block block, bool zero_init = false) {
  return ResNet(ResNetOptions(block, {1, 2, 1, 1}).num_classes(7).zero_init_residual(zero_init));
}

TEST(ResNet, TrainsAndItsCloneGivesTheSame) {
  for (const Block block : {Block::Basic, Block::Bottleneck}) {
    manual_seed(1);
    ResNet net = tiny(block);
    const Tensor x = randn({2, 3, 64, 64});
    const Tensor y = net(x);
    EXPECT_EQ(y.sizes().vec(), (std::vector<std::int64_t>{2, 7}));
    y.pow(2).sum().backward();
    for (const auto& p : net->named_parameters()) EXPECT_GT(p.value().grad().abs().sum().item<float>(), 0) << p.key();
    net->eval();
    const auto copy = std::dynamic_pointer_cast<ResNetImpl>(net->clone());
    EXPECT_TRUE(copy->forward(x).equal(net(x)));
    EXPECT_TRUE(as_sequential(net)->forward(x).equal(net(x)));
  }
}

TEST(ResNet, BlocksBeginAsTheIdentityIfAsked) {
  const ResNet net = tiny(Block::Bottleneck, true);
  EXPECT_EQ(net->layer2->ptr<BottleneckImpl>(1)->bn3->weight.abs().sum().item<float>(), 0);
}

TEST(ResNet, RefusesNoBlocksAndNoClasses) {
  EXPECT_THROW(ResNet(ResNetOptions(Block::Basic, {1, 0, 1, 1})), ValueError);
  EXPECT_THROW(resnet18(0), ValueError);
}

// The halves of a network on two devices, with its own forward: each half is registered under a second name.
class HalvesImpl : public ResNetImpl {
 public:
  explicit HalvesImpl(const ResNetOptions& options) : ResNetImpl(options) {
    seq1 = register_module("seq1", nn::Sequential(conv1, bn1, relu, maxpool, layer1, layer2));
    seq2 = register_module("seq2", nn::Sequential(layer3, layer4, avgpool));
  }
  void place(Device first, Device second) {
    seq1->to(first);
    seq2->to(second);
    fc->to(second);
    second_ = second;
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = seq2->forward(seq1->forward(x).to(second_));
    return fc(y.view({y.size(0), -1}));
  }
  nn::Sequential seq1{nullptr}, seq2{nullptr};

 private:
  Device second_;
};

class TwoDevices : public testing::Test {
 protected:
  void SetUp() override { detail::configure_cpu_queues(2); }
  void TearDown() override { detail::configure_cpu_queues(0); }
};

// As large as the largest value expected times `scaled`.
void expect_close(const Tensor& got, const Tensor& expected, double scaled, const std::string& what) {
  const double greatest = expected.abs().max().to(kDouble).item<double>();
  EXPECT_LE((got.cpu() - expected).abs().max().to(kDouble).item<double>(), scaled * greatest) << what;
}

TEST_F(TwoDevices, HalvesOfANetworkTrainAsTheWhole) {
  const Device first(DeviceType::CPU, 0), second(DeviceType::CPU, 1);
  for (const DType dtype : {kDouble, kFloat}) {
    manual_seed(3);
    const ResNetOptions options = ResNetOptions(Block::Bottleneck, {1, 1, 1, 1}).num_classes(5);
    const auto whole = std::make_shared<ResNetImpl>(options);
    const auto halves = std::make_shared<HalvesImpl>(options);
    whole->to(dtype);
    halves->to(dtype);
    EXPECT_EQ(halves->parameters().size(), whole->parameters().size());
    EXPECT_EQ(halves->state_dict().size(), 2 * whole->state_dict().size() - 2);  // all but fc's under two names
    halves->load_state_dict(whole->state_dict(), false);
    halves->place(first, second);
    const Tensor x = randn({3, 3, 40, 40}, dtype);
    for (int step = 0; step < 2; ++step) {
      // How float32 sums round depends on kernels and threads, and a value that it moves over ReLU's corner moves
      // gradients, by half of themselves where batch norm has twelve values: they are compared in float64.
      if (dtype == kFloat) halves->load_state_dict(whole->state_dict(), false);
      const Tensor expected = whole->forward(x), got = halves->forward(x.to(first));
      EXPECT_EQ(got.device(), second);
      expect_close(got.detach(), expected.detach(), dtype == kFloat ? 1e-4 : 1e-10, "output");
      expected.pow(2).sum().backward();
      got.pow(2).sum().backward();
      const NoGradGuard off;
      const auto theirs = whole->named_parameters();
      for (const auto& p : halves->named_parameters()) {
        const std::string& key = p.key();
        if (!theirs.contains(key)) continue;
        const Tensor& other = theirs[key];
        EXPECT_EQ(p.value().grad().dtype(), dtype) << key;
        if (dtype == kDouble) expect_close(p.value().grad(), other.grad(), 1e-10, key);
        EXPECT_EQ(p.value().grad().device(), p.value().device()) << key;
        Tensor(p.value()).add_(p.value().grad(), -1e-3);
        Tensor(other).add_(other.grad(), -1e-3);
      }
      whole->zero_grad();
      halves->zero_grad();
    }
  }
}

TEST_F(TwoDevices, APipelineTrainsAsTheNetworkRunPerMicroBatch) {
  using namespace nn::parallel;  // NOLINT(google-build-using-namespace)
  for (const auto& [dtype, scaled] : {std::pair(kDouble, 1e-10), std::pair(kFloat, 1e-5)})
    for (const auto schedule : {PipelineSchedule::FillDrain, PipelineSchedule::OneForwardOneBackward}) {
      manual_seed(4);
      ResNet whole = tiny(Block::Bottleneck), cut = tiny(Block::Bottleneck);
      whole->to(dtype);
      cut->to(dtype);
      cut->load_state_dict(whole->state_dict());
      Pipeline pipe(as_sequential(cut), PipelineOptions()
                                            .devices({Device(DeviceType::CPU, 0), Device(DeviceType::CPU, 1)})
                                            .split_size(4)
                                            .schedule(schedule));
      const Tensor x = randn({8, 3, 64, 64}, dtype), t = randint(7, {8}, kLong);
      const Tensor loss =
          pipe->train_step(x, t, [](const Tensor& y, const Tensor& to) { return cross_entropy_loss(y, to); });
      Tensor expected;
      const auto xs = x.split(4), ts = t.split(4);
      for (std::size_t m = 0; m < xs.size(); ++m) {
        const Tensor part = cross_entropy_loss(whole(xs[m]), ts[m]) / 2;
        part.backward();
        expected = expected.defined() ? expected + part.detach() : part.detach();
      }
      expect_close(loss, expected, scaled, "loss");
      const auto theirs = whole->named_parameters();
      for (const auto& p : cut->named_parameters())
        expect_close(p.value().grad(), theirs[p.key()].grad(), scaled, p.key());
    }
}

}  // namespace
}  // namespace athanor::models
