// Fused attention, backward: scores are computed again, block by block (algorithm of FlashAttention; see
// ops/kernels/attention.h). Compiled once per SIMD target; included by kernel files after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_ATTENTION_BACKWARD_INL_H_
#undef ATHANOR_DEVICE_CPU_ATTENTION_BACKWARD_INL_H_
#else
#define ATHANOR_DEVICE_CPU_ATTENTION_BACKWARD_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {  // each kernel file has its own

/// A task of the backward pass: some columns of one head of k, all heads of q that read it, all rows.
template <class T>
class BackwardPart {
 public:
  BackwardPart(const cpu::AttentionBackward& b, std::int64_t at, std::int64_t part)
      : b_(b),
        s_(b.shape),
        batch_(at / s_.groups),
        group_(at % s_.groups),
        part_(part),
        first_(part * s_.columns_part),
        cols_(std::clamp<std::int64_t>(s_.cols - first_, 0, s_.columns_part)),
        dropout_(b.params.dropout > 0) {}

  void run() {
    allocate();
    const HeadView<T> k(b_.k, batch_, group_), v(b_.v, batch_, group_);
    score_by_ = pack_keys<T>(k.at(first_), k.row, k.col, s_.depth, cols_, b_.params.scale, kt_);
    pack_columns<T>(v.at(first_), v.col, v.row, s_.depth_v, cols_, vt_);
    pack_columns<T>(k.at(first_), k.row, k.col, cols_, s_.depth, k_);
    sums_k().clear(cols_);
    sums_v().clear(cols_);
    const std::int64_t each = s_.heads / s_.groups;
    for (std::int64_t head = group_ * each; head < (group_ + 1) * each; ++head)
      for (std::int64_t i = 0; i < s_.rows; i += kRows) rows(head, i, std::min<std::int64_t>(kRows, s_.rows - i));
    write(b_.dk, sums_k(), static_cast<T>(b_.params.scale));
    write(b_.dv, sums_v(), T(1));
  }

 private:
  static constexpr std::int64_t kRows = kBackwardTiles * kTileRows, kCols = kBackwardCols<T>;
  static constexpr T kInf = std::numeric_limits<T>::infinity();
  /// Beyond this the logarithm of a row's sum, rounded, would spoil the probabilities, or has lost the sum altogether.
  static constexpr T kFar = T(0x1p-13) / std::numeric_limits<T>::epsilon();

