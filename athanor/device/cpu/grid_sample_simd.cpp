#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/grid_sample_simd.cpp"
#include "athanor/device/cpu/grid_sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

template <class T>
using Taps = GridTaps<T>;

/// How the coordinates along one dim become places in it.
template <class T>
struct Dim {
  explicit Dim(const GridCall& call, int d)
      : how(call.how), last(static_cast<T>(call.extent[d] - 1)), limit(static_cast<T>(call.extent[d])) {
    const auto n = static_cast<double>(call.extent[d]);
    slope = static_cast<T>(how.align_corners ? (n - 1) / 2 : n / 2);
    low = how.align_corners ? T(0) : T(-0.5);
    span = static_cast<T>(how.align_corners ? n - 1 : n);
    // The least number that no place inside reaches, where the extent is none of the dtype.
    if (static_cast<double>(limit) < n) limit = std::nextafter(limit, std::numeric_limits<T>::infinity());
  }
  GridSampling how;
  T last, limit, slope, low, span;

  /// x brought into the dim as the padding has it, and `slope` times the derivative of that: 0 where it is at a border
  /// or beyond.
  template <class V>
  HWY_INLINE V padded(V x, V& by) const {
    const hn::DFromV<V> d;
    if (how.padding == GridSampling::kZeros) return x;
    if (how.padding == GridSampling::kReflection) {
      // Folded back and forth, as a light ray between mirrors.
      const V offset = hn::Sub(x, hn::Set(d, low)), distance = hn::Abs(offset);
      const V turns = hn::Floor(hn::Div(distance, hn::Set(d, span)));
      // Abs changes nothing but keeps GCC from making one instruction of product and difference: far away, where few
      // digits are left of the rest, that would be another one than elsewhere.
      const V rest = hn::Sub(distance, hn::Abs(hn::Mul(turns, hn::Set(d, span))));
      const V pairs = hn::Floor(hn::Mul(turns, hn::Set(d, T(0.5))));
      const auto even = hn::Eq(hn::Add(pairs, pairs), turns);
      x = hn::IfThenElse(even, hn::Add(rest, hn::Set(d, low)), hn::Sub(hn::Set(d, low + span), rest));
      by = hn::IfThenElse(hn::Xor(even, hn::Lt(offset, hn::Zero(d))), by, hn::Neg(by));
    }
    const auto above = hn::Gt(x, hn::Zero(d));  // not so: NaN, too
    by = hn::IfThenElseZero(hn::And(above, hn::Lt(x, hn::Set(d, last))), by);
    return hn::Min(hn::IfThenElseZero(above, x), hn::Set(d, last));
  }
};

/// The cubic convolution weight of distance x (Keys, 1981) with a = -3/4, for |x| <= 1 and 1 < |x| < 2, and the
/// derivatives.
template <class V>
HWY_INLINE V near_cubic(V x) {
  const hn::DFromV<V> d;
  using T = hn::TFromD<hn::DFromV<V>>;
  return hn::MulAdd(hn::Mul(hn::MulAdd(x, hn::Set(d, T(1.25)), hn::Set(d, T(-2.25))), x), x, hn::Set(d, T(1)));
}
template <class V>
HWY_INLINE V far_cubic(V x) {
  const hn::DFromV<V> d;
  using T = hn::TFromD<hn::DFromV<V>>;
  const V square = hn::MulAdd(hn::MulAdd(x, hn::Set(d, T(-0.75)), hn::Set(d, T(3.75))), x, hn::Set(d, T(-6)));
  return hn::MulAdd(square, x, hn::Set(d, T(3)));
}
template <class V>
HWY_INLINE V near_slope(V x) {
  const hn::DFromV<V> d;
  using T = hn::TFromD<hn::DFromV<V>>;
  return hn::Mul(hn::MulAdd(x, hn::Set(d, T(3.75)), hn::Set(d, T(-4.5))), x);
}
template <class V>
HWY_INLINE V far_slope(V x) {
  const hn::DFromV<V> d;
  using T = hn::TFromD<hn::DFromV<V>>;
  return hn::MulAdd(hn::MulAdd(x, hn::Set(d, T(-2.25)), hn::Set(d, T(7.5))), x, hn::Set(d, T(-6)));
}

