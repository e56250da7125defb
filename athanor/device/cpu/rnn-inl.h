// Steps of recurrent layers: a product with packed weights and the gates' arithmetic while its result is in the first
// cache. Compiled once per SIMD target; included by kernel files after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_RNN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_RNN_INL_H_
#undef ATHANOR_DEVICE_CPU_RNN_INL_H_
#else
#define ATHANOR_DEVICE_CPU_RNN_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/gemm_block.h"
#include "athanor/device/cpu/packed_product-inl.h"
#include "athanor/device/cpu/rnn.h"
#include "athanor/device/cpu/simd_math.h"
#include "athanor/device/cpu/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {  // each kernel file has its own

namespace simd = cpu::HWY_NAMESPACE;

/// Vectors of `m` values, whole or not.
template <class T>
struct Lanes {
  hn::ScalableTag<T> d;
  std::int64_t m;
  using V = hn::Vec<hn::ScalableTag<T>>;
  HWY_INLINE V load(const T* p) const { return m == kVector<T> ? hn::LoadU(d, p) : simd::load_tail(d, p, m); }
  HWY_INLINE void store(V v, T* p) const {
    if (m == kVector<T>)
      hn::StoreU(v, d, p);
    else
      simd::store_tail(d, v, p, m);
  }
};

/// Forward arithmetic of some units of one row. Gate g of unit u has `product[g · gate_step]` beside what was given.
template <class T>
struct ForwardCell {
  explicit ForwardCell(const cpu::RnnStep& s)
      : s(s),
        gates(static_cast<const T*>(s.gates)),
        bias(static_cast<const T*>(s.bias)),
        h(static_cast<const T*>(s.h)),
        h_next(static_cast<T*>(s.unprojected ? s.unprojected : s.h_next)),
        c(static_cast<T*>(s.c)),
        output(static_cast<T*>(s.unprojected ? nullptr : s.output)),
        work(static_cast<T*>(s.work)) {}

  /// Units [u, u + n) of row i; product is that of unit u.
  HWY_INLINE void operator()(std::int64_t i, std::int64_t u, std::int64_t n, const T* product,
                             std::int64_t gate_step) const {
    switch (s.mode) {
      case RnnMode::Lstm:
        return each(u, n,
                    [&](auto l, std::int64_t at, std::int64_t k) HWY_ATTR { lstm(l, i, at, product + k, gate_step); });
      case RnnMode::Gru:
        return each(u, n,
                    [&](auto l, std::int64_t at, std::int64_t k) HWY_ATTR { gru(l, i, at, product + k, gate_step); });
      default:
        return each(u, n, [&](auto l, std::int64_t at, std::int64_t k) HWY_ATTR { plain(l, i, at, product + k); });
    }
  }

