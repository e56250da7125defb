#include "athanor/device/cpu/gemm_amx.h"

#include <algorithm>
#include <utility>

#include "athanor/base/env.h"
#include "athanor/device/cpu/gemm_bf16_pack.h"
#include "athanor/device/cpu/gemm_block.h"
#include "athanor/device/cpu/gemm_epilogue.h"
#include "athanor/device/cpu/wide_vectors.h"
#include "hwy/base.h"

#if HWY_ARCH_X86_64 && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace athanor::amx {

using namespace bf16;

namespace {

bool ask() {
  if (!env::flag("ATHANOR_AMX", true)) return false;
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512bw") || !cpu::multiplies_bfloat16()) return false;
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1U << 22, kTiles = 1U << 24;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kBf16) == 0 || (d & kTiles) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool available() {
  static const bool yes = ask();
  return yes;
}

bool suits(const GemmProblem& g) {
  constexpr double kLeast = 1 << 14;  // multiply-adds
  if (g.k < 4 || !packable(g)) return false;
  return static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k) >= kLeast && available();
}

}  // namespace athanor::amx

// GCC 12 warns of its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")
#include "athanor/device/cpu/gemm_amx_tiles-inl.h"
#include "athanor/device/cpu/gemm_bf16_finish-inl.h"

namespace athanor::amx {
namespace {

constexpr std::int64_t kDeep = 2048;        ///< inner values between two visits of a sum, at most
constexpr std::int64_t kPackedB = 1 << 19;  ///< values of b that stay in the second-level cache
constexpr std::int64_t kPackedA = 1 << 21;  ///< values of a that are packed at a time

/// What to fetch into the second-level cache meanwhile: two lines a step.
struct Ahead {
  const std::uint16_t* at = nullptr;
  std::int64_t second = 0;  ///< distance of the second line
  std::int64_t step = 0;
};

/// Where the rows of a block of a lie.
struct Rows {
  const std::uint16_t* at;
  std::int64_t second;  ///< distance of the second tile
  std::int64_t bytes;   ///< distance of rows
  std::int64_t step;    ///< distance of the next 32 inner values
};

/// One step of a block of `kHigh` × `kWide` sums.
template <int kHigh, int kWide>
inline __attribute__((always_inline)) void multiply(const std::uint16_t* a, const Rows& rows, const std::uint16_t* b) {
  _tile_loadd(4, a, rows.bytes);
  _tile_loadd(6, b, 64);
  if constexpr (kWide == 2) _tile_loadd(7, b + kTileSize, 64);
  if constexpr (kHigh == 2) _tile_loadd(5, a + rows.second, rows.bytes);
  multiply_tiles<kHigh, kWide>();
}

/// Adds `steps` · 32 products to each of the sums, or starts with them.
template <int kHigh, int kWide>
void block(const Rows& rows, const std::uint16_t* b, std::int64_t steps, float* sums, bool add, const Ahead& ahead) {
  begin_sums<kHigh, kWide>(sums, add);
  const std::uint16_t* a = rows.at;
  const std::uint16_t* next = ahead.at;
  for (std::int64_t s = 0; s < steps; ++s, a += rows.step, b += 2 * kTileSize) {
    if (next) {
      _mm_prefetch(next, _MM_HINT_T1);
      _mm_prefetch(next + ahead.second, _MM_HINT_T1);
      next += ahead.step;
    }
    multiply<kHigh, kWide>(a, rows, b);
  }
  end_sums<kHigh, kWide>(sums);
}

/// The loops around blocks: columns of packed b, passes over the inner values, blocks of rows, blocks of columns.
class Run {
 public:
  /// With `turned`, g is the transposed problem, and `result` the one whose output is written.
  Run(const GemmProblem& g, const GemmProblem& result, bool turned)
      : g_(g),
        turned_(turned),
        a_(static_cast<const std::uint16_t*>(g.a)),
        b_(static_cast<const std::uint16_t*>(g.b)),
        finish_(result),
        passes_((g.k + kDeep - 1) / kDeep),
        deep_((g.k + passes_ * kSteps - 1) / (passes_ * kSteps) * kSteps),
        block_(kBlock * deep_ + 2 * kTileSize),
        wide_(std::clamp<std::int64_t>(kPackedB / deep_ / kBlock * kBlock, kBlock, blocks(g.n) * kBlock)),
        direct_(g.a_col == 1 && g.k % kSteps == 0 && g.a_row % kSteps == 0 &&
                reinterpret_cast<std::uintptr_t>(g.a) % 64 == 0),
        keep_(g.a_col != 1 && passes_ == 1 && g.n > wide_ && blocks(g.m) * kBlock * deep_ <= kPackedA) {}

  void run() {
    const Tiles tiles;
    packed_a_ = scratch<std::uint16_t>(kSlotA, (keep_ ? blocks(g_.m) : 1) * kBlock * deep_);
    packed_b_ = scratch<std::uint16_t>(kSlotB, wide_ / kBlock * block_);
    sums_ = scratch<float>(kSlotSums, (passes_ > 1 ? blocks(g_.m) * wide_ * kBlock : 2 * kSums) + kSums);
    for (std::int64_t j = 0; j < g_.n; j += wide_)
      for (std::int64_t pass = 0; pass < passes_; ++pass) columns(j, std::min(wide_, g_.n - j), pass);
  }

