// libtorch's counterpart of tests/checks/programs/trivial.cpp: start-up time and memory.
#include <torch/torch.h>

#include <cstdio>

int main() {
  const torch::Tensor x = torch::ones({2, 3}) + 1;
  const double sum = x.sum().item<double>();
  std::printf("sum %g\n", sum);
  return sum == 12 ? 0 : 1;
}
