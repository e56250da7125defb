// Fused attention, forward: tasks of some rows go over blocks of columns with a running maximum and sum. Compiled once
// per SIMD target; included by kernel files after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_ATTENTION_INL_H_
#undef ATHANOR_DEVICE_CPU_ATTENTION_INL_H_
#else
#define ATHANOR_DEVICE_CPU_ATTENTION_INL_H_
#endif
// clang-format on

#include <limits>

#include "athanor/device/cpu/attention.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/packed_product-inl.h"
#include "athanor/device/cpu/random_philox.h"
#include "athanor/device/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {  // each kernel file has its own

/// Tiles of narrow vectors are smaller: blocks of more of them cost the same cache.
inline constexpr bool kNarrowVectors = HWY_MAX_BYTES < 64;
/// Columns looked at together: scores of a block stay in the second-level cache, those of a tile's rows in the first.
template <class T>
inline constexpr std::int64_t kAttentionCols = (kNarrowVectors ? 32 : 8) * kTileCols<T>;
inline constexpr std::int64_t kForwardTiles = kNarrowVectors ? 8 : 4, kBackwardTiles = 8;

template <class T>
void plan_attention(cpu::AttentionShape& s) {
  s.chunk = std::min<std::int64_t>(kForwardTiles * kTileRows, std::max<std::int64_t>(s.rows, 1));
  s.packed_k = packed_b_size<T>(s.depth, s.cols);
  s.packed_v = packed_b_size<T>(s.cols, s.depth_v);
  // With few heads the columns are shared out; each part then has sums of dq of its own.
  const std::int64_t heads = std::max<std::int64_t>(s.batch * s.groups, 1);
  const std::int64_t wanted = (7 + heads) / heads, most = std::max<std::int64_t>(s.cols / (32 * kTileCols<T>), 1);
  const std::int64_t parts = std::min(wanted, most), blocks = (s.cols + kAttentionCols<T> - 1) / kAttentionCols<T>;
  s.columns_part = std::max<std::int64_t>((blocks + parts - 1) / parts, 1) * kAttentionCols<T>;
  s.parts = std::max<std::int64_t>((s.cols + s.columns_part - 1) / s.columns_part, 1);
}

/// One head of a four-dimensional operand.
template <class T>
struct HeadView {
  HeadView(const View& v, std::int64_t batch, std::int64_t head)
      : data(v.ptr<T>() + batch * v.stride(0) + head * v.stride(1)), row(v.stride(2)), col(v.stride(3)) {}
  T* at(std::int64_t i) const { return data + i * row; }
  T* data;
  std::int64_t row, col;
};

template <class T>
void pack_attention(const cpu::AttentionForward& f, std::int64_t at) {
  const cpu::AttentionShape& s = f.shape;
  const HeadView<T> k(f.k, at / s.groups, at % s.groups), v(f.v, at / s.groups, at % s.groups);
  T* const to = static_cast<T*>(f.packed) + at * (s.packed_k + s.packed_v);
  pack_columns<T>(k.data, k.col, k.row, s.depth, s.cols, to);
  pack_columns<T>(v.data, v.row, v.col, s.cols, s.depth_v, to + s.packed_k);
}

/// What is done to scores beside scaling: what a row may see, and which probabilities are dropped.
template <class T>
class ScoreRules {
 public:
  ScoreRules(const cpu::AttentionShape& shape, const View& mask, const AttentionParams& params, std::int64_t batch,
             std::int64_t head)
      : shape_(shape), mask_(mask), params_(params), first_row_((batch * shape.heads + head) * shape.rows) {
    if (!mask.defined()) return;
    const std::int64_t offset = batch * mask.stride(0) + head * mask.stride(1);
    at_ = static_cast<const char*>(mask.data) + offset * static_cast<std::int64_t>(mask.item_size());
  }

  /// Columns from 0 on that some row below `end` sees.
  std::int64_t visible(std::int64_t end) const { return params_.causal ? std::min(end, shape_.cols) : shape_.cols; }

  /// Scores s of columns [j, j + n) of row i: masked ones become -inf, and so do those up to a whole vector beyond.
  void mask(T* s, std::int64_t i, std::int64_t j, std::int64_t n) const {
    if (at_) add_mask(s, i, j, n);
    std::int64_t seen = params_.causal ? std::clamp<std::int64_t>(i + 1 - j, 0, n) : n;
    const std::int64_t end = (n + kVector<T> - 1) / kVector<T> * kVector<T>;
    for (; seen < end; ++seen) s[seen] = -std::numeric_limits<T>::infinity();
  }

