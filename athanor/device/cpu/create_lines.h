#pragma once
/// Evenly spaced values in dense memory, one function per element type and instruction set.

#include <cstdint>

namespace athanor::cpu {

struct CreateFns {
  /// out[j] = a + s * (f + d * j) for j < n, computed in float64; n below 2^31.
  void (*line_f32)(void* out, std::int64_t n, double a, double s, double f, double d);
  void (*line_f64)(void* out, std::int64_t n, double a, double s, double f, double d);
  /// out[j] = first + j * step, modulo 2^bits; of elements of 1 << log2_size bytes.
  void (*ramp[4])(void* out, std::int64_t n, std::uint64_t first, std::uint64_t step);
};

const CreateFns& create_fns();

}  // namespace athanor::cpu
