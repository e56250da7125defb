#include "athanor/autograd/fork.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "athanor/base/cpus.h"
#include "athanor/base/env.h"
#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/ops/autocast.h"
#include "athanor/tape/grad_mode.h"
#include "athanor/tensor/stream.h"

namespace athanor {

namespace detail {

struct ForkTask::State {
  TapeState tape = tape_state;
  autocast::State autocast = autocast::state();
  int cuda_device = current_cuda_device();
  const void* pool = nullptr;  // that has it
  std::optional<std::list<std::shared_ptr<ForkTask>>::iterator> queued;
  std::condition_variable ended;
  std::atomic<bool> done{false};
  std::exception_ptr error;
};

ForkTask::ForkTask() : state_(std::make_unique<State>()) {}
ForkTask::~ForkTask() = default;
bool ForkTask::done() const { return state_->done.load(std::memory_order_acquire); }

// Made at the first fork. A forked process makes its own: the parent's threads are not there. It outlives the threads,
// which end with the process: what is forked from then on runs where it is forked.
//
// A waiter runs the task it waits for if nobody has begun it, and no other: a stack then holds only tasks each of which
// waits for the next, so that what cannot go on waits for itself. While a thread of the pool sleeps another one takes
// its turn; when it wakes up there is one too many, who takes no new task.
class ForkPool {
 public:
  static ForkPool& get();

  ForkPool() : turns_(static_cast<std::size_t>(wanted())) {}
  ~ForkPool() = delete;
  ForkPool(const ForkPool&) = delete;
  ForkPool& operator=(const ForkPool&) = delete;

  void add(std::shared_ptr<ForkTask> task) {
    std::unique_lock lock(mutex_);
    task->state_->pool = this;
    if (ends_) return run(*task, lock);
    // A thread that was woken for an earlier task is idle until it has the lock.
    if (tasks_.size() >= idle_ && threads_.size() - asleep_ < turns_) {
      try {
        start_thread();
      } catch (...) {
        // The threads that are there, or who waits for the task, will run it.
        if (threads_.empty()) return run(*task, lock);
      }
    }
    tasks_.push_back(std::move(task));
    tasks_.back()->state_->queued = std::prev(tasks_.end());
    lock.unlock();
    work_.notify_one();
  }

  void end() {
    std::unique_lock lock(mutex_);
    ends_ = true;
    lock.unlock();
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    if (last_ended_.joinable()) last_ended_.join();
  }

  void wait_for(ForkTask& task) {
    ForkTask::State& state = *task.state_;
    ATHANOR_CHECK(state.pool == this, "wait: the task was forked before this process was; its result is the ",
                  "parent process's");
    std::unique_lock lock(mutex_);
    if (state.queued) {
      run_next(*state.queued, lock);
      return;
    }
    if (task.done()) return;
    if (of_thread() != this) return state.ended.wait(lock, [&] { return task.done(); });
    replace_sleeper();
    state.ended.wait(lock, [&] { return task.done(); });
    --asleep_;
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
  using Threads = std::list<std::thread>;
  using Tasks = std::list<std::shared_ptr<ForkTask>>;

  // The pool whose thread this is.
  static const ForkPool*& of_thread() {
    static thread_local const ForkPool* pool = nullptr;
    return pool;
  }
  bool has_turn() const { return threads_.size() - asleep_ - idle_ < turns_; }

  void start_thread() {
    threads_.emplace_back();
    try {
      threads_.back() = std::thread([this, self = std::prev(threads_.end())] { work(self); });
    } catch (...) {
      threads_.pop_back();
      throw;
    }
  }

  // The calling thread of the pool is going to sleep: what is queued goes on without it.
  void replace_sleeper() {
    ++asleep_;
    if (ends_ || tasks_.empty() || !has_turn()) return;
    if (tasks_.size() <= idle_ || threads_.size() - asleep_ >= turns_) return work_.notify_one();
    try {
      start_thread();
    } catch (const std::exception& error) {
      --asleep_;
      ATHANOR_THROW(Error, "wait: ", asleep_, " threads wait for forked tasks already, and there is no other to go on ",
                    "with what is queued: ", error.what(), ". Fork fewer tasks that wait for each other");
    } catch (...) {
      --asleep_;
      throw;
    }
  }

  void work(Threads::iterator self) {
    const ThreadTeamGuard team(std::max(1, get_num_threads() / static_cast<int>(turns_)));
    of_thread() = this;
    std::thread before;
    std::unique_lock lock(mutex_);
    while (true) {
      const bool needed = !tasks_.empty() && threads_.size() - asleep_ - idle_ <= turns_;
      if (!ends_ && !needed && idle_ >= turns_) {  // enough others are at hand
        before = std::exchange(last_ended_, std::move(*self));
        threads_.erase(self);
        break;
      }
      ++idle_;
      // One that is idle has given its turn back.
      work_.wait(lock, [&] { return ends_ || (!tasks_.empty() && has_turn()); });
      --idle_;
      if (ends_) return;
      // The oldest: it is the likeliest to fork more.
      run_next(tasks_.begin(), lock);
    }
    lock.unlock();
    if (before.joinable()) before.join();
  }

  void run_next(Tasks::iterator next, std::unique_lock<std::mutex>& lock) {
    std::shared_ptr<ForkTask> task = std::move(*next);
    tasks_.erase(next);
    task->state_->queued.reset();
    run(*task, lock);
    // What the task holds goes without the lock: its destructors may fork and wait.
    lock.unlock();
    task.reset();
    lock.lock();
  }
  void run(ForkTask& task, std::unique_lock<std::mutex>& lock) {
    ForkTask::State& state = *task.state_;
    lock.unlock();
    const TapeState tape = std::exchange(tape_state, state.tape);
    const int cuda_device = current_cuda_device();
    set_current_cuda_device(state.cuda_device);
    {
      const autocast::AutocastGuard autocast(state.autocast);
      try {
        task.run();
      } catch (...) {
        state.error = std::current_exception();
      }
    }
    set_current_cuda_device(cuda_device);
    tape_state = tape;
    lock.lock();
    state.done.store(true, std::memory_order_release);
    state.ended.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable work_;
  Tasks tasks_;
  Threads threads_;  // all that have not ended
  std::thread last_ended_;
  const std::size_t turns_;  // how many may run tasks
  std::size_t idle_ = 0;     // threads without a task
  std::size_t asleep_ = 0;   // threads whose task waits for another one
  bool ends_ = false;
};

namespace {

constinit std::mutex making_pool;
// What the parent's pool holds is left to it.
[[maybe_unused]] const int at_fork = ::pthread_atfork([] { making_pool.lock(); }, [] { making_pool.unlock(); },
                                                      [] {
                                                        ForkPool::present().store(nullptr);
                                                        making_pool.unlock();
                                                      });

}  // namespace

ForkPool& ForkPool::get() {
  struct Owner {
    ~Owner() {
      if (ForkPool* pool = present().load()) pool->end();
    }
  };
  static Owner owner;
  if (ForkPool* pool = present().load(std::memory_order_acquire)) return *pool;
  const std::lock_guard lock(making_pool);
  if (present().load() == nullptr) present().store(new ForkPool(), std::memory_order_release);
  return *present().load();
}

void ForkTask::wait() {
  if (!done()) ForkPool::get().wait_for(*this);
  if (state_->error) std::rethrow_exception(state_->error);
}

void no_task(const char* call) {
  ATHANOR_THROW(Error, call, ": this Future has no task: it was made without one or moved from. fork() returns one ",
                "that has");
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
