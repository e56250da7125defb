#pragma once
/// PageHeap: address ranges taken from the system in multiples of 2 MB, aligned to 2 MB and advised to be huge pages,
/// handed out in multiples of 4 KB by best fit, split and joined again as neighbours become free.

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace athanor::cpu {

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

/// Not thread-safe: its owner locks.
class PageHeap {
 public:
  /// `growth`: least number of bytes taken from the system at once.
  explicit PageHeap(std::size_t growth) : growth_(growth) {}

  /// A range of `bytes`, a multiple of 4096; nullptr if the system refuses.
  void* allocate(std::size_t bytes);
  /// Takes back any range handed out before, whole or in parts.
  void deallocate(void* p, std::size_t bytes);
  /// Returns free 2 MB pages to the system, largest ranges first, until at most `keep` free bytes are left or nothing
  /// more can be returned.
  void release(std::size_t keep);

  std::size_t free_bytes() const { return free_; }
  /// Bytes held from the system, handed out or free.
  std::size_t mapped_bytes() const { return mapped_; }

 private:
  using Address = std::uintptr_t;
  using Ranges = std::map<Address, std::size_t>;

  void insert(Address begin, std::size_t bytes);
  void erase(Ranges::iterator range);
  bool grow(std::size_t bytes);

  Ranges by_address_;
  std::set<std::pair<std::size_t, Address>> by_size_;
  std::size_t growth_;
  std::size_t free_ = 0;
  std::size_t mapped_ = 0;
};

}  // namespace athanor::cpu
