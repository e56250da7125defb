#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/reduce_arg_simd.cpp"
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "athanor/device/cpu/reduce_arg.h"
#include "athanor/device/cpu/simd_targets.h"
#include "athanor/device/cpu/wide_vectors.h"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T, bool kMax>
struct ArgFold {
  static constexpr bool kFloat = std::is_floating_point_v<T>;

  static HWY_INLINE bool better(T x, T best) {
    const bool beats = kMax ? x > best : x < best;
    if constexpr (kFloat) return beats || (std::isnan(x) && !std::isnan(best));
    return beats;
  }

  /// Best of n elements and whether any is NaN; NaN is skipped otherwise. n > 0.
  static HWY_INLINE T extreme(const T* HWY_RESTRICT p, std::int64_t n, bool& has_nan) {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    constexpr std::int64_t L = hn::MaxLanes(d);
    // Max and Min return their second operand if one is NaN.
    const auto pick = [](V x, V a) HWY_ATTR { return kMax ? hn::Max(x, a) : hn::Min(x, a); };
    T best = p[0];
    bool nan = false;
    std::int64_t i = 0;
    if (n >= L) {
      const V worst = hn::Set(d, kMax ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max());
      V a = worst, b = worst, c = worst, e = worst;
      if constexpr (kFloat) a = b = c = e = hn::Set(d, kMax ? -kInf : kInf);
      auto odd = hn::FirstN(d, 0);
      const auto take = [&](V& acc, V x) HWY_ATTR {
        acc = pick(x, acc);
        if constexpr (kFloat) odd = hn::Or(odd, hn::IsNaN(x));
      };
      // What lies ahead comes while the best is being looked for; see fold_parts.
      constexpr std::int64_t kAhead = kAskedAhead / sizeof(T), kLine = 64 / sizeof(T);
      const bool ask_ahead = L * sizeof(T) >= 64 && walks_pages_in_step();
      for (; i + 4 * L <= n; i += 4 * L) {
        if (ask_ahead)
          for (std::int64_t k = 0; k < 4 * L; k += kLine) hwy::Prefetch(p + i + kAhead + k);
        take(a, hn::LoadU(d, p + i));
        take(b, hn::LoadU(d, p + i + L));
        take(c, hn::LoadU(d, p + i + 2 * L));
        take(e, hn::LoadU(d, p + i + 3 * L));
      }
      for (; i + L <= n; i += L) take(a, hn::LoadU(d, p + i));
      if (i < n) take(b, hn::LoadU(d, p + n - L));  // overlaps what was seen
      a = pick(pick(a, b), pick(c, e));
      nan = !hn::AllFalse(d, odd);
      if constexpr (sizeof(T) >= 4) {
        best = hn::GetLane(kMax ? hn::MaxOfLanes(d, a) : hn::MinOfLanes(d, a));
      } else {
        alignas(64) T lanes[hn::MaxLanes(d)];
        hn::Store(a, d, lanes);
        best = kMax ? *std::max_element(lanes, lanes + L) : *std::min_element(lanes, lanes + L);
      }
    } else {
      for (; i < n; ++i) {
        best = (kMax ? p[i] > best : p[i] < best) ? p[i] : best;
        if constexpr (kFloat) nan |= std::isnan(p[i]);
      }
    }
    has_nan = nan;
    return best;
  }

  static HWY_INLINE std::int64_t find(const T* p, std::int64_t n, T value, bool nan) {
    const hn::ScalableTag<T> d;
    constexpr std::int64_t L = hn::MaxLanes(d);
    const auto v = hn::Set(d, value);
    std::int64_t i = 0;
    if (!nan) {
      const auto hit = [&](std::int64_t at) HWY_ATTR { return hn::Eq(hn::LoadU(d, p + at), v); };
      for (; i + 4 * L <= n; i += 4 * L)
        if (!hn::AllFalse(d, hn::Or(hn::Or(hit(i), hit(i + L)), hn::Or(hit(i + 2 * L), hit(i + 3 * L))))) break;
    }
    for (; i + L <= n; i += L) {
      const auto x = hn::LoadU(d, p + i);
      auto hit = hn::Eq(x, v);
      if constexpr (kFloat) {
        if (nan) hit = hn::IsNaN(x);
      }
      const auto at = hn::FindFirstTrue(d, hit);
      if (at >= 0) return i + at;
    }
    for (; i < n; ++i) {
      bool hit = p[i] == value;
      if constexpr (kFloat) hit = nan ? std::isnan(p[i]) : hit;
      if (hit) return i;
    }
    return 0;
  }

  /// The first place of the best of n <= lanes elements, without branches on them.
  static HWY_INLINE std::int64_t find_in_vector(const T* p, std::int64_t n) {
    const hn::ScalableTag<T> d;
    const auto inside = first_lanes(d, n);
    const auto x = load_tail(d, p, n);
    const auto padded = hn::IfThenElse(inside, x, hn::Set(d, p[0]));
    const auto top = kMax ? hn::MaxOfLanes(d, padded) : hn::MinOfLanes(d, padded);
    auto hit = hn::And(inside, hn::Eq(x, top));
    const auto nan = hn::And(inside, hn::IsNaN(x));
    if (HWY_UNLIKELY(!hn::AllFalse(d, nan))) hit = nan;
    return hn::FindFirstTrue(d, hit);
  }

