#pragma once
/// Fences: how queues wait for threads that are not theirs, such as those that carry out transfers. Not part of the
/// interface.

#include <chrono>
#include <cstdint>
#include <vector>

#include "athanor/tensor/storage.h"
#include "athanor/tensor/stream.h"

namespace athanor::detail {

/// Stands from its making until it is lifted, at the latest by its destructor. Thread-safe.
class Fence {
 public:
  Fence();
  ~Fence() { lift(); }
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  /// Whoever waits goes on.
  void lift() noexcept;
  /// A point that is past when the fence is lifted: for Storage::add_foreign_use (later writes wait),
  /// note_foreign_write and Task::after. It belongs to no queue and may outlive the fence.
  QueuePoint point() const { return {nullptr, number_}; }

 private:
  std::uint64_t number_;
};

bool is_fence(const QueuePoint& point);
/// The two for points that are fences. `wait_for_fence` is false if it still stands when the time is over.
bool fence_is_lifted(const QueuePoint& point);
bool wait_for_fence(const QueuePoint& point, std::chrono::milliseconds time);
/// Blocks until the point is past; leaves a failure of its queue to the host's next synchronizing call.
void wait_quietly(const QueuePoint& point);

/// Notes that what is behind `fence` writes the storage's bytes: later reads and writes wait for it, the host's too.
void note_foreign_write(const Storage& storage, const Fence& fence);
/// The fences of such writes that still stand.
std::vector<QueuePoint> foreign_writes(const Storage& storage);

/// Around fork(): before it, and after it in the parent.
void lock_fences();
void unlock_fences();
/// In the child, with the lock: nobody there lifts the parent's fences, so all of them are past, and the parent's
/// waiters are not waited for.
void leave_fences();

}  // namespace athanor::detail
