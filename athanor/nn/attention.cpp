#include "athanor/nn/attention.h"

#include <cmath>

#include "athanor/nn/init.h"
#include "athanor/ops/factory.h"

namespace athanor::nn {

namespace functional {

namespace {

using Options = MultiheadAttentionForwardFuncOptions;
constexpr const char* kName = "multi_head_attention_forward";

struct Projected {
  Tensor q, k, v;  ///< (L, N, E), (S, N, E), (S, N, E)
};

void check_shapes(const Tensor& query, const Tensor& key, const Tensor& value, const Options& o) {
  const std::int64_t embed = query.size(-1), heads = o.num_heads();
  ATHANOR_CHECK(query.dim() == 3 && key.dim() == 3 && value.dim() == 3, kName,
                ": query, key and value should all be 3-D (or 2-D without a batch), got ", query.dim(), "-D, ",
                key.dim(), "-D and ", value.dim(), "-D tensors");
  ATHANOR_CHECK(embed == o.embed_dim_to_check(), kName, ": was expecting embedding dimension of ",
                o.embed_dim_to_check(), ", but got ", embed, " in a query of shape ", query.sizes());
  ATHANOR_CHECK(heads > 0 && embed % heads == 0, kName, ": embed_dim ", embed, " not divisible by num_heads ", heads);
  ATHANOR_CHECK(key.size(0) == value.size(0) && key.size(1) == value.size(1), kName, ": key's sequence and batch dims ",
                key.sizes(), " do not match value's ", value.sizes());
  ATHANOR_CHECK(key.size(1) == query.size(1), kName, ": query has batch size ", query.size(1), ", key ", key.size(1));
}

Projected project(const Tensor& query, const Tensor& key, const Tensor& value, const Options& o) {
  const std::int64_t embed = o.embed_dim_to_check();
  const Tensor& bias = o.in_proj_bias();
  const auto part = [&](const Tensor& t, std::int64_t i, std::int64_t n) {
    return t.defined() ? t.narrow(0, i * embed, n * embed) : t;
  };
  if (o.use_separate_proj_weight())
    return {athanor::linear(query, o.q_proj_weight(), part(bias, 0, 1)),
            athanor::linear(key, o.k_proj_weight(), part(bias, 1, 1)),
            athanor::linear(value, o.v_proj_weight(), part(bias, 2, 1))};
  const Tensor& weight = o.in_proj_weight();
  if (query.is_same(key) && key.is_same(value)) {
    const auto all = athanor::linear(query, weight, bias).chunk(3, -1);
    return {all[0], all[1], all[2]};
  }
  if (key.is_same(value)) {
    const auto both = athanor::linear(key, part(weight, 1, 2), part(bias, 1, 2)).chunk(2, -1);
    return {athanor::linear(query, part(weight, 0, 1), part(bias, 0, 1)), both[0], both[1]};
  }
  return {athanor::linear(query, part(weight, 0, 1), part(bias, 0, 1)),
          athanor::linear(key, part(weight, 1, 1), part(bias, 1, 1)),
          athanor::linear(value, part(weight, 2, 1), part(bias, 2, 1))};
}

/// (L, N, E) as (N, heads, L, E / heads).
Tensor by_heads(const Tensor& t, std::int64_t heads) {
  return t.reshape({t.size(0), t.size(1), heads, t.size(2) / heads}).permute({1, 2, 0, 3});
}

void check_mask(const char* what, const Tensor& mask) {
  ATHANOR_CHECK(!mask.defined() || mask.dtype() == kBool || mask.is_floating_point(), kName,
                ": only bool and floating ", "types of ", what, " are supported, got ", mask.dtype());
}

/// A mask's columns, `more` of them added that are open.
Tensor widened(const Tensor& mask, std::int64_t more) {
  if (!mask.defined() || more == 0) return mask;
  DimVector sizes(mask.sizes());
  sizes.back() = more;
  return cat({mask, zeros(sizes, mask.options())}, -1);
}

struct Masks {
  Tensor attention;  ///< (N or 1, heads or 1, L, S): true where closed, or added to the scores
  Tensor padding;    ///< (N, 1, 1, S)
};

Masks shaped_masks(const Options& o, std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t added) {
  const std::int64_t heads = o.num_heads();
  Tensor attention = o.attn_mask(), padding = o.key_padding_mask();
  check_mask("attn_mask", attention);
  check_mask("key_padding_mask", padding);
  if (attention.defined()) {
    const std::int64_t given = attention.dim();
    ATHANOR_CHECK(given == 2 || given == 3, kName, ": attn_mask's dimension ", given, " is not supported");
    const DimVector expected = given == 2 ? DimVector{rows, columns} : DimVector{batch * heads, rows, columns};
    ATHANOR_CHECK(attention.sizes() == IntArrayRef(expected), kName, ": The shape of the ", given, "D attn_mask is ",
                  attention.sizes(), ", but should be ", expected, ".");
    attention = widened(attention, added);
    if (given == 3) attention = attention.reshape({batch, heads, rows, columns + added});
  }
  if (padding.defined()) {
    if (padding.dim() == 1) padding = padding.unsqueeze(0);
    const DimVector expected{batch, columns};
    ATHANOR_CHECK(padding.sizes() == IntArrayRef(expected), kName, ": expected key_padding_mask of shape ", expected,
                  ", got ", padding.sizes());
    padding = widened(padding, added).reshape({batch, 1, 1, columns + added});
  }
  return {attention, padding};
}

/// What is added to scores: 0 and -inf for a bool mask.
Tensor as_addend(const Tensor& mask, DType t) {
  if (mask.dtype() != kBool) return mask.to(t);
  return zeros(mask.sizes(), TensorOptions(t).device(mask.device())).masked_fill(mask, -INFINITY);
}

/// Both masks in one, as scaled_dot_product_attention wants it (bool: true where open).
Tensor joined(const Masks& m, DType t) {
  const bool floating =
      (m.attention.defined() && m.attention.dtype() != kBool) || (m.padding.defined() && m.padding.dtype() != kBool);
  if (!m.attention.defined() && !m.padding.defined()) return {};
  if (floating) {
    if (!m.padding.defined()) return as_addend(m.attention, t);
    return m.attention.defined() ? as_addend(m.attention, t) + as_addend(m.padding, t) : as_addend(m.padding, t);
  }
  if (!m.padding.defined()) return m.attention.logical_not();
  return (m.attention.defined() ? m.attention.logical_or(m.padding) : m.padding).logical_not();
}

/// One more place behind k or v (S, N, E): `place` (1, 1, E).
Tensor with_place(const Tensor& t, const Tensor& place) { return cat({t, place.expand({1, t.size(1), t.size(2)})}, 0); }

/// softmax(q kᵀ + mask), kept for the caller.
Tensor weights_of(const Tensor& q, const Tensor& k, const Tensor& mask) {
  Tensor scores = (q * (1 / std::sqrt(static_cast<double>(q.size(-1))))).matmul(k.transpose(-2, -1));
  if (mask.defined())
    scores = mask.dtype() == kBool ? scores.masked_fill(mask.logical_not(), -INFINITY) : scores + mask;
  return softmax(scores, -1);
}

/// Without a batch, a dim of one is added.
Tensor with_batch(const Tensor& t) { return t.dim() == 2 ? t.unsqueeze(1) : t; }

}  // namespace

std::tuple<Tensor, Tensor> multi_head_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                        const MultiheadAttentionForwardFuncOptions& o) {
  if (query.dim() == 2) {
    ATHANOR_CHECK(key.dim() == 2 && value.dim() == 2, kName, ": For unbatched (2-D) `query`, expected `key` and ",
                  "`value` to be 2-D but found ", key.dim(), "-D and ", value.dim(), "-D tensors respectively");
    const Tensor q = with_batch(query), k = key.is_same(query) ? q : with_batch(key),
                 v = value.is_same(key) ? k : with_batch(value);
    auto [out, weights] = multi_head_attention_forward(q, k, v, o);
    return {out.squeeze(1), weights.defined() ? weights.squeeze(0) : weights};
  }
  check_shapes(query, key, value, o);
  Projected p = project(query, key, value, o);
  const std::int64_t rows = query.size(0), batch = query.size(1), heads = o.num_heads(), embed = query.size(2);
  std::int64_t columns = key.size(0), added = 0;
  ATHANOR_CHECK(o.bias_k().defined() == o.bias_v().defined(), kName, ": bias_k and bias_v go together");
  if (o.bias_k().defined()) {
    ATHANOR_CHECK(!o.static_k().defined() && !o.static_v().defined(), kName,
                  ": bias cannot be added to static key or value");
    p.k = with_place(p.k, o.bias_k());
    p.v = with_place(p.v, o.bias_v());
    ++added;
  }
  const auto heads_of = [&](const Tensor& given, const Tensor& fixed) {
    return fixed.defined() ? fixed.reshape({batch, heads, fixed.size(-2), fixed.size(-1)}) : by_heads(given, heads);
  };
  const Tensor q = by_heads(p.q, heads);
  Tensor k = heads_of(p.k, o.static_k()), v = heads_of(p.v, o.static_v());
  if (o.static_k().defined()) columns = k.size(2);
  if (o.add_zero_attn()) {
    k = cat({k, zeros({batch, heads, 1, k.size(3)}, k.options())}, 2);
    v = cat({v, zeros({batch, heads, 1, v.size(3)}, v.options())}, 2);
    ++added;
  }
  const double dropout_p = o.training() ? o.dropout_p() : 0.0;
  ATHANOR_CHECK(!o.is_causal() || o.attn_mask().defined(), kName, ": Need attn_mask if specifying the is_causal hint.");
  const auto finish = [&](const Tensor& heads_out) {
    return athanor::linear(heads_out.permute({2, 0, 1, 3}).reshape({rows, batch, embed}), o.out_proj_weight(),
                           o.out_proj_bias());
  };
  if (!o.need_weights()) {
    const bool causal = o.is_causal() && !o.key_padding_mask().defined() && added == 0;
    const Tensor mask = causal ? Tensor() : joined(shaped_masks(o, batch, rows, columns, added), q.dtype());
    return {finish(scaled_dot_product_attention(q, k, v, mask, dropout_p, causal)), Tensor()};
  }
  Tensor weights = weights_of(q, k, joined(shaped_masks(o, batch, rows, columns, added), q.dtype()));
  if (dropout_p > 0) weights = athanor::dropout(weights, dropout_p, true);
  const Tensor out = finish(weights.matmul(v));
  return {out, o.average_attn_weights() ? weights.mean(IntArrayRef{1}) : weights};
}

}  // namespace functional