 private:
  template <class F>
  HWY_INLINE void each(std::int64_t u, std::int64_t n, F&& fn) const {
    for (std::int64_t k = 0; k < n; k += kVector<T>)
      fn(Lanes<T>{{}, std::min<std::int64_t>(kVector<T>, n - k)}, u + k, k);
  }
  HWY_INLINE auto given(const Lanes<T>& l, std::int64_t i, std::int64_t g, std::int64_t u, const T* product) const {
    const std::int64_t count = rnn_gates(s.mode);
    return hn::Add(l.load(gates + (i * count + g) * s.hidden + u), l.load(product));
  }
  template <class V>
  HWY_INLINE void finish(const Lanes<T>& l, std::int64_t i, std::int64_t u, V value) const {
    // Unprojected states are H wide, and so is the state of a layer that does not project.
    l.store(value, h_next + i * s.hidden + u);
    if (output) l.store(value, output + i * s.hidden + u);
  }
  HWY_INLINE void lstm(const Lanes<T>& l, std::int64_t i, std::int64_t u, const T* product,
                       std::int64_t gate_step) const {
    const auto in = simd::vec_sigmoid(l.d, given(l, i, 0, u, product)),
               forget = simd::vec_sigmoid(l.d, given(l, i, 1, u, product + gate_step)),
               cell = simd::vec_tanh(l.d, given(l, i, 2, u, product + 2 * gate_step)),
               out = simd::vec_sigmoid(l.d, given(l, i, 3, u, product + 3 * gate_step));
    T* const state = c + i * s.hidden + u;
    const auto before = l.load(state), now = hn::MulAdd(forget, before, hn::Mul(in, cell));
    l.store(now, state);
    if (work) {
      T* const w = work + i * s.work_columns + u;
      l.store(in, w);
      l.store(forget, w + s.hidden);
      l.store(cell, w + 2 * s.hidden);
      l.store(out, w + 3 * s.hidden);
      l.store(before, w + 4 * s.hidden);
      if (!s.unprojected) l.store(l.load(h + i * s.hidden + u), w + 5 * s.hidden);
    }
    finish(l, i, u, hn::Mul(out, simd::vec_tanh(l.d, now)));
  }
  HWY_INLINE void gru(const Lanes<T>& l, std::int64_t i, std::int64_t u, const T* product,
                      std::int64_t gate_step) const {
    auto r = given(l, i, 0, u, product), z = given(l, i, 1, u, product + gate_step);
    auto hn_part = l.load(product + 2 * gate_step);
    if (bias) {
      r = hn::Add(r, l.load(bias + u));
      z = hn::Add(z, l.load(bias + s.hidden + u));
      hn_part = hn::Add(hn_part, l.load(bias + 2 * s.hidden + u));
    }
    r = simd::vec_sigmoid(l.d, r);
    z = simd::vec_sigmoid(l.d, z);
    const auto x = l.load(gates + (i * 3 + 2) * s.hidden + u);
    const auto fresh = simd::vec_tanh(l.d, hn::MulAdd(r, hn_part, x)), before = l.load(h + i * s.hidden + u);
    if (work) {
      T* const w = work + i * s.work_columns + u;
      l.store(r, w);
      l.store(z, w + s.hidden);
      l.store(fresh, w + 2 * s.hidden);
      l.store(hn_part, w + 3 * s.hidden);
      l.store(before, w + 4 * s.hidden);
    }
    finish(l, i, u, hn::MulAdd(z, hn::Sub(before, fresh), fresh));
  }
  HWY_INLINE void plain(const Lanes<T>& l, std::int64_t i, std::int64_t u, const T* product) const {
    const auto x = given(l, i, 0, u, product);
    // The second operand is what x86 returns for NaN: it stays.
    const auto y = s.mode == RnnMode::Tanh ? simd::vec_tanh(l.d, x) : hn::Max(hn::Zero(l.d), x);
    if (work) {
      T* const w = work + i * s.work_columns + u;
      l.store(y, w);
      l.store(l.load(h + i * s.hidden + u), w + s.hidden);
    }
    finish(l, i, u, y);
  }

  const cpu::RnnStep& s;
  const T *gates, *bias, *h;
  T *h_next, *c, *output, *work;
};

/// Gradients of the gates of some units of one row.
template <class T>
struct BackwardCell {
  explicit BackwardCell(const cpu::RnnStep& s)
      : s(s),
        work(static_cast<const T*>(s.work)),
        doutput(static_cast<const T*>(s.doutput)),
        dh(static_cast<T*>(s.dh)),
        dc(static_cast<T*>(s.dc)),
        dgates(static_cast<T*>(s.dgates)),
        slopes(static_cast<T*>(s.slopes)),
        cells(static_cast<T*>(s.cells)) {}

  HWY_INLINE void operator()(std::int64_t i, std::int64_t u, std::int64_t n) const {
    for (std::int64_t k = 0; k < n; k += kVector<T>) {
      const Lanes<T> l{{}, std::min<std::int64_t>(kVector<T>, n - k)};
      auto up = l.load(dh + i * s.hidden + u + k);
      if (doutput) up = hn::Add(up, l.load(doutput + i * s.hidden + u + k));
      if (s.mode == RnnMode::Lstm)
        lstm(l, i, u + k, up);
      else if (s.mode == RnnMode::Gru)
        gru(l, i, u + k, up);
      else
        plain(l, i, u + k, up);
    }
  }

 private:
  using V = typename Lanes<T>::V;
  /// y (1 - y), the slope of a sigmoid.
  static HWY_INLINE V bend(V y) { return hn::NegMulAdd(y, y, y); }
  /// 1 - y², that of tanh.
  static HWY_INLINE V flatten(const Lanes<T>& l, V y) { return hn::NegMulAdd(y, y, hn::Set(l.d, T(1))); }

