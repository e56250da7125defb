// Fences of threads that are no queue's.
#include "athanor/tensor/fence.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "athanor/base/deadline.h"
#include "device_queue/queued_device.h"
#include "fork_guard.h"

namespace athanor {

TEST_F(QueuedDevice, FencesThatStandAtAForkArePastInTheChild) {
  ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN();
  const Tensor used = ones({1}, options_on(1)), x = ones({2});
  synchronize(on(1));
  detail::Fence fence;
  detail::note_foreign_write(*x.storage(), fence);
  std::atomic<int> waiting{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i)
    waiters.emplace_back([&] {
      ++waiting;
      detail::wait_quietly(fence.point());
    });
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (waiting < 4 && !deadline.expired()) std::this_thread::yield();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    bool fine = detail::fence_is_lifted(fence.point()) && detail::foreign_writes(*x.storage()).empty();
    for (int i = 0; i < 8; ++i) {
      detail::Fence own;
      fine = fine && !detail::fence_is_lifted(own.point()) && own.point().ticket() > fence.point().ticket();
      std::thread lifts([&] { own.lift(); });
      fine = fine && detail::wait_for_fence(own.point(), std::chrono::seconds(10));
      lifts.join();
    }
    fence.lift();
    ::_exit(fine ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(detail::fence_is_lifted(fence.point()));
  EXPECT_EQ(detail::foreign_writes(*x.storage()).size(), 1U);
  fence.lift();
  for (auto& waiter : waiters) waiter.join();
}

}  // namespace athanor
