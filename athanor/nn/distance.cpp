#include "athanor/nn/distance.h"

namespace athanor::nn {

namespace functional {

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, const CosineSimilarityFuncOptions& o) {
  return athanor::cosine_similarity(x1, x2, o.dim(), o.eps());
}
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, const PairwiseDistanceFuncOptions& o) {
  return athanor::pairwise_distance(x1, x2, o.p(), o.eps(), o.keepdim());
}
Tensor pdist(const Tensor& input, double p) { return athanor::pdist(input, p); }

}  // namespace functional

void CosineSimilarityImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::CosineSimilarity(dim=" << options.dim() << ", eps=" << options.eps() << ")";
}
Tensor CosineSimilarityImpl::forward(const Tensor& input1, const Tensor& input2) {
  return in_module(*this, [&] { return functional::cosine_similarity(input1, input2, options); });
}

void PairwiseDistanceImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::PairwiseDistance(p=" << options.p() << ", eps=" << options.eps()
         << ", keepdim=" << (options.keepdim() ? "true" : "false") << ")";
}
Tensor PairwiseDistanceImpl::forward(const Tensor& input1, const Tensor& input2) {
  return in_module(*this, [&] { return functional::pairwise_distance(input1, input2, options); });
}

}  // namespace athanor::nn
