#pragma once
/// Streams: the order in which a device runs kernels. The host CPU has none (kernels run inline); a queued device has
/// one Queue whose worker runs tasks in the order they were enqueued. Enqueueing, events and synchronization are
/// thread-safe.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "athanor/base/intrusive_ptr.h"
#include "athanor/tensor/device.h"

namespace athanor {

class Queue;

/// Whether the bytes of a queued tensor mean anything: shared by its storage and by the tasks that read or write it.
struct Validity : RefCounted {
  std::atomic<bool> invalid{false};
};

/// A point in a queue's order. Default-constructed events are complete.
class Event {
 public:
  Event() = default;
  Event(Queue* queue, std::uint64_t ticket) : queue_(queue), ticket_(ticket) {}
  /// True once everything enqueued before the event has run.
  bool query() const;
  /// Blocks until then and rethrows the queue's pending failure.
  void synchronize() const;
  Queue* queue() const { return queue_; }
  std::uint64_t ticket() const { return ticket_; }

 private:
  Queue* queue_ = nullptr;
  std::uint64_t ticket_ = 0;
};

/// One kernel call, kept until it runs. `reads` and `writes` are the validity marks of its operands.
struct Task {
  explicit Task(const char* op) : op(op) {}
  virtual ~Task() = default;
  virtual void run() = 0;
  const char* op;
  std::vector<Event> after;  ///< events of other queues to wait for first
  struct Write {
    IntrusivePtr<Validity> mark;
    bool whole;  ///< every byte of the storage is written, so success makes it valid again
  };
  std::vector<IntrusivePtr<Validity>> reads;
  bool host_output = false;  ///< writes host memory, which has no validity mark: skipping it is a failure
  std::vector<Write> writes;
};

/// Memory and work of one queued device.
class Queue {
 public:
  Queue(Device device, int threads);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Device device() const;
  /// Appends a task; blocks while kMaxPending tasks wait.
  void enqueue(std::unique_ptr<Task> task);
  /// The point after everything enqueued so far.
  Event record();
  /// Waits for everything enqueued so far. If a task failed, rethrows its exception (its own type, with the op named)
  /// once; afterwards the queue works again.
  void synchronize();
  bool done(std::uint64_t ticket) const;
  void wait(std::uint64_t ticket);
  /// The same, leaving a failure to the host's next synchronizing call.
  void wait_quietly(std::uint64_t ticket);

  /// Stream-ordered memory: a block may be handed out again as soon as it was freed, because whatever uses it next runs
  /// later in this queue. `foreign` are uses by other queues that must be over first.
  void* allocate(std::size_t bytes);
  void deallocate(void* block, std::size_t bytes, std::vector<Event> foreign);

  static constexpr std::size_t kMaxPending = 4096;

 private:
  struct State;  // keeps threads and containers out of every program that includes this
  std::unique_ptr<State> state_;
};

namespace detail {
/// Creates queues for cpu:0 … cpu:n-1 (n >= 2), or removes them (n = 0 or 1) after waiting for their work. Not to be
/// called while tensors of those devices are alive.
void configure_cpu_queues(int n);
/// The queue behind `device`; nullptr for the host.
Queue* queue_of(Device device);
}  // namespace detail

/// Number of queued CPU devices (0 when they are off). ATHANOR_CPU_DEVICES sets it at first use.
int cpu_device_count();
/// Turns a device name into the device it means here: cpu:0 is cpu without queues. Throws Error for one that does not
/// exist, naming how many there are.
Device resolve(Device device);
/// Waits for all work of `device` and rethrows its failure; returns at once for the host.
void synchronize(Device device);

}  // namespace athanor
