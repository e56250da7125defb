#pragma once
/// Communication hooks: how a DistributedDataParallel combines a bucket of gradients, if not by averaging it.

#include <functional>
#include <future>
#include <vector>

#include "athanor/ops/tensor.h"

namespace athanor::nn::parallel {

/// A bucket of gradients on its way between the ranks.
class GradBucket {
 public:
  /// `offsets` are those of the parameters' gradients in the buffer, in elements.
  GradBucket(std::size_t index, bool last, Tensor buffer, std::vector<Tensor> parameters,
             std::vector<std::int64_t> offsets, std::vector<DimVector> strides)
      : index_(index),
        last_(last),
        buffer_(std::move(buffer)),
        parameters_(std::move(parameters)),
        offsets_(std::move(offsets)),
        strides_(std::move(strides)) {}

  /// Buckets are numbered, and given to the hook, in one order on all ranks.
  std::size_t index() const { return index_; }
  bool is_last() const { return last_; }
  /// All gradients of the bucket in one flat tensor, with zeros between them: each begins at a multiple of 64 bytes.
  const Tensor& buffer() const { return buffer_; }
  /// Another flat tensor of as many elements, for a hook that calls another hook.
  void set_buffer(Tensor buffer) { buffer_ = std::move(buffer); }
  /// Views of the buffer, one per parameter.
  std::vector<Tensor> gradients() const {
    std::vector<Tensor> result;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      result.push_back(buffer_.as_strided(parameters_[i].sizes(), strides_[i], offsets_[i]));
    return result;
  }
  const std::vector<Tensor>& parameters() const { return parameters_; }

 private:
  std::size_t index_;
  bool last_;
  Tensor buffer_;
  std::vector<Tensor> parameters_;
  std::vector<std::int64_t> offsets_;
  std::vector<DimVector> strides_;
};

/// Starts the communication of a bucket. What the future gives, of as many elements as the buffer, becomes the
/// gradients; it is asked for at the end of backward, in the order of the buckets, so it may be deferred. Runs in the
/// thread of backward() with grad mode off, and has to make the same calls on all ranks.
using CommHook = std::function<std::future<Tensor>(GradBucket&)>;

}  // namespace athanor::nn::parallel
