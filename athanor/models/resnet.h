#pragma once
/// Residual networks (He et al., "Deep Residual Learning for Image Recognition", 2015) in torchvision's form: its names
/// of parameters, so that its state files load, and the stride of a bottleneck in its 3 × 3 convolution.

#include <array>
#include <string>

#include "athanor/nn/nn.h"

namespace athanor::models {

/// relu(x + f(x)) with f of two 3 × 3 convolutions.
class BasicBlockImpl : public nn::Cloneable<BasicBlockImpl> {
 public:
  static constexpr std::int64_t kExpansion = 1;
  /// Where the shape changes, x goes through a 1 × 1 convolution, `downsample`.
  BasicBlockImpl(std::int64_t inplanes, std::int64_t planes, std::int64_t stride = 1);
  void reset() override;
  Tensor forward(const Tensor& x);
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
  nn::Sequential downsample{nullptr};

 private:
  std::int64_t inplanes_, planes_, stride_;
};
ATHANOR_MODULE(BasicBlock);

/// relu(x + f(x)) with f of 1 × 1, 3 × 3 and 1 × 1 convolutions; the result has 4 × planes channels.
class BottleneckImpl : public nn::Cloneable<BottleneckImpl> {
 public:
  static constexpr std::int64_t kExpansion = 4;
  BottleneckImpl(std::int64_t inplanes, std::int64_t planes, std::int64_t stride = 1);
  void reset() override;
  Tensor forward(const Tensor& x);
  nn::Conv2d conv1{nullptr}, conv2{nullptr}, conv3{nullptr};
  nn::BatchNorm2d bn1{nullptr}, bn2{nullptr}, bn3{nullptr};
  nn::Sequential downsample{nullptr};

 private:
  std::int64_t inplanes_, planes_, stride_;
};
ATHANOR_MODULE(Bottleneck);

struct ResNetOptions {
  enum class Block : std::uint8_t { Basic, Bottleneck };
  using Layers = std::array<std::int64_t, 4>;
  ResNetOptions(Block block, const Layers& layers) : block_(block), layers_(layers) {}
  ATHANOR_ARG(Block, block);
  ATHANOR_ARG(Layers, layers);  ///< blocks in each of the four stages
  ATHANOR_ARG(std::int64_t, num_classes) = 1000;
  ATHANOR_ARG(bool, zero_init_residual) = false;  ///< every block begins as the identity
};

/// Takes [N, 3, H, W], returns [N, num_classes]. Made to be subclassed: the members may be put on other devices or into
/// containers of the subclass, with a forward of its own.
class ResNetImpl : public nn::Cloneable<ResNetImpl> {
 public:
  /// Throws ValueError for a stage without blocks or no classes.
  explicit ResNetImpl(const ResNetOptions& options);
  void reset() override;
  virtual Tensor forward(const Tensor& x);

  nn::Conv2d conv1{nullptr};
  nn::BatchNorm2d bn1{nullptr};
  nn::ReLU relu{nullptr};
  nn::MaxPool2d maxpool{nullptr};
  nn::Sequential layer1{nullptr}, layer2{nullptr}, layer3{nullptr}, layer4{nullptr};
  nn::AdaptiveAvgPool2d avgpool{nullptr};
  nn::Linear fc{nullptr};

 private:
  nn::Sequential stage(std::int64_t& inplanes, std::int64_t planes, std::int64_t blocks, std::int64_t stride) const;
  void init_weights();
  ResNetOptions options_;
};
ATHANOR_MODULE(ResNet);

ResNet resnet18(std::int64_t num_classes = 1000);
ResNet resnet34(std::int64_t num_classes = 1000);
ResNet resnet50(std::int64_t num_classes = 1000);
ResNet resnet101(std::int64_t num_classes = 1000);
ResNet resnet152(std::int64_t num_classes = 1000);

/// The convolutional part of a ResNet and its classifier as one Sequential, for pipelines: conv1, bn1, relu, maxpool,
/// every block, avgpool, a Flatten, fc. It shares `net`'s modules.
nn::Sequential as_sequential(const ResNet& net);

}  // namespace athanor::models
