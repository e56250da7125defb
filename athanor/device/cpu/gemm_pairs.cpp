#include "athanor/device/cpu/gemm_pairs.h"

#include <algorithm>
#include <cstring>

#include "athanor/device/cpu/gemm_amx.h"
#include "athanor/device/cpu/gemm_bf16_pack.h"
#include "athanor/device/cpu/gemm_block.h"
#include "athanor/device/cpu/gemm_epilogue.h"
#include "athanor/device/cpu/wide_vectors.h"
#include "hwy/base.h"

#if HWY_ARCH_X86_64
#include <immintrin.h>

namespace athanor::pairs {

using namespace bf16;

bool available() {
  static const bool yes = __builtin_cpu_supports("avx512bw") && cpu::multiplies_bfloat16() && !amx::available();
  return yes;
}

bool suits(const GemmProblem& g) { return g.k >= 4 && packable(g) && available(); }

bool pays(const GemmProblem& g) {
  const double m = static_cast<double>(g.m), n = static_cast<double>(g.n), k = static_cast<double>(g.k);
  const double turned = (g.a_col == 1 ? 0 : m * k) + (g.b_col == 1 ? 0 : n * k);
  return m * n * k <= 1 << 18 || m * n * k >= 160 * turned;
}

}  // namespace athanor::pairs

// GCC 12 warns of its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#include "athanor/device/cpu/gemm_bf16_finish-inl.h"

namespace athanor::pairs {
namespace {

constexpr std::int64_t kPairs = kSteps / 2;  ///< pairs of inner values that a tile of packed columns holds
constexpr std::int64_t kPackedB = 1 << 19;   ///< values of b that stay in the second-level cache
constexpr std::int64_t kRowsOfA = 1 << 15;
constexpr std::int64_t kNear = 128;    ///< inner values of 64 columns that stay in the first-level cache
constexpr int kSlotB = 1, kSlotA = 2;  // of thread_scratch

/// Where the rows of a lie: pairs of inner values side by side.
struct Rows {
  const std::uint16_t* at;
  std::int64_t row;   ///< distance of rows
  std::int64_t high;  ///< distance of blocks of 32 rows
  std::int64_t step;  ///< distance of the next 32 inner values
};

/// `kRows` rows of sums over `kVectors` · 16 columns, whose blocks of 32 lie `block` values apart.
template <int kRows, int kVectors>
void tile(const Rows& a, const std::uint16_t* b, std::int64_t block, std::int64_t k, const Finish<BFloat16>& finish,
          std::int64_t i, std::int64_t j, std::int64_t cols) {
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_setzero_ps();
  const std::uint16_t* from = a.at + i / kBlock * a.high + i % kBlock * a.row;
  for (std::int64_t left = (k + 1) / 2; left > 0; left -= kPairs, from += a.step, b += 2 * kTileSize) {
    const std::int64_t pairs = std::min(left, kPairs);
    for (std::int64_t p = 0; p < pairs; ++p) {
      __m512bh columns[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        columns[v] = reinterpret_cast<__m512bh>(_mm512_load_si512(b + v / 2 * block + v % 2 * kTileSize + p * kSteps));
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        int pair;
        std::memcpy(&pair, from + r * a.row + 2 * p, sizeof pair);
        const auto spread = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], spread, columns[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v += 2)
      finish(sums[r][v], kVectors == 1 ? _mm512_setzero_ps() : sums[r][v + 1], i + r, j + 16 * v, cols - 16 * v);
}

template <int kVectors, int kHigh>
void rows_of_tiles(const Rows& a, const std::uint16_t* b, std::int64_t block, std::int64_t k,
                   const Finish<BFloat16>& finish, std::int64_t begin, std::int64_t end, std::int64_t j,
                   std::int64_t cols) {
  std::int64_t i = begin;
  for (; i + kHigh <= end; i += kHigh) tile<kHigh, kVectors>(a, b, block, k, finish, i, j, cols);
  for (; i < end; ++i) tile<1, kVectors>(a, b, block, k, finish, i, j, cols);
}

}  // namespace

void gemm_block(const GemmProblem& g) {
  const Finish<BFloat16> finish(g);
  const auto* a = static_cast<const std::uint16_t*>(g.a);
  const auto* b = static_cast<const std::uint16_t*>(g.b);
  const std::int64_t deep = (g.k + kSteps - 1) / kSteps * kSteps, block = kBlock * deep + 2 * kTileSize;
  const std::int64_t wide = std::max<std::int64_t>(kPackedB / deep / 64 * 64, 64);
  auto* packed_b = static_cast<std::uint16_t*>(detail::thread_scratch(
      kSlotB, sizeof(*b) * static_cast<std::size_t>((std::min(wide, g.n) + kBlock - 1) / kBlock * block)));
  Rows rows{a, g.a_row, kBlock * g.a_row, kSteps};
  if (g.a_col != 1 || g.k % 2 != 0) {
    const std::int64_t blocks = (g.m + kBlock - 1) / kBlock;
    auto* packed_a = static_cast<std::uint16_t*>(
        detail::thread_scratch(kSlotA, sizeof(*a) * static_cast<std::size_t>(blocks * kBlock * deep)));
    for (std::int64_t i = 0; i < g.m; i += kBlock)
      pack_rows(a + i * g.a_row, g.a_row, g.a_col, std::min(kBlock, g.m - i), g.k, packed_a + i * deep);
    rows = {packed_a, kSteps, kBlock * deep, 2 * kTileSize};
  }
  const std::int64_t high = std::max<std::int64_t>(kRowsOfA / deep / kBlock * kBlock, kBlock);
  for (std::int64_t j = 0; j < g.n; j += wide) {
    const std::int64_t cols = std::min(wide, g.n - j);
    pack_columns(b + j * g.b_col, g.b_row, g.b_col, g.k, cols, packed_b, block);
    for (std::int64_t i = 0; i < g.m; i += high) {
      const std::int64_t end = std::min(i + high, g.m);
      for (std::int64_t c = 0; c < cols; c += 64) {
        const std::uint16_t* from = packed_b + c / kBlock * block;
        if (cols - c <= kTile)
          rows_of_tiles<1, 8>(rows, from, block, g.k, finish, i, end, j + c, cols - c);
        else if (cols - c <= kBlock)
          rows_of_tiles<2, 4>(rows, from, block, g.k, finish, i, end, j + c, cols - c);
        else if (g.k <= kNear)
          rows_of_tiles<4, 2>(rows, from, block, g.k, finish, i, end, j + c, cols - c);
        else
          rows_of_tiles<4, 4>(rows, from, block, g.k, finish, i, end, j + c, cols - c);
      }
    }
  }
}

}  // namespace athanor::pairs
HWY_POP_ATTRIBUTES

#else

namespace athanor::pairs {

bool available() { return false; }
bool suits(const GemmProblem&) { return false; }
bool pays(const GemmProblem&) { return false; }
void gemm_block(const GemmProblem&) {}

}  // namespace athanor::pairs
#endif
