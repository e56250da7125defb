#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/scan_simd.cpp"
#include "athanor/device/cpu/scan_simd.h"

#include <type_traits>

#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<double>;
using V = hn::Vec<D>;
constexpr std::int64_t kLanes = hn::MaxLanes(D());

template <class T>
HWY_INLINE V load(const T* p) {
  if constexpr (std::is_same_v<T, float>)
    return hn::PromoteTo(D(), hn::LoadU(hn::Rebind<float, D>(), p));
  else
    return hn::LoadU(D(), p);
}
template <class T>
HWY_INLINE void store(V v, T* p) {
  if constexpr (std::is_same_v<T, float>) {
    const hn::Rebind<float, D> narrow;
    hn::StoreU(hn::DemoteTo(narrow, v), narrow, p);
  } else {
    hn::StoreU(v, D(), p);
  }
}

/// Indices that move lanes up by `distance`, the lowest ones staying, or with kLanes spread the last one.
HWY_INLINE auto indices(std::int64_t distance) {
  alignas(64) std::int64_t from[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) from[i] = distance >= kLanes ? kLanes - 1 : i < distance ? i : i - distance;
  return hn::SetTableIndices(D(), from);
}

/// Within a vector by doubling distances; from vector to vector only the total is handed on, one addition.
template <class T>
double sum_scan(T* out, const T* in, std::int64_t n, double before, double within) {
  const D d;
  const auto by1 = indices(1), by2 = indices(2), by4 = indices(4), last = indices(kLanes);
  const auto low1 = hn::FirstN(d, 1), low2 = hn::FirstN(d, 2), low4 = hn::FirstN(d, 4);
  const auto running = [&](V v) HWY_ATTR {
    v = hn::Add(v, hn::IfThenZeroElse(low1, hn::TableLookupLanes(v, by1)));
    if constexpr (kLanes > 2) v = hn::Add(v, hn::IfThenZeroElse(low2, hn::TableLookupLanes(v, by2)));
    if constexpr (kLanes > 4) v = hn::Add(v, hn::IfThenZeroElse(low4, hn::TableLookupLanes(v, by4)));
    return v;
  };
  const V start = hn::Set(d, before);
  V sum = hn::Set(d, within);
  std::int64_t i = 0;
  if (out)
    for (; i + kLanes <= n; i += kLanes) {
      const V v = running(load(in + i));
      store(hn::Add(start, hn::Add(sum, v)), out + i);
      sum = hn::Add(sum, hn::TableLookupLanes(v, last));
    }
  else
    for (; i + kLanes <= n; i += kLanes) sum = hn::Add(sum, hn::TableLookupLanes(running(load(in + i)), last));
  within = hn::GetLane(sum);
  for (; i < n; ++i) {
    within += static_cast<double>(in[i]);
    if (out) out[i] = static_cast<T>(before + within);
  }
  return within;
}

void fill_scans(ScanFns& f) { f = {&sum_scan<float>, &sum_scan<double>}; }

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
namespace {
HWY_EXPORT(fill_scans);
}  // namespace

const ScanFns& scan_fns() {
  static const ScanFns fns = [] {
    ScanFns f{};
    HWY_DYNAMIC_DISPATCH(fill_scans)(f);
    return f;
  }();
  return fns;
}
}  // namespace athanor::cpu
#endif
