#include "athanor/device/cpu/page_heap.h"

#include <algorithm>
#include <iterator>

#include <sys/mman.h>

namespace athanor::cpu {
namespace {

constexpr std::uintptr_t round_up(std::uintptr_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }
constexpr std::uintptr_t round_down(std::uintptr_t value, std::size_t unit) { return value / unit * unit; }

void* map_pages(std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

/// Maps `bytes` aligned to 2 MB. Neighbouring mappings usually come out aligned at the first try.
void* map_aligned(std::size_t bytes) {
  void* p = map_pages(bytes);
  if (p == nullptr || reinterpret_cast<std::uintptr_t>(p) % kHugePageBytes == 0) return p;
  munmap(p, bytes);
  p = map_pages(bytes + kHugePageBytes);
  if (p == nullptr) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(p);
  const std::uintptr_t aligned = round_up(begin, kHugePageBytes);
  if (aligned != begin) munmap(p, aligned - begin);
  const std::uintptr_t tail = begin + kHugePageBytes - aligned;
  if (tail != 0) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  return reinterpret_cast<void*>(aligned);
}

}  // namespace

void PageHeap::insert(Address begin, std::size_t bytes) {
  by_address_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
  free_ += bytes;
}

void PageHeap::erase(Ranges::iterator range) {
  by_size_.erase({range->second, range->first});
  free_ -= range->second;
  by_address_.erase(range);
}

bool PageHeap::grow(std::size_t bytes) {
  const std::size_t needed = round_up(bytes, kHugePageBytes);
  std::size_t size = std::max(needed, growth_);
  void* p = map_aligned(size);
  if (p == nullptr && size > needed) p = map_aligned(size = needed);
  if (p == nullptr) return false;
  madvise(p, size, MADV_HUGEPAGE);  // where the kernel has none, ordinary pages serve
  mapped_ += size;
  deallocate(p, size);
  return true;
}

void* PageHeap::allocate(std::size_t bytes) {
  auto best = by_size_.lower_bound({bytes, 0});
  if (best == by_size_.end()) {
    if (!grow(bytes)) return nullptr;
    best = by_size_.lower_bound({bytes, 0});
  }
  const auto [size, begin] = *best;
  erase(by_address_.find(begin));
  if (size > bytes) insert(begin + bytes, size - bytes);
  return reinterpret_cast<void*>(begin);
}

void PageHeap::deallocate(void* p, std::size_t bytes) {
  auto begin = reinterpret_cast<Address>(p);
  const auto after = by_address_.lower_bound(begin);
  if (after != by_address_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      erase(before);
    }
  }
  if (after != by_address_.end() && begin + bytes == after->first) {
    bytes += after->second;
    erase(after);
  }
  insert(begin, bytes);
}

void PageHeap::release(std::size_t keep) {
  auto candidate = by_size_.end();
  while (free_ > keep && candidate != by_size_.begin()) {
    const auto [size, begin] = *std::prev(candidate);
    if (size < kHugePageBytes) return;
    const Address first = round_up(begin, kHugePageBytes);
    Address last = round_down(begin + size, kHugePageBytes);
    // The tail end of a range that is larger than what must go stays.
    if (first < last) last = std::min<Address>(last, first + round_up(free_ - keep, kHugePageBytes));
    if (first >= last || munmap(reinterpret_cast<void*>(first), last - first) != 0) {
      --candidate;
      continue;
    }
    mapped_ -= last - first;
    erase(by_address_.find(begin));
    if (first > begin) insert(begin, first - begin);
    if (last < begin + size) insert(last, begin + size - last);
    candidate = by_size_.end();
  }
}

}  // namespace athanor::cpu
