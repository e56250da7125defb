#include "athanor/nn/adaptive_softmax.h"

#include <cmath>

#include "athanor/ops/factory.h"

namespace athanor::nn {

AdaptiveLogSoftmaxWithLossImpl::AdaptiveLogSoftmaxWithLossImpl(AdaptiveLogSoftmaxWithLossOptions options_)
    : options(std::move(options_)) {
  reset();
}

void AdaptiveLogSoftmaxWithLossImpl::reset() {
  cutoffs = options.cutoffs();
  bool fits = !cutoffs.empty();
  std::int64_t before = 0;
  for (const std::int64_t c : cutoffs) {
    fits = fits && c > before && c < options.n_classes();
    before = c;
  }
  ATHANOR_CHECK_VALUE(fits,
                      "AdaptiveLogSoftmaxWithLoss: cutoffs should be a rising sequence of unique, positive integers, "
                      "each between 1 and n_classes - 1 = ",
                      options.n_classes() - 1, ", got ", cutoffs);
  cutoffs.push_back(options.n_classes());
  shortlist_size = cutoffs[0];
  n_clusters = static_cast<std::int64_t>(cutoffs.size()) - 1;
  head_size = shortlist_size + n_clusters;
  head = register_module("head", Linear(LinearOptions(options.in_features(), head_size).bias(options.head_bias())));
  tail = register_module("tail", ModuleList());
  for (std::int64_t i = 0; i < n_clusters; ++i) {
    const auto hidden = static_cast<std::int64_t>(static_cast<double>(options.in_features()) /
                                                  std::pow(options.div_value(), static_cast<double>(i + 1)));
    const std::int64_t classes = cutoffs[static_cast<std::size_t>(i) + 1] - cutoffs[static_cast<std::size_t>(i)];
    tail->push_back(Sequential(Linear(LinearOptions(options.in_features(), hidden).bias(false)),
                               Linear(LinearOptions(hidden, classes).bias(false))));
  }
}

void AdaptiveLogSoftmaxWithLossImpl::reset_parameters() {
  for (const auto& module : modules(false))
    if (auto* linear = module->as<Linear>()) linear->reset_parameters();
}

void AdaptiveLogSoftmaxWithLossImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::AdaptiveLogSoftmaxWithLoss";
}

Tensor AdaptiveLogSoftmaxWithLossImpl::cluster(std::size_t i, const Tensor& input) {
  return tail[i]->as<Sequential>()->forward(input).log_softmax(1);
}

ASMoutput AdaptiveLogSoftmaxWithLossImpl::forward(const Tensor& input, const Tensor& target) {
  return in_module(*this, [&] {
    const bool one = target.dim() == 0;
    ATHANOR_CHECK(target.dim() <= 1 && input.dim() == target.dim() + 1 && (one || input.size(0) == target.size(0)),
                  "AdaptiveLogSoftmaxWithLoss: expected input (N, ", options.in_features(), ") with target (N), or (",
                  options.in_features(), ") with a number; got shapes ", input.sizes(), " and ", target.sizes());
    const Tensor x = one ? input.unsqueeze(0) : input, y = one ? target.unsqueeze(0) : target;
    Tensor output = zeros({y.size(0)}, x.options());
    const Tensor in_head = y.clone();
    std::int64_t found = (y.ge(0).logical_and(y.lt(shortlist_size))).sum().item<std::int64_t>();
    for (std::size_t i = 0; i + 1 < cutoffs.size(); ++i) {
      const Tensor rows = y.ge(cutoffs[i]).logical_and(y.lt(cutoffs[i + 1])).nonzero().squeeze(1);
      if (rows.numel() == 0) continue;
      found += rows.numel();
      in_head.index_fill_(0, rows, shortlist_size + static_cast<std::int64_t>(i));
      const Tensor own = (y.index_select(0, rows) - cutoffs[i]).unsqueeze(1);
      const Tensor local = cluster(i, x.index_select(0, rows)).gather(1, own).squeeze(1);
      output = output.index_copy(0, rows, local.to(output.dtype()));
    }
    ATHANOR_CHECK(found == y.numel(), "Target values should be in [0, ", options.n_classes() - 1,
                  "], but values in range [", y.min().item<std::int64_t>(), ", ", y.max().item<std::int64_t>(),
                  "] were found. ");
    const Tensor head_log_prob = head(x).log_softmax(1);
    output = output + head_log_prob.gather(1, in_head.unsqueeze(1)).squeeze(1);
    return ASMoutput{one ? output.squeeze(0) : output, output.neg().mean()};
  });
}

Tensor AdaptiveLogSoftmaxWithLossImpl::full_log_prob(const Tensor& input, const Tensor& head_output) {
  const Tensor head_log_prob = head_output.log_softmax(1);
  std::vector<Tensor> parts = {head_log_prob.slice(1, 0, shortlist_size)};
  for (std::size_t i = 0; i + 1 < cutoffs.size(); ++i) {
    const std::int64_t place = shortlist_size + static_cast<std::int64_t>(i);
    parts.push_back(cluster(i, input) + head_log_prob.slice(1, place, place + 1));
  }
  return cat(parts, 1);
}

Tensor AdaptiveLogSoftmaxWithLossImpl::log_prob(const Tensor& input) {
  return in_module(*this, [&] { return full_log_prob(input, head(input)); });
}

Tensor AdaptiveLogSoftmaxWithLossImpl::predict(const Tensor& input) {
  return in_module(*this, [&] {
    const Tensor head_output = head(input);
    Tensor output = head_output.argmax(1);
    const Tensor rows = output.ge(shortlist_size).nonzero().squeeze(1);
    if (rows.numel() == 0) return output;
    const Tensor likeliest = full_log_prob(input.index_select(0, rows), head_output.index_select(0, rows)).argmax(1);
    return output.index_copy(0, rows, likeliest);
  });
}

}  // namespace athanor::nn
