#pragma once
/// Seam of fused attention: softmax(scale q kᵀ + mask) v by blocks with a running maximum and sum (Dao, Fu, Ermon,
/// Rudra, Ré: "FlashAttention", NeurIPS 2022), so that memory grows with L + S, not with L · S.
///
/// q (B, H, L, E), k (B, G, S, E), v (B, G, S, F) with H a multiple of G: query head h reads k and v of head h / (H /
/// G). One dtype, float32 or float64, any strides. mask: absent, or (B, H, L, S) with any strides, bool (false: the
/// place is left out) or of q's dtype (added to the scores). A row whose places are all left out gives zeros. Results
/// do not depend on the number of threads.

#include "athanor/ops/kernels/kernel.h"
#include "athanor/tensor/generator.h"

namespace athanor {

struct AttentionParams {
  bool causal = false;  ///< row i sees the places 0 … i only
  double scale = 1;
  double dropout = 0;  ///< probabilities dropped, in [0, 1); draws as dropout_kernel's on a (B, H, L, S) tensor
  PhiloxState state;
};

/// out (B, H, L, F); lse (B, H, L), row-major, receives log sum exp of each row's scores.
extern Kernel<void(const View& out, const View& lse, const View& q, const View& k, const View& v, const View& mask,
                   const AttentionParams& params)>
    attention_kernel;
/// Gradients with respect to q, k and v (each may be undefined) from the result's and from what the forward gave.
extern Kernel<void(const View& dq, const View& dk, const View& dv, const View& grad, const View& q, const View& k,
                   const View& v, const View& mask, const View& out, const View& lse, const AttentionParams& params)>
    attention_backward_kernel;

}  // namespace athanor