  HWY_INLINE void lstm(const Lanes<T>& l, std::int64_t i, std::int64_t u, V up) const {
    const T* const w = work + i * s.work_columns + u;
    const auto in = l.load(w), forget = l.load(w + s.hidden), cell = l.load(w + 2 * s.hidden),
               out = l.load(w + 3 * s.hidden), before = l.load(w + 4 * s.hidden);
    const auto bent = simd::vec_tanh(l.d, hn::MulAdd(forget, before, hn::Mul(in, cell)));
    if (cells) l.store(hn::Mul(out, bent), cells + i * s.hidden + u);
    T* const state = dc + i * s.hidden + u;
    const auto slope = hn::MulAdd(hn::Mul(up, out), flatten(l, bent), l.load(state));
    l.store(hn::Mul(slope, forget), state);
    T* const g = dgates + i * 4 * s.hidden + u;
    l.store(hn::Mul(hn::Mul(slope, cell), bend(in)), g);
    l.store(hn::Mul(hn::Mul(slope, before), bend(forget)), g + s.hidden);
    l.store(hn::Mul(hn::Mul(slope, in), flatten(l, cell)), g + 2 * s.hidden);
    l.store(hn::Mul(hn::Mul(up, bent), bend(out)), g + 3 * s.hidden);
    l.store(hn::Zero(l.d), dh + i * s.hidden + u);
  }
  HWY_INLINE void gru(const Lanes<T>& l, std::int64_t i, std::int64_t u, V up) const {
    const T* const w = work + i * s.work_columns + u;
    const auto r = l.load(w), z = l.load(w + s.hidden), fresh = l.load(w + 2 * s.hidden),
               part = l.load(w + 3 * s.hidden), before = l.load(w + 4 * s.hidden);
    const auto to_fresh = hn::Mul(hn::NegMulAdd(z, up, up), flatten(l, fresh));
    const auto to_r = hn::Mul(hn::Mul(to_fresh, part), bend(r));
    const auto to_z = hn::Mul(hn::Mul(up, hn::Sub(before, fresh)), bend(z));
    T *const g = dgates + i * 3 * s.hidden + u, *const q = slopes + i * 3 * s.hidden + u;
    l.store(to_r, g);
    l.store(to_z, g + s.hidden);
    l.store(to_fresh, g + 2 * s.hidden);
    l.store(to_r, q);
    l.store(to_z, q + s.hidden);
    l.store(hn::Mul(to_fresh, r), q + 2 * s.hidden);
    l.store(hn::Mul(up, z), dh + i * s.hidden + u);
  }
  HWY_INLINE void plain(const Lanes<T>& l, std::int64_t i, std::int64_t u, V up) const {
    const auto y = l.load(work + i * s.work_columns + u);
    const auto slope =
        s.mode == RnnMode::Tanh ? hn::Mul(up, flatten(l, y)) : hn::IfThenElseZero(hn::Gt(y, hn::Zero(l.d)), up);
    l.store(slope, dgates + i * s.hidden + u);
    l.store(hn::Zero(l.d), dh + i * s.hidden + u);
  }

  const cpu::RnnStep& s;
  const T *work, *doutput;
  T *dh, *dc, *dgates, *slopes, *cells;
};

template <class T>
T* rnn_scratch(int slot, std::int64_t count) {
  return static_cast<T*>(detail::thread_scratch(slot, static_cast<std::size_t>(count) * sizeof(T)));
}

// Slots 0 to 2 belong to products.
inline constexpr int kRnnLeft = 5, kRnnProduct = 6;

template <class T>
std::int64_t rnn_packed_size(std::int64_t gates, std::int64_t hidden, std::int64_t state) {
  return std::max(gates * packed_b_size<T>(state, hidden), packed_b_size<T>(gates * hidden, state));
}
template <class T>
void rnn_pack_forward(const void* w, std::int64_t gates, std::int64_t hidden, std::int64_t state, void* to) {
  for (std::int64_t g = 0; g < gates; ++g)
    pack_columns<T>(static_cast<const T*>(w) + g * hidden * state, 1, state, state, hidden,
                    static_cast<T*>(to) + g * packed_b_size<T>(state, hidden));
}
template <class T>
void rnn_pack_backward(const void* w, std::int64_t gates, std::int64_t hidden, std::int64_t state, void* to) {
  pack_columns<T>(static_cast<const T*>(w), state, 1, gates * hidden, state, static_cast<T*>(to));
}

