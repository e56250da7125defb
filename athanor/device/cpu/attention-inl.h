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

#include <algorithm>
#include <cmath>
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
/// The backward pass has the gradients of the scores beside them.
template <class T>
inline constexpr std::int64_t kForwardCols = (kNarrowVectors ? 32 : 16) * kTileCols<T>;
template <class T>
inline constexpr std::int64_t kBackwardCols = (kNarrowVectors ? 32 : 8) * kTileCols<T>;
/// Distance of the rows of a block of scores: not a multiple of 2048 bytes, which would put a column of them into a few
/// sets of the cache.
template <class T>
inline constexpr std::int64_t kScoreStep = kForwardCols<T> + 64 / static_cast<std::int64_t>(sizeof(T));
inline constexpr std::int64_t kForwardTiles = kNarrowVectors ? 8 : 4, kBackwardTiles = 8;

/// What scores are multiplied by: of those in float32 powers of 2 are taken instead of e, which need no reduction by
/// parts of ln 2.
template <class T>
inline constexpr bool kBinaryScores = sizeof(T) == 4;
template <class T>
inline constexpr T kScoreUnit = kBinaryScores<T> ? T(1.44269504088896340736) : T(1);
/// By how much a row's scores may exceed what is subtracted from them before sums are brought to a new maximum.
template <class T>
inline constexpr T kScoreSlack = T(8);
/// Masks beyond this may leave the range of float32 when they are multiplied by the unit; from there on they grow by
/// kHugeSlope instead, which keeps their order and ends within the range. Scores say nothing beside them.
inline constexpr float kHugeMask = 0x1p+126F, kHugeSlope = 0.8F;
/// Scores are at most |q| |k|. If that is below kBound for all of a task's rows, it is subtracted in place of their
/// maxima, and no maximum has to be found. Exponentials stay above 2^(-2 kBound): their products with values of v below
/// 2^(2 kBound - 126) in size are subnormal and may lose bits, or all; greater ones lose nothing.
inline constexpr float kBound = 30;

/// 2^(x - m) with low = m - 127 and magic = kMagic - m for a whole m, for x <= m + 128; what is subnormal becomes 0.
inline constexpr float kMagic = 0x1.8p+23F + 127;
template <class D, class V = hn::Vec<D>>
HWY_INLINE V power_of_2(D d, V x, V low, V magic) {
  // x = n + r; the low bits of `shifted` are n - m + 127, the exponent field of 2^(n - m), or at least that of 0. Max
  // returns its second operand if one is NaN.
  x = hn::Max(low, x);
  const V shifted = hn::Add(x, magic);
  const V r = hn::Sub(x, hn::Sub(shifted, magic));
  const hn::RebindToSigned<D> di;
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  // 2^r for |r| <= 1/2: a minimax fit (Lawson-weighted least squares), relative error below 1.7e-7 in float32.
  V p = hn::MulAdd(hn::Set(d, 0.001326472731F), r, hn::Set(d, 0.009671512991F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.05550733581F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.2402224243F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.6931470037F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
  return hn::Mul(p, power);
}

/// 2^x or e^x, as kScoreUnit says, for x <= kScoreSlack; what is subnormal becomes 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_score(D d, V x) {
  if constexpr (kBinaryScores<hn::TFromD<D>>)
    return power_of_2(d, x, hn::Set(d, -127.0F), hn::Set(d, kMagic));
  else
    return cpu::HWY_NAMESPACE::vec_exp_flushing(d, x);
}

/// n elements rounded up to whole cache lines, which tiles then write.
template <class T>
constexpr std::int64_t whole_lines(std::int64_t n) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  return (n + kLine - 1) / kLine * kLine;
}

