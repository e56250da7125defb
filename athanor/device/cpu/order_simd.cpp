#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/order_simd.cpp"
#include <algorithm>
#include <limits>

#include "athanor/device/cpu/order_key.h"
#include "athanor/device/cpu/order_simd.h"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
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
#define ATHANOR_RANGE(type, name) f.key_range[static_cast<int>(DType::name)] = &key_range<type>;
  ATHANOR_FORALL_DTYPES(ATHANOR_RANGE)
#undef ATHANOR_RANGE
  f.key_range[static_cast<int>(DType::Bool)] = &key_range<std::uint8_t>;
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
