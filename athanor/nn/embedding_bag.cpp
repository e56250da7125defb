#include "athanor/nn/embedding_bag.h"

#include "athanor/nn/embedding_table.h"
#include "athanor/ops/factory.h"

namespace athanor::nn {

namespace functional {

Tensor embedding_bag(const Tensor& input, const Tensor& weight, const EmbeddingBagFuncOptions& o) {
  ATHANOR_CHECK_VALUE(input.dim() == 1 || input.dim() == 2, "embedding_bag: input has to be 1D or 2D Tensor, but got ",
                      "Tensor of dimension ", input.dim(), ", its shape is ", input.sizes());
  Tensor indices = input, offsets = o.offsets(), weights = o.per_sample_weights();
  ATHANOR_CHECK_VALUE(!weights.defined() || weights.sizes() == input.sizes(), "embedding_bag: If per_sample_weights (",
                      weights.defined() ? weights.sizes() : IntArrayRef{}, ") is not None, then it must have the same ",
                      "shape as the input (", input.sizes(), ")");
  if (input.dim() == 2) {
    ATHANOR_CHECK_VALUE(!offsets.defined(), "embedding_bag: If input is 2D, then offsets has to be null, as input is ",
                        "treated as a mini-batch of fixed length sequences. However, found offsets of type Tensor");
    offsets = athanor::arange(input.size(0), TensorOptions(kLong).device(input.device())) * input.size(1);
    indices = input.reshape({-1});
    if (weights.defined()) weights = weights.reshape({-1});
  }
  ATHANOR_CHECK_VALUE(offsets.defined() && offsets.dim() == 1,
                      "embedding_bag: offsets has to be a 1D Tensor if input is ", "1D");
  if (o.max_norm()) {
    const NoGradGuard guard;
    Tensor table = weight;
    embedding_renorm_(table, indices.contiguous(), *o.max_norm(), o.norm_type());
  }
  const std::int64_t mode = o.mode() == kSum ? 0 : o.mode() == kMean ? 1 : 2;
  // The rows of a 2-d input have their ends already.
  const bool last = o.include_last_offset() && input.dim() == 1;
  return std::get<0>(athanor::embedding_bag(weight, indices, offsets, o.scale_grad_by_freq(), mode, o.sparse(), weights,
                                            last, o.padding_idx()));
}

}  // namespace functional

EmbeddingBagImpl::EmbeddingBagImpl(EmbeddingBagOptions options) : options(std::move(options)) { reset(); }

void EmbeddingBagImpl::reset() {
  detail::check_padding(options.padding_idx(), options.num_embeddings());
  weight = register_parameter(
      "weight", detail::embedding_table(options._weight(), options.num_embeddings(), options.embedding_dim()));
  if (!options._weight().defined()) reset_parameters();
}

void EmbeddingBagImpl::reset_parameters() { detail::fill_embedding_table(weight, options.padding_idx()); }

void EmbeddingBagImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "torch::nn::EmbeddingBag(num_embeddings=" << options.num_embeddings()
         << ", embedding_dim=" << options.embedding_dim();
  if (options.max_norm()) stream << ", max_norm=" << *options.max_norm();
  if (options.norm_type() != 2) stream << ", norm_type=" << options.norm_type();
  if (options.scale_grad_by_freq()) stream << ", scale_grad_by_freq=" << options.scale_grad_by_freq();
  if (options.sparse()) stream << ", sparse=" << options.sparse();
  if (!(options.mode() == kMean)) stream << ", mode=" << options.mode().name();
  if (options.include_last_offset()) stream << ", include_last_offset=" << options.include_last_offset();
  if (options.padding_idx()) stream << ", padding_idx=" << *options.padding_idx();
  stream << ")";
}

Tensor EmbeddingBagImpl::forward(const Tensor& input, const Tensor& offsets, const Tensor& per_sample_weights) {
  return in_module(*this, [&] {
    return functional::embedding_bag(input, weight,
                                     functional::EmbeddingBagFuncOptions()
                                         .offsets(offsets)
                                         .max_norm(options.max_norm())
                                         .norm_type(options.norm_type())
                                         .scale_grad_by_freq(options.scale_grad_by_freq())
                                         .mode(options.mode())
                                         .sparse(options.sparse())
                                         .per_sample_weights(per_sample_weights)
                                         .include_last_offset(options.include_last_offset())
                                         .padding_idx(options.padding_idx()));
  });
}

EmbeddingBag EmbeddingBag::from_pretrained(const Tensor& embeddings, const EmbeddingBagFromPretrainedOptions& o) {
  ATHANOR_CHECK(embeddings.dim() == 2, "Embeddings parameter is expected to be 2-dimensional, got shape ",
                embeddings.sizes());
  EmbeddingBag out(EmbeddingBagOptions(embeddings.size(0), embeddings.size(1))
                       ._weight(embeddings.detach())
                       .max_norm(o.max_norm())
                       .norm_type(o.norm_type())
                       .scale_grad_by_freq(o.scale_grad_by_freq())
                       .mode(o.mode())
                       .sparse(o.sparse())
                       .include_last_offset(o.include_last_offset())
                       .padding_idx(o.padding_idx()));
  out->weight.set_requires_grad(!o.freeze());
  return out;
}

}  // namespace athanor::nn