template <class T>
void plan_attention(cpu::AttentionShape& s) {
  s.chunk = std::min<std::int64_t>(kForwardTiles * kTileRows, std::max<std::int64_t>(s.rows, 1));
  // Heads lie side by side: with each the panels begin a cache line. The last places are pack_keys' factor's and
  // the greatest square's.
  s.packed_k = whole_lines<T>(packed_b_size<T>(s.depth, s.cols));
  s.packed = whole_lines<T>(s.packed_k + packed_b_size<T>(s.cols, s.depth_v) + 2);
  // With few heads the columns are shared out; each part then has sums of dq of its own.
  const std::int64_t heads = std::max<std::int64_t>(s.batch * s.groups, 1);
  const std::int64_t wanted = (7 + heads) / heads, most = std::max<std::int64_t>(s.cols / (32 * kTileCols<T>), 1);
  const std::int64_t parts = std::min(wanted, most), blocks = (s.cols + kBackwardCols<T> - 1) / kBackwardCols<T>;
  s.columns_part = std::max<std::int64_t>((blocks + parts - 1) / parts, 1) * kBackwardCols<T>;
  s.parts = std::max<std::int64_t>((s.cols + s.columns_part - 1) / s.columns_part, 1);
}

/// How many of the n columns of a block its tiles of rows need: all, or with a causal mask those up to a tile's last
/// row. `ahead`: the block's first row minus its first column.
struct Reach {
  std::int64_t of(const RowTiles& tiles, std::int64_t t) const {
    return causal ? std::clamp<std::int64_t>(ahead + tiles.begin(t + 1), 0, n) : n;
  }
  /// The first tile that needs column q.
  std::int64_t first(const RowTiles& tiles, std::int64_t q) const {
    std::int64_t t = 0;
    while (t < tiles.count && of(tiles, t) <= q) ++t;
    return t;
  }
  bool causal;
  std::int64_t ahead, n;
};

/// Calls run(t, count, height) for tiles [t, end) in groups of one height.
template <class F>
void each_height(const RowTiles& tiles, std::int64_t t, std::int64_t end, const F& run) {
  const std::int64_t middle = std::clamp(tiles.tall, t, end);
  if (t < middle) run(t, middle - t, static_cast<int>(tiles.low + 1));
  if (middle < end) run(middle, end - middle, static_cast<int>(tiles.low));
}

/// Rows that scores are made of: packed by tiles, or `step` apart where they are.
template <class T>
struct ScoreRows {
  const T* data = nullptr;
  std::int64_t step = 0;  ///< 0: packed
};

/// What the tiles reach of columns [j, …) of a @ b; b packed by columns, `columns` of them.
template <class T>
void multiply_scores(const ScoreRows<T>& a, const RowTiles& tiles, std::int64_t k, const T* b, std::int64_t columns,
                     std::int64_t j, const Reach& reach, T* scores) {
  for (std::int64_t q = 0; q < reach.n; q += kTileCols<T>) {
    const int width = panel_width<T>(columns, j + q);
    each_height(tiles, reach.first(tiles, q), tiles.count, [&](std::int64_t t, std::int64_t count, int height) {
      const bool packed = a.step == 0;
      const std::int64_t row = packed ? k : a.step;
      TileRun<T> run{count, k, a.data + tiles.begin(t) * row, height * row, packed ? height : row};
      run.b = b + (j + q) * k;
      run.b_step = width;
      run.to = scores + tiles.begin(t) * kScoreStep<T> + q;
      run.to_next = height * kScoreStep<T>;
      run.to_step = kScoreStep<T>;
      run_tiles<T>(height, width / kVector<T>, packed ? AForm::Columns : AForm::Rows, run);
    });
  }
}

