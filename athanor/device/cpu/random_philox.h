#pragma once
/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): one block, and
/// the vector code that fills memory and turns words into distributions.

#include <array>
#include <cstdint>

#include "athanor/tensor/generator.h"

namespace athanor::cpu {

inline constexpr std::uint32_t kPhiloxMul0 = 0xD2511F53U, kPhiloxMul1 = 0xCD9E8D57U;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9U, kPhiloxWeyl1 = 0xBB67AE85U;

/// The four words of block `block` of the sequence (random.h says what goes where).
inline std::array<std::uint32_t, 4> philox_block(PhiloxState state, std::uint64_t block, std::uint32_t attempt) {
  const std::uint64_t at = state.offset + block;
  std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32), attempt, 0};
  auto k0 = static_cast<std::uint32_t>(state.seed), k1 = static_cast<std::uint32_t>(state.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{kPhiloxMul0} * c[0], p1 = std::uint64_t{kPhiloxMul1} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return c;
}

/// The draw of element i with that attempt number.
inline std::uint32_t philox_draw32(PhiloxState state, std::uint64_t i, std::uint32_t attempt) {
  return philox_block(state, i / 4, attempt)[i % 4];
}
inline std::uint64_t philox_draw64(PhiloxState state, std::uint64_t i, std::uint32_t attempt) {
  const auto words = philox_block(state, i / 2, attempt);
  return words[i % 2 * 2] | static_cast<std::uint64_t>(words[i % 2 * 2 + 1]) << 32;
}

/// Draws made at a time; a multiple of 4. Buffers hold this many and are aligned to 64 bytes.
inline constexpr std::int64_t kRandomChunk = 1024;

/// Transforms read kRandomChunk words (float32) or pairs of words (float64) and fill as many elements, of which the
/// caller takes what it needs: they may round `n` up to whole vectors.
using RandomTransform = void (*)(void* to, const std::uint32_t* words, std::int64_t n, double a, double b);

struct RandomFns {
  /// The words of `blocks` blocks from `first` on; may write up to kRandomChunk / 4 more blocks than asked for.
  void (*words)(std::uint32_t* to, PhiloxState state, std::uint64_t first, std::int64_t blocks);
  /// from + u (to - from), u the top `bits` bits: 24, 11, 8; float64: 53.
  RandomTransform uniform24, uniform11, uniform8, uniform53;
  RandomTransform normal, log_normal, exponential, cauchy, geometric;            ///< float32
  RandomTransform normal64, log_normal64, exponential64, cauchy64, geometric64;  ///< float64
  /// to[i] = low + high half of word * range; true if some low half was below `threshold`.
  bool (*integers)(std::int64_t* to, const std::uint32_t* words, std::int64_t n, std::int64_t low, std::uint32_t range,
                   std::uint32_t threshold);
  /// to[i] = word < limit.
  void (*below)(std::uint8_t* to, const std::uint32_t* words, std::int64_t n, std::uint64_t limit);
  void (*below_float)(float* to, const std::uint32_t* words, std::int64_t n, std::uint64_t limit);
  /// to[i] = word >= limit ? from[i] * scale : 0; keep[i] tells which, unless null.
  void (*dropout)(float* to, std::uint8_t* keep, const float* from, const std::uint32_t* words, std::int64_t n,
                  std::uint64_t limit, float scale);
  void (*dropout64)(double* to, std::uint8_t* keep, const double* from, const std::uint32_t* words, std::int64_t n,
                    std::uint64_t limit, double scale);
};

/// Those of the best instruction set of this CPU.
const RandomFns& random_fns();

}  // namespace athanor::cpu