 private:
  /// Columns [j, j + cols) over the inner values of one pass.
  void columns(std::int64_t j, std::int64_t cols, std::int64_t pass) {
    const std::int64_t p = pass * deep_, k = std::min(deep_, g_.k - p);
    pack_columns(b_ + p * g_.b_row + j * g_.b_col, g_.b_row, g_.b_col, k, cols, packed_b_, block_);
    for (std::int64_t i = 0; i < g_.m; i += kBlock) {
      const Rows a = rows_at(i, p, k, j == 0);
      for (std::int64_t c = 0; c < cols; c += kBlock) one(a, i, j, c, pass, ahead(i + kBlock, p, c));
    }
  }

  /// The rows from i on, packed if need be.
  Rows rows_at(std::int64_t i, std::int64_t p, std::int64_t k, bool first) {
    const std::uint16_t* from = a_ + i * g_.a_row + p * g_.a_col;
    const std::int64_t rows = std::min(kBlock, g_.m - i);
    if (direct_ && rows == kBlock) return {from, kTile * g_.a_row, g_.a_row * 2, kSteps};
    std::uint16_t* to = packed_a_ + (keep_ ? i * deep_ : 0);
    if (first || !keep_) pack_rows(from, g_.a_row, g_.a_col, rows, k, to);
    return {to, kTileSize, 64, 2 * kTileSize};
  }

  /// What to fetch of the rows from i on beside the block at column c.
  Ahead ahead(std::int64_t i, std::int64_t p, std::int64_t c) const {
    const std::int64_t line = c / kBlock * 2;  // two lines of 32 beside each block
    if (keep_ || line >= kBlock || i + kBlock > g_.m) return {};
    if (g_.a_col == 1) return {a_ + (i + line) * g_.a_row + p, g_.a_row, kSteps};
    return {a_ + i + (p + line) * g_.a_col, g_.a_col, kSteps * g_.a_col};
  }

  /// The block at row i and column j + c.
  void one(const Rows& a, std::int64_t i, std::int64_t j, std::int64_t c, std::int64_t pass, const Ahead& ahead) {
    const std::int64_t rows = std::min(kBlock, g_.m - i), cols = std::min(kBlock, g_.n - j - c);
    const std::int64_t k = std::min(deep_, g_.k - pass * deep_), steps = (k + kSteps - 1) / kSteps;
    const std::uint16_t* b = packed_b_ + c / kBlock * block_;
    float* sums = sums_ + (passes_ > 1 ? i * wide_ + c * kBlock : c / kBlock % 2 * kSums);
    const bool add = pass > 0;
    const bool last = pass + 1 == passes_;
    if (last && !turned_) finish_.fetch(i, j + c, rows);
    if (last && turned_) finish_.fetch(j + c, i, cols);
    if (rows > kTile && cols > kTile)
      block<2, 2>(a, b, steps, sums, add, ahead);
    else if (rows > kTile)
      block<2, 1>(a, b, steps, sums, add, ahead);
    else if (cols > kTile)
      block<1, 2>(a, b, steps, sums, add, ahead);
    else
      block<1, 1>(a, b, steps, sums, add, ahead);
    if (last && !turned_) finish_(sums, i, j + c, rows, cols);
    if (last && turned_) {
      float* other = sums_ + (passes_ > 1 ? blocks(g_.m) * wide_ * kBlock : 2 * kSums);
      transpose_sums(sums, other);
      finish_(other, j + c, i, cols, rows);
    }
  }

  const GemmProblem& g_;
  const bool turned_;
  const std::uint16_t* a_;
  const std::uint16_t* b_;
  Finish<BFloat16> finish_;
  std::int64_t passes_, deep_;  ///< passes over the inner values, and their number in each
  std::int64_t block_;          ///< distance of packed blocks of b, not a multiple of pages
  std::int64_t wide_;           ///< columns of packed b
  bool direct_;                 ///< a is read where it lies
  bool keep_;                   ///< all of a is packed once
  std::uint16_t* packed_a_ = nullptr;
  std::uint16_t* packed_b_ = nullptr;
  float* sums_ = nullptr;
};

}  // namespace

void gemm_block(const GemmProblem& g) {
  // Few rows and columns of b that each run through memory, as in a linear layer: taken as rows they need no packing.
  const bool turned = g.b_row == 1 && g.b_col != 1 && 4 * g.m <= g.n;
  if (!turned) return Run(g, g, false).run();
  GemmProblem t = g;
  std::swap(t.m, t.n);
  std::swap(t.a, t.b);
  t.a_row = g.b_col, t.a_col = g.b_row;
  t.b_row = g.a_col, t.b_col = g.a_row;
  Run(t, g, true).run();
}

}  // namespace athanor::amx
HWY_POP_ATTRIBUTES

#else

namespace athanor::amx {

bool available() { return false; }
bool suits(const GemmProblem&) { return false; }
void gemm_block(const GemmProblem&) {}

}  // namespace athanor::amx
#endif
