// Gradients of a weight for a single sample: a column times a row, of which only the two are stored until somebody
// looks. The optimizers do not.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <latch>
#include <thread>

#include "athanor/autograd/autograd.h"
#include "athanor/base/parallel.h"
#include "athanor/nn/utils.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/matmul.h"
#include "athanor/optim/adaptive.h"
#include "athanor/tensor/device_memory.h"
#include "athanor/tensor/stream.h"
#include "hidden_switch.h"

namespace athanor::optim::outer_gradient_test {
namespace {

bool is_hidden(const Tensor& t) { return t.storage()->is_hidden(); }

using Switch = test::HiddenSwitch;

Tensor values(IntArrayRef sizes, double phase, TensorOptions o = kFloat) {
  std::int64_t n = 1;
  for (const std::int64_t s : sizes) n *= s;
  return (arange(n, TensorOptions(kDouble)) * 0.37 + phase).sin().reshape(sizes).to(o.dtype()).to(o.device());
}

Tensor weight(IntArrayRef sizes, TensorOptions o = kFloat) { return values(sizes, 1, o).requires_grad_(); }

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.detach().cpu().contiguous(), y = b.detach().cpu().contiguous();
  return x.sizes() == y.sizes() && x.dtype() == y.dtype() &&
         std::memcmp(x.data_ptr<float>(), y.data_ptr<float>(), x.nbytes()) == 0;
}

/// The gradient of `w` for rows of `x`, plainly.
Tensor plain_gradient(const Tensor& x, const Tensor& w) {
  const Tensor copy = w.detach().clone().requires_grad_();
  const Switch off(false);
  linear(x, copy).sin().sum().backward();
  return copy.grad();
}

Tensor after_backward(const Tensor& x, const Tensor& w) {
  linear(x, w).sin().sum().backward();
  return w.grad();
}

class OuterGradients : public ::testing::Test {
 protected:
  Switch on{true};
};

}  // namespace

TEST_F(OuterGradients, ShowThePlainGeometryAndValues) {
  for (const auto& x : {values({1, 301}, 2), values({301}, 2), values({1, 1, 301}, 2)}) {
    const Tensor w = weight({129, 301}), g = after_backward(x, w);
    ASSERT_TRUE(is_hidden(g));
    EXPECT_EQ(g.sizes(), w.sizes());
    EXPECT_TRUE(g.is_contiguous());
    EXPECT_EQ(g.storage()->nbytes(), w.nbytes());
    EXPECT_FALSE(g.requires_grad());
    ASSERT_TRUE(is_hidden(g)) << "asking for the geometry multiplied it out";
    EXPECT_TRUE(same_bits(g[7].slice(0, 3, 200), plain_gradient(x, w)[7].slice(0, 3, 200)));
    EXPECT_FALSE(is_hidden(g));
    EXPECT_TRUE(same_bits(w.grad(), plain_gradient(x, w)));
  }
}

TEST_F(OuterGradients, KeepWhatTheInputWas) {
  Tensor x = values({1, 300}, 2), w = weight({128, 300});
  const Tensor want = plain_gradient(x, w), g = after_backward(x, w);
  x.fill_(NAN);
  ASSERT_TRUE(is_hidden(g));
  EXPECT_TRUE(same_bits(g, want));
}

TEST_F(OuterGradients, OfInputsWithGapsAndSpecialValues) {
  Tensor wide = values({300, 2}, 2);
  wide[5][1] = INFINITY, wide[6][1] = NAN, wide[7][1] = 0.0;
  const Tensor x = wide.t().slice(0, 1, 2), w = weight({128, 300});
  ASSERT_EQ(x.stride(1), 2);
  const Tensor column = values({1, 128}, 3);
  linear(x, w).backward(column);
  ASSERT_TRUE(is_hidden(w.grad()));
  const Tensor& g = w.grad();
  for (const std::int64_t i : {std::int64_t{0}, std::int64_t{77}, std::int64_t{127}})
    for (std::int64_t j = 0; j < 300; ++j) {
      const float want = column[0][i].item<float>() * x[0][j].item<float>(), got = g[i][j].item<float>();
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want) << i << ", " << j;
    }
}

