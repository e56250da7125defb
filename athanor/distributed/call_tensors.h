#pragma once
/// CallTensor: a tensor's part in one collective. Not part of the interface.
///
/// On a queued device the call has its place in the order of the work on the tensor from its making on: it takes the
/// values that work enqueued before has made, and later work on the tensor waits for it, in the queue and not before
/// it. The bytes are those of the device where they are contiguous. A tensor of the host is used when the call runs.

#include <memory>
#include <optional>
#include <vector>

#include "athanor/distributed/backend.h"
#include "athanor/distributed/staging.h"
#include "athanor/tensor/fence.h"

namespace athanor::distributed {

/// What the tensors of one call have in common. Make those that are only read first.
class CallOrder {
 public:
  const std::shared_ptr<athanor::detail::Fence>& fence() {
    if (!fence_) fence_ = std::make_shared<athanor::detail::Fence>();
    return fence_;
  }

 private:
  std::shared_ptr<athanor::detail::Fence> fence_;  // each tensor has a share; the last to go lifts it
};

class CallTensor {
 public:
  /// In the thread that makes the call.
  CallTensor(const Tensor& tensor, Staged::Use use, CallOrder& order);
  CallTensor(CallTensor&&) noexcept;
  ~CallTensor();
  /// When the call runs, once, without a move afterwards: waits until the bytes may be used. Throws Error if the values
  /// were not made, DistError if other calls still use them at the deadline.
  Span open(const Call& call);
  /// After it: the tensor has what was written. One that was opened to be written and not closed has no values.
  void close();

 private:
  struct OnQueue;
  Tensor tensor_;  // whose shape the call's description shows
  Staged::Use use_;
  std::optional<Staged> on_host_;
  std::unique_ptr<OnQueue> on_queue_;
};

/// The same for a list of tensors.
class CallTensors {
 public:
  CallTensors(TensorList tensors, Staged::Use use, CallOrder& order);
  Parts open(const Call& call);
  void close();

 private:
  std::vector<CallTensor> items_;
  std::vector<Span> spans_;
};

}  // namespace athanor::distributed
