#pragma once
/// AdaptiveLogSoftmaxWithLoss: the output layer of models with very many classes of very different frequency.

#include "athanor/nn/container.h"
#include "athanor/nn/linear.h"

namespace athanor::nn {

/// `cutoffs`: first class of each cluster but the first, rising, within 1 … n_classes - 1.
struct AdaptiveLogSoftmaxWithLossOptions {
  AdaptiveLogSoftmaxWithLossOptions(std::int64_t in_features, std::int64_t n_classes, std::vector<std::int64_t> cutoffs)
      : in_features_(in_features), n_classes_(n_classes), cutoffs_(std::move(cutoffs)) {}
  ATHANOR_ARG(std::int64_t, in_features);
  ATHANOR_ARG(std::int64_t, n_classes);
  ATHANOR_ARG(std::vector<std::int64_t>, cutoffs);
  ATHANOR_ARG(double, div_value) = 4.0;
  ATHANOR_ARG(bool, head_bias) = false;
};

/// What AdaptiveLogSoftmaxWithLoss gives back.
struct ASMoutput {
  Tensor output;  ///< (N): the log-probability of each target
  Tensor loss;    ///< the mean of the negative log-probabilities
};

/// Classes are sorted by falling frequency. The head tells the frequent ones, up to the first cutoff, and the clusters
/// of the others apart; a cluster's own layer, of div_value times fewer features than the cluster before it, is
/// computed only for examples that need it. Grave and others, "Efficient softmax approximation for GPUs", 2017.
/// Parameters: head, tail.I.0 and .1. Throws ValueError for cutoffs that do not fit.
class AdaptiveLogSoftmaxWithLossImpl : public Cloneable<AdaptiveLogSoftmaxWithLossImpl> {
 public:
  AdaptiveLogSoftmaxWithLossImpl(std::int64_t in_features, std::int64_t n_classes, std::vector<std::int64_t> cutoffs)
      : AdaptiveLogSoftmaxWithLossImpl(AdaptiveLogSoftmaxWithLossOptions(in_features, n_classes, std::move(cutoffs))) {}
  explicit AdaptiveLogSoftmaxWithLossImpl(AdaptiveLogSoftmaxWithLossOptions options_);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  /// input (N, in_features) with target (N), or (in_features) with a number. Throws Error for other shapes and for
  /// targets outside of [0, n_classes).
  ASMoutput forward(const Tensor& input, const Tensor& target);
  /// (N, n_classes): the log-probability of every class for each row of input.
  Tensor log_prob(const Tensor& input);
  /// (N): the likeliest class of each row, without the clusters that cannot have it.
  Tensor predict(const Tensor& input);

  AdaptiveLogSoftmaxWithLossOptions options;
  std::vector<std::int64_t> cutoffs;  ///< with n_classes at the end
  std::int64_t shortlist_size = 0, n_clusters = 0, head_size = 0;
  Linear head = nullptr;
  ModuleList tail;

 private:
  Tensor cluster(std::size_t i, const Tensor& input);
  Tensor full_log_prob(const Tensor& input, const Tensor& head_output);
};
ATHANOR_LIBRARY_MODULE(AdaptiveLogSoftmaxWithLoss);

}  // namespace athanor::nn
