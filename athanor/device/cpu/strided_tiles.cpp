#include "athanor/device/cpu/strided_tiles.h"

#include <algorithm>
#include <bit>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/copy_blocks.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kTileRow = 512;   // elements along dim 0: long enough that the hardware fetches ahead
constexpr std::int64_t kTileBytes = 64;  // of an input along the dim in which it is dense
constexpr std::int64_t kPadBytes = 64;   // after each row of a turned tile: keeps them off the same cache set
constexpr std::int64_t kLeastSize = 16;  // of both dims: below, tiles are mostly rest

/// Tiles of one plan: dim 0, in which the output is dense, and the dim in which some input is dense instead.
class Tiles {
 public:
  Tiles(const LoopSpec& spec, const LoopPlan& plan, bool stream) : s_(spec), p_(plan), stream_(stream) {}

  /// False if tiles do not suit.
  bool choose() {
    if (p_.ndim < 2 || p_.sizes[0] < kLeastSize || p_.strides[0][0] != size_of(0)) return false;
    for (int i = 0; i < p_.operands; ++i) {
      if (s_.widen[i]) return false;
      const std::int64_t step = p_.strides[i][0];
      turned_[i] = step != size_of(i) && !(step == 0 && s_.takes_scalars);
      if (!turned_[i]) continue;
      const int dense = dense_dim(i);
      if (dense == 0 || (dim_ != 0 && dense != dim_)) return false;
      dim_ = dense;
    }
    if (dim_ == 0 || p_.sizes[dim_] < kLeastSize) return false;
    std::int64_t size = 1;
    for (int i = 0; i < p_.operands; ++i)
      if (turned_[i]) size = std::max(size, size_of(i));
    rows_ = kTileBytes / size;
    return true;
  }

  void run() const {
    const std::int64_t across = pieces(p_.sizes[0], kTileRow), down = pieces(p_.sizes[dim_], rows_);
    const std::int64_t tiles = p_.numel / p_.sizes[0] / p_.sizes[dim_] * across * down;
    const std::int64_t grain = std::max<std::int64_t>(1, s_.grain / (kTileRow * rows_));
    parallel_for(0, tiles, grain, [&](std::int64_t begin, std::int64_t end) {
      Room room;
      for (std::int64_t t = begin; t < end; ++t)
        tile(room, t / across / down, t % across * kTileRow, t / across % down * rows_);
      if (stream_) block_ops().stream_fence();
    });
  }

 private:
  struct Room {
    alignas(64) char tiles[kMaxOperands][(kTileRow + kPadBytes) * kTileBytes];
    alignas(64) char results[kTileRow * 8];
  };

  static std::int64_t pieces(std::int64_t n, std::int64_t piece) { return (n + piece - 1) / piece; }
  std::int64_t size_of(int i) const { return static_cast<std::int64_t>(item_size(s_.storage[i])); }
  int dense_dim(int i) const {
    for (int d = 1; d < p_.ndim; ++d)
      if (p_.strides[i][d] == size_of(i)) return d;
    return 0;
  }

  /// Rows [y, y + rows_) of columns [x, x + kTileRow), at place `outer` of the other dims.
  void tile(Room& room, std::int64_t outer, std::int64_t x, std::int64_t y) const {
    const std::int64_t n = std::min(kTileRow, p_.sizes[0] - x), m = std::min(rows_, p_.sizes[dim_] - y);
    std::int64_t offset[kMaxOperands];
    for (int i = 0; i < p_.operands; ++i) offset[i] = x * p_.strides[i][0] + y * p_.strides[i][dim_];
    for (int d = 1; d < p_.ndim; ++d) {
      if (d == dim_) continue;
      for (int i = 0; i < p_.operands; ++i) offset[i] += outer % p_.sizes[d] * p_.strides[i][d];
      outer /= p_.sizes[d];
    }
    char* ptrs[kMaxOperands];
    std::int64_t steps[kMaxOperands], inner[kMaxOperands];
    for (int i = 0; i < p_.operands; ++i) {
      const std::int64_t size = size_of(i);
      ptrs[i] = p_.data[i] + offset[i];
      steps[i] = p_.strides[i][dim_];
      inner[i] = turned_[i] ? size : p_.strides[i][0];
      if (!turned_[i]) continue;
      const std::int64_t pitch = kTileRow + kPadBytes / size;
      block_ops().transpose[std::countr_zero(static_cast<std::uint64_t>(size))](room.tiles[i], pitch, ptrs[i],
                                                                                p_.strides[i][0] / size, n, m, false);
      ptrs[i] = room.tiles[i];
      steps[i] = pitch * size;
    }
    for (std::int64_t r = 0; r < m; ++r) {
      if (stream_) {
        char* to[kMaxOperands];
        std::copy(ptrs, ptrs + p_.operands, to);
        to[0] = room.results;
        s_.fn(to, inner, n, s_.params);
        block_ops().stream(ptrs[0], room.results, n * size_of(0));
      } else {
        s_.fn(ptrs, inner, n, s_.params);
      }
      for (int i = 0; i < p_.operands; ++i) ptrs[i] += steps[i];
    }
  }

  const LoopSpec& s_;
  const LoopPlan& p_;
  bool stream_;
  int dim_ = 0;
  std::int64_t rows_ = 0;
  bool turned_[kMaxOperands] = {};
};

}  // namespace

bool run_tiles(const LoopSpec& spec, const LoopPlan& plan, bool stream) {
  Tiles tiles(spec, plan, stream);
  if (!tiles.choose()) return false;
  tiles.run();
  return true;
}

}  // namespace athanor::cpu
