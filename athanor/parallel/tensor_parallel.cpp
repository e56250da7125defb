#include "athanor/parallel/tensor_parallel.h"

#include <numeric>

#include "athanor/parallel/data_parallel.h"
#include "athanor/tape/grad_mode.h"
#include "athanor/tensor/stream.h"

namespace athanor::nn::parallel {

namespace {

/// Who gets what of `total` things.
struct Split {
  std::vector<Device> devices;
  std::vector<std::int64_t> sizes;
  Device output;

  Split(const char* who, const char* what, std::int64_t total, const SplitOptions& o)
      : devices(distinct_devices(o.devices().empty() ? all_devices() : o.devices(), who)), sizes(o.sizes()) {
    output = o.output_device() ? resolve(*o.output_device()) : devices[0];
    const auto parts = static_cast<std::int64_t>(devices.size());
    if (sizes.empty())
      for (std::int64_t i = 0; i < parts; ++i) sizes.push_back((total + parts - 1 - i) / parts);
    const IntArrayRef shown(sizes);
    ATHANOR_CHECK_VALUE(static_cast<std::int64_t>(sizes.size()) == parts, who, ": sizes ", shown, " are for ",
                        sizes.size(), " parts, there are ", parts, " devices");
    for (const std::int64_t n : sizes)
      ATHANOR_CHECK_VALUE(n > 0, who, ": every device needs a part, got sizes ", shown, " of ", total, " ", what,
                          " on ", parts, " devices; list fewer devices");
    ATHANOR_CHECK_VALUE(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == total, who, ": sizes ", shown,
                        " do not add up to the ", total, " ", what, " of the layer");
  }
};

/// A part of `whole` along `dim`, as a parameter on `device`.
Tensor part_of(Module& owner, const std::string& name, const Tensor& whole, std::int64_t dim, std::int64_t begin,
               std::int64_t size, Device device) {
  if (!whole.defined()) return {};
  const NoGradGuard guard;
  const Tensor part = whole.detach().narrow(dim, begin, size).to(device).clone(MemoryFormat::Contiguous);
  return owner.register_parameter(name, part, whole.requires_grad());
}

Tensor moved(Module& owner, const std::string& name, const Tensor& whole, Device device) {
  return whole.defined() ? part_of(owner, name, whole, 0, 0, whole.size(0), device) : Tensor();
}

std::string numbered(const char* name, std::size_t i) { return name + ("_" + std::to_string(i)); }

/// The sum on a device, in the order of the parts.
Tensor sum_on(Device device, const std::vector<Tensor>& parts, const Tensor& bias) {
  Tensor sum = parts[0].to(device);
  for (std::size_t i = 1; i < parts.size(); ++i) sum = sum + parts[i].to(device);
  return bias.defined() ? sum + bias : sum;
}

void check_features(const char* who, const Tensor& input, std::int64_t features) {
  ATHANOR_CHECK(input.defined() && input.dim() > 0 && input.size(-1) == features, who,
                ": expected an input whose last dimension is ", features, ", got ",
                input.defined() ? athanor::detail::str(input.sizes()) : std::string("no tensor"));
}

template <class T>
std::string places(const std::vector<T>& parts, const std::function<Tensor(const T&)>& weight, int dim) {
  std::string text;
  for (const T& part : parts) {
    const Tensor w = weight(part);
    text += (text.empty() ? "" : ", ") + std::to_string(w.size(dim)) + " on " + w.device().str();
  }
  return text;
}
std::string places(const std::vector<Tensor>& weights, int dim) {
  return places<Tensor>(
      weights, [](const Tensor& w) { return w; }, dim);
}

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(const Linear& whole, const SplitOptions& options)
    : Module("ColumnParallelLinear") {
  const Split split("ColumnParallelLinear", "output features", whole->weight.size(0), options);
  output_device_ = split.output;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < split.sizes.size(); begin += split.sizes[i++]) {
    const auto part = [&](const char* name, const Tensor& t) {
      return part_of(*this, numbered(name, i), t, 0, begin, split.sizes[i], split.devices[i]);
    };
    weights.push_back(part("weight", whole->weight));
    biases.push_back(part("bias", whole->bias));
  }
}

std::vector<Tensor> ColumnParallelLinearImpl::forward_parts(const Tensor& input) {
  check_features("ColumnParallelLinear", input, weights[0].size(1));
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < weights.size(); ++i)
    parts.push_back(linear(input.to(weights[i].device()), weights[i], biases[i]));
  return parts;
}

Tensor ColumnParallelLinearImpl::forward(const Tensor& input) {
  return gather(forward_parts(input), output_device_, -1);
}

void ColumnParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "ColumnParallelLinear(in_features=" << weights[0].size(1) << ", out_features=" << places(weights, 0) << ")";
}

