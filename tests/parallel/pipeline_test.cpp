// Pipelines: schedules as tables, results equal to the network's alone, errors.
#include "athanor/parallel/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "athanor/autograd/autograd.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/launch.h"
#include "athanor/optim/algorithms.h"
#include "athanor/tensor/stream.h"

namespace athanor::nn::parallel::pipeline_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Device on(int i) { return Device(DeviceType::CPU, static_cast<DeviceIndex>(i)); }
std::vector<Device> first(int n) {
  std::vector<Device> devices;
  for (int i = 0; i < n; ++i) devices.push_back(on(i));
  return devices;
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// "F0 F1 B1 B0"
std::string text(const std::vector<PipelineStep>& steps) {
  std::string all;
  for (const PipelineStep& s : steps)
    all += (all.empty() ? "" : " ") + std::string(s.backward ? "B" : "F") + std::to_string(s.micro_batch);
  return all;
}

TEST(PipelineSchedules, AreWhatThePapersDraw) {
  const auto fill = pipeline_steps(PipelineSchedule::FillDrain, 2, 3);
  for (const auto& stage : fill) EXPECT_EQ(text(stage), "F0 F1 F2 B2 B1 B0");
  const auto alternate = pipeline_steps(PipelineSchedule::OneForwardOneBackward, 3, 4);
  EXPECT_EQ(text(alternate[0]), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text(alternate[1]), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text(alternate[2]), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_THROW(pipeline_steps(PipelineSchedule::FillDrain, 0, 1), ValueError);
}

// Every step comes after what it needs, and 1F1B keeps no more micro-batches than there are stages to come.
TEST(PipelineSchedules, CanBeCarriedOutAtEverySize) {
  for (const auto kind : {PipelineSchedule::FillDrain, PipelineSchedule::OneForwardOneBackward})
    for (std::int64_t stages = 1; stages <= 5; ++stages)
      for (std::int64_t count = 1; count <= 9; ++count) {
        const auto steps = pipeline_steps(kind, stages, count);
        std::vector<std::size_t> at(steps.size(), 0);
        std::vector<std::vector<int>> done(steps.size(), std::vector<int>(static_cast<std::size_t>(count), 0));
        std::size_t left = 2 * static_cast<std::size_t>(stages * count);
        for (bool moved = true; moved;) {
          moved = false;
          for (std::size_t s = 0; s < steps.size(); ++s) {
            if (at[s] == steps[s].size()) continue;
            const auto [m, backward] = steps[s][at[s]];
            const auto k = static_cast<std::size_t>(m);
            const bool ready = backward ? done[s][k] == 1 && (s + 1 == steps.size() || done[s + 1][k] == 2)
                                        : done[s][k] == 0 && (s == 0 || done[s - 1][k] >= 1);
            if (!ready) continue;
            ++done[s][k];
            ++at[s];
            --left;
            moved = true;
            const auto kept = std::count(done[s].begin(), done[s].end(), 1);
            if (kind == PipelineSchedule::OneForwardOneBackward) {
              EXPECT_LE(kept, stages - static_cast<std::int64_t>(s));
            }
          }
        }
        EXPECT_EQ(left, 0U) << stages << " stages, " << count << " micro-batches";
      }
}

Sequential network() {
  return Sequential(Linear(6, 8), Tanh(), Linear(8, 8), ReLU(ReLUOptions().inplace(true)), Linear(8, 3));
}

class PipelineOver : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { athanor::detail::configure_cpu_queues(GetParam()); }
  void TearDown() override { athanor::detail::configure_cpu_queues(0); }
};
INSTANTIATE_TEST_SUITE_P(Devices, PipelineOver, testing::Values(2, 3, 4));

TEST_P(PipelineOver, TrainsAsTheNetworkAlone) {
  for (const auto schedule : {PipelineSchedule::FillDrain, PipelineSchedule::OneForwardOneBackward})
    for (const auto how : {PipelineCheckpoint::Never, PipelineCheckpoint::ExceptLast, PipelineCheckpoint::Always})
      for (const std::int64_t chunks : {1, 3, 8}) {
        manual_seed(4);
        Sequential alone = network(), inner = network();
        alone->to(kDouble);
        inner->to(kDouble);
        inner->load_state_dict(alone->state_dict());
        Pipeline pipe(inner,
                      PipelineOptions().devices(first(GetParam())).chunks(chunks).schedule(schedule).checkpoint(how));
        EXPECT_EQ(pipe->stages(), static_cast<std::size_t>(GetParam()));
        optim::SGD ours(pipe->parameters(), optim::SGDOptions(0.1)),
            theirs(alone->parameters(), optim::SGDOptions(0.1));
        const auto loss = [](const Tensor& y, const Tensor& t) { return functional::cross_entropy(y, t); };
        for (const std::int64_t batch : {8, 7, 2}) {
          const Tensor x = randn({batch, 6}, kDouble), t = randint(3, {batch}, kLong);
          ours.zero_grad();
          theirs.zero_grad();
          const Tensor expected = loss(alone(x), t);
          expected.backward();
          const Tensor got = pipe->train_step(x.to(on(0)), t, loss);
          EXPECT_EQ(got.device(), pipe->devices().back());
          EXPECT_FALSE(got.requires_grad());
          EXPECT_NEAR(got.cpu().item<double>(), expected.item<double>(), 1e-12);
          for (std::size_t i = 0; i < alone->parameters().size(); ++i)
            EXPECT_TRUE(allclose(pipe->parameters()[i].grad().cpu(), alone->parameters()[i].grad(), 1e-10, 1e-12));
          ours.step();
          theirs.step();
        }
      }
}

struct CountingImpl : Cloneable<CountingImpl> {
  CountingImpl() { CountingImpl::reset(); }
  void reset() override { layer = register_module("layer", Linear(2, 2)); }
  Tensor forward(const Tensor& x) {
    ++calls;
    return layer(x);
  }
  Linear layer{nullptr};
  int calls = 0;
};
ATHANOR_MODULE(Counting);

TEST_P(PipelineOver, EachStageMayBeCheckpointedInItsOwnWay) {
  using How = PipelineCheckpoint;
  const std::pair<PipelineOptions, std::pair<int, int>> cases[] = {
      {PipelineOptions(), {3, 3}},
      {PipelineOptions().checkpoint(How::Always), {6, 6}},
      {PipelineOptions().checkpoint({How::ExceptLast}), {5, 5}},
      {PipelineOptions().checkpoint({How::Always, How::Never}), {6, 3}},
      {PipelineOptions().checkpoint({How::Never, How::ExceptLast}), {3, 5}},
  };
  for (const auto& [options, expected] : cases) {
    Counting a, b;
    Pipeline pipe(Sequential(a, b), PipelineOptions(options).devices(first(2)).chunks(3));
    pipe->train_step(randn({6, 2}), randn({6, 2}),
                     [](const Tensor& y, const Tensor& t) { return functional::mse_loss(y, t); });
    EXPECT_EQ(a->calls, expected.first);
    EXPECT_EQ(b->calls, expected.second);
  }
}

TEST_P(PipelineOver, ForwardIsRecordedForBackward) {
  manual_seed(4);
  Sequential alone = network(), inner = network();
  inner->load_state_dict(alone->state_dict());
  Pipeline pipe(inner, PipelineOptions().devices(first(GetParam())).split_size(3));
  Tensor x = randn({8, 6}), own = x.to(on(0)).detach().requires_grad_();
  x.requires_grad_();
  const Tensor expected = alone(x), got = pipe(own);
  EXPECT_EQ(got.device(), pipe->devices().back());
  EXPECT_TRUE(allclose(got.cpu(), expected, 1e-5, 1e-6));
  expected.pow(2).sum().backward();
  got.pow(2).sum().backward();
  EXPECT_TRUE(allclose(own.grad().cpu(), x.grad(), 1e-5, 1e-6));
  EXPECT_TRUE(allclose(inner->parameters()[0].grad().cpu(), alone->parameters()[0].grad(), 1e-5, 1e-6));
}

TEST_P(PipelineOver, KeepsTheNamesOfTheNetworkAndItsFrozenLayers) {
  Sequential inner = network();
  const auto names = inner->state_dict().keys();
  inner[0]->requires_grad_(false);
  Pipeline pipe(inner, PipelineOptions().devices(first(2)).chunks(2).balance({2, 3}));
  EXPECT_EQ(pipe->state_dict().keys(), names);
  EXPECT_EQ(pipe->stage(1)->size(), 3U);
  pipe->train_step(randn({4, 6}), randn({4, 3}),
                   [](const Tensor& y, const Tensor& t) { return (y - t).pow(2).mean(); });
  const auto parameters = pipe->named_parameters();
  EXPECT_FALSE(parameters["0.weight"].grad().defined());
  EXPECT_TRUE(parameters["2.weight"].grad().defined());
}

TEST_P(PipelineOver, TakesStagesAndIntegerInputs) {
  manual_seed(1);
  Embedding words(10, 4);
  Linear last(4, 2);
  const Tensor tokens = randint(10, {6, 3}, kLong), expected = last(words(tokens));
  Pipeline pipe(std::vector<AnyModule>{AnyModule(words), AnyModule(last)},
                PipelineOptions().devices(first(2)).chunks(4));
  EXPECT_TRUE(allclose(pipe(tokens).cpu(), expected));
  pipe->train_step(tokens, zeros({6, 3, 2}), [](const Tensor& y, const Tensor& t) { return (y - t).pow(2).mean(); });
  EXPECT_EQ(words->weight.grad().device(), on(0));
  EXPECT_TRUE(pipe->named_parameters().contains("0.weight"));
}

TEST_P(PipelineOver, AFailingStageEndsTheStepAndTheNextOneWorks) {
  bool fails = true;
  Sequential inner(Linear(6, 6), Functional([&](const Tensor& x) {
                     ATHANOR_CHECK(!fails, "the stage failed on purpose");
                     return x * 2;
                   }));
  Pipeline pipe(inner, PipelineOptions().devices(first(2)).chunks(2));
  const auto loss = [](const Tensor& y, const Tensor& t) { return (y - t).pow(2).mean(); };
  EXPECT_THAT(error_of([&] { pipe->train_step(ones({4, 6}), ones({4, 6}), loss); }), HasSubstr("failed on purpose"));
  fails = false;
  EXPECT_GT(pipe->train_step(ones({4, 6}), ones({4, 6}), loss).cpu().item<float>(), 0);
}

constinit Kernel<void(const View&)> broken_kernel{"test_broken_stage"};
void break_down(const View&) { ATHANOR_THROW(ValueError, "the stage broke down on purpose"); }
ATHANOR_REGISTER_KERNEL(broken_kernel, CPU, &break_down);

TEST_P(PipelineOver, AFailureInAQueueIsReportedAndHarmsNothingElse) {
  for (const auto schedule : {PipelineSchedule::FillDrain, PipelineSchedule::OneForwardOneBackward}) {
    bool fails = true;
    Linear first_stage(6, 6), alone(6, 6);
    alone->load_state_dict(first_stage->state_dict());
    Sequential inner(first_stage, Functional([&](const Tensor& x) {
                       Tensor y = x * 2;
                       if (std::exchange(fails, false)) launch(broken_kernel, y);
                       return y;
                     }));
    Pipeline pipe(inner, PipelineOptions().devices(first(2)).chunks(4).schedule(schedule));
    const auto loss = [](const Tensor& y, const Tensor& t) { return (y - t).pow(2).mean(); };
    const Tensor x = ones({8, 6}), other = full({4}, 3.0, TensorOptions(on(0)));
    const Tensor value = pipe->train_step(x, x, loss), unharmed = other * 2;
    EXPECT_THAT(error_of([] { synchronize(on(1)); }),
                AllOf(HasSubstr("broke down on purpose"), HasSubstr("enqueued on cpu:1")));
    for (const Device device : first(2)) EXPECT_NO_THROW(synchronize(device));
    EXPECT_EQ(unharmed.sum().item<float>(), 24);
    EXPECT_THAT(error_of([&] { static_cast<void>(value.cpu()); }), HasSubstr("broke down on purpose"));
    EXPECT_TRUE(first_stage->weight.cpu().equal(alone->weight));
    pipe->zero_grad();
    EXPECT_GT(pipe->train_step(x, x, loss).cpu().item<float>(), 0);
    loss(alone(x) * 2, x).backward();
    EXPECT_TRUE(allclose(first_stage->weight.grad().cpu(), alone->weight.grad(), 1e-5, 1e-6));
  }
}

TEST_P(PipelineOver, RefusesWhatDoesNotFit) {
  const auto make = [&](PipelineOptions options) { Pipeline(network(), options.devices(first(2))); };
  EXPECT_THAT(error_of([&] {
                make(PipelineOptions().balance({2, 2}));
              }),
              AllOf(HasSubstr("[2, 2]"), HasSubstr("4 layers, there are 5")));
  EXPECT_THAT(error_of([&] { make(PipelineOptions().balance({5, 0})); }), HasSubstr("every stage needs a layer"));
  EXPECT_THAT(error_of([&] {
                make(PipelineOptions().balance({1, 2, 2}));
              }),
              HasSubstr("3 stages, there are 2 devices"));
  EXPECT_THAT(error_of([&] { make(PipelineOptions().chunks(0)); }), HasSubstr("chunks must be positive, got 0"));
  EXPECT_THAT(error_of([&] { make(PipelineOptions().split_size(-1)); }), HasSubstr("split_size"));
  EXPECT_THAT(error_of([&] { make(PipelineOptions().split_size(0)); }),
              HasSubstr("split_size must be positive, got 0"));
  EXPECT_THAT(error_of([&] { make(PipelineOptions().checkpoint(std::vector(3, PipelineCheckpoint::Always))); }),
              HasSubstr("checkpoint says how for 3 stages, there are 2"));
  EXPECT_THAT(error_of([] { Pipeline(network(), PipelineOptions().devices({on(0), on(60)})); }), HasSubstr("cpu:60"));
  const std::vector<AnyModule> one_stage{AnyModule(Linear(6, 6))};
  EXPECT_THAT(error_of([&] { Pipeline(one_stage, PipelineOptions().devices(first(2))); }),
              HasSubstr("1 stages for 2 devices"));
  EXPECT_THAT(error_of([&] { Pipeline(one_stage, PipelineOptions().devices(first(1)).balance({1})); }),
              HasSubstr("balance is for a Sequential"));
  Pipeline pipe(network(), PipelineOptions().devices(first(2)).split_size(4));
  EXPECT_THAT(error_of([&] { pipe(ones({3, 6})); }), HasSubstr("split_size 4 is beyond the batch of 3"));
  EXPECT_THAT(error_of([&] { pipe(ones({0, 6})); }), HasSubstr("empty batch"));
  EXPECT_THAT(error_of([&] { pipe(tensor(1.0)); }), HasSubstr("0-d"));
  const auto loss = [](const Tensor& y, const Tensor&) { return y; };
  EXPECT_THAT(error_of([&] { pipe->train_step(ones({4, 6}), ones({5, 3}), loss); }), HasSubstr("a batch of 4"));
  EXPECT_THAT(error_of([&] { pipe->train_step(ones({4, 6}), ones({4, 3}), loss); }), HasSubstr("must be a scalar"));
}

TEST_P(PipelineOver, RefusesStagesThatShareAParameter) {
  const auto tied = [] {
    Linear a(4, 4), b(4, 4);
    b->unregister_parameter("bias");
    b->bias = b->register_parameter("bias", a->bias);
    return Sequential(a, ReLU(), b);
  };
  const auto said = error_of([&] { Pipeline(tied(), PipelineOptions().devices(first(2)).balance({1, 2})); });
  EXPECT_THAT(said,
              AllOf(HasSubstr("parameter '0.bias' of stage 0 on cpu:0"), HasSubstr("'2.bias' of stage 1 on cpu:1")));
  EXPECT_EQ(error_of([&] { Pipeline(Sequential(tied(), Linear(4, 4)), PipelineOptions().devices(first(2))); }), "");
  Linear twice(4, 4);
  EXPECT_THAT(error_of([&] { Pipeline(Sequential(twice, twice), PipelineOptions().devices(first(2))); }),
              AllOf(HasSubstr("'0.weight' of stage 0"), HasSubstr("'1.weight' of stage 1")));
  BatchNorm1d a(4), b(4);
  b->unregister_buffer("running_mean");
  b->running_mean = b->register_buffer("running_mean", a->running_mean);
  EXPECT_THAT(error_of([&] { Pipeline(Sequential(a, b), PipelineOptions().devices(first(2))); }),
              HasSubstr("buffer '0.running_mean' of stage 0"));
  EXPECT_TRUE(twice->weight.device().is_host());
  Pipeline(Sequential(twice, twice), PipelineOptions().devices({on(1), on(1)}))(ones({2, 4}));
}

// As the header says: statistics of each micro-batch, running ones updated by each, and again where it is computed
// again.
TEST_P(PipelineOver, BatchNormSeesMicroBatches) {
  using How = PipelineCheckpoint;
  const std::pair<How, std::int64_t> cases[] = {{How::Never, 4}, {How::ExceptLast, 7}, {How::Always, 8}};
  for (const auto& [how, updates] : cases) {
    manual_seed(3);
    Sequential inner(Linear(3, 5), BatchNorm1d(5), Linear(5, 2)), alone(Linear(3, 5), BatchNorm1d(5), Linear(5, 2));
    inner->to(kDouble);
    alone->to(kDouble);
    alone->load_state_dict(inner->state_dict());
    Pipeline pipe(inner, PipelineOptions().devices(first(2)).balance({2, 1}).chunks(4).checkpoint(how));
    const Tensor x = randn({12, 3}, kDouble), t = randn({12, 2}, kDouble);
    pipe->train_step(x, t, [](const Tensor& y, const Tensor& to) { return functional::mse_loss(y, to); });
    const auto got = inner->named_buffers();
    EXPECT_EQ(got["1.num_batches_tracked"].cpu().item<std::int64_t>(), updates);
    for (const Tensor& part : x.chunk(4)) alone(part);
    if (how == How::Never) {
      EXPECT_TRUE(allclose(got["1.running_mean"].cpu(), alone->named_buffers()["1.running_mean"], 1e-10, 1e-12));
      EXPECT_TRUE(allclose(got["1.running_var"].cpu(), alone->named_buffers()["1.running_var"], 1e-10, 1e-12));
    }
    for (std::size_t m = 0; m < 4; ++m) functional::mse_loss(alone(x.chunk(4)[m]), t.chunk(4)[m]).div(4).backward();
    for (std::size_t i = 0; i < inner->parameters().size(); ++i)
      EXPECT_TRUE(allclose(inner->parameters()[i].grad().cpu(), alone->parameters()[i].grad(), 1e-10, 1e-12)) << i;
  }
}

// What is computed again for backward drops what forward dropped, or gradients would be of another function.
TEST_P(PipelineOver, CheckpointedStagesDropTheSameTwice) {
  std::vector<std::vector<Tensor>> gradients;
  for (const auto how : {PipelineCheckpoint::Never, PipelineCheckpoint::ExceptLast, PipelineCheckpoint::Always}) {
    manual_seed(6);
    Sequential inner(Linear(6, 16), Dropout(0.5), Linear(16, 16), Dropout(0.5), Linear(16, 3));
    inner->to(kDouble);
    Pipeline pipe(inner, PipelineOptions().devices(first(2)).chunks(3).checkpoint(how));
    const Tensor x = randn({9, 6}, kDouble), t = randn({9, 3}, kDouble);
    manual_seed(7);
    pipe->train_step(x, t, [](const Tensor& y, const Tensor& to) { return functional::mse_loss(y, to); });
    std::vector<Tensor>& all = gradients.emplace_back();
    for (const Tensor& p : inner->parameters()) all.push_back(p.grad().cpu());
  }
  for (std::size_t i = 0; i < gradients[0].size(); ++i) {
    EXPECT_GT(gradients[0][i].abs().sum().item<double>(), 0);
    for (const std::size_t how : {1, 2}) EXPECT_TRUE(allclose(gradients[how][i], gradients[0][i], 1e-10, 1e-12)) << i;
  }
}

TEST_P(PipelineOver, AFailureLeavesTheGradientsOfWhatCameThrough) {
  Linear layer(2, 2);
  Pipeline pipe(Sequential(layer, Tanh()),
                PipelineOptions().devices(first(2)).chunks(2).schedule(PipelineSchedule::OneForwardOneBackward));
  int calls = 0;
  const auto loss = [&](const Tensor& y, const Tensor& t) {
    ATHANOR_CHECK(++calls < 2, "failed on purpose");
    return functional::mse_loss(y, t);
  };
  EXPECT_THAT(error_of([&] { pipe->train_step(ones({4, 2}), zeros({4, 2}), loss); }), HasSubstr("failed on purpose"));
  EXPECT_TRUE(layer->weight.grad().defined());
}

TEST(PipelineOnTheHost, ComputesTheSameWithoutQueues) {
  manual_seed(2);
  Sequential alone = network(), inner = network();
  inner->load_state_dict(alone->state_dict());
  Pipeline pipe(inner, PipelineOptions().devices({Device(), Device()}).chunks(3));
  const Tensor x = randn({8, 6});
  EXPECT_TRUE(allclose(pipe(x), alone(x), 1e-5, 1e-6));
}

TEST(PipelineBalance, CutsWhereTheGreatestPartIsLeast) {
  EXPECT_THAT(balance_by_cost({1, 1, 1, 1}, 2), ElementsAre(2, 2));
  EXPECT_THAT(balance_by_cost({5, 1, 1, 1, 1}, 2), ElementsAre(1, 4));
  EXPECT_THAT(balance_by_cost({1, 2, 3, 4, 5, 6}, 3), ElementsAre(3, 2, 1));
  EXPECT_THAT(balance_by_cost({1, 1}, 2), ElementsAre(1, 1));
  EXPECT_THROW(balance_by_cost({1}, 2), ValueError);
}

TEST(PipelineBalance, MeasuresLayersAndLeavesThemAsTheyWere) {
  Sequential net(Linear(8, 400), BatchNorm1d(400), ReLU(ReLUOptions().inplace(true)), Linear(400, 4));
  const auto parts = balance_by_time(net, randn({64, 8}), 2);
  EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), std::int64_t{0}), 4);
  EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<std::int64_t>(), 0);
  for (const Tensor& p : net->parameters()) EXPECT_FALSE(p.grad().defined());
  EXPECT_THAT(balance_by_size(net, randn({2, 8}), 2), ElementsAre(1, 3));
}

