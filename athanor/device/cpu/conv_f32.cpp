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

void tap_conv_f32(const ConvCall& call, const TapConv& taps) {
  if (detail::depthwise(call, taps)) return DepthwiseRun<float>(call, taps).run();
  if (detail::scatters(call, taps)) return ScatterRun<float>(call, taps).run();
  if (detail::few_channels(call, taps)) return DirectRun<float>(call, taps).run();
  TapRun<float, float>(call, taps).run();
}
void conv_weight_f32(const ConvCall& call) {
  const TapConv taps = detail::forward_taps(call.shape);
  if (detail::depthwise(call, taps)) return DepthwiseWeight<float>(call, taps).run();
  if (detail::few_weights(call, taps)) return DotWeight<float>(call, taps).run();
  WeightRun<float, float>(call, taps).run();
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