/// sums += scores @ b over the columns [j, …) that the tiles reach, which are rows of b; b packed, `columns` rows long.
/// `first`: sums of tiles that reach any are set.
template <class T>
void add_scores(const Sums<T>& sums, const T* scores, const RowTiles& tiles, const Reach& reach, const T* b,
                std::int64_t columns, std::int64_t j, bool first = false) {
  for (std::int64_t q = 0; q < sums.n; q += kTileCols<T>) {
    const int width = panel_width<T>(sums.n, q);
    const auto add = [&](std::int64_t t, std::int64_t count, int height) {
      TileRun<T> run{count, reach.of(tiles, t), scores + tiles.begin(t) * kScoreStep<T>, height * kScoreStep<T>,
                     kScoreStep<T>};
      run.b = b + q * columns + j * width;
      run.b_step = run.to_step = width;
      run.to = sums.block(tiles, t, q);
      run.from = first ? nullptr : run.to;
      run.to_next = run.from_next = height * sums.padded;
      run_tiles<T>(height, width / kVector<T>, AForm::Rows, run);
    };
    // Tiles on the diagonal have sizes of their own, those below it need all columns.
    std::int64_t t = reach.first(tiles, 0);
    for (; t < tiles.count && reach.of(tiles, t) < reach.n; ++t) add(t, 1, tiles.height(t));
    each_height(tiles, t, tiles.count, add);
  }
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

/// Rows from i on for multiply_scores, packed at `room` unless they can stay: rows a multiple of 2048 bytes apart push
/// each other out of the first cache. Tiles of narrow vectors were tuned with packed rows.
template <class T>
ScoreRows<T> score_rows(const HeadView<T>& from, std::int64_t i, std::int64_t k, const RowTiles& tiles, T* room) {
  if (!kNarrowVectors && from.col == 1 && from.row * static_cast<std::int64_t>(sizeof(T)) % 2048 != 0)
    return {from.at(i), from.row};
  pack_rows<T>(from.at(i), from.row, from.col, k, tiles, room);
  return {room};
}

/// Packs kᵀ for scores: scaled, unless that would leave T's range. Returns what scores still have to be multiplied by.
template <class T>
T pack_keys(const T* k, std::int64_t row, std::int64_t col, std::int64_t depth, std::int64_t cols, double scale,
            T* to) {
  pack_columns<T>(k, col, row, depth, cols, to);
  const std::int64_t size = padded_columns<T>(cols) * depth;
  const T by = static_cast<T>(scale * kScoreUnit<T>);
  if (HWY_UNLIKELY(std::abs(by) > 1)) {
    const hn::ScalableTag<T> d;
    auto most = hn::Zero(d);
    for (std::int64_t i = 0; i < size; i += kVector<T>) most = hn::Max(hn::Abs(hn::LoadU(d, to + i)), most);
    if (std::isinf(hn::GetLane(hn::MaxOfLanes(d, most)) * by)) return by;
  }
  scale_packed(to, size, by);
  return 1;
}

/// The greatest sum of squares of `count` columns that lie side by side, over k rows that are `step` apart. May read a
/// vector from the last of them.
template <class T>
T greatest_square(const T* p, std::int64_t k, std::int64_t step, int count) {
  const hn::ScalableTag<T> d;
  constexpr int L = kVector<T>;
  auto best = hn::Zero(d);
  for (int c = 0; c < count; c += L, p += L) {
    auto a = hn::Zero(d), b = a;
    std::int64_t i = 0;
    for (; i + 2 <= k; i += 2) {
      const auto x = hn::LoadU(d, p + i * step), y = hn::LoadU(d, p + (i + 1) * step);
      a = hn::MulAdd(x, x, a);
      b = hn::MulAdd(y, y, b);
    }
    if (i < k) b = hn::MulAdd(hn::LoadU(d, p + i * step), hn::LoadU(d, p + i * step), b);
    const auto sum = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count - c)), hn::Add(a, b));
    best = hn::Max(sum, best);
  }
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

