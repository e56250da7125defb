#pragma once
/// Normalization layers and their functional forms: BatchNorm, InstanceNorm, LayerNorm, RMSNorm, GroupNorm.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

/// momentum: the weight of the newest batch in the running statistics; none: their plain mean.
struct BatchNormOptions {
  BatchNormOptions(std::int64_t num_features) : num_features_(num_features) {}
  ATHANOR_ARG(std::int64_t, num_features);
  ATHANOR_ARG(double, eps) = 1e-5;
  ATHANOR_ARG(std::optional<double>, momentum) = 0.1;
  ATHANOR_ARG(bool, affine) = true;
  ATHANOR_ARG(bool, track_running_stats) = true;
};
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;
using BatchNorm3dOptions = BatchNormOptions;

struct InstanceNormOptions {
  InstanceNormOptions(std::int64_t num_features) : num_features_(num_features) {}
  ATHANOR_ARG(std::int64_t, num_features);
  ATHANOR_ARG(double, eps) = 1e-5;
  ATHANOR_ARG(double, momentum) = 0.1;
  ATHANOR_ARG(bool, affine) = false;
  ATHANOR_ARG(bool, track_running_stats) = false;
};
using InstanceNorm1dOptions = InstanceNormOptions;
using InstanceNorm2dOptions = InstanceNormOptions;
using InstanceNorm3dOptions = InstanceNormOptions;

struct LayerNormOptions {
  LayerNormOptions(std::vector<std::int64_t> normalized_shape) : normalized_shape_(std::move(normalized_shape)) {}
  ATHANOR_ARG(std::vector<std::int64_t>, normalized_shape);
  ATHANOR_ARG(double, eps) = 1e-5;
  ATHANOR_ARG(bool, elementwise_affine) = true;
};

/// eps: the dtype's spacing at 1 unless given.
struct RMSNormOptions {
  RMSNormOptions(std::vector<std::int64_t> normalized_shape) : normalized_shape_(std::move(normalized_shape)) {}
  ATHANOR_ARG(std::vector<std::int64_t>, normalized_shape);
  ATHANOR_ARG(std::optional<double>, eps) = std::nullopt;
  ATHANOR_ARG(bool, elementwise_affine) = true;
};

struct GroupNormOptions {
  GroupNormOptions(std::int64_t num_groups, std::int64_t num_channels)
      : num_groups_(num_groups), num_channels_(num_channels) {}
  ATHANOR_ARG(std::int64_t, num_groups);
  ATHANOR_ARG(std::int64_t, num_channels);
  ATHANOR_ARG(double, eps) = 1e-5;
  ATHANOR_ARG(bool, affine) = true;
};

namespace functional {

struct BatchNormFuncOptions {
  ATHANOR_ARG(Tensor, weight);
  ATHANOR_ARG(Tensor, bias);
  ATHANOR_ARG(bool, training) = false;
  ATHANOR_ARG(double, momentum) = 0.1;
  ATHANOR_ARG(double, eps) = 1e-5;
};
struct LayerNormFuncOptions {
  LayerNormFuncOptions(std::vector<std::int64_t> normalized_shape) : normalized_shape_(std::move(normalized_shape)) {}
  ATHANOR_ARG(std::vector<std::int64_t>, normalized_shape);
  ATHANOR_ARG(Tensor, weight);
  ATHANOR_ARG(Tensor, bias);
  ATHANOR_ARG(double, eps) = 1e-5;
};
struct InstanceNormFuncOptions {
  ATHANOR_ARG(Tensor, running_mean);
  ATHANOR_ARG(Tensor, running_var);
  ATHANOR_ARG(Tensor, weight);
  ATHANOR_ARG(Tensor, bias);
  ATHANOR_ARG(bool, use_input_stats) = true;
  ATHANOR_ARG(double, momentum) = 0.1;
  ATHANOR_ARG(double, eps) = 1e-5;
};
struct RMSNormFuncOptions {
  RMSNormFuncOptions(std::vector<std::int64_t> normalized_shape) : normalized_shape_(std::move(normalized_shape)) {}
  ATHANOR_ARG(std::vector<std::int64_t>, normalized_shape);
  ATHANOR_ARG(Tensor, weight);
  ATHANOR_ARG(std::optional<double>, eps) = std::nullopt;
};
struct GroupNormFuncOptions {
  GroupNormFuncOptions(std::int64_t num_groups) : num_groups_(num_groups) {}
  ATHANOR_ARG(std::int64_t, num_groups);
  ATHANOR_ARG(Tensor, weight);
  ATHANOR_ARG(Tensor, bias);
  ATHANOR_ARG(double, eps) = 1e-5;
};
struct NormalizeFuncOptions {
  ATHANOR_ARG(double, p) = 2.0;
  ATHANOR_ARG(std::int64_t, dim) = 1;
  ATHANOR_ARG(double, eps) = 1e-12;
  /// Where the result goes, if given.
  ATHANOR_ARG(std::optional<Tensor>, out) = std::nullopt;
};

/// Undefined running statistics are allowed in training; else they are updated in place.
Tensor batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                  const BatchNormFuncOptions& options = {});
/// Each channel of each sample by its own mean and variance, or by the running ones without use_input_stats. Running
/// statistics given are updated in place by the batch's means of them.
Tensor instance_norm(const Tensor& input, const InstanceNormFuncOptions& options = {});
Tensor layer_norm(const Tensor& input, const LayerNormFuncOptions& options);
/// input / sqrt(mean of squares + eps) over the last dims (Zhang & Sennrich, 2019).
Tensor rms_norm(const Tensor& input, const RMSNormFuncOptions& options);
Tensor group_norm(const Tensor& input, const GroupNormFuncOptions& options);
/// input divided by its p-norm along dim, which counts as eps if smaller.
Tensor normalize(const Tensor& input, const NormalizeFuncOptions& options = {});

}  // namespace functional

