// Gradients of recurrent layers by their kernels against those composed of ops, which are what create_graph gives.
#include <malloc.h>

#include "athanor/tensor/allocator.h"
#include "helpers.h"

namespace athanor::nn::recurrent_gradient_test {
namespace {

/// Lengths of the sequences of a batch, longest first.
struct Shape {
  std::vector<std::int64_t> lengths;
  std::int64_t inputs, hidden;
};

std::vector<std::int64_t> same(std::int64_t batch, std::int64_t steps) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(batch), steps);
}

// Few rows (products by gemm); groups of units that are not whole; steps enough for several blocks of gradients, by
// themselves and as parts of batches that shrink; more rows in a step than fit a block of tiles; one input; a sequence
// or two whose last group has one unit.
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{same(2, 3), 4, 3},   {same(7, 5), 5, 37}, {same(3, 130), 6, 19},
                                      {same(70, 3), 9, 40}, {same(1, 21), 1, 1}, {{300, 299, 120, 40, 40, 2, 1}, 3, 9},
                                      {same(1, 20), 3, 33}, {same(2, 12), 2, 17}};
  return all;
}

std::int64_t gates_of(const std::string& mode) { return mode == "lstm" ? 4 : mode == "gru" ? 3 : 1; }

struct Case {
  std::string mode;
  Shape shape;
  bool bias, reverse;
};

/// input (rows, features), first states, parameters of both directions.
std::vector<Tensor> operands(const Case& c, DType t) {
  std::int64_t rows = 0;
  for (const auto n : c.shape.lengths) rows += n;
  const auto batch = static_cast<std::int64_t>(c.shape.lengths.size());
  const std::int64_t h = c.shape.hidden, columns = gates_of(c.mode) * h, directions = c.reverse ? 2 : 1;
  std::vector<Tensor> out{randn({rows, c.shape.inputs}), randn({directions, batch, h})};
  if (c.mode == "lstm") out.push_back(randn({directions, batch, h}));
  const double scale = 0.5 / std::sqrt(static_cast<double>(h));
  for (std::int64_t d = 0; d < directions; ++d) {
    out.push_back(randn({columns, c.shape.inputs}) * 0.4);
    out.push_back(randn({columns, h}) * scale);
    for (int b = 0; c.bias && b < 2; ++b) out.push_back(randn({columns}) * 0.3);
  }
  for (Tensor& x : out) x = x.to(t).detach().requires_grad_();
  return out;
}

/// Output and last states.
std::vector<Tensor> run(const Case& c, const std::vector<Tensor>& x) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t t = 0; t < c.shape.lengths[0]; ++t) {
    sizes.push_back(0);
    for (const auto n : c.shape.lengths) sizes.back() += n > t;
  }
  const Tensor batch_sizes = tensor(sizes, TensorOptions(kLong));
  const std::size_t states = c.mode == "lstm" ? 2 : 1;
  const std::vector<Tensor> hx(x.begin() + 1, x.begin() + 1 + static_cast<std::ptrdiff_t>(states)),
      params(x.begin() + 1 + static_cast<std::ptrdiff_t>(states), x.end());
  if (c.mode == "lstm") {
    auto [out, h, cell] = lstm(x[0], batch_sizes, hx, params, c.bias, 1, 0.0, true, c.reverse);
    return {out, h, cell};
  }
  using Op = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, const Tensor&, TensorList, bool, std::int64_t,
                                            double, bool, bool);
  const Op op = c.mode == "gru" ? Op(&gru) : c.mode == "tanh" ? Op(&rnn_tanh) : Op(&rnn_relu);
  auto [out, h] = op(x[0], batch_sizes, hx[0], params, c.bias, 1, 0.0, true, c.reverse);
  return {out, h};
}

