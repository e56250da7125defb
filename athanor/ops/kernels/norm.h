#pragma once
/// Seam of the normalisations.
///
/// Activations (out, in, grad, din) share one floating dtype. Statistics (mean, rstd, saved and running values) are
/// float32, or float64 if the activations are. weight, bias and their gradients have the activations' dtype or that of
/// the statistics, and are contiguous; optional operands may be undefined Views. Statistics are formed in float32
/// blocks joined in float64 (variances by Chan's pairwise update). out may be in, din may be grad. Thread-safe;
/// parallel inside; results do not depend on the number of threads.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

// ---- over the last dims: activations contiguous, seen as M rows of N = weight's elements. mean, rstd: M elements.

/// out = (in - mean) * rstd * weight + bias with rstd = 1 / sqrt(var + eps), var biased. weight, bias, and (when no
/// gradient will be needed) mean, rstd may be undefined. `rows` is M.
extern Kernel<void(const View& out, const View& mean, const View& rstd, const View& in, const View& weight,
                   const View& bias, std::int64_t rows, double eps)>
    layer_norm_kernel;
/// Each of din, dweight, dbias may be undefined.
extern Kernel<void(const View& din, const View& dweight, const View& dbias, const View& grad, const View& in,
                   const View& mean, const View& rstd, const View& weight, std::int64_t rows)>
    layer_norm_backward_kernel;

/// out = in * rstd * weight with rstd = 1 / sqrt(mean(in^2) + eps).
extern Kernel<void(const View& out, const View& rstd, const View& in, const View& weight, std::int64_t rows,
                   double eps)>
    rms_norm_kernel;
extern Kernel<void(const View& din, const View& dweight, const View& grad, const View& in, const View& rstd,
                   const View& weight, std::int64_t rows)>
    rms_norm_backward_kernel;

// ---- per channel: activations (N, C) or (N, C, spatial…), contiguous, channels-last or (batch norm) in blocks of
// channels (View::block), all of a call alike; weight,
// bias and statistics have C elements.

/// Training: statistics of this batch. save_mean and save_invstd = 1 / sqrt(var + eps), var biased, are required;
/// running_mean and running_var (unbiased) are updated as r += momentum * (batch - r) unless undefined. `residual`,
/// laid out as in, is added unless undefined; `relu` then clamps the result at 0. Throws ValueError when there is one
/// value per channel (the unbiased variance is undefined).
extern Kernel<void(const View& out, const View& save_mean, const View& save_invstd, const View& running_mean,
                   const View& running_var, const View& in, const View& weight, const View& bias, double momentum,
                   double eps, bool relu, const View& residual)>
    batch_norm_kernel;
/// Inference: out = (in - mean) / sqrt(var + eps) * weight + bias, + residual.
extern Kernel<void(const View& out, const View& in, const View& weight, const View& bias, const View& mean,
                   const View& var, double eps, bool relu, const View& residual)>
    batch_norm_eval_kernel;
/// Gradients of either: with `training`, the statistics depend on `in`; without, they are constants (pass the running
/// mean and 1 / sqrt(running_var + eps)). `out` is read where the forward had relu, else undefined. Each of din,
/// dweight, dbias may be undefined.
extern Kernel<void(const View& din, const View& dweight, const View& dbias, const View& grad, const View& in,
                   const View& out, const View& mean, const View& invstd, const View& weight, bool training)>
    batch_norm_backward_kernel;

/// Normalises each of `groups` equal groups of channels of each sample; contiguous activations. mean, rstd: N * groups
/// elements. Instance norm is groups = C.
extern Kernel<void(const View& out, const View& mean, const View& rstd, const View& in, const View& weight,
                   const View& bias, std::int64_t groups, double eps)>
    group_norm_kernel;
extern Kernel<void(const View& din, const View& dweight, const View& dbias, const View& grad, const View& in,
                   const View& mean, const View& rstd, const View& weight, std::int64_t groups)>
    group_norm_backward_kernel;

}  // namespace athanor