TEST_F(OuterGradients, AreMadeOnlyWhereNobodyElseAddsOrLooks) {
  const Tensor x = values({1, 300}, 2);
  const auto plain = [](const Tensor& w) { return !is_hidden(w.grad()); };
  Tensor w = weight({128, 300});
  const Tensor want = plain_gradient(x, w);
  after_backward(x, w);
  ASSERT_FALSE(plain(w));
  after_backward(x, w);
  EXPECT_TRUE(plain(w)) << "a second gradient is added";
  EXPECT_TRUE(same_bits(w.grad(), want * 2));

  after_backward(values({2, 300}, 2), w = weight({128, 300}));
  EXPECT_TRUE(plain(w)) << "two samples";
  after_backward(values({1, 30}, 2), w = weight({128, 30}));
  EXPECT_TRUE(plain(w)) << "small";
  after_backward(values({1, 2}, 2), w = weight({8192, 2}));
  EXPECT_TRUE(plain(w)) << "narrow";
  after_backward(values({1, 300}, 2, kDouble), w = weight({128, 300}, kDouble));
  EXPECT_TRUE(plain(w)) << "float64";
  w = values({300, 128}, 1).t().requires_grad_();
  after_backward(x, w);
  EXPECT_TRUE(plain(w)) << "by columns";
  EXPECT_EQ(w.grad().strides(), w.strides());

  w = weight({128, 300});
  int seen = 0;
  w.register_hook([&](const Tensor& g) { seen += is_hidden(g) ? 100 : 1; });
  after_backward(x, w);
  EXPECT_EQ(seen, 1);

  w = weight({128, 300});
  linear(x, w).sin().sum().backward({}, true, true);
  EXPECT_TRUE(plain(w) && w.grad().requires_grad()) << "create_graph";
  w.mutable_grad() = Tensor();  // the graph of its gradient holds the weight
  EXPECT_FALSE(is_hidden(autograd::grad({linear(x, w).sin().sum()}, {w})[0])) << "a gradient asked for";
  {
    const Switch off(false);
    after_backward(x, w = weight({128, 300}));
    EXPECT_TRUE(plain(w)) << "switched off";
  }
}

TEST_F(OuterGradients, AddUpWhereAWeightIsUsedTwice) {
  const Tensor x = values({1, 150}, 2), w = weight({150, 150}), plain = w.detach().clone().requires_grad_();
  linear(linear(x, w).sin(), w).sum().backward();
  const Switch off(false);
  linear(linear(x, plain).sin(), plain).sum().backward();
  EXPECT_TRUE(same_bits(w.grad(), plain.grad()));
}

TEST_F(OuterGradients, MayBeChangedInPlace) {
  const Tensor x = values({1, 300}, 2);
  Tensor w = weight({128, 300});
  const Tensor want = plain_gradient(x, w);
  SGD sgd({w}, SGDOptions(0.1));
  after_backward(x, w);
  EXPECT_NEAR(nn::utils::clip_grad_norm_({w}, 0.5), want.norm().item<double>(), 1e-4);
  EXPECT_TRUE(allclose(w.grad(), want * (0.5 / want.norm().item<double>()), 1e-5, 1e-7));
  w.mutable_grad() = Tensor();
  after_backward(x, w);
  sgd.zero_grad(false);
  EXPECT_TRUE(same_bits(w.grad(), zeros({128, 300})));
  w.mutable_grad() = Tensor();
  after_backward(x, w);
  EXPECT_TRUE(same_bits(w.mutable_grad().mul_(2), want * 2));
}

TEST_F(OuterGradients, MayBeReadByManyThreadsAtOnce) {
  const Tensor x = values({1, 300}, 2);
  for (int round = 0; round < 20; ++round) {
    const Tensor w = weight({128, 300}), g = after_backward(x, w), want = plain_gradient(x, w);
    std::latch start(4);
    std::vector<std::thread> threads;
    std::vector<int> right(4);
    for (std::size_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        right[t] = same_bits(g, want);
      });
    for (auto& t : threads) t.join();
    EXPECT_EQ(right, std::vector<int>(4, 1));
  }
}

TEST_F(OuterGradients, AreMultipliedOutOnceForManyReaders) {
  const Tensor x = values({1, 2048}, 2), w = weight({2048, 2048}), g = after_backward(x, w);
  const auto bytes = static_cast<std::int64_t>(g.nbytes());
  reset_peak_memory_stats(kCPU);
  const std::int64_t before = memory_allocated(kCPU);
  std::latch start(6);
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&] {
      start.arrive_and_wait();
      EXPECT_NE(g.data_ptr<float>(), nullptr);
    });
  for (auto& t : threads) t.join();
  EXPECT_LT(max_memory_allocated(kCPU) - before, 2 * bytes);
}

