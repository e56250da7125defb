// Scaled dot-product attention: a fused kernel each way; under create_graph, and where a mask wants its gradient, it is
// composed of ops that can be differentiated again.
#include "athanor/ops/attention.h"

#include "athanor/ops/autocast.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/create.h"
#include "athanor/ops/direct_gradient.h"
#include "athanor/ops/index.h"
#include "athanor/ops/join.h"
#include "athanor/ops/kernels/attention.h"
#include "athanor/ops/matmul.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/random.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/softmax.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

constexpr const char* kName = "scaled_dot_product_attention";

/// What the composed forms need to know of a call.
struct Settings {
  bool causal;
  double scale, dropout;
  std::int64_t seed, offset;
};

/// Each head of t (B, G, S, E) as often as heads of q (B, H, L, E) read it.
Tensor repeat_heads(const Tensor& t, std::int64_t heads) {
  const std::int64_t groups = t.size(1);
  if (groups == heads) return t;
  const std::int64_t b = t.size(0), s = t.size(2), e = t.size(3);
  return reshape(expand(unsqueeze(t, 2), {b, groups, heads / groups, s, e}), {b, heads, s, e});
}
/// The sum over the heads that repeat_heads made of one.
Tensor sum_heads(const Tensor& t, std::int64_t groups) {
  if (t.size(1) == groups) return t;
  const DimVector sizes{t.size(0), groups, t.size(1) / groups, t.size(2), t.size(3)};
  return sum(reshape(t, sizes), IntArrayRef{2}, false, std::nullopt);
}

Tensor transposed(const Tensor& t) { return transpose(t, -2, -1); }

/// softmax of the masked scores; rows without any place are zeros, and so are their gradients.
Tensor probabilities(const Tensor& q, const Tensor& k, const Tensor& mask, const Settings& o) {
  Tensor s = mul(matmul(q, transposed(k)), o.scale);
  if (mask.defined()) s = mask.dtype() == DType::Bool ? masked_fill(s, logical_not(mask), -INFINITY) : add(s, mask);
  if (o.causal) {
    const Tensor seen = tril(ones({q.size(2), k.size(2)}, TensorOptions(DType::Bool).device(q.device())), 0);
    s = masked_fill(s, logical_not(seen), -INFINITY);
  }
  if (!mask.defined()) return softmax(s, -1, std::nullopt);
  const Tensor dead = logical_not(any(ne(s, -INFINITY), std::int64_t{-1}, true));
  return masked_fill(softmax(masked_fill(s, dead, 0), -1, std::nullopt), dead, 0);
}

Tensor dropped(const Tensor& p, const Settings& o) {
  return o.dropout > 0 ? _dropout(p, o.dropout, o.seed, o.offset) : p;
}

/// (B, H, L, F) in the order of t's dims: heads outside or inside of rows.
DimVector strides_like(const Tensor& t, IntArrayRef sizes) {
  const std::int64_t h = sizes[1], l = sizes[2], e = sizes[3];
  if (t.stride(1) < t.stride(2) && t.stride(1) != 0 && h > 1) return {h * l * e, e, h * e, 1};
  return {h * l * e, l * e, e, 1};
}

/// Whether the three are the parts of one projection, as of x @ wᵀ cut in three: (batch, length, 3, heads, size) in
/// memory.
bool are_one_projection(const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t h = q.size(1), l = q.size(2), e = q.size(3);
  const DimVector strides{l * 3 * h * e, e, 3 * h * e, 1};
  const Tensor* const parts[] = {&q, &k, &v};
  for (std::int64_t i = 0; i < 3; ++i)
    if (parts[i]->sizes() != q.sizes() || parts[i]->strides() != IntArrayRef(strides) || !parts[i]->is_alias_of(q) ||
        parts[i]->storage_offset() != q.storage_offset() + i * h * e)
      return false;
  return true;
}

AttentionParams params_of(bool causal, double scale, double dropout, std::int64_t seed, std::int64_t offset) {
  return {causal, scale, dropout, {static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(offset)}};
}

}  // namespace

