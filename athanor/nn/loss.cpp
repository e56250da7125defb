#include "athanor/nn/loss.h"

namespace athanor::nn {

namespace functional {

namespace {

template <class Choice>
std::int64_t number_of(const Choice& reduction) {
  return reduction == kNone ? Reduction::None : reduction == kSum ? Reduction::Sum : Reduction::Mean;
}

}  // namespace

Tensor l1_loss(const Tensor& input, const Tensor& target, const L1LossFuncOptions& o) {
  return athanor::l1_loss(input, target, number_of(o.reduction()));
}
Tensor mse_loss(const Tensor& input, const Tensor& target, const MSELossFuncOptions& o) {
  return athanor::mse_loss(input, target, number_of(o.reduction()));
}
Tensor soft_margin_loss(const Tensor& input, const Tensor& target, const SoftMarginLossFuncOptions& o) {
  return athanor::soft_margin_loss(input, target, number_of(o.reduction()));
}
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const SmoothL1LossFuncOptions& o) {
  return athanor::smooth_l1_loss(input, target, number_of(o.reduction()), o.beta().value_or(1.0));
}
Tensor huber_loss(const Tensor& input, const Tensor& target, const HuberLossFuncOptions& o) {
  return athanor::huber_loss(input, target, number_of(o.reduction()), o.delta());
}
Tensor kl_div(const Tensor& input, const Tensor& target, const KLDivFuncOptions& o) {
  if (!(o.reduction() == kBatchMean)) return athanor::kl_div(input, target, number_of(o.reduction()), o.log_target());
  const Tensor sum = athanor::kl_div(input, target, Reduction::Sum, o.log_target());
  return input.dim() == 0 ? sum : sum / static_cast<double>(input.size(0));
}
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const BinaryCrossEntropyFuncOptions& o) {
  ATHANOR_CHECK_VALUE(input.sizes() == target.sizes(), "binary_cross_entropy: Using a target size (", target.sizes(),
                      ") that is different to the input size (", input.sizes(),
                      ") is deprecated. Please ensure they have the same size.");
  return athanor::binary_cross_entropy(input, target, o.weight(), number_of(o.reduction()));
}
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const BinaryCrossEntropyWithLogitsFuncOptions& o) {
  return athanor::binary_cross_entropy_with_logits(input, target, o.weight(), o.pos_weight(), number_of(o.reduction()));
}
Tensor nll_loss(const Tensor& input, const Tensor& target, const NLLLossFuncOptions& o) {
  return athanor::nll_loss(input, target, o.weight(), number_of(o.reduction()), o.ignore_index());
}
Tensor cross_entropy(const Tensor& input, const Tensor& target, const CrossEntropyFuncOptions& o) {
  return athanor::cross_entropy_loss(input, target, o.weight(), number_of(o.reduction()), o.ignore_index(),
                                     o.label_smoothing());
}
Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, const HingeEmbeddingLossFuncOptions& o) {
  return athanor::hinge_embedding_loss(input, target, o.margin(), number_of(o.reduction()));
}
Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                           const MarginRankingLossFuncOptions& o) {
  return athanor::margin_ranking_loss(input1, input2, target, o.margin(), number_of(o.reduction()));
}
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNLLLossFuncOptions& o) {
  return athanor::poisson_nll_loss(input, target, o.log_input(), o.full(), o.eps(), number_of(o.reduction()));
}

}  // namespace functional

#define ATHANOR_LOSS(Name, name, text)                                                 \
  Tensor Name##Impl::forward(const Tensor& input, const Tensor& target) {              \
    return in_module(*this, [&] { return functional::name(input, target, options); }); \
  }                                                                                    \
  void Name##Impl::pretty_print(std::ostream& stream) const { stream << "torch::nn::" #Name << text; }
#define ATHANOR_PLAIN_LOSS(Name, name, text) \
  ATHANOR_LOSS(Name, name, text)             \
  void Name##Impl::reset() {}

ATHANOR_PLAIN_LOSS(L1Loss, l1_loss, "()")
ATHANOR_PLAIN_LOSS(MSELoss, mse_loss, "()")
ATHANOR_PLAIN_LOSS(SoftMarginLoss, soft_margin_loss, "()")
ATHANOR_PLAIN_LOSS(SmoothL1Loss, smooth_l1_loss, "")
ATHANOR_PLAIN_LOSS(HuberLoss, huber_loss, "")
ATHANOR_PLAIN_LOSS(KLDivLoss, kl_div, "()")
ATHANOR_PLAIN_LOSS(HingeEmbeddingLoss, hinge_embedding_loss, "(margin=" << options.margin() << ")")
ATHANOR_PLAIN_LOSS(PoissonNLLLoss, poisson_nll_loss, "()")

// Weights are buffers and move with the module, so they are kept apart from the options.
void BCELossImpl::reset() { weight = register_buffer("weight", options.weight()); }
void BCELossImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::BCELoss()"; }
Tensor BCELossImpl::forward(const Tensor& input, const Tensor& target) {
  return in_module(
      *this, [&] { return functional::binary_cross_entropy(input, target, BCELossOptions(options).weight(weight)); });
}

void BCEWithLogitsLossImpl::reset() {
  weight = register_buffer("weight", options.weight());
  pos_weight = register_buffer("pos_weight", options.pos_weight());
}
void BCEWithLogitsLossImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::BCEWithLogitsLoss()"; }
Tensor BCEWithLogitsLossImpl::forward(const Tensor& input, const Tensor& target) {
  return in_module(*this, [&] {
    return functional::binary_cross_entropy_with_logits(
        input, target, BCEWithLogitsLossOptions(options).weight(weight).pos_weight(pos_weight));
  });
}

void NLLLossImpl::reset() { weight = register_buffer("weight", options.weight()); }
void NLLLossImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::NLLLoss()"; }
Tensor NLLLossImpl::forward(const Tensor& input, const Tensor& target) {
  return in_module(*this, [&] { return functional::nll_loss(input, target, NLLLossOptions(options).weight(weight)); });
}

void CrossEntropyLossImpl::reset() { weight = register_buffer("weight", options.weight()); }
void CrossEntropyLossImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::CrossEntropyLoss()"; }
Tensor CrossEntropyLossImpl::forward(const Tensor& input, const Tensor& target) {
  return in_module(
      *this, [&] { return functional::cross_entropy(input, target, CrossEntropyLossOptions(options).weight(weight)); });
}

void MarginRankingLossImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::MarginRankingLoss()"; }
Tensor MarginRankingLossImpl::forward(const Tensor& input1, const Tensor& input2, const Tensor& target) {
  return in_module(*this, [&] { return functional::margin_ranking_loss(input1, input2, target, options); });
}
#undef ATHANOR_LOSS
#undef ATHANOR_PLAIN_LOSS

}  // namespace athanor::nn
