#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/gemm_f32.cpp"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/gemm_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

template TileFn<float> tile_for<float>(int rows, int vectors, AForm form);
template void run_tiles<float>(int rows, int vectors, AForm form, const TileRun<float>& run);

void gemm_block_f32(const GemmProblem& g, const detail::GemmPlan& plan) {
  if (g.dtype == DType::Float)
    gemm_block<float, float>(g, plan);
  else if (g.dtype == DType::BFloat16)
    gemm_block<BFloat16, float>(g, plan);
  else
    gemm_block<Half, float>(g, plan);
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor {
HWY_EXPORT(gemm_block_f32);
void detail::gemm_block_f32(const GemmProblem& g, const GemmPlan& plan) {
  HWY_DYNAMIC_DISPATCH(gemm_block_f32)(g, plan);
}
}  // namespace athanor
#endif