/// Gradients of _fused_attention with respect to query, key and value, those that the bits of `wanted` ask for.
struct FusedAttentionBackward {
  ATHANOR_OP(
      "_fused_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor "
      "out, Tensor logsumexp, bool is_causal, float scale, float dropout_p, int seed, int offset, int wanted) -> "
      "(Tensor, Tensor, Tensor) | function");
  bool is_causal;
  double scale, dropout_p;
  std::int64_t seed, offset, wanted;
  std::array<Meta, 3> infer(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&,
                            const Tensor&, const Tensor&) {
    const auto like = [&](const Tensor& t, int bit) {
      if (!(wanted >> bit & 1)) return Meta{};
      return Meta{DimVector(t.sizes()), t.dtype(), t.device(), strides_like(t, t.sizes())};
    };
    return {like(q, 0), like(k, 1), like(v, 2)};
  }
  void run(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& grad, const Tensor& q, const Tensor& k,
           const Tensor& v, const Tensor& mask, const Tensor& out, const Tensor& lse) {
    launch<3>(attention_backward_kernel, dq, dk, dv, grad, q, k, v, mask, out, lse,
              params_of(is_causal, scale, dropout_p, seed, offset));
  }
};

/// softmax(scale query keyᵀ + attn_mask) value over the last two of four dims; also log sum exp of each row's scores.
/// key and value may have fewer heads (dim 1), each read by as many heads of query that follow each other.
struct FusedAttention {
  ATHANOR_OP(
      "_fused_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float scale, float "
      "dropout_p, int seed, int offset) -> (Tensor, Tensor) | function");
  static constexpr const char* grad_name = "ScaledDotProductFlashAttentionForCpuBackward0";
  bool is_causal;
  double scale, dropout_p;
  std::int64_t seed, offset;
  SavedTensor q_, k_, v_, mask_, out_, lse_;
  const Node* node_ = nullptr;
  std::array<Meta, 2> infer(const Tensor& q, const Tensor&, const Tensor& v, const Tensor&) {
    const DimVector sizes{q.size(0), q.size(1), q.size(2), v.size(3)};
    return {Meta{sizes, q.dtype(), q.device(), strides_like(q, sizes)},
            Meta{{q.size(0), q.size(1), q.size(2)}, q.dtype(), q.device(), {}}};
  }
  void run(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
           const Tensor& mask) {
    launch<2>(attention_kernel, out, lse, q, k, v, mask, params_of(is_causal, scale, dropout_p, seed, offset));
  }
  void save(const Node& n, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
    node_ = &n;
    q_.save(q);
    k_.save(k);
    v_.save(v);
    if (mask.defined()) mask_.save(mask);
  }
  void save_results(Node* n, const Tensor& out, const Tensor& lse) {
    out_.save_result(out, n);
    lse_.save_result(lse, n);
  }
  void grad(GradCall& g) {
    if (!g.has(0)) return;
    const Tensor q = g.get(q_), k = g.get(k_), v = g.get(v_), mask = mask_.defined() ? g.get(mask_) : Tensor();
    if (GradMode::is_enabled()) return composed_grad(g, q, k, v, mask);
    const std::int64_t wanted = g.needs(0) | g.needs(1) << 1 | g.needs(2) << 2;
    if (wanted == 7 && q.numel() > 0 && are_one_projection(q, k, v) && go_unseen_to_one_split(*node_, 3))
      return grad_of_projection(g, q, k, v, mask);
    auto [dq, dk, dv] = _fused_attention_backward(g.grad(), q, k, v, mask, g.get(out_), g.get(lse_), is_causal, scale,
                                                  dropout_p, seed, offset, wanted);
    g.set(0, dq);
    g.set(1, dk);
    g.set(2, dv);
  }
  /// The gradients as parts of one tensor: the split before gives it on as it is.
  void grad_of_projection(GradCall& g, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) const {
    const std::int64_t h = q.size(1), l = q.size(2), e = q.size(3);
    const Tensor all = detail::empty_tensor({q.size(0), l, 3, h, e}, q.dtype(), q.device());
    Tensor parts[3];
    for (std::int64_t i = 0; i < 3; ++i) parts[i] = detail::alias(all, q.sizes(), q.strides(), i * h * e);
    FusedAttentionBackward op{is_causal, scale, dropout_p, seed, offset, 7};
    const Tensor out = g.get(out_), lse = g.get(lse_);
    const CallScope scope(FusedAttentionBackward::schema, profiler::detail::Form::Plain, g.grad(), q, k, v, mask, out,
                          lse);
    op.run(parts[0], parts[1], parts[2], g.grad(), q, k, v, mask, out, lse);
    for (std::size_t i = 0; i < 3; ++i) g.set(i, parts[i]);
  }
  void composed_grad(GradCall& g, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) const {
    const Settings o{is_causal, scale, dropout_p, seed, offset};
    const std::int64_t heads = q.size(1), groups = k.size(1);
    const Tensor all_k = repeat_heads(k, heads), all_v = repeat_heads(v, heads), up = g.grad();
    const Tensor p = probabilities(q, all_k, mask, o);
    const Tensor dp = dropped(matmul(up, transposed(all_v)), o);
    const Tensor ds = mul(_softmax_backward_data(dp, p, -1, p.dtype()), scale);
    if (g.needs(0)) g.set(0, matmul(ds, all_k));
    if (g.needs(1)) g.set(1, sum_heads(matmul(transposed(ds), q), groups));
    if (g.needs(2)) g.set(2, sum_heads(matmul(transposed(dropped(p, o)), up), groups));
  }
};

