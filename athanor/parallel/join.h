#pragma once
/// Join: training loops of unequal length. A rank that has run out of inputs goes on answering the others' collectives
/// until all have, as torch.distributed.algorithms.Join does.

#include <functional>
#include <memory>
#include <vector>

#include "athanor/distributed/process_group.h"

namespace athanor::nn::parallel {

struct JoinOptions {
  /// Gradients are sums over the ranks that still have inputs, divided by the number of all ranks (true) or of those
  /// (false).
  bool divide_by_initial_world_size = true;
  /// Off where inputs are known to be even: no collective is added then.
  bool enable = true;
  /// All ranks throw as soon as one has run out of inputs.
  bool throw_on_early_termination = false;
};

/// What a rank that has joined does in place of its own step.
class JoinHook {
 public:
  virtual ~JoinHook() = default;
  /// Answers the collectives of one step of the others.
  virtual void main_hook() {}
  /// When all have joined. `last_joiner` is the rank that trained longest.
  virtual void post_hook(int last_joiner) { static_cast<void>(last_joiner); }
};

/// Something with collectives in each step. A step begins with Join::notify.
class Joinable {
 public:
  virtual ~Joinable() = default;
  virtual std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) = 0;
  virtual distributed::ProcessGroupPtr join_process_group() const = 0;

 private:
  friend class Join;
  class Join* join_ = nullptr;
};

class Join {
 public:
  /// Runs `body`, in which the joinables make as many steps as this rank has inputs for, then answers the others until
  /// all are done. All joinables are of one group. What `body` throws comes out at once, and the other ranks wait until
  /// this one is gone.
  static void run(const std::vector<Joinable*>& joinables, const std::function<void()>& body,
                  const JoinOptions& options = {});
  /// Called by a Joinable at the start of a step, before its collectives; counts for the first of those joined
  /// together. Nothing outside of run().
  static void notify(Joinable& joinable);
  /// The ranks that have not joined, as of the last notify; empty outside of run().
  static std::vector<int> active_ranks(const Joinable& joinable);
  /// By how many sums are to be divided as of the last notify, if not by the size of the group; else 0.
  static int divisor(const Joinable& joinable);

  // What run() does, for a program whose training loop is no function: make one, train, answer().
  Join(const std::vector<Joinable*>& joinables, const JoinOptions& options);
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;
  void answer();

 private:
  void count(bool active);

  std::vector<Joinable*> joinables_;
  JoinOptions options_;
  distributed::ProcessGroupPtr group_;
  std::vector<int> active_;
  int last_joiner_ = 0;
};

}  // namespace athanor::nn::parallel