RowParallelLinearImpl::RowParallelLinearImpl(const Linear& whole, const SplitOptions& options)
    : Module("RowParallelLinear") {
  const Split split("RowParallelLinear", "input features", whole->weight.size(1), options);
  output_device_ = split.output;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < split.sizes.size(); begin += split.sizes[i++])
    weights.push_back(part_of(*this, numbered("weight", i), whole->weight, 1, begin, split.sizes[i], split.devices[i]));
  bias = moved(*this, "bias", whole->bias, output_device_);
}

Tensor RowParallelLinearImpl::forward_parts(const std::vector<Tensor>& parts) {
  ATHANOR_CHECK_VALUE(parts.size() == weights.size(), "RowParallelLinear: got ", parts.size(),
                      " parts of an input for ", weights.size(), " devices");
  std::vector<Tensor> sums;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ATHANOR_CHECK_VALUE(parts[i].defined() && parts[i].dim() > 0 && parts[i].size(-1) == weights[i].size(1),
                        "RowParallelLinear: part ", i, " of the input should have ", weights[i].size(1),
                        " features, got ", parts[i], "; both layers need the same sizes");
    sums.push_back(linear(parts[i].to(weights[i].device()), weights[i]));
  }
  return sum_on(output_device_, sums, bias);
}

Tensor RowParallelLinearImpl::forward(const Tensor& input) {
  std::vector<std::int64_t> sizes;
  for (const Tensor& w : weights) sizes.push_back(w.size(1));
  check_features("RowParallelLinear", input, std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  return forward_parts(input.split(sizes, -1));
}

void RowParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "RowParallelLinear(in_features=" << places(weights, 1) << ", out_features=" << weights[0].size(0) << ")";
}

ParallelEmbeddingImpl::ParallelEmbeddingImpl(const Embedding& whole, const SplitOptions& options)
    : Module("ParallelEmbedding"), padding_idx_(whole->options.padding_idx()) {
  const auto& o = whole->options;
  ATHANOR_CHECK_VALUE(!o.max_norm() && !o.scale_grad_by_freq() && !o.sparse(),
                      "ParallelEmbedding: a table with max_norm, scale_grad_by_freq or sparse cannot be split");
  const Split split("ParallelEmbedding", "rows", whole->weight.size(0), options);
  output_device_ = split.output;
  if (padding_idx_ && *padding_idx_ < 0) *padding_idx_ += whole->weight.size(0);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < split.sizes.size(); begin += split.sizes[i++])
    weights.push_back(part_of(*this, numbered("weight", i), whole->weight, 0, begin, split.sizes[i], split.devices[i]));
}

Tensor ParallelEmbeddingImpl::forward(const Tensor& indices) {
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::int64_t rows = weights[i].size(0);
    functional::EmbeddingFuncOptions o;
    if (padding_idx_ && *padding_idx_ >= begin && *padding_idx_ < begin + rows) o.padding_idx(*padding_idx_ - begin);
    const Tensor here = indices.to(weights[i].device()) - begin;
    // Numbers below 0 and beyond the table are left to the first and the last device, which refuse them.
    Tensor elsewhere;
    if (i > 0) elsewhere = here < 0;
    if (i + 1 < weights.size()) elsewhere = elsewhere.defined() ? elsewhere.logical_or(here >= rows) : here >= rows;
    parts.push_back(elsewhere.defined() ? functional::embedding(here.masked_fill(elsewhere, 0), weights[i], o)
                                              .masked_fill(elsewhere.unsqueeze(-1), 0)
                                        : functional::embedding(here, weights[i], o));
    begin += rows;
  }
  return sum_on(output_device_, parts, {});
}

void ParallelEmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << "ParallelEmbedding(" << places(weights, 0) << ", embedding_dim=" << weights[0].size(1) << ")";
}