/// What BatchNorm1d, 2d and 3d share. Dim 1 of the input is the channel; statistics are over all others.
template <class Derived>
class BatchNormImplBase : public Cloneable<Derived> {
 public:
  explicit BatchNormImplBase(const BatchNormOptions& options) : options(options) { this->reset(); }
  void reset() override;
  void reset_parameters();
  /// Forgets the running statistics.
  void reset_running_stats();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);
  /// relu(forward(input) + residual), or relu(forward(input)), in one pass where there is one. Runs no hooks.
  Tensor forward_relu(const Tensor& input, const Tensor& residual = {});

  BatchNormOptions options;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  /// What computes in training; functional::batch_norm if empty. convert_sync_batchnorm puts another in its place.
  std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, const functional::BatchNormFuncOptions&)> normalize;

 private:
  Tensor run(const Tensor& input, const Tensor& residual, bool relu);
};

#define ATHANOR_BATCH_NORM(D)                                                                                      \
  class BatchNorm##D##dImpl : public BatchNormImplBase<BatchNorm##D##dImpl> {                                      \
   public:                                                                                                         \
    explicit BatchNorm##D##dImpl(std::int64_t num_features) : BatchNormImplBase(BatchNormOptions(num_features)) {} \
    explicit BatchNorm##D##dImpl(const BatchNormOptions& options) : BatchNormImplBase(options) {}                  \
    static constexpr int kSpatial = D;                                                                             \
  };                                                                                                               \
  ATHANOR_LIBRARY_MODULE(BatchNorm##D##d)
ATHANOR_BATCH_NORM(1);
ATHANOR_BATCH_NORM(2);
ATHANOR_BATCH_NORM(3);
#undef ATHANOR_BATCH_NORM

// Compiled once, in normalization.cpp.
extern template class BatchNormImplBase<BatchNorm1dImpl>;
extern template class BatchNormImplBase<BatchNorm2dImpl>;
extern template class BatchNormImplBase<BatchNorm3dImpl>;

/// What InstanceNorm1d, 2d and 3d share. Input (batch, channels, spatial…), or without the batch.
template <class Derived>
class InstanceNormImplBase : public Cloneable<Derived> {
 public:
  explicit InstanceNormImplBase(const InstanceNormOptions& options) : options(options) { this->reset(); }
  void reset() override;
  void reset_parameters();
  void reset_running_stats();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  InstanceNormOptions options;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};

#define ATHANOR_INSTANCE_NORM(D)                                                                           \
  class InstanceNorm##D##dImpl : public InstanceNormImplBase<InstanceNorm##D##dImpl> {                     \
   public:                                                                                                 \
    explicit InstanceNorm##D##dImpl(std::int64_t num_features)                                             \
        : InstanceNormImplBase(InstanceNormOptions(num_features)) {}                                       \
    explicit InstanceNorm##D##dImpl(const InstanceNormOptions& options) : InstanceNormImplBase(options) {} \
    static constexpr int kSpatial = D;                                                                     \
  };                                                                                                       \
  ATHANOR_LIBRARY_MODULE(InstanceNorm##D##d)
ATHANOR_INSTANCE_NORM(1);
ATHANOR_INSTANCE_NORM(2);
ATHANOR_INSTANCE_NORM(3);
#undef ATHANOR_INSTANCE_NORM
extern template class InstanceNormImplBase<InstanceNorm1dImpl>;
extern template class InstanceNormImplBase<InstanceNorm2dImpl>;
extern template class InstanceNormImplBase<InstanceNorm3dImpl>;

/// Normalizes over the last dims, which must be normalized_shape.
class LayerNormImpl : public Cloneable<LayerNormImpl> {
 public:
  LayerNormImpl(std::vector<std::int64_t> normalized_shape)
      : LayerNormImpl(LayerNormOptions(std::move(normalized_shape))) {}
  explicit LayerNormImpl(LayerNormOptions options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  LayerNormOptions options;
  Tensor weight, bias;
};
ATHANOR_LIBRARY_MODULE(LayerNorm);

/// Divides by the root of the mean of squares over the last dims, which must be normalized_shape.
class RMSNormImpl : public Cloneable<RMSNormImpl> {
 public:
  RMSNormImpl(std::vector<std::int64_t> normalized_shape) : RMSNormImpl(RMSNormOptions(std::move(normalized_shape))) {}
  explicit RMSNormImpl(RMSNormOptions options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  RMSNormOptions options;
  Tensor weight;
};
ATHANOR_LIBRARY_MODULE(RMSNorm);

/// Normalizes each of num_groups equal groups of channels of each sample.
class GroupNormImpl : public Cloneable<GroupNormImpl> {
 public:
  GroupNormImpl(std::int64_t num_groups, std::int64_t num_channels)
      : GroupNormImpl(GroupNormOptions(num_groups, num_channels)) {}
  explicit GroupNormImpl(const GroupNormOptions& options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  GroupNormOptions options;
  Tensor weight, bias;
};
ATHANOR_LIBRARY_MODULE(GroupNorm);

}  // namespace athanor::nn
