// The arithmetic of recurrent layers beside their products, forward and backward. Compiled once per SIMD target;
// included by kernel files after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_RNN_CELL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_RNN_CELL_INL_H_
#undef ATHANOR_DEVICE_CPU_RNN_CELL_INL_H_
#else
#define ATHANOR_DEVICE_CPU_RNN_CELL_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/gemm_tile-inl.h"
#include "athanor/device/cpu/rnn.h"
#include "athanor/device/cpu/simd_math.h"
#include "athanor/device/cpu/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {  // each kernel file has its own

namespace simd = cpu::HWY_NAMESPACE;

/// Whole vectors, or the `m` values left at the end of a row.
template <class T, bool kWhole>
struct Lanes {
  hn::ScalableTag<T> d;
  std::int64_t m = kVector<T>;
  using V = hn::Vec<hn::ScalableTag<T>>;
  HWY_INLINE V load(const T* p) const { return kWhole ? hn::LoadU(d, p) : simd::load_tail(d, p, m); }
  HWY_INLINE void store(V v, T* p) const {
    if constexpr (kWhole)
      hn::StoreU(v, d, p);
    else
      simd::store_tail(d, v, p, m);
  }
};

/// fn(lanes, k) for the vectors of n values.
template <class T, class F>
HWY_INLINE void each_vector(std::int64_t n, F&& fn) {
  std::int64_t k = 0;
  for (; k + kVector<T> <= n; k += kVector<T>) fn(Lanes<T, true>{}, k);
  if (k < n) fn(Lanes<T, false>{{}, n - k}, k);
}

/// fn(std::integral_constant) of a mode.
template <class F>
HWY_INLINE void with_mode(RnnMode mode, F&& fn) {
  switch (mode) {
    case RnnMode::Lstm:
      return fn(std::integral_constant<RnnMode, RnnMode::Lstm>());
    case RnnMode::Gru:
      return fn(std::integral_constant<RnnMode, RnnMode::Gru>());
    case RnnMode::Relu:
      return fn(std::integral_constant<RnnMode, RnnMode::Relu>());
    default:
      return fn(std::integral_constant<RnnMode, RnnMode::Tanh>());
  }
}

/// Some rows in memory: gate g of row i starts at p[i · row + g · gate].
template <class T>
struct GateRows {
  T* p = nullptr;
  std::int64_t row = 0, gate = 0;
  HWY_INLINE T* at(std::int64_t i, std::int64_t g = 0) const { return p + i * row + g * gate; }
  explicit operator bool() const { return p != nullptr; }
};

/// 1 / (1 + e^-x) of a gate. Beyond 87 on the negative side it stays at 1e-38: nobody adds anything as small.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gate_sigmoid(D d, V x) {
#if HWY_TARGET != HWY_AVX3
  if constexpr (simd::is_float32_v<D>) {
    // Min and Max return their second operand if one is NaN.
    const V e = simd::exp_of_normal(d, hn::Max(hn::Set(d, -87.0F), hn::Min(hn::Set(d, 87.0F), hn::Neg(x))));
    const V one = hn::Set(d, 1.0F);
    return hn::Div(one, hn::Add(one, e));
  }
#endif
  return simd::vec_sigmoid(d, x);
}

/// tanh within some 5 units in the last place and never above 1: a rational minimax fit up to 8.3, without the
/// exponential and the two ranges of one that is accurate to the last bit.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gate_tanh(D d, V x) {
#if HWY_TARGET != HWY_AVX3
  if constexpr (simd::is_float32_v<D>) {
    constexpr float kP[] = {1.4711351e-08F, 2.1555254e-05F, 0.0035520818F, 0.13428353F};
    constexpr float kQ[] = {8.321259e-07F, 0.00033786605F, 0.026091117F, 0.4676168F};
    // Min and Max return their second operand if one is NaN.
    const V z = hn::Max(hn::Set(d, -8.0F), hn::Min(hn::Set(d, 8.0F), x)), t = hn::Mul(z, z);
    V p = hn::Set(d, kP[0]), q = hn::Set(d, kQ[0]);
    for (int i = 1; i < 4; ++i) {
      p = hn::MulAdd(p, t, hn::Set(d, kP[i]));
      q = hn::MulAdd(q, t, hn::Set(d, kQ[i]));
    }
    const V one = hn::Set(d, 1.0F);
    return hn::Div(hn::Mul(z, hn::MulAdd(p, t, one)), hn::MulAdd(q, t, one));
  }
#endif
  return simd::vec_tanh(d, x);
}

