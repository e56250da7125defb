#pragma once
/// SyncBatchNorm: batch normalization by the mean and variance of the batches of all ranks together.

#include <memory>

#include "athanor/nn/normalization.h"

namespace athanor::distributed {
class ProcessGroup;  // distributed/process_group.h
using ProcessGroupPtr = std::shared_ptr<ProcessGroup>;
}  // namespace athanor::distributed

namespace athanor::nn {

namespace functional {
/// batch_norm with the statistics of all ranks' inputs, which may differ in all dims but the second, when
/// `options.training()` is set. A null group means the default one. Its gradient cannot be differentiated again.
Tensor sync_batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                       const BatchNormFuncOptions& options, const distributed::ProcessGroupPtr& group = nullptr);
}  // namespace functional

/// Input (batch, channels, …). Parameters and buffers as BatchNorm's.
class SyncBatchNormImpl : public Cloneable<SyncBatchNormImpl> {
 public:
  explicit SyncBatchNormImpl(std::int64_t num_features, const distributed::ProcessGroupPtr& group = nullptr);
  explicit SyncBatchNormImpl(const BatchNormOptions& options, const distributed::ProcessGroupPtr& group = nullptr);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  BatchNormOptions options;
  distributed::ProcessGroupPtr process_group;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};
ATHANOR_MODULE(SyncBatchNorm);

/// Makes every BatchNorm1d, 2d and 3d in `module` compute as SyncBatchNorm does, in place: modules, parameters and
/// their names stay. Returns how many there were.
int convert_sync_batchnorm(Module& module, const distributed::ProcessGroupPtr& group = nullptr);
/// Whether anything in the module computes as SyncBatchNorm does.
bool has_sync_batchnorm(Module& module);

}  // namespace athanor::nn
