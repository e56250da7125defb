// The trajectories of PyTorch 2.15 in float64, and what many parameters in one call must not change.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <typeinfo>

#include "athanor/io/archive.h"
#include "athanor/nn/utils.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/adaptive.h"
#include "athanor/optim/lbfgs.h"

namespace athanor::optim {
namespace {

Tensor start(DType dtype = kDouble) { return tensor({1.0, -2.0, 0.5}, TensorOptions(dtype)).requires_grad_(); }

/// A bowl with ripples.
Tensor loss_of(const Tensor& p) {
  const TensorOptions o(p.dtype());
  const Tensor d = p - tensor({0.3, 0.7, -1.1}, o);
  return (d * d * tensor({1.0, 2.0, 0.5}, o)).sum() + p.sin().sum();
}

std::vector<double> values_of(const Tensor& p) {
  const Tensor d = p.detach().to(kDouble).contiguous();
  return {d.data_ptr<double>(), d.data_ptr<double>() + d.numel()};
}

template <class Algorithm, class Options>
std::vector<double> walk(Options options, int steps = 8, DType dtype = kDouble) {
  Tensor p = start(dtype);
  Algorithm optimizer({p}, options);
  for (int i = 0; i < steps; ++i)
    optimizer.step([&] {
      optimizer.zero_grad();
      Tensor loss = loss_of(p);
      loss.backward();
      return loss;
    });
  return values_of(p);
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
}

}  // namespace

TEST(Adagrad, FollowsPyTorch) {
  expect_near(walk<Adagrad>(AdagradOptions(0.3)), {0.00890681858130317, -0.8590468924831113, -0.6603917030012426});
  expect_near(
      walk<Adagrad>(
          AdagradOptions(0.3).lr_decay(0.1).weight_decay(0.05).initial_accumulator_value(0.2).eps(1e-4).maximize(true)),
      {2.1372505015159766, -3.134379950871756, 1.5681604469543113});
}

TEST(Rmsprop, FollowsPyTorch) {
  expect_near(walk<RMSprop>(RMSpropOptions(0.05)), {-0.17612078339603793, -0.3090614083170766, -1.12570895691368});
  expect_near(walk<RMSprop>(RMSpropOptions(0.05).alpha(0.9).eps(1e-3).weight_decay(0.1).momentum(0.8)),
              {-0.5628222594502781, 0.010060956817433572, -1.4589694205716506});
  expect_near(walk<RMSprop>(RMSpropOptions(0.05).alpha(0.8).centered(true)),
              {0.2273537188725371, -1.1669816761366663, -0.3522670982517563});
  expect_near(walk<RMSprop>(RMSpropOptions(0.02).alpha(0.8).centered(true).momentum(0.5).maximize(true)),
              {1.6518677579378385, -2.647065683489846, 1.1338677310234742});
}

TEST(Adamax, FollowsPyTorch) {
  expect_near(walk<Adamax>(AdamaxOptions(0.1)), {0.29605462594075643, -1.264731759839089, -0.2592775330676321});
  expect_near(walk<Adamax>(AdamaxOptions(0.1).betas({0.8, 0.95}).eps(1e-3).weight_decay(0.1).maximize(true)),
              {1.7579638525341303, -2.7644701515294052, 1.2923790176737884});
}

TEST(NAdam, FollowsPyTorch) {
  expect_near(walk<NAdam>(NAdamOptions(0.1)), {0.4093043284744139, -1.3906120867703182, -0.11999773942044809});
  expect_near(
      walk<NAdam>(NAdamOptions(0.1).betas({0.8, 0.95}).eps(1e-4).weight_decay(0.1).momentum_decay(0.02).maximize(true)),
      {1.764415290000743, -2.7584658666207167, 1.23462517845846});
  expect_near(walk<NAdam>(NAdamOptions(0.1).weight_decay(0.1).decoupled_weight_decay(true)),
              {0.3603443905531592, -1.2660476289404463, -0.13525949666070672});
}

TEST(RAdam, FollowsPyTorch) {
  expect_near(walk<RAdam>(RAdamOptions(0.1)), {0.1524814989609314, 1.241771390612345, -0.6440019534780818});
  expect_near(walk<RAdam>(RAdamOptions(0.1).betas({0.8, 0.95}).eps(1e-4).weight_decay(0.1).maximize(true)),
              {2.101848587252602, -10.56377649072012, 1.8118083012079613});
  expect_near(walk<RAdam>(RAdamOptions(0.1).betas({0.9, 0.9}).weight_decay(0.1).decoupled_weight_decay(true)),
              {0.042815733783875924, 1.2106227931818934, -0.7092959437340174});
}

TEST(ASGD, FollowsPyTorch) {
  expect_near(walk<ASGD>(ASGDOptions(0.1)), {0.03719877166636581, 0.428419658231641, -0.9039256166427047});
  expect_near(walk<ASGD>(ASGDOptions(0.1).lambd(0.05).alpha(0.6).t0(3).weight_decay(0.1)),
              {0.019281378007143756, 0.4164368413342793, -0.8700963002903889});
  expect_near(walk<ASGD>(ASGDOptions(0.01).maximize(true)),
              {1.1615134505461808, -3.06043141102379, 0.7014727497246883});
}

TEST(Rprop, FollowsPyTorch) {
  expect_near(walk<Rprop>(RpropOptions(0.05)), {0.17504576000000002, -1.17504576, -0.32495423999999984});
  expect_near(walk<Rprop>(RpropOptions(0.4).etas({0.4, 1.5}).step_sizes({0.01, 0.5})),
              {-0.01999999999999999, 0.7, -1.28});
  expect_near(walk<Rprop>(RpropOptions(0.05).maximize(true)), {1.82495424, -2.8249542399999994, 1.32495424});
}

TEST(Lbfgs, FollowsPyTorch) {
  expect_near(walk<LBFGS>(LBFGSOptions(0.1).max_iter(3), 3),
              {0.5171385243397402, -0.972319768158422, -0.2486261753203452});
  expect_near(walk<LBFGS>(LBFGSOptions(1).line_search_fn("strong_wolfe").max_iter(2), 3),
              {-0.04256769352004813, 0.6050441990131211, -0.9969892157217624});
  expect_near(walk<LBFGS>(LBFGSOptions(0.3).max_iter(4).history_size(2).max_eval(4), 3),
              {-0.12366273159903536, 0.3218783212000973, -1.2241874132377022});
}

namespace {

struct Valley {
  std::vector<double> x, losses;
  int evaluations = 0;
};

/// Four calls on Rosenbrock's function of four variables; with `interrupt`, each by a new optimizer that loads the
/// state of the one before.
Valley descend(const LBFGSOptions& options, bool interrupt = false) {
  Tensor x = tensor({-1.2, 1.0, -0.5, 0.8}, kDouble).requires_grad_();
  auto optimizer = std::make_unique<LBFGS>(std::vector<Tensor>{x}, options);
  Valley v;
  for (int i = 0; i < 4; ++i) {
    if (interrupt && i > 0) {
      serialize::OutputArchive out;
      optimizer->save(out);
      std::stringstream bytes;
      out.save_to(bytes);
      optimizer = std::make_unique<LBFGS>(std::vector<Tensor>{x}, LBFGSOptions(0.5));
      serialize::InputArchive in;
      in.load_from(bytes);
      optimizer->load(in);
    }
    const Tensor first = optimizer->step([&] {
      ++v.evaluations;
      optimizer->zero_grad();
      const Tensor left = x.slice(0, 0, 3), right = x.slice(0, 1, 4);
      Tensor loss = (1 - left).pow(2).sum() + 100 * (right - left.pow(2)).pow(2).sum();
      loss.backward();
      return loss;
    });
    v.losses.push_back(first.item<double>());
  }
  v.x = values_of(x);
  return v;
}

}  // namespace

TEST(Lbfgs, SearchesLinesAndForgetsAsPyTorch) {
  const Valley searched = descend(LBFGSOptions().line_search_fn("strong_wolfe").max_iter(6));
  expect_near(searched.x, {0.475188994597115, 0.1913932215938101, 0.03139177750882945, 0.007407465554826322}, 1e-10);
  expect_near(searched.losses, {281.7, 3.633612042646956, 3.5039074694257315, 3.1129744128385743}, 1e-9);
  EXPECT_EQ(searched.evaluations, 30);
  const Valley fixed = descend(LBFGSOptions(0.001).max_iter(5).history_size(3));
  expect_near(fixed.x, {-1.1691261156036128, 1.0005570211621027, -0.2899666914033025, 0.5757077715370374}, 1e-10);
  expect_near(fixed.losses, {281.7, 279.9173098930181, 277.07724000582493, 257.6222199623466}, 1e-9);
  EXPECT_EQ(fixed.evaluations, 20);
}

TEST(Lbfgs, GoesOnExactlyAfterLoading) {
  for (const auto& o :
       {LBFGSOptions().line_search_fn("strong_wolfe").max_iter(6), LBFGSOptions(0.001).max_iter(5).history_size(3)}) {
    const Valley whole = descend(o), pieces = descend(o, true);
    EXPECT_EQ(whole.x, pieces.x);
    EXPECT_EQ(whole.losses, pieces.losses);
    EXPECT_EQ(whole.evaluations, pieces.evaluations);
  }
}

TEST(Lbfgs, TreatsSeveralParametersAsOneVector) {
  Tensor whole = start();
  LBFGS one({whole}, LBFGSOptions(0.3).max_iter(5).line_search_fn("strong_wolfe"));
  one.step([&] {
    one.zero_grad();
    Tensor l = loss_of(whole);
    l.backward();
    return l;
  });
  Tensor a = tensor({1.0, -2.0}, kDouble).requires_grad_(), b = tensor({0.5}, kDouble).requires_grad_();
  Tensor unused = ones({2, 2}, kDouble).requires_grad_();
  LBFGS two({a, b, unused}, LBFGSOptions(0.3).max_iter(5).line_search_fn("strong_wolfe"));
  two.step([&] {
    two.zero_grad();
    Tensor l = loss_of(cat({a, b}));
    l.backward();
    return l;
  });
  expect_near(values_of(cat({a.detach(), b.detach()})), values_of(whole));
  EXPECT_TRUE(equal(unused, ones({2, 2}, kDouble)));
}

TEST(Lbfgs, MaximizesTheNegativeLoss) {
  Tensor p = start(), q = start();
  LBFGS down({p}, LBFGSOptions(0.5).max_iter(7)), up({q}, LBFGSOptions(0.5).max_iter(7).maximize(true));
  const auto evaluate = [](LBFGS& optimizer, const Tensor& x, double sign) {
    optimizer.zero_grad();
    Tensor l = loss_of(x) * sign;
    l.backward();
    return l;
  };
  down.step([&] { return evaluate(down, p, 1); });
  up.step([&] { return evaluate(up, q, -1); });
  expect_near(values_of(p), values_of(q), 1e-14);
}

TEST(Lbfgs, BadInputIsRefused) {
  Tensor p = start();
  EXPECT_THROW(LBFGS({p}).step(nullptr), ValueError);
  EXPECT_THROW(LBFGS({p}, LBFGSOptions().line_search_fn("armijo")), ValueError);
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<Tensor>{start()});
  groups.emplace_back(std::vector<Tensor>{start()});
  EXPECT_THROW(LBFGS(std::move(groups)), ValueError);
}

