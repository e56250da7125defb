#pragma once
/// Vector code of the factorizations of matrices.

#include <cstdint>

namespace athanor::cpu {

/// y[i] -= c[0] x[i], then c[c_step] x[x_step + i] and so on for `count` of them, i < n; with fused multiply-adds where
/// the instruction set has them. What is written overlaps nothing that is read.
void subtract_sum(float* y, const float* x, std::int64_t x_step, const float* c, std::int64_t c_step,
                  std::int64_t count, std::int64_t n);
void subtract_sum(double* y, const double* x, std::int64_t x_step, const double* c, std::int64_t c_step,
                  std::int64_t count, std::int64_t n);

/// The first place of the largest absolute value among n >= 1; 0 if x[0] is NaN, other NaN do not count.
std::int64_t largest_size(const float* x, std::int64_t n);
std::int64_t largest_size(const double* x, std::int64_t n);

}  // namespace athanor::cpu
