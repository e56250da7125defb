// What programs written against libtorch lean on in training: optimizers, archives, containers, samplers, datasets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

namespace porting_training_test {
namespace {

namespace datasets = torch::data::datasets;
namespace samplers = torch::data::samplers;
namespace transforms = torch::data::transforms;
using testing::ElementsAre;
using testing::HasSubstr;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no error";
}

TEST(PortedOptim, AChainOfAdamWOptionsStaysThat) {
  torch::Tensor x = torch::ones({2}, torch::requires_grad());
  torch::optim::AdamW adam({x}, torch::optim::AdamWOptions(0.1).weight_decay(0.5).betas({0.8, 0.9}).eps(1e-7));
  auto& options = static_cast<torch::optim::AdamWOptions&>(adam.param_groups()[0].options());
  EXPECT_EQ(options.weight_decay(), 0.5);
  EXPECT_EQ(std::get<0>(options.betas()), 0.8);
  EXPECT_TRUE(options == torch::optim::AdamWOptions(0.1).weight_decay(0.5).betas({0.8, 0.9}).eps(1e-7));
  EXPECT_FALSE(options == torch::optim::AdamWOptions(0.1));
  options.lr(0.2);
  EXPECT_EQ(adam.param_groups()[0].options().get_lr(), 0.2);
}

struct DescentOptions : torch::optim::OptimizerCloneableOptions<DescentOptions> {
  DescentOptions(double lr = 1.0) : lr_(lr) {}
  TORCH_ARG(double, lr) = 1.0;
};

struct Descent : torch::optim::Optimizer {
  explicit Descent(std::vector<torch::Tensor> params, DescentOptions defaults = {})
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(params))}, std::make_unique<DescentOptions>(defaults)) {}
  torch::Tensor step(LossClosure = nullptr) override {
    const torch::NoGradGuard off;
    for (auto& group : param_groups())
      for (auto& p : group.params())
        if (p.grad().defined()) p.sub_(p.grad() * static_cast<DescentOptions&>(group.options()).lr());
    return {};
  }
};

TEST(PortedOptim, OptimizersOfOnesOwnHaveCloneableOptions) {
  torch::Tensor x = torch::full({1}, 3.0, torch::requires_grad());
  Descent descent({x}, DescentOptions(0.25));
  torch::optim::StepLR schedule(descent, 1, 0.5);
  (x * x).sum().backward();
  descent.step();
  schedule.step();
  EXPECT_EQ(x.item<float>(), 1.5F);
  EXPECT_EQ(static_cast<DescentOptions&>(descent.param_groups()[0].options()).lr(), 0.125);
  torch::Tensor y = torch::ones({2}, torch::requires_grad());
  descent.add_parameters({y});
  EXPECT_EQ(descent.parameters().size(), 2U);
  EXPECT_EQ(descent.param_groups().size(), 1U);
  EXPECT_THAT(error_of([&] { descent.add_parameters({y}); }), HasSubstr("more than one parameter group"));
  EXPECT_EQ(descent.parameters().size(), 2U);
}

