#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/conv_f32.cpp"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/conv_depthwise-inl.h"
#include "athanor/device/cpu/conv_dots-inl.h"
#include "athanor/device/cpu/conv_scatter-inl.h"
#include "athanor/device/cpu/conv_taps-inl.h"
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

void tap_conv_f32(const ConvCall& call, const TapConv& taps) {
  if (call.dtype == DType::Float) {
    if (detail::depthwise(call, taps)) return DepthwiseRun<float>(call, taps).run();
    if (detail::scatters(call, taps)) return ScatterRun<float>(call, taps).run();
    if (detail::few_channels(call, taps)) return DirectRun<float>(call, taps).run();
    return taps_as<float, float>(call, taps);
  }
  if (call.dtype == DType::BFloat16) return taps_as<BFloat16, float>(call, taps);
  taps_as<Half, float>(call, taps);
}
void conv_weight_f32(const ConvCall& call) {
  if (call.dtype == DType::Float) {
    const TapConv taps = detail::forward_taps(call.shape);
    if (detail::depthwise(call, taps)) return DepthwiseWeight<float>(call, taps).run();
    if (detail::few_weights(call, taps)) return DotWeight<float>(call, taps).run();
    return weight_as<float, float>(call);
  }
  if (call.dtype == DType::BFloat16) return weight_as<BFloat16, float>(call);
  weight_as<Half, float>(call);
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor {
HWY_EXPORT(tap_conv_f32);
HWY_EXPORT(conv_weight_f32);
void detail::tap_conv_f32(const ConvCall& call, const TapConv& taps) { HWY_DYNAMIC_DISPATCH(tap_conv_f32)(call, taps); }
void detail::conv_weight_f32(const ConvCall& call) { HWY_DYNAMIC_DISPATCH(conv_weight_f32)(call); }
}  // namespace athanor
#endif
