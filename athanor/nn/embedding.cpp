#include "athanor/nn/embedding.h"

#include "athanor/nn/embedding_table.h"
#include "athanor/nn/init.h"

namespace athanor::nn {

namespace functional {

namespace {

std::int64_t checked_padding(std::int64_t padding_idx, std::int64_t rows) {
  ATHANOR_CHECK(padding_idx >= -rows && padding_idx < rows, "Padding_idx must be within num_embeddings, got ",
                padding_idx, " for ", rows, " embeddings");
  return padding_idx < 0 ? padding_idx + rows : padding_idx;
}

}  // namespace

Tensor embedding(const Tensor& input, const Tensor& weight, const EmbeddingFuncOptions& o) {
  const std::int64_t padding = o.padding_idx() ? checked_padding(*o.padding_idx(), weight.size(0)) : -1;
  if (o.max_norm()) {
    const NoGradGuard guard;
    Tensor table = weight;
    embedding_renorm_(table, input.contiguous(), *o.max_norm(), o.norm_type());
  }
  return athanor::embedding(weight, input, padding, o.scale_grad_by_freq(), o.sparse());
}

Tensor one_hot(const Tensor& tensor, std::int64_t num_classes) { return athanor::one_hot(tensor, num_classes); }

}  // namespace functional

namespace detail {

void check_padding(std::optional<std::int64_t>& padding, std::int64_t rows) {
  if (!padding) return;
  ATHANOR_CHECK(*padding >= -rows && *padding < rows, "Padding_idx must be within num_embeddings, got ", *padding,
                " for ", rows, " embeddings");
  if (*padding < 0) *padding += rows;
}

Tensor embedding_table(const Tensor& given, std::int64_t rows, std::int64_t width) {
  if (!given.defined()) return empty({rows, width});
  ATHANOR_CHECK(given.sizes() == (IntArrayRef{rows, width}),
                "Shape of _weight does not match num_embeddings and embedding_dim: got ", given.sizes(), " for ", rows,
                " and ", width);
  return given;
}

void fill_embedding_table(const Tensor& table, const std::optional<std::int64_t>& padding) {
  init::normal_(table);
  if (!padding) return;
  const NoGradGuard guard;
  table.select(0, *padding).fill_(0);
}

}  // namespace detail

EmbeddingImpl::EmbeddingImpl(EmbeddingOptions options) : options(std::move(options)) { reset(); }

void EmbeddingImpl::reset() {
  detail::check_padding(options.padding_idx(), options.num_embeddings());
  weight = register_parameter(
      "weight", detail::embedding_table(options._weight(), options.num_embeddings(), options.embedding_dim()));
  if (!options._weight().defined()) reset_parameters();
}

void EmbeddingImpl::reset_parameters() { detail::fill_embedding_table(weight, options.padding_idx()); }

void EmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "torch::nn::Embedding(num_embeddings=" << options.num_embeddings()
         << ", embedding_dim=" << options.embedding_dim();
  if (options.padding_idx()) stream << ", padding_idx=" << *options.padding_idx();
  if (options.max_norm()) stream << ", max_norm=" << *options.max_norm();
  if (options.norm_type() != 2) stream << ", norm_type=" << options.norm_type();
  if (options.scale_grad_by_freq()) stream << ", scale_grad_by_freq=" << options.scale_grad_by_freq();
  if (options.sparse()) stream << ", sparse=" << options.sparse();
  stream << ")";
}

Tensor EmbeddingImpl::forward(const Tensor& indices) {
  return in_module(*this, [&] {
    return functional::embedding(indices, weight,
                                 functional::EmbeddingFuncOptions()
                                     .padding_idx(options.padding_idx())
                                     .max_norm(options.max_norm())
                                     .norm_type(options.norm_type())
                                     .scale_grad_by_freq(options.scale_grad_by_freq())
                                     .sparse(options.sparse()));
  });
}

Embedding Embedding::from_pretrained(const Tensor& embeddings, const EmbeddingFromPretrainedOptions& options) {
  ATHANOR_CHECK(embeddings.dim() == 2, "Embeddings parameter is expected to be 2-dimensional, got shape ",
                embeddings.sizes());
  Embedding out(EmbeddingOptions(embeddings.size(0), embeddings.size(1))
                    ._weight(embeddings.detach())
                    .padding_idx(options.padding_idx())
                    .max_norm(options.max_norm())
                    .norm_type(options.norm_type())
                    .scale_grad_by_freq(options.scale_grad_by_freq())
                    .sparse(options.sparse()));
  out->weight.set_requires_grad(!options.freeze());
  return out;
}

}  // namespace athanor::nn
