#pragma once
/// fork and wait: independent parts of a computation at once, on a pool of threads between ops.
///
///     auto left = fork([&] { return branch_a(x); });
///     Tensor right = branch_b(x);
///     Tensor y = wait(left) + right;      // recorded as if computed here: y.backward() goes through both
///
/// A task has the grad mode, inference mode and autocast state of the place that forked it. Who waits for a task works
/// on others meanwhile, so that tasks may fork and wait themselves, to any depth and on any number of threads.

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace athanor {

namespace detail {

/// A task, queued or running or done. Its result lies in what derives from it.
class ForkTask {
 public:
  ForkTask();
  virtual ~ForkTask();
  ForkTask(const ForkTask&) = delete;
  ForkTask& operator=(const ForkTask&) = delete;
  /// Works until the task is done; rethrows what it threw.
  void wait();
  bool done() const;

 protected:
  virtual void run() = 0;

 private:
  friend class ForkPool;
  struct State;
  std::unique_ptr<State> state_;
};

void submit(std::shared_ptr<ForkTask> task);

template <class Result>
class ForkResult final : public ForkTask {
 public:
  explicit ForkResult(std::function<Result()> body) : body_(std::move(body)) {}
  Result& value() {
    wait();
    return *value_;
  }

 private:
  void run() override {
    value_.emplace(body_());
    body_ = nullptr;
  }
  std::function<Result()> body_;
  std::optional<Result> value_;
};

template <>
class ForkResult<void> final : public ForkTask {
 public:
  explicit ForkResult(std::function<void()> body) : body_(std::move(body)) {}
  void value() { wait(); }

 private:
  void run() override {
    body_();
    body_ = nullptr;
  }
  std::function<void()> body_;
};

}  // namespace detail

/// The result of a fork. Copies share it. A task whose futures are all gone still runs.
template <class Result>
class Future {
 public:
  Future() = default;
  explicit Future(std::shared_ptr<detail::ForkResult<Result>> task) : task_(std::move(task)) {}
  bool valid() const { return task_ != nullptr; }
  /// Whether it has a result or an error.
  bool done() const { return task_->done(); }
  /// The result, or its task's exception, every time it is asked for.
  Result wait() const { return task_->value(); }

 private:
  std::shared_ptr<detail::ForkResult<Result>> task_;
};

/// Runs f(args...) on another thread, or here once the process ends; the arguments are copied or moved into the task.
template <class F, class... Args>
auto fork(F&& f, Args&&... args) {
  using Result = std::decay_t<std::invoke_result_t<std::decay_t<F>&, std::decay_t<Args>&...>>;
  auto task = std::make_shared<detail::ForkResult<Result>>(
      [f = std::decay_t<F>(std::forward<F>(f)), ... args = std::decay_t<Args>(std::forward<Args>(args))]() mutable {
        return std::invoke(f, args...);
      });
  detail::submit(task);
  return Future<Result>(std::move(task));
}

template <class Result>
Result wait(const Future<Result>& future) {
  return future.wait();
}

/// Threads of the pool: as many as processors at first, or ATHANOR_NUM_INTEROP_THREADS. Each runs its ops on its share
/// of get_num_threads().
int get_num_interop_threads();
/// Throws ValueError unless n >= 1, Error once a task was forked.
void set_num_interop_threads(int n);

}  // namespace athanor