namespace {

void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, double dropout,
                     bool causal) {
  for (const Tensor* t : {&q, &k, &v}) ATHANOR_CHECK(t->defined(), kName, ": expected a tensor, got an undefined one");
  ATHANOR_CHECK(q.dtype() == k.dtype() && q.dtype() == v.dtype(), kName,
                ": Expected query, key, and value to have the same dtype, but got query.dtype: ", q.dtype(),
                " key.dtype: ", k.dtype(), " and value.dtype: ", v.dtype(), " instead; convert with .to(dtype)");
  ATHANOR_CHECK_TYPE(NotImplementedError, q.is_floating_point(), kName, ": not implemented for ", dtype_name(q.dtype()),
                     "; expected a floating dtype");
  ATHANOR_CHECK(q.dim() >= 2 && k.dim() >= 2 && v.dim() >= 2, kName,
                ": Expected query, key, and value to all be at least 2 dimensional, but got query of shape ", q.sizes(),
                ", key of shape ", k.sizes(), ", value of shape ", v.sizes());
  ATHANOR_CHECK(q.size(-1) == k.size(-1), kName, ": query and key must have the same last dimension, got shapes ",
                q.sizes(), " and ", k.sizes());
  ATHANOR_CHECK(k.size(-2) == v.size(-2), kName, ": key and value must have the same sequence length, got shapes ",
                k.sizes(), " and ", v.sizes());
  ATHANOR_CHECK_VALUE(dropout >= 0 && dropout <= 1, kName, ": dropout_p has to be between 0 and 1, but got ", dropout);
  if (!mask.defined()) return;
  ATHANOR_CHECK(!causal, kName, ": Explicit attn_mask should not be set when is_causal=True");
  ATHANOR_CHECK(mask.dtype() == DType::Bool || mask.is_floating_point(), kName,
                ": Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: ",
                mask.dtype(), " and query.dtype: ", q.dtype());
}

IntArrayRef batch_of(const Tensor& t, std::int64_t inner = 2) {
  return t.sizes().slice(0, static_cast<std::size_t>(t.dim() - inner));
}

/// t with batch dims `batch` (broadcast) and four dims in all: (…, heads, rows, columns), or (1, …) where there are
/// fewer.
Tensor in_four_dims(const Tensor& t, IntArrayRef batch) {
  DimVector sizes(batch);
  sizes.push_back(t.size(-2));
  sizes.push_back(t.size(-1));
  Tensor full = t.sizes() == IntArrayRef(sizes) ? t : expand(t, sizes);
  if (sizes.size() == 4) return full;
  std::int64_t outer = 1;
  for (std::size_t d = 0; d + 3 < sizes.size(); ++d) outer *= sizes[d];
  return reshape(full, {outer, sizes.size() > 2 ? sizes[sizes.size() - 3] : 1, t.size(-2), t.size(-1)});
}

struct Operands {
  Tensor q, k, v, mask;
  DimVector batch;  ///< of the result
};

