#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/order_simd.cpp"
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "athanor/device/cpu/order_key.h"
#include "athanor/device/cpu/order_simd.h"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

/// The compiler vectorizes the loop; several accumulators hide the latency of min and max where it does not.
template <class T>
KeyRange key_range(const void* p, std::int64_t n) {
  using Key = KeyOf<T>;
  const T* HWY_RESTRICT in = static_cast<const T*>(p);
  const Key first = order_key(in[0]);
  Key least = first, greatest = first, varying = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const Key k = order_key(in[i]);
    least = k < least ? k : least;
    greatest = k > greatest ? k : greatest;
    varying = static_cast<Key>(varying | (k ^ first));
  }
  return {least, greatest, varying};
}

/// order_key of a vector.
template <class T, class D>
hn::Vec<D> order_keys(D d, const T* in) {
  using Key = hn::TFromD<D>;
  auto bits = hn::LoadU(d, reinterpret_cast<const Key*>(in));
  if constexpr (std::is_unsigned_v<T>) return bits;
  const auto sign = hn::Set(d, kSignBit<T>);
  if constexpr (std::is_integral_v<T>) {
    return hn::Xor(bits, sign);
  } else {
    const auto magnitude = hn::AndNot(sign, bits);
    bits = hn::IfThenZeroElse(hn::Eq(magnitude, hn::Zero(d)), bits);
    const auto negative = hn::Eq(hn::And(bits, sign), sign);
    const auto key = hn::IfThenElse(negative, hn::Not(bits), hn::Xor(bits, sign));
    return hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, infinity_bits<T>())), hn::Set(d, static_cast<Key>(~Key{0})),
                          key);
  }
}

template <class T>
std::uint64_t below(const void* p, std::int64_t n, std::uint64_t flip, std::uint64_t bound) {
  using Key = KeyOf<T>;
  const hn::ScalableTag<Key> d;
  constexpr auto kLanes = static_cast<std::int64_t>(HWY_MAX_BYTES / sizeof(T));
  const T* const in = static_cast<const T*>(p);
  const auto flipped = hn::Set(d, static_cast<Key>(flip)), limit = hn::Set(d, static_cast<Key>(bound));
  std::uint64_t found = 0;
  T last[kLanes] = {};
#pragma GCC unroll 1
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const bool whole = i + kLanes <= n;
    if (!whole) std::memcpy(static_cast<void*>(last), in + i, sizeof(T) * static_cast<std::size_t>(n - i));
    const auto rank = hn::Xor(order_keys(d, whole ? in + i : last), flipped);
    std::uint64_t bits = 0;
    hn::StoreMaskBits(d, hn::Lt(rank, limit), reinterpret_cast<std::uint8_t*>(&bits));
    found |= bits << i;
  }
  return n < 64 ? found & ((std::uint64_t{1} << n) - 1) : found;
}

/// Every word against every other: no branch to mispredict, and faster than sorting them for so few.
void rank_few(std::int32_t* HWY_RESTRICT places, const std::uint64_t* HWY_RESTRICT words, std::int64_t n) {
  // Signed words compare with one instruction everywhere. What fills up the block is greater than all.
  alignas(64) std::int64_t signed_words[kFew];
  const std::int64_t whole = (n + 7) / 8 * 8;
  for (std::int64_t i = 0; i < n; ++i) signed_words[i] = static_cast<std::int64_t>(words[i] ^ (std::uint64_t{1} << 63));
  for (std::int64_t i = n; i < whole; ++i) signed_words[i] = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t w = signed_words[i];
    std::int64_t below[8] = {};
    for (std::int64_t k = 0; k < whole; k += 8)
      for (int c = 0; c < 8; ++c) below[c] += signed_words[k + c] < w;
    std::int64_t sum = 0;
    for (const std::int64_t b : below) sum += b;
    places[i] = static_cast<std::int32_t>(sum);
  }
}

}  // namespace

void fill_order_fns(OrderFns& f) {
  const auto fill = [&]<class T>(DType dtype, T) {
    f.key_range[static_cast<int>(dtype)] = &key_range<T>;
    f.below[static_cast<int>(dtype)] = &below<T>;
  };
#define ATHANOR_FILL(type, name) fill(DType::name, type{});
  ATHANOR_FORALL_DTYPES(ATHANOR_FILL)
#undef ATHANOR_FILL
  fill(DType::Bool, std::uint8_t{});
  f.rank_few = &rank_few;
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(fill_order_fns);

const OrderFns& order_fns() {
  static const OrderFns fns = [] {
    OrderFns f{};
    HWY_DYNAMIC_DISPATCH(fill_order_fns)(f);
    return f;
  }();
  return fns;
}
}  // namespace athanor::cpu
#endif
