#pragma once
/// Two residual blocks of a ResNet in a row, written with libtorch's names so that the same text serves Athanor and
/// libtorch; names and counts are those of peers/torch_peer.py. Include after cpp_rows.h.

#include <memory>
#include <string>
#include <vector>

#include "cpp_rows.h"

namespace bench {

/// Convolution and batch norm.
struct ConvNorm {
  std::int64_t stride, pad;
  Tensor w, gamma, beta, mean, var;
  ConvNorm(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t step)
      : stride(step),
        pad(kernel / 2),
        w(torch::randn({out, in, kernel, kernel}) * 0.05),
        gamma(torch::ones({out})),
        beta(torch::zeros({out})),
        mean(torch::zeros({out})),
        var(torch::ones({out})) {}
  Tensor forward(const Tensor& x, bool training) const {
    return torch::batch_norm(torch::conv2d(x, w, {}, stride, pad), gamma, beta, mean, var, training, 0.1, 1e-5, true);
  }
};

/// relu(x + f(x)) with f of two 3 × 3 layers, or of 1 × 1, 3 × 3, 1 × 1 with a quarter of the channels inside.
struct ResidualBlock {
  std::vector<ConvNorm> layers, shortcut;
  ResidualBlock(bool bottleneck, std::int64_t in, std::int64_t out, std::int64_t stride) {
    const std::int64_t inner = bottleneck ? out / 4 : out;
    if (bottleneck) layers.emplace_back(in, inner, 1, 1);
    layers.emplace_back(bottleneck ? inner : in, inner, 3, stride);
    bottleneck ? layers.emplace_back(inner, out, 1, 1) : layers.emplace_back(inner, out, 3, 1);
    if (in != out || stride != 1) shortcut.emplace_back(in, out, 1, stride);
  }
  Tensor forward(const Tensor& x, bool training) const {
    Tensor y = x;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      y = layers[i].forward(y, training);
      if (i + 1 < layers.size()) y.relu_();
    }
    y = y + (shortcut.empty() ? x : shortcut[0].forward(x, training));
    return y.relu_();
  }
};

struct Stage {
  bool bottleneck;
  std::int64_t in, size, out, stride;
  std::string name() const {
    const auto s = [](std::int64_t v) { return std::to_string(v); };
    return (bottleneck ? "bottleneck.b8c" : "basic.b8c") + s(in) + "x" + s(size) + "k" + s(out) + "s" + s(stride);
  }
  double flop(const std::vector<ResidualBlock>& blocks) const {
    double total = 0;
    const auto count = [&](const ConvNorm& l, std::int64_t n) {
      total += 2.0 * 8 * static_cast<double>(l.w.numel()) * static_cast<double>(n * n);
    };
    std::int64_t n = size;
    for (const ResidualBlock& b : blocks) {
      for (const ConvNorm& l : b.layers) count(l, n = n / l.stride);
      for (const ConvNorm& l : b.shortcut) count(l, n);
    }
    return total;
  }
};

inline std::vector<ResidualBlock> residual_blocks(const Stage& s) {
  return {{s.bottleneck, s.in, s.out, s.stride}, {s.bottleneck, s.out, s.out, 1}};
}

/// Inference, or a training step: both passes, gradients of everything.
inline Body residual_body(const Stage& s, bool step) {
  auto blocks = std::make_shared<std::vector<ResidualBlock>>(residual_blocks(s));
  const Tensor x = torch::randn({8, s.in, s.size, s.size});
  if (!step)
    return without_grad([=] {
      Tensor y = x;
      for (const ResidualBlock& b : *blocks) y = b.forward(y, false);
    });
  std::vector<Tensor> wanted = {Tensor(x).requires_grad_()};
  for (ResidualBlock& b : *blocks)
    for (auto* list : {&b.layers, &b.shortcut})
      for (ConvNorm& l : *list)
        for (Tensor* t : {&l.w, &l.gamma, &l.beta}) wanted.push_back(t->requires_grad_());
  const Tensor gradient = torch::randn({8, s.out, s.size / s.stride, s.size / s.stride});
  return [=] {
    Tensor y = x;
    for (const ResidualBlock& b : *blocks) y = b.forward(y, true);
    auto gradients = torch::autograd::grad({y}, wanted, {gradient});
  };
}

inline void add_resnet_rows(Program& program) {
  const Stage stages[] = {{false, 64, 56, 64, 1},   {false, 128, 28, 128, 1},  {false, 256, 14, 256, 1},
                          {false, 512, 7, 512, 1},  {true, 256, 56, 256, 1},   {true, 512, 28, 512, 1},
                          {true, 512, 28, 1024, 2}, {true, 1024, 14, 1024, 1}, {true, 1024, 14, 2048, 2},
                          {true, 2048, 7, 2048, 1}};
  for (const Stage& s : stages) {
    const double flop = s.flop(residual_blocks(s));
    program.add("resnet.forward/" + s.name(), "FLOP", flop, [s] { return residual_body(s, false); });
    program.add("resnet.step/" + s.name(), "FLOP", 3 * flop, [s] { return residual_body(s, true); });
  }
}

}  // namespace bench