ParallelMultiheadAttentionImpl::ParallelMultiheadAttentionImpl(const MultiheadAttention& whole,
                                                               const SplitOptions& options)
    : Module("ParallelMultiheadAttention"),
      head_dim_(whole->head_dim),
      dropout_(whole->options.dropout()),
      batch_first_(whole->options.batch_first()) {
  const auto& o = whole->options;
  ATHANOR_CHECK_VALUE(!o.add_bias_kv() && !o.add_zero_attn(),
                      "ParallelMultiheadAttention: attention with add_bias_kv or add_zero_attn cannot be split");
  const Split split("ParallelMultiheadAttention", "heads", o.num_heads(), options);
  output_device_ = split.output;
  const std::int64_t embed = o.embed_dim();
  const bool together = whole->_qkv_same_embed_dim;
  const Tensor separate[] = {whole->q_proj_weight, whole->k_proj_weight, whole->v_proj_weight};
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < split.sizes.size(); begin += split.sizes[i++] * head_dim_) {
    const std::int64_t size = split.sizes[i] * head_dim_;
    const auto part = [&](const char* name, const Tensor& t, std::int64_t dim, std::int64_t at) {
      return part_of(*this, numbered(name, i), t, dim, at, size, split.devices[i]);
    };
    const auto weight = [&](const char* name, std::int64_t which) {
      return together ? part(name, whole->in_proj_weight, 0, which * embed + begin)
                      : part(name, separate[which], 0, begin);
    };
    const auto bias = [&](const char* name, std::int64_t which) {
      return part(name, whole->in_proj_bias, 0, which * embed + begin);
    };
    heads.push_back({weight("q_weight", 0), weight("k_weight", 1), weight("v_weight", 2), bias("q_bias", 0),
                     bias("k_bias", 1), bias("v_bias", 2), part("out_weight", whole->out_proj->weight, 1, begin)});
  }
  out_bias = moved(*this, "out_bias", whole->out_proj->bias, output_device_);
}

Tensor ParallelMultiheadAttentionImpl::of_heads(const Heads& part, const Tensor& query, const Tensor& key,
                                                const Tensor& value, const Tensor& mask, bool is_causal) const {
  const Device device = part.q.device();
  const auto projected = [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    const Tensor y = linear(x.to(device), weight, bias);  // (N, L, heads · size)
    return y.reshape({y.size(0), y.size(1), y.size(2) / head_dim_, head_dim_}).transpose(1, 2);
  };
  const Tensor y = scaled_dot_product_attention(
      projected(query, part.q, part.q_bias), projected(key, part.k, part.k_bias), projected(value, part.v, part.v_bias),
      mask.defined() ? mask.to(device) : mask, is_training() ? dropout_ : 0, is_causal);
  return linear(y.transpose(1, 2).flatten(2), part.out);
}

namespace {

/// Both masks as scaled_dot_product_attention wants them: bool, true where open, or added to the scores.
Tensor open_places(const Tensor& attention, const Tensor& padding) {
  constexpr const char* kName = "ParallelMultiheadAttention";
  ATHANOR_CHECK(!padding.defined() || (padding.dim() == 2 && padding.dtype() == kBool), kName,
                ": expected a key_padding_mask (N, S) of bool, got ", padding);
  ATHANOR_CHECK(!attention.defined() || attention.dim() == 2, kName, ": expected an attn_mask (L, S), got ", attention);
  const Tensor ignored = padding.defined() ? padding.unsqueeze(1).unsqueeze(1) : padding;
  if (!attention.defined()) return ignored.defined() ? ignored.logical_not() : ignored;
  if (attention.dtype() == kBool) return (ignored.defined() ? attention.logical_or(ignored) : attention).logical_not();
  if (!ignored.defined()) return attention;
  const std::int64_t rows = attention.size(0), columns = attention.size(1);
  return attention.expand({padding.size(0), 1, rows, columns}).masked_fill(ignored, -INFINITY);
}

}  // namespace

Tensor ParallelMultiheadAttentionImpl::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                               const Tensor& attn_mask, bool is_causal,
                                               const Tensor& key_padding_mask) {
  const Tensor* const inputs[] = {&query, &key, &value};
  for (const Tensor* t : inputs)
    ATHANOR_CHECK(t->defined() && t->dim() == 3, "ParallelMultiheadAttention: query, key and value should be 3-D, got ",
                  *t);
  check_features("ParallelMultiheadAttention", query, heads[0].q.size(1));
  check_features("ParallelMultiheadAttention", key, heads[0].k.size(1));
  check_features("ParallelMultiheadAttention", value, heads[0].v.size(1));
  ATHANOR_CHECK_VALUE(!is_causal || (!attn_mask.defined() && !key_padding_mask.defined()),
                      "ParallelMultiheadAttention: is_causal stands for a mask of its own; give either it or masks");
  const auto by_batch = [&](const Tensor& t) { return batch_first_ ? t : t.transpose(0, 1); };
  const Tensor mask = open_places(attn_mask, key_padding_mask);
  std::vector<Tensor> parts;
  for (const Heads& part : heads)
    parts.push_back(of_heads(part, by_batch(query), by_batch(key), by_batch(value), mask, is_causal));
  return by_batch(sum_on(output_device_, parts, out_bias));
}

void ParallelMultiheadAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "ParallelMultiheadAttention(embed_dim=" << heads[0].q.size(1) << ", head_dim=" << head_dim_ << ", features "
         << places<Heads>(
                heads, [](const Heads& h) { return h.q; }, 0)
         << ")";
}

}  // namespace athanor::nn::parallel
