// A program outside the repository. It prints "ok" when the installed library works.
#include <atomic>
#include <cstdio>
#include <string>

#include "athanor/athanor.h"

namespace {

bool parallel_works() {
  std::atomic<std::int64_t> sum{0};
  athanor::parallel_for(0, 1000, 10, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t i = b; i < e; ++i) sum += i;
  });
  return sum == 499500;
}

// An exception thrown inside the library must be caught by its type here.
bool errors_cross_the_border() {
  try {
    athanor::set_num_threads(0);
  } catch (const athanor::Error& error) {
    return std::string(error.what()).find("set_num_threads") != std::string::npos;
  }
  return false;
}

bool tensors_work() {
  auto x = athanor::ones({2, 3}, athanor::requires_grad());
  (x * x).sum().backward();
  return x.grad().sum().item<float>() == 12.0f;
}

}  // namespace

int main() {
  if (!parallel_works() || !errors_cross_the_border() || !tensors_work()) return 1;
  std::puts("ok");
}