  bool drops() const { return params_.dropout > 0; }
  /// What probabilities kept are multiplied by.
  T kept_scale() const { return static_cast<T>(1 / (1 - params_.dropout)); }
  /// keep[c] is 0 or kept_scale() for columns j + c; `words` has room for n + 4 + kRandomChunk.
  void draw(T* keep, std::uint32_t* words, std::int64_t i, std::int64_t j, std::int64_t n) const {
    const std::int64_t first = (first_row_ + i) * shape_.cols + j, skip = first % 4;
    cpu::random_fns().words(words, params_.state, static_cast<std::uint64_t>(first / 4), (skip + n + 3) / 4);
    const auto limit = static_cast<std::uint64_t>(params_.dropout * 4294967296.0);
    const T scale = kept_scale();
    for (std::int64_t c = 0; c < n; ++c) keep[c] = words[skip + c] >= limit ? scale : T(0);
  }

 private:
  void add_mask(T* s, std::int64_t i, std::int64_t j, std::int64_t n) const {
    const std::int64_t row = i * mask_.stride(2) + j * mask_.stride(3), step = mask_.stride(3);
    if (mask_.dtype == DType::Bool) {
      const auto* m = reinterpret_cast<const std::uint8_t*>(at_) + row;
      for (std::int64_t c = 0; c < n; ++c) s[c] = m[c * step] ? s[c] : -std::numeric_limits<T>::infinity();
    } else {
      const auto* m = reinterpret_cast<const T*>(at_) + row;
      if (step == 1)
        for (std::int64_t c = 0; c < n; ++c) s[c] += m[c];
      else
        for (std::int64_t c = 0; c < n; ++c) s[c] += m[c * step];
    }
  }

  const cpu::AttentionShape& shape_;
  const View& mask_;
  const AttentionParams& params_;
  const std::int64_t first_row_;
  const char* at_ = nullptr;
};

/// Room for the keep factors of a row and the draws they are made from.
template <class T>
struct DropoutRoom {
  alignas(64) T keep[kAttentionCols<T> + kVector<T>] = {};
  alignas(64) std::uint32_t words[kAttentionCols<T> + 8 + cpu::kRandomChunk];
};

/// Greatest of s[0, n), n whole vectors; NaN is skipped (the sum of exponentials finds it).
template <class T>
HWY_INLINE T greatest(const T* s, std::int64_t n) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = kVector<T>;
  const auto low = hn::Set(d, -std::numeric_limits<T>::infinity());
  auto a = low, b = low;
  std::int64_t c = 0;
  // Max returns its second operand if one is NaN.
  for (; c + 2 * L <= n; c += 2 * L) {
    a = hn::Max(hn::LoadU(d, s + c), a);
    b = hn::Max(hn::LoadU(d, s + c + L), b);
  }
  for (; c < n; c += L) a = hn::Max(hn::LoadU(d, s + c), a);
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b)));
}

