#pragma once
/// Driver of element-wise loops: brings out and its inputs to one iteration space (broadcast, sizes of 1 dropped, dims
/// ordered by out's strides, adjoining dims merged), cuts it by size over threads, and calls an inner loop on runs.
///
/// Inner loops are plain function pointers, one per operation, computing type and instruction set. They see dense
/// memory only; what is strided, half precision or too large for the cache passes through small blocks on the stack.

#include <cstdint>

#include "athanor/base/parallel.h"
#include "athanor/tensor/view.h"

namespace athanor::cpu {

/// ptrs[0] is the output, then the inputs; strides in bytes. The output is dense; each input is dense or, if the
/// operation's LoopSpec says so, one repeated element (stride 0). Inputs may be the output itself. If the LoopSpec says
/// that the loop can, strides[0] may be no stride: from kAskAhead on, it is how many bytes ahead inputs are to be asked
/// for; if negative, that is -strides[0], and results bypass the caches: the output is then whole cache lines, and an
/// input whose stride has a minus before it need not be asked for.
using LoopFn = void (*)(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params);

/// Larger than any element.
inline constexpr std::int64_t kAskAhead = 1024;

inline constexpr int kMaxOperands = 4;
inline constexpr int kMaxLoopDims = 64;

/// An iteration space: dim 0 is the innermost.
struct LoopPlan {
  int ndim = 0;
  int operands = 0;
  std::int64_t numel = 0;
  char* data[kMaxOperands];
  std::int64_t sizes[kMaxLoopDims];
  std::int64_t strides[kMaxOperands][kMaxLoopDims];  ///< in bytes
};

/// Fills `plan` for out = views[0] and the inputs after it, which broadcast against it. Throws Error if one does not.
void plan_loop(LoopPlan& plan, const View* const* views, int operands);

/// What to run on a plan.
struct LoopSpec {
  LoopFn fn = nullptr;
  const void* params = nullptr;
  LoopFn row_fn = nullptr;        ///< fn where an element of one input meets a row of whole cache lines; or null: the
                                  ///< input's stride is the length of that row, in bytes and negative
  DType storage[kMaxOperands];    ///< dtypes in memory; halves among `widen` reach fn as float32
  bool widen[kMaxOperands] = {};  ///< this operand is Half or BFloat16 in memory and float32 for fn
  bool takes_scalars = false;     ///< fn accepts inputs of stride 0
  bool streams = false;           ///< fn knows the other meanings of strides[0]
  std::int64_t grain = 32768;     ///< elements below which a second thread does not pay
};

void run_loop(const LoopSpec& spec, const LoopPlan& plan);
/// The same for dense operands of `numel` elements each (repeats[i]: one element, repeated), without a plan.
void run_dense_loop(const LoopSpec& spec, char* const* data, const bool* repeats, int operands, std::int64_t numel);

/// Runs `spec` on out = views[0] and the inputs after it: at once if all are dense and of one size, else over a plan.
void run_views(const LoopSpec& spec, const View* const* views, int operands);

/// Output sizes in bytes from which results bypass the caches.
inline constexpr std::int64_t kStreamBytes = 32 << 20;

/// Elements a block holds while it passes through the stack.
inline constexpr std::int64_t kBlock = 1024;

/// Calls body(begin, end) on pieces of [0, numel) cut at multiples of kBlock.
template <class F>
void parallel_blocks(std::int64_t numel, std::int64_t grain, F&& body) {
  if (numel <= grain) {
    body(std::int64_t{0}, numel);
    return;
  }
  parallel_for(0, (numel + kBlock - 1) / kBlock, (grain + kBlock - 1) / kBlock, [&](std::int64_t b, std::int64_t e) {
    const std::int64_t end = e * kBlock;
    body(b * kBlock, end < numel ? end : numel);
  });
}

}  // namespace athanor::cpu
