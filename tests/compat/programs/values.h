#pragma once
// What the programs share: values without a random generator, so that two libraries print the same numbers.
#include <torch/torch.h>

#include <cstdio>

inline torch::Tensor wave(std::vector<int64_t> sizes, double phase = 0, double scale = 1) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return (torch::arange(n, torch::kFloat) * 0.37 + phase).sin().mul(scale).reshape(sizes);
}

/// First values of all parameters.
inline void fill(torch::nn::Module& module, double scale = 0.2) {
  torch::NoGradGuard no_grad;
  double phase = 0;
  for (auto& p : module.parameters()) {
    std::vector<int64_t> sizes(p.sizes().begin(), p.sizes().end());
    p.copy_(wave(sizes, phase++, scale));
  }
}

inline void show(const char* name, double value) { std::printf("%s %.6g\n", name, value); }
/// Size, sum and weighted sum of all elements.
inline void show(const char* name, const torch::Tensor& t) {
  const auto flat = t.detach().to(torch::kDouble).reshape({-1});
  const auto weights = torch::arange(flat.numel(), torch::kDouble).mul(0.1).cos();
  std::printf("%s %lld %.6g %.6g\n", name, static_cast<long long>(flat.numel()), flat.sum().item<double>(),
              (flat * weights).sum().item<double>());
}
