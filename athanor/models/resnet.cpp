#include "athanor/models/resnet.h"

namespace athanor::models {

namespace {

nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// x on its way around a block, where that changes its shape.
nn::Sequential detour(std::int64_t in, std::int64_t out, std::int64_t stride) {
  if (in == out && stride == 1) return nullptr;
  return nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out));
}

// relu(norm(x)); hooks of the norm see what it makes alone.
Tensor norm_relu(nn::BatchNorm2d& norm, const Tensor& x) {
  return norm->has_hooks() ? norm(x).relu_() : norm->forward_relu(x);
}

// relu(norm(y) + the way around).
Tensor join(nn::BatchNorm2d& norm, const Tensor& y, const Tensor& x, nn::Sequential& downsample) {
  if (norm->has_hooks()) return norm(y).add_(downsample ? downsample->forward(x) : x).relu_();
  return norm->forward_relu(y, downsample ? downsample->forward(x) : x);
}

}  // namespace

BasicBlockImpl::BasicBlockImpl(std::int64_t inplanes, std::int64_t planes, std::int64_t stride)
    : inplanes_(inplanes), planes_(planes), stride_(stride) {
  BasicBlockImpl::reset();
}

void BasicBlockImpl::reset() {
  conv1 = register_module("conv1", conv(inplanes_, planes_, 3, stride_));
  bn1 = register_module("bn1", nn::BatchNorm2d(planes_));
  conv2 = register_module("conv2", conv(planes_, planes_, 3, 1));
  bn2 = register_module("bn2", nn::BatchNorm2d(planes_));
  downsample = detour(inplanes_, planes_, stride_);
  if (downsample) register_module("downsample", downsample);
}

Tensor BasicBlockImpl::forward(const Tensor& x) { return join(bn2, conv2(norm_relu(bn1, conv1(x))), x, downsample); }

BottleneckImpl::BottleneckImpl(std::int64_t inplanes, std::int64_t planes, std::int64_t stride)
    : inplanes_(inplanes), planes_(planes), stride_(stride) {
  BottleneckImpl::reset();
}

void BottleneckImpl::reset() {
  const std::int64_t out = planes_ * kExpansion;
  conv1 = register_module("conv1", conv(inplanes_, planes_, 1, 1));
  bn1 = register_module("bn1", nn::BatchNorm2d(planes_));
  conv2 = register_module("conv2", conv(planes_, planes_, 3, stride_));
  bn2 = register_module("bn2", nn::BatchNorm2d(planes_));
  conv3 = register_module("conv3", conv(planes_, out, 1, 1));
  bn3 = register_module("bn3", nn::BatchNorm2d(out));
  downsample = detour(inplanes_, out, stride_);
  if (downsample) register_module("downsample", downsample);
}

Tensor BottleneckImpl::forward(const Tensor& x) {
  const Tensor y = norm_relu(bn2, conv2(norm_relu(bn1, conv1(x))));
  return join(bn3, conv3(y), x, downsample);
}

ResNetImpl::ResNetImpl(const ResNetOptions& options) : options_(options) {
  for (const std::int64_t blocks : options_.layers())
    ATHANOR_CHECK_VALUE(blocks > 0, "ResNet: every stage needs a block, got layers of ", options_.layers()[0], ", ",
                        options_.layers()[1], ", ", options_.layers()[2], ", ", options_.layers()[3]);
  ATHANOR_CHECK_VALUE(options_.num_classes() > 0, "ResNet: num_classes must be positive, got ", options_.num_classes());
  ResNetImpl::reset();
}

nn::Sequential ResNetImpl::stage(std::int64_t& inplanes, std::int64_t planes, std::int64_t blocks,
                                 std::int64_t stride) const {
  nn::Sequential result;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t step = i == 0 ? stride : 1;
    if (options_.block() == ResNetOptions::Block::Basic) {
      result->push_back(BasicBlock(inplanes, planes, step));
      inplanes = planes * BasicBlockImpl::kExpansion;
    } else {
      result->push_back(Bottleneck(inplanes, planes, step));
      inplanes = planes * BottleneckImpl::kExpansion;
    }
  }
  return result;
}

void ResNetImpl::reset() {
  std::int64_t inplanes = 64;
  const auto& layers = options_.layers();
  conv1 = register_module("conv1",
                          nn::Conv2d(nn::Conv2dOptions(3, inplanes, 7).stride(2).padding(std::int64_t{3}).bias(false)));
  bn1 = register_module("bn1", nn::BatchNorm2d(inplanes));
  relu = register_module("relu", nn::ReLU(nn::ReLUOptions().inplace(true)));
  maxpool = register_module("maxpool", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  layer1 = register_module("layer1", stage(inplanes, 64, layers[0], 1));
  layer2 = register_module("layer2", stage(inplanes, 128, layers[1], 2));
  layer3 = register_module("layer3", stage(inplanes, 256, layers[2], 2));
  layer4 = register_module("layer4", stage(inplanes, 512, layers[3], 2));
  avgpool = register_module("avgpool", nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({1, 1})));
  fc = register_module("fc", nn::Linear(inplanes, options_.num_classes()));
  init_weights();
}

void ResNetImpl::init_weights() {
  const NoGradGuard guard;
  for (const auto& module : modules(false)) {
    if (auto* layer = module->as<nn::Conv2d>()) nn::init::kaiming_normal_(layer->weight, 0, kFanOut, kReLU);
    if (!options_.zero_init_residual()) continue;
    if (auto* block = module->as<BasicBlock>()) block->bn2->weight.zero_();
    if (auto* block = module->as<Bottleneck>()) block->bn3->weight.zero_();
  }
}

Tensor ResNetImpl::forward(const Tensor& input) {
  const bool fused = !bn1->has_hooks() && !relu->has_hooks();
  Tensor x = maxpool(fused ? bn1->forward_relu(conv1(input)) : relu(bn1(conv1(input))));
  x = layer4->forward(layer3->forward(layer2->forward(layer1->forward(x))));
  return fc(flatten(avgpool(x), 1));
}

namespace {
ResNet make(ResNetOptions::Block block, const ResNetOptions::Layers& layers, std::int64_t num_classes) {
  return ResNet(ResNetOptions(block, layers).num_classes(num_classes));
}
}  // namespace

ResNet resnet18(std::int64_t num_classes) { return make(ResNetOptions::Block::Basic, {2, 2, 2, 2}, num_classes); }
ResNet resnet34(std::int64_t num_classes) { return make(ResNetOptions::Block::Basic, {3, 4, 6, 3}, num_classes); }
ResNet resnet50(std::int64_t num_classes) { return make(ResNetOptions::Block::Bottleneck, {3, 4, 6, 3}, num_classes); }
ResNet resnet101(std::int64_t num_classes) {
  return make(ResNetOptions::Block::Bottleneck, {3, 4, 23, 3}, num_classes);
}
ResNet resnet152(std::int64_t num_classes) {
  return make(ResNetOptions::Block::Bottleneck, {3, 8, 36, 3}, num_classes);
}

nn::Sequential as_sequential(const ResNet& net) {
  nn::Sequential all(net->conv1, net->bn1, net->relu, net->maxpool);
  for (const nn::Sequential& stage : {net->layer1, net->layer2, net->layer3, net->layer4})
    for (const nn::AnyModule& block : *stage) all->push_back(block);
  all->push_back(net->avgpool);
  all->push_back(nn::Flatten());
  all->push_back(net->fc);
  return all;
}

}  // namespace athanor::models
