// A one-file program as a user writes it: compiling it is a budget.
#include "athanor/athanor.h"

#include <iostream>

struct Net : athanor::nn::Module {
  Net() {
    first = register_module("first", athanor::nn::Linear(784, 64));
    second = register_module("second", athanor::nn::Linear(64, 10));
  }
  athanor::Tensor forward(athanor::Tensor x) {
    x = athanor::relu(first->forward(x));
    return athanor::log_softmax(second->forward(x), 1);
  }
  athanor::nn::Linear first{nullptr}, second{nullptr};
};

int main() {
  athanor::manual_seed(1);
  auto net = std::make_shared<Net>();
  athanor::optim::SGD optimizer(net->parameters(), athanor::optim::SGDOptions(0.1).momentum(0.9));
  const auto images = athanor::randn({64, 784});
  const auto labels = athanor::randint(0, 10, {64}, athanor::kLong);
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    auto loss = athanor::nll_loss(net->forward(images), labels);
    loss.backward();
    optimizer.step();
    std::cout << "step " << step << " loss " << loss.item<float>() << "\n";
  }
}