template <class T>
void dim_taps(const GridCall& call, int dim, const T* scaled, Taps<T>& taps) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  using V = hn::Vec<decltype(d)>;
  const Dim<T> axis(call, dim);
  const V one = hn::Set(d, T(1)), limit = hn::Set(d, axis.limit);
  const auto step = hn::Set(di, static_cast<hn::TFromD<decltype(di)>>(call.step[dim]));
  std::int64_t p = 0;
  // Bounds are compared before the places are integers, which could not hold all of them.
  const auto put = [&](std::int64_t k, V at, V weight, V slope) HWY_ATTR {
    const std::int64_t to = k * call.block + p;
    const auto inside = hn::And(hn::Ge(at, hn::Zero(d)), hn::Lt(at, limit));
    const V whole = hn::IfThenElseZero(inside, at);
    hn::Vec<decltype(di)> index;
    if constexpr (sizeof(T) == 4)
      index = hn::Mul(hn::ConvertTo(di, whole), step);
    else  // exact, and 64-bit products are slow
      index = hn::ConvertTo(di, hn::Mul(whole, hn::Set(d, static_cast<T>(call.step[dim]))));
    hn::Store(hn::IfThenElse(hn::RebindMask(di, inside), index, hn::Set(di, -1)), di, taps.at[dim] + to);
    hn::Store(weight, d, taps.part[dim] + to);
    hn::Store(slope, d, taps.slope[dim] + to);
  };
  for (; p < call.block; p += static_cast<std::int64_t>(hn::Lanes(d))) {
    V x = hn::Load(d, scaled + p), slope = hn::Set(d, axis.slope);
    if (!call.how.align_corners) x = hn::Mul(hn::Sub(x, one), hn::Set(d, T(0.5)));
    const bool cubic = call.each_bits == 2;
    if (!cubic) x = axis.padded(x, slope);
    V at = call.each_bits == 0 ? hn::Round(x) : hn::Floor(x);
    const V part = hn::Sub(x, at), rest = hn::Sub(one, part);
    if (!cubic) {
      put(0, at, call.each_bits == 0 ? one : rest, hn::Neg(slope));
      if (call.each_bits == 1) put(1, hn::Add(at, one), part, slope);
      continue;
    }
    const V before = hn::Add(part, one), after = hn::Add(rest, one);
    const V weights[4] = {far_cubic(before), near_cubic(part), near_cubic(rest), far_cubic(after)};
    const V slopes[4] = {far_slope(before), near_slope(part), hn::Neg(near_slope(rest)), hn::Neg(far_slope(after))};
    at = hn::Sub(at, one);
    for (std::int64_t k = 0; k < 4; ++k) {
      V unused = slope;  // each tap is padded on its own
      put(k, axis.padded(at, unused), weights[k], hn::Mul(slopes[k], slope));
      at = hn::Add(at, one);
    }
  }
}

/// Of taps that lie in the source.
template <class D, class VI>
HWY_INLINE hn::Mask<D> inside(D d, VI index) {
  const hn::RebindToSigned<D> di;
  return hn::RebindMask(d, hn::Gt(index, hn::Set(di, -1)));
}

template <class T>
void combine(const GridCall& call, Taps<T>& taps) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  // Of four taps one that is outside counts if its weight is NaN, as PyTorch has it in two dims; of eight it does not.
  const bool masked = call.taps == 8;
  for (std::int64_t k = 0; k < call.taps; ++k) {
    const GridRows rows(call, k);
    for (std::int64_t p = 0; p < call.block; p += static_cast<std::int64_t>(hn::Lanes(d))) {
      const auto first = hn::Load(di, taps.at[0] + rows.at[0] + p), second = hn::Load(di, taps.at[1] + rows.at[1] + p);
      auto index = hn::Add(first, second), any = hn::Or(first, second);
      auto weight = hn::Mul(hn::Load(d, taps.part[0] + rows.at[0] + p), hn::Load(d, taps.part[1] + rows.at[1] + p));
      if (call.spatial == 3) {
        const auto third = hn::Load(di, taps.at[2] + rows.at[2] + p);
        index = hn::Add(index, third), any = hn::Or(any, third);
        weight = hn::Mul(weight, hn::Load(d, taps.part[2] + rows.at[2] + p));
      }
      index = hn::Or(index, hn::BroadcastSignBit(any));
      if (masked) weight = hn::IfThenElseZero(inside(d, index), weight);
      hn::Store(index, di, taps.index + k * call.block + p);
      hn::Store(weight, d, taps.weight + k * call.block + p);
    }
  }
}

/// The elements of a plane at `index`, 0 where that is below 0.
template <class D, class VI>
HWY_INLINE hn::Vec<D> fetch(D d, const hn::TFromD<D>* plane, VI index) {
  const hn::RebindToSigned<D> di;
  return hn::IfThenElseZero(inside(d, index), hn::GatherIndex(d, plane, hn::Max(index, hn::Zero(di))));
}

