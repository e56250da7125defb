#pragma once
/// Pipeline parallelism in one process: a network is cut into stages that live on devices of their own, and a batch
/// into micro-batches, so that the stages work at once on different micro-batches. One thread enqueues everything; the
/// devices' queues do the rest. On the host alone it computes the same, one stage after the other.
///
///     nn::Sequential net(...);
///     nn::parallel::Pipeline pipe(net, nn::parallel::PipelineOptions().devices({cpu0, cpu1}).chunks(8));
///     Tensor loss = pipe->train_step(x, target, [](const Tensor& y, const Tensor& t) { return mse_loss(y, t); });
///     optimizer.step();          // or: pipe(x) and backward() through it

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "athanor/nn/container.h"
#include "athanor/nn/options.h"

namespace athanor::nn::parallel {

/// In which order a stage works on its micro-batches.
enum class PipelineSchedule : std::uint8_t {
  FillDrain,             ///< all forwards, then all backwards (GPipe: Huang et al., 2019)
  OneForwardOneBackward  ///< backward as early as possible (PipeDream-flush: Narayanan et al., 2021): a stage keeps the
                         ///< activations of as many micro-batches as there are stages from it on, not of all
};

/// Whether a stage computes its forward again for backward instead of keeping what is inside it.
enum class PipelineCheckpoint : std::uint8_t { Never, ExceptLast, Always };

struct PipelineStep {
  std::int64_t micro_batch;
  bool backward;
  bool operator==(const PipelineStep&) const = default;
};

/// For each stage, what it does, in order. Throws ValueError unless both numbers are positive.
std::vector<std::vector<PipelineStep>> pipeline_steps(PipelineSchedule schedule, std::int64_t stages,
                                                      std::int64_t micro_batches);

struct PipelineOptions {
  ATHANOR_ARG(std::vector<Device>, devices);        ///< one per stage; all_devices() if empty
  ATHANOR_ARG(std::vector<std::int64_t>, balance);  ///< layers of each stage; equal numbers if empty
  ATHANOR_ARG(std::int64_t, chunks) = 1;            ///< micro-batches a batch is cut into, fewer if it is too small
  ATHANOR_ARG(std::optional<std::int64_t>, split_size);  ///< examples in a micro-batch, instead of `chunks`
  ATHANOR_ARG(std::vector<PipelineCheckpoint>, checkpoint) = {PipelineCheckpoint::Never};  ///< of each stage, or one
  ATHANOR_ARG(PipelineSchedule, schedule) = PipelineSchedule::FillDrain;                   ///< of train_step

 public:
  PipelineOptions& checkpoint(PipelineCheckpoint of_all) { return checkpoint(std::vector{of_all}); }
};

/// Input and output of every stage is one tensor whose first dimension is the batch. Layers that look at the whole
/// batch see a micro-batch instead: BatchNorm normalizes each by its own statistics, and updates its running ones once
/// per micro-batch (twice under checkpointing).
class PipelineImpl : public Module {
 public:
  /// Cuts `layers` into stages and moves them to their devices. Parameters keep the names they have in `layers`. Throws
  /// ValueError if balance or checkpoint does not fit the layers or the devices, a number is not positive, or stages on
  /// different devices share a parameter or a buffer: it can lie on one device only.
  PipelineImpl(const Sequential& layers, PipelineOptions options);
  /// One stage for each module.
  PipelineImpl(const std::vector<AnyModule>& stages, PipelineOptions options);

  /// The result on the last device, recorded for backward.
  Tensor forward(const Tensor& input);
  /// Forward and backward by the schedule: gradients are added to the parameters'. `loss` gets output and target of a
  /// micro-batch on the last device and returns the mean over it; what is returned, on the last device, is the mean
  /// over the batch. Throws ValueError if batch sizes differ, Error if a loss is no scalar. If it throws, from `loss`
  /// and layers too, gradients of the micro-batches that came through are left in the parameters': zero them before the
  /// next step.
  Tensor train_step(const Tensor& input, const Tensor& target,
                    const std::function<Tensor(const Tensor& output, const Tensor& target)>& loss);

  std::size_t stages() const { return stages_.size(); }
  const Sequential& stage(std::size_t i) const { return stages_.at(i); }
  const std::vector<Device>& devices() const { return options_.devices(); }

 private:
  class Run;
  void place();
  void check_sharing() const;
  std::vector<Tensor> micro_batches(const Tensor& batch, Device device, const char* what) const;
  Tensor run_stage(std::size_t stage, const Tensor& x, bool last_micro_batch);

  PipelineOptions options_;
  std::vector<Sequential> stages_;
};
ATHANOR_MODULE(Pipeline);

/// The cut of layers with these costs into `stages` contiguous parts whose greatest sum is least: layers of each part.
/// Throws ValueError if there are fewer layers than stages.
std::vector<std::int64_t> balance_by_cost(const std::vector<double>& costs, std::int64_t stages);
/// Measures each layer's forward and backward for `sample`, where the layers are, and cuts by that. The layers must be
/// on one device; their gradients and buffers are as before afterwards.
std::vector<std::int64_t> balance_by_time(const Sequential& layers, const Tensor& sample, std::int64_t stages,
                                          int repeats = 3);
/// Cuts by the bytes of parameters and of the layers' outputs for `sample`.
std::vector<std::int64_t> balance_by_size(const Sequential& layers, const Tensor& sample, std::int64_t stages);

}  // namespace athanor::nn::parallel
