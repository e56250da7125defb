/// Folding dense rows and columns by a vector operation. Included once per target. An operation `Op` has
///   Elem, State             element type and what an output accumulates in
///   identity()              of Elem
///   accumulate(d, acc, x)   acc with x taken in (vectors)
///   combine(d, a, b)        of two accumulators
///   join(State, State)      of two states; an Elem accumulator converts to a State
#if defined(ATHANOR_REDUCE_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_REDUCE_FOLD_INL_H_
#undef ATHANOR_REDUCE_FOLD_INL_H_
#else
#define ATHANOR_REDUCE_FOLD_INL_H_
#endif

#include <algorithm>

#include "athanor/device/cpu/reduce_core.h"
#include "athanor/device/cpu/simd_tail-inl.h"
#include "athanor/device/cpu/wide_vectors.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Elements after which lane accumulators go to the state: bounds the rounding error of long sums.
template <class T>
inline constexpr std::int64_t kFoldPiece = 256 * static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
/// The same for rows folded into columns.
inline constexpr std::int64_t kFoldRows = 128;

template <class Op, class D>
HWY_INLINE hn::Vec<D> accumulate_tail(D d, const Op& op, hn::Vec<D> acc, const hn::TFromD<D>* p, std::int64_t n) {
  return hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(n)), op.accumulate(d, acc, load_tail(d, p, n)), acc);
}

template <class Op, class D>
HWY_INLINE hn::TFromD<D> across_lanes(D d, const Op& op, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) >= 4) {
    v = op.combine(d, v, hn::Reverse(d, v));
    if constexpr (hn::MaxLanes(d) >= 16) v = op.combine(d, v, hn::Reverse8(d, v));
    if constexpr (hn::MaxLanes(d) >= 8) v = op.combine(d, v, hn::Reverse4(d, v));
    if constexpr (hn::MaxLanes(d) >= 4) v = op.combine(d, v, hn::Reverse2(d, v));
    return hn::GetLane(v);
  } else {
    alignas(64) T lanes[hn::MaxLanes(d)];
    hn::Store(v, d, lanes);
    T best = lanes[0];
    for (std::size_t i = 1; i < hn::MaxLanes(d); ++i) best = Op::join(best, lanes[i]);
    return best;
  }
}

/// Folds the first n / (8 L) * 8 L elements into eight accumulators. Where the hardware fetches ahead within a page
/// only, what lies ahead is asked for; in the second cache and beyond that gains a fifth to a half. Elsewhere it costs:
/// AMD's Zen 3 reads 1e8 elements a quarter slower for it, Zen 4 takes up to twice as long.
template <class Op, class D>
HWY_INLINE hn::Vec<D> fold_parts(D d, const Op& op, const hn::TFromD<D>* HWY_RESTRICT p, std::int64_t n) {
  using T = hn::TFromD<D>;
  constexpr std::int64_t L = hn::MaxLanes(d);
  constexpr std::int64_t kAhead = kAskedAhead / sizeof(T), kLine = 64 / sizeof(T);
  const bool ask_ahead = hn::MaxLanes(d) * sizeof(T) >= 64 && walks_pages_in_step();
  auto a0 = hn::Set(d, Op::identity());
  auto a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0;
  for (std::int64_t turns = n / (8 * L); turns > 0; --turns, p += 8 * L) {
    if (ask_ahead)
      for (std::int64_t i = 0; i < 8 * L; i += kLine) hwy::Prefetch(p + kAhead + i);
    a0 = op.accumulate(d, a0, hn::LoadU(d, p));
    a1 = op.accumulate(d, a1, hn::LoadU(d, p + L));
    a2 = op.accumulate(d, a2, hn::LoadU(d, p + 2 * L));
    a3 = op.accumulate(d, a3, hn::LoadU(d, p + 3 * L));
    a4 = op.accumulate(d, a4, hn::LoadU(d, p + 4 * L));
    a5 = op.accumulate(d, a5, hn::LoadU(d, p + 5 * L));
    a6 = op.accumulate(d, a6, hn::LoadU(d, p + 6 * L));
    a7 = op.accumulate(d, a7, hn::LoadU(d, p + 7 * L));
  }
  a0 = op.combine(d, op.combine(d, a0, a4), op.combine(d, a2, a6));
  a1 = op.combine(d, op.combine(d, a1, a5), op.combine(d, a3, a7));
  return op.combine(d, a0, a1);
}

