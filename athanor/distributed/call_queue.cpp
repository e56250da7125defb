#include "athanor/distributed/call_queue.h"

#include "athanor/base/deadline.h"
#include "athanor/base/interrupt.h"
#include "athanor/base/parallel.h"
#include "athanor/distributed/error.h"
#include "athanor/tape/grad_mode.h"

namespace athanor::distributed {

using athanor::detail::str;

bool QueuedCall::is_completed() { return ended_.load(std::memory_order_acquire); }

std::exception_ptr QueuedCall::exception() { return is_completed() ? error_ : nullptr; }

bool QueuedCall::wait(std::chrono::milliseconds timeout) {
  if (!is_completed()) {
    std::unique_lock lock(mutex_);
    const auto ended = [this] { return ended_.load(std::memory_order_acquire); };
    // Without a timeout of its own the wait is as long as the group's deadlines let the call take.
    const Deadline deadline = Deadline::after(timeout == kNoTimeout ? std::chrono::milliseconds::max() : timeout);
    while (!ended_signal_.wait_until(lock, deadline.sooner(Deadline::after(kInterruptPeriod)).at(), ended)) {
      if (!deadline.expired()) {
        lock.unlock();
        check_interrupt();
        lock.lock();
        continue;
      }
      throw DistError(str("wait: ", timeout.count(), " ms passed and the call is still under way: ", text()),
                      ATHANOR_WHERE);
    }
  }
  if (error_) std::rethrow_exception(error_);
  return true;
}

std::vector<Tensor> QueuedCall::result() {
  wait(kNoTimeout);
  return results_;
}

int QueuedCall::source_rank() { ATHANOR_THROW(Error, "source_rank: only a receive has one; this is ", text()); }

void QueuedCall::execute() noexcept {
  try {
    run();
  } catch (...) {
    error_ = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    ended_.store(true, std::memory_order_release);
  }
  ended_signal_.notify_all();
}

void CallQueue::hand_over() {
  const std::lock_guard lock(mutex_);
  owned_ = true;
  signal_.notify_one();
}

void CallQueue::start_thread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
}

void CallQueue::serve() {
  const ThreadTeamGuard team(1);
  const NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  for (;;) {
    signal_.wait(lock, [this] { return owned_ || (stopping_ && waiting_.empty()); });
    if (!owned_) return;
    while (!waiting_.empty()) {
      const std::shared_ptr<QueuedCall> call = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      call->execute();
      lock.lock();
    }
    owned_ = false;
    state_.fetch_and(~kBusyMask, std::memory_order_release);
  }
}

void CallQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    signal_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void CallQueue::forget_thread() {
  // Neither joined nor detached: the system knows no such thread.
  if (thread_.joinable()) new std::thread(std::move(thread_));
}

}  // namespace athanor::distributed
