// The learning rates of PyTorch 2.15, from before the first step to after the twelfth.
#include <gtest/gtest.h>

#include <cmath>

#include "athanor/io/checkpoint.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/algorithms.h"
#include "athanor/optim/schedule_compose.h"
#include "athanor/optim/schedule_cycles.h"

namespace athanor::optim::scheduler_test {
namespace {

constexpr int kSteps = 12;
using Numbers = std::vector<double>;
using Make = std::function<std::shared_ptr<LRScheduler>(Optimizer&)>;

template <class Schedule, class... Args>
Make made(Args... args) {
  return [=](Optimizer& o) { return std::make_shared<Schedule>(o, args...); };
}

struct Course {
  Numbers rates, momenta;
};

/// With `interrupt` after that many steps, a new optimizer and a new schedule go on from a checkpoint.
Course follow(const Make& make, bool adam = false, int interrupt = -1) {
  Tensor p = zeros({1}).requires_grad_();
  const auto fresh = [&]() -> std::unique_ptr<Optimizer> {
    if (adam) return std::make_unique<Adam>(std::vector<Tensor>{p}, AdamOptions(0.4));
    return std::make_unique<SGD>(std::vector<Tensor>{p}, SGDOptions(0.4).momentum(0.5));
  };
  std::unique_ptr<Optimizer> optimizer = fresh();
  std::shared_ptr<LRScheduler> schedule = make(*optimizer);
  Course course;
  const auto note = [&] {
    auto values = optimizer->param_groups()[0].options().values();
    course.rates.push_back(values.at("lr"));
    course.momenta.push_back(values.at(adam ? "beta1" : "momentum"));
  };
  note();
  for (int i = 0; i < kSteps; ++i) {
    if (i == interrupt) {
      io::Checkpoint c;
      c.set_optimizer("o", *optimizer);
      c.set_scheduler("s", *schedule);
      auto bytes = c.bytes();
      const io::Checkpoint read = io::Checkpoint::parse(bytes);
      schedule.reset();
      optimizer = fresh();
      schedule = make(*optimizer);
      read.load_optimizer("o", *optimizer);
      read.load_scheduler("s", *schedule);
    }
    schedule->step();
    note();
  }
  return course;
}

void expect_near(const Numbers& got, const Numbers& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-14) << what << ", epoch " << i;
}

/// The rates, and that stopping anywhere changes nothing.
void expect_course(const char* what, const Make& make, const Numbers& rates, const Numbers& momenta = {},
                   bool adam = false) {
  const Course course = follow(make, adam);
  expect_near(course.rates, rates, what);
  if (!momenta.empty()) expect_near(course.momenta, momenta, std::string(what) + " momentum");
  for (const int stop : {1, 4, 7}) {
    const Course resumed = follow(make, adam, stop);
    EXPECT_EQ(resumed.rates, course.rates) << what << " stopped at " << stop;
    EXPECT_EQ(resumed.momenta, course.momenta) << what << " stopped at " << stop;
  }
}

std::vector<std::shared_ptr<LRScheduler>> list(std::initializer_list<std::shared_ptr<LRScheduler>> l) { return l; }

}  // namespace

