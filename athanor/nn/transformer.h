#pragma once
/// Transformers (Vaswani et al., "Attention is all you need", 2017): layers, stacks of them, and both halves together.

#include <functional>
#include <variant>

#include "athanor/nn/attention.h"
#include "athanor/nn/container.h"
#include "athanor/nn/dropout.h"
#include "athanor/nn/normalization.h"

namespace athanor::nn {

/// kReLU, kGELU, or a function.
using activation_t = std::variant<enumtype::kReLU, enumtype::kGELU, std::function<Tensor(const Tensor&)>>;

/// norm_first: normalisation before each part instead of behind it. batch_first: (N, L, E) instead of (L, N, E).
struct TransformerEncoderLayerOptions {
  TransformerEncoderLayerOptions(std::int64_t d_model, std::int64_t nhead) : d_model_(d_model), nhead_(nhead) {}
  ATHANOR_ARG(std::int64_t, d_model);
  ATHANOR_ARG(std::int64_t, nhead);
  ATHANOR_ARG(std::int64_t, dim_feedforward) = 2048;
  ATHANOR_ARG(double, dropout) = 0.1;
  ATHANOR_ARG(activation_t, activation) = kReLU;
  ATHANOR_ARG(double, layer_norm_eps) = 1e-5;
  ATHANOR_ARG(bool, batch_first) = false;
  ATHANOR_ARG(bool, norm_first) = false;
};
using TransformerDecoderLayerOptions = TransformerEncoderLayerOptions;

/// Self-attention and two linear layers, each with a way around it.
class TransformerEncoderLayerImpl : public Cloneable<TransformerEncoderLayerImpl> {
 public:
  TransformerEncoderLayerImpl(std::int64_t d_model, std::int64_t nhead)
      : TransformerEncoderLayerImpl(TransformerEncoderLayerOptions(d_model, nhead)) {}
  explicit TransformerEncoderLayerImpl(const TransformerEncoderLayerOptions& options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& src, const Tensor& src_mask = {}, const Tensor& src_key_padding_mask = {},
                 bool is_causal = false);
  ATHANOR_FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())}, {2, AnyValue(Tensor())}, {3, AnyValue(false)})

  TransformerEncoderLayerOptions options;
  MultiheadAttention self_attn = nullptr;
  Linear linear1 = nullptr;
  Dropout dropout = nullptr;
  Linear linear2 = nullptr;
  LayerNorm norm1 = nullptr, norm2 = nullptr;
  Dropout dropout1 = nullptr, dropout2 = nullptr;
};
ATHANOR_LIBRARY_MODULE(TransformerEncoderLayer);

/// The same with attention to `memory`, what an encoder gave, between.
class TransformerDecoderLayerImpl : public Cloneable<TransformerDecoderLayerImpl> {
 public:
  TransformerDecoderLayerImpl(std::int64_t d_model, std::int64_t nhead)
      : TransformerDecoderLayerImpl(TransformerDecoderLayerOptions(d_model, nhead)) {}
  explicit TransformerDecoderLayerImpl(const TransformerDecoderLayerOptions& options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(Tensor tgt, const Tensor& memory, const Tensor& tgt_mask = {}, const Tensor& memory_mask = {},
                 const Tensor& tgt_key_padding_mask = {}, const Tensor& memory_key_padding_mask = {},
                 bool tgt_is_causal = false, bool memory_is_causal = false);
  ATHANOR_FORWARD_HAS_DEFAULT_ARGS({2, AnyValue(Tensor())}, {3, AnyValue(Tensor())}, {4, AnyValue(Tensor())},
                                   {5, AnyValue(Tensor())}, {6, AnyValue(false)}, {7, AnyValue(false)})

  TransformerDecoderLayerOptions options;
  MultiheadAttention self_attn = nullptr, multihead_attn = nullptr;
  Linear linear1 = nullptr;
  Dropout dropout = nullptr;
  Linear linear2 = nullptr;
  LayerNorm norm1 = nullptr, norm2 = nullptr, norm3 = nullptr;
  Dropout dropout1 = nullptr, dropout2 = nullptr, dropout3 = nullptr;
};
ATHANOR_LIBRARY_MODULE(TransformerDecoderLayer);

/// num_layers copies of a layer; norm, if given, is applied to the last one's result.
struct TransformerEncoderOptions {
  TransformerEncoderOptions(TransformerEncoderLayer encoder_layer, std::int64_t num_layers)
      : encoder_layer_(std::move(encoder_layer)), num_layers_(num_layers) {}
  TransformerEncoderOptions(const TransformerEncoderLayerOptions& encoder_layer_options, std::int64_t num_layers)
      : encoder_layer_(TransformerEncoderLayer(encoder_layer_options)), num_layers_(num_layers) {}
  ATHANOR_ARG(TransformerEncoderLayer, encoder_layer) = nullptr;
  ATHANOR_ARG(std::int64_t, num_layers);
  ATHANOR_ARG(AnyModule, norm);
};
struct TransformerDecoderOptions {
  TransformerDecoderOptions(TransformerDecoderLayer decoder_layer, std::int64_t num_layers)
      : decoder_layer_(std::move(decoder_layer)), num_layers_(num_layers) {}
  TransformerDecoderOptions(const TransformerDecoderLayerOptions& decoder_layer_options, std::int64_t num_layers)
      : decoder_layer_(TransformerDecoderLayer(decoder_layer_options)), num_layers_(num_layers) {}
  ATHANOR_ARG(TransformerDecoderLayer, decoder_layer) = nullptr;
  ATHANOR_ARG(std::int64_t, num_layers);
  ATHANOR_ARG(AnyModule, norm);
};

class TransformerEncoderImpl : public Cloneable<TransformerEncoderImpl> {
 public:
  TransformerEncoderImpl(TransformerEncoderLayer encoder_layer, std::int64_t num_layers)
      : TransformerEncoderImpl(TransformerEncoderOptions(std::move(encoder_layer), num_layers)) {}
  explicit TransformerEncoderImpl(TransformerEncoderOptions options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& src, const Tensor& src_mask = {}, const Tensor& src_key_padding_mask = {},
                 bool is_causal = false);
  ATHANOR_FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())}, {2, AnyValue(Tensor())}, {3, AnyValue(false)})

  TransformerEncoderOptions options;
  ModuleList layers = nullptr;
  AnyModule norm;
};
ATHANOR_LIBRARY_MODULE(TransformerEncoder);