TEST(PortedArchives, GoThroughFunctionsAndMemory) {
  const torch::Tensor x = torch::arange(5, torch::kFloat);
  std::string bytes;
  torch::save(x, [&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  torch::Tensor y, z;
  torch::load(y, bytes.data(), bytes.size());
  EXPECT_TRUE(torch::equal(x, y));
  torch::load(
      z,
      [&](uint64_t at, void* to, size_t size) -> size_t {
        const size_t some = std::min<size_t>({size, bytes.size() - at, 100});
        std::memcpy(to, bytes.data() + at, some);
        return some;
      },
      [&]() -> size_t { return bytes.size(); });
  EXPECT_TRUE(torch::equal(x, z));
  EXPECT_THAT(error_of([&] { torch::save(x, [](const void*, size_t) -> size_t { return 1; }); }), HasSubstr("took 1"));
  EXPECT_THAT(error_of([&] {
                torch::load(
                    z, [](uint64_t, void*, size_t) -> size_t { return 0; }, []() -> size_t { return 9; });
              }),
              HasSubstr("0 bytes at position 0 of 9"));
}

TEST(PortedArchives, HoldValuesOfAnyKind) {
  std::stringstream stream;
  {
    torch::serialize::OutputArchive archive;
    archive.write("epoch", c10::IValue(int64_t{7}));
    archive.write("loss", c10::IValue(0.5));
    archive.write("name", c10::IValue("net"));
    archive.write("done", c10::IValue(true));
    archive.write("w", c10::IValue(torch::ones({2})));
    EXPECT_THAT(error_of([&] { archive.write("list", c10::IValue(std::vector<int64_t>{1})); }), HasSubstr("'list'"));
    archive.save_to(stream);
  }
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  c10::IValue value;
  archive.read("epoch", value);
  EXPECT_EQ(value.toInt(), 7);
  archive.read("loss", value);
  EXPECT_EQ(value.toDouble(), 0.5);
  archive.read("done", value);
  EXPECT_TRUE(value.toBool());
  archive.read("name", value);
  EXPECT_EQ(value.toStringRef(), "net");
  archive.read("w", value);
  EXPECT_EQ(value.toTensor().numel(), 2);
  EXPECT_FALSE(archive.try_read("missing", value));
  EXPECT_THAT(error_of([&] { archive.read("missing", value); }), HasSubstr("'missing'"));
}

TEST(PortedContainers, TakeInWhatOthersHold) {
  torch::nn::ParameterList a(torch::ones({1}), torch::ones({2}));
  const torch::nn::ParameterList b(torch::ones({3}));
  *a += *b;
  a->extend(std::vector<torch::Tensor>{torch::ones({4})});
  ASSERT_EQ(a->size(), 4U);
  EXPECT_EQ(a[2].numel(), 3);
  torch::nn::ParameterDict x, y;
  x->insert("p", torch::zeros({1}));
  y->insert("p", torch::ones({2}));
  y->insert("q", torch::ones({3}));
  x->update(*y);
  EXPECT_THAT(x->keys(), ElementsAre("p", "q"));
  EXPECT_EQ(x["p"].numel(), 2);
  torch::nn::ModuleDict m, n;
  n->insert("fc", torch::nn::Linear(1, 2));
  m->update(*n);
  EXPECT_TRUE(m->contains("fc"));
}

TEST(PortedLayers, TakeOptionsThatOnlyLibtorchHas) {
  namespace F = torch::nn::functional;
  const torch::Tensor x = torch::tensor({{3., 4.}}), out = torch::zeros({1, 2});
  F::normalize(x, F::NormalizeFuncOptions().p(2).dim(1).out(out));
  EXPECT_TRUE(torch::allclose(out, torch::tensor({{0.6, 0.8}})));
  EXPECT_TRUE(torch::equal(F::smooth_l1_loss(x, out, torch::kSum, 0.5),
                           F::smooth_l1_loss(x, out, F::SmoothL1LossFuncOptions(torch::kSum).beta(0.5))));
  EXPECT_EQ(torch::nn::Unfold(torch::IntArrayRef({2, 3}))(torch::ones({1, 1, 4, 4})).size(1), 6);
}

/// A request that is no list of indices.
struct Span : samplers::CustomBatchRequest {
  explicit Span(size_t first, size_t count) : first(first), count(count) {}
  size_t size() const override { return count; }
  size_t first, count;
};
struct SpanSampler : samplers::Sampler<Span> {
  void reset(torch::optional<size_t> = torch::nullopt) override { at = 0; }
  torch::optional<Span> next(size_t batch_size) override {
    if (at >= 6) return torch::nullopt;
    at += batch_size;
    return Span(at - batch_size, batch_size);
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  size_t at = 0;
};
struct Numbers : datasets::BatchDataset<Numbers, std::vector<int>, Span> {
  std::vector<int> get_batch(Span span) override {
    std::vector<int> batch(span.count);
    std::iota(batch.begin(), batch.end(), static_cast<int>(span.first));
    return batch;
  }
  torch::optional<size_t> size() const override { return 6; }
};

TEST(PortedData, RequestsOfOnesOwnReachTheDataset) {
  auto loader = torch::data::make_data_loader(Numbers().map(transforms::Collate<int>([](const std::vector<int>& all) {
    return std::accumulate(all.begin(), all.end(), 0);
  })),
                                              SpanSampler(), 3);
  std::vector<int> sums;
  for (const int sum : *loader) sums.push_back(sum);
  EXPECT_THAT(sums, ElementsAre(3, 12));
}

struct Countdown : datasets::StatefulDataset<Countdown, int, size_t> {
  torch::optional<int> get_batch(size_t) override {
    if (left == 0) return torch::nullopt;
    return --left;
  }
  torch::optional<size_t> size() const override { return torch::nullopt; }
  void reset() override { left = 3; }
  void save(torch::serialize::OutputArchive& archive) const override { archive.write("left", left); }
  void load(torch::serialize::InputArchive& archive) override { archive.read("left", left); }
  int left = 3;
};

TEST(PortedData, StreamsSaveWhereTheyStand) {
  Countdown stream;
  stream.get_batch(1);
  std::stringstream bytes;
  torch::save(stream, bytes);
  Countdown other;
  torch::load(other, bytes);
  EXPECT_EQ(other.left, 2);
  auto loader = torch::data::make_data_loader(Countdown{});
  int batches = 0;
  for ([[maybe_unused]] const int batch : *loader) ++batches;
  EXPECT_EQ(batches, 3);
}

TEST(PortedData, ASavedSamplerGoesOnWithTheSameIndices) {
  samplers::RandomSampler sampler(10);
  sampler.reset();
  sampler.next(4);
  std::stringstream bytes;
  torch::save(sampler, bytes);
  const auto rest = sampler.next(10);
  samplers::RandomSampler other(10);
  torch::load(other, bytes);
  EXPECT_EQ(other.index(), 4U);
  EXPECT_EQ(other.next(10), rest);
}

TEST(PortedData, ADistributedSamplerIsSavedWithItsEpoch) {
  samplers::DistributedRandomSampler sampler(10, 2, 1);
  sampler.set_epoch(3);
  sampler.reset();
  sampler.next(2);
  std::stringstream bytes;
  torch::save(sampler, bytes);
  samplers::DistributedRandomSampler other(10, 2, 1);
  torch::load(other, bytes);
  EXPECT_EQ(other.epoch(), 3U);
  EXPECT_EQ(other.next(5), sampler.next(5));
}

TEST(PortedData, IteratorsPastTheEndSaySo) {
  auto loader = torch::data::make_data_loader(
      torch::data::datasets::TensorDataset(torch::ones({2})).map(transforms::Stack<torch::data::TensorExample>()), 2);
  auto end = loader->end();
  EXPECT_THAT(error_of([&] { ++end; }), HasSubstr("past-the-end"));
  auto at = loader->begin();
  ++at;
  EXPECT_TRUE(at == loader->end());
  EXPECT_THAT(error_of([&] { ++at; }), HasSubstr("past the end"));
  EXPECT_THAT(error_of([&] { *at; }), HasSubstr("past the end"));
}

}  // namespace
}  // namespace porting_training_test
