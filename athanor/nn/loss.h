#pragma once
/// Loss layers and their functional forms. `reduction`: kMean (default), kSum, or kNone for a loss per position.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

namespace detail {
using reduction_t = enumtype::OneOf<enumtype::kNone, enumtype::kMean, enumtype::kSum>;
using kl_reduction_t = enumtype::OneOf<enumtype::kNone, enumtype::kBatchMean, enumtype::kSum, enumtype::kMean>;
}  // namespace detail

/// Options that are only a reduction; `MSELossOptions(kSum)` or `MSELossOptions().reduction(kSum)`.
#define ATHANOR_REDUCTION_OPTIONS(Name)                 \
  struct Name##Options {                                \
    using reduction_t = detail::reduction_t;            \
    Name##Options() = default;                          \
    Name##Options(reduction_t r) : reduction_(r) {}     \
    Name##Options(enumtype::kNone r) : reduction_(r) {} \
    Name##Options(enumtype::kMean r) : reduction_(r) {} \
    Name##Options(enumtype::kSum r) : reduction_(r) {}  \
    ATHANOR_ARG(reduction_t, reduction) = kMean;

ATHANOR_REDUCTION_OPTIONS(L1Loss)
};
ATHANOR_REDUCTION_OPTIONS(MSELoss)
}
;
ATHANOR_REDUCTION_OPTIONS(SoftMarginLoss)
}
;
ATHANOR_REDUCTION_OPTIONS(SmoothL1Loss)
ATHANOR_ARG(std::optional<double>, beta) = std::nullopt;
}
;
ATHANOR_REDUCTION_OPTIONS(HuberLoss)
ATHANOR_ARG(double, delta) = 1.0;
}
;
#undef ATHANOR_REDUCTION_OPTIONS

struct KLDivLossOptions {
  using reduction_t = detail::kl_reduction_t;
  KLDivLossOptions() = default;
  KLDivLossOptions(enumtype::kNone r) : reduction_(r) {}
  KLDivLossOptions(enumtype::kBatchMean r) : reduction_(r) {}
  KLDivLossOptions(enumtype::kSum r) : reduction_(r) {}
  KLDivLossOptions(enumtype::kMean r) : reduction_(r) {}
  ATHANOR_ARG(reduction_t, reduction) = kMean;
  ATHANOR_ARG(bool, log_target) = false;
};
struct BCELossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(Tensor, weight);
  ATHANOR_ARG(reduction_t, reduction) = kMean;
};
struct BCEWithLogitsLossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(Tensor, weight);
  ATHANOR_ARG(reduction_t, reduction) = kMean;
  ATHANOR_ARG(Tensor, pos_weight);
};
struct NLLLossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(Tensor, weight);
  ATHANOR_ARG(std::int64_t, ignore_index) = -100;
  ATHANOR_ARG(reduction_t, reduction) = kMean;
};
struct CrossEntropyLossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(Tensor, weight);
  ATHANOR_ARG(std::int64_t, ignore_index) = -100;
  ATHANOR_ARG(reduction_t, reduction) = kMean;
  ATHANOR_ARG(double, label_smoothing) = 0.0;
};
struct HingeEmbeddingLossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(double, margin) = 1.0;
  ATHANOR_ARG(reduction_t, reduction) = kMean;
};
struct MarginRankingLossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(double, margin) = 0;
  ATHANOR_ARG(reduction_t, reduction) = kMean;
};
struct PoissonNLLLossOptions {
  using reduction_t = detail::reduction_t;
  ATHANOR_ARG(bool, log_input) = true;
  ATHANOR_ARG(bool, full) = false;
  ATHANOR_ARG(double, eps) = 1e-8;
  ATHANOR_ARG(reduction_t, reduction) = kMean;
};

