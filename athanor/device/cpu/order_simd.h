#pragma once
/// Vector code of sorting and selecting.

#include <cstdint>

#include "athanor/tensor/dtype.h"

namespace athanor::cpu {

/// Bounds of the order keys (order_key.h) of some elements; `varying` has the bits in which any two differ.
struct KeyRange {
  std::uint64_t least = ~std::uint64_t{0}, greatest = 0, varying = 0;
};

/// Most elements that rank_few takes.
inline constexpr std::int64_t kFew = 64;

struct OrderFns {
  /// Keys of n > 0 dense elements; bool counts as uint8.
  KeyRange (*key_range[kNumDTypes])(const void* p, std::int64_t n);
  /// Bit i is set where the key of p[i], xor `flip`, is below `bound`, for n <= 64 dense elements; bool as before.
  std::uint64_t (*below[kNumDTypes])(const void* p, std::int64_t n, std::uint64_t flip, std::uint64_t bound);
  /// places[i] = how many of the n <= kFew words, all different, are less than words[i].
  void (*rank_few)(std::int32_t* places, const std::uint64_t* words, std::int64_t n);
};

/// Those of the best instruction set of this CPU.
const OrderFns& order_fns();

}  // namespace athanor::cpu
