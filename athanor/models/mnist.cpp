#include "athanor/models/mnist.h"

namespace athanor::models {

namespace F = nn::functional;

void ConvNetImpl::reset() {
  conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 32, 3)));
  conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(32, 64, 3)));
  dropout1 = register_module("dropout1", nn::Dropout(0.25));
  dropout2 = register_module("dropout2", nn::Dropout(0.5));
  fc1 = register_module("fc1", nn::Linear(9216, 128));
  fc2 = register_module("fc2", nn::Linear(128, 10));
}

Tensor ConvNetImpl::forward(Tensor x) {
  x = relu(conv1(x));
  x = max_pool2d(relu(conv2(x)), 2);
  x = flatten(dropout1(x), 1);
  x = dropout2(relu(fc1(x)));
  return log_softmax(fc2(x), 1);
}

void TutorialNetImpl::reset() {
  conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 10, 5)));
  conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(10, 20, 5)));
  conv2_drop = register_module("conv2_drop", nn::Dropout2d());
  fc1 = register_module("fc1", nn::Linear(320, 50));
  fc2 = register_module("fc2", nn::Linear(50, 10));
}

Tensor TutorialNetImpl::forward(Tensor x) {
  x = relu(max_pool2d(conv1(x), 2));
  x = relu(max_pool2d(conv2_drop(conv2(x)), 2));
  x = x.view({-1, 320});
  x = dropout(relu(fc1(x)), 0.5, is_training());
  return log_softmax(fc2(x), 1);
}

}  // namespace athanor::models
