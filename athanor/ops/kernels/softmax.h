#pragma once
/// Seam of softmax and the losses built on it.
///
/// Floating dtypes; computed in float32 (float64 for float64) and rounded once. All strides are allowed; a 0-d operand
/// counts as 1-d. A line that is -inf throughout, or contains +inf or NaN, gives NaN, as in PyTorch. Thread-safe;
/// parallel inside; results do not depend on the number of threads.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

/// out = exp(in - max) / sum along `dim`. One dtype, or `in` Half or BFloat16 and `out` Float. out may be in.
extern Kernel<void(const View& out, const View& in, std::int64_t dim)> softmax_kernel;
/// out = in - log(sum exp(in)) along `dim`; the same rules.
extern Kernel<void(const View& out, const View& in, std::int64_t dim)> log_softmax_kernel;

/// din = output * (grad - sum(grad * output)). grad and output share one dtype; din has it, or is Half or BFloat16
/// while they are Float. din may be grad.
extern Kernel<void(const View& din, const View& grad, const View& output, std::int64_t dim)> softmax_backward_kernel;
/// din = grad - exp(output) * sum(grad); the same rules.
extern Kernel<void(const View& din, const View& grad, const View& output, std::int64_t dim)>
    log_softmax_backward_kernel;

enum class LossReduction : std::int8_t { None = 0, Mean = 1, Sum = 2 };

/// Losses over classes. The class dim of logits / log_probs is 1, or 0 if they are 1-d; `target` (int64) has their
/// shape without it. A target equal to ignore_index contributes nothing; any other outside [0, C) throws IndexError.
struct ClassLossParams {
  LossReduction reduction = LossReduction::Mean;
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;  ///< read by cross_entropy only
};

/// Cross entropy of logits with class indices, log_softmax and nll_loss in one pass.
/// With w = weight[target] (weight has C elements; undefined: 1) and e the label smoothing, the loss of a position is
/// (1 - e) w (lse - x[target]) + e / C sum_c weight[c] (lse - x[c]). loss: target's shape for None, else one element:
/// the sum, for Mean divided by total_weight. lse (target's shape; float64, since the gradient takes logits as large
/// from it) receives log sum exp of each position; total_weight (one element; float32, or float64 if logits are) the
/// sum of w over positions that count. Mean of nothing is NaN.
extern Kernel<void(const View& loss, const View& lse, const View& total_weight, const View& logits, const View& target,
                   const View& weight, const ClassLossParams& params)>
    cross_entropy_kernel;
/// Gradient with respect to the logits, from what the forward saved; grad has the loss's shape and dtype.
extern Kernel<void(const View& dlogits, const View& grad, const View& logits, const View& lse, const View& total_weight,
                   const View& target, const View& weight, const ClassLossParams& params)>
    cross_entropy_backward_kernel;

/// loss = -w log_probs[target], reduced as above; total_weight as above.
extern Kernel<void(const View& loss, const View& total_weight, const View& log_probs, const View& target,
                   const View& weight, const ClassLossParams& params)>
    nll_loss_kernel;
/// Gradient with respect to log_probs, wholly overwritten.
extern Kernel<void(const View& dlog_probs, const View& grad, const View& total_weight, const View& target,
                   const View& weight, const ClassLossParams& params)>
    nll_loss_backward_kernel;

}  // namespace athanor
