#pragma once
/// CallQueue: the order in which a group's collectives run, one at a time, in the order they were called in. A blocking
/// call that finds the queue idle runs in its caller's thread; everything else is run by the queue's own thread, which
/// starts when it is first needed.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "athanor/distributed/work.h"

namespace athanor::distributed {

/// A queued call, and the handle on it that the program holds.
class QueuedCall : public Work {
 public:
  bool is_completed() override;
  std::exception_ptr exception() override;
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<Tensor> result() override;
  int source_rank() override;

  /// Carries the call out; once. Never throws: what went wrong is kept for wait().
  void execute() noexcept;

 protected:
  explicit QueuedCall(std::vector<Tensor> results) : results_(std::move(results)) {}
  virtual void run() = 0;
  virtual std::string text() const = 0;

 private:
  std::mutex mutex_;
  std::condition_variable ended_signal_;
  std::atomic<bool> ended_{false};
  std::exception_ptr error_;
  std::vector<Tensor> results_;
};

class CallQueue {
 public:
  CallQueue() = default;
  ~CallQueue() { stop(); }
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  /// If nothing runs or waits: takes the queue for a call in this thread, gives it the next number and returns true.
  bool try_enter(std::uint64_t& number) {
    std::uint64_t state = state_.load(std::memory_order_relaxed);
    if ((state & kBusyMask) != kIdle) return false;
    if (!state_.compare_exchange_strong(state, state + kNumberStep + kBusy, std::memory_order_acquire)) return false;
    number = state / kNumberStep + 1;
    return true;
  }
  /// Ends what try_enter began.
  void leave() {
    std::uint64_t state = state_.load(std::memory_order_relaxed);
    while ((state & kBusyMask) == kBusy)
      if (state_.compare_exchange_weak(state, state - kBusy, std::memory_order_release)) return;
    hand_over();
  }
  /// Appends the call that `make(number)` returns.
  template <class Make>
  std::shared_ptr<QueuedCall> enqueue(Make&& make) {
    const std::lock_guard lock(mutex_);
    // Whoever runs now sees on leaving that somebody waits.
    std::uint64_t state = state_.load(std::memory_order_relaxed);
    while (!state_.compare_exchange_weak(state, ((state & ~kBusyMask) + kNumberStep) | kWaiting,
                                         std::memory_order_acq_rel)) {
    }
    std::shared_ptr<QueuedCall> call = make(state / kNumberStep + 1);
    waiting_.push_back(call);
    start_thread();
    if ((state & kBusyMask) == kIdle) owned_ = true;
    if (owned_) signal_.notify_one();
    return call;
  }
  /// Runs what waits, then ends the thread. No call may follow.
  void stop();
  /// After fork, in the child: the thread is not here.
  void forget_thread();

 private:
  // The state counts calls in its upper bits; the lower two say who runs.
  static constexpr std::uint64_t kIdle = 0, kBusy = 1, kWaiting = 2, kBusyMask = 3, kNumberStep = 4;

  void hand_over();
  void start_thread();
  void serve();

  std::atomic<std::uint64_t> state_{0};
  std::mutex mutex_;
  std::condition_variable signal_;
  std::deque<std::shared_ptr<QueuedCall>> waiting_;
  bool owned_ = false;  // it is the thread's turn, until nothing waits
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace athanor::distributed
