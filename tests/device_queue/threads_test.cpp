// Threads that hand one tensor to several devices, or look at it, at once. What a storage notes about that is shared;
// `make tsan` sees whether it is guarded.
#include <barrier>
#include <thread>

#include "device_queue/queued_device.h"

namespace athanor {
namespace {

/// Calls act(thread) in each of a few threads, which begin together, `rounds` times; `prepare` runs before each round.
void together(int rounds, const std::function<void()>& prepare, const std::function<void(int)>& act) {
  constexpr int kThreads = 4;
  std::barrier begin(kThreads), end(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < rounds; ++round) {
        if (t == 0) prepare();
        begin.arrive_and_wait();
        act(t);
        end.arrive_and_wait();
      }
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace

TEST(QueuedDeviceThreads, MayCopyOneTensorToOtherDevices) {
  detail::configure_cpu_queues(3);
  {
    Tensor x;
    std::atomic<int> good{0};
    together(
        100, [&] { x = ones({256}, options_on(0)); },  // fresh: what is noted about it has to be made first
        [&](int t) {
          for (int i = 0; i < 10; ++i) good += x.to(on(1 + t % 2)).sum().item<float>() == 256.0F ? 1 : 0;
        });
    EXPECT_EQ(good, 4 * 100 * 10);
  }
  detail::configure_cpu_queues(0);
}

TEST_F(QueuedDevice, ThreadsMayAskForTheAddressOfOneTensor) {
  Tensor x;
  std::atomic<int> good{0};
  together(
      100, [&] { x = full({64}, 3.0F, options_on(1)); }, [&](int) { good += x.data_ptr<float>()[63] == 3.0F ? 1 : 0; });
  EXPECT_EQ(good, 4 * 100);
}

}  // namespace athanor