/// s = exp(s - max) over n elements, n whole vectors; returns the sum.
template <class T>
HWY_INLINE T exponentiate(T* s, std::int64_t n, T max) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = kVector<T>;
  const auto m = hn::Set(d, max);
  auto a = hn::Zero(d), b = a;
  std::int64_t c = 0;
  for (; c + 2 * L <= n; c += 2 * L) {
    const auto x = cpu::HWY_NAMESPACE::vec_exp_flushing(d, hn::Sub(hn::LoadU(d, s + c), m));
    const auto y = cpu::HWY_NAMESPACE::vec_exp_flushing(d, hn::Sub(hn::LoadU(d, s + c + L), m));
    a = hn::Add(a, x);
    b = hn::Add(b, y);
    hn::StoreU(x, d, s + c);
    hn::StoreU(y, d, s + c + L);
  }
  for (; c < n; c += L) {
    const auto x = cpu::HWY_NAMESPACE::vec_exp_flushing(d, hn::Sub(hn::LoadU(d, s + c), m));
    a = hn::Add(a, x);
    hn::StoreU(x, d, s + c);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

/// A task of the forward pass.
template <class T>
class ForwardChunk {
 public:
  ForwardChunk(const cpu::AttentionForward& f, std::int64_t at, std::int64_t chunk)
      : f_(f),
        s_(f.shape),
        batch_(at / s_.heads),
        head_(at % s_.heads),
        first_(chunk * s_.chunk),
        tiles_(std::min(s_.chunk, s_.rows - first_)),
        rules_(s_, f.mask, f.params, batch_, head_) {}

  void run() {
    constexpr std::int64_t cols = kAttentionCols<T>;
    const std::int64_t rows = tiles_.rows, sums_size = Sums<T>::size(rows, s_.depth_v);
    const cpu::HostBuffer<T> room(packed_a_size<T>(rows, s_.depth) + rows * cols + sums_size + 2 * rows);
    T* const q = room.data();
    scores_ = q + packed_a_size<T>(rows, s_.depth);
    const Sums<T> out(scores_ + rows * cols, s_.depth_v);
    max_ = out.data + sums_size;
    total_ = max_ + rows;
    pack_query(q);
    std::fill_n(max_, rows, -std::numeric_limits<T>::infinity());
    std::fill_n(total_, rows, T(0));
    out.clear(rows);
    const std::int64_t group = batch_ * s_.groups + head_ / (s_.heads / s_.groups);
    const T* const k = static_cast<const T*>(f_.packed) + group * (s_.packed_k + s_.packed_v);
    const std::int64_t end = rules_.visible(first_ + rows);
    for (std::int64_t j = 0; j < end; j += cols) {
      const std::int64_t n = std::min(cols, end - j);
      multiply(LeftOperand<T>::packed(q, s_.depth), tiles_, s_.depth, k, s_.cols, j, n, scores_, cols);
      for (std::int64_t t = 0; t < tiles_.count; ++t)
        for (int r = 0; r < tiles_.height(t); ++r) soften(out, t, r, j, n);
      out.add(LeftOperand<T>::by_rows(scores_, cols), tiles_, n, k + s_.packed_k, s_.cols, j, tiles_.count);
    }
    finish(out);
  }

 private:
  void pack_query(T* q) const {
    const HeadView<T> from(f_.q, batch_, head_);
    pack_rows<T>(from.at(first_), from.row, from.col, s_.depth, tiles_, q);
    const T scale = static_cast<T>(f_.params.scale);
    for (std::int64_t i = 0; i < tiles_.rows * s_.depth; ++i) q[i] *= scale;
  }

  /// Scores of row r of tile t to exponentials; earlier sums are brought to the new maximum.
  void soften(const Sums<T>& out, std::int64_t t, int r, std::int64_t j, std::int64_t n) {
    const std::int64_t i = tiles_.begin(t) + r, end = (n + kVector<T> - 1) / kVector<T> * kVector<T>;
    T* const s = scores_ + i * kAttentionCols<T>;
    rules_.mask(s, first_ + i, j, n);
    constexpr T kLow = -std::numeric_limits<T>::infinity();
    const T before = max_[i], now = std::max(before, greatest(s, end));
    const T sum = exponentiate(s, end, now == kLow ? T(0) : now);
    if (now != before) {
      const T by = before == kLow ? T(0) : std::exp(before - now);
      total_[i] *= by;
      if (before != kLow) out.scale_row(tiles_, t, r, by);
      max_[i] = now;
    }
    total_[i] += sum;
    if (!rules_.drops()) return;
    rules_.draw(dropout_.keep, dropout_.words, first_ + i, j, n);
    for (std::int64_t c = 0; c < n; ++c) s[c] *= dropout_.keep[c];
  }

  void finish(const Sums<T>& out) const {
    const HeadView<T> to(f_.out, batch_, head_);
    T* const lse = f_.lse.ptr<T>() + (batch_ * s_.heads + head_) * s_.rows + first_;
    for (std::int64_t t = 0; t < tiles_.count; ++t)
      for (int r = 0; r < tiles_.height(t); ++r) {
        const std::int64_t i = tiles_.begin(t) + r;
        const T total = total_[i];
        lse[i] = max_[i] + std::log(total);
        out.write_row(tiles_, t, r, to.at(first_ + i), to.col, total == 0 ? T(0) : 1 / total, false);
      }
  }

  const cpu::AttentionForward& f_;
  const cpu::AttentionShape& s_;
  const std::int64_t batch_, head_, first_;
  const RowTiles tiles_;
  const ScoreRules<T> rules_;
  T *scores_ = nullptr, *max_ = nullptr, *total_ = nullptr;
  DropoutRoom<T> dropout_;
};

template <class T>
void forward_attention(const cpu::AttentionForward& f, std::int64_t at, std::int64_t chunk) {
  ForwardChunk<T>(f, at, chunk).run();
}

}  // namespace
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