/// Brings operands to (B, H, L, E), (B, G, S, E), (B, G, S, F) and (B, H, L, S).
Operands prepare_operands(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool enable_gqa) {
  Operands o;
  if (enable_gqa) {
    ATHANOR_CHECK(q.dim() >= 3 && k.dim() >= 3 && v.dim() >= 3, kName,
                  ": enable_gqa needs a dimension of heads, got shapes ", q.sizes(), ", ", k.sizes(), ", ", v.sizes());
    const std::int64_t heads = q.size(-3), groups = k.size(-3);
    ATHANOR_CHECK(v.size(-3) == groups && groups > 0 && heads % groups == 0, kName,
                  ": Number of heads in key and value must divide the number of heads in query, got ", heads,
                  " heads in query, ", groups, " in key and ", v.size(-3), " in value");
    const DimVector outer =
        broadcast_shapes(broadcast_shapes(batch_of(q, 3), batch_of(k, 3), kName), batch_of(v, 3), kName);
    DimVector inner = outer;
    inner.push_back(groups);
    o.batch = outer;
    o.batch.push_back(heads);
    o.k = in_four_dims(k, inner);
    o.v = in_four_dims(v, inner);
  } else {
    o.batch = broadcast_shapes(broadcast_shapes(batch_of(q), batch_of(k), kName), batch_of(v), kName);
    o.k = in_four_dims(k, o.batch);
    o.v = in_four_dims(v, o.batch);
  }
  o.q = in_four_dims(q, o.batch);
  if (!mask.defined()) return o;
  DimVector sizes = o.batch;
  sizes.push_back(q.size(-2));
  sizes.push_back(k.size(-2));
  ATHANOR_CHECK(mask.dim() <= static_cast<std::int64_t>(sizes.size()), kName, ": attn_mask of shape ", mask.sizes(),
                " cannot be broadcast to ", sizes);
  for (std::int64_t d = 1; d <= mask.dim(); ++d) {
    const std::int64_t want = sizes[sizes.size() - static_cast<std::size_t>(d)], have = mask.size(-d);
    ATHANOR_CHECK(have == want || have == 1, kName, ": attn_mask of shape ", mask.sizes(), " cannot be broadcast to ",
                  sizes);
  }
  o.mask = in_four_dims(expand(mask, sizes), o.batch);
  return o;
}

}  // namespace

/// softmax(scale query keyᵀ + attn_mask) value. query (…, L, E), key (…, S, E), value (…, S, F) give (…, L, F); leading
/// dims broadcast. attn_mask broadcasts to (…, L, S): bool, true where a place takes part, or floating, added to the
/// scores. is_causal: row i sees places 0 … i. scale: 1 / sqrt(E) unless given. enable_gqa: key and value may have
/// fewer heads (dim -3) than query. dropout_p applies whether training or not. A row that sees nothing gives zeros.
/// Memory grows with L + S.
ATHANOR_FUNCTION(
    "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask={}, float dropout_p=0.0, "
    "bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor");
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa) {
  if (__builtin_expect(athanor::detail::autocast_on, 0)) {
    const auto low = [](const Tensor& t) { return t.defined() ? autocast_operand(t, AutocastTo::Lower) : t; };
    const Tensor q = low(query), k = low(key), v = low(value), mask = low(attn_mask);
    const autocast::AutocastGuard off(false);  // the sums inside are float32
    return scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, scale, enable_gqa);
  }
  check_attention(query, key, value, attn_mask, dropout_p, is_causal);
  Operands o = prepare_operands(query, key, value, attn_mask, enable_gqa);
  const DType t = query.dtype(), compute = is_half(t) ? DType::Float : t;
  for (Tensor* x : {&o.q, &o.k, &o.v}) *x = cast(*x, compute);
  if (o.mask.defined() && o.mask.dtype() != DType::Bool) o.mask = cast(o.mask, compute);
  Settings s{is_causal, scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1)))), dropout_p, 0, 0};
  if (dropout_p > 0 && dropout_p < 1) {
    const std::int64_t draws = o.q.size(0) * o.q.size(1) * o.q.size(2) * o.k.size(2);
    const PhiloxState state = default_generator().reserve(static_cast<std::uint64_t>(draws + 3) / 4);
    s.seed = static_cast<std::int64_t>(state.seed);
    s.offset = static_cast<std::int64_t>(state.offset);
  }
  Tensor out;
  if (dropout_p == 1) {
    out =
        mul(matmul(mul(matmul(o.q, transposed(repeat_heads(o.k, o.q.size(1)))), 0), repeat_heads(o.v, o.q.size(1))), 0);
  } else if (o.mask.defined() && GradMode::is_enabled() && wants_grad(o.mask)) {
    const Tensor p = probabilities(o.q, repeat_heads(o.k, o.q.size(1)), o.mask, s);
    out = matmul(dropped(p, s), repeat_heads(o.v, o.q.size(1)));
  } else {
    out = std::get<0>(_fused_attention(o.q, o.k, o.v, o.mask, is_causal, s.scale, dropout_p, s.seed, s.offset));
  }
  out = cast(out, t);
  if (o.batch.size() == 2) return out;
  DimVector sizes = o.batch;
  sizes.push_back(query.size(-2));
  sizes.push_back(value.size(-1));
  return reshape(out, sizes);
}

}  // namespace athanor::ops

#include "athanor/ops/attention.glue.inc"
