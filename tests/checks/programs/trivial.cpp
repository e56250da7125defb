// The smallest useful program: what it takes to start and how much memory it holds are budgets.
#include <cstdio>

#if __has_include("athanor/athanor.h")
#include "athanor/athanor.h"

int main() {
  const athanor::Tensor x = athanor::ones({2, 3}) + 1;
  const double sum = x.sum().item<double>();
  std::printf("sum %g\n", sum);
  return sum == 12 ? 0 : 1;
}
#else
#include "athanor/base/parallel.h"

int main() {
  std::printf("%d threads\n", athanor::get_num_threads());
  return athanor::get_num_threads() >= 1 ? 0 : 1;
}
#endif
