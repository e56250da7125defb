#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/conv_f64.cpp"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/conv_weight-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

void tap_conv_f64(const ConvCall& call, const TapConv& taps) { TapRun<double, double>(call, taps).run(); }
void conv_weight_f64(const ConvCall& call) {
  const TapConv taps = detail::forward_taps(call.shape);
  WeightRun<double, double>(call, taps).run();
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor {
HWY_EXPORT(tap_conv_f64);
HWY_EXPORT(conv_weight_f64);
void detail::tap_conv_f64(const ConvCall& call, const TapConv& taps) { HWY_DYNAMIC_DISPATCH(tap_conv_f64)(call, taps); }
void detail::conv_weight_f64(const ConvCall& call) { HWY_DYNAMIC_DISPATCH(conv_weight_f64)(call); }
}  // namespace athanor
#endif
