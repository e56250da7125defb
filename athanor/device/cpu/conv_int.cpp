#define ATHANOR_NO_AVX512
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/conv_int.cpp"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/conv_weight-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

template <class In, class T>
void taps_as(const ConvCall& call, const TapConv& taps) {
  TapRun<In, T>(call, taps).run();
}
template <class In, class T>
void weight_as(const ConvCall& call) {
  const TapConv taps = detail::forward_taps(call.shape);
  WeightRun<In, T>(call, taps).run();
}

// The low bits of a product do not depend on the sign, so unsigned types serve all.
void tap_conv_int(const ConvCall& call, const TapConv& taps) {
  switch (item_size(call.dtype)) {
    case 1:
      return taps_as<std::uint8_t, std::uint32_t>(call, taps);
    case 2:
      return taps_as<std::uint16_t, std::uint32_t>(call, taps);
    case 4:
      return taps_as<std::uint32_t, std::uint32_t>(call, taps);
    default:
      return taps_as<std::uint64_t, std::uint64_t>(call, taps);
  }
}
void conv_weight_int(const ConvCall& call) {
  switch (item_size(call.dtype)) {
    case 1:
      return weight_as<std::uint8_t, std::uint32_t>(call);
    case 2:
      return weight_as<std::uint16_t, std::uint32_t>(call);
    case 4:
      return weight_as<std::uint32_t, std::uint32_t>(call);
    default:
      return weight_as<std::uint64_t, std::uint64_t>(call);
  }
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor {
HWY_EXPORT(tap_conv_int);
HWY_EXPORT(conv_weight_int);
void detail::tap_conv_int(const ConvCall& call, const TapConv& taps) { HWY_DYNAMIC_DISPATCH(tap_conv_int)(call, taps); }
void detail::conv_weight_int(const ConvCall& call) { HWY_DYNAMIC_DISPATCH(conv_weight_int)(call); }
}  // namespace athanor
#endif
