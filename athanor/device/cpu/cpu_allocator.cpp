#include "athanor/device/cpu/cpu_allocator.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include <pthread.h>
#include <unistd.h>

#include "athanor/base/error.h"
#include "athanor/profiler/record.h"

namespace athanor {
namespace detail {

constinit thread_local HostThreadCache* host_thread_cache __attribute__((tls_model("initial-exec"))) = nullptr;

void* host_allocate_slow(std::size_t bytes) { return cpu::caching_allocator().allocate_slow(bytes); }
void host_deallocate_slow(void* p, std::size_t bytes) noexcept { cpu::caching_allocator().deallocate_slow(p, bytes); }

}  // namespace detail

Allocator& host_allocator() { return cpu::caching_allocator(); }

namespace cpu {
namespace {

using detail::host_class;
using detail::host_class_bytes;
using detail::HostBin;
using detail::HostThreadCache;
using detail::kHostAlignment;
using detail::kHostSmallClasses;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kPlainMalloc = true;
#else
constexpr bool kPlainMalloc = false;
#endif

/// Requests beyond this are mistakes (a negative or overflowed size) whatever the machine.
constexpr std::size_t kAbsurdBytes = std::size_t{1} << 46;
constexpr std::size_t kThreadBytesPerClass = 65536;

thread_local constinit bool thread_ended = false;
/// What this thread took and gave back beside what its cache counted.
thread_local constinit std::int64_t uncached_bytes = 0;

std::int64_t bytes_of_thread() {
  const HostThreadCache* cache = detail::host_thread_cache;
  return uncached_bytes + (cache != nullptr ? cache->allocated.load(std::memory_order_relaxed) : 0);
}

std::size_t env_megabytes(const char* name, std::size_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  if (*end != '\0' || value < 0 || value > (1LL << 40)) {
    std::fprintf(stderr, "athanor: %s=%s ignored: expected a number of megabytes\n", name, text);
    return otherwise;
  }
  return static_cast<std::size_t>(value) << 20;
}

std::size_t span_bytes(unsigned c) { return host_class_bytes(c) <= 8192 ? 65536 : 262144; }

/// Size of a block above the small and medium classes: 64 KB steps, growing to 2 MB at 32 MB.
std::size_t large_bytes(std::size_t bytes) {
  const std::size_t step = std::clamp(std::bit_floor(bytes) / 16, std::size_t{65536}, kHugePageBytes);
  return (bytes + step - 1) / step * step;
}

std::string human(std::size_t bytes) {
  char text[32];
  if (bytes >= std::size_t{1} << 30)
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / 0x1p30);
  else
    std::snprintf(text, sizeof text, "%.2f MiB", static_cast<double>(bytes) / 0x1p20);
  return text;
}

void*& next_of(void* block) { return *static_cast<void**>(block); }

struct ThreadExit {
  ~ThreadExit() { caching_allocator().detach_thread(); }
};

// Not a function's static object: a child would wait for ever for one that another thread was making.
constinit std::atomic<CachingAllocator*> the_allocator{nullptr};
constinit std::mutex making;

CachingAllocator& make_allocator() {
  const std::lock_guard guard(making);
  CachingAllocator* made = the_allocator.load(std::memory_order_acquire);
  // Never destroyed: objects of static storage may free their memory after any destructor of ours.
  if (made == nullptr) the_allocator.store(made = new CachingAllocator, std::memory_order_release);
  return *made;
}

void before_fork() {
  making.lock();
  if (CachingAllocator* made = the_allocator.load()) made->lock();
}
void after_fork_parent() {
  if (CachingAllocator* made = the_allocator.load()) made->unlock();
  making.unlock();
}
void after_fork_child() {
  if (CachingAllocator* made = the_allocator.load()) {
    made->after_fork_in_child();
    made->unlock();
  }
  making.unlock();
}

[[maybe_unused]] const bool watched = (detail::watch_forks_of_host_allocator(), true);

}  // namespace

std::size_t usable_memory() {
  auto memory = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (std::FILE* f = std::fopen("/sys/fs/cgroup/memory.max", "r")) {
    unsigned long long limit = 0;
    if (std::fscanf(f, "%llu", &limit) == 1 && limit > 0 && limit < memory) memory = limit;
    std::fclose(f);
  }
  return memory;
}

CachingAllocator& caching_allocator() {
  if (CachingAllocator* made = the_allocator.load(std::memory_order_acquire)) [[likely]]
    return *made;
  return make_allocator();
}

CachingAllocator::CachingAllocator()
    : medium_heap_(kHugePageBytes),
      large_heap_(std::size_t{16} << 20),
      limit_(env_megabytes("ATHANOR_CPU_MEMORY_MB", 0)),
      cache_limit_(env_megabytes("ATHANOR_CPU_CACHE_MB", usable_memory() / 4)) {
  reclaim_at_ = cache_limit_;
  profiler::detail::thread_bytes = bytes_of_thread;
}

}  // namespace cpu