namespace {

template <class Algorithm, class Options>
void expect_exact_continuation(Options options) {
  const auto go = [&](bool interrupt) {
    Tensor p = start(kFloat), q = ones({2, 3}).requires_grad_();
    auto optimizer = std::make_unique<Algorithm>(std::vector<Tensor>{p, q}, options);
    for (int i = 0; i < 9; ++i) {
      if (interrupt && i == 4) {
        serialize::OutputArchive out;
        optimizer->save(out);
        std::stringstream bytes;
        out.save_to(bytes);
        optimizer = std::make_unique<Algorithm>(std::vector<Tensor>{p, q});
        serialize::InputArchive in;
        in.load_from(bytes);
        optimizer->load(in);
      }
      optimizer->zero_grad();
      (loss_of(p) + (q * q * q).sum()).backward();
      optimizer->step();
    }
    return std::pair(values_of(p), values_of(q));
  };
  EXPECT_EQ(go(false), go(true)) << typeid(Algorithm).name();
}

/// A step of many parameters against a step of each alone, with odd sizes, an empty one and a strided one.
template <class Algorithm, class Options>
void expect_batch_changes_nothing(Options options, DType dtype) {
  const auto make = [&] {
    std::vector<Tensor> params;
    for (const std::int64_t n : {3, 0, 1, 70000, 17, 40000}) {
      Tensor p = arange(n, TensorOptions(kDouble)).sin().to(dtype);
      params.push_back(p.requires_grad_());
    }
    Tensor strided = arange(24, TensorOptions(kDouble)).cos().to(dtype).view({4, 6}).slice(1, 0, 6, 2);
    params.push_back(strided.requires_grad_());
    params.push_back(arange(6, TensorOptions(kDouble)).cos().to(dtype).view({2, 3}).t().requires_grad_());
    return params;
  };
  const auto gradient = [&](std::vector<Tensor>& params, int step) {
    for (Tensor& p : params) p.mutable_grad() = (p.detach() * 0.7 + 0.1 * step).sin();
    params[4].mutable_grad() = step == 1 ? Tensor() : params[4].grad();
  };
  std::vector<Tensor> together = make(), apart = make();
  Algorithm all(together, options);
  std::vector<std::unique_ptr<Algorithm>> each;
  for (Tensor& p : apart) each.push_back(std::make_unique<Algorithm>(std::vector<Tensor>{p}, options));
  for (int step = 0; step < 3; ++step) {
    gradient(together, step), gradient(apart, step);
    const auto version = together[3]._version();
    all.step();
    EXPECT_GT(together[3]._version(), version);
    for (auto& optimizer : each) optimizer->step();
  }
  for (std::size_t i = 0; i < together.size(); ++i)
    EXPECT_TRUE(equal(together[i], apart[i])) << typeid(Algorithm).name() << " parameter " << i;
}

template <class F>
void for_all_algorithms(F&& f) {
  f.template operator()<SGD>(SGDOptions(0.05).momentum(0.9));
  f.template operator()<SGD>(SGDOptions(0.05).weight_decay(0.1));
  f.template operator()<Adam>(AdamOptions(0.05));
  f.template operator()<Adam>(AdamOptions(0.05).amsgrad(true));
  f.template operator()<AdamW>(AdamWOptions(0.05));
  f.template operator()<Adadelta>(AdadeltaOptions(0.5));
  f.template operator()<Adagrad>(AdagradOptions(0.05).lr_decay(0.1).initial_accumulator_value(0.1));
  f.template operator()<RMSprop>(RMSpropOptions(0.05).momentum(0.5).centered(true));
  f.template operator()<RMSprop>(RMSpropOptions(0.05));
  f.template operator()<Adamax>(AdamaxOptions(0.05));
  f.template operator()<NAdam>(NAdamOptions(0.05));
  f.template operator()<RAdam>(RAdamOptions(0.05));
  f.template operator()<ASGD>(ASGDOptions(0.05).t0(2));
  f.template operator()<Rprop>(RpropOptions(0.05));
}

}  // namespace

