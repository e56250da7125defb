#pragma once
/// Kernels that work along one dim: brings strided or half-precision lines to dense memory of the computing dtype and
/// shares them out over threads.

#include <cstdint>

#include "athanor/tensor/view.h"

namespace athanor::cpu {

/// Functions on elements of the computing dtype. `b` is null for kernels of one input. out may be a or b.
struct LineFns {
  /// One dense line of n elements. `stream`: out is large; bypass the caches if it is done in one go.
  void (*row)(void* out, const void* a, const void* b, std::int64_t n, bool stream);
  /// w <= kLineStrip neighbouring lines: element i of line c is at [i * stride + c].
  void (*columns)(void* out, std::int64_t out_stride, const void* a, std::int64_t a_stride, const void* b,
                  std::int64_t b_stride, std::int64_t n, std::int64_t w);
};

inline constexpr std::int64_t kLineStrip = 256;

/// out = fns(a, b) along `dim`. The operands share a shape; `b` may be an undefined View.
void run_lines(const LineFns& fns, DType compute, const View& out, const View& a, const View& b, std::int64_t dim);

}  // namespace athanor::cpu
