// Fits a polynomial of degree 4 with one linear layer, by gradients of batches made on the fly. `regression --help`
// lists the flags.
#include <cstdio>
#include <string>

#include "athanor/athanor.h"
#include "cli/command_line.h"

namespace {

using namespace athanor;

constexpr std::int64_t kDegree = 4;

/// x, x², x³, x⁴ as columns.
Tensor features(const Tensor& x) {
  std::vector<Tensor> powers;
  for (std::int64_t i = 1; i <= kDegree; ++i) powers.push_back(x.pow(i));
  return stack(powers, 1);
}

std::string description(const Tensor& weights, const Tensor& bias) {
  std::string text = "y =";
  char term[48];
  for (std::int64_t i = kDegree; i >= 1; --i) {
    std::snprintf(term, sizeof term, " %+.2f x^%lld", weights[i - 1].item<double>(), static_cast<long long>(i));
    text += term;
  }
  std::snprintf(term, sizeof term, " %+.2f", bias[0].item<double>());
  return text + term;
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t batch_size = 32, limit = 100000;
  std::uint64_t seed = 1;
  double lr = 0.1, tolerance = 1e-3;
  cli::CommandLine app{"Fits a polynomial of degree 4 with one linear layer"};
  app.add("--batch-size", batch_size, "points per step").positive();
  app.add("--lr", lr, "learning rate").positive();
  app.add("--tolerance", tolerance, "loss at which to stop").positive();
  app.add("--limit", limit, "most steps").positive();
  app.add("--seed", seed, "random seed");
  if (const auto status = app.parse(argc, argv)) return *status;
  manual_seed(seed);

  const Tensor target_weights = randn({kDegree, 1}) * 5, target_bias = randn({1}) * 5;
  nn::Linear fc(kDegree, 1);
  optim::SGD optimizer(fc->parameters(), lr);
  double loss_value = 0;
  std::int64_t step = 0;
  do {
    // Within [-1, 1] the powers stay comparable, so one learning rate suits all of them.
    const Tensor x = features(rand({batch_size}) * 2 - 1);
    const Tensor y = x.mm(target_weights) + target_bias;
    optimizer.zero_grad();
    const Tensor loss = smooth_l1_loss(fc(x), y);
    loss.backward();
    optimizer.step();
    loss_value = loss.item<double>();
  } while (++step < limit && loss_value >= tolerance);
  std::printf("Loss: %.6f after %lld batches\n", loss_value, static_cast<long long>(step));
  std::printf("==> Learned function:\t%s\n", description(fc->weight.detach().view({-1}), fc->bias.detach()).c_str());
  std::printf("==> Actual function:\t%s\n", description(target_weights.view({-1}), target_bias).c_str());
  return loss_value < tolerance ? 0 : 1;
}