TEST_F(OuterGradients, ThatAreParametersThemselvesChangeBeforeTheyAreUsed) {
  const auto train = [](bool hidden) {
    const Switch factors(hidden);
    Tensor w = weight({128, 300});
    Tensor g = after_backward(values({1, 300}, 2), w);
    g.mutable_grad() = ones({128, 300});
    SGD({g, w}, SGDOptions(1)).step();
    return w;
  };
  EXPECT_TRUE(same_bits(train(true), train(false)));
}

namespace {

using Make = std::function<std::unique_ptr<Optimizer>(std::vector<Tensor>)>;
template <class Algorithm, class Options>
Make make(Options o) {
  return [o](std::vector<Tensor> params) { return std::make_unique<Algorithm>(std::move(params), o); };
}

/// Every optimizer, with the states that its options can add.
std::vector<std::pair<const char*, Make>> all_optimizers() {
  return {
      {"SGD", make<SGD>(SGDOptions(0.1))},
      {"SGD with decay", make<SGD>(SGDOptions(0.1).weight_decay(0.1))},
      {"SGD with momentum", make<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.2))},
      {"Nesterov", make<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true))},
      {"Adam", make<Adam>(AdamOptions(0.1))},
      {"AMSGrad", make<Adam>(AdamOptions(0.1).amsgrad(true).weight_decay(0.1))},
      {"AdamW", make<AdamW>(AdamWOptions(0.1))},
      {"Adadelta", make<Adadelta>(AdadeltaOptions(1.0))},
      {"Adagrad", make<Adagrad>(AdagradOptions(0.1))},
      {"RMSprop", make<RMSprop>(RMSpropOptions(0.1))},
      {"centered RMSprop", make<RMSprop>(RMSpropOptions(0.1).centered(true).momentum(0.5))},
      {"Adamax", make<Adamax>(AdamaxOptions(0.1))},
      {"NAdam", make<NAdam>(NAdamOptions(0.1))},
      {"RAdam", make<RAdam>(RAdamOptions(0.1))},
      {"ASGD", make<ASGD>(ASGDOptions(0.1))},
      {"Rprop", make<Rprop>(RpropOptions(0.1))},
  };
}

/// The parameters after three steps of two layers for one sample each.
std::vector<Tensor> train(const Make& optimizer, bool hidden, TensorOptions o = kFloat) {
  const Switch factors(hidden);
  std::vector<Tensor> params = {weight({129, 301}, o), weight({131}, o), weight({131, 129}, o)};
  const auto sgd = optimizer(params);
  for (int step = 0; step < 3; ++step) {
    sgd->zero_grad();
    linear(linear(values({1, 301}, step, o), params[0]).sin(), params[2], params[1]).cos().sum().backward();
    EXPECT_EQ(is_hidden(params[0].grad()), hidden);
    EXPECT_EQ(is_hidden(params[2].grad()), hidden);
    sgd->step();
    EXPECT_EQ(is_hidden(params[0].grad()), hidden) << "the step multiplied it out as a whole";
  }
  return params;
}

}  // namespace

TEST_F(OuterGradients, GiveEveryOptimizerTheSameBits) {
  const int before = get_num_threads();
  for (const int threads : {1, 2, 7}) {
    set_num_threads(threads);
    for (const auto& [name, optimizer] : all_optimizers()) {
      SCOPED_TRACE(::testing::Message() << name << ", " << threads << " threads");
      const auto plain = train(optimizer, false), factors = train(optimizer, true);
      for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(same_bits(plain[i], factors[i])) << i;
    }
  }
  set_num_threads(before);
}

TEST_F(OuterGradients, GiveTheSameBitsOnQueues) {
  athanor::detail::configure_cpu_queues(1);
  {
    const TensorOptions there(Device(DeviceType::CPU, 0));
    for (const auto& [name, optimizer] : all_optimizers()) {
      SCOPED_TRACE(name);
      const auto host = train(optimizer, true), queued = train(optimizer, true, there);
      for (std::size_t i = 0; i < host.size(); ++i) EXPECT_TRUE(same_bits(host[i], queued[i])) << i;
    }
    const Tensor x = values({1, 300}, 2, there), w = weight({128, 300}, there), g = after_backward(x, w);
    ASSERT_TRUE(is_hidden(g));
    EXPECT_TRUE(same_bits(g, plain_gradient(x, w)));
  }
  athanor::detail::configure_cpu_queues(0);
}

}  // namespace athanor::optim::outer_gradient_test
