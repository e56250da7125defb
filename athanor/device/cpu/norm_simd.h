#pragma once
/// Vector code of the normalisations on dense float32 or float64 (T below). Vectors of parameters are T, too.

#include <cstdint>

#include "athanor/tensor/dtype.h"

namespace athanor::cpu {

/// Per-channel parameters of x -> (x - center) * scale + shift, or of a gradient g -> g * scale + (x - center) * slope
/// + shift: one value each, or one per column.
struct NormParams {
  const void* center;
  const void* scale;
  const void* slope;
  const void* shift;
};

struct NormFns {
  /// out = (x - center) * scale + shift over n elements, with values (`row`) or vectors (`columns`) of parameters;
  /// clamped at 0 if `relu`. Unless `more` is null, it is added first, and the sum clamped whatever `relu` says.
  void (*affine_row)(void* out, const void* x, const void* more, std::int64_t n, const NormParams& p, bool relu,
                     bool stream);
  void (*affine_columns)(void* out, const void* x, const void* more, std::int64_t n, const NormParams& p, bool relu,
                         bool stream);
  /// dx = g * scale + (x - center) * slope + shift. g counts as 0 where y, unless null, is not positive.
  void (*gradient_row)(void* dx, const void* g, const void* x, const void* y, std::int64_t n, const NormParams& p);
  void (*gradient_columns)(void* dx, const void* g, const void* x, const void* y, std::int64_t n, const NormParams& p);
  /// sums[0] += sum g, sums[1] += sum g * (x - center); g as above.
  void (*dot_row)(double* sums, const void* g, const void* x, const void* y, std::int64_t n, double center);
  /// The same per column, for `rows` rows at a distance of `stride` elements: sum_g, sum_gx are vectors of T.
  void (*dot_columns)(void* sum_g, void* sum_gx, const void* g, const void* x, const void* y, std::int64_t stride,
                      std::int64_t rows, std::int64_t n, const void* center);
  /// out = (x - mean) * rstd * weight + bias; weight and bias may be null. What lies `ahead` elements after x is
  /// fetched.
  void (*layer_row)(void* out, const void* x, const void* weight, const void* bias, std::int64_t n, double mean,
                    double rstd, std::int64_t ahead, bool stream);
  /// layer_row with what it takes: mean and 1 / sqrt(variance + eps), which it writes, of `rows` rows that follow each
  /// other. weight and bias are there; n is at least 1.
  void (*layer_rows)(void* out, const void* x, const void* weight, const void* bias, std::int64_t n, std::int64_t rows,
                     double eps, double* mean, double* rstd, bool stream);
  /// With h = (x - mean) * rstd and q = g * weight: dx = rstd * (q - mean(q) - h * mean(q h)), where mean(q) counts as
  /// 0 unless `centred`; dweight += g h; dbias += g. Each of weight, dx, dweight, dbias may be null; dx may be g.
  void (*layer_gradient_row)(void* dx, void* dweight, void* dbias, const void* g, const void* x, const void* weight,
                             std::int64_t n, double mean, double rstd, bool centred);
  // Blocks of channels: rows of `block` columns, n elements in all, one parameter per column.
  void (*affine_blocks)(void* out, const void* x, const void* more, std::int64_t n, std::int64_t block,
                        const NormParams& p, bool relu, bool stream);
  void (*gradient_blocks)(void* dx, const void* g, const void* x, const void* y, std::int64_t n, std::int64_t block,
                          const NormParams& p);
  /// Vectors of `block` T: mean and sum of squared deviations of every column.
  void (*moments_blocks)(void* mean, void* m2, const void* x, std::int64_t n, std::int64_t block);
  /// The same for sum g and sum g * (x - center).
  void (*dot_blocks)(void* sum_g, void* sum_gx, const void* g, const void* x, const void* y, std::int64_t n,
                     std::int64_t block, const void* center);
};
/// For Float or Double.
const NormFns& norm_fns(DType compute);

}  // namespace athanor::cpu
