#pragma once
/// Moves of one run of equally spaced elements; bits only, any alignment.

#include <bit>
#include <cstdint>
#include <cstring>

#include "athanor/device/cpu/copy_blocks.h"

namespace athanor::cpu {

/// U as it may lie in memory.
template <class U>
struct Unaligned {
  using type [[gnu::aligned(1), gnu::may_alias]] = U;
};

/// to[i] = from[i] for n elements, the strides in bytes. Not for overlapping runs, except to == from.
template <class U>
void move_run(char* to, std::int64_t to_stride, const char* from, std::int64_t from_stride, std::int64_t n) {
  using Place = typename Unaligned<U>::type;
  constexpr std::int64_t kSize = sizeof(U);
  auto* out = reinterpret_cast<Place*>(to);
  const auto* in = reinterpret_cast<const Place*>(from);
  if (to_stride == kSize && from_stride == kSize) {
    std::memcpy(to, from, static_cast<std::size_t>(n * kSize));
  } else if (to_stride == kSize && from_stride == 0) {
    block_ops().fill[std::countr_zero(sizeof(U))](to, from, n);
  } else if (to_stride == kSize && from_stride == 2 * kSize) {  // a constant step can be vectorized
    for (std::int64_t i = 0; i < n; ++i) out[i] = in[2 * i];
  } else {
    for (std::int64_t i = 0; i < n; ++i)
      *reinterpret_cast<Place*>(to + i * to_stride) = *reinterpret_cast<const Place*>(from + i * from_stride);
  }
}

}  // namespace athanor::cpu
