#pragma once
/// Ready-made communication hooks: `ddp->register_comm_hook(group, comm_hooks::fp16_compress_hook)`. A null group means
/// the default one. torch.distributed.algorithms.ddp_comm_hooks.

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "athanor/distributed/process_group.h"
#include "athanor/parallel/comm_hook.h"
#include "athanor/tensor/generator.h"

namespace athanor::nn::parallel::comm_hooks {

using distributed::ProcessGroupPtr;

/// The average, as without a hook.
std::future<Tensor> allreduce_hook(const ProcessGroupPtr& group, GradBucket& bucket);
/// The average of gradients rounded to float16: half the bytes of float32.
std::future<Tensor> fp16_compress_hook(const ProcessGroupPtr& group, GradBucket& bucket);
/// The same in bfloat16, which has float32's range.
std::future<Tensor> bf16_compress_hook(const ProcessGroupPtr& group, GradBucket& bucket);

namespace internals {
/// Runs `hook` on the bucket converted to `dtype`; its result comes back in the bucket's own.
std::future<Tensor> compressed(DType dtype, GradBucket& bucket, const CommHook& hook);
}  // namespace internals

/// Lets another hook, one with a state, communicate in half precision:
/// `register_comm_hook(state, fp16_compress_wrapper(powerSGD_hook))`.
template <class Hook>
auto fp16_compress_wrapper(Hook hook) {
  return [hook](auto& state, GradBucket& bucket) {
    return internals::compressed(kHalf, bucket, [&](GradBucket& b) { return hook(state, b); });
  };
}
template <class Hook>
auto bf16_compress_wrapper(Hook hook) {
  return [hook](auto& state, GradBucket& bucket) {
    return internals::compressed(kBFloat16, bucket, [&](GradBucket& b) { return hook(state, b); });
  };
}

struct PowerSGDOptions {
  /// Columns of the two factors that stand for a gradient matrix: more is more exact and slower.
  std::int64_t matrix_approximation_rank = 1;
  /// Plain averaging until this step; at least 2 with error feedback or warm start.
  std::int64_t start_powerSGD_iter = 1000;
  /// A gradient is compressed if its factors, times this, are smaller than itself.
  double min_compression_rate = 2;
  /// What compression lost is added to the next gradient.
  bool use_error_feedback = true;
  /// A step begins with the factors of the step before.
  bool warm_start = true;
  /// Added to the norms that factors are divided by.
  double orthogonalization_epsilon = 0;
  std::uint64_t random_seed = 0;
};

/// What PowerSGD remembers. One per DistributedDataParallel.
class PowerSGDState {
 public:
  /// Throws ValueError for options that cannot work.
  explicit PowerSGDState(ProcessGroupPtr group = nullptr, const PowerSGDOptions& options = {});
  const PowerSGDOptions& options() const { return options_; }
  std::int64_t iter() const { return iter_; }
  /// Elements of gradients so far over elements sent in their place, of the steps that compressed.
  double compression_rate() const;

 private:
  friend std::future<Tensor> powerSGD_hook(const std::shared_ptr<PowerSGDState>& state, GradBucket& bucket);
  friend class PowerSGDStep;
  ProcessGroupPtr group_;
  PowerSGDOptions options_;
  std::int64_t iter_ = 0, elements_ = 0, sent_ = 0;
  std::map<std::size_t, Tensor> errors_;                         // by bucket
  std::map<std::pair<std::size_t, std::size_t>, Tensor> right_;  // by bucket and gradient
  Generator generator_;
};

/// Gradients as products of two thin matrices, found by one step of the power method: Vogels, Karimireddy & Jaggi,
/// "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization", NeurIPS 2019. Vectors, and
/// matrices that are too small to gain, are averaged as they are. Communicates before it returns.
std::future<Tensor> powerSGD_hook(const std::shared_ptr<PowerSGDState>& state, GradBucket& bucket);

}  // namespace athanor::nn::parallel::comm_hooks