/// New states from the old ones and a step's sums, the state's cell second (LSTM only).
std::vector<Tensor> cell(const Case& c, const Tensor& given, const Tensor& recurrent, const Tensor& h,
                         const Tensor& cx) {
  if (c.mode == "lstm") {
    const auto g = chunk(given + recurrent, 4, 1);
    const Tensor next = sigmoid(g[1]) * cx + sigmoid(g[0]) * tanh(g[2]);
    return {sigmoid(g[3]) * tanh(next), next};
  }
  if (c.mode == "gru") {
    const auto a = chunk(given, 3, 1), b = chunk(recurrent, 3, 1);
    const Tensor z = sigmoid(a[1] + b[1]), n = tanh(a[2] + sigmoid(a[0] + b[0]) * b[2]);
    return {(1 - z) * n + z * h};
  }
  return {c.mode == "tanh" ? tanh(given + recurrent) : relu(given + recurrent)};
}

/// What run() gives, from the definition of a layer.
std::vector<Tensor> by_definition(const Case& c, const std::vector<Tensor>& x) {
  const std::size_t states = c.mode == "lstm" ? 2 : 1;
  const auto batch = static_cast<std::int64_t>(c.shape.lengths.size()), steps = c.shape.lengths[0];
  std::vector<std::int64_t> rows, first{0};
  for (std::int64_t t = 0; t < steps; ++t) {
    rows.push_back(0);
    for (const auto n : c.shape.lengths) rows.back() += n > t;
    first.push_back(first.back() + rows.back());
  }
  std::vector<Tensor> outputs;
  std::vector<std::vector<Tensor>> last(states);
  std::size_t p = 1 + states;
  for (std::int64_t d = 0; d < (c.reverse ? 2 : 1); ++d, p += c.bias ? 4 : 2) {
    std::vector<Tensor> state, out(static_cast<std::size_t>(steps));
    for (std::size_t s = 0; s < states; ++s) state.push_back(x[1 + s][d]);
    for (std::int64_t k = 0; k < steps; ++k) {
      const auto t = static_cast<std::size_t>(d == 0 ? k : steps - 1 - k);
      const std::int64_t n = rows[t];
      const Tensor h = state[0].slice(0, 0, n), cx = states == 2 ? state[1].slice(0, 0, n) : Tensor();
      Tensor given = matmul(x[0].slice(0, first[t], first[t] + n), x[p].t()), recurrent = matmul(h, x[p + 1].t());
      if (c.bias) given = given + x[p + 2], recurrent = recurrent + x[p + 3];
      const std::vector<Tensor> next = cell(c, given, recurrent, h, cx);
      for (std::size_t s = 0; s < states; ++s)
        state[s] = n == batch ? next[s] : cat({next[s], state[s].slice(0, n, batch)}, 0);
      out[t] = next[0];
    }
    outputs.push_back(cat(out, 0));
    for (std::size_t s = 0; s < states; ++s) last[s].push_back(state[s]);
  }
  std::vector<Tensor> all{cat(outputs, 1)};
  for (const auto& s : last) all.push_back(stack(s, 0));
  return all;
}

std::vector<Tensor> gradients(const Case& c, const std::vector<Tensor>& x, const std::vector<Tensor>& of, bool graph) {
  manual_seed(11);
  const std::vector<Tensor> results = run(c, x);
  std::vector<Tensor> up;
  for (const Tensor& r : results) up.push_back(randn(r.sizes()).to(r.dtype()));
  return autograd::grad(results, of, up, true, graph);
}

double distance(const Tensor& a, const Tensor& b) {
  return (a.to(kDouble) - b.to(kDouble)).abs().max().item<double>() / (1 + b.to(kDouble).abs().max().item<double>());
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* mode : {"lstm", "gru", "tanh", "relu"})
    for (const Shape& s : shapes())
      for (const bool reverse : {false, true}) all.push_back({mode, s, s.hidden != 19, reverse});
  return all;
}

std::string name_of(const Case& c) {
  return c.mode + ", batch " + std::to_string(c.shape.lengths.size()) + ", hidden " + std::to_string(c.shape.hidden) +
         (c.reverse ? ", both directions" : "");
}

TEST(RecurrentGradients, AndResultsAreThoseOfTheDefinition) {
  for (const Case& c : cases()) {
    manual_seed(7);
    const std::vector<Tensor> x = operands(c, kDouble), ours = run(c, x), exact = by_definition(c, x);
    ASSERT_EQ(ours.size(), exact.size());
    std::vector<Tensor> up;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_LT(distance(ours[i], exact[i]), 1e-12) << name_of(c) << ", result " << i;
      up.push_back(randn(ours[i].sizes()).to(kDouble));
    }
    const auto g = autograd::grad(ours, x, up), e = autograd::grad(exact, x, up);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_LT(distance(g[i], e[i]), 1e-11) << name_of(c) << ", input " << i;
  }
}

