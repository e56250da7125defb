#pragma once
/// Memory of tensors. Each device has an Allocator; the host's is a caching one with an inline fast path for small
/// blocks. Blocks are 64-byte aligned and not cleared.

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace athanor {

/// Bytes; block sizes include rounding to the allocator's size classes.
struct AllocatorStats {
  std::int64_t allocated = 0;       ///< handed out and not yet given back
  std::int64_t cached = 0;          ///< taken from the system but not handed out
  std::int64_t peak_allocated = 0;  ///< the most ever handed out at once; may miss a few MB held by thread caches
  std::int64_t limit = 0;           ///< `allocated` may not pass it; 0 if only the system limits
  std::int64_t cache_limit = 0;     ///< `cached` beyond it goes back to the system
  std::int64_t usable = 0;          ///< memory this process may use
};

/// Where a device's memory comes from. All members are thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// `bytes` of uninitialized memory, 64-byte aligned; nullptr for 0. Throws OutOfMemoryError naming the bytes asked,
  /// allocated and the limit, after its caches have been emptied in vain.
  virtual void* allocate(std::size_t bytes) = 0;
  /// Takes back what `allocate(bytes)` returned, on any thread; nullptr is ignored.
  virtual void deallocate(void* p, std::size_t bytes) = 0;
  virtual AllocatorStats stats() const { return {}; }
  /// Sets the peak to what is allocated now.
  virtual void reset_peak() {}
  /// Gives unused memory back to the system; what other threads keep for small blocks excepted.
  virtual void empty_cache() {}
  /// Refuses allocations past `bytes` in total; 0 lifts the limit.
  virtual void set_limit(std::size_t bytes) { static_cast<void>(bytes); }
};

/// The host's allocator. Environment, read at first use: ATHANOR_CPU_CACHE_MB bounds its cache (default: a quarter of
/// the memory this process may use), ATHANOR_CPU_MEMORY_MB bounds what it hands out (default: no bound).
Allocator& host_allocator();

namespace detail {

inline constexpr std::size_t kHostAlignment = 64;
/// Blocks up to this size are kept per thread.
inline constexpr std::size_t kHostSmallBytes = 32768;
inline constexpr unsigned kHostSmallClasses = 56;

/// Size classes: multiples of 64 bytes to 1024, then eight per doubling, so that at most 12.5 % is lost to rounding.
inline constexpr unsigned host_class(std::size_t bytes) {
  const std::size_t m = (bytes - 1) / kHostAlignment;
  const auto shift = static_cast<unsigned>(std::bit_width(m | 8)) - 4;
  return shift * 8 + static_cast<unsigned>(m >> shift);
}
inline constexpr std::size_t host_class_bytes(unsigned c) {
  const unsigned shift = c < 16 ? 0 : c / 8 - 1;
  return (static_cast<std::size_t>(c - shift * 8 + 1) << shift) * kHostAlignment;
}
static_assert(host_class(kHostSmallBytes) == kHostSmallClasses - 1);

struct HostBin {
  void* head;  // freed blocks, each holding the address of the next
  std::uint32_t count;
  std::uint32_t limit;
  std::int64_t bytes;
};

struct HostThreadCache {
  HostBin bins[kHostSmallClasses];
  std::atomic<std::int64_t> allocated{0};  // written by its thread only
  HostThreadCache* previous = nullptr;
  HostThreadCache* next = nullptr;

  void count(std::int64_t bytes) {
    allocated.store(allocated.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
};

// Null until a thread's first allocation, after its end, and always under the address sanitizer.
extern constinit thread_local HostThreadCache* host_thread_cache __attribute__((tls_model("initial-exec")));
void* host_allocate_slow(std::size_t bytes);
void host_deallocate_slow(void* p, std::size_t bytes) noexcept;
/// Has forks wait for the allocator, from the first call on; static objects that watch forks themselves call it first,
/// so that its lock is taken last. For the time before main.
void watch_forks_of_host_allocator();

}  // namespace detail

/// host_allocator().allocate(bytes) without the virtual call.
inline void* host_allocate(std::size_t bytes) {
  if (bytes - 1 < detail::kHostSmallBytes) [[likely]] {
    if (detail::HostThreadCache* cache = detail::host_thread_cache) [[likely]] {
      detail::HostBin& bin = cache->bins[detail::host_class(bytes)];
      if (void* p = bin.head) [[likely]] {
        bin.head = *static_cast<void**>(p);
        --bin.count;
        cache->count(bin.bytes);
        return p;
      }
    }
  }
  return detail::host_allocate_slow(bytes);
}

/// host_allocator().deallocate(p, bytes) without the virtual call.
inline void host_deallocate(void* p, std::size_t bytes) noexcept {
  if (p != nullptr && bytes - 1 < detail::kHostSmallBytes) [[likely]] {
    if (detail::HostThreadCache* cache = detail::host_thread_cache) [[likely]] {
      detail::HostBin& bin = cache->bins[detail::host_class(bytes)];
      if (bin.count < bin.limit) [[likely]] {
        *static_cast<void**>(p) = bin.head;
        bin.head = p;
        ++bin.count;
        cache->count(-bin.bytes);
        return;
      }
    }
  }
  detail::host_deallocate_slow(p, bytes);
}

}  // namespace athanor
