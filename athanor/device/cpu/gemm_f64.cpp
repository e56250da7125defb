#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/gemm_f64.cpp"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/gemm_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

template TileFn<double> tile_for<double>(int rows, int vectors, AForm form);
template void run_tiles<double>(int rows, int vectors, AForm form, const TileRun<double>& run);

void gemm_block_f64(const GemmProblem& g, const detail::GemmPlan& plan) { gemm_block<double, double>(g, plan); }

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor {
HWY_EXPORT(gemm_block_f64);
void detail::gemm_block_f64(const GemmProblem& g, const GemmPlan& plan) {
  HWY_DYNAMIC_DISPATCH(gemm_block_f64)(g, plan);
}
}  // namespace athanor
#endif