MultiheadAttentionImpl::MultiheadAttentionImpl(const MultiheadAttentionOptions& options)
    : Cloneable("torch::nn::MultiheadAttention"), options(options) {
  reset();
}

void MultiheadAttentionImpl::reset() {
  const std::int64_t embed = options.embed_dim(), kdim = options.kdim(), vdim = options.vdim();
  ATHANOR_CHECK(embed > 0 && options.num_heads() > 0,
                "embed_dim and num_heads must be greater than 0, got embed_dim=", embed,
                " and num_heads=", options.num_heads(), " instead");
  head_dim = embed / options.num_heads();
  ATHANOR_CHECK(head_dim * options.num_heads() == embed, "embed_dim must be divisible by num_heads, got ", embed,
                " and ", options.num_heads());
  ATHANOR_CHECK_VALUE(options.dropout() >= 0 && options.dropout() <= 1, "dropout must be between 0 and 1, got ",
                      options.dropout());
  _qkv_same_embed_dim = kdim == embed && vdim == embed;
  const auto weight = [&](const char* name, bool wanted, IntArrayRef sizes) {
    return register_parameter(name, wanted ? empty(sizes) : Tensor(), wanted);
  };
  in_proj_weight = weight("in_proj_weight", _qkv_same_embed_dim, {3 * embed, embed});
  q_proj_weight = weight("q_proj_weight", !_qkv_same_embed_dim, {embed, embed});
  k_proj_weight = weight("k_proj_weight", !_qkv_same_embed_dim, {embed, kdim});
  v_proj_weight = weight("v_proj_weight", !_qkv_same_embed_dim, {embed, vdim});
  in_proj_bias = weight("in_proj_bias", options.bias(), {3 * embed});
  out_proj = register_module("out_proj", Linear(LinearOptions(embed, embed).bias(options.bias())));
  bias_k = weight("bias_k", options.add_bias_kv(), {1, 1, embed});
  bias_v = weight("bias_v", options.add_bias_kv(), {1, 1, embed});
  _reset_parameters();
}

