// Learns which points of a square lie inside a circle: the program of README.
#include <athanor/athanor.h>

#include <iostream>

int main() {
  athanor::nn::Sequential net(athanor::nn::Linear(2, 32), athanor::nn::Tanh(), athanor::nn::Linear(32, 1));
  athanor::optim::Adam optimizer(net->parameters(), athanor::optim::AdamOptions(0.01));
  const auto x = athanor::rand({512, 2}) * 2 - 1;                                  // points of a square …
  const auto y = (x.square().sum(1, /*keepdim=*/true) < 0.5).to(athanor::kFloat);  // … inside a circle or not
  for (int step = 0; step <= 500; ++step) {
    optimizer.zero_grad();
    auto loss = athanor::binary_cross_entropy_with_logits(net->forward(x), y);
    loss.backward();
    optimizer.step();
    if (step % 100 == 0) std::cout << "step " << step << "  loss " << loss.item<float>() << "\n";
  }
}
