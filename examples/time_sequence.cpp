// Learns sine waves of random phase with two LSTM cells and L-BFGS, then continues them from its own predictions.
// `time_sequence --help` lists the flags.
#include <cstdio>
#include <optional>
#include <string>

#include "athanor/athanor.h"
#include "athanor/io/file.h"
#include "cli/command_line.h"

namespace {

using namespace athanor;

/// Predicts each next value of a series; `future` values more from what it predicted itself.
struct SequenceImpl : nn::Module {
  explicit SequenceImpl(std::int64_t hidden)
      : lstm1(register_module("lstm1", nn::LSTMCell(1, hidden))),
        lstm2(register_module("lstm2", nn::LSTMCell(hidden, hidden))),
        linear(register_module("linear", nn::Linear(hidden, 1))) {}

  Tensor forward(const Tensor& input, std::int64_t future = 0) {
    std::optional<nn::LSTMCellImpl::States> first, second;
    std::vector<Tensor> outputs;
    for (std::int64_t t = 0; t < input.size(1) + future; ++t) {
      const Tensor x = t < input.size(1) ? input.slice(1, t, t + 1) : outputs.back();
      first = lstm1(x, first);
      second = lstm2(std::get<0>(*first), second);
      outputs.push_back(linear(std::get<0>(*second)));
    }
    return cat(outputs, 1);
  }

  nn::LSTMCell lstm1, lstm2;
  nn::Linear linear;
};
ATHANOR_MODULE(Sequence);

/// Rows of `length` + 1 points of a sine of period 40 π, each from another place of it.
Tensor waves(std::int64_t count, std::int64_t length) {
  const Tensor phase = randint(-80, 81, {count, 1}).to(kDouble);
  return ((arange(length + 1, TensorOptions(kDouble)) + phase) / 20).sin();
}

void write_csv(const std::string& path, const Tensor& prediction) {
  std::string text;
  for (std::int64_t t = 0; t < prediction.size(1); ++t) {
    text += std::to_string(t);
    for (std::int64_t s = 0; s < prediction.size(0); ++s) text += "," + std::to_string(prediction[s][t].item<double>());
    text += "\n";
  }
  io::write_file(path, text);
}

int run(int argc, char** argv) {
  std::int64_t steps = 15, series = 97, length = 999, future = 1000, hidden = 51;
  std::uint64_t seed = 0;
  std::string csv;
  cli::CommandLine app{"Learns sine waves with two LSTM cells and L-BFGS, and continues them"};
  app.add("--steps", steps, "steps of the optimizer, of up to 20 iterations each").positive();
  app.add("--series", series, "waves to learn from").positive();
  app.add("--length", length, "points of each").positive();
  app.add("--future", future, "points to continue").positive();
  app.add("--hidden", hidden, "units of a cell").positive();
  app.add("--seed", seed, "random seed");
  app.add("--csv", csv, "write the last predictions of three test waves here");
  if (const auto status = app.parse(argc, argv)) return *status;
  manual_seed(seed);

  const Tensor train = waves(series, length), test = waves(3, length);
  const auto input = [&](const Tensor& w) { return w.slice(1, 0, length); };
  const auto target = [&](const Tensor& w) { return w.slice(1, 1, length + 1); };
  Sequence net(hidden);
  net->to(kDouble);
  optim::LBFGS optimizer(net->parameters(), optim::LBFGSOptions(0.8));
  for (std::int64_t step = 0; step < steps; ++step) {
    const Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      Tensor l = mse_loss(net->forward(input(train)), target(train));
      l.backward();
      return l;
    });
    const NoGradGuard off;
    const Tensor prediction = net->forward(input(test), future);
    const Tensor test_loss = mse_loss(prediction.slice(1, 0, length), target(test));
    std::printf("step %lld  loss %.6f  test loss %.6f\n", static_cast<long long>(step), loss.item<double>(),
                test_loss.item<double>());
    std::fflush(stdout);
    if (!csv.empty() && step + 1 == steps) write_csv(csv, prediction);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "time_sequence: %s\n", e.what());
    return 1;
  }
}
