#pragma once
/// CallTensor: a tensor's part in one collective. Not part of the interface.
///
/// On a queued device the call has its place in the order of the work on the tensor from its making on: it takes the
/// values that work enqueued before has made, and later work on the tensor waits for it, in the queue and not before
/// it. The bytes are those of the device where they are contiguous. A tensor of the host is used when the call runs.

#include <atomic>
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
  struct Place {
    athanor::detail::Fence fence;
    std::atomic<bool> submitted{false};
  };

  const std::shared_ptr<Place>& place() {
    if (!place_) place_ = std::make_shared<Place>();
    return place_;
  }
  /// From now on the call has to write what it was given to write: tensors that it does not close have no values.
  void submit() {
    if (place_) place_->submitted.store(true, std::memory_order_relaxed);
  }

 private:
  std::shared_ptr<Place> place_;  // each tensor has a share; the last to go lifts the fence
};

class CallTensor {
 public:
  /// In the thread that makes the call.
  CallTensor(const Tensor& tensor, Staged::Use use, CallOrder& order);
  CallTensor(CallTensor&&) noexcept;
  ~CallTensor();
  /// When the call runs, once, without a move afterwards: waits until the bytes may be used. Throws Error if the values
  /// were not made, DistError if work of this rank still uses them at the deadline, and what call.look() throws.
  Span open(const Call& call);
  /// After it: the tensor has what was written. One that a submitted call was to write and did not close has no values.
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