TEST(RecurrentGradients, OfKernelsAreThoseComposedOfOps) {
  for (const Case& c : cases()) {
    manual_seed(7);
    const std::vector<Tensor> x = operands(c, kDouble), ours = gradients(c, x, x, false),
                              composed = gradients(c, x, x, true);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_LT(distance(ours[i], composed[i]), 1e-11) << name_of(c) << ", input " << i;
  }
}

TEST(RecurrentGradients, InFloat32AreCloseToThoseInFloat64) {
  for (const Case& c : cases()) {
    if (c.mode == "relu") continue;  // a sum near zero may fall on the other side of the kink
    manual_seed(7);
    const std::vector<Tensor> x = operands(c, kFloat);
    std::vector<Tensor> wide;
    for (const Tensor& t : x) wide.push_back(t.detach().to(kDouble).requires_grad_());
    const std::vector<Tensor> ours = gradients(c, x, x, false), exact = gradients(c, wide, wide, false);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_LT(distance(ours[i], exact[i]), 1e-5) << name_of(c) << ", input " << i;
  }
}

TEST(RecurrentGradients, AreTheSameWhicheverOthersAreWanted) {
  for (const Shape& s : {shapes()[1], shapes()[5]})
    for (const char* mode : {"lstm", "gru"}) {
      const Case c{mode, s, true, false};
      manual_seed(7);
      const std::vector<Tensor> x = operands(c, kFloat), all = gradients(c, x, x, false);
      for (std::size_t i = 0; i < x.size(); ++i) {
        // The others are constants, as the input of a first layer is.
        std::vector<Tensor> alone;
        for (std::size_t j = 0; j < x.size(); ++j) alone.push_back(x[j].detach().requires_grad_(i == j));
        EXPECT_TRUE(gradients(c, alone, {alone[i]}, false)[0].equal(all[i])) << name_of(c) << ", input " << i;
      }
    }
}

TEST(RecurrentGradients, ReadNoInputThatNoneOfThoseWantedNeeds) {
  for (const char* mode : {"lstm", "gru", "tanh"}) {
    const Case c{mode, shapes()[1], true, false};
    manual_seed(7);
    const std::vector<Tensor> x = operands(c, kFloat), all = gradients(c, x, x, false);
    const std::size_t w_ih = c.mode == "lstm" ? 3 : 2;
    // The input's gradient needs w_ih, and w_ih's the input.
    for (const std::size_t wanted : {std::size_t{1}, w_ih + 1, std::size_t{0}, w_ih}) {
      std::vector<Tensor> alone;
      for (std::size_t j = 0; j < x.size(); ++j) alone.push_back(x[j].detach().clone().requires_grad_(wanted == j));
      manual_seed(11);
      const std::vector<Tensor> results = run(c, alone);
      std::vector<Tensor> up;
      for (const Tensor& r : results) up.push_back(randn(r.sizes()));
      for (const std::size_t changed : {std::size_t{0}, w_ih}) {
        const NoGradGuard off;
        if (changed == wanted || wanted == 1 || wanted == w_ih + 1) alone[changed].zero_();
      }
      EXPECT_TRUE(autograd::grad(results, {alone[wanted]}, up)[0].equal(all[wanted])) << name_of(c) << wanted;
    }
  }
}

TEST(RecurrentMemory, ThreadsKeepNoLargeInputForTheNextCall) {
  const auto held = [] {
    host_allocator().empty_cache();
    const auto info = mallinfo2();
    return static_cast<double>(info.hblkhd + info.uordblks);
  };
  const Case c{"tanh", {same(4096, 1), 1024, 8}, true, false};
  const std::vector<Tensor> x = operands(c, kFloat);
  const double before = held();
  const NoGradGuard guard;
  run(c, x);
  EXPECT_LT(held() - before, 4e6) << "of an input of " << x[0].nbytes() << " bytes";
}

}  // namespace
}  // namespace athanor::nn::recurrent_gradient_test
