#pragma once
/// Moves between strided memory of any dtype and dense memory of the dtype a kernel computes in.

#include <cstdint>

#include "athanor/tensor/view.h"

namespace athanor::cpu {

/// to[i] = from[i] for n dense elements, converted.
void convert_line(void* to, DType to_type, const void* from, DType from_type, std::int64_t n);
/// to[i] = from[i * stride], converted; `to` is dense.
void load_line(void* to, DType to_type, const void* from, DType from_type, std::int64_t stride, std::int64_t n);
/// to[i * stride] = from[i], converted; `from` is dense.
void store_line(void* to, DType to_type, std::int64_t stride, const void* from, DType from_type, std::int64_t n);

/// to[i] = element start + i of `v` in row-major order, converted; `to` is dense.
void load_range(void* to, DType to_type, const View& v, std::int64_t start, std::int64_t n);
/// Element start + i of `v` in row-major order = from[i], converted; `from` is dense.
void store_range(const View& v, std::int64_t start, const void* from, DType from_type, std::int64_t n);

/// The dtype in which a kernel computes on elements of `t`: float32 for the halves, else t itself.
constexpr DType computing_dtype(DType t) { return is_half(t) ? DType::Float : t; }

/// Address of element `i` from `p`.
inline char* element(void* p, std::int64_t i, std::size_t size) {
  return static_cast<char*>(p) + i * static_cast<std::int64_t>(size);
}

/// A view seen as lines along one dim: every other dim is merged where strides allow, smallest stride first.
struct Lines {
  std::int64_t length = 1, stride = 1;  ///< of a line, in elements
  std::int64_t count = 1;               ///< lines
  int ndim = 0;                         ///< other dims
  static constexpr int kOperands = 5;
  std::int64_t sizes[64];
  std::int64_t strides[kOperands][64];
  std::int64_t line_stride[kOperands];  ///< along the line, per operand

  /// Lines of views[0..n) along `dim` (negative counts from the end; a 0-d view is one line of one element). All have
  /// the same sizes but along `dim`, where `length` is views[0]'s. Undefined views get strides 0.
  Lines(const View* const* views, int n, std::int64_t dim);
  /// Offset in elements of line `i` in operand `v`.
  std::int64_t offset(int v, std::int64_t i) const {
    std::int64_t sum = 0;
    for (int d = 0; d < ndim; ++d) {
      sum += i % sizes[d] * strides[v][d];
      i /= sizes[d];
    }
    return sum;
  }
};

}  // namespace athanor::cpu
