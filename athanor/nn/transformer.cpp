#include "athanor/nn/transformer.h"

#include "athanor/nn/init.h"
#include "athanor/ops/factory.h"

namespace athanor::nn {

namespace {

Tensor activate(const activation_t& activation, const Tensor& x) {
  if (std::holds_alternative<enumtype::kReLU>(activation)) return relu(x);
  if (std::holds_alternative<enumtype::kGELU>(activation)) return gelu(x);
  const auto& function = std::get<std::function<Tensor(const Tensor&)>>(activation);
  ATHANOR_CHECK(function, "transformer layer: the activation is an empty function; use kReLU, kGELU or a function of ",
                "one tensor");
  return function(x);
}

MultiheadAttention attention_of(const TransformerEncoderLayerOptions& o) {
  return MultiheadAttention(
      MultiheadAttentionOptions(o.d_model(), o.nhead()).dropout(o.dropout()).batch_first(o.batch_first()));
}
LayerNorm norm_of(std::int64_t features, double eps) { return LayerNorm(LayerNormOptions({features}).eps(eps)); }

/// x + part(norm(x)), or norm(x + part(x)).
template <class F>
Tensor around(const Tensor& x, LayerNorm& norm, bool norm_first, F&& part) {
  return norm_first ? x + part(norm(x)) : norm(x + part(x));
}

template <class Layer>
std::shared_ptr<Module> copy_of(const Layer& layer, const char* what) {
  ATHANOR_CHECK(!layer.is_empty(), what, ": the layer to repeat is empty");
  return layer->clone();
}

}  // namespace

TransformerEncoderLayerImpl::TransformerEncoderLayerImpl(const TransformerEncoderLayerOptions& options)
    : options(options) {
  reset();
}

void TransformerEncoderLayerImpl::reset() {
  const std::int64_t d = options.d_model();
  self_attn = register_module("self_attn", attention_of(options));
  linear1 = register_module("linear1", Linear(d, options.dim_feedforward()));
  dropout = register_module("dropout", Dropout(options.dropout()));
  linear2 = register_module("linear2", Linear(options.dim_feedforward(), d));
  norm1 = register_module("norm1", norm_of(d, options.layer_norm_eps()));
  norm2 = register_module("norm2", norm_of(d, options.layer_norm_eps()));
  dropout1 = register_module("dropout1", Dropout(options.dropout()));
  dropout2 = register_module("dropout2", Dropout(options.dropout()));
}

void TransformerEncoderLayerImpl::reset_parameters() {
  self_attn->_reset_parameters();
  linear1->reset_parameters();
  linear2->reset_parameters();
  norm1->reset_parameters();
  norm2->reset_parameters();
}

void TransformerEncoderLayerImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::TransformerEncoderLayerImpl";
}

Tensor TransformerEncoderLayerImpl::forward(const Tensor& src, const Tensor& src_mask,
                                            const Tensor& src_key_padding_mask, bool is_causal) {
  return in_module(*this, [&] {
    const bool first = options.norm_first();
    const Tensor x = around(src, norm1, first, [&](const Tensor& t) {
      return dropout1(std::get<0>(self_attn(t, t, t, src_key_padding_mask, false, src_mask, true, is_causal)));
    });
    return around(x, norm2, first, [&](const Tensor& t) {
      return dropout2(linear2(dropout(activate(options.activation(), linear1(t)))));
    });
  });
}

TransformerDecoderLayerImpl::TransformerDecoderLayerImpl(const TransformerDecoderLayerOptions& options)
    : options(options) {
  reset();
}

