#pragma once
/// QueueMemory: the memory of one queued device, taken from the host's allocator and kept by size.

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "athanor/tensor/device_memory.h"
#include "athanor/tensor/stream.h"

namespace athanor::detail {

/// At the process's end queues will stop before the static objects that exist by now are destroyed.
void stop_queues_at_exit();

/// Thread-safe. Blocks are stream-ordered: see Queue::allocate.
class QueueMemory {
 public:
  explicit QueueMemory(Queue* queue);
  ~QueueMemory();
  QueueMemory(const QueueMemory&) = delete;
  QueueMemory& operator=(const QueueMemory&) = delete;

  void* allocate(std::size_t bytes);
  /// `ticket`: the queue's newest task, which may be the last to use the block.
  void deallocate(void* block, std::size_t bytes, std::uint64_t ticket, std::vector<QueuePoint> foreign) noexcept;
  void empty_cache();
  void set_limit(std::size_t bytes);
  void reset_peaks();
  DeviceStats stats() const;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  struct Block {
    void* data;
    std::uint64_t ticket;
  };
  struct Limbo {
    void* data;
    std::size_t bytes;
    std::uint64_t ticket;
    std::vector<QueuePoint> foreign;
  };

  using Lock = std::unique_lock<std::mutex>;

  // All of these expect the lock. Those that are given it let it go while they wait.
  void reclaim_limbo();
  void release_idle();
  void release_all(Lock& lock);
  void make_room(std::size_t bytes, std::size_t asked, Lock& lock);
  void* take_from_host(std::size_t bytes, Lock& lock);
  [[noreturn]] void refuse(std::size_t asked);

  Queue* queue_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<Block>> free_;  // by rounded size
  std::vector<Limbo> limbo_;
  DeviceStats stats_;
};

}  // namespace athanor::detail