TEST(Optimizers, AllGoOnExactlyAfterLoading) {
  for_all_algorithms([]<class Algorithm, class Options>(Options o) { expect_exact_continuation<Algorithm>(o); });
}

TEST(Optimizers, OneCallForAllParametersGivesTheSameBitsAsOneForEach) {
  for (const DType dtype : {kFloat, kDouble, kBFloat16})
    for_all_algorithms(
        [&]<class Algorithm, class Options>(Options o) { expect_batch_changes_nothing<Algorithm>(o, dtype); });
}

TEST(Optimizers, ParametersOfSeveralDtypesShareAnOptimizer) {
  Tensor a = ones({3}, kFloat).requires_grad_(), b = ones({3}, kDouble).requires_grad_(),
         c = ones({3}, kFloat).requires_grad_();
  Adagrad optimizer({a, b, c}, AdagradOptions(0.5));
  for (Tensor* p : {&a, &b, &c}) p->mutable_grad() = full({3}, 2.0, TensorOptions(p->dtype()));
  optimizer.step();
  for (Tensor* p : {&a, &b, &c}) EXPECT_TRUE(allclose(p->detach().to(kDouble), full({3}, 0.5, kDouble)));
}

TEST(Optimizers, BadOptionsOfEveryAlgorithmAreRefused) {
  Tensor p = start();
  EXPECT_THROW(Adagrad({p}, AdagradOptions(0.1).lr_decay(-1)), ValueError);
  EXPECT_THROW(Adagrad({p}, AdagradOptions(0.1).initial_accumulator_value(-1)), ValueError);
  EXPECT_THROW(RMSprop({p}, RMSpropOptions(0.1).momentum(-1)), ValueError);
  EXPECT_THROW(RMSprop({p}, RMSpropOptions(0.1).alpha(-1)), ValueError);
  EXPECT_THROW(Adamax({p}, AdamaxOptions(0.1).betas({0.9, 1.0})), ValueError);
  EXPECT_THROW(NAdam({p}, NAdamOptions(0.1).momentum_decay(-1)), ValueError);
  EXPECT_THROW(RAdam({p}, RAdamOptions(-0.1)), ValueError);
  EXPECT_THROW(ASGD({p}, ASGDOptions(0.1).lambd(-1)), ValueError);
  EXPECT_THROW(Rprop({p}, RpropOptions(0.1).etas({1.1, 1.2})), ValueError);
}