void add_halves(const GridCall& call, const Taps<float>& taps, float* to, std::int64_t to_step, const float* factor,
                std::int64_t factor_step, const std::uint16_t* plane) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  alignas(64) std::uint16_t halves[GridCall::kPoints];
  alignas(64) float values[GridCall::kPoints];
  for (std::int64_t k = 0; k < call.taps; ++k, to += to_step, factor += factor_step) {
    const std::int32_t* const index = taps.index + k * call.block;
    for (std::int64_t p = 0; p < call.block; ++p) halves[p] = plane[std::max(index[p], 0)];
    call.widen(values, halves, call.block);
    for (std::int64_t p = 0; p < call.block; p += static_cast<std::int64_t>(hn::Lanes(d))) {
      const auto value = hn::IfThenElseZero(inside(d, hn::Load(di, index + p)), hn::Load(d, values + p));
      hn::Store(hn::MulAdd(hn::Load(d, factor + p), value, hn::Load(d, to + p)), d, to + p);
    }
  }
}

/// One plane at the points of a block, K taps each (0: any number).
template <class T, int K>
void gather(const GridCall& call, const Taps<T>& taps, T* to, const T* from, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  for (std::int64_t p = 0; p < count; p += kLanes) {
    auto sum = hn::Zero(d);
    for (std::int64_t k = 0; k < (K > 0 ? K : call.taps); ++k) {
      const std::int64_t tap = k * call.block + p;
      sum = hn::MulAdd(hn::Load(d, taps.weight + tap), fetch(d, from, hn::Load(di, taps.index + tap)), sum);
    }
    if (p + kLanes <= count)
      hn::StoreU(sum, d, to + p);
    else
      store_tail(d, sum, to + p, count - p);
  }
}

template <class T, int K>
void add_weight_gradient(const GridCall& call, Taps<T>& taps, const T* grad, const T* source, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  for (std::int64_t p = 0; p < count; p += kLanes) {
    const auto g = p + kLanes <= count ? hn::LoadU(d, grad + p) : load_tail(d, grad + p, count - p);
    for (std::int64_t k = 0; k < (K > 0 ? K : call.taps); ++k) {
      T* const to = taps.weight + k * call.block + p;
      const auto index = hn::Load(di, taps.index + k * call.block + p);
      hn::Store(hn::MulAdd(g, fetch(d, source, index), hn::Load(d, to)), d, to);
    }
  }
}

template <class T, int kDims>
void chain(const GridCall& call, const Taps<T>& taps, T* to) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  for (std::int64_t p = 0; p < call.block; p += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Vec<decltype(d)> sums[kDims];
    for (auto& sum : sums) sum = hn::Zero(d);
    for (std::int64_t k = 0; k < call.taps; ++k) {
      const GridRows rows(call, k);
      const std::int64_t tap = k * call.block + p;
      const auto of_weight =
          hn::IfThenElseZero(inside(d, hn::Load(di, taps.index + tap)), hn::Load(d, taps.weight + tap));
      for (int dim = 0; dim < kDims; ++dim) {
        auto product = of_weight;
        for (int other = 0; other < kDims; ++other)
          product = hn::Mul(product, hn::Load(d, (other == dim ? taps.slope : taps.part)[other] + rows.at[other] + p));
        sums[dim] = hn::Add(sums[dim], product);
      }
    }
    for (int dim = 0; dim < kDims; ++dim) hn::Store(sums[dim], d, to + dim * GridCall::kPoints + p);
  }
}

template <class T>
constexpr GridFns<T> kFns{
    &dim_taps<T>, &combine<T>,  &gather<T, 4>, &gather<T, 0>, &add_weight_gradient<T, 4>, &add_weight_gradient<T, 0>,
    &add_halves,  &chain<T, 2>, &chain<T, 3>};

const GridFns<float>& choose_f32() { return kFns<float>; }
const GridFns<double>& choose_f64() { return kFns<double>; }

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
namespace {
HWY_EXPORT(choose_f32);
HWY_EXPORT(choose_f64);
}  // namespace

template <>
const GridFns<float>& grid_fns<float>() {
  return HWY_DYNAMIC_DISPATCH(choose_f32)();
}
template <>
const GridFns<double>& grid_fns<double>() {
  return HWY_DYNAMIC_DISPATCH(choose_f64)();
}
}  // namespace athanor::cpu
#endif
