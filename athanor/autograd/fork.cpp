#include "athanor/autograd/fork.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "athanor/base/cpus.h"
#include "athanor/base/env.h"
#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/ops/autocast.h"
#include "athanor/tape/grad_mode.h"

namespace athanor {

namespace detail {

struct ForkTask::State {
  TapeState tape = tape_state;
  autocast::State autocast = autocast::state();
  const void* pool = nullptr;  // that has it
  std::atomic<bool> done{false};
  std::exception_ptr error;
};

ForkTask::ForkTask() : state_(std::make_unique<State>()) {}
ForkTask::~ForkTask() = default;
bool ForkTask::done() const { return state_->done.load(std::memory_order_acquire); }

// Made at the first fork. A forked process makes its own: the parent's threads are not there. It outlives the threads,
// which end with the process: what is forked from then on runs where it is forked.
class ForkPool {
 public:
  static ForkPool& get();

  ForkPool() : threads_count_(wanted()) {}
  ~ForkPool() = delete;
  ForkPool(const ForkPool&) = delete;
  ForkPool& operator=(const ForkPool&) = delete;

  void add(std::shared_ptr<ForkTask> task) {
    std::unique_lock lock(mutex_);
    task->state_->pool = this;
    if (ends_) return run(*task, lock);
    tasks_.push_back(std::move(task));
    // A thread that was woken for an earlier task is idle until it has the lock.
    if (tasks_.size() > idle_ && threads_.size() < static_cast<std::size_t>(threads_count_))
      threads_.emplace_back([this] { work(); });
    lock.unlock();
    changed_.notify_one();
  }

  void end() {
    std::unique_lock lock(mutex_);
    ends_ = true;
    lock.unlock();
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void wait_for(const ForkTask& task) {
    ATHANOR_CHECK(task.state_->pool == this, "wait: the task was forked before this process was; its result is the ",
                  "parent process's");
    std::unique_lock lock(mutex_);
    while (!task.done()) {
      if (!tasks_.empty())
        run_last(lock);
      else
        changed_.wait(lock, [&] { return task.done() || !tasks_.empty(); });
    }
  }

  static std::atomic<int>& setting() {
    static std::atomic<int> n{0};
    return n;
  }
  static int wanted() {
    if (const int set = setting().load()) return set;
    return static_cast<int>(env::integer("ATHANOR_NUM_INTEROP_THREADS", 1, 4096).value_or(usable_cpus()));
  }
  static std::atomic<ForkPool*>& present() {
    static std::atomic<ForkPool*> pool{nullptr};
    return pool;
  }

 private:
  void work() {
    const ThreadTeamGuard team(std::max(1, get_num_threads() / threads_count_));
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      changed_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
      --idle_;
      if (ends_) return;
      run_first(lock);
    }
  }

  // The oldest: it is the likeliest to fork more.
  void run_first(std::unique_lock<std::mutex>& lock) {
    const std::shared_ptr<ForkTask> task = std::move(tasks_.front());
    tasks_.pop_front();
    run(*task, lock);
  }
  // The youngest: likely the one that is waited for, or a part of it.
  void run_last(std::unique_lock<std::mutex>& lock) {
    const std::shared_ptr<ForkTask> task = std::move(tasks_.back());
    tasks_.pop_back();
    run(*task, lock);
  }
  void run(ForkTask& task, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    const TapeState tape = std::exchange(tape_state, task.state_->tape);
    {
      const autocast::AutocastGuard autocast(task.state_->autocast);
      try {
        task.run();
      } catch (...) {
        task.state_->error = std::current_exception();
      }
    }
    tape_state = tape;
    task.state_->done.store(true, std::memory_order_release);
    lock.lock();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<ForkTask>> tasks_;
  std::vector<std::thread> threads_;
  const int threads_count_;
  std::size_t idle_ = 0;
  bool ends_ = false;
};

ForkPool& ForkPool::get() {
  static std::mutex mutex;
  static bool hooked = false;
  struct Owner {
    ~Owner() {
      if (ForkPool* pool = present().load()) pool->end();
    }
  };
  static Owner owner;
  if (ForkPool* pool = present().load(std::memory_order_acquire)) return *pool;
  const std::lock_guard lock(mutex);
  if (!hooked) {
    hooked = true;
    // What the parent's pool holds is left to it.
    ::pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                     [] {
                       present().store(nullptr);
                       mutex.unlock();
                     });
  }
  if (present().load() == nullptr) present().store(new ForkPool(), std::memory_order_release);
  return *present().load();
}

void ForkTask::wait() {
  if (!done()) ForkPool::get().wait_for(*this);
  if (state_->error) std::rethrow_exception(state_->error);
}

void submit(std::shared_ptr<ForkTask> task) { ForkPool::get().add(std::move(task)); }

}  // namespace detail

int get_num_interop_threads() { return detail::ForkPool::wanted(); }

void set_num_interop_threads(int n) {
  ATHANOR_CHECK_VALUE(n >= 1, "set_num_interop_threads: expected at least 1, got ", n);
  ATHANOR_CHECK(detail::ForkPool::present().load() == nullptr,
                "set_num_interop_threads: the threads run already; call it before the first fork()");
  detail::ForkPool::setting().store(n);
}

}  // namespace athanor
