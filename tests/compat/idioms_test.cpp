// Smaller idioms of programs written against libtorch.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <optional>
#include <sstream>
#include <vector>

namespace {

/// A data set of one's own.
class Squares : public torch::data::datasets::Dataset<Squares> {
 public:
  explicit Squares(int64_t n) : n_(n) {}
  torch::data::Example<> get(size_t index) override {
    auto x = torch::tensor(static_cast<double>(index));
    return {x, x * x};
  }
  torch::optional<size_t> size() const override { return static_cast<size_t>(n_); }

 private:
  int64_t n_;
};

/// Numbers from 0 on until the limit; where a batch ends is the stream's business.
class Stream : public torch::data::datasets::StatefulDataset<Stream, std::vector<torch::data::Example<>>> {
 public:
  explicit Stream(int limit) : limit_(limit), next_(std::make_shared<std::atomic<int>>(0)) {}
  torch::optional<std::vector<torch::data::Example<>>> get_batch(size_t wanted) override {
    std::vector<torch::data::Example<>> batch;
    while (batch.size() < wanted) {
      const int i = (*next_)++;
      if (i >= limit_) break;
      batch.emplace_back(torch::full({1}, i), torch::zeros({1}));
    }
    if (batch.empty()) return torch::nullopt;
    return batch;
  }
  torch::optional<size_t> size() const override { return torch::nullopt; }
  void reset() override { *next_ = 0; }

 private:
  int limit_;
  std::shared_ptr<std::atomic<int>> next_;
};

struct ScaleImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x, double factor = 2.0, int64_t shift = 1) {
    return x * factor + static_cast<double>(shift);
  }

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(2.0)}, {2, torch::nn::AnyValue(int64_t{1})})
};
TORCH_MODULE(Scale);

struct LinearWithMask : torch::nn::Module {
  LinearWithMask(int64_t in, int64_t out) : linear(register_module("linear", torch::nn::Linear(in, out))) {
    mask = register_buffer("mask", torch::ones({out}));
    scale = register_parameter("scale", torch::full({1}, 3.0), /*requires_grad=*/true);
  }
  torch::Tensor forward(const torch::Tensor& x) { return linear(x) * mask * scale; }
  torch::nn::Linear linear;
  torch::Tensor mask, scale;
};

}  // namespace

TEST(TorchIdioms, OwnDatasetIsLoadedInDoubles) {
  auto dataset = Squares(10).map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      std::move(dataset), torch::data::DataLoaderOptions().batch_size(4).workers(1).drop_last(true));
  int batches = 0;
  for (auto& batch : *loader) {
    EXPECT_TRUE(torch::equal(batch.target, batch.data * batch.data));
    EXPECT_EQ(batch.data.size(0), 4);
    ++batches;
  }
  EXPECT_EQ(batches, 2);
}

TEST(TorchIdioms, StreamsEndWhereTheySay) {
  for (const size_t workers : {0, 1, 3}) {
    auto loader = torch::data::make_data_loader(Stream(25).map(torch::data::transforms::Stack<>()),
                                                torch::data::DataLoaderOptions(4).workers(workers));
    for (int epoch = 0; epoch < 2; ++epoch) {
      double sum = 0;
      int64_t count = 0;
      for (auto& batch : *loader) {
        sum += batch.data.sum().item<double>();
        count += batch.data.size(0);
      }
      EXPECT_EQ(count, 25) << workers << " workers, epoch " << epoch;
      EXPECT_EQ(sum, 300);
    }
  }
}

TEST(TorchIdioms, TensorDatasetYieldsExamplesWithoutTarget) {
  auto x = torch::randn({6, 2});
  auto dataset =
      torch::data::datasets::TensorDataset(x).map(torch::data::transforms::Stack<torch::data::TensorExample>());
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(std::move(dataset), 4);
  std::vector<torch::Tensor> parts;
  for (torch::data::TensorExample& batch : *loader) parts.push_back(batch.data);
  EXPECT_TRUE(torch::equal(torch::cat(parts), x));
}

