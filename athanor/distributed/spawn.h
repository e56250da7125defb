#pragma once
/// Processes that run a function of this program: the counterparts of torch.multiprocessing's Process and spawn, by
/// fork. Kernels may have run before: the child starts threads of its own.

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "athanor/distributed/error.h"

namespace athanor::distributed {

/// A child failed: the message carries its rank and its error's text.
class __attribute__((visibility("default"))) ProcessRaisedError : public DistError {
 public:
  using DistError::DistError;
};
/// A child ended by a signal or with a status other than 0.
class __attribute__((visibility("default"))) ProcessExitedError : public DistError {
 public:
  using DistError::DistError;
};

/// One child process. It ends when its function returns or throws (then with status 1), or when this process ends,
/// however that happens.
class Process {
 public:
  /// `threads`: the size of the child's thread team; 0: as here.
  explicit Process(std::function<void()> target, int threads = 0);
  template <class F, class... Args>
  requires(sizeof...(Args) > 0) static Process of(F target, Args... args) {
    return Process(
        [target = std::move(target), args = std::make_tuple(std::move(args)...)] { std::apply(target, args); });
  }
  /// Ends a child that still runs (SIGKILL).
  ~Process();
  Process(Process&&) noexcept;
  Process& operator=(Process&&) noexcept;

  /// Throws Error when called twice, DistError when the system refuses.
  void start();
  /// Waits for the end; false when `timeout` passes first. Does not throw for a child that failed: see exitcode().
  bool join(std::chrono::milliseconds timeout = kForever);
  bool is_alive();
  /// The child's status, or minus the signal that ended it; nothing while it runs.
  std::optional<int> exitcode();
  /// The text of what the child threw; empty if nothing.
  const std::string& error();
  pid_t pid() const;
  void terminate();  ///< SIGTERM
  void kill();       ///< SIGKILL

  static constexpr std::chrono::milliseconds kForever{-1};

 private:
  friend class ProcessContext;
  struct State;
  std::unique_ptr<State> state_;
};

/// The children of one spawn().
class ProcessContext {
 public:
  explicit ProcessContext(std::vector<Process> processes) : processes_(std::move(processes)) {}
  /// Waits until all have ended well: true; false when `timeout` passes first. When one fails, the others are ended
  /// (SIGTERM, a moment later SIGKILL) and ProcessRaisedError or ProcessExitedError tells which one failed first and
  /// how.
  bool join(std::chrono::milliseconds timeout = Process::kForever);
  std::vector<pid_t> pids() const;
  std::vector<Process>& processes() { return processes_; }

 private:
  int wait_for_one(std::chrono::milliseconds timeout);
  void end_others();

  std::vector<Process> processes_;
};

/// Runs fn(rank) in `nprocs` processes, rank from 0. The children's MASTER_ADDR and MASTER_PORT name this host and a
/// free port unless they are set; the threads of this process are shared out among them. Returns when all have ended
/// well; throws as ProcessContext::join. Groups of this process cannot be used in the children.
void spawn(const std::function<void(int)>& fn, int nprocs = 1);
/// The same without waiting.
ProcessContext spawn_async(const std::function<void(int)>& fn, int nprocs = 1);
/// fn(rank, args...).
template <class F, class... Args>
ProcessContext spawn(F fn, int nprocs, std::tuple<Args...> args, bool join = true) {
  auto context = spawn_async([fn = std::move(fn), args = std::move(args)](
                                 int rank) { std::apply([&](const auto&... values) { fn(rank, values...); }, args); },
                             nprocs);
  if (join) context.join();
  return context;
}

}  // namespace athanor::distributed
