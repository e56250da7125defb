#include "athanor/tensor/device_memory.h"

#include "athanor/tensor/allocator.h"
#include "athanor/tensor/stream.h"

namespace athanor {
namespace {

/// The queue of `device`, after checking that it exists; null for the host.
Queue* queue_at(Device device) { return detail::queue_of(resolve(device)); }

DeviceStats host_stats() {
  const AllocatorStats host = host_allocator().stats();
  DeviceStats stats;
  stats.allocated_bytes.current = host.allocated;
  stats.allocated_bytes.peak = host.peak_allocated;
  stats.reserved_bytes.current = host.allocated + host.cached;
  stats.reserved_bytes.peak = std::max(stats.reserved_bytes.current, host.peak_allocated);
  stats.limit = host.limit;
  return stats;
}

}  // namespace

DeviceStats memory_stats(Device device) {
  const Queue* queue = queue_at(device);
  return queue ? queue->stats() : host_stats();
}

std::int64_t memory_allocated(Device device) { return memory_stats(device).allocated_bytes.current; }
std::int64_t max_memory_allocated(Device device) { return memory_stats(device).allocated_bytes.peak; }
std::int64_t memory_reserved(Device device) { return memory_stats(device).reserved_bytes.current; }
std::int64_t max_memory_reserved(Device device) { return memory_stats(device).reserved_bytes.peak; }

void reset_peak_memory_stats(Device device) {
  if (Queue* queue = queue_at(device))
    queue->reset_peaks();
  else
    host_allocator().reset_peak();
}

void empty_cache(Device device) {
  if (Queue* queue = queue_at(device))
    queue->empty_cache();
  else
    host_allocator().empty_cache();
}

void set_memory_limit(Device device, std::size_t bytes) {
  if (Queue* queue = queue_at(device))
    queue->set_memory_limit(bytes);
  else
    host_allocator().set_limit(bytes);
}

MemoryInfo mem_get_info(Device device) {
  const DeviceStats stats = memory_stats(device);
  const Device place = resolve(device);
  std::int64_t total = stats.limit;
  if (total == 0) {
    const int devices = place.is_cuda() ? detail::cuda_queue_count() : std::max(cpu_device_count(), 1);
    total = host_allocator().stats().usable / (place.is_host() ? 1 : devices);
  }
  return {std::max<std::int64_t>(total - stats.allocated_bytes.current, 0), total};
}

}  // namespace athanor
