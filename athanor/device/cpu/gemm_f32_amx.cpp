#include "athanor/device/cpu/gemm_f32_amx.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>

#include "athanor/device/cpu/gemm_amx.h"
#include "athanor/device/cpu/gemm_bf16_pack.h"
#include "athanor/device/cpu/gemm_block.h"
#include "athanor/device/cpu/gemm_epilogue.h"
#include "hwy/base.h"

#if HWY_ARCH_X86_64 && defined(__linux__)
#include <immintrin.h>

namespace athanor::amx {

using namespace bf16;

bool suits_floats(const GemmProblem& g) {
  if (g.dtype != DType::Float || g.c_col != 1 || g.k < kSteps) return false;
  if (!plain(g.a_row, g.a_col) || !plain(g.b_row, g.b_col)) return false;
  // Each value of a is taken apart once for n products, each of b for m.
  const double m = static_cast<double>(g.m), n = static_cast<double>(g.n);
  constexpr double kLeast = 128, kWork = 8e6;
  const double alpha = std::abs(g.alpha.to<double>());
  return m * n >= kLeast * (m + n) && m * n * static_cast<double>(g.k) >= kWork && alpha > 0x1p-40 && alpha < 0x1p40 &&
         available();
}

}  // namespace athanor::amx

// GCC 12 warns of its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")
#include "athanor/device/cpu/gemm_amx_tiles-inl.h"
#include "athanor/device/cpu/gemm_bf16_finish-inl.h"
#include "athanor/device/cpu/gemm_bf16_pack-inl.h"

namespace athanor::amx {
namespace {

constexpr std::int64_t kParts = 3;                              ///< values of bfloat16 that make one of float32
constexpr std::int64_t kPart = 2 * kTileSize;                   ///< values of a part in a step: two tiles
constexpr std::int64_t kStep = kParts * kPart;                  ///< values of a step of 32 inner ones
constexpr std::int64_t kPass = 3;                               ///< steps whose tiles of a and b share the first cache
constexpr std::int64_t kDeep = 1024;                            ///< inner values that are summed in one go
constexpr std::int64_t kPackedA = 4 << 20, kPackedB = 2 << 20;  ///< values that are taken apart at a time
constexpr std::int64_t kArea = 8;                               ///< blocks a side whose sums stay in the second cache
constexpr float kScale = 0x1p32F;                               ///< of each operand
constexpr double kLargest = 0x1p94;                             ///< bound of values
constexpr double kLargestSum = 0x1p62;                          ///< of products

/// Distance of packed blocks of k inner values, not a multiple of pages.
std::int64_t distance(std::int64_t k) { return blocks(k) * kStep + kPart; }

/// Takes vectors of float32 apart and keeps the largest magnitude it met.
class Parts {
 public:
  Parts() : largest_(_mm512_setzero_si512()) {}
  /// For each part the values of `low`, then those of `high`.
  inline __attribute__((always_inline)) void operator()(__m512 low, __m512 high, __m512i (&parts)[kParts]) {
    const __m512i bits = _mm512_set1_epi32(0x7fffffff);
    largest_ = _mm512_max_epu32(largest_, _mm512_and_si512(_mm512_castps_si512(low), bits));
    largest_ = _mm512_max_epu32(largest_, _mm512_and_si512(_mm512_castps_si512(high), bits));
    low = _mm512_mul_ps(low, _mm512_set1_ps(kScale));
    high = _mm512_mul_ps(high, _mm512_set1_ps(kScale));
    for (int i = 0; i < kParts; ++i) {
      parts[i] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
      if (i + 1 == kParts) break;
      low = _mm512_sub_ps(low, widen(_mm512_castsi512_si256(parts[i])));
      high = _mm512_sub_ps(high, widen(_mm512_extracti64x4_epi64(parts[i], 1)));
    }
  }