TEST(TorchIdioms, LambdasTransform) {
  auto dataset = Squares(4)
                     .map(torch::data::transforms::TensorLambda<>([](torch::Tensor t) { return t + 1; }))
                     .map(torch::data::transforms::Lambda<torch::data::Example<>>([](torch::data::Example<> e) {
                       e.target = -e.target;
                       return e;
                     }))
                     .map(torch::data::transforms::Stack<>());
  const std::vector<size_t> indices{2, 3};
  auto batch = dataset.get_batch(indices);
  EXPECT_TRUE(torch::equal(batch.data, torch::tensor({3.0, 4.0})));
  EXPECT_TRUE(torch::equal(batch.target, torch::tensor({-4.0, -9.0})));
}

TEST(TorchIdioms, FunctionsAreLayersOfASequential) {
  torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::Functional(torch::relu),
                            torch::nn::Functional(torch::log_softmax, 1, torch::nullopt));
  auto x = torch::randn({2, 4});
  auto y = net->forward(x);
  EXPECT_TRUE(torch::allclose(y.exp().sum(1), torch::ones({2})));
  std::ostringstream text;
  text << net;
  EXPECT_NE(text.str().find("torch::nn::Functional()"), std::string::npos);
}

TEST(TorchIdioms, DefaultArgumentsOfForwardAreFilledIn) {
  auto net = torch::nn::Sequential(torch::nn::Identity(), Scale());
  auto x = torch::ones({2});
  EXPECT_TRUE(torch::equal(net->forward(x), x * 3));
  torch::nn::AnyModule any((Scale()));
  EXPECT_TRUE(torch::equal(any.forward(x), x * 3));
  EXPECT_TRUE(torch::equal(any.forward(x, 5.0), x * 6));
  EXPECT_TRUE(torch::equal(any.forward(x, 5.0, int64_t{0}), x * 5));
  try {
    any.forward();
    ADD_FAILURE() << "no argument was accepted";
  } catch (const c10::Error& e) {
    EXPECT_NE(std::string(e.what()).find("expects at least 1 argument(s) and at most 3"), std::string::npos)
        << e.what();
  }
}

TEST(TorchIdioms, NamedSequentialAndRegisteredTensors) {
  torch::nn::Sequential net({{"first", torch::nn::Linear(2, 3)}, {"act", torch::nn::Tanh()}});
  EXPECT_EQ(net->named_parameters().keys(), (std::vector<std::string>{"first.weight", "first.bias"}));
  LinearWithMask module(2, 3);
  EXPECT_EQ(module.named_parameters().size(), 3U);
  EXPECT_TRUE(module.named_buffers().contains("mask"));
  for (auto& item : module.named_parameters()) EXPECT_TRUE(item.value().requires_grad()) << item.key();
  module.to(torch::kFloat64);
  EXPECT_EQ(module.mask.dtype(), torch::kFloat64);
}

TEST(TorchIdioms, LearningRateIsChangedThroughTheGroups) {
  torch::nn::Linear net(2, 1);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{net->weight},
                      std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.5).weight_decay(0.1)));
  groups.emplace_back(std::vector<torch::Tensor>{net->bias});
  torch::optim::SGD optimizer(groups, torch::optim::SGDOptions(0.25).momentum(0.9));
  for (auto& group : optimizer.param_groups()) {
    if (group.has_options()) {
      auto& options = static_cast<torch::optim::SGDOptions&>(group.options());
      options.lr(options.lr() * 0.1);
    }
  }
  EXPECT_DOUBLE_EQ(static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr(), 0.05);
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[1].options().get_lr(), 0.025);
  torch::optim::StepLR schedule(optimizer, /*step_size=*/1, /*gamma=*/0.5);
  schedule.step();
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].options().get_lr(), 0.025);
}