/// From the gates' sums of some units to their next state.
template <class T>
struct ForwardCells {
  RnnMode mode = RnnMode::Tanh;
  GateRows<T> sums;         ///< w_ih x + w_hh h + biases, overwritten; GRU: the third without its part of w_ih x
  GateRows<const T> given;  ///< GRU: w_ih x + b_ih
  std::int64_t hidden = 0;  ///< distance of the rows of the following
  const T* h = nullptr;     ///< the state before
  T* h_next = nullptr;      ///< may be h
  T* c = nullptr;           ///< in place
  T* output = nullptr;      ///< receives the state, too, unless null
  GateRows<T> work;         ///< what backward needs, gate by gate, unless null
  GateRows<T> before;       ///< receives h, unless null

  void run(std::int64_t rows, std::int64_t n) const {
    // A copy, whose members the compiler knows not to change with what is stored.
    const ForwardCells a = *this;
    with_mode(mode, [&](auto m) HWY_ATTR {
      a.each(rows, n, [&](const auto& l, std::int64_t i, std::int64_t k) HWY_ATTR {
        if constexpr (m.value == RnnMode::Lstm)
          a.lstm(l, i, k);
        else if constexpr (m.value == RnnMode::Gru)
          a.gru(l, i, k);
        else
          a.template plain<m.value>(l, i, k);
      });
      // On its own, since a chain of two functions leaves the units idle.
      if constexpr (m.value == RnnMode::Lstm)
        a.each(rows, n, [&](const auto& l, std::int64_t i, std::int64_t k) HWY_ATTR {
          const auto out = l.load(a.sums.at(i, 3) + k);
          a.finish(l, i, k, hn::Mul(out, gate_tanh(l.d, l.load(a.c + i * a.hidden + k))));
        });
    });
  }

 private:
  template <class F>
  static HWY_INLINE void each(std::int64_t rows, std::int64_t n, F&& fn) {
    for (std::int64_t i = 0; i < rows; ++i)
      each_vector<T>(n, [&](const auto& l, std::int64_t k) HWY_ATTR { fn(l, i, k); });
  }
  template <class L, class V>
  HWY_INLINE void finish(const L& l, std::int64_t i, std::int64_t k, V value) const {
    if (before) l.store(l.load(h + i * hidden + k), before.at(i) + k);
    l.store(value, h_next + i * hidden + k);
    if (output) l.store(value, output + i * hidden + k);
  }
  template <class L>
  HWY_INLINE void lstm(const L& l, std::int64_t i, std::int64_t k) const {
    const auto in = gate_sigmoid(l.d, l.load(sums.at(i, 0) + k)), forget = gate_sigmoid(l.d, l.load(sums.at(i, 1) + k)),
               cell = gate_tanh(l.d, l.load(sums.at(i, 2) + k)), out = gate_sigmoid(l.d, l.load(sums.at(i, 3) + k));
    T* const state = c + i * hidden + k;
    const auto c_before = l.load(state);
    l.store(hn::MulAdd(forget, c_before, hn::Mul(in, cell)), state);
    l.store(out, sums.at(i, 3) + k);
    if (work) {
      l.store(in, work.at(i, 0) + k);
      l.store(forget, work.at(i, 1) + k);
      l.store(cell, work.at(i, 2) + k);
      l.store(out, work.at(i, 3) + k);
      l.store(c_before, work.at(i, 4) + k);
    }
  }
  template <class L>
  HWY_INLINE void gru(const L& l, std::int64_t i, std::int64_t k) const {
    const auto r = gate_sigmoid(l.d, l.load(sums.at(i, 0) + k)), z = gate_sigmoid(l.d, l.load(sums.at(i, 1) + k));
    const auto part = l.load(sums.at(i, 2) + k);
    const auto fresh = gate_tanh(l.d, hn::MulAdd(r, part, l.load(given.at(i, 2) + k)));
    const auto h_before = l.load(h + i * hidden + k);
    if (work) {
      l.store(r, work.at(i, 0) + k);
      l.store(z, work.at(i, 1) + k);
      l.store(fresh, work.at(i, 2) + k);
      l.store(part, work.at(i, 3) + k);
    }
    finish(l, i, k, hn::MulAdd(z, hn::Sub(h_before, fresh), fresh));
  }
  template <RnnMode kMode, class L>
  HWY_INLINE void plain(const L& l, std::int64_t i, std::int64_t k) const {
    const auto x = l.load(sums.at(i) + k);
    // The second operand is what x86 returns for NaN: it stays.
    const auto y = kMode == RnnMode::Tanh ? simd::vec_tanh(l.d, x) : hn::Max(hn::Zero(l.d), x);
    if (work) l.store(y, work.at(i) + k);
    finish(l, i, k, y);
  }
};

