// Gradient checks rather than models use it: no AVX-512.
#define ATHANOR_NO_AVX512
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/rnn_f64.cpp"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/rnn_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
void fill_rnn_f64(cpu::RnnFns& f) { f = rnn_fns<double>(); }
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor {
HWY_EXPORT(fill_rnn_f64);
cpu::RnnFns cpu::rnn_f64() {
  RnnFns f{};
  HWY_DYNAMIC_DISPATCH(fill_rnn_f64)(f);
  return f;
}
}  // namespace athanor
#endif
