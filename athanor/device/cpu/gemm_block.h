#pragma once
/// What the threads of a product share: decisions taken once from the whole problem, so that they (and with them the
/// order of each sum) do not depend on how it is split.

#include "athanor/device/cpu/gemm.h"

namespace athanor::detail {

struct GemmPlan {
  bool pack_a = true, pack_b = true;
  bool in_place = false;  ///< tiles may read both operands where they lie: see gemm_wide-inl.h
  /// Sums over many steps before they leave registers, for products so large that what is packed passes by in the third
  /// cache: eight row tiles of a stay in the second cache, each fetches a part of the panel of b that comes next, and
  /// the results are written once.
  bool deep = false;
  enum class Form : std::uint8_t {
    Tiles,
    Dots,      ///< few rows, both operands run along k
    FewRows,   ///< few rows, b runs along its rows
    FewSteps,  ///< an inner size of at most 4, b runs along its rows
    Matrix,    ///< on matrix units
    Pairs,     ///< dot products of pairs of bfloat16
  } form = Form::Tiles;
};

GemmPlan plan_gemm(const GemmProblem& g);

/// One block of the output on the calling thread, by the family of g.dtype.
void gemm_block_f32(const GemmProblem& g, const GemmPlan& plan);  ///< float32, bfloat16, half
void gemm_block_f64(const GemmProblem& g, const GemmPlan& plan);
void gemm_block_int(const GemmProblem& g, const GemmPlan& plan);

/// Scratch memory of the calling thread, 64-byte aligned, kept for the next call. `slot` tells buffers in use at the
/// same time apart. Contents are lost at the next request for the slot.
void* thread_scratch(int slot, std::size_t bytes);
inline constexpr int kScratchSlots = 8;

}  // namespace athanor::detail