TEST(Schedulers, OfOneFormulaFollowPyTorch) {
  expect_course("Step", made<StepLR>(3U, 0.5), {.4, .4, .4, .2, .2, .2, .1, .1, .1, .05, .05, .05, .025});
  expect_course("Cosine", made<CosineAnnealingLR>(4U, 0.01),
                {0.4, 0.34288582233137677, 0.20500000000000002, 0.06711417766862325, 0.01, 0.06711417766862322,
                 0.20500000000000004, 0.34288582233137693, 0.4000000000000002, 0.342885822331377, 0.20500000000000018,
                 0.06711417766862343, 0.01});
  expect_course("Lambda", made<LambdaLR>([](unsigned e) { return 1.0 / (e + 2.0); }),
                {0.2, 0.13333333333333333, 0.1, 0.08000000000000002, 0.06666666666666667, 0.05714285714285714, 0.05,
                 0.044444444444444446, 0.04000000000000001, 0.03636363636363637, 0.03333333333333333,
                 0.03076923076923077, 0.02857142857142857});
  expect_course("Mult", made<MultiplicativeLR>([](unsigned e) { return 1 - 0.1 * e / 12; }),
                {0.4, 0.3966666666666667, 0.3900555555555556, 0.3803041666666667, 0.36762736111111116,
                 0.3523095543981482, 0.3346940766782408, 0.3151702555386767, 0.2941589051694316, 0.27209698728172427,
                 0.24942223834158056, 0.226558533160269, 0.2039026798442421});
  expect_course("MultiStep", made<MultiStepLR>(std::vector<unsigned>{5, 3, 9, 5}, 0.5),
                {0.4, 0.4, 0.4, 0.2, 0.2, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.025});
  expect_course("Constant", made<ConstantLR>(0.25, 4),
                {0.1, 0.1, 0.1, 0.1, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4});
  expect_course("Linear", made<LinearLR>(0.25, 0.8, 6),
                {0.1, 0.1366666666666667, 0.17333333333333337, 0.21000000000000002, 0.2466666666666667,
                 0.2833333333333334, 0.32000000000000006, 0.32000000000000006, 0.32000000000000006, 0.32000000000000006,
                 0.32000000000000006, 0.32000000000000006, 0.32000000000000006});
  expect_course("Exp", made<ExponentialLR>(0.9),
                {0.4, 0.36000000000000004, 0.32400000000000007, 0.2916000000000001, 0.26244000000000006,
                 0.23619600000000007, 0.21257640000000008, 0.1913187600000001, 0.1721868840000001, 0.15496819560000008,
                 0.13947137604000007, 0.12552423843600005, 0.11297181459240005});
  expect_course("Poly", made<PolynomialLR>(8, 2.0),
                {0.4, 0.30625, 0.225, 0.15625000000000003, 0.10000000000000003, 0.05625000000000002,
                 0.02500000000000001, 0.006250000000000002, 0.0, 0.0, 0.0, 0.0, 0.0});
  expect_course(
      "Warm", made<CosineAnnealingWarmRestarts>(3, 2, 0.01),
      {0.4, 0.3025, 0.10750000000000004, 0.4, 0.3738749537379656, 0.3025, 0.20500000000000002, 0.10750000000000004,
       0.03612504626203445, 0.4, 0.3933555361263683, 0.3738749537379656, 0.34288582233137677});
  expect_course("SWALR", made<SWALR>(0.05, 5),
                {0.4, 0.3665779740156158, 0.2790779740156158, 0.1709220259843842, 0.0834220259843842, 0.05, 0.05, 0.05,
                 0.05, 0.05, 0.05, 0.05, 0.05});
  expect_course(
      "SWALR lin", made<SWALR>(0.05, 4, "linear"),
      {0.4, 0.31250000000000006, 0.22500000000000003, 0.1375, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05});
}

