#pragma once
/// Which way kernels walk operands that a core's cache does not hold.

#include <algorithm>
#include <cstdint>

#include "athanor/base/parallel.h"

namespace athanor::cpu {

/// Bytes of all operands together from which the direction matters.
inline constexpr std::int64_t kTurnBytes = 1 << 20;

/// True if an operation whose operands take `bytes` should begin at their end. Large operations of a thread take turns:
/// the next one usually reads what the last one wrote, or the same once more, and the end touched last is still in the
/// cache. Only for results that do not depend on the order.
inline bool begins_at_end(std::int64_t bytes) {
  static thread_local bool turn = true;
  return bytes >= kTurnBytes && (turn = !turn);
}

/// Bytes of one operand between two jumps of a backward walk.
inline constexpr std::int64_t kStretchBytes = 64 << 10;

/// Calls body(b, e) on stretches of at most `stretch` items (some kStretchBytes) that cover [begin, end), the last
/// first if `backwards`. Within a stretch the walk goes forwards, as the hardware expects when it fetches ahead.
template <class F>
void walk_stretches(std::int64_t begin, std::int64_t end, std::int64_t stretch, bool backwards, F&& body) {
  if (!backwards) return body(begin, end);
  for (std::int64_t at = begin + (end - begin - 1) / stretch * stretch; at >= begin; at -= stretch)
    body(at, std::min(end, at + stretch));
}

/// The same with [0, items) shared among threads, each of which has at least `grain` items if there are so many.
template <class F>
void parallel_stretches(std::int64_t items, std::int64_t grain, std::int64_t stretch, bool backwards, F&& body) {
  parallel_for(0, items, grain,
               [&](std::int64_t begin, std::int64_t end) { walk_stretches(begin, end, stretch, backwards, body); });
}

}  // namespace athanor::cpu