TEST(TorchIdioms, ConvolutionsTakePaddingByName) {
  auto x = torch::randn({1, 2, 7, 8}), w = torch::randn({3, 2, 3, 2});
  EXPECT_EQ(torch::conv2d(x, w, {}, 1, "same").sizes(), (std::vector<int64_t>{1, 3, 7, 8}));
  EXPECT_TRUE(torch::equal(torch::conv2d(x, w, {}, 1, "valid"), torch::conv2d(x, w)));
  namespace F = torch::nn::functional;
  EXPECT_TRUE(
      torch::equal(F::conv2d(x, w, F::Conv2dFuncOptions().padding(torch::kSame)), torch::conv2d(x, w, {}, 1, "same")));
  EXPECT_THROW(torch::conv2d(x, w, {}, 1, "full"), std::exception);
  EXPECT_THROW(torch::conv2d(x, w, {}, 2, "same"), std::exception);
}

TEST(TorchIdioms, HigherOrderGradientsAndFunctionsOfOnesOwn) {
  auto x = torch::tensor({1.5, -2.0}, torch::dtype(torch::kFloat64).requires_grad(true));
  auto y = x.pow(3).sum();
  auto gradient = torch::autograd::grad({y}, {x}, /*grad_outputs=*/{}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  gradient.pow(2).sum().backward();
  EXPECT_TRUE(torch::allclose(x.grad(), 36 * x.detach().pow(3)));

  class Twice : public torch::autograd::Function<Twice> {
   public:
    static torch::Tensor forward(torch::autograd::AutogradContext* ctx, torch::Tensor input) {
      ctx->save_for_backward({input});
      return input * 2;
    }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::tensor_list grads) {
      EXPECT_EQ(ctx->get_saved_variables().size(), 1U);
      return {grads[0] * 2};
    }
  };
  auto z = torch::ones({3}, torch::requires_grad());
  Twice::apply(z).sum().backward();
  EXPECT_TRUE(torch::equal(z.grad(), torch::full({3}, 2.0)));
}

TEST(TorchIdioms, TensorsAreMadeIndexedAndPrinted) {
  auto options = torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCPU).requires_grad(false);
  torch::Tensor t = torch::zeros({2, 3}, options);
  t[0][1] = 5;
  t.index_put_({1, torch::indexing::Slice(1, 3)}, 7);
  EXPECT_EQ(t.index({0, 1}).item<float>(), 5.0F);
  EXPECT_EQ(t.sum().item<float>(), 19.0F);
  auto accessor = t.accessor<float, 2>();
  EXPECT_EQ(accessor[1][2], 7.0F);
  std::ostringstream text;
  text << t << '\n' << t.sizes();
  EXPECT_NE(text.str().find("[2, 3]"), std::string::npos);
  std::vector<float> values{1, 2, 3, 4};
  auto blob = torch::from_blob(values.data(), {2, 2});
  EXPECT_EQ(blob.t()[0][1].item<float>(), 3.0F);
}

// How libtorch's users read the state_dict that Python's torch.save wrote.
TEST(Idioms, WeightsFromAPickle) {
  c10::Dict<c10::IValue, c10::IValue> saved;
  saved.insert("weight", torch::ones({3, 2}));
  saved.insert("bias", torch::zeros({3}));
  std::vector<char> bytes = torch::pickle_save(saved);

  torch::nn::Linear layer(2, 3);
  c10::Dict<c10::IValue, c10::IValue> weights = torch::pickle_load(bytes).toGenericDict();
  torch::NoGradGuard no_grad;
  auto parameters = layer->named_parameters();
  for (auto const& w : weights) {
    std::string name = w.key().toStringRef();
    at::Tensor value = w.value().toTensor();
    if (auto* parameter = parameters.find(name)) parameter->copy_(value);
  }
  EXPECT_TRUE(torch::equal(layer->forward(torch::ones({1, 2})), torch::full({1, 3}, 2.0)));
}