TEST(Schedulers, CyclesFollowPyTorch) {
  CyclicLROptions triangular;
  triangular.step_size_up = 3, triangular.step_size_down = 2;
  expect_course(
      "triangular", made<CyclicLR>(0.1, 0.9, triangular),
      {0.1, 0.3666666666666666, 0.6333333333333332, 0.8999999999999998, 0.4999999999999999, 0.1, 0.3666666666666669,
       0.6333333333333332, 0.8999999999999998, 0.5000000000000003, 0.1, 0.3666666666666669, 0.6333333333333332},
      {0.9, 0.8666666666666667, 0.8333333333333334, 0.8, 0.8500000000000001, 0.9, 0.8666666666666667,
       0.8333333333333334, 0.8, 0.85, 0.9, 0.8666666666666667, 0.8333333333333334});
  CyclicLROptions halving;
  halving.step_size_up = 2, halving.mode = "triangular2";
  expect_course(
      "triangular2", made<CyclicLR>(0.1, 0.9, halving),
      {0.1, 0.5, 0.9, 0.5, 0.1, 0.30000000000000004, 0.5, 0.30000000000000004, 0.1, 0.2, 0.30000000000000004, 0.2, 0.1},
      {0.9, 0.8500000000000001, 0.8, 0.8500000000000001, 0.9, 0.875, 0.8500000000000001, 0.875, 0.9, 0.8875000000000001,
       0.875, 0.8875000000000001, 0.9},
      true);
  CyclicLROptions decaying;
  decaying.step_size_up = 3, decaying.mode = "exp_range", decaying.gamma = 0.9, decaying.cycle_momentum = false;
  expect_course(
      "exp_range", made<CyclicLR>(0.1, 0.9, decaying),
      {0.1, 0.3400000000000001, 0.5319999999999999, 0.6832, 0.4499200000000002, 0.2574639999999999, 0.1,
       0.22754584000000028, 0.3295825119999999, 0.40993639120000014, 0.2859618347199999, 0.18368282562400018, 0.1});
  CyclicLROptions own = decaying;
  own.mode = "", own.scale_mode = "iterations", own.scale_fn = [](double x) { return std::pow(0.9, x); };
  expect_course(
      "scale_fn", made<CyclicLR>(0.1, 0.9, own),
      {0.1, 0.3400000000000001, 0.5319999999999999, 0.6832, 0.4499200000000002, 0.2574639999999999, 0.1,
       0.22754584000000028, 0.3295825119999999, 0.40993639120000014, 0.2859618347199999, 0.18368282562400018, 0.1});
  expect_course("one cycle", made<OneCycleLR>(1.0, 13U),
                {0.040000000000000036, 0.29516394846410077, 0.7893697913739435, 0.9997020714672542, 0.9643782625501709,
                 0.8742558770640542, 0.7399697791049373, 0.5773663579364711, 0.4056335797487326, 0.24503671767014096,
                 0.11452695450885979, 0.029505054314122554, 4e-06},
                {0.95, 0.9234204220349895, 0.8719406467318809, 0.8500297929724464, 0.8535621879937348,
                 0.8625744625914449, 0.8760031261020107, 0.8922635332604859, 0.9094368797726458, 0.9254966302195068,
                 0.938547658739749, 0.9470498827681187, 0.95});
  OneCycleLROptions phases;
  phases.epochs = 2, phases.steps_per_epoch = 7, phases.anneal_strategy = "linear", phases.three_phase = true;
  phases.pct_start = 0.4, phases.div_factor = 10, phases.final_div_factor = 100;
  expect_course(
      "three phases", made<OneCycleLR>(1.0, phases),
      {0.1, 0.29565217391304344, 0.4913043478260869, 0.6869565217391304, 0.8826086956521738, 0.9217391304347827,
       0.7260869565217393, 0.5304347826086957, 0.33478260869565235, 0.1391304347826089, 0.07915789473684214,
       0.05310526315789475, 0.02705263157894737},
      {0.95, 0.9282608695652174, 0.9065217391304348, 0.8847826086956522, 0.8630434782608696, 0.858695652173913,
       0.8804347826086956, 0.9021739130434783, 0.9239130434782608, 0.9456521739130435, 0.95, 0.95, 0.95},
      true);
}

