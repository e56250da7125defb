#pragma once
/// Embedding: a table of vectors looked up by index.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

/// padding_idx: a row that stays as it is (zero at first). max_norm: rows looked up are scaled down to it, in place.
struct EmbeddingOptions {
  EmbeddingOptions(std::int64_t num_embeddings, std::int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  ATHANOR_ARG(std::int64_t, num_embeddings);
  ATHANOR_ARG(std::int64_t, embedding_dim);
  ATHANOR_ARG(std::optional<std::int64_t>, padding_idx) = std::nullopt;
  ATHANOR_ARG(std::optional<double>, max_norm) = std::nullopt;
  ATHANOR_ARG(double, norm_type) = 2.;
  ATHANOR_ARG(bool, scale_grad_by_freq) = false;
  ATHANOR_ARG(bool, sparse) = false;
  ATHANOR_ARG(Tensor, _weight);
};

struct EmbeddingFromPretrainedOptions {
  ATHANOR_ARG(bool, freeze) = true;
  ATHANOR_ARG(std::optional<std::int64_t>, padding_idx) = std::nullopt;
  ATHANOR_ARG(std::optional<double>, max_norm) = std::nullopt;
  ATHANOR_ARG(double, norm_type) = 2.;
  ATHANOR_ARG(bool, scale_grad_by_freq) = false;
  ATHANOR_ARG(bool, sparse) = false;
};

namespace functional {

struct EmbeddingFuncOptions {
  ATHANOR_ARG(std::optional<std::int64_t>, padding_idx) = std::nullopt;
  ATHANOR_ARG(std::optional<double>, max_norm) = std::nullopt;
  ATHANOR_ARG(double, norm_type) = 2.;
  ATHANOR_ARG(bool, scale_grad_by_freq) = false;
  ATHANOR_ARG(bool, sparse) = false;
};

/// The rows of weight (n, d) that `input` names: shape of input, then d.
Tensor embedding(const Tensor& input, const Tensor& weight, const EmbeddingFuncOptions& options = {});
/// Ones where the last coordinate is the class; num_classes -1: one more than the largest.
Tensor one_hot(const Tensor& tensor, std::int64_t num_classes = -1);

}  // namespace functional

class EmbeddingImpl : public Cloneable<EmbeddingImpl> {
 public:
  EmbeddingImpl(std::int64_t num_embeddings, std::int64_t embedding_dim)
      : EmbeddingImpl(EmbeddingOptions(num_embeddings, embedding_dim)) {}
  explicit EmbeddingImpl(EmbeddingOptions options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& indices);

  EmbeddingOptions options;
  Tensor weight;
};

ATHANOR_CLONEABLE_OF(EmbeddingImpl);
class Embedding : public ModuleHolder<EmbeddingImpl> {
 public:
  using ModuleHolder<EmbeddingImpl>::ModuleHolder;
  using Impl = EmbeddingImpl;
  /// A table of given rows; frozen (not trained) unless told otherwise.
  static Embedding from_pretrained(const Tensor& embeddings, const EmbeddingFromPretrainedOptions& options = {});
};

}  // namespace athanor::nn