namespace functional {

using L1LossFuncOptions = L1LossOptions;
using MSELossFuncOptions = MSELossOptions;
using SoftMarginLossFuncOptions = SoftMarginLossOptions;
using SmoothL1LossFuncOptions = SmoothL1LossOptions;
using HuberLossFuncOptions = HuberLossOptions;
using KLDivFuncOptions = KLDivLossOptions;
using BinaryCrossEntropyFuncOptions = BCELossOptions;
using BinaryCrossEntropyWithLogitsFuncOptions = BCEWithLogitsLossOptions;
using NLLLossFuncOptions = NLLLossOptions;
using CrossEntropyFuncOptions = CrossEntropyLossOptions;
using HingeEmbeddingLossFuncOptions = HingeEmbeddingLossOptions;
using MarginRankingLossFuncOptions = MarginRankingLossOptions;
using PoissonNLLLossFuncOptions = PoissonNLLLossOptions;

Tensor l1_loss(const Tensor& input, const Tensor& target, const L1LossFuncOptions& options = {});
Tensor mse_loss(const Tensor& input, const Tensor& target, const MSELossFuncOptions& options = {});
Tensor soft_margin_loss(const Tensor& input, const Tensor& target, const SoftMarginLossFuncOptions& options = {});
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const SmoothL1LossFuncOptions& options = {});
inline Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const SmoothL1LossFuncOptions& options,
                             double beta) {
  return smooth_l1_loss(input, target, SmoothL1LossFuncOptions(options).beta(beta));
}
Tensor huber_loss(const Tensor& input, const Tensor& target, const HuberLossFuncOptions& options = {});
Tensor kl_div(const Tensor& input, const Tensor& target, const KLDivFuncOptions& options = {});
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                            const BinaryCrossEntropyFuncOptions& options = {});
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const BinaryCrossEntropyWithLogitsFuncOptions& options = {});
Tensor nll_loss(const Tensor& input, const Tensor& target, const NLLLossFuncOptions& options = {});
Tensor cross_entropy(const Tensor& input, const Tensor& target, const CrossEntropyFuncOptions& options = {});
Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target,
                            const HingeEmbeddingLossFuncOptions& options = {});
Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                           const MarginRankingLossFuncOptions& options = {});
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNLLLossFuncOptions& options = {});

}  // namespace functional

/// Each layer's forward is functional::name(input, target, options).
#define ATHANOR_LOSS(Name)                                                                     \
  class Name##Impl : public Cloneable<Name##Impl> {                                            \
   public:                                                                                     \
    explicit Name##Impl(Name##Options options = {}) : options(std::move(options)) { reset(); } \
    void reset() override;                                                                     \
    void pretty_print(std::ostream& stream) const override;                                    \
    Tensor forward(const Tensor& input, const Tensor& target);                                 \
    Name##Options options;

ATHANOR_LOSS(L1Loss)
}
;
ATHANOR_LOSS(MSELoss)
}
;
ATHANOR_LOSS(SoftMarginLoss)
}
;
ATHANOR_LOSS(SmoothL1Loss)
}
;
ATHANOR_LOSS(HuberLoss)
}
;
ATHANOR_LOSS(KLDivLoss)
}
;
ATHANOR_LOSS(HingeEmbeddingLoss)
}
;
ATHANOR_LOSS(PoissonNLLLoss)
}
;
ATHANOR_LOSS(BCELoss)
Tensor weight;
}
;
ATHANOR_LOSS(BCEWithLogitsLoss)
Tensor weight, pos_weight;
}
;
ATHANOR_LOSS(NLLLoss)
Tensor weight;
}
;
ATHANOR_LOSS(CrossEntropyLoss)
Tensor weight;
}
;
#undef ATHANOR_LOSS

class MarginRankingLossImpl : public Cloneable<MarginRankingLossImpl> {
 public:
  explicit MarginRankingLossImpl(MarginRankingLossOptions options = {}) : options(std::move(options)) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input1, const Tensor& input2, const Tensor& target);
  MarginRankingLossOptions options;
};

ATHANOR_LIBRARY_MODULE(L1Loss);
ATHANOR_LIBRARY_MODULE(MSELoss);
ATHANOR_LIBRARY_MODULE(SoftMarginLoss);
ATHANOR_LIBRARY_MODULE(SmoothL1Loss);
ATHANOR_LIBRARY_MODULE(HuberLoss);
ATHANOR_LIBRARY_MODULE(KLDivLoss);
ATHANOR_LIBRARY_MODULE(HingeEmbeddingLoss);
ATHANOR_LIBRARY_MODULE(PoissonNLLLoss);
ATHANOR_LIBRARY_MODULE(BCELoss);
ATHANOR_LIBRARY_MODULE(BCEWithLogitsLoss);
ATHANOR_LIBRARY_MODULE(NLLLoss);
ATHANOR_LIBRARY_MODULE(CrossEntropyLoss);
ATHANOR_LIBRARY_MODULE(MarginRankingLoss);

}  // namespace athanor::nn
