#define ATHANOR_NO_AVX512
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/gemm_int.cpp"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/gemm_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

template TileFn<std::uint32_t> tile_for<std::uint32_t>(int rows, int vectors, AForm form);
template void run_tiles<std::uint32_t>(int rows, int vectors, AForm form, const TileRun<std::uint32_t>& run);
template TileFn<std::uint64_t> tile_for<std::uint64_t>(int rows, int vectors, AForm form);
template void run_tiles<std::uint64_t>(int rows, int vectors, AForm form, const TileRun<std::uint64_t>& run);

// The low bits of a product do not depend on the sign, so unsigned types serve all.
void gemm_block_int(const GemmProblem& g, const detail::GemmPlan& plan) {
  switch (item_size(g.dtype)) {
    case 1:
      return gemm_block<std::uint8_t, std::uint32_t>(g, plan);
    case 2:
      return gemm_block<std::uint16_t, std::uint32_t>(g, plan);
    case 4:
      return gemm_block<std::uint32_t, std::uint32_t>(g, plan);
    default:
      return gemm_block<std::uint64_t, std::uint64_t>(g, plan);
  }
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor {
HWY_EXPORT(gemm_block_int);
void detail::gemm_block_int(const GemmProblem& g, const GemmPlan& plan) {
  HWY_DYNAMIC_DISPATCH(gemm_block_int)(g, plan);
}
}  // namespace athanor
#endif
