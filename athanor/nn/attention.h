#pragma once
/// Multi-head attention (Vaswani et al., "Attention is all you need", 2017).

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/linear.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

/// kdim, vdim: features of key and value (embed_dim unless given). batch_first: (N, L, E) instead of (L, N, E).
/// add_bias_kv: a learned place behind the keys and values; add_zero_attn: one of zeros.
struct MultiheadAttentionOptions {
  MultiheadAttentionOptions(std::int64_t embed_dim, std::int64_t num_heads)
      : embed_dim_(embed_dim), num_heads_(num_heads), kdim_(embed_dim), vdim_(embed_dim) {}
  ATHANOR_ARG(std::int64_t, embed_dim);
  ATHANOR_ARG(std::int64_t, num_heads);
  ATHANOR_ARG(double, dropout) = 0.0;
  ATHANOR_ARG(bool, bias) = true;
  ATHANOR_ARG(bool, add_bias_kv) = false;
  ATHANOR_ARG(bool, add_zero_attn) = false;
  ATHANOR_ARG(std::int64_t, kdim);
  ATHANOR_ARG(std::int64_t, vdim);
  ATHANOR_ARG(bool, batch_first) = false;
};

namespace functional {

struct MultiheadAttentionForwardFuncOptions {
  MultiheadAttentionForwardFuncOptions(std::int64_t embed_dim_to_check, std::int64_t num_heads, Tensor in_proj_weight,
                                       Tensor in_proj_bias, Tensor bias_k, Tensor bias_v, bool add_zero_attn,
                                       double dropout_p, Tensor out_proj_weight, Tensor out_proj_bias)
      : embed_dim_to_check_(embed_dim_to_check),
        num_heads_(num_heads),
        in_proj_weight_(std::move(in_proj_weight)),
        in_proj_bias_(std::move(in_proj_bias)),
        bias_k_(std::move(bias_k)),
        bias_v_(std::move(bias_v)),
        add_zero_attn_(add_zero_attn),
        dropout_p_(dropout_p),
        out_proj_weight_(std::move(out_proj_weight)),
        out_proj_bias_(std::move(out_proj_bias)) {}
  ATHANOR_ARG(std::int64_t, embed_dim_to_check);
  ATHANOR_ARG(std::int64_t, num_heads);
  ATHANOR_ARG(Tensor, in_proj_weight);
  ATHANOR_ARG(Tensor, in_proj_bias);
  ATHANOR_ARG(Tensor, bias_k);
  ATHANOR_ARG(Tensor, bias_v);
  ATHANOR_ARG(bool, add_zero_attn);
  ATHANOR_ARG(double, dropout_p);
  ATHANOR_ARG(Tensor, out_proj_weight);
  ATHANOR_ARG(Tensor, out_proj_bias);
  ATHANOR_ARG(bool, training) = true;
  ATHANOR_ARG(Tensor, key_padding_mask) = {};
  ATHANOR_ARG(bool, need_weights) = true;
  ATHANOR_ARG(Tensor, attn_mask) = {};
  ATHANOR_ARG(bool, use_separate_proj_weight) = false;
  ATHANOR_ARG(Tensor, q_proj_weight) = {};
  ATHANOR_ARG(Tensor, k_proj_weight) = {};
  ATHANOR_ARG(Tensor, v_proj_weight) = {};
  ATHANOR_ARG(Tensor, static_k) = {};
  ATHANOR_ARG(Tensor, static_v) = {};
  ATHANOR_ARG(bool, average_attn_weights) = true;
  ATHANOR_ARG(bool, is_causal) = false;
};

/// query (L, N, E) or, without a batch, (L, E); key (S, N, K), value (S, N, V). key_padding_mask (N, S): bool, true
/// where a key is ignored, or floating, added to the scores; attn_mask (L, S) or (N · heads, L, S) likewise. is_causal
/// tells that attn_mask is the causal one, which is then not read if the weights are not wanted. Gives the result and
/// the weights (N, L, S), their mean over the heads unless average_attn_weights is false; undefined if need_weights is
/// false, which spares their memory.
std::tuple<Tensor, Tensor> multi_head_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                        const MultiheadAttentionForwardFuncOptions& options);

}  // namespace functional

/// Parameters: in_proj_weight (3E, E), or q_proj_weight, k_proj_weight and v_proj_weight where kdim or vdim differ from
/// embed_dim; in_proj_bias; out_proj; bias_k and bias_v.
class MultiheadAttentionImpl : public Cloneable<MultiheadAttentionImpl> {
 public:
  MultiheadAttentionImpl(std::int64_t embed_dim, std::int64_t num_heads)
      : MultiheadAttentionImpl(MultiheadAttentionOptions(embed_dim, num_heads)) {}
  explicit MultiheadAttentionImpl(const MultiheadAttentionOptions& options);
  void reset() override;
  void _reset_parameters();
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const Tensor& key_padding_mask = {}, bool need_weights = true,
                                     const Tensor& attn_mask = {}, bool average_attn_weights = true,
                                     bool is_causal = false);
  ATHANOR_FORWARD_HAS_DEFAULT_ARGS({3, AnyValue(Tensor())}, {4, AnyValue(true)}, {5, AnyValue(Tensor())},
                                   {6, AnyValue(true)}, {7, AnyValue(false)})

  MultiheadAttentionOptions options;
  bool _qkv_same_embed_dim = true;
  Tensor in_proj_weight, in_proj_bias, bias_k, bias_v;
  Linear out_proj = nullptr;
  Tensor q_proj_weight, k_proj_weight, v_proj_weight;
  std::int64_t head_dim = 0;
};
ATHANOR_LIBRARY_MODULE(MultiheadAttention);

}  // namespace athanor::nn
