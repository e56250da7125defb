// Where to cut a network for a pipeline.
#include <algorithm>
#include <chrono>
#include <limits>

#include "athanor/autograd/autograd.h"
#include "athanor/parallel/pipeline.h"
#include "athanor/tape/grad_mode.h"
#include "athanor/tensor/stream.h"

namespace athanor::nn::parallel {

std::vector<std::int64_t> balance_by_cost(const std::vector<double>& costs, std::int64_t stages) {
  const std::size_t n = costs.size(), parts = static_cast<std::size_t>(stages);
  ATHANOR_CHECK_VALUE(stages > 0 && n >= parts, "balance: ", n, " layers cannot be cut into ", stages, " stages");
  std::vector<double> before(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) before[i + 1] = before[i] + costs[i];
  // best[k][i]: the least greatest sum of the first i layers in k + 1 parts, the last of which begins at cut[k][i].
  std::vector<std::vector<double>> best(parts, std::vector<double>(n + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<std::size_t>> cut(parts, std::vector<std::size_t>(n + 1, 0));
  for (std::size_t i = 1; i <= n; ++i) best[0][i] = before[i];
  for (std::size_t k = 1; k < parts; ++k)
    for (std::size_t i = k + 1; i <= n; ++i)
      for (std::size_t j = k; j < i; ++j) {
        const double worst = std::max(best[k - 1][j], before[i] - before[j]);
        if (worst >= best[k][i]) continue;
        best[k][i] = worst;
        cut[k][i] = j;
      }
  std::vector<std::int64_t> result(parts);
  std::size_t end = n;
  for (std::size_t k = parts; k-- > 0;) {
    const std::size_t begin = k == 0 ? 0 : cut[k][end];
    result[k] = static_cast<std::int64_t>(end - begin);
    end = begin;
  }
  return result;
}

namespace {

// Calls `visit(layer, input)` for each layer with the output of the one before; buffers are put back.
void through(const Sequential& layers, const Tensor& sample,
             const std::function<Tensor(AnyModule&, const Tensor&)>& visit) {
  std::vector<Tensor> buffers = layers->buffers(), kept;
  const NoGradGuard off;
  for (const Tensor& b : buffers) kept.push_back(b.clone());
  Tensor x = sample.detach().clone();
  for (AnyModule layer : *layers) x = visit(layer, x).detach();  // copies share the module, which stays where it is
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(kept[i]);
}

}  // namespace

std::vector<std::int64_t> balance_by_time(const Sequential& layers, const Tensor& sample, std::int64_t stages,
                                          int repeats) {
  using Clock = std::chrono::steady_clock;
  ATHANOR_CHECK_VALUE(repeats > 0, "balance_by_time: repeats must be positive, got ", repeats);
  std::vector<double> costs;
  through(layers, sample, [&](AnyModule& layer, const Tensor& x) {
    Tensor y;
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i <= repeats; ++i) {  // the first is a rehearsal
      const AutoGradMode on(true);
      std::vector<Tensor> wanted = layer.ptr()->parameters();
      std::erase_if(wanted, [](const Tensor& p) { return !p.requires_grad(); });
      if (x.is_floating_point()) wanted.push_back(x.detach().requires_grad_());
      const Tensor in = (x.is_floating_point() ? wanted.back() : x).clone();  // for layers that work in place
      synchronize(x.device());
      const auto begin = Clock::now();
      y = layer.forward(in);
      if (y.requires_grad()) autograd::grad({y}, wanted, {ones_like(y)}, std::nullopt, false, true);
      synchronize(y.device());
      if (i > 0) least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    costs.push_back(least);
    return y;
  });
  return balance_by_cost(costs, stages);
}

std::vector<std::int64_t> balance_by_size(const Sequential& layers, const Tensor& sample, std::int64_t stages) {
  const auto bytes = [](const Tensor& t) {
    return static_cast<double>(t.numel()) * static_cast<double>(t.element_size());
  };
  std::vector<double> costs;
  through(layers, sample, [&](AnyModule& layer, const Tensor& x) {
    Tensor y = layer.forward(x);
    double sum = bytes(y);
    for (const Tensor& p : layer.ptr()->parameters()) sum += bytes(p);
    costs.push_back(sum);
    return y;
  });
  return balance_by_cost(costs, stages);
}

}  // namespace athanor::nn::parallel
