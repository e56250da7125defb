#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/index_mask_loops.cpp"
#include "athanor/device/cpu/index_mask_loops.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class U, bool kOneIn, bool kOneMask>
void fill_loop(U* out, const U* in, const std::uint8_t* mask, U value, std::int64_t n) {
  // `in` may be `out`, element by element: nothing the order of iterations could change.
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const U x = in[kOneIn ? 0 : i];
    out[i] = mask[kOneMask ? 0 : i] != 0 ? value : x;
  }
}

template <class U>
void masked_fill(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  U value;
  std::memcpy(&value, params, sizeof value);
  auto* out = reinterpret_cast<U*>(ptrs[0]);
  const auto* in = reinterpret_cast<const U*>(ptrs[1]);
  const auto* mask = reinterpret_cast<const std::uint8_t*>(ptrs[2]);
  if (strides[2] == 0) {
    if (*mask != 0)
      std::fill_n(out, n, value);
    else
      strides[1] == 0 ? fill_loop<U, true, true>(out, in, mask, value, n)
                      : fill_loop<U, false, true>(out, in, mask, value, n);
  } else if (strides[1] == 0) {
    fill_loop<U, true, false>(out, in, mask, value, n);
  } else {
    fill_loop<U, false, false>(out, in, mask, value, n);
  }
}

template <class U>
std::int64_t compress(void* to, const void* from, const std::uint8_t* mask, std::int64_t n) {
  auto* out = static_cast<U*>(to);
  const auto* in = static_cast<const U*>(from);
  std::int64_t m = 0, i = 0;
  if constexpr (sizeof(U) >= 4) {
    const hn::ScalableTag<U> d;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto as_wide = [&](auto bytes) {
      if constexpr (sizeof(U) == 4)
        return hn::PromoteTo(d, bytes);
      else
        return hn::PromoteTo(d, hn::PromoteTo(hn::Rebind<std::uint32_t, decltype(d)>(), bytes));
    };
    for (; i + lanes <= n; i += lanes) {
      const auto chosen = hn::Ne(as_wide(hn::LoadU(d8, mask + i)), hn::Zero(d));
      m += static_cast<std::int64_t>(hn::CompressStore(hn::LoadU(d, in + i), chosen, d, out + m));
    }
  }
  for (; i < n; ++i) {
    out[m] = in[i];
    m += mask[i] != 0 ? 1 : 0;
  }
  return m;
}

std::int64_t positions(std::int64_t* to, const std::uint8_t* mask, std::int64_t n, std::int64_t start) {
  std::int64_t m = 0, i = 0;
  const hn::ScalableTag<std::int64_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const hn::Rebind<std::uint32_t, decltype(d)> d32;
  const hn::Rebind<std::uint64_t, decltype(d)> d64;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto at = hn::Iota(d, start);
  for (; i + lanes <= n; i += lanes) {
    const auto wide = hn::BitCast(d, hn::PromoteTo(d64, hn::PromoteTo(d32, hn::LoadU(d8, mask + i))));
    m += static_cast<std::int64_t>(hn::CompressStore(at, hn::Ne(wide, hn::Zero(d)), d, to + m));
    at = hn::Add(at, hn::Set(d, lanes));
  }
  for (; i < n; ++i) {
    to[m] = start + i;
    m += mask[i] != 0 ? 1 : 0;
  }
  return m;
}

std::int64_t count(const std::uint8_t* mask, std::int64_t n) {
  const hn::ScalableTag<std::uint8_t> d;
  const hn::Repartition<std::uint64_t, decltype(d)> d64;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, std::uint8_t{1});
  std::int64_t total = 0, i = 0;
  while (i + lanes <= n) {
    auto sum = hn::Zero(d);  // holds up to 255 rounds
    for (int k = 0; k < 255 && i + lanes <= n; ++k, i += lanes)
      sum = hn::Add(sum, hn::Min(hn::LoadU(d, mask + i), one));
    total += static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(d64, hn::SumsOf8(sum))));
  }
  for (; i < n; ++i) total += mask[i] != 0 ? 1 : 0;
  return total;
}

template <class T>
void test(std::uint8_t* HWY_RESTRICT mask, const void* from, std::int64_t n) {
  if constexpr (is_half_v<T>) {
    const auto* in = static_cast<const std::uint16_t*>(from);
    for (std::int64_t i = 0; i < n; ++i) mask[i] = (in[i] & 0x7fffU) != 0;
  } else {
    using U = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
    const auto* in = static_cast<const U*>(from);
    for (std::int64_t i = 0; i < n; ++i) mask[i] = in[i] != 0;
  }
}

template <class U>
void reverse(void* to, const void* from, std::int64_t n) {
  auto* HWY_RESTRICT out = static_cast<U*>(to);
  const auto* HWY_RESTRICT in = static_cast<const U*>(from);
  std::int64_t i = 0;
  if constexpr (sizeof(U) >= 2) {
    const hn::ScalableTag<U> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Reverse(d, hn::LoadU(d, in + n - i - lanes)), d, out + i);
  }
  for (; i < n; ++i) out[i] = in[n - 1 - i];
}

using U8 = std::uint8_t;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

constexpr MaskLoops kLoops = {
    {&masked_fill<U8>, &masked_fill<U16>, &masked_fill<U32>, &masked_fill<U64>},
    {&compress<U8>, &compress<U16>, &compress<U32>, &compress<U64>},
    &positions,
    &count,
#define ATHANOR_TEST(type, name) &test<type>,
    {ATHANOR_FORALL_DTYPES(ATHANOR_TEST)},
#undef ATHANOR_TEST
    {&reverse<U8>, &reverse<U16>, &reverse<U32>, &reverse<U64>},
};
const MaskLoops* table() { return &kLoops; }

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {

HWY_EXPORT(table);

const MaskLoops& mask_loops() {
  static const MaskLoops& loops = *HWY_DYNAMIC_DISPATCH(table)();
  return loops;
}

}  // namespace athanor::cpu
#endif