void detail::watch_forks_of_host_allocator() {
  static constinit bool watches = false;
  if (!std::exchange(watches, true)) ::pthread_atfork(cpu::before_fork, cpu::after_fork_parent, cpu::after_fork_child);
}

namespace cpu {

// ---- threads -------------------------------------------------------------------------------------------------------

void CachingAllocator::attach_thread() {
  if (kPlainMalloc || thread_ended || detail::host_thread_cache != nullptr) return;
  auto* cache = new (std::nothrow) HostThreadCache;
  if (cache == nullptr) return;
  for (unsigned c = 0; c < kHostSmallClasses; ++c) {
    const std::size_t bytes = host_class_bytes(c);
    const auto limit = static_cast<std::uint32_t>(std::clamp<std::size_t>(kThreadBytesPerClass / bytes, 2, 256));
    cache->bins[c] = {nullptr, 0, limit, static_cast<std::int64_t>(bytes)};
  }
  {
    const std::lock_guard guard(mutex_);
    cache->next = threads_;
    if (threads_ != nullptr) threads_->previous = cache;
    threads_ = cache;
  }
  static thread_local ThreadExit at_exit;
  static_cast<void>(&at_exit);
  detail::host_thread_cache = cache;
}

void CachingAllocator::detach_thread() noexcept {
  thread_ended = true;
  HostThreadCache* cache = detail::host_thread_cache;
  if (cache == nullptr) return;
  detail::host_thread_cache = nullptr;
  {
    const std::lock_guard guard(mutex_);
    for (unsigned c = 0; c < kHostSmallClasses; ++c) spill(cache->bins[c], c, 0);
    allocated_ += cache->allocated.load(std::memory_order_relaxed);
    if (cache->previous != nullptr)
      cache->previous->next = cache->next;
    else
      threads_ = cache->next;
    if (cache->next != nullptr) cache->next->previous = cache->previous;
  }
  delete cache;
}

void CachingAllocator::after_fork_in_child() {
  // A thread that is gone may have been changing its lists when the process was copied: leave its blocks alone.
  HostThreadCache* mine = detail::host_thread_cache;
  for (HostThreadCache* t = threads_; t != nullptr; t = t->next)
    if (t != mine) allocated_ += t->allocated.load(std::memory_order_relaxed);
  if (mine != nullptr) mine->previous = mine->next = nullptr;
  threads_ = mine;
}

// ---- statistics and limits
// -------------------------------------------------------------------------------------------

std::int64_t CachingAllocator::allocated_now() const {
  std::int64_t sum = allocated_;
  for (const HostThreadCache* t = threads_; t != nullptr; t = t->next)
    sum += t->allocated.load(std::memory_order_relaxed);
  return sum;
}

void CachingAllocator::note(std::int64_t bytes) {
  uncached_bytes += bytes;
  allocated_ += bytes;
  if (bytes > 0) peak_ = std::max(peak_, allocated_now());
}

AllocatorStats CachingAllocator::stats() const {
  const std::lock_guard guard(mutex_);
  AllocatorStats s;
  s.allocated = allocated_now();
  s.peak_allocated = std::max(peak_, s.allocated);
  const auto mapped = static_cast<std::int64_t>(medium_heap_.mapped_bytes() + large_heap_.mapped_bytes());
  s.cached = std::max<std::int64_t>(mapped - s.allocated, 0);
  s.limit = static_cast<std::int64_t>(limit_);
  s.cache_limit = static_cast<std::int64_t>(cache_limit_);
  s.usable = static_cast<std::int64_t>(usable_memory());
  return s;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard guard(mutex_);
  peak_ = allocated_now();
}

void CachingAllocator::set_limit(std::size_t bytes) {
  const std::lock_guard guard(mutex_);
  limit_ = bytes;
}

void CachingAllocator::set_cache_limit(std::size_t bytes) {
  const std::lock_guard guard(mutex_);
  cache_limit_ = reclaim_at_ = bytes;
  if (idle_bytes() > bytes) trim(bytes);
}

void CachingAllocator::check_limit(std::size_t bytes, std::size_t asked) const {
  if (limit_ != 0 && allocated_now() + static_cast<std::int64_t>(bytes) > static_cast<std::int64_t>(limit_))
    out_of_memory(asked);
}

void CachingAllocator::out_of_memory(std::size_t asked) const {
  const auto allocated = static_cast<std::size_t>(std::max<std::int64_t>(allocated_now(), 0));
  const std::size_t limit = limit_ != 0 ? limit_ : usable_memory();
  ATHANOR_THROW(OutOfMemoryError, "CPU out of memory: tried to allocate ", human(asked), " (", asked, " bytes); ",
                human(allocated), " (", allocated, " bytes) are allocated; the ", limit_ != 0 ? "limit" : "memory",
                " is ", human(limit), " (", limit,
                " bytes). Use smaller tensors or batches, free tensors that are no longer needed",
                limit_ != 0 ? ", or raise the limit (ATHANOR_CPU_MEMORY_MB)." : ".");
}

// ---- small blocks
// ----------------------------------------------------------------------------------------------------

void CachingAllocator::new_span(unsigned c, std::size_t asked) {
  const std::size_t bytes = span_bytes(c), block = host_class_bytes(c);
  auto* span = static_cast<std::byte*>(take_pages(medium_heap_, bytes, asked));
  try {
    central_[c].spans.push_back(span);
  } catch (...) {
    medium_heap_.deallocate(span, bytes);
    throw;
  }
  central_[c].bump = span;
  central_[c].bump_end = span + bytes / block * block;
}

void* CachingAllocator::take_small(unsigned c, std::size_t asked) {
  Central& central = central_[c];
  const std::size_t bytes = host_class_bytes(c);
  if (void* p = central.head) {
    central.head = next_of(p);
    --central.count;
    central_bytes_ -= bytes;
    return p;
  }
  if (central.bump == central.bump_end) new_span(c, asked);
  void* p = central.bump;
  central.bump += bytes;
  return p;
}

/// Half a bin's worth of blocks, without asking the system for more.
void CachingAllocator::refill(HostBin& bin, unsigned c) {
  Central& central = central_[c];
  while (bin.count < bin.limit / 2 && (central.head != nullptr || central.bump != central.bump_end)) {
    void* p = take_small(c, 0);
    next_of(p) = bin.head;
    bin.head = p;
    ++bin.count;
  }
}

void CachingAllocator::spill(HostBin& bin, unsigned c, std::uint32_t keep) noexcept {
  if (bin.count <= keep) return;
  const std::uint32_t moved = bin.count - keep;
  void* last = bin.head;
  for (std::uint32_t i = 1; i < moved; ++i) last = next_of(last);
  void* rest = next_of(last);
  next_of(last) = central_[c].head;
  central_[c].head = bin.head;
  central_[c].count += moved;
  central_bytes_ += moved * host_class_bytes(c);
  bin.head = rest;
  bin.count = keep;
}

/// Gives spans whose blocks are all free back to the page heap.
void CachingAllocator::reclaim_class(unsigned c) {
  Central& central = central_[c];
  const std::size_t block = host_class_bytes(c), whole = span_bytes(c) / block;
  if (central.count < whole) return;
  std::vector<std::byte*> blocks;
  blocks.reserve(central.count);
  for (void* p = central.head; p != nullptr; p = next_of(p)) blocks.push_back(static_cast<std::byte*>(p));
  std::sort(blocks.begin(), blocks.end());
  std::sort(central.spans.begin(), central.spans.end());
  central.head = nullptr;
  central.count = 0;
  std::size_t kept_spans = 0, at = 0;
  for (std::byte* span : central.spans) {
    const std::size_t first = at;
    while (at < blocks.size() && blocks[at] < span + span_bytes(c)) ++at;
    const std::size_t found = at - first;
    if (found == whole) {
      if (central.bump_end == span + whole * block) central.bump = central.bump_end = nullptr;
      central_bytes_ -= whole * block;
      medium_heap_.deallocate(span, span_bytes(c));
      continue;
    }
    for (std::size_t i = at; i-- > first;) {
      next_of(blocks[i]) = central.head;
      central.head = blocks[i];
    }
    central.count += found;
    central.spans[kept_spans++] = span;
  }
  central.spans.resize(kept_spans);
}

void CachingAllocator::reclaim_spans() {
  for (unsigned c = 0; c < kHostSmallClasses; ++c) reclaim_class(c);
  // What is left sits in spans partly in use: wait until much more has gathered before looking again.
  reclaim_at_ = std::max(cache_limit_, 2 * central_bytes_);
}

// ---- medium and large blocks ---------------------------------------------------------------------------------------

void* CachingAllocator::take_pages(PageHeap& heap, std::size_t bytes, std::size_t asked) {
  void* p = heap.allocate(bytes);
  if (p == nullptr) {
    trim(0);
    p = heap.allocate(bytes);
  }
  if (p == nullptr) out_of_memory(asked);
  return p;
}

void* CachingAllocator::take_medium(unsigned c, std::size_t asked) {
  std::vector<void*>& list = medium_[c - kHostSmallClasses];
  const std::size_t bytes = host_class_bytes(c);
  if (list.empty()) return take_pages(medium_heap_, bytes, asked);
  void* p = list.back();
  list.pop_back();
  medium_bytes_ -= bytes;
  return p;
}

void CachingAllocator::put_medium(unsigned c, void* p) {
  std::vector<void*>& list = medium_[c - kHostSmallClasses];
  const std::size_t bytes = host_class_bytes(c);
  if (list.size() >= 16) return medium_heap_.deallocate(p, bytes);
  list.push_back(p);
  medium_bytes_ += bytes;
}

void CachingAllocator::drain_medium() {
  for (unsigned i = 0; i < kMediumClasses; ++i) {
    for (void* p : medium_[i]) medium_heap_.deallocate(p, host_class_bytes(i + kHostSmallClasses));
    medium_[i].clear();
  }
  medium_bytes_ = 0;
}

std::size_t CachingAllocator::idle_bytes() const {
  return large_heap_.free_bytes() + medium_heap_.free_bytes() + medium_bytes_ + central_bytes_;
}

void CachingAllocator::trim(std::size_t keep) {
  const auto rest = [&](const PageHeap& heap) {
    const std::size_t others = idle_bytes() - heap.free_bytes();
    return keep > others ? keep - others : 0;
  };
  large_heap_.release(rest(large_heap_));
  if (idle_bytes() <= keep) return;
  drain_medium();
  if (keep == 0 || central_bytes_ > reclaim_at_) reclaim_spans();
  medium_heap_.release(rest(medium_heap_));
}

void CachingAllocator::empty_cache() {
  const std::lock_guard guard(mutex_);
  if (HostThreadCache* cache = detail::host_thread_cache)
    for (unsigned c = 0; c < kHostSmallClasses; ++c) spill(cache->bins[c], c, 0);
  trim(0);
}

// ---- entry points
// ----------------------------------------------------------------------------------------------------

void* CachingAllocator::allocate_slow(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (detail::host_thread_cache == nullptr) attach_thread();
  const std::lock_guard guard(mutex_);
  if (bytes > kAbsurdBytes) out_of_memory(bytes);
  const bool large = bytes > kMediumBytes;
  const unsigned c = large ? 0 : host_class(bytes);
  const std::size_t rounded = large ? large_bytes(bytes) : host_class_bytes(c);
  check_limit(rounded, bytes);
  void* p = nullptr;
  if (kPlainMalloc) {
    if (bytes > usable_memory()) out_of_memory(bytes);
    p = std::aligned_alloc(kHostAlignment, (bytes + kHostAlignment - 1) / kHostAlignment * kHostAlignment);
    if (p == nullptr) out_of_memory(bytes);
  } else if (large) {
    p = take_pages(large_heap_, rounded, bytes);
  } else if (c >= kHostSmallClasses) {
    p = take_medium(c, bytes);
  } else {
    p = take_small(c, bytes);
    if (HostThreadCache* cache = detail::host_thread_cache) refill(cache->bins[c], c);
  }
  note(static_cast<std::int64_t>(rounded));
  return p;
}

void CachingAllocator::deallocate_slow(void* p, std::size_t bytes) noexcept {
  if (p == nullptr || bytes == 0) return;
  const bool large = bytes > kMediumBytes;
  const unsigned c = large ? 0 : host_class(bytes);
  const std::size_t rounded = large ? large_bytes(bytes) : host_class_bytes(c);
  if (detail::host_thread_cache == nullptr) attach_thread();
  const std::lock_guard guard(mutex_);
  note(-static_cast<std::int64_t>(rounded));
  if (kPlainMalloc) return std::free(p);
  try {
    if (large) {
      large_heap_.deallocate(p, rounded);
    } else if (c >= kHostSmallClasses) {
      put_medium(c, p);
    } else {
      HostThreadCache* cache = detail::host_thread_cache;
      HostBin single{nullptr, 0, 0, 0};
      HostBin& bin = cache != nullptr ? cache->bins[c] : single;
      if (cache != nullptr && bin.count >= bin.limit) spill(bin, c, bin.limit / 2);
      next_of(p) = bin.head;
      bin.head = p;
      ++bin.count;
      if (cache == nullptr) spill(single, c, 0);
    }
    if (idle_bytes() > cache_limit_) trim(cache_limit_);
  } catch (const std::bad_alloc&) {
    // No memory even to note that this block is free: it stays unused.
  }
}

}  // namespace cpu
}  // namespace athanor
