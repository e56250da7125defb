// The smallest useful program: what it takes to start and how much memory it holds are budgets.
#include <cstdio>

#include "athanor/athanor.h"

int main() {
  const athanor::Tensor x = athanor::ones({2, 3}) + 1;
  const double sum = x.sum().item<double>();
  std::printf("sum %g\n", sum);
  return sum == 12 ? 0 : 1;
}
