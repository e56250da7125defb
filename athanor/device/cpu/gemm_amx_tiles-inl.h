// The registers of the matrix units: sums of 2 × 2 tiles in the first four, rows of a in the next two, columns of b in
// the last two. Included where amx-bf16 is among the target's attributes, after immintrin.h and gemm_bf16_pack.h.
#pragma once

namespace athanor::amx {
namespace {

/// All eight tiles in full size, until the end of the scope.
class Tiles {
 public:
  Tiles() {
    static constexpr Shapes kShapes;
    _tile_loadconfig(&kShapes);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

 private:
  // Not a local object: GCC's intrinsic says that it reads 8 bytes, and the stores of the rest would be dropped.
  struct alignas(64) Shapes {
    std::uint8_t palette = 1, start = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
};

inline constexpr std::int64_t kSums = bf16::kBlock * bf16::kBlock;  ///< of a block
inline constexpr int kSlotSums = 0, kSlotB = 1, kSlotA = 2;         // of thread_scratch

inline std::int64_t blocks(std::int64_t size) { return (size + bf16::kBlock - 1) / bf16::kBlock; }

template <class T>
T* scratch(int slot, std::int64_t count) {
  return static_cast<T*>(detail::thread_scratch(slot, sizeof(T) * static_cast<std::size_t>(count)));
}

/// A block of `kHigh` × `kWide` tiles of sums, from memory or zeros.
template <int kHigh, int kWide>
inline __attribute__((always_inline)) void begin_sums(const float* sums, bool add) {
  constexpr std::int64_t kStride = bf16::kBlock * sizeof(float);
  // GCC's intrinsics do not say that they read memory.
  __asm__ volatile("" ::: "memory");
  if (add) {
    _tile_loadd(0, sums, kStride);
    if constexpr (kWide == 2) _tile_loadd(1, sums + 16, kStride);
    if constexpr (kHigh == 2) _tile_loadd(2, sums + 16 * bf16::kBlock, kStride);
    if constexpr (kHigh == 2 && kWide == 2) _tile_loadd(3, sums + 16 * bf16::kBlock + 16, kStride);
  } else {
    _tile_zero(0);
    if constexpr (kWide == 2) _tile_zero(1);
    if constexpr (kHigh == 2) _tile_zero(2);
    if constexpr (kHigh == 2 && kWide == 2) _tile_zero(3);
  }
}

template <int kHigh, int kWide>
inline __attribute__((always_inline)) void end_sums(float* sums) {
  constexpr std::int64_t kStride = bf16::kBlock * sizeof(float);
  _tile_stored(0, sums, kStride);
  if constexpr (kWide == 2) _tile_stored(1, sums + 16, kStride);
  if constexpr (kHigh == 2) _tile_stored(2, sums + 16 * bf16::kBlock, kStride);
  if constexpr (kHigh == 2 && kWide == 2) _tile_stored(3, sums + 16 * bf16::kBlock + 16, kStride);
}

/// Adds the products of what the last four tiles hold.
template <int kHigh, int kWide>
inline __attribute__((always_inline)) void multiply_tiles() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kWide == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kHigh == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (kHigh == 2 && kWide == 2) _tile_dpbf16ps(3, 5, 7);
}

}  // namespace
}  // namespace athanor::amx