void TransformerDecoderLayerImpl::reset() {
  const std::int64_t d = options.d_model();
  self_attn = register_module("self_attn", attention_of(options));
  multihead_attn = register_module("multihead_attn", attention_of(options));
  linear1 = register_module("linear1", Linear(d, options.dim_feedforward()));
  dropout = register_module("dropout", Dropout(options.dropout()));
  linear2 = register_module("linear2", Linear(options.dim_feedforward(), d));
  norm1 = register_module("norm1", norm_of(d, options.layer_norm_eps()));
  norm2 = register_module("norm2", norm_of(d, options.layer_norm_eps()));
  norm3 = register_module("norm3", norm_of(d, options.layer_norm_eps()));
  dropout1 = register_module("dropout1", Dropout(options.dropout()));
  dropout2 = register_module("dropout2", Dropout(options.dropout()));
  dropout3 = register_module("dropout3", Dropout(options.dropout()));
}

void TransformerDecoderLayerImpl::reset_parameters() {
  self_attn->_reset_parameters();
  multihead_attn->_reset_parameters();
  linear1->reset_parameters();
  linear2->reset_parameters();
  for (LayerNorm* norm : {&norm1, &norm2, &norm3}) (*norm)->reset_parameters();
}

void TransformerDecoderLayerImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::TransformerDecoderLayerImpl";
}

Tensor TransformerDecoderLayerImpl::forward(Tensor tgt, const Tensor& memory, const Tensor& tgt_mask,
                                            const Tensor& memory_mask, const Tensor& tgt_key_padding_mask,
                                            const Tensor& memory_key_padding_mask, bool tgt_is_causal,
                                            bool memory_is_causal) {
  return in_module(*this, [&] {
    const bool first = options.norm_first();
    Tensor x = around(tgt, norm1, first, [&](const Tensor& t) {
      return dropout1(std::get<0>(self_attn(t, t, t, tgt_key_padding_mask, false, tgt_mask, true, tgt_is_causal)));
    });
    x = around(x, norm2, first, [&](const Tensor& t) {
      return dropout2(std::get<0>(
          multihead_attn(t, memory, memory, memory_key_padding_mask, false, memory_mask, true, memory_is_causal)));
    });
    return around(x, norm3, first, [&](const Tensor& t) {
      return dropout3(linear2(dropout(activate(options.activation(), linear1(t)))));
    });
  });
}

TransformerEncoderImpl::TransformerEncoderImpl(TransformerEncoderOptions options) : options(std::move(options)) {
  reset();
}

void TransformerEncoderImpl::reset() {
  layers = register_module("layers", ModuleList());
  for (std::int64_t i = 0; i < options.num_layers(); ++i)
    layers->push_back(copy_of(options.encoder_layer(), "TransformerEncoder"));
  if (options.norm().is_empty()) return;
  norm = options.norm().clone();
  register_module("norm", norm.ptr());
}

void TransformerEncoderImpl::reset_parameters() {
  for (std::int64_t i = 0; i < options.num_layers(); ++i)
    layers->at<TransformerEncoderLayerImpl>(static_cast<std::size_t>(i)).reset_parameters();
  if (auto* n = norm.is_empty() ? nullptr : norm.ptr()->as<LayerNorm>()) n->reset_parameters();
}

void TransformerEncoderImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::TransformerEncoderImpl"; }

Tensor TransformerEncoderImpl::forward(const Tensor& src, const Tensor& src_mask, const Tensor& src_key_padding_mask,
                                       bool is_causal) {
  Tensor x = src;
  for (const auto& layer : *layers)
    x = layer->as<TransformerEncoderLayer>()->forward(x, src_mask, src_key_padding_mask, is_causal);
  return norm.is_empty() ? x : norm.forward(x);
}

TransformerDecoderImpl::TransformerDecoderImpl(TransformerDecoderOptions options) : options(std::move(options)) {
  reset();
}

void TransformerDecoderImpl::reset() {
  layers = register_module("layers", ModuleList());
  for (std::int64_t i = 0; i < options.num_layers(); ++i)
    layers->push_back(copy_of(options.decoder_layer(), "TransformerDecoder"));
  if (options.norm().is_empty()) return;
  norm = options.norm().clone();
  register_module("norm", norm.ptr());
}