template <class Op>
HWY_INLINE typename Op::Elem fold_piece(const Op& op, const typename Op::Elem* HWY_RESTRICT p, std::int64_t n) {
  const hn::ScalableTag<typename Op::Elem> d;
  constexpr std::int64_t L = hn::MaxLanes(d);
  auto a0 = hn::Set(d, Op::identity());
  std::int64_t i = n / (8 * L) * 8 * L;
  if (i) a0 = fold_parts(d, op, p, n);
  for (; i + L <= n; i += L) a0 = op.accumulate(d, a0, hn::LoadU(d, p + i));
  if (i < n) a0 = accumulate_tail(d, op, a0, p + i, n - i);
  return across_lanes(d, op, a0);
}

template <class Op>
void fold_rows(void* states, const void* in, std::int64_t stride, std::int64_t rows, std::int64_t n, double param) {
  using T = typename Op::Elem;
  using S = typename Op::State;
  const Op op(param);
  auto* s = static_cast<S*>(states);
  const auto* p = static_cast<const T*>(in);
  for (std::int64_t r = 0; r < rows; ++r, p += stride)
    for (std::int64_t i = 0; i < n; i += kFoldPiece<T>)
      s[r] = Op::join(s[r], static_cast<S>(fold_piece(op, p + i, std::min(kFoldPiece<T>, n - i))));
}

/// Rows folded at once. Often they lie a multiple of 4096 bytes apart: a line of each of eight fills a set of the first
/// cache, and with AVX2 it is read by two loads.
inline constexpr int kGroupRows = HWY_TARGET == HWY_AVX2 ? 4 : 8;

template <int kRows, class Op, class T = typename Op::Elem>
HWY_INLINE void fold_row_group(const Op& op, T* HWY_RESTRICT acc, const T* HWY_RESTRICT p, std::int64_t stride,
                               std::int64_t columns) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = hn::MaxLanes(d);
  const auto take = [&](std::int64_t c, auto&& load) HWY_ATTR {
    auto a = hn::Load(d, acc + c);
    if constexpr (kRows == 1) {
      a = op.accumulate(d, a, load(p + c));
    } else {
      auto b = hn::Set(d, Op::identity());
      for (int r = 0; r < kRows; r += 2) {
        a = op.accumulate(d, a, load(p + r * stride + c));
        b = op.accumulate(d, b, load(p + (r + 1) * stride + c));
      }
      a = op.combine(d, a, b);
    }
    hn::Store(a, d, acc + c);
  };
  const auto load = [&](const T* q) HWY_ATTR { return hn::LoadU(d, q); };
  std::int64_t c = 0;
  if constexpr (HWY_TARGET == HWY_AVX2 && kRows > 2)
    for (; c + 2 * L <= columns; c += 2 * L) {
      take(c, load);
      take(c + L, load);
    }
  for (; c + L <= columns; c += L) take(c, load);
  if (c < columns) take(c, [&](const T* q) HWY_ATTR { return load_tail(d, q, columns - c); });
}

template <class Op>
void fold_columns(void* states, const void* in, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                  double param) {
  using T = typename Op::Elem;
  using S = typename Op::State;
  const Op op(param);
  auto* s = static_cast<S*>(states);
  const auto* p = static_cast<const T*>(in);
  alignas(64) T acc[kReduceStrip + 64];
  while (rows > 0) {
    const std::int64_t m = std::min(rows, kFoldRows);
    std::fill_n(acc, columns + 64, Op::identity());  // the last vector may reach beyond the columns
    std::int64_t r = 0;
    for (; r + kGroupRows <= m; r += kGroupRows) fold_row_group<kGroupRows>(op, acc, p + r * stride, stride, columns);
    for (; r + 2 <= m; r += 2) fold_row_group<2>(op, acc, p + r * stride, stride, columns);
    if (r < m) fold_row_group<1>(op, acc, p + r * stride, stride, columns);
    for (std::int64_t c = 0; c < columns; ++c) s[c] = Op::join(s[c], static_cast<S>(acc[c]));
    p += m * stride;
    rows -= m;
  }
}

template <class Op>
void init_states(void* states, std::int64_t n) {
  std::fill_n(static_cast<typename Op::State*>(states), n, static_cast<typename Op::State>(Op::identity()));
}

template <class Op>
void join_states(void* states, const void* others, std::int64_t n) {
  auto* s = static_cast<typename Op::State*>(states);
  const auto* o = static_cast<const typename Op::State*>(others);
  for (std::int64_t i = 0; i < n; ++i) s[i] = Op::join(s[i], o[i]);
}

template <class Op>
Reducer make_reducer(DType compute, DType result) {
  return {compute,          result, sizeof(typename Op::State), &init_states<Op>, &fold_rows<Op>, &fold_columns<Op>,
          &join_states<Op>, nullptr};
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
