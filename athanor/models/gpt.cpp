#include "athanor/models/gpt.h"

#include <cmath>

#include "athanor/nn/init.h"
#include "athanor/ops/factory.h"

namespace athanor::models {

namespace {

nn::LayerNorm norm_of(const GPTOptions& o) {
  return nn::LayerNorm(nn::LayerNormOptions({o.n_embd()}).eps(o.layer_norm_epsilon()));
}

void check_options(const GPTOptions& o) {
  ATHANOR_CHECK_VALUE(o.vocab_size() > 0 && o.n_positions() > 0 && o.n_embd() > 0 && o.n_layer() >= 0 && o.n_head() > 0,
                      "GPT: sizes must be positive, got vocab_size=", o.vocab_size(), ", n_positions=", o.n_positions(),
                      ", n_embd=", o.n_embd(), ", n_layer=", o.n_layer(), ", n_head=", o.n_head());
  ATHANOR_CHECK_VALUE(o.n_embd() % o.n_head() == 0, "GPT: n_embd ", o.n_embd(), " is not divisible by n_head ",
                      o.n_head());
}

/// (B, vocabulary) logits to the next token (B, 1).
Tensor pick(const Tensor& logits, const GPTSampling& s) {
  if (s.temperature == 0) return logits.argmax(-1, true);
  Tensor scaled = logits / s.temperature;
  if (s.top_k > 0 && s.top_k < logits.size(-1)) {
    const Tensor least = std::get<0>(scaled.topk(s.top_k, -1)).narrow(-1, s.top_k - 1, 1);
    scaled = scaled.masked_fill(scaled < least, -INFINITY);
  }
  return softmax(scaled, -1).multinomial(1);
}

}  // namespace

Conv1DImpl::Conv1DImpl(std::int64_t in_features, std::int64_t out_features) : in_(in_features), out_(out_features) {
  reset();
}
void Conv1DImpl::reset() {
  weight = register_parameter("weight", nn::init::normal_(empty({in_, out_}), 0, 0.02));
  bias = register_parameter("bias", zeros({out_}));
}
void Conv1DImpl::pretty_print(std::ostream& stream) const { stream << "Conv1D(nf=" << out_ << ", nx=" << in_ << ")"; }
Tensor Conv1DImpl::forward(const Tensor& x) { return linear(x, weight.t(), bias); }

GPTAttentionImpl::GPTAttentionImpl(const GPTOptions& options) : options_(options) { reset(); }
void GPTAttentionImpl::reset() {
  const std::int64_t e = options_.n_embd();
  c_attn = register_module("c_attn", Conv1D(e, 3 * e));
  c_proj = register_module("c_proj", Conv1D(e, e));
  resid_dropout = register_module("resid_dropout", nn::Dropout(options_.dropout()));
}
Tensor GPTAttentionImpl::forward(const Tensor& x, GPTCache* cache, std::size_t layer) {
  const std::int64_t batch = x.size(0), steps = x.size(1), e = options_.n_embd(), heads = options_.n_head();
  const auto parts = c_attn(x).chunk(3, -1);
  const auto by_heads = [&](const Tensor& t) { return t.view({batch, steps, heads, e / heads}).transpose(1, 2); };
  const Tensor q = by_heads(parts[0]);
  Tensor k = by_heads(parts[1]), v = by_heads(parts[2]);
  bool causal = true;
  if (cache) {
    cache->keys[layer].narrow(2, cache->length, steps).copy_(k);
    cache->values[layer].narrow(2, cache->length, steps).copy_(v);
    const std::int64_t seen = cache->length + steps;
    ATHANOR_CHECK(cache->length == 0 || steps == 1,
                  "GPT: a cache takes a whole beginning, then one place at a time, got ", steps, " behind ",
                  cache->length);
    k = cache->keys[layer].narrow(2, 0, seen);
    v = cache->values[layer].narrow(2, 0, seen);
    causal = steps > 1;
  }
  const Tensor y = scaled_dot_product_attention(q, k, v, {}, is_training() ? options_.dropout() : 0.0, causal);
  return resid_dropout(c_proj(y.transpose(1, 2).reshape({batch, steps, e})));
}

GPTMlpImpl::GPTMlpImpl(const GPTOptions& options) : options_(options) { reset(); }
void GPTMlpImpl::reset() {
  const std::int64_t e = options_.n_embd();
  c_fc = register_module("c_fc", Conv1D(e, 4 * e));
  c_proj = register_module("c_proj", Conv1D(4 * e, e));
  dropout = register_module("dropout", nn::Dropout(options_.dropout()));
}
Tensor GPTMlpImpl::forward(const Tensor& x) { return dropout(c_proj(gelu(c_fc(x), "tanh"))); }

GPTBlockImpl::GPTBlockImpl(const GPTOptions& options) : options_(options) { reset(); }
void GPTBlockImpl::reset() {
  ln_1 = register_module("ln_1", norm_of(options_));
  attn = register_module("attn", GPTAttention(options_));
  ln_2 = register_module("ln_2", norm_of(options_));
  mlp = register_module("mlp", GPTMlp(options_));
}
Tensor GPTBlockImpl::forward(const Tensor& x, GPTCache* cache, std::size_t layer) {
  const Tensor y = x + attn->forward(ln_1(x), cache, layer);
  return y + mlp(ln_2(y));
}

GPTImpl::GPTImpl(GPTOptions options) : options(std::move(options)) { reset(); }

void GPTImpl::reset() {
  check_options(options);
  wte = register_module("wte", nn::Embedding(options.vocab_size(), options.n_embd()));
  wpe = register_module("wpe", nn::Embedding(options.n_positions(), options.n_embd()));
  for (const auto& table : {wte, wpe}) nn::init::normal_(table->weight, 0, 0.02);
  drop = register_module("drop", nn::Dropout(options.dropout()));
  h = register_module("h", nn::ModuleList());
  // What a block adds to the way around it is the smaller, the more blocks there are.
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(std::max<std::int64_t>(options.n_layer(), 1)));
  for (std::int64_t i = 0; i < options.n_layer(); ++i) {
    GPTBlock block(options);
    nn::init::normal_(block->attn->c_proj->weight, 0, residual);
    nn::init::normal_(block->mlp->c_proj->weight, 0, residual);
    h->push_back(block);
  }
  ln_f = register_module("ln_f", norm_of(options));
}

