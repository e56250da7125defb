#pragma once
/// GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019): a decoder-only transformer with
/// Hugging Face's parameter names and layouts (wte, wpe, h.0.attn.c_attn, …, ln_f), so that its safetensors files load.

#include <string>
#include <vector>

#include "athanor/nn/nn.h"

namespace athanor::models {

struct GPTOptions {
  explicit GPTOptions(std::int64_t vocab_size = 50257) : vocab_size_(vocab_size) {}
  ATHANOR_ARG(std::int64_t, vocab_size);
  ATHANOR_ARG(std::int64_t, n_positions) = 1024;  ///< the longest sequence
  ATHANOR_ARG(std::int64_t, n_embd) = 768;
  ATHANOR_ARG(std::int64_t, n_layer) = 12;
  ATHANOR_ARG(std::int64_t, n_head) = 12;
  ATHANOR_ARG(double, dropout) = 0.1;  ///< of embeddings, attention and ways around layers
  ATHANOR_ARG(double, layer_norm_epsilon) = 1e-5;
};

/// y = x weight + bias with weight (in, out), as GPT-2 stores it.
class Conv1DImpl : public nn::Cloneable<Conv1DImpl> {
 public:
  Conv1DImpl(std::int64_t in_features, std::int64_t out_features);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& x);
  Tensor weight, bias;

 private:
  std::int64_t in_, out_;
};
ATHANOR_MODULE(Conv1D);

/// Keys and values of the places seen so far, of every layer, for generating one place after the other.
struct GPTCache {
  std::vector<Tensor> keys, values;  ///< (B, heads, n_positions, n_embd / heads)
  std::int64_t length = 0;
};

class GPTAttentionImpl : public nn::Cloneable<GPTAttentionImpl> {
 public:
  explicit GPTAttentionImpl(const GPTOptions& options);
  void reset() override;
  /// x (B, T, n_embd). With a cache, x follows the places in it; its layer's keys and values are added.
  Tensor forward(const Tensor& x, GPTCache* cache = nullptr, std::size_t layer = 0);
  Conv1D c_attn{nullptr}, c_proj{nullptr};
  nn::Dropout resid_dropout{nullptr};

 private:
  GPTOptions options_;
};
ATHANOR_MODULE(GPTAttention);

class GPTMlpImpl : public nn::Cloneable<GPTMlpImpl> {
 public:
  explicit GPTMlpImpl(const GPTOptions& options);
  void reset() override;
  Tensor forward(const Tensor& x);
  Conv1D c_fc{nullptr}, c_proj{nullptr};
  nn::Dropout dropout{nullptr};

 private:
  GPTOptions options_;
};
ATHANOR_MODULE(GPTMlp);

class GPTBlockImpl : public nn::Cloneable<GPTBlockImpl> {
 public:
  explicit GPTBlockImpl(const GPTOptions& options);
  void reset() override;
  Tensor forward(const Tensor& x, GPTCache* cache = nullptr, std::size_t layer = 0);
  nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  GPTAttention attn{nullptr};
  GPTMlp mlp{nullptr};

 private:
  GPTOptions options_;
};
ATHANOR_MODULE(GPTBlock);

/// How generate() picks the next token: the likeliest at temperature 0, else drawn among the top_k likeliest (0: all).
struct GPTSampling {
  double temperature = 1.0;
  std::int64_t top_k = 0;
};

/// The projection to the vocabulary is wte's weight (tied), which state_dict lists once.
class GPTImpl : public nn::Cloneable<GPTImpl> {
 public:
  explicit GPTImpl(GPTOptions options);
  void reset() override;
  /// Token numbers (B, T) to logits (B, T, vocab_size). Throws Error if T > n_positions.
  Tensor forward(const Tensor& tokens);
  /// Mean cross entropy of the logits with `targets` (B, T); places with target -100 do not count.
  Tensor loss(const Tensor& tokens, const Tensor& targets);
  /// tokens (B, T), T >= 1, followed by `count` more. Places beyond n_positions are reached by forgetting the first
  /// half of what the model looks at. In evaluation mode unless the caller trains; random draws from the default
  /// generator.
  Tensor generate(const Tensor& tokens, std::int64_t count, const GPTSampling& sampling = {});
  /// Copies the parameters of a Hugging Face GPT-2: names with or without "transformer.", masks (attn.bias)
  /// left out. Throws Error listing what is missing or does not fit, ValueError where lm_head is not wte's weight.
  void load_gpt2(const StateDict& state);

  GPTOptions options;
  nn::Embedding wte{nullptr}, wpe{nullptr};
  nn::Dropout drop{nullptr};
  nn::ModuleList h{nullptr};
  nn::LayerNorm ln_f{nullptr};

 private:
  Tensor features(const Tensor& tokens, GPTCache* cache);
  GPTCache make_cache(std::int64_t batch) const;
};
ATHANOR_MODULE(GPT);

}  // namespace athanor::models