class TransformerDecoderImpl : public Cloneable<TransformerDecoderImpl> {
 public:
  TransformerDecoderImpl(TransformerDecoderLayer decoder_layer, std::int64_t num_layers)
      : TransformerDecoderImpl(TransformerDecoderOptions(std::move(decoder_layer), num_layers)) {}
  explicit TransformerDecoderImpl(TransformerDecoderOptions options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {}, const Tensor& memory_mask = {},
                 const Tensor& tgt_key_padding_mask = {}, const Tensor& memory_key_padding_mask = {},
                 bool tgt_is_causal = false, bool memory_is_causal = false);
  ATHANOR_FORWARD_HAS_DEFAULT_ARGS({2, AnyValue(Tensor())}, {3, AnyValue(Tensor())}, {4, AnyValue(Tensor())},
                                   {5, AnyValue(Tensor())}, {6, AnyValue(false)}, {7, AnyValue(false)})

  TransformerDecoderOptions options;
  ModuleList layers = nullptr;
  AnyModule norm;
};
ATHANOR_LIBRARY_MODULE(TransformerDecoder);

/// custom_encoder, custom_decoder: modules in place of the stacks, called with what the stacks' forward takes.
struct TransformerOptions {
  TransformerOptions() = default;
  TransformerOptions(std::int64_t d_model, std::int64_t nhead) : d_model_(d_model), nhead_(nhead) {}
  TransformerOptions(std::int64_t d_model, std::int64_t nhead, std::int64_t num_encoder_layers,
                     std::int64_t num_decoder_layers)
      : d_model_(d_model),
        nhead_(nhead),
        num_encoder_layers_(num_encoder_layers),
        num_decoder_layers_(num_decoder_layers) {}
  ATHANOR_ARG(std::int64_t, d_model) = 512;
  ATHANOR_ARG(std::int64_t, nhead) = 8;
  ATHANOR_ARG(std::int64_t, num_encoder_layers) = 6;
  ATHANOR_ARG(std::int64_t, num_decoder_layers) = 6;
  ATHANOR_ARG(std::int64_t, dim_feedforward) = 2048;
  ATHANOR_ARG(double, dropout) = 0.1;
  ATHANOR_ARG(activation_t, activation) = kReLU;
  ATHANOR_ARG(AnyModule, custom_encoder);
  ATHANOR_ARG(AnyModule, custom_decoder);
  ATHANOR_ARG(double, layer_norm_eps) = 1e-5;
  ATHANOR_ARG(bool, batch_first) = false;
  ATHANOR_ARG(bool, norm_first) = false;
};

class TransformerImpl : public Cloneable<TransformerImpl> {
 public:
  explicit TransformerImpl(TransformerOptions options = {});
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask = {}, const Tensor& tgt_mask = {},
                 const Tensor& memory_mask = {}, const Tensor& src_key_padding_mask = {},
                 const Tensor& tgt_key_padding_mask = {}, const Tensor& memory_key_padding_mask = {});
  ATHANOR_FORWARD_HAS_DEFAULT_ARGS({2, AnyValue(Tensor())}, {3, AnyValue(Tensor())}, {4, AnyValue(Tensor())},
                                   {5, AnyValue(Tensor())}, {6, AnyValue(Tensor())}, {7, AnyValue(Tensor())})
  /// (sz, sz): 0 on and below the diagonal, -inf above.
  static Tensor generate_square_subsequent_mask(std::int64_t sz);

  TransformerOptions options;
  AnyModule encoder, decoder;
};
ATHANOR_LIBRARY_MODULE(Transformer);

}  // namespace athanor::nn
