#pragma once
/// Work: the handle of an asynchronous collective, or of a send or receive.

#include <chrono>
#include <exception>
#include <memory>
#include <vector>

#include "athanor/ops/tensor.h"

namespace athanor::distributed {

/// Destroying a Work does not cancel it. All members are thread-safe.
class Work {
 public:
  virtual ~Work() = default;
  /// Whether it has ended, well or not.
  virtual bool is_completed() = 0;
  bool is_success() { return is_completed() && !exception(); }
  /// What it failed with, or null. Does not wait.
  virtual std::exception_ptr exception() = 0;
  /// Waits for the end and rethrows what it failed with. Returns true. Without a timeout, the group's applies, which
  /// aborts the group; when `timeout` passes first, throws DistError and the work goes on.
  virtual bool wait(std::chrono::milliseconds timeout = kNoTimeout) = 0;
  /// The tensors it fills; waits.
  virtual std::vector<Tensor> result() = 0;
  /// The rank a message came from; throws Error for anything but a receive that has ended.
  virtual int source_rank() = 0;

  static constexpr std::chrono::milliseconds kNoTimeout{-1};
};
using WorkPtr = std::shared_ptr<Work>;
/// The name this had in PyTorch 0.4.
using DistributedRequest = Work;

}  // namespace athanor::distributed
