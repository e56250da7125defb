#pragma once
/// Between planes and blocks of channels.

#include <cstddef>
#include <cstdint>

namespace athanor::cpu {

/// Bytes of a result that will not be found in the cache.
inline constexpr std::int64_t kPastCache = 1 << 22;

/// Turns every (rows, cols) matrix of `matrices` that follow each other into (cols, rows), on the calling thread's
/// team; results of more than kPastCache go past the cache.
void turn(void* to, const void* from, std::int64_t matrices, std::int64_t rows, std::int64_t cols,
          std::size_t item_size);

}  // namespace athanor::cpu
