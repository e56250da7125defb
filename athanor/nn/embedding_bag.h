#pragma once
/// EmbeddingBag: rows of a table combined bag by bag.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

namespace detail {
using bag_mode_t = enumtype::OneOf<enumtype::kSum, enumtype::kMean, enumtype::kMax>;
}

struct EmbeddingBagOptions {
  using mode_t = detail::bag_mode_t;
  EmbeddingBagOptions(std::int64_t num_embeddings, std::int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  ATHANOR_ARG(std::int64_t, num_embeddings);
  ATHANOR_ARG(std::int64_t, embedding_dim);
  ATHANOR_ARG(std::optional<double>, max_norm) = std::nullopt;
  ATHANOR_ARG(double, norm_type) = 2.;
  ATHANOR_ARG(bool, scale_grad_by_freq) = false;
  ATHANOR_ARG(mode_t, mode) = kMean;
  ATHANOR_ARG(bool, sparse) = false;
  ATHANOR_ARG(Tensor, _weight);
  ATHANOR_ARG(bool, include_last_offset) = false;
  ATHANOR_ARG(std::optional<std::int64_t>, padding_idx) = std::nullopt;
};

struct EmbeddingBagFromPretrainedOptions {
  using mode_t = detail::bag_mode_t;
  ATHANOR_ARG(bool, freeze) = true;
  ATHANOR_ARG(std::optional<double>, max_norm) = std::nullopt;
  ATHANOR_ARG(double, norm_type) = 2.;
  ATHANOR_ARG(bool, scale_grad_by_freq) = false;
  ATHANOR_ARG(mode_t, mode) = kMean;
  ATHANOR_ARG(bool, sparse) = false;
  ATHANOR_ARG(bool, include_last_offset) = false;
  ATHANOR_ARG(std::optional<std::int64_t>, padding_idx) = std::nullopt;
};

namespace functional {

struct EmbeddingBagFuncOptions {
  using mode_t = nn::detail::bag_mode_t;
  ATHANOR_ARG(Tensor, offsets);
  ATHANOR_ARG(std::optional<double>, max_norm) = std::nullopt;
  ATHANOR_ARG(double, norm_type) = 2.;
  ATHANOR_ARG(bool, scale_grad_by_freq) = false;
  ATHANOR_ARG(mode_t, mode) = kMean;
  ATHANOR_ARG(bool, sparse) = false;
  ATHANOR_ARG(Tensor, per_sample_weights);
  ATHANOR_ARG(bool, include_last_offset) = false;
  ATHANOR_ARG(std::optional<std::int64_t>, padding_idx) = std::nullopt;
};

/// The rows of weight that `input` names, combined: each row of a 2-d input is a bag; a 1-d one is cut by `offsets`.
Tensor embedding_bag(const Tensor& input, const Tensor& weight, const EmbeddingBagFuncOptions& options = {});

}  // namespace functional

class EmbeddingBagImpl : public Cloneable<EmbeddingBagImpl> {
 public:
  EmbeddingBagImpl(std::int64_t num_embeddings, std::int64_t embedding_dim)
      : EmbeddingBagImpl(EmbeddingBagOptions(num_embeddings, embedding_dim)) {}
  explicit EmbeddingBagImpl(EmbeddingBagOptions options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input, const Tensor& offsets = {}, const Tensor& per_sample_weights = {});
  Tensor forward_as_any(const Tensor& input) { return forward(input); }

  EmbeddingBagOptions options;
  Tensor weight;
};

ATHANOR_CLONEABLE_OF(EmbeddingBagImpl);
class EmbeddingBag : public ModuleHolder<EmbeddingBagImpl> {
 public:
  using ModuleHolder<EmbeddingBagImpl>::ModuleHolder;
  using Impl = EmbeddingBagImpl;
  /// A table of given rows; frozen (not trained) unless told otherwise.
  static EmbeddingBag from_pretrained(const Tensor& embeddings, const EmbeddingBagFromPretrainedOptions& options = {});
};

}  // namespace athanor::nn
