#pragma once
/// Memory of a device: what is in use, what is kept for reuse, how much may be taken. Every function takes any device
/// that exists (the host included) and is thread-safe. Sizes are bytes, rounded up as the device's allocator rounds.

#include <cstddef>
#include <cstdint>

#include "athanor/tensor/device.h"

namespace athanor {

struct DeviceStats {
  struct Stat {
    std::int64_t current = 0;
    std::int64_t peak = 0;       ///< since the start or the last reset_peak_memory_stats
    std::int64_t allocated = 0;  ///< taken in all
    std::int64_t freed = 0;      ///< given back in all
  };
  Stat allocated_bytes;  ///< of tensors that are alive
  Stat reserved_bytes;   ///< the same and what is kept for reuse
  Stat allocation;       ///< number of blocks of tensors
  std::int64_t num_ooms = 0;
  std::int64_t limit = 0;           ///< of `reserved_bytes`; 0: only the host's memory limits it
  std::int64_t tasks_enqueued = 0;  ///< 0 for the host, which runs kernels at once
  std::int64_t tasks_finished = 0;
};

/// All figures at once. The host counts bytes only.
DeviceStats memory_stats(Device device);
std::int64_t memory_allocated(Device device);
std::int64_t max_memory_allocated(Device device);
std::int64_t memory_reserved(Device device);
std::int64_t max_memory_reserved(Device device);
/// Sets the peaks to what is in use now.
void reset_peak_memory_stats(Device device);
/// Gives what is kept for reuse back; waits for the device's work.
void empty_cache(Device device);
/// Allocations that would make the device hold more than `bytes` throw OutOfMemoryError; 0 lifts the limit. The start
/// value of every virtual device is ATHANOR_DEVICE_MEMORY_MB. What is held already stays.
void set_memory_limit(Device device, std::size_t bytes);

struct MemoryInfo {
  std::int64_t free, total;
};
/// How much more the device could take, and its limit: for a device without one, its share of this process's memory.
MemoryInfo mem_get_info(Device device);

}  // namespace athanor
