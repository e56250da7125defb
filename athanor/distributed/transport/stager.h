#pragma once
/// Stager: copying to memory that another processor reads next.

#include <cstddef>
#include <cstdint>

namespace athanor::distributed {

/// Copies as memcpy does, with ordinary stores, or with stores that bypass the caches where those are 2.5 times as
/// quick now: what ordinary stores leave in a cache the reader may find sooner than in memory.
///
/// The lines written to are in the reader's cache from last time. Where the two processors share a cache, ordinary
/// stores find them there; where they do not, each line has to be fetched back first, which stores that bypass the
/// caches are spared. On AMD's Zen 3 ordinary stores run at 26 GB/s in the first case and 6.5 in the second, the others
/// at 23 in both, and a virtual machine's processors move from one case to the other. On Intel's processors ordinary
/// stores were never slower. One thread at a time.
class Stager {
 public:
  explicit Stager(bool may_bypass = bypassing_may_pay()) : may_bypass_(may_bypass) {}

  void copy(void* to, const void* from, std::size_t bytes);
  /// Whether stores that bypass the caches are the quicker ones now, as far as copies have shown.
  bool bypasses() const { return bypassing_ > 0 && ordinary_ > kWorthIt * bypassing_; }
  /// Whether this processor is one of those on which it depends.
  static bool bypassing_may_pay();

 private:
  static constexpr double kWorthIt = 2.5;

  bool choose();

  bool may_bypass_;
  std::uint32_t copies_ = 0;
  double ordinary_ = 0, bypassing_ = 0;  // ticks per byte, the least of late; 0: unknown
};

}  // namespace athanor::distributed
