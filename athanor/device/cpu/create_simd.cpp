#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/create_simd.cpp"
#include "athanor/device/cpu/create_lines.h"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

// Plain loops: the compiler vectorizes them for each target. Indices are int32, which every target converts to float64.

template <class T>
void line(void* to, std::int64_t n, double a, double s, double f, double d) {
  T* HWY_RESTRICT out = static_cast<T*>(to);
  const auto count = static_cast<std::int32_t>(n);
  for (std::int32_t j = 0; j < count; ++j) out[j] = static_cast<T>(a + s * (f + d * static_cast<double>(j)));
}

template <class U>
void ramp(void* to, std::int64_t n, std::uint64_t first, std::uint64_t step) {
  U* HWY_RESTRICT out = static_cast<U*>(to);
  const auto by = static_cast<U>(step);
  auto value = static_cast<U>(first);
  for (std::int64_t j = 0; j < n; ++j) {
    out[j] = value;
    value = static_cast<U>(value + by);
  }
}

}  // namespace

CreateFns create_functions() {
  return {
      line<float>, line<double>, {ramp<std::uint8_t>, ramp<std::uint16_t>, ramp<std::uint32_t>, ramp<std::uint64_t>}};
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {

HWY_EXPORT(create_functions);

const CreateFns& create_fns() {
  static const CreateFns fns = HWY_DYNAMIC_DISPATCH(create_functions)();
  return fns;
}

}  // namespace athanor::cpu
#endif
