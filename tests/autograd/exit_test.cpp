/// Programs whose globals compute while the process ends: threads' own objects and the statics of libraries loaded
/// before are gone by then.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include "athanor/autograd/autograd.h"
#include "athanor/nn/functional.h"
#include "athanor/ops/autocast.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/tensor.h"

namespace athanor {
namespace {

/// Something of everything that keeps objects for its thread; the result depends on the seed alone.
double compute() {
  manual_seed(3);
  double sum = 0;
  for (const DType t : {kFloat, kDouble, kBFloat16}) {
    const auto options = TensorOptions(t).requires_grad(true);
    // Round sizes and others, since different kernels take them.
    for (const std::int64_t size : {64, 128, 150}) {
      Tensor a = randn({size, size}, options), b = randn({size, size}, options);
      softmax(a.matmul(b).relu(), 1).select(1, 0).sum().backward();
      sum += a.grad().abs().sum().to(kDouble).item<double>();
    }
    Tensor x = randn({4, 16, 28, 28}, options), w = randn({16, 16, 3, 3}, options);
    max_pool2d(conv2d(x, w), {2, 2}).pow(2).sum().backward();
    sum += w.grad().abs().mean().to(kDouble).item<double>();
    sum += std::get<0>(x.detach().flatten().sort()).select(0, 17).to(kDouble).item<double>();
  }
  const autocast::AutocastGuard guard;
  Tensor w = randn({96, 96}, requires_grad(true));
  return sum + randn({96, 96}).matmul(w).sum().to(kDouble).item<double>();
}

/// Its destructor computes what main computed; the process ends at once, with 3, if that fails.
struct ComputesAtExit {
  double expected = 0;
  ~ComputesAtExit() {
    // Kernels of our own take over from oneDNN's, whose sums are in another order.
    const double got = compute();
    if (!(std::abs(got - expected) <= 1e-2 * std::abs(expected))) std::_Exit(3);
  }
};

TEST(Exit, GlobalsComputeWhileTheyAreDestroyed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        static ComputesAtExit last;  // made before the first operation, so destroyed after the library's statics
        last.expected = compute();
        std::thread([] { compute(); }).join();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

/// The same for an object of a thread, made before all that operations keep for the thread, or between: some of what
/// oneDNN keeps is gone by then, some is not.
TEST(Exit, ThreadsObjectsComputeWhileTheyAreDestroyed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const bool between : {false, true})
    EXPECT_EXIT(
        {
          std::thread([between] {
            if (between) randn({500, 500}).matmul(randn({500, 500}));
            static thread_local ComputesAtExit last;
            last.expected = compute();
          }).join();
          std::exit(0);
        },
        ::testing::ExitedWithCode(0), "")
        << (between ? "between" : "before");
}

}  // namespace
}  // namespace athanor
