#include "athanor/nn/loss_more.h"

namespace athanor::nn {

namespace functional {

namespace {

std::int64_t number_of(const nn::detail::reduction_t& reduction) {
  return reduction == kNone ? Reduction::None : reduction == kSum ? Reduction::Sum : Reduction::Mean;
}

}  // namespace

Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                             const CosineEmbeddingLossFuncOptions& o) {
  return athanor::cosine_embedding_loss(input1, input2, target, o.margin(), number_of(o.reduction()));
}
Tensor multi_margin_loss(const Tensor& input, const Tensor& target, const MultiMarginLossFuncOptions& o) {
  return athanor::multi_margin_loss(input, target, o.p(), o.margin(), o.weight(), number_of(o.reduction()));
}
Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target, const MultilabelMarginLossFuncOptions& o) {
  return athanor::multilabel_margin_loss(input, target, number_of(o.reduction()));
}
Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                   const MultilabelSoftMarginLossFuncOptions& o) {
  return athanor::multilabel_soft_margin_loss(input, target, o.weight(), number_of(o.reduction()));
}
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossFuncOptions& o) {
  return athanor::triplet_margin_loss(anchor, positive, negative, o.margin(), o.p(), o.eps(), o.swap(),
                                      number_of(o.reduction()));
}

Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const TripletMarginWithDistanceLossFuncOptions& o) {
  ATHANOR_CHECK(anchor.dim() == positive.dim() && positive.dim() == negative.dim(),
                "triplet_margin_with_distance_loss: The anchor, positive, and negative tensors are expected to have "
                "the same number of dimensions, but got: ",
                "anchor ", anchor.dim(), "D, positive ", positive.dim(), "D, and negative ", negative.dim(),
                "D inputs");
  auto distance = [&](const Tensor& a, const Tensor& b) {
    return o.distance_function() ? (*o.distance_function())(a, b) : athanor::pairwise_distance(a, b);
  };
  const Tensor near = distance(anchor, positive);
  Tensor far = distance(anchor, negative);
  if (o.swap()) far = athanor::minimum(far, distance(positive, negative));
  const Tensor loss = (near - far + o.margin()).clamp_min(0);
  const std::int64_t reduction = number_of(o.reduction());
  return reduction == Reduction::None ? loss : reduction == Reduction::Sum ? loss.sum() : loss.mean();
}

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CTCLossFuncOptions& o) {
  return athanor::ctc_loss(log_probs, targets, input_lengths, target_lengths, o.blank(), number_of(o.reduction()),
                           o.zero_infinity());
}
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                         const GaussianNLLLossFuncOptions& o) {
  return athanor::gaussian_nll_loss(input, target, var, o.full(), o.eps(), number_of(o.reduction()));
}

}  // namespace functional

#define ATHANOR_PLAIN_LOSS(Name) \
  void Name##Impl::reset() {}    \
  void Name##Impl::pretty_print(std::ostream& stream) const { stream << "torch::nn::" #Name "()"; }

void CosineEmbeddingLossImpl::reset() {}
void CosineEmbeddingLossImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::CosineEmbeddingLoss(margin=" << options.margin() << ")";
}
Tensor CosineEmbeddingLossImpl::forward(const Tensor& input1, const Tensor& input2, const Tensor& target) {
  return in_module(*this, [&] { return functional::cosine_embedding_loss(input1, input2, target, options); });
}

void MultiMarginLossImpl::reset() {
  ATHANOR_CHECK(options.p() == 1 || options.p() == 2, "MultiMarginLoss: only p == 1 and p == 2 supported, got ",
                options.p());
  ATHANOR_CHECK(!options.weight().defined() || options.weight().dim() == 1,
                "MultiMarginLoss: weight must be one-dimensional, got shape ",
                options.weight().defined() ? options.weight().sizes() : IntArrayRef{});
  weight = register_buffer("weight", options.weight());
}
void MultiMarginLossImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::MultiMarginLoss(p=" << options.p() << ", margin=" << options.margin()
         << ", weight=" << options.weight() << ", reduction=" << options.reduction().name() << ")";
}
Tensor MultiMarginLossImpl::forward(const Tensor& input, const Tensor& target) {
  return in_module(*this, [&] {
    return functional::multi_margin_loss(input, target, MultiMarginLossOptions(options).weight(weight));
  });
}

ATHANOR_PLAIN_LOSS(MultiLabelMarginLoss)
Tensor MultiLabelMarginLossImpl::forward(const Tensor& input, const Tensor& target) {
  return in_module(*this, [&] { return functional::multilabel_margin_loss(input, target, options); });
}

void MultiLabelSoftMarginLossImpl::reset() { weight = register_buffer("weight", options.weight()); }
void MultiLabelSoftMarginLossImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::MultiLabelSoftMarginLoss()";
}
Tensor MultiLabelSoftMarginLossImpl::forward(const Tensor& input, const Tensor& target) {
  return in_module(*this, [&] {
    return functional::multilabel_soft_margin_loss(input, target,
                                                   MultiLabelSoftMarginLossOptions(options).weight(weight));
  });
}

void TripletMarginLossImpl::reset() {}
void TripletMarginLossImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::TripletMarginLoss(margin=" << options.margin() << ", p=" << options.p()
         << ", eps=" << options.eps() << ", swap=" << (options.swap() ? "true" : "false") << ")";
}
Tensor TripletMarginLossImpl::forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
  return in_module(*this, [&] { return functional::triplet_margin_loss(anchor, positive, negative, options); });
}

void TripletMarginWithDistanceLossImpl::reset() {}
void TripletMarginWithDistanceLossImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::TripletMarginWithDistanceLoss(margin=" << options.margin()
         << ", swap=" << (options.swap() ? "true" : "false") << ")";
}
Tensor TripletMarginWithDistanceLossImpl::forward(const Tensor& anchor, const Tensor& positive,
                                                  const Tensor& negative) {
  return in_module(*this,
                   [&] { return functional::triplet_margin_with_distance_loss(anchor, positive, negative, options); });
}

ATHANOR_PLAIN_LOSS(CTCLoss)
Tensor CTCLossImpl::forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                            const Tensor& target_lengths) {
  return in_module(*this,
                   [&] { return functional::ctc_loss(log_probs, targets, input_lengths, target_lengths, options); });
}

ATHANOR_PLAIN_LOSS(GaussianNLLLoss)
Tensor GaussianNLLLossImpl::forward(const Tensor& input, const Tensor& target, const Tensor& var) {
  return in_module(*this, [&] { return functional::gaussian_nll_loss(input, target, var, options); });
}
#undef ATHANOR_PLAIN_LOSS

}  // namespace athanor::nn