template <class T>
void pack_attention(const cpu::AttentionForward& f, std::int64_t at, void* packed) {
  const cpu::AttentionShape& s = f.shape;
  const HeadView<T> k(f.k, at / s.groups, at % s.groups), v(f.v, at / s.groups, at % s.groups);
  T* const to = static_cast<T*>(packed);
  const T by = pack_keys<T>(k.data, k.row, k.col, s.depth, s.cols, f.params.scale, to);
  to[s.packed - 2] = by;
  pack_columns<T>(v.data, v.row, v.col, s.cols, s.depth_v, to + s.packed_k);
  if constexpr (kBinaryScores<T>) {
    T& most = to[s.packed - 1] = by == 1 ? T(0) : std::numeric_limits<T>::infinity();
    for (std::int64_t q = 0; by == 1 && q < s.cols; q += kTileCols<T>) {
      const int width = panel_width<T>(s.cols, q);
      most = std::max(most, greatest_square(to + q * s.depth, s.depth, width, width));
    }
  }
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

  /// Scores s of columns [j, j + n) of row i, times `by`: masked ones become -inf, and so do those up to a whole vector
  /// beyond.
  void mask(T* s, std::int64_t i, std::int64_t j, std::int64_t n, T by) const {
    if (HWY_UNLIKELY(by != 1)) scale_packed(s, n, by);
    if (at_) add_mask(s, i, j, n);
    const std::int64_t end = (n + kVector<T> - 1) / kVector<T> * kVector<T>;
    for (std::int64_t c = seen(i, j, n); c < end; ++c) s[c] = -std::numeric_limits<T>::infinity();
  }
  /// Whether masked scores whose greatest is `most` need set_huge before they are compared.
  bool huge(T most) const {
    if constexpr (!kBinaryScores<T>) return false;
    return at_ && mask_.dtype != DType::Bool && std::abs(most) > kScoreUnit<T> * kHugeMask;
  }
  /// Sets those of the scores that mask() was given to which a huge mask was added.
  void set_huge(T* s, std::int64_t i, std::int64_t j, std::int64_t n) const {
    const std::int64_t step = mask_.stride(3), end = seen(i, j, n);
    const auto* m = reinterpret_cast<const T*>(at_) + i * mask_.stride(2) + j * step;
    for (std::int64_t c = 0; c < end; ++c) {
      const T near = std::clamp(m[c * step], T(-kHugeMask), T(kHugeMask)), rest = m[c * step] - near;
      if (rest != 0 && !std::isnan(s[c])) s[c] = kScoreUnit<T> * near + T(kHugeSlope) * rest;
    }
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
  /// Those of n columns from j on that row i sees.
  std::int64_t seen(std::int64_t i, std::int64_t j, std::int64_t n) const {
    return params_.causal ? std::clamp<std::int64_t>(i + 1 - j, 0, n) : n;
  }
  void add_mask(T* s, std::int64_t i, std::int64_t j, std::int64_t n) const {
    const std::int64_t row = i * mask_.stride(2) + j * mask_.stride(3), step = mask_.stride(3);
    if (mask_.dtype == DType::Bool) {
      const auto* m = reinterpret_cast<const std::uint8_t*>(at_) + row;
      for (std::int64_t c = 0; c < n; ++c) s[c] = m[c * step] ? s[c] : -std::numeric_limits<T>::infinity();
    } else {
      const auto* m = reinterpret_cast<const T*>(at_) + row;
      if (step == 1)
        for (std::int64_t c = 0; c < n; ++c) s[c] += kScoreUnit<T> * m[c];
      else
        for (std::int64_t c = 0; c < n; ++c) s[c] += kScoreUnit<T> * m[c * step];
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
  explicit DropoutRoom(bool used) {
    if (used) std::fill_n(keep, std::size(keep), T(0));
  }
  alignas(64) T keep[kForwardCols<T> + kVector<T>];
  alignas(64) std::uint32_t words[kForwardCols<T> + 8 + cpu::kRandomChunk];
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

/// s = exp_of_score(s - max) over n elements, n whole vectors; returns their sums by lanes. `kWhole`: max is whole and
/// small.
template <bool kWhole, class T>
HWY_INLINE auto exponentiate(T* s, std::int64_t n, T max) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = kVector<T>;
  auto sum = hn::Zero(d);
  if constexpr (kWhole) {
    const auto low = hn::Set(d, max - 127), magic = hn::Set(d, kMagic - max);
    for (std::int64_t c = 0; c < n; c += L) {
      const auto x = power_of_2(d, hn::LoadU(d, s + c), low, magic);
      sum = hn::Add(sum, x);
      hn::StoreU(x, d, s + c);
    }
  } else {
    const auto m = hn::Set(d, max);
    for (std::int64_t c = 0; c < n; c += L) {
      const auto x = exp_of_score(d, hn::Sub(hn::LoadU(d, s + c), m));
      sum = hn::Add(sum, x);
      hn::StoreU(x, d, s + c);
    }
  }
  return sum;
}

/// A task of the forward pass.
template <class T>
class ForwardChunk {
 public:
  ForwardChunk(const cpu::AttentionForward& f, std::int64_t at, std::int64_t chunk, const T* packed)
      : f_(f),
        s_(f.shape),
        k_(packed),
        v_(packed + f.shape.packed_k),
        batch_(at / s_.heads),
        head_(at % s_.heads),
        first_(chunk * s_.chunk),
        tiles_(std::min(s_.chunk, s_.rows - first_)),
        rules_(s_, f.mask, f.params, batch_, head_),
        dropout_(rules_.drops()) {}

  void run() {
    constexpr std::int64_t cols = kForwardCols<T>;
    const std::int64_t rows = tiles_.rows, padded = whole_lines<T>(rows);
    const std::int64_t q_size = whole_lines<T>(packed_a_size<T>(rows, s_.depth)),
                       sums_size = whole_lines<T>(Sums<T>::size(rows, s_.depth_v));
    const cpu::HostBuffer<T> room(q_size + rows * kScoreStep<T> + sums_size + padded * (1 + kVector<T>));
    T* const q = room.data();
    scores_ = q + q_size;
    const Sums<T> out(scores_ + rows * kScoreStep<T>, s_.depth_v);
    max_ = out.data + sums_size;
    total_ = max_ + padded;
    const ScoreRows<T> query = score_rows(HeadView<T>(f_.q, batch_, head_), first_, s_.depth, tiles_, q);
    T most = -std::numeric_limits<T>::infinity();
    if constexpr (kBinaryScores<T>) {
      const T all = bound(query);
      bounded_ = all <= kBound;
      if (bounded_) most = all;
    }
    std::fill_n(max_, padded, most);
    std::fill_n(total_, padded * kVector<T>, T(0));
    const std::int64_t end = rules_.visible(first_ + rows);
    if (end == 0) out.clear(rows);
    for (std::int64_t j = 0; j < end; j += cols) {
      const Reach reach{f_.params.causal, first_ - j, std::min(cols, end - j)};
      multiply_scores(query, tiles_, s_.depth, k_, s_.cols, j, reach, scores_);
      for (std::int64_t t = reach.first(tiles_, 0); t < tiles_.count; ++t) soften(out, t, j, reach.of(tiles_, t));
      add_scores(out, scores_, tiles_, reach, v_, s_.cols, j, j == 0);
    }
    finish(out);
  }

 private:
  /// What no score exceeds, a whole number; infinite if nothing is known.
  T bound(const ScoreRows<T>& q) const {
    if (f_.mask.defined() && f_.mask.dtype != DType::Bool) return std::numeric_limits<T>::infinity();
    T most = 0;
    if (q.step == 0)
      for (std::int64_t t = 0; t < tiles_.count; ++t) {
        const int height = tiles_.height(t);
        most = std::max(most, greatest_square(q.data + tiles_.begin(t) * s_.depth, s_.depth, height, height));
      }
    else
      for (std::int64_t i = 0; i < tiles_.rows; ++i) {
        const T* const row = q.data + i * q.step;
        most = std::max(most, dot_of(row, 1, row, 1, s_.depth));
      }
    return std::ceil(std::sqrt(most * k_[s_.packed - 1]));
  }

  /// Scores of columns [j, j + n) of tile t to exponentials; earlier sums are brought to new maxima.
  void soften(const Sums<T>& out, std::int64_t t, std::int64_t j, std::int64_t n) {
    const std::int64_t first = tiles_.begin(t), end = (n + kVector<T> - 1) / kVector<T> * kVector<T>;
    const int height = tiles_.height(t);
    T now[kTileRows];  // all rows first: their last steps overlap
    for (int r = 0; r < height; ++r) {
      T* const s = scores_ + (first + r) * kScoreStep<T>;
      rules_.mask(s, first_ + first + r, j, n, k_[s_.packed - 2]);
      if (bounded_) continue;
      now[r] = greatest(s, end);
      if (HWY_UNLIKELY(rules_.huge(now[r]))) {
        rules_.set_huge(s, first_ + first + r, j, n);
        now[r] = greatest(s, end);
      }
    }
    for (int r = 0; r < height; ++r) {
      const std::int64_t i = first + r;
      T* const s = scores_ + i * kScoreStep<T>;
      if (bounded_) {
        add_to_total(i, exponentiate<kBinaryScores<T>>(s, end, max_[i]));
      } else {
        if (now[r] > max_[i] + kScoreSlack<T>) raise(out, t, r, now[r]);
        add_to_total(i, exponentiate<false>(s, end, max_[i] == -std::numeric_limits<T>::infinity() ? T(0) : max_[i]));
      }
      if (!rules_.drops()) continue;
      rules_.draw(dropout_.keep, dropout_.words, first_ + i, j, n);
      for (std::int64_t c = 0; c < n; ++c) s[c] *= dropout_.keep[c];
    }
  }

  template <class V>
  void add_to_total(std::int64_t i, V sum) {
    const hn::ScalableTag<T> d;
    T* const at = total_ + i * kVector<T>;
    hn::Store(hn::Add(sum, hn::Load(d, at)), d, at);
  }

  /// Brings the sums of row r of tile t to a new maximum.
  void raise(const Sums<T>& out, std::int64_t t, int r, T now) {
    const std::int64_t i = tiles_.begin(t) + r;
    if (max_[i] != -std::numeric_limits<T>::infinity()) {
      const T by = kScoreUnit<T> == T(1) ? std::exp(max_[i] - now) : std::exp2(max_[i] - now);
      scale_packed(total_ + i * kVector<T>, kVector<T>, by);
      out.scale_row(tiles_, t, r, by);
    }
    max_[i] = now;
  }

  void finish(const Sums<T>& out) const {
    const hn::ScalableTag<T> d;
    for (std::int64_t i = 0; i < tiles_.rows; ++i)
      total_[i] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, total_ + i * kVector<T>)));
    // A bound is whole: its power of 2 loses nothing, and the logarithm is rounded once.
    const auto power = hn::Set(d, bounded_ ? std::exp2(max_[0]) : T(1));
    for (std::int64_t i = 0; i < tiles_.rows; i += kVector<T>) {
      const auto total = hn::LoadU(d, total_ + i), one = hn::Set(d, T(1));
      auto sum = cpu::HWY_NAMESPACE::vec_log(d, hn::Mul(total, power));
      if (!bounded_) sum = hn::MulAdd(hn::LoadU(d, max_ + i), hn::Set(d, 1 / kScoreUnit<T>), sum);
      hn::StoreU(sum, d, max_ + i);
      hn::StoreU(hn::IfThenElseZero(hn::Ne(total, hn::Zero(d)), hn::Div(one, total)), d, total_ + i);
    }
    std::copy_n(max_, tiles_.rows, f_.lse.ptr<T>() + (batch_ * s_.heads + head_) * s_.rows + first_);
    const HeadView<T> to(f_.out, batch_, head_);
    for (std::int64_t t = 0; t < tiles_.count; ++t)
      for (int r = 0; r < tiles_.height(t); ++r) {
        const std::int64_t i = tiles_.begin(t) + r;
        out.write_row(tiles_, t, r, to.at(first_ + i), to.col, total_[i]);
      }
  }

  const cpu::AttentionForward& f_;
  const cpu::AttentionShape& s_;
  const T *const k_, *const v_;  // packed
  const std::int64_t batch_, head_, first_;
  const RowTiles tiles_;
  const ScoreRules<T> rules_;
  T *scores_ = nullptr, *max_ = nullptr;
  T* total_ = nullptr;  ///< a row's sums by lanes
  bool bounded_ = false;
  DropoutRoom<T> dropout_;
};

template <class T>
void forward_attention(const cpu::AttentionForward& f, std::int64_t at, std::int64_t chunk, const void* packed) {
  ForwardChunk<T>(f, at, chunk, static_cast<const T*>(packed)).run();
}

}  // namespace
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