TEST(Schedulers, ComposedOnesFollowPyTorch) {
  expect_course(
      "sequence",
      [](Optimizer& o) {
        return std::make_shared<SequentialLR>(
            o,
            list({std::make_shared<ConstantLR>(o, 0.1, 2), std::make_shared<ExponentialLR>(o, 0.9),
                  std::make_shared<CosineAnnealingLR>(o, 5)}),
            std::vector<unsigned>{3, 6});
      },
      {0.04000000000000001, 0.04000000000000001, 0.4000000000000001, 0.4, 0.36000000000000004, 0.32400000000000007, 0.4,
       0.3618033988749895, 0.2618033988749895, 0.13819660112501053, 0.03819660112501053, 0.0, 0.03819660112501051});
  expect_course("warm-up",
                [](Optimizer& o) {
                  return std::make_shared<SequentialLR>(
                      o,
                      list({std::make_shared<LinearLR>(o, 0.1, 1.0, 4),
                            std::make_shared<CosineAnnealingWarmRestarts>(o, 4), std::make_shared<PolynomialLR>(o, 4)}),
                      std::vector<unsigned>{4, 8});
                },
                {0.04000000000000001, 0.13000000000000003, 0.22000000000000006, 0.3100000000000001, 0.4,
                 0.3414213562373095, 0.2, 0.05857864376269051, 0.4, 0.30000000000000004, 0.2, 0.1, 0.0});
  expect_course("chain",
                [](Optimizer& o) {
                  return std::make_shared<ChainedScheduler>(
                      list({std::make_shared<ConstantLR>(o, 0.1, 3), std::make_shared<ExponentialLR>(o, 0.9)}));
                },
                {0.04000000000000001, 0.03600000000000001, 0.03240000000000001, 0.29160000000000014, 0.2624400000000001,
                 0.2361960000000001, 0.21257640000000008, 0.1913187600000001, 0.1721868840000001, 0.15496819560000008,
                 0.13947137604000007, 0.12552423843600005, 0.11297181459240005});
}

TEST(ReduceLROnPlateau, FollowsPyTorch) {
  Tensor p = zeros({1}).requires_grad_();
  const auto rates = [&](Numbers metrics, auto... args) {
    SGD sgd({p}, SGDOptions(0.4));
    ReduceLROnPlateau plateau(sgd, args...);
    Numbers out{0.4};
    for (const double m : metrics) {
      // Going on from a saved state after every step must not matter.
      ReduceLROnPlateau next(sgd, args...);
      next.load_state_dict(plateau.state_dict());
      plateau.load_state_dict(next.state_dict());
      plateau.step(m);
      out.push_back(sgd.param_groups()[0].options().get_lr());
    }
    return out;
  };
  using Plateau = ReduceLROnPlateau;
  expect_near(rates({1, .9, .9, .9, .9, .9, .8, .85, .85, .85, .85, .85}, Plateau::min, 0.5, 1, 1e-4, Plateau::rel, 1),
              {0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05}, "min");
  expect_near(
      rates({1, 1.05, 1.2, 1.2, 1.4, 1.3, 1.2, 1.1, 1, 1, 1, 1}, Plateau::max, 0.1, 0, 0.1, Plateau::abs, 0,
            Numbers{0.02}),
      {0.4, 0.4, 0.04000000000000001, 0.04000000000000001, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02},
      "max");
}

TEST(CosineAnnealingWarmRestarts, TimesBetweenEpochsGiveWhatSteppingThereGives) {
  Tensor p = zeros({1}).requires_grad_();
  SGD a({p}, SGDOptions(0.4)), b({p}, SGDOptions(0.4));
  CosineAnnealingWarmRestarts stepped(a, 3, 2, 0.01), set(b, 3, 2, 0.01);
  for (int t = 1; t < 30; ++t) {
    stepped.step();
    set.step(static_cast<double>(t));
    EXPECT_NEAR(a.param_groups()[0].options().get_lr(), b.param_groups()[0].options().get_lr(), 1e-12) << t;
  }
  set.step(4.5);  // a quarter of the second cycle, of length 6
  EXPECT_NEAR(b.param_groups()[0].options().get_lr(), 0.01 + 0.39 * (1 + std::cos(std::acos(-1.0) / 4)) / 2, 1e-15);
}