void MultiheadAttentionImpl::_reset_parameters() {
  for (const Tensor& w : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight})
    if (w.defined()) init::xavier_uniform_(w);
  if (in_proj_bias.defined()) {
    init::constant_(in_proj_bias, 0.);
    init::constant_(out_proj->bias, 0.);
  }
  for (const Tensor& b : {bias_k, bias_v})
    if (b.defined()) init::xavier_normal_(b);
}

std::tuple<Tensor, Tensor> MultiheadAttentionImpl::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                           const Tensor& key_padding_mask, bool need_weights,
                                                           const Tensor& attn_mask, bool average_attn_weights,
                                                           bool is_causal) {
  return in_module(*this, [&]() -> std::tuple<Tensor, Tensor> {
    const bool turned = options.batch_first() && query.dim() == 3;
    // The same tensor stays the same: it is projected at once.
    const auto turn = [&](const Tensor& t) { return turned && t.dim() == 3 ? t.transpose(0, 1) : t; };
    const Tensor q = turn(query), k = key.is_same(query) ? q : turn(key), v = value.is_same(key) ? k : turn(value);
    auto o = functional::MultiheadAttentionForwardFuncOptions(options.embed_dim(), options.num_heads(), in_proj_weight,
                                                              in_proj_bias, bias_k, bias_v, options.add_zero_attn(),
                                                              options.dropout(), out_proj->weight, out_proj->bias)
                 .training(is_training())
                 .key_padding_mask(key_padding_mask)
                 .need_weights(need_weights)
                 .attn_mask(attn_mask)
                 .use_separate_proj_weight(!_qkv_same_embed_dim)
                 .q_proj_weight(q_proj_weight)
                 .k_proj_weight(k_proj_weight)
                 .v_proj_weight(v_proj_weight)
                 .average_attn_weights(average_attn_weights)
                 .is_causal(is_causal);
    auto [out, weights] = functional::multi_head_attention_forward(q, k, v, o);
    return {turned ? out.transpose(0, 1) : out, weights};
  });
}

}  // namespace athanor::nn
