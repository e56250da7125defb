#pragma once
/// Seam of connectionist temporal classification (Graves et al., ICML 2006), in log space. Float or Double.

#include "athanor/base/array_ref.h"
#include "athanor/ops/kernels/kernel.h"

namespace athanor {

/// loss (N) = minus the log probability of each sequence of labels under log_probs (T, N, C), summed over its
/// alignments; alpha (N, T, 2 S + 1) = log probability of the prefixes, S at least the longest target. targets: Long or
/// Int, (N, S') or all targets one after another. input_lengths and target_lengths: N each. Throws Error for a label
/// outside [0, C) or equal to blank.
extern Kernel<void(const View& loss, const View& alpha, const View& log_probs, const View& targets,
                   IntArrayRef input_lengths, IntArrayRef target_lengths, std::int64_t blank)>
    ctc_loss_kernel;

/// dlog_probs (T, N, C) = grad (N) times the derivative of loss. zero_infinity: none where the loss is infinite.
extern Kernel<void(const View& dlog_probs, const View& grad, const View& loss, const View& alpha, const View& log_probs,
                   const View& targets, IntArrayRef input_lengths, IntArrayRef target_lengths, std::int64_t blank,
                   bool zero_infinity)>
    ctc_loss_backward_kernel;

}  // namespace athanor
