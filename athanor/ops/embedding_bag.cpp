// embedding_bag: rows of a table summed, averaged or maximized bag by bag, without a tensor of all the rows.
#include "athanor/ops/embedding_bag.h"

#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/index.h"
#include "athanor/ops/join.h"
#include "athanor/ops/kernels/embedding_bag.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/spread.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

/// Results, the bag of every index, how many indices count in each bag, and where each maximum came from. bounds: where
/// bags begin, and the end.
struct EmbeddingBag {
  ATHANOR_OP(
      "_embedding_bag(Tensor weight, Tensor indices, Tensor bounds, Tensor? per_sample_weights, "
      "bool scale_grad_by_freq, int mode, int padding_idx) -> (Tensor, Tensor, Tensor, Tensor) | function");
  static constexpr const char* grad_name = "EmbeddingBagBackward0";
  bool scale_grad_by_freq;
  std::int64_t mode, padding_idx;
  SavedTensor table, index, factors;
  Tensor bag_of, counts, places;
  DimVector from;
  std::array<Meta, 4> infer(const Tensor& weight, const Tensor& indices, const Tensor& bounds, const Tensor&) {
    const std::int64_t bags = bounds.numel() - 1;
    const Meta result{{bags, weight.size(1)}, weight.dtype(), weight.device(), {}};
    Meta maxima{mode == 2 ? result.sizes : DimVector{0}, DType::Long, weight.device(), {}};
    return {result, Meta{{indices.numel()}, DType::Long, weight.device(), {}},
            Meta{{bags}, DType::Long, weight.device(), {}}, maxima};
  }
  void run(const Tensor& out, const Tensor& owner, const Tensor& sizes, const Tensor& maxima, const Tensor& weight,
           const Tensor& indices, const Tensor& bounds, const Tensor& weights) {
    launch<4>(embedding_bag_kernel, out, owner, sizes, mode == 2 ? maxima : Tensor(), weight, indices, bounds, weights,
              static_cast<BagMode>(mode), padding_idx);
  }
  void save(const Node& n, const Tensor& weight, const Tensor& indices, const Tensor&, const Tensor& weights) {
    from = DimVector(weight.sizes());
    if (n.needs(3)) table.save(weight);  // else it may change, as max_norm does from call to call
    index.save(indices);
    factors.save(weights);
  }
  void save_results(Node*, const Tensor&, const Tensor& owner, const Tensor& sizes, const Tensor& maxima) {
    auto plain = [](const Tensor& t) { return detail::alias(t, t.sizes(), t.strides(), t.storage_offset()); };
    bag_of = plain(owner);
    counts = plain(sizes);
    places = plain(maxima);
  }
  void grad(GradCall& g) {
    if (!g.has(0)) return;
    const Tensor indices = g.get(index), own = g.get(factors);
    if (mode == 2) {
      const Tensor none = lt(places, 0);
      const Tensor source = where(none, Scalar(0), places), values = masked_fill(g.grad(0), none, Scalar(0));
      spread(g, from, scatter_add_, 0, source, values);
      return;
    }
    Tensor each = index_select(g.grad(0), 0, bag_of);
    if (mode == 1) each = div(each, unsqueeze(cast(clamp_min(index_select(counts, 0, bag_of), 1), each.dtype()), 1));
    if (g.needs(3)) {
      Tensor d = sum(mul(each, index_select(g.get(table), 0, indices)), IntArrayRef{std::int64_t{1}});
      if (padding_idx >= 0) d = masked_fill(d, eq(indices, padding_idx), Scalar(0));
      g.set(3, d);
    }
    if (!g.needs(0)) return;
    if (own.defined()) each = mul(each, unsqueeze(own, 1));
    g.set(0, embedding_dense_backward(each, indices, from[0], padding_idx, scale_grad_by_freq));
  }
};

/// For every bag of rows of weight (n, d), from offsets[b] to the next offset in the 1-d indices, their sum (mode 0),
/// mean (1) or element-wise maximum (2), as (bags, d). include_last_offset: the last offset is the end of the last bag.
/// per_sample_weights (one per index) multiply in a sum. Indices equal to padding_idx do not count. Also gives the bag
/// of every index, the sizes of the bags, and for maxima the rows they came from.
ATHANOR_FUNCTION(
    "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, "
    "bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int? padding_idx=None) -> "
    "(Tensor, Tensor, Tensor, Tensor)");
std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag(const Tensor& weight, const Tensor& indices,
                                                         const Tensor& offsets, bool scale_grad_by_freq,
                                                         std::int64_t mode, bool sparse,
                                                         const Tensor& per_sample_weights, bool include_last_offset,
                                                         std::optional<std::int64_t> padding_idx) {
  ATHANOR_CHECK(weight.defined() && weight.dim() == 2,
                "embedding_bag: weight has to be a 2D Tensor, but got Tensor of ", "dimension ",
                weight.defined() ? weight.dim() : 0);
  ATHANOR_CHECK_TYPE(NotImplementedError, is_floating_point(weight.dtype()),
                     "embedding_bag: expected a floating weight, ", "got ", weight.dtype());
  for (const Tensor* t : {&indices, &offsets})
    ATHANOR_CHECK(t->defined() && t->dim() == 1 && (t->dtype() == DType::Long || t->dtype() == DType::Int),
                  "embedding_bag: indices and offsets have to be 1D tensors of dtype int64 or int32, got ",
                  t->defined() ? detail::str(t->dtype(), " of shape ", t->sizes()) : "an undefined tensor");
  ATHANOR_CHECK(!sparse, "embedding_bag: sparse gradients are not supported; use sparse=false");
  ATHANOR_CHECK(mode >= 0 && mode <= 2, "embedding_bag: mode has to be 0 (sum), 1 (mean) or 2 (max), got ", mode);
  ATHANOR_CHECK(mode != 2 || !scale_grad_by_freq,
                "embedding_bag: max mode does not support scaling the gradient by the ", "frequency");
  if (per_sample_weights.defined()) {
    ATHANOR_CHECK(mode == 0,
                  "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for ",
                  "mode='sum' (got mode='", mode == 1 ? "mean" : "max", "').");
    ATHANOR_CHECK(per_sample_weights.dtype() == weight.dtype() && per_sample_weights.sizes() == indices.sizes(),
                  "embedding_bag: per_sample_weights must have weight's dtype and the shape of indices, got ",
                  per_sample_weights.dtype(), " of shape ", per_sample_weights.sizes(), " for ", weight.dtype(),
                  " and ", indices.sizes());
  }
  ATHANOR_CHECK(!include_last_offset || offsets.numel() > 0, "embedding_bag: include_last_offset: number of offsets ",
                "should be at least 1");
  std::int64_t padding = padding_idx.value_or(-1);
  if (padding_idx) {
    ATHANOR_CHECK(padding >= -weight.size(0) && padding < weight.size(0),
                  "embedding_bag: padding_idx must be within the ", "number of embeddings, -", weight.size(0),
                  " through ", weight.size(0) - 1, ", but got ", padding);
    if (padding < 0) padding += weight.size(0);
  }
  Tensor bounds = cast(offsets, DType::Long);
  if (!include_last_offset)
    bounds =
        cat(TensorList{bounds, full({1}, indices.numel(), TensorOptions(DType::Long).device(offsets.device()))}, 0);
  return _embedding_bag(weight, indices, contiguous(bounds), per_sample_weights, scale_grad_by_freq, mode, padding);
}

}  // namespace athanor::ops

#include "athanor/ops/embedding_bag.glue.inc"