void TransformerDecoderImpl::reset_parameters() {
  for (std::int64_t i = 0; i < options.num_layers(); ++i)
    layers->at<TransformerDecoderLayerImpl>(static_cast<std::size_t>(i)).reset_parameters();
  if (auto* n = norm.is_empty() ? nullptr : norm.ptr()->as<LayerNorm>()) n->reset_parameters();
}

void TransformerDecoderImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::TransformerDecoderImpl"; }

Tensor TransformerDecoderImpl::forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask,
                                       const Tensor& memory_mask, const Tensor& tgt_key_padding_mask,
                                       const Tensor& memory_key_padding_mask, bool tgt_is_causal,
                                       bool memory_is_causal) {
  Tensor x = tgt;
  for (const auto& layer : *layers)
    x = layer->as<TransformerDecoderLayer>()->forward(x, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                                                      memory_key_padding_mask, tgt_is_causal, memory_is_causal);
  return norm.is_empty() ? x : norm.forward(x);
}

TransformerImpl::TransformerImpl(TransformerOptions options) : options(std::move(options)) { reset(); }

void TransformerImpl::reset() {
  const TransformerOptions& o = options;
  const auto layer = TransformerEncoderLayerOptions(o.d_model(), o.nhead())
                         .dim_feedforward(o.dim_feedforward())
                         .dropout(o.dropout())
                         .activation(o.activation())
                         .layer_norm_eps(o.layer_norm_eps())
                         .batch_first(o.batch_first())
                         .norm_first(o.norm_first());
  const auto last_norm = [&] { return AnyModule(norm_of(o.d_model(), o.layer_norm_eps())); };
  if (o.custom_encoder().is_empty())
    encoder = AnyModule(TransformerEncoder(TransformerEncoderOptions(layer, o.num_encoder_layers()).norm(last_norm())));
  else
    encoder = o.custom_encoder().clone();
  register_module("encoder", encoder.ptr());
  if (o.custom_decoder().is_empty())
    decoder = AnyModule(TransformerDecoder(TransformerDecoderOptions(layer, o.num_decoder_layers()).norm(last_norm())));
  else
    decoder = o.custom_decoder().clone();
  register_module("decoder", decoder.ptr());
  reset_parameters();
}

void TransformerImpl::reset_parameters() {
  for (const Tensor& p : parameters())
    if (p.dim() > 1) init::xavier_uniform_(p);
}

void TransformerImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::TransformerImpl"; }

Tensor TransformerImpl::forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask, const Tensor& tgt_mask,
                                const Tensor& memory_mask, const Tensor& src_key_padding_mask,
                                const Tensor& tgt_key_padding_mask, const Tensor& memory_key_padding_mask) {
  return in_module(*this, [&] {
    ATHANOR_CHECK(src.dim() == tgt.dim() && (src.dim() == 2 || src.dim() == 3),
                  "Transformer: src and tgt should have 3 dimensions, or 2 without a batch, but got ", src.dim(),
                  " and ", tgt.dim());
    if (src.dim() == 3) {
      const std::int64_t batch_dim = options.batch_first() ? 0 : 1;
      ATHANOR_CHECK(src.size(batch_dim) == tgt.size(batch_dim),
                    "Transformer: src and tgt should have equal batch size ", "(at dim ", batch_dim, "), but got ",
                    src.size(batch_dim), " and ", tgt.size(batch_dim));
    }
    ATHANOR_CHECK(src.size(-1) == options.d_model() && tgt.size(-1) == options.d_model(),
                  "Transformer: src and tgt should have same feature size as d_model ", options.d_model(), ", got ",
                  src.size(-1), " and ", tgt.size(-1));
    const Tensor memory = encoder.forward(src, src_mask, src_key_padding_mask);
    return decoder.forward(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask);
  });
}

Tensor TransformerImpl::generate_square_subsequent_mask(std::int64_t sz) {
  ATHANOR_CHECK(sz >= 0, "Input size must be non-negative to generate a valid square subsequent mask, but got ", sz);
  return full({sz, sz}, -INFINITY).triu(1);
}

}  // namespace athanor::nn
