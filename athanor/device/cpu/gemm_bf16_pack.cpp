#include "athanor/device/cpu/gemm_bf16_pack.h"

#include <algorithm>

#include "hwy/base.h"

#if HWY_ARCH_X86_64
#include <immintrin.h>

// GCC 12 warns of its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq")
#include "athanor/device/cpu/gemm_bf16_pack-inl.h"

namespace athanor::bf16 {
namespace {

/// Two lines of up to 32 values as 2 × 16 pairs, one value of each line in a pair.
struct Zip {
  __m512i first, second;
  Zip() {
    alignas(64) std::uint16_t low[32], high[32];
    for (int i = 0; i < 16; ++i) {
      low[2 * i] = static_cast<std::uint16_t>(i), low[2 * i + 1] = static_cast<std::uint16_t>(32 + i);
      high[2 * i] = static_cast<std::uint16_t>(16 + i), high[2 * i + 1] = static_cast<std::uint16_t>(48 + i);
    }
    first = _mm512_load_si512(low);
    second = _mm512_load_si512(high);
  }
  __m512i low(__m512i even, __m512i odd) const { return _mm512_permutex2var_epi16(even, first, odd); }
  __m512i high(__m512i even, __m512i odd) const { return _mm512_permutex2var_epi16(even, second, odd); }
  /// Into a row of a tile and of the next tile.
  void store(__m512i even, __m512i odd, std::uint16_t* to) const {
    _mm512_store_si512(to, low(even, odd));
    _mm512_store_si512(to + kTileSize, high(even, odd));
  }
};

/// Lines of k values that follow each other in memory: `count` lines into the rows of a tile.
inline __attribute__((always_inline)) void load_lines(const std::uint16_t* from, std::int64_t step, std::int64_t count,
                                                      __mmask32 values, __m512i (&r)[16]) {
  for (int i = 0; i < 16; ++i)
    r[i] = i < count ? _mm512_maskz_loadu_epi16(values, from + i * step) : _mm512_setzero_si512();
}

inline __attribute__((always_inline)) void store_tile(const __m512i (&r)[16], std::uint16_t* to) {
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * 32, r[i]);
}

/// Memory runs along the short side: zips pairs of lines, 32 inner values at a time, into registers for two tiles.
inline __attribute__((always_inline)) void zip_lines(const std::uint16_t* from, std::int64_t step, std::int64_t k,
                                                     __mmask32 width, const Zip& zip, __m512i (&low)[16],
                                                     __m512i (&high)[16]) {
  for (int i = 0; i < 16; ++i) {
    const __m512i even = 2 * i < k ? _mm512_maskz_loadu_epi16(width, from + 2 * i * step) : _mm512_setzero_si512();
    const __m512i odd =
        2 * i + 1 < k ? _mm512_maskz_loadu_epi16(width, from + (2 * i + 1) * step) : _mm512_setzero_si512();
    low[i] = zip.low(even, odd);
    high[i] = zip.high(even, odd);
  }
}

}  // namespace

void pack_rows(const std::uint16_t* a, std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t k,
               std::uint16_t* to) {
  if (col == 1) {  // a row at a time: memory is fetched ahead along it
    for (std::int64_t r = 0; r < kBlock; ++r) {
      std::uint16_t* line = to + r * kSteps;
      for (std::int64_t p = 0; p < k; p += kSteps, line += 2 * kTileSize)
        _mm512_store_si512(
            line, r < rows ? _mm512_maskz_loadu_epi16(lowest(k - p), a + r * row + p) : _mm512_setzero_si512());
    }
    return;
  }
  const Zip zip;
  const __mmask32 width = lowest(rows);
  __m512i r[16], s[16];
  for (std::int64_t p = 0; p < k; p += kSteps, to += 2 * kTileSize) {
    zip_lines(a + p * col, col, k - p, width, zip, r, s);
    transpose(r);
    store_tile(r, to);
    if (rows <= kTile) continue;
    transpose(s);
    store_tile(s, to + kTileSize);
  }
}

namespace {

/// A tile of up to 16 columns that each run through memory, for each 32 values of k.
void pack_tile_columns(const std::uint16_t* b, std::int64_t col, std::int64_t k, std::int64_t cols, std::uint16_t* to) {
  __m512i r[16];
  for (std::int64_t p = 0; p < k; p += kSteps, to += 2 * kTileSize) {
    load_lines(b + p, col, cols, lowest(k - p), r);
    transpose(r);
    store_tile(r, to);
  }
}

}  // namespace

void pack_columns(const std::uint16_t* b, std::int64_t row, std::int64_t col, std::int64_t k, std::int64_t cols,
                  std::uint16_t* to, std::int64_t block) {
  if (col != 1) {
    for (std::int64_t c = 0; c < cols; c += kTile)
      pack_tile_columns(b + c * col, col, k, std::min(kTile, cols - c),
                        to + c / kBlock * block + (c % kBlock == 0 ? 0 : kTileSize));
    return;
  }
  const Zip zip;
  for (std::int64_t p = 0; p < (k + kSteps - 1) / kSteps * kSteps; p += 2) {
    std::uint16_t* line = to + p / kSteps * 2 * kTileSize + p % kSteps / 2 * kSteps;
    const std::uint16_t *even = b + p * row, *odd = even + row;
    std::int64_t c = 0;
    if (p + 1 < k)
      for (; c + kBlock <= cols; c += kBlock, line += block)
        zip.store(_mm512_loadu_si512(even + c), _mm512_loadu_si512(odd + c), line);
    for (; c < cols; c += kBlock, line += block) {
      const __mmask32 width = lowest(cols - c);
      zip.store(p < k ? _mm512_maskz_loadu_epi16(width, even + c) : _mm512_setzero_si512(),
                p + 1 < k ? _mm512_maskz_loadu_epi16(width, odd + c) : _mm512_setzero_si512(), line);
    }
  }
}

void transpose_sums(const float* from, float* to) {
  for (int i = 0; i < 32; i += 16)
    for (int j = 0; j < 32; j += 16) {
      __m512i r[16];
      for (int k = 0; k < 16; ++k) r[k] = _mm512_load_si512(from + (i + k) * 32 + j);
      transpose(r);
      for (int k = 0; k < 16; ++k) _mm512_store_si512(to + (j + k) * 32 + i, r[k]);
    }
}

}  // namespace athanor::bf16
HWY_POP_ATTRIBUTES
#endif