TEST(PipelineBalance, GivesASlowLayerADeviceOfItsOwn) {
  const auto light = [] { return Functional([](const Tensor& x) { return x * 1; }); };
  const auto slow = Functional([](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 20; ++i) y = y.matmul(x).tanh();
    return y;
  });
  const Tensor sample = randn({64, 64});
  EXPECT_THAT(balance_by_time(Sequential(slow, light(), light(), light()), sample, 2), ElementsAre(1, 3));
  EXPECT_THAT(balance_by_time(Sequential(light(), light(), light(), slow), sample, 2), ElementsAre(3, 1));
}

// k micro-batches of a loss over k are one step of the whole batch, without any pipeline.
TEST(GradientAccumulation, OfMicroBatchesIsTheWholeBatch) {
  manual_seed(2);
  Sequential whole = network(), parts = network();
  whole->to(kDouble);
  parts->to(kDouble);
  parts->load_state_dict(whole->state_dict());
  optim::SGD one(whole->parameters(), optim::SGDOptions(0.1).momentum(0.9)),
      many(parts->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  for (const std::int64_t k : {1, 2, 4, 8}) {
    const Tensor x = randn({8, 6}, kDouble), t = randn({8, 3}, kDouble);
    one.zero_grad();
    many.zero_grad();
    functional::mse_loss(whole(x), t).backward();
    const auto xs = x.chunk(k), ts = t.chunk(k);
    for (std::size_t i = 0; i < xs.size(); ++i)
      (functional::mse_loss(parts(xs[i]), ts[i]) / static_cast<double>(k)).backward();
    for (std::size_t i = 0; i < whole->parameters().size(); ++i)
      EXPECT_TRUE(allclose(parts->parameters()[i].grad(), whole->parameters()[i].grad(), 1e-10, 1e-12)) << k;
    one.step();
    many.step();
  }
  for (std::size_t i = 0; i < whole->parameters().size(); ++i)
    EXPECT_TRUE(allclose(parts->parameters()[i], whole->parameters()[i], 1e-10, 1e-12));
}

TEST(PipelineBalance, TakesFrozenLayersAndLeavesNamesInErrors) {
  Sequential net(Linear(8, 8), Tanh(), Linear(8, 4));
  for (Tensor p : net->children()[0]->parameters()) p.requires_grad_(false);
  balance_by_time(net, randn({4, 8}), 2, 1);
  balance_by_size(net, randn({4, 8}), 2);
  EXPECT_THAT(error_of([&] { net(ones({2, 9})); }), HasSubstr("\nin 0"));
  EXPECT_EQ(net->children()[2]->path(), "2");
}

}  // namespace
}  // namespace athanor::nn::parallel::pipeline_test
