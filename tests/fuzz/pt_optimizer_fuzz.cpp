// What Python's optimizer.state_dict() left in a file, turned into an optimizer's state: whatever is in the file,
// loading succeeds or throws an Error, and what was loaded can be trained on and saved again.
#include <gtest/gtest.h>

#include <functional>

#include "athanor/autograd/autograd.h"
#include "athanor/io/pt.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/adaptive.h"
#include "athanor/optim/algorithms.h"
#include "athanor/optim/lbfgs.h"
#include "fuzz.h"

namespace athanor::fuzz {

namespace {

using namespace std::string_literals;
using Params = std::vector<Tensor>;
using Made = std::unique_ptr<optim::Optimizer>;

template <class Algorithm, class Options>
std::function<Made(Params)> making(Options options) {
  return [options](Params p) { return std::make_unique<Algorithm>(std::move(p), options); };
}

const std::vector<std::function<Made(Params)>> kAlgorithms = {
    making<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9)),
    making<optim::Adam>(optim::AdamOptions(0.1).amsgrad(true)),
    making<optim::AdamW>(optim::AdamWOptions(0.1)),
    making<optim::Adadelta>(optim::AdadeltaOptions(1.0)),
    making<optim::Adagrad>(optim::AdagradOptions(0.1)),
    making<optim::RMSprop>(optim::RMSpropOptions(0.1).momentum(0.5).centered(true)),
    making<optim::Adamax>(optim::AdamaxOptions(0.1)),
    making<optim::NAdam>(optim::NAdamOptions(0.1)),
    making<optim::RAdam>(optim::RAdamOptions(0.1)),
    making<optim::ASGD>(optim::ASGDOptions(0.1)),
    making<optim::Rprop>(optim::RpropOptions(0.1)),
    making<optim::LBFGS>(optim::LBFGSOptions(0.1).max_iter(2)),
};

struct Training {
  explicit Training(std::size_t which) : optimizer(kAlgorithms[which](params)) {}
  void step() {
    optimizer->step([&] {
      optimizer->zero_grad();
      Tensor loss = params[0].sin().sum() + params[1].cos().sum();
      loss.backward();
      return loss;
    });
  }
  Params params = {ones({2, 3}).requires_grad_(), ones({2}).requires_grad_()};
  Made optimizer;
};

/// The first byte says which algorithm, the rest is a pickle of tensors by number.
void fuzz_state(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return;
  const std::vector<char> content(data + 1, data + size);
  try {
    const IValue value = pickle_load(content);
    Training training(data[0] % kAlgorithms.size());
    training.optimizer->load_state_dict(io::to_optimizer_state(value));
    training.step();
    pickle_save(io::to_ivalue(*training.optimizer));
    for (const Tensor& p : training.params) touch(p.data_ptr(), p.nbytes());
  } catch (const Error&) {
  }
}

}  // namespace

TEST(Fuzz, OptimizerStateOfPt) {
  FuzzOptions options;
  for (std::size_t which = 0; which < kAlgorithms.size(); ++which) {
    Training training(which);
    training.step(), training.step();
    const std::vector<char> saved = pickle_save(io::to_ivalue(*training.optimizer));
    Input input = {static_cast<std::uint8_t>(which)};
    input.insert(input.end(), saved.begin(), saved.end());
    options.corpus.push_back(input);
    // The seeds are what they should be: they load, and training goes on.
    Training again(which);
    again.optimizer->load_state_dict(io::to_optimizer_state(pickle_load(saved)));
    again.step();
  }
  options.words = {"X\5\0\0\0state"s,
                   "X\x0c\0\0\0param_groups"s,
                   "X\6\0\0\0params"s,
                   "X\4\0\0\0step"s,
                   "X\5\0\0\0betas"s,
                   "X\2\0\0\0lr"s,
                   "K\0"s,
                   "K\1",
                   "\x86",
                   "]",
                   "}",
                   "N",
                   "\x88",
                   "(",
                   "u",
                   "e",
                   "s",
                   "a",
                   "G\x7f\xf8\0\0\0\0\0\0"s,
                   "G\x7f\xef\xff\xff\xff\xff\xff\xff",
                   "G\xc3\xe0\0\0\0\0\0\0"s,
                   "J\xff\xff\xff\xff"};
  run_fuzzer(fuzz_state, options);
}

}  // namespace athanor::fuzz
