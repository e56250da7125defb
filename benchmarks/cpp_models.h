#pragma once
/// Whole ResNets of models::ResNet, for Athanor; peers/torch_models.py has the same rows. Include after cpp_rows.h.

#include <memory>
#include <string>

#include "athanor/device/cpu/conv_winograd.h"
#include "athanor/models/resnet.h"
#include "cpp_rows.h"

namespace bench {

inline Body resnet_step(athanor::models::ResNet net, std::int64_t batch, std::int64_t size) {
  auto optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const Tensor x = torch::randn({batch, 3, size, size}), t = torch::randint(0, 1000, {batch}, torch::kLong);
  return [=]() mutable {
    optimizer->zero_grad();
    torch::cross_entropy_loss(net(x), t).backward();
    optimizer->step();
  };
}

/// Winograd's algorithm switched off while it lives.
struct WithoutWinograd {
  WithoutWinograd() : before(athanor::detail::winograd_enabled()) { athanor::detail::set_winograd_enabled(false); }
  ~WithoutWinograd() { athanor::detail::set_winograd_enabled(before); }
  WithoutWinograd(const WithoutWinograd&) = delete;
  WithoutWinograd& operator=(const WithoutWinograd&) = delete;
  bool before;
};

inline void add_model_rows(Program& program) {
  program.add("resnet50.step/b16s128", "image", 16, [] { return resnet_step(athanor::models::resnet50(), 16, 128); });
  program.add("resnet18.step/b32s32", "image", 32, [] { return resnet_step(athanor::models::resnet18(), 32, 32); });
  for (const std::int64_t batch : {1, 16}) {
    const std::string row = "resnet50.forward/b" + std::to_string(batch) + "s224";
    const auto inference = [=] {
      athanor::models::ResNet net = athanor::models::resnet50();
      net->eval();
      return without_grad([net, x = torch::randn({batch, 3, 224, 224})]() mutable { Tensor y = net(x); });
    };
    program.add(row, "image", static_cast<double>(batch), inference);
    program.add(row + "@no_winograd", "image", static_cast<double>(batch), [=] {
      return [body = inference()] {
        const WithoutWinograd off;
        body();
      };
    });
  }
}

}  // namespace bench