TEST(TotalNorm, OfEveryOrderEqualsThatOfOneVector) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<Tensor> parts;
  std::vector<double> all;
  for (const std::int64_t n : {5, 70000, 1, 0, 333}) {
    parts.push_back(arange(n, TensorOptions(kDouble)).sin() * 3);
    for (const double v : values_of(parts.back())) all.push_back(std::abs(v));
  }
  parts[4] = parts[4].view({3, 111}).t();
  for (const double order : {0.5, 1.0, 2.0, 3.0, inf}) {
    double want = 0;
    for (const double v : all) want = order == inf ? std::max(want, v) : want + std::pow(v, order);
    if (order != inf) want = std::pow(want, 1 / order);
    EXPECT_NEAR(nn::utils::get_total_norm(parts, order).item<double>() / want, 1, 1e-12) << "order " << order;
  }
  // The norms' norm of order 0: those that are not zero. The third is sin(0), the fourth empty.
  EXPECT_EQ(nn::utils::get_total_norm(parts, 0).item<double>(), 3);
  EXPECT_EQ(nn::utils::get_total_norm({}).item<double>(), 0);
  EXPECT_EQ(nn::utils::get_total_norm({ones({2}, kBFloat16), ones({2})}).dtype(), kFloat);
  EXPECT_TRUE(std::isnan(nn::utils::get_total_norm({parts[0], full({3}, NAN, kDouble)}, inf).item<double>()));
  EXPECT_THROW(nn::utils::get_total_norm({parts[0], full({1}, inf, kDouble)}, 2.0, true), Error);
}

}  // namespace athanor::optim
