#pragma once
/// fork and wait: independent parts of a computation at once, on a pool of threads between ops.
///
///     auto left = fork([&] { return branch_a(x); });
///     Tensor right = branch_b(x);
///     Tensor y = wait(left) + right;      // recorded as if computed here: y.backward() goes through both
///
/// A task has the grad mode, inference mode, autocast state and current cuda device of the place that forked it. Who
/// waits for a task that nobody has begun runs it itself, else sleeps; another thread takes the turn of a task that
/// sleeps. So tasks may fork and wait themselves, to any depth and on any number of threads, as long as no task waits
/// for itself in a circle.

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
  /// Runs the task if nobody has begun it, else sleeps until it is done; rethrows what it threw.
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
[[noreturn]] void no_task(const char* call);

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
  /// Whether it has a result or an error. Throws Error for a Future that is not valid().
  bool done() const { return task("done").done(); }
  /// The result, or its task's exception, every time it is asked for. Throws Error for a Future that is not valid().
  Result wait() const { return task("wait").value(); }

 private:
  detail::ForkResult<Result>& task(const char* call) const {
    if (!task_) detail::no_task(call);
    return *task_;
  }
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

/// How many threads of the pool run tasks at once: as many as processors at first, or ATHANOR_NUM_INTEROP_THREADS. Each
/// runs its ops on its share of get_num_threads(). Threads whose tasks wait for others do not count; those that go on
/// while the others' turns are taken make it more for a moment.
int get_num_interop_threads();
/// Throws ValueError unless n >= 1, Error once a task was forked.
void set_num_interop_threads(int n);

}  // namespace athanor
