#pragma once
/// Moves of dense memory that need vector instructions: half conversions and stores that bypass the caches.

#include <array>
#include <cstdint>

#include "athanor/device/cpu/strided_loop.h"
#include "athanor/tensor/dtype.h"
#include "athanor/tensor/scalar.h"

namespace athanor::cpu {

struct BlockOps {
  void (*half_to_float)(float* to, const std::uint16_t* from, std::int64_t n);
  void (*bfloat16_to_float)(float* to, const std::uint16_t* from, std::int64_t n);
  void (*float_to_half)(std::uint16_t* to, const float* from, std::int64_t n);
  void (*float_to_bfloat16)(std::uint16_t* to, const float* from, std::int64_t n);
  /// Copies with streaming stores; call stream_fence before another thread may read.
  void (*stream)(void* to, const void* from, std::int64_t bytes);
  void (*stream_fence)();
  /// n copies of an element of 1 << log2_size bytes at `value`.
  void (*fill[4])(void* to, const void* value, std::int64_t n);
  /// to[i] = from[2 i] for i < n, elements of 1 << log2_size bytes.
  void (*every_second[4])(void* to, const void* from, std::int64_t n);
  /// Dense conversion between dtypes other than the halves; both operands dense.
  LoopFn convert[kNumDTypes][kNumDTypes];
  /// to[c * to_stride + r] = from[r * from_stride + c], for 0 <= r < rows, 0 <= c < cols; strides in elements of
  /// 1 << log2_size bytes. `stream`: with streaming stores where alignment allows.
  void (*transpose[4])(void* to, std::int64_t to_stride, const void* from, std::int64_t from_stride, std::int64_t rows,
                       std::int64_t cols, bool stream);
};

/// Those of the best instruction set of this CPU.
const BlockOps& block_ops();
/// Chooses them again; see use_simd_target.
void reload_block_ops();

/// The bytes of one element of dtype t with this value, converted as copy_kernel converts.
std::array<char, 8> element_bytes(Scalar value, DType t);

}  // namespace athanor::cpu
