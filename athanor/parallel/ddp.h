#pragma once
/// DistributedDataParallel: every rank has a copy of a module and trains it on its own inputs; gradients are averaged
/// during backward, so that the copies stay the same bit by bit. PyTorch's names and defaults:
///
///     nn::parallel::DistributedDataParallel ddp(net,
///     nn::parallel::DistributedDataParallelOptions().bucket_cap_mb(10)); optim::SGD optimizer(ddp->parameters(), 0.1);
///     ddp(x).sum().backward();   // .grad holds the ranks' average
///     optimizer.step();

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "athanor/nn/any.h"
#include "athanor/nn/options.h"
#include "athanor/parallel/join.h"
#include "athanor/parallel/reducer.h"

namespace athanor::nn::parallel {

struct DistributedDataParallelOptions {
  /// For a module on one device that is not the host: that device. Inputs are moved there.
  ATHANOR_ARG(std::vector<Device>, device_ids);
  ATHANOR_ARG(std::optional<Device>, output_device);
  ATHANOR_ARG(std::int64_t, dim) = 0;
  /// Buffers become rank 0's before forward, if the forward before it was one whose backward averages.
  ATHANOR_ARG(bool, broadcast_buffers) = true;
  /// Parameters and buffers are compared between the ranks and become rank 0's at the start.
  ATHANOR_ARG(bool, init_sync) = true;
  /// Null: the default group.
  ATHANOR_ARG(distributed::ProcessGroupPtr, process_group);
  /// Buckets of gradients that are reduced in one go; the first one has 1 MiB.
  ATHANOR_ARG(double, bucket_cap_mb) = 25;
  /// Has no effect: parameters that a backward did not use are always found, at no cost worth mentioning.
  ATHANOR_ARG(bool, find_unused_parameters) = false;
  /// Has no effect: gradients always lie in the buckets. A tensor that was `.grad` once is overwritten by a later
  /// backward; clone() what is to be kept.
  ATHANOR_ARG(bool, gradient_as_bucket_view) = false;
  /// All steps have the same graph; parameters may then get gradients several times in a backward, as with checkpoint.
  ATHANOR_ARG(bool, static_graph) = false;
  /// See ReducerOptions::overlap.
  ATHANOR_ARG(std::optional<bool>, overlap) = std::nullopt;
};

class DistributedDataParallelBase;

/// While it lives, backward of forwards that were called meanwhile adds up gradients on this rank only.
class [[nodiscard]] NoSyncGuard {
 public:
  explicit NoSyncGuard(DistributedDataParallelBase& ddp);
  ~NoSyncGuard();
  NoSyncGuard(const NoSyncGuard&) = delete;
  NoSyncGuard& operator=(const NoSyncGuard&) = delete;

 private:
  DistributedDataParallelBase& ddp_;
  bool before_;
};

/// What does not depend on the module's type.
///
/// A forward with grad mode on decides whether the backward after it averages. All ranks make the same forwards and
/// backwards (join() lifts that) and use the wrapper from one thread at a time. A parameter that gets no gradient
/// counts as zero, and keeps its `.grad` if no rank has one. requires_grad may be switched at any time, on the same
/// parameters of all ranks; those off at the start stay out. A backward with create_graph throws.
class DistributedDataParallelBase : public Module, public Joinable {
 public:
  ~DistributedDataParallelBase() override;
  NoSyncGuard no_sync() { return NoSyncGuard(*this); }
  /// Runs `body`, a training loop that may have fewer steps than other ranks'. Afterwards parameters and buffers are
  /// those of the rank that trained longest.
  void join(const std::function<void()>& body, const JoinOptions& options = {}) { Join::run({this}, body, options); }
  /// Replaces averaging; once. Throws Error for a second one.
  void register_comm_hook(CommHook hook);
  /// Python's form, with the state that the hook gets.
  template <class State, class Hook>
  void register_comm_hook(State state, Hook hook) {
    register_comm_hook(CommHook([state = std::move(state), hook = std::move(hook)](GradBucket& bucket) mutable {
      return hook(state, bucket);
    }));
  }
  const distributed::ProcessGroupPtr& process_group() const { return group_; }
  const Reducer& reducer() const { return *reducer_; }

  using Module::to;
  /// Throws Error unless it changes nothing: move and convert the module before it is wrapped.
  void to(const TensorOptions& options, bool non_blocking = false) override;

  std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) override;
  distributed::ProcessGroupPtr join_process_group() const override { return group_; }

 protected:
  DistributedDataParallelBase(const std::shared_ptr<Module>& module, const DistributedDataParallelOptions& options);
  void before_forward();
  /// From here on the recorded graph averages even if the wrapper goes.
  void after_forward();
  const DistributedDataParallelOptions& options() const { return options_; }
  template <class T>
  decltype(auto) place(T&& input) const {
    if constexpr (std::is_same_v<std::decay_t<T>, Tensor>)
      return options_.device_ids().empty() ? Tensor(std::forward<T>(input)) : input.to(options_.device_ids()[0]);
    else
      return std::forward<T>(input);
  }

 private:
  friend class NoSyncGuard;
  class Hook;
  void check_devices() const;
  void broadcast_buffers(int root);
  void broadcast_all(int root);

  std::shared_ptr<Module> wrapped_;
  DistributedDataParallelOptions options_;
  distributed::ProcessGroupPtr group_;
  std::shared_ptr<Reducer> reducer_;
  bool synchronize_ = true, buffers_due_ = true;
};

template <class M>
class DistributedDataParallelImpl : public DistributedDataParallelBase {
 public:
  /// A collective act. Throws ValueError if the ranks' modules differ or the devices make no sense, Error if no
  /// parameter requires grad.
  explicit DistributedDataParallelImpl(std::shared_ptr<M> module, const DistributedDataParallelOptions& options = {})
      : DistributedDataParallelBase(module, options), module_(std::move(module)) {}
  const std::shared_ptr<M>& module() const { return module_; }
  template <class... Args>
  decltype(auto) forward(Args&&... args) {
    before_forward();
    if constexpr (std::is_same_v<std::decay_t<decltype(call(std::forward<Args>(args)...))>, Tensor>) {
      Tensor out = call(std::forward<Args>(args)...);
      after_forward();
      return options().output_device() ? out.to(*options().output_device()) : out;
    } else {
      decltype(auto) out = call(std::forward<Args>(args)...);
      after_forward();
      return out;
    }
  }
  /// For Sequential and AnyModule.
  Tensor forward_as_any(Tensor input) { return forward(input); }

 private:
  template <class... Args>
  decltype(auto) call(Args&&... args) {
    return nn::detail::call_module(*module_, place(std::forward<Args>(args))...);
  }
  std::shared_ptr<M> module_;
};

/// The holder: calls, `->` and copies like any module's. Its parameters are named "module.…".
template <class M>
class DistributedDataParallel : public ModuleHolder<DistributedDataParallelImpl<M>> {
 public:
  using Impl = DistributedDataParallelImpl<M>;
  DistributedDataParallel(std::nullptr_t) : ModuleHolder<Impl>(nullptr) {}
  explicit DistributedDataParallel(std::shared_ptr<M> module, const DistributedDataParallelOptions& options = {})
      : ModuleHolder<Impl>(std::make_shared<Impl>(std::move(module), options)) {}
  explicit DistributedDataParallel(const ModuleHolder<M>& module, const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(module.ptr(), options) {}
};

}  // namespace athanor::nn::parallel