  static void row(void* best, std::int64_t* place, const void* in, std::int64_t n) {
    constexpr std::int64_t kPiece = 4096;
    const auto* p = static_cast<const T*>(in);
    if constexpr (sizeof(T) >= 4 && kFloat) {
      if (n <= static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<T>()))) {
        *place = find_in_vector(p, n);
        *static_cast<T*>(best) = p[*place];
        return;
      }
    }
    T top = p[0];
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < n; i += kPiece) {
      const std::int64_t m = std::min(kPiece, n - i);
      bool nan;
      const T x = extreme(p + i, m, nan);
      if (nan) {
        at = i + find(p + i, m, x, true);
        top = p[at];
        break;
      }
      if (i == 0 || (kMax ? x > top : x < top)) {
        at = i + find(p + i, m, x, false);
        top = p[at];
      }
    }
    *static_cast<T*>(best) = top;
    *place = at;
  }

  static void columns(void* bests, std::int64_t* places, const void* in, std::int64_t stride, std::int64_t rows,
                      std::int64_t columns, std::int64_t first) {
    using Place = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
    const auto* p = static_cast<const T*>(in);
    auto* best = static_cast<T*>(bests);
    Place place[kArgStrip];
    std::fill_n(place, columns, Place(-1));
    std::int64_t r = 0;
    for (; r + 4 <= rows; r += 4) improve<4>(best, place, p + r * stride, stride, columns, static_cast<Place>(r));
    for (; r < rows; ++r) improve<1>(best, place, p + r * stride, stride, columns, static_cast<Place>(r));
    for (std::int64_t c = 0; c < columns; ++c)
      if (place[c] >= 0) places[c] = first + place[c];
  }

  static void join(void* bests, std::int64_t* place, const void* others, const std::int64_t* other_place,
                   std::int64_t n) {
    auto* best = static_cast<T*>(bests);
    const auto* other = static_cast<const T*>(others);
    for (std::int64_t i = 0; i < n; ++i)
      if (better(other[i], best[i])) {
        best[i] = other[i];
        place[i] = other_place[i];
      }
  }

 private:
  static constexpr T kInf = std::numeric_limits<T>::infinity();

  template <int kRows, class Place>
  static HWY_INLINE void improve(T* HWY_RESTRICT best, Place* HWY_RESTRICT place, const T* HWY_RESTRICT p,
                                 std::int64_t stride, std::int64_t columns, Place first) {
    std::int64_t c = 0;
    if constexpr (sizeof(T) == sizeof(Place)) {
      constexpr std::int64_t L = hn::MaxLanes(hn::ScalableTag<T>());
      for (; c + L <= columns; c += L) improve_vector<kRows>(best + c, place + c, p + c, stride, first);
      if (c < columns && columns >= L) {  // what it overlaps does not change
        c = columns - L;
        improve_vector<kRows>(best + c, place + c, p + c, stride, first);
        c = columns;
      }
    }
    for (; c < columns; ++c)
      for (int r = 0; r < kRows; ++r) {
        const T x = p[r * stride + c];
        const bool take = better(x, best[c]);
        best[c] = take ? x : best[c];
        place[c] = take ? static_cast<Place>(first + r) : place[c];
      }
  }

  template <int kRows, class Place>
  static HWY_INLINE void improve_vector(T* best, Place* place, const T* p, std::int64_t stride, Place first) {
    const hn::ScalableTag<T> d;
    const hn::ScalableTag<Place> di;
    auto b = hn::LoadU(d, best);
    auto at = hn::LoadU(di, place);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const auto x = hn::LoadU(d, p + r * stride);
      auto take = kMax ? hn::Gt(x, b) : hn::Lt(x, b);
      // A NaN beats all but another.
      if constexpr (kFloat) take = hn::AndNot(kMax ? hn::Le(x, b) : hn::Ge(x, b), hn::Eq(b, b));
      b = hn::IfThenElse(take, x, b);
      at = hn::IfThenElse(hn::RebindMask(di, take), hn::Set(di, static_cast<Place>(first + r)), at);
    }
    hn::StoreU(b, d, best);
    hn::StoreU(at, di, place);
  }
};

template <class T>
void fill(bool max, ArgReducer& r) {
  if (max)
    r = {&ArgFold<T, true>::row, &ArgFold<T, true>::columns, &ArgFold<T, true>::join};
  else
    r = {&ArgFold<T, false>::row, &ArgFold<T, false>::columns, &ArgFold<T, false>::join};
}

void fill_arg_reducer(DType t, bool max, ArgReducer& r) {
  switch (t) {
    case DType::Byte:
      return fill<std::uint8_t>(max, r);
    case DType::Char:
      return fill<std::int8_t>(max, r);
    case DType::Short:
      return fill<std::int16_t>(max, r);
    case DType::Int:
      return fill<std::int32_t>(max, r);
    case DType::Long:
      return fill<std::int64_t>(max, r);
    case DType::Double:
      return fill<double>(max, r);
    default:
      return fill<float>(max, r);
  }
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(fill_arg_reducer);

ArgReducer arg_reducer(DType compute, bool max) {
  ArgReducer r{};
  HWY_DYNAMIC_DISPATCH(fill_arg_reducer)(compute, max, r);
  return r;
}
}  // namespace athanor::cpu
#endif
