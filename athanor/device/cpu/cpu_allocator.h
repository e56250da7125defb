#pragma once
/// The host's caching allocator. Three tiers: up to 32 KB, free lists per thread and size class, backed by central
/// lists and by spans of 64 or 256 KB cut into equal blocks; up to 1 MB, central lists by size class; above, best fit.
/// The second and third draw on separate page heaps, so that a long-lived small block cannot split a large range.
/// Under the address sanitizer every block comes from the system's aligned malloc and nothing is cached.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "athanor/device/cpu/page_heap.h"
#include "athanor/tensor/allocator.h"

namespace athanor::cpu {

class CachingAllocator final : public Allocator {
 public:
  CachingAllocator();
  void* allocate(std::size_t bytes) override { return host_allocate(bytes); }
  void deallocate(void* p, std::size_t bytes) override { host_deallocate(p, bytes); }
  AllocatorStats stats() const override;
  void reset_peak() override;
  void empty_cache() override;
  void set_limit(std::size_t bytes) override;
  void set_cache_limit(std::size_t bytes);

  void* allocate_slow(std::size_t bytes);
  void deallocate_slow(void* p, std::size_t bytes) noexcept;
  /// Gives the calling thread a cache, or takes it away at the thread's end.
  void attach_thread();
  void detach_thread() noexcept;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  /// In a forked child: the caches of threads that are not there are given up.
  void after_fork_in_child();

 private:
  static constexpr std::size_t kMediumBytes = std::size_t{1} << 20;
  static constexpr unsigned kMediumClasses = 40;
  struct Central {
    void* head = nullptr;
    std::size_t count = 0;
    std::byte* bump = nullptr;  // uncut rest of the newest span
    std::byte* bump_end = nullptr;
    std::vector<std::byte*> spans;
  };

  // All of these expect the lock.
  void* take_small(unsigned c, std::size_t asked);
  void* take_medium(unsigned c, std::size_t asked);
  void put_medium(unsigned c, void* p);
  void refill(detail::HostBin& bin, unsigned c);
  void spill(detail::HostBin& bin, unsigned c, std::uint32_t keep) noexcept;
  void new_span(unsigned c, std::size_t asked);
  void reclaim_spans();
  void reclaim_class(unsigned c);
  void drain_medium();
  void* take_pages(PageHeap& heap, std::size_t bytes, std::size_t asked);
  std::size_t idle_bytes() const;
  void trim(std::size_t keep);
  void note(std::int64_t bytes);
  std::int64_t allocated_now() const;
  void check_limit(std::size_t bytes, std::size_t asked) const;
  [[noreturn]] void out_of_memory(std::size_t asked) const;

  mutable std::mutex mutex_;
  Central central_[detail::kHostSmallClasses];
  std::vector<void*> medium_[kMediumClasses];
  PageHeap medium_heap_;
  PageHeap large_heap_;
  detail::HostThreadCache* threads_ = nullptr;
  std::int64_t allocated_ = 0;  // without what thread caches counted
  std::int64_t peak_ = 0;
  std::size_t central_bytes_ = 0;
  std::size_t medium_bytes_ = 0;
  std::size_t reclaim_at_;
  std::size_t limit_ = 0;
  std::size_t cache_limit_;
};

/// The object behind host_allocator(); never destroyed.
CachingAllocator& caching_allocator();

/// Bytes of memory this process may use: the machine's or its control group's, whichever is less.
std::size_t usable_memory();

}  // namespace athanor::cpu