/// Gradients of the gates of some units, row by row.
template <class T>
struct BackwardCells {
  RnnMode mode = RnnMode::Tanh;
  GateRows<const T> work;
  GateRows<const T> before;    ///< GRU: the state before
  std::int64_t hidden = 0;     ///< distance of the rows of doutput, dc and cells
  const T* doutput = nullptr;  ///< added to dh unless null
  T* dc = nullptr;             ///< in place
  T* cells = nullptr;          ///< receives o tanh(c), unless null
  GateRows<T> dh;              ///< of the state after the step, then what goes past the gates
  GateRows<T> dgates;          ///< of what was given
  GateRows<T> third;           ///< GRU: of the third gate's part of w_hh h
  GateRows<T> twice;           ///< GRU: receives the gradients of the first two gates once more, unless null

  void run(std::int64_t begin, std::int64_t end, std::int64_t n) const {
    const BackwardCells a = *this;
    with_mode(mode, [&](auto m) HWY_ATTR {
      for (std::int64_t i = begin; i < end; ++i)
        each_vector<T>(n, [&](const auto& l, std::int64_t k) HWY_ATTR {
          auto up = l.load(a.dh.at(i) + k);
          if (a.doutput) up = hn::Add(up, l.load(a.doutput + i * a.hidden + k));
          if constexpr (m.value == RnnMode::Lstm)
            a.lstm(l, i, k, up);
          else if constexpr (m.value == RnnMode::Gru)
            a.gru(l, i, k, up);
          else
            a.template plain<m.value>(l, i, k, up);
        });
    });
  }

 private:
  /// y (1 - y), the slope of a sigmoid.
  template <class V>
  static HWY_INLINE V bend(V y) {
    return hn::NegMulAdd(y, y, y);
  }
  /// 1 - y², that of tanh.
  template <class L, class V>
  static HWY_INLINE V flatten(const L& l, V y) {
    return hn::NegMulAdd(y, y, hn::Set(l.d, T(1)));
  }

  template <class L, class V>
  HWY_INLINE void lstm(const L& l, std::int64_t i, std::int64_t k, V up) const {
    const auto in = l.load(work.at(i, 0) + k), forget = l.load(work.at(i, 1) + k), cell = l.load(work.at(i, 2) + k),
               out = l.load(work.at(i, 3) + k), c_before = l.load(work.at(i, 4) + k);
    const auto bent = gate_tanh(l.d, hn::MulAdd(forget, c_before, hn::Mul(in, cell)));
    if (cells) l.store(hn::Mul(out, bent), cells + i * hidden + k);
    T* const state = dc + i * hidden + k;
    const auto slope = hn::MulAdd(hn::Mul(up, out), flatten(l, bent), l.load(state));
    l.store(hn::Mul(slope, forget), state);
    l.store(hn::Mul(hn::Mul(slope, cell), bend(in)), dgates.at(i, 0) + k);
    l.store(hn::Mul(hn::Mul(slope, c_before), bend(forget)), dgates.at(i, 1) + k);
    l.store(hn::Mul(hn::Mul(slope, in), flatten(l, cell)), dgates.at(i, 2) + k);
    l.store(hn::Mul(hn::Mul(up, bent), bend(out)), dgates.at(i, 3) + k);
    l.store(hn::Zero(l.d), dh.at(i) + k);
  }
  template <class L, class V>
  HWY_INLINE void gru(const L& l, std::int64_t i, std::int64_t k, V up) const {
    const auto r = l.load(work.at(i, 0) + k), z = l.load(work.at(i, 1) + k), fresh = l.load(work.at(i, 2) + k),
               part = l.load(work.at(i, 3) + k), h_before = l.load(before.at(i) + k);
    const auto to_fresh = hn::Mul(hn::NegMulAdd(z, up, up), flatten(l, fresh));
    const auto to_r = hn::Mul(hn::Mul(to_fresh, part), bend(r));
    const auto to_z = hn::Mul(hn::Mul(up, hn::Sub(h_before, fresh)), bend(z));
    l.store(to_r, dgates.at(i, 0) + k);
    l.store(to_z, dgates.at(i, 1) + k);
    l.store(to_fresh, dgates.at(i, 2) + k);
    if (twice) {
      l.store(to_r, twice.at(i, 0) + k);
      l.store(to_z, twice.at(i, 1) + k);
    }
    l.store(hn::Mul(to_fresh, r), third.at(i) + k);
    l.store(hn::Mul(up, z), dh.at(i) + k);
  }
  template <RnnMode kMode, class L, class V>
  HWY_INLINE void plain(const L& l, std::int64_t i, std::int64_t k, V up) const {
    const auto y = l.load(work.at(i) + k);
    const auto slope =
        kMode == RnnMode::Tanh ? hn::Mul(up, flatten(l, y)) : hn::IfThenZeroElse(hn::Le(y, hn::Zero(l.d)), up);
    l.store(slope, dgates.at(i) + k);
    l.store(hn::Zero(l.d), dh.at(i) + k);
  }
};

}  // namespace
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
