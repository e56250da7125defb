#pragma once
/// Training steps in C++, the same text for Athanor and libtorch. Include after cpp_rows.h.

#include <memory>
#include <string>
#include <vector>

#include "cpp_rows.h"

namespace bench {

struct Mlp : torch::nn::Module {
  Mlp() {
    first = register_module("first", torch::nn::Linear(784, 128));
    second = register_module("second", torch::nn::Linear(128, 64));
    third = register_module("third", torch::nn::Linear(64, 10));
  }
  Tensor forward(Tensor x) {
    x = torch::relu(first(x));
    x = torch::relu(second(x));
    return torch::log_softmax(third(x), 1);
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};

struct ConvNet : torch::nn::Module {
  ConvNet() {
    conv1 = register_module("conv1", torch::nn::Conv2d(1, 32, 3));
    conv2 = register_module("conv2", torch::nn::Conv2d(32, 64, 3));
    fc1 = register_module("fc1", torch::nn::Linear(9216, 128));
    fc2 = register_module("fc2", torch::nn::Linear(128, 10));
  }
  Tensor forward(Tensor x) {
    x = torch::relu(conv2(torch::relu(conv1(x))));
    x = torch::dropout(torch::max_pool2d(x, 2), 0.25, is_training()).flatten(1);
    x = torch::dropout(torch::relu(fc1(x)), 0.5, is_training());
    return torch::log_softmax(fc2(x), 1);
  }
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};

struct TutorialNet : torch::nn::Module {
  TutorialNet() {
    conv1 = register_module("conv1", torch::nn::Conv2d(1, 10, 5));
    conv2 = register_module("conv2", torch::nn::Conv2d(10, 20, 5));
    dropout = register_module("dropout", torch::nn::Dropout2d());
    fc1 = register_module("fc1", torch::nn::Linear(320, 50));
    fc2 = register_module("fc2", torch::nn::Linear(50, 10));
  }
  Tensor forward(Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(dropout(conv2(x)), 2)).flatten(1);
    x = torch::dropout(torch::relu(fc1(x)), 0.5, is_training());
    return torch::log_softmax(fc2(x), 1);
  }
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Dropout2d dropout{nullptr};
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};

template <class Net>
Body train_step(std::vector<std::int64_t> shape, bool channels_last = false) {
  auto net = std::make_shared<Net>();
  Tensor x = torch::randn(shape);
  if (channels_last) {
    x = x.contiguous(torch::MemoryFormat::ChannelsLast);
    for (auto& p : net->parameters())
      if (p.dim() == 4) p.set_data(p.detach().contiguous(torch::MemoryFormat::ChannelsLast));
  }
  const Tensor labels = torch::randint(0, 10, {shape[0]}, torch::kLong);
  auto optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));
  return [=] {
    optimizer->zero_grad();
    torch::nll_loss(net->forward(x), labels).backward();
    optimizer->step();
  };
}

/// `count` parameters of `size` elements with small gradients.
inline std::vector<Tensor> parameters_with_gradients(std::int64_t count, std::int64_t size) {
  std::vector<Tensor> out;
  for (std::int64_t i = 0; i < count; ++i) {
    Tensor p = torch::randn({size}).requires_grad_();
    p.mutable_grad() = torch::randn({size}) * 0.01;
    out.push_back(p);
  }
  return out;
}

/// Steps of parameters whose gradient has been 0 for a thousand steps.
template <class Optimizer, class Options>
void add_idle_row(Program& program, const std::string& name, const Options& options) {
  program.add("optim." + name + ".idle/4x25000", "element", 1e5, [options] {
    auto params = parameters_with_gradients(4, 25000);
    auto optimizer = std::make_shared<Optimizer>(params, options);
    optimizer->step();
    for (auto& p : params) p.mutable_grad().zero_();
    for (int i = 0; i < 1000; ++i) optimizer->step();
    return [optimizer] { optimizer->step(); };
  });
}

/// Steps over many small and over few large parameters, and (idle) over some that have had no gradient for long; an
/// item is an element.
inline void add_optimizer_rows(Program& program) {
  namespace optim = torch::optim;
  add_idle_row<optim::SGD>(program, "sgd", optim::SGDOptions(0.01).momentum(0.9));
  add_idle_row<optim::Adam>(program, "adam", optim::AdamOptions(0.001));
  add_idle_row<optim::RMSprop>(program, "rmsprop", optim::RMSpropOptions(0.01).momentum(0.9));
  for (const auto& [count, size] : {std::pair<std::int64_t, std::int64_t>{1000, 256}, {4, 4000000}}) {
    const std::string shape = "/" + std::to_string(count) + "x" + std::to_string(size);
    const auto items = static_cast<double>(count * size);
    program.add("optim.adamw" + shape, "element", items, [count = count, size = size] {
      auto optimizer = std::make_shared<torch::optim::AdamW>(parameters_with_gradients(count, size),
                                                             torch::optim::AdamWOptions(1e-6));
      return [optimizer] { optimizer->step(); };
    });
    program.add("optim.clip_grad_norm" + shape, "element", items, [count = count, size = size] {
      return [params = parameters_with_gradients(count, size)] { torch::nn::utils::clip_grad_norm_(params, 1e9); };
    });
  }
}

inline void add_training_rows(Program& program) {
  add_optimizer_rows(program);
  for (const std::int64_t batch : {1, 64}) {
    const std::string size = "/b" + std::to_string(batch);
    const auto items = static_cast<double>(batch);
    program.add("mlp.forward" + size, "sample", items, [=] {
      auto net = std::make_shared<Mlp>();
      return without_grad([net, x = torch::randn({batch, 784})] { Tensor y = net->forward(x); });
    });
    program.add("mlp.step" + size, "sample", items, [=] { return train_step<Mlp>({batch, 784}); });
  }
  for (const std::int64_t batch : {32, 64, 128}) {
    const auto items = static_cast<double>(batch);
    for (const bool channels_last : {false, true}) {
      const std::string size = "/b" + std::to_string(batch) + (channels_last ? "@channels_last" : "");
      program.add("mnist.conv" + size, "image", items, [=] {
        return train_step<ConvNet>({batch, 1, 28, 28}, channels_last);
      });
      program.add("mnist.tutorial" + size, "image", items, [=] {
        return train_step<TutorialNet>({batch, 1, 28, 28}, channels_last);
      });
    }
  }
}

}  // namespace bench