Tensor GPTImpl::features(const Tensor& tokens, GPTCache* cache) {
  ATHANOR_CHECK(tokens.dim() == 2, "GPT: expected token numbers of shape (batch, length), got shape ", tokens.sizes());
  const std::int64_t first = cache ? cache->length : 0, steps = tokens.size(1);
  ATHANOR_CHECK(first + steps <= options.n_positions(), "GPT: ", first + steps, " places, but n_positions is ",
                options.n_positions(), "; shorten the sequence");
  Tensor x = drop(wte(tokens) + wpe->weight.narrow(0, first, steps));
  std::size_t layer = 0;
  for (const auto& block : *h) x = block->as<GPTBlock>()->forward(x, cache, layer++);
  if (cache) cache->length += steps;
  return ln_f(x);
}

Tensor GPTImpl::forward(const Tensor& tokens) {
  return nn::in_module(*this, [&] { return linear(features(tokens, nullptr), wte->weight); });
}

Tensor GPTImpl::loss(const Tensor& tokens, const Tensor& targets) {
  const Tensor logits = forward(tokens);
  return cross_entropy_loss(logits.reshape({-1, options.vocab_size()}), targets.reshape({-1}));
}

GPTCache GPTImpl::make_cache(std::int64_t batch) const {
  GPTCache c;
  const std::int64_t heads = options.n_head();
  for (std::int64_t i = 0; i < options.n_layer(); ++i)
    for (auto* list : {&c.keys, &c.values})
      list->push_back(empty({batch, heads, options.n_positions(), options.n_embd() / heads}, wte->weight.options()));
  return c;
}

Tensor GPTImpl::generate(const Tensor& tokens, std::int64_t count, const GPTSampling& sampling) {
  ATHANOR_CHECK(tokens.dim() == 2 && tokens.size(1) > 0, "GPT: generate needs token numbers (batch, length) with at ",
                "least one place, got shape ", tokens.sizes());
  ATHANOR_CHECK_VALUE(count >= 0 && sampling.temperature >= 0 && sampling.top_k >= 0,
                      "GPT: generate needs count, temperature and top_k of at least 0, got ", count, ", ",
                      sampling.temperature, " and ", sampling.top_k);
  const NoGradGuard off;
  GPTCache cache = make_cache(tokens.size(0));
  std::vector<Tensor> pieces{tokens};
  const std::int64_t most = options.n_positions();
  Tensor unseen = tokens.size(1) > most ? tokens.narrow(1, tokens.size(1) - most, most) : tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    if (cache.length + unseen.size(1) > most) {
      const Tensor all = cat(pieces, 1);
      const std::int64_t keep = std::max<std::int64_t>(most / 2, 1);
      unseen = all.narrow(1, all.size(1) - keep, keep);
      cache.length = 0;
    }
    const Tensor x = features(unseen, &cache);
    unseen = pick(linear(x.select(1, x.size(1) - 1), wte->weight), sampling);
    pieces.push_back(unseen);
  }
  return cat(pieces, 1);
}

namespace {

bool same_values(const Tensor& a, const Tensor& b) {
  const NoGradGuard off;
  return a.sizes() == b.sizes() && a.to(b.options()).equal(b);
}

}  // namespace

void GPTImpl::load_gpt2(const StateDict& state) {
  const auto ends_with = [](const std::string& name, const std::string& end) {
    return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  StateDict own;
  for (const auto& item : state) {
    std::string name = item.key();
    if (name.rfind("transformer.", 0) == 0) name = name.substr(12);
    if (ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") || name == "lm_head.weight") continue;
    own.insert(name, item.value());
  }
  const Tensor *head = state.find("lm_head.weight"), *embedding = own.find("wte.weight");
  ATHANOR_CHECK_VALUE(
      !head || !embedding || same_values(*head, *embedding),
      "GPT: load_gpt2: 'lm_head.weight' is another matrix than 'wte.weight', but this model has one for "
      "both; a model whose head was trained on its own does not fit it");
  load_state_dict(own);
}

}  // namespace athanor::models
