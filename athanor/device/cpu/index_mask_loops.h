#pragma once
/// Inner loops of the mask kernels, for dense memory; sizes are element sizes 1, 2, 4 and 8, by their logarithm.

#include <cstdint>

#include "athanor/device/cpu/strided_loop.h"
#include "athanor/tensor/dtype.h"

namespace athanor::cpu {

/// Elements a mask loop takes at a time.
inline constexpr std::int64_t kMaskBlock = 512;
/// Room that compress needs beyond n elements.
inline constexpr std::int64_t kCompressSlack = 64;

struct MaskLoops {
  /// out = mask ? value : in; operands out, in, mask; params is the element's bytes. Takes inputs of stride 0.
  LoopFn masked_fill[4];
  /// Moves the elements of `from` (n <= kMaskBlock) whose mask byte is not 0 to the front of `to`, which has room for
  /// n + kCompressSlack; returns how many.
  std::int64_t (*compress[4])(void* to, const void* from, const std::uint8_t* mask, std::int64_t n);
  /// Positions below n (<= kMaskBlock) whose mask byte is not 0, plus `start`; room as for compress.
  std::int64_t (*positions)(std::int64_t* to, const std::uint8_t* mask, std::int64_t n, std::int64_t start);
  /// Number of bytes that are not 0.
  std::int64_t (*count)(const std::uint8_t* mask, std::int64_t n);
  /// mask[i] = from[i] != 0, 1 or 0.
  void (*test[kNumDTypes])(std::uint8_t* mask, const void* from, std::int64_t n);
  /// Reverses the order of n elements.
  void (*reverse[4])(void* to, const void* from, std::int64_t n);
};

/// Those of the best instruction set of this CPU.
const MaskLoops& mask_loops();

}  // namespace athanor::cpu