TEST(Schedulers, GroupsHaveTheirOwnRatesAndFunctions) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<Tensor>{zeros({1}).requires_grad_()}, std::make_unique<SGDOptions>(1.0));
  groups.emplace_back(std::vector<Tensor>{zeros({1}).requires_grad_()}, std::make_unique<SGDOptions>(0.1));
  SGD sgd(std::move(groups), SGDOptions(0.5));
  LambdaLR lambda(sgd, {[](unsigned) { return 0.5; }, [](unsigned e) { return 1.0 + e; }});
  EXPECT_EQ(lambda.get_last_lr(), (Numbers{0.5, 0.1}));
  lambda.step();
  EXPECT_EQ(lambda.get_last_lr(), (Numbers{0.5, 0.2}));
  EXPECT_THROW(LambdaLR(sgd, std::vector<LambdaLR::Function>(3, [](unsigned) { return 1.0; })), ValueError);
  EXPECT_THROW(CyclicLR(sgd, {0.1, 0.1, 0.1}, {1.0}), ValueError);
  EXPECT_EQ(lambda.base_lrs(), (Numbers{1.0, 0.1}));
}

TEST(Schedulers, BadInputIsRefused) {
  SGD sgd({zeros({1}).requires_grad_()}, SGDOptions(0.4)), other({zeros({1}).requires_grad_()}, SGDOptions(0.4));
  EXPECT_THROW(ConstantLR(sgd, 1.5), ValueError);
  EXPECT_THROW(LinearLR(sgd, 0.0), ValueError);
  EXPECT_THROW(PolynomialLR(sgd, 0), ValueError);
  EXPECT_THROW(CosineAnnealingWarmRestarts(sgd, 0), ValueError);
  EXPECT_THROW(SWALR(sgd, 0.1, 3, "sine"), ValueError);
  EXPECT_THROW(OneCycleLR(sgd, 1.0, OneCycleLROptions{}), ValueError);
  EXPECT_THROW(ReduceLROnPlateau(sgd, ReduceLROnPlateau::min, 1.0), ValueError);
  EXPECT_THROW(ChainedScheduler({}), ValueError);
  const auto step = std::make_shared<StepLR>(sgd, 2), foreign = std::make_shared<StepLR>(other, 2);
  EXPECT_THROW(ChainedScheduler(list({step, foreign})), ValueError);
  EXPECT_THROW(SequentialLR(sgd, list({step, step}), {}), ValueError);
  EXPECT_THROW(SequentialLR(sgd, list({step, std::make_shared<ReduceLROnPlateau>(sgd)}), {2}), ValueError);
  EXPECT_THROW(ReduceLROnPlateau(sgd).step(), Error) << "it needs the metric";
  OneCycleLR cycle(sgd, 1.0, 2);
  cycle.step(), cycle.step();
  EXPECT_THROW(cycle.step(), ValueError);
  Adadelta without({zeros({1}).requires_grad_()});
  EXPECT_THROW(CyclicLR(without, 0.1, 0.9), ValueError) << "no momentum to move";
}

TEST(Schedulers, LoadingABadStateChangesNothing) {
  SGD sgd({zeros({1}).requires_grad_()}, SGDOptions(0.4));
  SequentialLR sequence(sgd, list({std::make_shared<StepLR>(sgd, 2), std::make_shared<ExponentialLR>(sgd, 0.5)}), {3});
  sequence.step();
  const auto good = sequence.state_dict();
  auto bad = good;
  bad["0.step_count"] = 7;
  bad["1.step_count"] = -1;
  EXPECT_THROW(sequence.load_state_dict(bad), ValueError);
  bad.erase("1.step_count");
  EXPECT_THROW(sequence.load_state_dict(bad), ValueError);
  EXPECT_EQ(sequence.state_dict(), good);
}

}  // namespace athanor::optim::scheduler_test
