// The same by libtorch's names.
#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::Tensor x = torch::ones({2, 3}, torch::requires_grad());
  (x * x).sum().backward();
  if (x.grad().sum().item<float>() != 12.0f) return 1;
  std::puts("ok");
}