  void allocate() {
    const std::int64_t sizes[] = {packed_b_size<T>(s_.depth, cols_),
                                  packed_b_size<T>(s_.depth_v, cols_),
                                  packed_b_size<T>(cols_, s_.depth),
                                  Sums<T>::size(cols_, s_.depth),
                                  Sums<T>::size(cols_, s_.depth_v),
                                  packed_a_size<T>(kRows, s_.depth),
                                  packed_b_size<T>(kRows, s_.depth),
                                  packed_a_size<T>(kRows, s_.depth_v),
                                  packed_b_size<T>(kRows, s_.depth_v),
                                  Sums<T>::size(kRows, s_.depth),
                                  kRows * kScoreStep<T>,
                                  kRows * kScoreStep<T>,
                                  kRows,
                                  kRows,
                                  kRows};
    T** const places[] = {&kt_, &vt_, &k_,      &dk_,     &dv_,    &qa_,    &qb_,   &ga_,
                          &gb_, &dq_, &scores_, &slopes_, &delta_, &shift_, &share_};
    std::int64_t total = 0;
    for (const std::int64_t n : sizes) total += whole_lines<T>(n);
    room_ = cpu::HostBuffer<T>(total);
    T* p = room_.data();
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
      *places[i] = p;
      p += whole_lines<T>(sizes[i]);
    }
  }

  Sums<T> sums_k(std::int64_t from = 0) const { return Sums<T>(dk_ + from * padded_columns<T>(s_.depth), s_.depth); }
  Sums<T> sums_v(std::int64_t from = 0) const {
    return Sums<T>(dv_ + from * padded_columns<T>(s_.depth_v), s_.depth_v);
  }

  /// Rows [i, i + m) of a head of q.
  void rows(std::int64_t head, std::int64_t i, std::int64_t m) {
    const ScoreRules<T> rules(s_, b_.mask, b_.params, batch_, head);
    const std::int64_t end = std::min(rules.visible(i + m) - first_, cols_);
    const RowTiles tiles(m);
    const Sums<T> dq(dq_, s_.depth);
    dq.clear(m);
    if (end > 0) {
      pack_block(head, i, tiles);
      find_shifts(rules, head, i, tiles);
    }
    for (std::int64_t j = 0; j < end; j += kCols) block(rules, i, tiles, j, std::min(kCols, end - j));
    if (!b_.dq.defined()) return;
    const T scale = static_cast<T>(b_.params.scale);
    if (b_.partial) {
      const std::int64_t place = ((part_ * s_.batch + batch_) * s_.heads + head) * s_.rows + i;
      dq.write(tiles, static_cast<T*>(b_.partial) + place * s_.depth, s_.depth, 1, scale);
    } else {
      const HeadView<T> to(b_.dq, batch_, head);
      dq.write(tiles, to.at(i), to.row, to.col, scale);
    }
  }

  /// Prepares q and the gradient as both operands, and sums gradient times result of each row.
  void pack_block(std::int64_t head, std::int64_t i, const RowTiles& tiles) {
    const HeadView<T> q(b_.q, batch_, head), g(b_.grad, batch_, head), out(b_.out, batch_, head);
    const std::int64_t m = tiles.rows;
    q_rows_ = score_rows(q, i, s_.depth, tiles, qa_);
    g_rows_ = score_rows(g, i, s_.depth_v, tiles, ga_);
    pack_columns<T>(q.at(i), q.row, q.col, m, s_.depth, qb_);
    pack_columns<T>(g.at(i), g.row, g.col, m, s_.depth_v, gb_);
    for (std::int64_t r = 0; r < m; ++r) delta_[r] = dot_of(g.at(i + r), g.col, out.at(i + r), out.col, s_.depth_v);
  }

  static bool is_far(T lse) { return std::abs(lse) > kFar && lse != kInf && lse != -kInf; }

  /// A row's probabilities are share · exp_of_score(scores - shift).
  void find_shifts(const ScoreRules<T>& rules, std::int64_t head, std::int64_t i, const RowTiles& tiles) {
    const T* const lse = b_.lse.ptr<T>() + (batch_ * s_.heads + head) * s_.rows + i;
    bool far = false;
    for (std::int64_t r = 0; r < tiles.rows; ++r) {
      shift_[r] = lse[r] == -kInf ? kInf : lse[r] * kScoreUnit<T>;
      share_[r] = 1;
      far = far || is_far(lse[r]);
    }
    if (far) sum_again(rules, i, tiles, lse);
  }

  /// Maxima and sums of far rows over all columns, as the forward pass had them.
  void sum_again(const ScoreRules<T>& rules, std::int64_t i, const RowTiles& tiles, const T* lse) {
    const HeadView<T> k(b_.k, batch_, group_);
    const cpu::HostBuffer<T> packed(packed_b_size<T>(s_.depth, kCols));
    for (std::int64_t r = 0; r < tiles.rows; ++r)
      if (is_far(lse[r])) shift_[r] = -kInf, share_[r] = 0;
    const std::int64_t end = rules.visible(i + tiles.rows);
    for (std::int64_t j = 0; j < end; j += kCols) {
      const std::int64_t n = std::min(kCols, end - j);
      const T by = pack_keys<T>(k.at(j), k.row, k.col, s_.depth, n, b_.params.scale, packed.data());
      const Reach reach{b_.params.causal, i - j, n};
      multiply_scores(q_rows_, tiles, s_.depth, packed.data(), n, 0, reach, scores_);
      for (std::int64_t t = reach.first(tiles, 0); t < tiles.count; ++t)
        for (std::int64_t r = tiles.begin(t); r < tiles.begin(t + 1); ++r)
          if (is_far(lse[r])) add_to_sum(rules, i, r, j, reach.of(tiles, t), by);
    }
    for (std::int64_t r = 0; r < tiles.rows; ++r)
      if (is_far(lse[r])) share_[r] = 1 / share_[r];
  }

  /// Adds n columns from j on, their scores times `by`, to the sum of row r, which share_ holds; i: the first row.
  void add_to_sum(const ScoreRules<T>& rules, std::int64_t i, std::int64_t r, std::int64_t j, std::int64_t n, T by) {
    T* const s = scores_ + r * kScoreStep<T>;
    const std::int64_t end = (n + kVector<T> - 1) / kVector<T> * kVector<T>;
    rules.mask(s, i + r, j, n, by);
    T most = greatest(s, end);
    if (rules.huge(most)) {
      rules.set_huge(s, i + r, j, n);
      most = greatest(s, end);
    }
    if (most > shift_[r]) {
      share_[r] *= kScoreUnit<T> == T(1) ? std::exp(shift_[r] - most) : std::exp2(shift_[r] - most);
      shift_[r] = most;
    }
    const hn::ScalableTag<T> d;
    if (shift_[r] != -kInf) share_[r] += hn::GetLane(hn::SumOfLanes(d, exponentiate<false>(s, end, shift_[r])));
  }

  void block(const ScoreRules<T>& rules, std::int64_t i, const RowTiles& tiles, std::int64_t j, std::int64_t n) {
    const Reach reach{b_.params.causal, i - first_ - j, n};
    multiply_scores(q_rows_, tiles, s_.depth, kt_, cols_, j, reach, scores_);
    multiply_scores(g_rows_, tiles, s_.depth_v, vt_, cols_, j, reach, slopes_);
    // Sums of columns have the same tiles for all rows; what a tile has beyond a row's columns gets zeros.
    const RowTiles columns(std::min(kCols, cols_ - j));
    const std::int64_t last = columns.begin(columns.reaching(n));
    for (std::int64_t t = 0; t < tiles.count; ++t)
      for (std::int64_t r = tiles.begin(t); r < tiles.begin(t + 1); ++r) {
        T *s = scores_ + r * kScoreStep<T>, *g = slopes_ + r * kScoreStep<T>;
        const std::int64_t seen = reach.of(tiles, t), beyond = std::min(last - seen, std::int64_t{kTileRows});
        slope(rules, i, r, j, seen, s, g);
        std::fill_n(s + seen, beyond, T(0));
        std::fill_n(g + seen, beyond, T(0));
      }
    add_columns(sums_v(j), scores_, columns, reach, tiles.rows, gb_);
    add_columns(sums_k(j), slopes_, columns, reach, tiles.rows, qb_);
    add_scores(Sums<T>(dq_, s_.depth), slopes_, tiles, reach, k_, cols_, j);
  }

  /// sums += scoresᵀ @ b over the rows that see a column of a tile; b packed, `rows` long.
  static void add_columns(const Sums<T>& sums, const T* scores, const RowTiles& columns, const Reach& reach,
                          std::int64_t rows, const T* b) {
    const std::int64_t used = columns.reaching(reach.n);
    for (std::int64_t q = 0; q < sums.n; q += kTileCols<T>) {
      const int width = panel_width<T>(sums.n, q);
      const auto add = [&](std::int64_t t, std::int64_t count, int height) {
        const std::int64_t from = reach.causal ? std::max<std::int64_t>(columns.begin(t) - reach.ahead, 0) : 0;
        if (from >= rows) return;
        TileRun<T> run{count, rows - from, scores + from * kScoreStep<T> + columns.begin(t), height, kScoreStep<T>};
        run.b = b + q * rows + from * width;
        run.b_step = run.to_step = width;
        run.to = sums.block(columns, t, q);
        run.from = run.to;
        run.to_next = run.from_next = height * sums.padded;
        run_tiles<T>(height, width / kVector<T>, AForm::Columns, run);
      };
      // Tiles left of the diagonal need all rows, the others have sizes of their own.
      std::int64_t t = used;
      for (; reach.causal && t > 0 && columns.begin(t - 1) > reach.ahead; --t) add(t - 1, 1, columns.height(t - 1));
      each_height(columns, 0, t, add);
    }
  }

  /// The scores of row r of those from `first` on to probabilities as the forward used them, and their gradients to
  /// gradients of the scores.
  void slope(const ScoreRules<T>& rules, std::int64_t first, std::int64_t r, std::int64_t j, std::int64_t n, T* s,
             T* g) {
    const hn::ScalableTag<T> d;
    constexpr std::int64_t L = kVector<T>;
    const std::int64_t i = first + r;
    rules.mask(s, i, first_ + j, n, score_by_);
    if (HWY_UNLIKELY(rules.huge(2 * shift_[r]))) rules.set_huge(s, i, first_ + j, n);
    const auto shift = hn::Set(d, shift_[r]), share = hn::Set(d, share_[r]), less = hn::Set(d, delta_[r]);
    // What was rounded may be less than the greatest score. Min returns its second operand if one is NaN.
    const auto probability = [&](std::int64_t c) HWY_ATTR {
      return hn::Mul(exp_of_score(d, hn::Min(hn::Zero(d), hn::Sub(hn::LoadU(d, s + c), shift))), share);
    };
    if (rules.drops()) {
      rules.draw(dropout_.keep, dropout_.words, i, first_ + j, n);
      for (std::int64_t c = 0; c < n; c += L) {
        const auto p = probability(c);
        const auto keep = hn::Load(d, dropout_.keep + c);
        hn::StoreU(hn::Mul(p, hn::MulSub(hn::LoadU(d, g + c), keep, less)), d, g + c);
        hn::StoreU(hn::Mul(p, keep), d, s + c);
      }
      return;
    }
    for (std::int64_t c = 0; c < n; c += L) {
      const auto p = probability(c);
      hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, g + c), less)), d, g + c);
      hn::StoreU(p, d, s + c);
    }
  }

  void write(const View& to, const Sums<T>& all, T by) const {
    if (!to.defined()) return;
    const HeadView<T> head(to, batch_, group_);
    for (std::int64_t j = 0; j < cols_; j += kCols) {
      const RowTiles tiles(std::min(kCols, cols_ - j));
      Sums<T>(all.data + j * all.padded, all.n).write(tiles, head.at(first_ + j), head.row, head.col, by);
    }
  }

  const cpu::AttentionBackward& b_;
  const cpu::AttentionShape& s_;
  const std::int64_t batch_, group_, part_, first_, cols_;
  cpu::HostBuffer<T> room_;
  T score_by_ = 1;                                   // what pack_keys left to do
  T *kt_ = nullptr, *vt_ = nullptr, *k_ = nullptr;   // packed: kᵀ, vᵀ and k
  T *dk_ = nullptr, *dv_ = nullptr, *dq_ = nullptr;  // sums
  ScoreRows<T> q_rows_, g_rows_;                     // a block of q and of the gradient
  T *qa_ = nullptr, *qb_ = nullptr;                  // room for them packed by rows, and packed by columns
  T *ga_ = nullptr, *gb_ = nullptr;
  T *scores_ = nullptr, *slopes_ = nullptr, *delta_ = nullptr, *shift_ = nullptr, *share_ = nullptr;
  DropoutRoom<T> dropout_;
};

template <class T>
void backward_attention(const cpu::AttentionBackward& b, std::int64_t at, std::int64_t part) {
  BackwardPart<T>(b, at, part).run();
}

template <class T>
cpu::AttentionFns attention_fns() {
  return {&plan_attention<T>, &pack_attention<T>, &forward_attention<T>, &backward_attention<T>};
}

}  // namespace
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