  /// NaN if there was one, for its bits are larger than those of numbers.
  float largest() const {
    const std::uint32_t bits = _mm512_reduce_max_epu32(largest_);
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

 private:
  static __m512 widen(__m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
  __m512i largest_;
};

__mmask16 lowest_16(std::int64_t count) { return static_cast<__mmask16>(lowest(count)); }

void turn_over(std::uint16_t* tile) {
  __m512i r[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(tile + i * kSteps);
  transpose(r);
  for (int i = 0; i < 16; ++i) _mm512_store_si512(tile + i * kSteps, r[i]);
}

/// An operand as lines (rows of a, columns of b) of k inner values.
struct Lines {
  const float* at;
  std::int64_t line, inner;  ///< distances, one of which is 1
  bool columns;              ///< tiles have two successive inner values side by side

  Lines from(std::int64_t i) const { return {at + i * line, line, inner, columns}; }
};

/// One step of up to 32 lines that each run through memory.
inline __attribute__((always_inline)) void pack_along(const Lines& x, std::int64_t lines, std::int64_t k, Parts& parts,
                                                      std::uint16_t* to) {
  const __mmask16 low = lowest_16(k), high = lowest_16(k - 16);
  for (std::int64_t r = 0; r < kBlock; ++r, to += kSteps) {
    __m512i part[kParts] = {};
    const float* from = x.at + r * x.line;
    if (r < lines) parts(_mm512_maskz_loadu_ps(low, from), _mm512_maskz_loadu_ps(high, from + 16), part);
    for (int i = 0; i < kParts; ++i) _mm512_store_si512(to + i * kPart, part[i]);
  }
}

/// One step of up to 32 lines, memory running from line to line: pairs of inner values side by side.
inline __attribute__((always_inline)) void pack_across(const Lines& x, std::int64_t lines, std::int64_t k, Parts& parts,
                                                       std::uint16_t* to) {
  const __mmask16 low = lowest_16(lines), high = lowest_16(lines - 16);
  const __m512i count = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i zip = _mm512_or_si512(count, _mm512_slli_epi32(_mm512_add_epi32(count, _mm512_set1_epi32(16)), 16));
  for (std::int64_t p = 0; p < kSteps; p += 2, to += kSteps) {
    const float *even = x.at + p * x.inner, *odd = even + x.inner;
    const __mmask16 e = p < k ? 0xffff : 0, o = p + 1 < k ? 0xffff : 0;
    if (p < k) {  // the same rows of the next block
      _mm_prefetch(even + 2 * kBlock, _MM_HINT_T0);
      _mm_prefetch(even + 2 * kBlock + 16, _MM_HINT_T0);
      _mm_prefetch(odd + 2 * kBlock, _MM_HINT_T0);
      _mm_prefetch(odd + 2 * kBlock + 16, _MM_HINT_T0);
    }
    __m512i first[kParts], second[kParts];
    parts(_mm512_maskz_loadu_ps(low & e, even), _mm512_maskz_loadu_ps(low & o, odd), first);
    parts(_mm512_maskz_loadu_ps(high & e, even + 16), _mm512_maskz_loadu_ps(high & o, odd + 16), second);
    for (int i = 0; i < kParts; ++i) {
      _mm512_store_si512(to + i * kPart, _mm512_permutexvar_epi16(zip, first[i]));
      _mm512_store_si512(to + i * kPart + kTileSize, _mm512_permutexvar_epi16(zip, second[i]));
    }
  }
}

/// Up to `lines` lines of k values, `to` the first of their blocks.
void pack_lines(const Lines& x, std::int64_t lines, std::int64_t k, Parts& parts, std::uint16_t* to) {
  const bool along = x.inner == 1, turned = along == x.columns;
  for (std::int64_t p = 0; p < k; p += kSteps)
    for (std::int64_t i = 0; i < lines; i += kBlock) {
      const Lines from{x.at + i * x.line + p * x.inner, x.line, x.inner, x.columns};
      std::uint16_t* tiles = to + i / kBlock * distance(k) + p / kSteps * kStep;
      if (along)
        pack_along(from, lines - i, k - p, parts, tiles);
      else
        pack_across(from, lines - i, k - p, parts, tiles);
      if (turned)
        for (std::int64_t t = 0; t < kStep; t += kTileSize) turn_over(tiles + t);
    }
}

/// Lines to fetch into the second-level cache: `count` a step.
struct Ahead {
  const std::uint16_t* at = nullptr;
  std::int64_t count = 0;

  inline __attribute__((always_inline)) void fetch() {
    for (std::int64_t i = 0; i < count; ++i, at += 32) _mm_prefetch(at, _MM_HINT_T1);
  }
};

template <int kHigh>
inline __attribute__((always_inline)) void load_a(const std::uint16_t* a, int part) {
  _tile_loadd(4, a + part * kPart, 64);
  if constexpr (kHigh == 2) _tile_loadd(5, a + part * kPart + kTileSize, 64);
}
template <int kWide>
inline __attribute__((always_inline)) void load_b(const std::uint16_t* b, int part) {
  _tile_loadd(6, b + part * kPart, 64);
  if constexpr (kWide == 2) _tile_loadd(7, b + part * kPart + kTileSize, 64);
}

/// Adds the products of `steps` steps to each of the sums, or starts with them.
template <int kHigh, int kWide>
void block(const std::uint16_t* a, const std::uint16_t* b, std::int64_t steps, float* sums, bool add, Ahead next_a,
           Ahead next_b) {
  begin_sums<kHigh, kWide>(sums, add);
  // The small products first, and as few loads between them as four sums allow.
  for (std::int64_t s = 0; s < steps; ++s, a += kStep, b += kStep) {
    next_a.fetch();
    load_a<kHigh>(a, 0);
    load_b<kWide>(b, 2);
    multiply_tiles<kHigh, kWide>();
    load_b<kWide>(b, 1);
    multiply_tiles<kHigh, kWide>();
    load_a<kHigh>(a, 1);
    multiply_tiles<kHigh, kWide>();
    next_b.fetch();
    load_b<kWide>(b, 0);
    multiply_tiles<kHigh, kWide>();
    load_a<kHigh>(a, 2);
    multiply_tiles<kHigh, kWide>();
    load_a<kHigh>(a, 0);
    multiply_tiles<kHigh, kWide>();
  }
  end_sums<kHigh, kWide>(sums);
}

/// An operand in blocks, taken apart.
struct Packed {
  const std::uint16_t* at = nullptr;
  std::int64_t apart = 0;  ///< distance of blocks
  float largest = 0;       ///< magnitude of the values; NaN if there is one

  const std::uint16_t* block(std::int64_t i, std::int64_t step) const { return at + i * apart + step * kStep; }
};

Packed pack_all(const Lines& x, std::int64_t lines, std::int64_t k, int slot) {
  const std::int64_t apart = distance(k);
  auto* to = scratch<std::uint16_t>(slot, blocks(lines) * apart);
  const std::int64_t group = (x.inner == 1 ? 1 : 4) * kBlock;  // runs of four lines of the cache
  Parts parts;
  for (std::int64_t i = 0; i < lines; i += group)
    pack_lines(x.from(i), std::min(group, lines - i), k, parts, to + i / kBlock * apart);
  return {to, apart, parts.largest()};
}

/// Products of packed operands.
class Product {
 public:
  Product(const GemmProblem& g, const Packed& a, const Packed& b)
      : g_(g),
        finish_(g, 1 / (kScale * kScale)),
        a_(a),
        b_(b),
        steps_(blocks(g.k)),
        rows_(blocks(g.m)),
        cols_(blocks(g.n)) {}

  void run() const {
    const Tiles tiles;
    for (std::int64_t j = 0; j < cols_; j += kArea)
      for (std::int64_t i = 0; i < rows_; i += kArea)
        area(i, std::min(kArea, rows_ - i), j, std::min(kArea, cols_ - j));
  }

 private:
  /// Blocks of rows [i, i + rows) and of columns [j, j + cols).
  void area(std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t cols) const {
    constexpr std::int64_t kLines = kStep / 32;  // of the cache
    auto* sums = scratch<float>(kSlotSums, rows * cols * kSums);
    const std::int64_t share_a = (kLines + cols - 1) / cols, share_b = (kLines + rows - 1) / rows;
    for (std::int64_t s = 0; s < steps_; s += kPass) {
      const std::int64_t steps = std::min(kPass, steps_ - s), next = s + steps;
      const bool last = next == steps_;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c) {
          Ahead next_a, next_b;  // the next block of rows in this pass, and all columns of the next pass
          if (r + 1 < rows)
            next_a = {a_.block(i + r + 1, s) + c * share_a * steps * 32, share_a};
          else if (!last)
            next_a = {a_.block(i, next) + c * share_a * steps * 32, share_a};
          if (!last) next_b = {b_.block(j + c, next) + r * share_b * steps * 32, share_b};
          one(i + r, j + c, s, steps, sums + (r * cols + c) * kSums, next_a, next_b);
        }
    }
  }

  /// Steps [s, s + steps) of one block.
  void one(std::int64_t i, std::int64_t j, std::int64_t s, std::int64_t steps, float* sums, const Ahead& next_a,
           const Ahead& next_b) const {
    const std::uint16_t *a = a_.block(i, s), *b = b_.block(j, s);
    const std::int64_t rows = std::min(kBlock, g_.m - i * kBlock), cols = std::min(kBlock, g_.n - j * kBlock);
    const bool last = s + steps == steps_;
    if (last) finish_.fetch(i * kBlock, j * kBlock, rows);
    if (rows > kTile && cols > kTile)
      block<2, 2>(a, b, steps, sums, s > 0, next_a, next_b);
    else if (rows > kTile)
      block<2, 1>(a, b, steps, sums, s > 0, next_a, next_b);
    else if (cols > kTile)
      block<1, 2>(a, b, steps, sums, s > 0, next_a, next_b);
    else
      block<1, 1>(a, b, steps, sums, s > 0, next_a, next_b);
    if (last) finish_(sums, i * kBlock, j * kBlock, rows, cols);
  }

  const GemmProblem& g_;
  const Finish<float> finish_;
  const Packed &a_, &b_;
  const std::int64_t steps_, rows_, cols_;  ///< the last two in blocks
};

/// Rows whose a is packed at once, with as many columns at a time as `wide`.
void multiply_rows(const GemmProblem& g, std::int64_t wide, void (*other)(const GemmProblem&)) {
  std::optional<Packed> a;
  for (std::int64_t j = 0; j < g.n; j += wide) {
    GemmProblem part = g;
    part.n = std::min(wide, g.n - j);
    part.b = static_cast<const float*>(g.b) + j * g.b_col;
    part.c = static_cast<float*>(g.c) + j;
    if (g.bias) part.bias = static_cast<const float*>(g.bias) + j * g.bias_col;
    if (!a) a = pack_all({static_cast<const float*>(g.a), g.a_row, g.a_col, false}, g.m, g.k, kSlotA);
    const Packed b = pack_all({static_cast<const float*>(part.b), g.b_col, g.b_row, true}, part.n, g.k, kSlotB);
    const double most = double{a->largest} * double{b.largest} * static_cast<double>(g.k);
    if (a->largest < kLargest && b.largest < kLargest && most < kLargestSum) {
      Product(part, *a, b).run();
    } else {
      other(part);
      a.reset();  // `other` may use the same scratch
    }
  }
}

}  // namespace

void multiply_floats(const GemmProblem& g, void (*other)(const GemmProblem&)) {
  const std::int64_t passes = (g.k + kDeep - 1) / kDeep, deep = (blocks(g.k) + passes - 1) / passes * kSteps;
  const std::int64_t high = kPackedA / deep / kBlock * kBlock, wide = kPackedB / deep / kBlock * kBlock;
  for (std::int64_t p = 0; p < g.k; p += deep)
    for (std::int64_t i = 0; i < g.m; i += high) {
      GemmProblem part = g;
      part.m = std::min(high, g.m - i);
      part.k = std::min(deep, g.k - p);
      part.a = static_cast<const float*>(g.a) + i * g.a_row + p * g.a_col;
      part.b = static_cast<const float*>(g.b) + p * g.b_row;
      part.c = static_cast<float*>(g.c) + i * g.c_row;
      if (g.bias) part.bias = static_cast<const float*>(g.bias) + i * g.bias_row;
      if (p > 0) {
        part.bias = part.c;
        part.bias_row = g.c_row, part.bias_col = 1;
        part.beta = 1;
      }
      if (p + deep < g.k) part.epilogue = Epilogue::None;
      multiply_rows(part, wide, other);
    }
}

}  // namespace athanor::amx
HWY_POP_ATTRIBUTES

#else

namespace athanor::amx {

bool suits_floats(const GemmProblem&) { return false; }
void multiply_floats(const GemmProblem&, void (*)(const GemmProblem&)) {}

}  // namespace athanor::amx
#endif
