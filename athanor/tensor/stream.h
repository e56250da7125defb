#pragma once
/// Queues: the order in which a virtual device runs kernels. The host CPU has none (kernels run inline); a queued
/// device has one Queue whose worker runs tasks in the order they were enqueued. Enqueueing, waiting and
/// synchronization are thread-safe. Programs use Stream and Event (tensor/event.h).

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "athanor/base/intrusive_ptr.h"
#include "athanor/tensor/device.h"
#include "athanor/tensor/place.h"

namespace athanor {

class Queue;
struct DeviceStats;

/// Whether the bytes of a queued tensor mean anything: shared by its storage and by the tasks that read or write it.
struct Validity : RefCounted {
  std::atomic<bool> invalid{false};
  std::atomic<std::uint64_t> last_write{0};  ///< ticket of the storage's own queue
  /// `failure` is what went wrong with the call that should have made the values; null: they are good.
  void set(std::shared_ptr<const std::string> failure);
  std::shared_ptr<const std::string> failure() const;

 private:
  std::shared_ptr<const std::string> failure_;
};

/// A point in a queue's order. Default-constructed points are past.
class QueuePoint {
 public:
  QueuePoint() = default;
  QueuePoint(Queue* queue, std::uint64_t ticket) : queue_(queue), ticket_(ticket) {}
  /// True once everything enqueued before the point has run.
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
  explicit Task(const char* op) : op(op), place(detail::current_place) {}
  virtual ~Task() = default;
  virtual void run() = 0;
  const char* op;
  IntrusivePtr<Place> place;      ///< of the thread that made the task; may be null
  std::vector<QueuePoint> after;  ///< points of other queues to wait for first
  struct Write {
    IntrusivePtr<Validity> mark;
    bool whole;           ///< every byte of the storage is written, so success makes it valid again
    bool at_home = true;  ///< the storage is on the queue's own device
  };
  std::vector<IntrusivePtr<Validity>> reads;
  bool always = false;  ///< runs even while the queue is failed
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
  /// Team size of its kernels.
  int threads() const;
  /// Whose kernels it runs.
  DeviceType kernels() const { return DeviceType::CPU; }
  /// Appends a task; blocks while kMaxPending tasks wait. Throws Error in a forked child, whose worker is the parent's.
  void enqueue(std::unique_ptr<Task> task);
  /// The point after everything enqueued so far.
  QueuePoint record();
  /// Waits for everything enqueued so far. If a task failed, rethrows its exception (its own type, with the op named)
  /// once; afterwards the queue works again.
  void synchronize();
  bool done(std::uint64_t ticket) const;
  void wait(std::uint64_t ticket);
  /// The same, leaving a failure to the host's next synchronizing call.
  void wait_quietly(std::uint64_t ticket);
  /// Drops what waits, and what is enqueued later; the running task goes on.
  void drop() noexcept;
  /// The same, and waits for the worker's end.
  void stop() noexcept;

  /// Stream-ordered memory: a block may be handed out again as soon as it was freed, because whatever uses it next runs
  /// later in this queue. `foreign` are uses by other queues that must be over first. allocate throws OutOfMemoryError.
  void* allocate(std::size_t bytes);
  void deallocate(void* block, std::size_t bytes, std::vector<QueuePoint> foreign) noexcept;
  /// Gives unused memory back to the host's allocator.
  void empty_cache();
  void set_memory_limit(std::size_t bytes);
  void reset_peaks();
  DeviceStats stats() const;

  /// Around fork(): no kernel runs and no lock is held by another thread while the process is copied. In the child the
  /// queue is lost: it throws instead of taking work.
  void hold_memory();
  void hold_worker();
  void after_fork(bool child);
  bool lost() const;

  static constexpr std::size_t kMaxPending = 4096;

 private:
  struct State;  // keeps threads and containers out of every program that includes this
  std::unique_ptr<State> state_;
};

namespace detail {
/// Creates queues for cpu:0 … cpu:n-1 (n >= 2), or removes them (n = 0 or 1) after waiting for their work. Not to be
/// called while tensors of those devices are alive. While there are queues, host ops run on one thread.
void configure_cpu_queues(int n);
/// The same for cuda:0 … cuda:n-1 (n >= 1): what ATHANOR_CUDA_ON_CPU does at first use.
void configure_cuda_queues(int n);
/// The queue behind `device`, started at its first use; nullptr for the host.
Queue* queue_of(Device device);
/// Number of cuda devices that virtual ones serve, as far as CUDA_VISIBLE_DEVICES lets them be seen.
int cuda_queue_count();
/// Of the calling thread; a cuda device without an index means this one.
int current_cuda_device();
void set_current_cuda_device(int index);
}  // namespace detail

/// Number of queued CPU devices (0 when they are off). ATHANOR_CPU_DEVICES sets it at first use.
int cpu_device_count();
/// Turns a device name into the device it means here: cpu:0 is cpu without queues, cuda the current one. Throws Error
/// for one that does not exist, naming how many there are.
Device resolve(Device device);
/// Waits for all work of `device` and rethrows its failure; returns at once for the host.
void synchronize(Device device);

}  // namespace athanor
