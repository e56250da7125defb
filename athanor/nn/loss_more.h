#pragma once
/// Losses of margins, triplets, several labels and alignments: layers and functional forms. `reduction` as in loss.h.

#include <functional>

#include "athanor/nn/loss.h"

namespace athanor::nn {

struct CosineEmbeddingLossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(double, margin) = 0.0;
  ATHANOR_ARG(reduction_t, reduction) = kMean;
};
struct MultiMarginLossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(std::int64_t, p) = 1;
  ATHANOR_ARG(double, margin) = 1.0;
  ATHANOR_ARG(Tensor, weight);
  ATHANOR_ARG(reduction_t, reduction) = kMean;
};
struct MultiLabelMarginLossOptions {
  using reduction_t = detail::reduction_t;
  MultiLabelMarginLossOptions() = default;
  MultiLabelMarginLossOptions(enumtype::kNone r) : reduction_(r) {}
  MultiLabelMarginLossOptions(enumtype::kMean r) : reduction_(r) {}
  MultiLabelMarginLossOptions(enumtype::kSum r) : reduction_(r) {}
  ATHANOR_ARG(reduction_t, reduction) = kMean;
};
struct MultiLabelSoftMarginLossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(Tensor, weight);
  ATHANOR_ARG(reduction_t, reduction) = kMean;
};
struct TripletMarginLossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(double, margin) = 1.0;
  ATHANOR_ARG(double, p) = 2.0;
  ATHANOR_ARG(double, eps) = 1e-6;
  ATHANOR_ARG(bool, swap) = false;
  ATHANOR_ARG(reduction_t, reduction) = kMean;
};
/// distance_function: pairwise_distance unless given.
struct TripletMarginWithDistanceLossOptions {
  using reduction_t = detail::reduction_t;
  using distance_function_t = std::function<Tensor(const Tensor&, const Tensor&)>;
  ATHANOR_ARG(std::optional<distance_function_t>, distance_function) = std::nullopt;
  ATHANOR_ARG(double, margin) = 1.0;
  ATHANOR_ARG(bool, swap) = false;
  ATHANOR_ARG(reduction_t, reduction) = kMean;
};
struct CTCLossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(std::int64_t, blank) = 0;
  ATHANOR_ARG(reduction_t, reduction) = kMean;
  ATHANOR_ARG(bool, zero_infinity) = false;
};
struct GaussianNLLLossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(bool, full) = false;
  ATHANOR_ARG(double, eps) = 1e-6;
  ATHANOR_ARG(reduction_t, reduction) = kMean;
};

namespace functional {

using CosineEmbeddingLossFuncOptions = CosineEmbeddingLossOptions;
using MultiMarginLossFuncOptions = MultiMarginLossOptions;
using MultilabelMarginLossFuncOptions = MultiLabelMarginLossOptions;
using MultilabelSoftMarginLossFuncOptions = MultiLabelSoftMarginLossOptions;
using TripletMarginLossFuncOptions = TripletMarginLossOptions;
using TripletMarginWithDistanceLossFuncOptions = TripletMarginWithDistanceLossOptions;
using CTCLossFuncOptions = CTCLossOptions;
using GaussianNLLLossFuncOptions = GaussianNLLLossOptions;

Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                             const CosineEmbeddingLossFuncOptions& options = {});
Tensor multi_margin_loss(const Tensor& input, const Tensor& target, const MultiMarginLossFuncOptions& options = {});
Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target,
                              const MultilabelMarginLossFuncOptions& options = {});
Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                   const MultilabelSoftMarginLossFuncOptions& options = {});
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossFuncOptions& options = {});
Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const TripletMarginWithDistanceLossFuncOptions& options = {});
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CTCLossFuncOptions& options = {});
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                         const GaussianNLLLossFuncOptions& options = {});

}  // namespace functional

#define ATHANOR_LOSS(Name, members, ...)                                                       \
  class Name##Impl : public Cloneable<Name##Impl> {                                            \
   public:                                                                                     \
    explicit Name##Impl(Name##Options options = {}) : options(std::move(options)) { reset(); } \
    void reset() override;                                                                     \
    void pretty_print(std::ostream& stream) const override;                                    \
    Tensor forward(__VA_ARGS__);                                                               \
    Name##Options options;                                                                     \
    members                                                                                    \
  };                                                                                           \
  ATHANOR_LIBRARY_MODULE(Name)

ATHANOR_LOSS(CosineEmbeddingLoss, , const Tensor& input1, const Tensor& input2, const Tensor& target);
ATHANOR_LOSS(MultiMarginLoss, Tensor weight;, const Tensor& input, const Tensor& target);
ATHANOR_LOSS(MultiLabelMarginLoss, , const Tensor& input, const Tensor& target);
ATHANOR_LOSS(MultiLabelSoftMarginLoss, Tensor weight;, const Tensor& input, const Tensor& target);
ATHANOR_LOSS(TripletMarginLoss, , const Tensor& anchor, const Tensor& positive, const Tensor& negative);
ATHANOR_LOSS(TripletMarginWithDistanceLoss, , const Tensor& anchor, const Tensor& positive, const Tensor& negative);
ATHANOR_LOSS(CTCLoss, , const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
             const Tensor& target_lengths);
ATHANOR_LOSS(GaussianNLLLoss, , const Tensor& input, const Tensor& target, const Tensor& var);
#undef ATHANOR_LOSS

}  // namespace athanor::nn