template <class T>
void rnn_forward(const cpu::RnnStep& s, std::int64_t begin, std::int64_t end) {
  const std::int64_t gates = rnn_gates(s.mode), panel_size = packed_b_size<T>(s.state, s.hidden);
  const RowTiles tiles(s.rows);
  T* const left = rnn_scratch<T>(kRnnLeft, packed_a_size<T>(s.rows, s.state));
  T* const product = rnn_scratch<T>(kRnnProduct, 4 * kTileRows * kTileCols<T>);
  pack_rows<T>(static_cast<const T*>(s.h), s.state, 1, s.state, tiles, left);
  const ForwardCell<T> cell(s);
  constexpr std::int64_t kStep = kTileRows * kTileCols<T>;
  for (std::int64_t group = begin; group < end; ++group) {
    const std::int64_t u = group * kTileCols<T>;
    const int width = panel_width<T>(s.hidden, u);
    const std::int64_t units = std::min<std::int64_t>(width, s.hidden - u);
    for (std::int64_t t = 0; t < tiles.count; ++t) {
      const int height = tiles.height(t);
      const auto fn = tile_for<T>(height, width / kVector<T>, AForm::Columns);
      for (std::int64_t g = 0; g < gates; ++g)
        fn(s.state, left + tiles.begin(t) * s.state, height,
           static_cast<const T*>(s.packed) + g * panel_size + u * s.state, width, nullptr, product + g * kStep, width,
           nullptr);
      for (int r = 0; r < height; ++r) cell(tiles.begin(t) + r, u, units, product + r * width, kStep);
    }
  }
}

template <class T>
void rnn_backward(const cpu::RnnStep& s, std::int64_t begin, std::int64_t end) {
  const std::int64_t steps = rnn_gates(s.mode) * s.hidden;
  const RowTiles tiles(s.rows_after);
  const T* const slopes = static_cast<const T*>(s.slopes_after);
  T* const left = rnn_scratch<T>(kRnnLeft, packed_a_size<T>(s.rows_after, steps));
  T* const product = rnn_scratch<T>(kRnnProduct, kTileRows * kTileCols<T>);
  if (slopes) pack_rows<T>(slopes, steps, 1, steps, tiles, left);
  const BackwardCell<T> cell(s);
  T* const dh = static_cast<T*>(s.dh);
  for (std::int64_t group = begin; group < end; ++group) {
    const std::int64_t u = group * kTileCols<T>;
    const int width = panel_width<T>(s.hidden, u);
    const std::int64_t units = std::min<std::int64_t>(width, s.hidden - u);
    for (std::int64_t t = 0; slopes && t < tiles.count; ++t) {
      const int height = tiles.height(t);
      tile_for<T>(height, width / kVector<T>, AForm::Columns)(steps, left + tiles.begin(t) * steps, height,
                                                              static_cast<const T*>(s.packed) + u * steps, width,
                                                              nullptr, product, width, nullptr);
      for (int r = 0; r < height; ++r)
        for (std::int64_t k = 0; k < units; ++k) dh[(tiles.begin(t) + r) * s.hidden + u + k] += product[r * width + k];
    }
    for (std::int64_t i = 0; i < s.rows; ++i) cell(i, u, units);
  }
}

template <class T>
void rnn_forward_rows(const cpu::RnnStep& s, const void* product, std::int64_t begin, std::int64_t end) {
  const ForwardCell<T> cell(s);
  for (std::int64_t i = begin; i < end; ++i)
    cell(i, 0, s.hidden, static_cast<const T*>(product) + i * rnn_gates(s.mode) * s.hidden, s.hidden);
}
template <class T>
void rnn_backward_rows(const cpu::RnnStep& s, std::int64_t begin, std::int64_t end) {
  const BackwardCell<T> cell(s);
  for (std::int64_t i = begin; i < end; ++i) cell(i, 0, s.hidden);
}

template <class T>
cpu::RnnFns rnn_fns() {
  return {kTileCols<T>,    &rnn_packed_size<T>, &rnn_pack_forward<T>, &rnn_pack_backward<T>,
          &rnn_forward<T>, &rnn_backward<T>,    &rnn_forward_rows<T>, &rnn_backward_rows<T>};
}

}  // namespace
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
