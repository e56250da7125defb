// The training program that libtorch's users start from, line for line in their idiom: it must compile against
// <torch/torch.h> and learn.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "compat/digits.h"

namespace {

const int64_t kTrainBatchSize = 64;
const int64_t kTestBatchSize = 100;

struct Net : torch::nn::Module {
  Net()
      : conv1(torch::nn::Conv2dOptions(1, 10, /*kernel_size=*/5)),
        conv2(torch::nn::Conv2dOptions(10, 20, /*kernel_size=*/5)),
        fc1(320, 50),
        fc2(50, 10) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv2_drop", conv2_drop);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1->forward(x), 2));
    x = torch::relu(torch::max_pool2d(conv2_drop->forward(conv2->forward(x)), 2));
    x = x.view({-1, 320});
    x = torch::relu(fc1->forward(x));
    x = torch::dropout(x, /*p=*/0.1, /*train=*/is_training());
    x = fc2->forward(x);
    return torch::log_softmax(x, /*dim=*/1);
  }

  torch::nn::Conv2d conv1;
  torch::nn::Conv2d conv2;
  torch::nn::Dropout2d conv2_drop{torch::nn::Dropout2dOptions(0.1)};
  torch::nn::Linear fc1;
  torch::nn::Linear fc2;
};

template <typename DataLoader>
float train(Net& model, torch::Device device, DataLoader& data_loader, torch::optim::Optimizer& optimizer) {
  model.train();
  float last = 0;
  for (auto& batch : data_loader) {
    auto data = batch.data.to(device), targets = batch.target.to(device);
    optimizer.zero_grad();
    auto output = model.forward(data);
    auto loss = torch::nll_loss(output, targets);
    AT_ASSERT(!std::isnan(loss.template item<float>()));
    loss.backward();
    optimizer.step();
    last = loss.template item<float>();
  }
  return last;
}

template <typename DataLoader>
double test(Net& model, torch::Device device, DataLoader& data_loader, size_t dataset_size, double* loss) {
  torch::NoGradGuard no_grad;
  model.eval();
  double test_loss = 0;
  int64_t correct = 0;
  for (const auto& batch : data_loader) {
    auto data = batch.data.to(device), targets = batch.target.to(device);
    auto output = model.forward(data);
    test_loss += torch::nll_loss(output, targets, /*weight=*/{}, torch::Reduction::Sum).template item<float>();
    auto pred = output.argmax(1);
    correct += pred.eq(targets).sum().template item<int64_t>();
  }
  *loss = test_loss / static_cast<double>(dataset_size);
  return static_cast<double>(correct) / static_cast<double>(dataset_size);
}

}  // namespace

TEST(TorchProgram, MnistTrainsAndTests) {
  const DigitsFolder folder(2000, 300);
  torch::manual_seed(1);
  torch::DeviceType device_type = torch::cuda::is_available() ? torch::kCUDA : torch::kCPU;
  torch::Device device(device_type);

  Net model;
  model.to(device);

  auto train_dataset = torch::data::datasets::MNIST(folder.path())
                           .map(torch::data::transforms::Normalize<>(0.1307, 0.3081))
                           .map(torch::data::transforms::Stack<>());
  const size_t train_dataset_size = train_dataset.size().value();
  EXPECT_EQ(train_dataset_size, 2000U);
  auto train_loader =
      torch::data::make_data_loader<torch::data::samplers::RandomSampler>(std::move(train_dataset), kTrainBatchSize);

  auto test_dataset = torch::data::datasets::MNIST(folder.path(), torch::data::datasets::MNIST::Mode::kTest)
                          .map(torch::data::transforms::Normalize<>(0.1307, 0.3081))
                          .map(torch::data::transforms::Stack<>());
  const size_t test_dataset_size = test_dataset.size().value();
  auto test_loader = torch::data::make_data_loader(std::move(test_dataset), kTestBatchSize);

  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.05).momentum(0.5));

  double accuracy = 0, loss = 0;
  for (size_t epoch = 1; epoch <= 4; ++epoch) {
    train(model, device, *train_loader, optimizer);
    accuracy = test(model, device, *test_loader, test_dataset_size, &loss);
  }
  EXPECT_GT(accuracy, 0.8);
  EXPECT_LT(loss, 0.7);
}

TEST(TorchProgram, MnistDatasetIsLibtorchs) {
  const DigitsFolder folder(20, 7);
  torch::data::datasets::MNIST train(folder.path()), test(folder.path(), torch::data::datasets::MNIST::Mode::kTest);
  EXPECT_TRUE(train.is_train());
  EXPECT_FALSE(test.is_train());
  EXPECT_EQ(test.size(), 7U);
  EXPECT_EQ(train.images().sizes(), (std::vector<int64_t>{20, 1, 28, 28}));
  EXPECT_EQ(train.images().dtype(), torch::kFloat32);
  EXPECT_EQ(train.targets().dtype(), torch::kInt64);
  EXPECT_LE(train.images().max().item<float>(), 1.0F);
  torch::data::Example<> third = train.get(3);
  EXPECT_TRUE(torch::equal(third.data, train.images()[3]));
  EXPECT_TRUE(torch::equal(third.target, train.targets()[3]));
  const std::vector<size_t> indices{3, 0, 19};
  auto batch = train.map(torch::data::transforms::Stack<>()).get_batch(indices);
  EXPECT_TRUE(torch::equal(batch.data[2], train.images()[19]));
  EXPECT_THROW(train.get(20), std::exception);
  EXPECT_THROW(torch::data::datasets::MNIST(folder / "nowhere"), std::exception);
}

TEST(TorchProgram, ModelsOptimizersAndTensorsAreSavedAndLoaded) {
  const DigitsFolder folder(1, 1);
  torch::manual_seed(2);
  auto model = std::make_shared<Net>();
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3));
  auto x = torch::randn({4, 1, 28, 28});
  model->forward(x).sum().backward();
  optimizer.step();
  torch::save(model, folder / "model.pt");
  torch::save(optimizer, folder / "optimizer.pt");

  auto other = std::make_shared<Net>();
  torch::optim::Adam other_optimizer(other->parameters(), torch::optim::AdamOptions(0.5));
  torch::load(other, folder / "model.pt");
  torch::load(other_optimizer, folder / "optimizer.pt");
  model->eval();
  other->eval();
  EXPECT_TRUE(torch::equal(model->forward(x), other->forward(x)));
  auto options = static_cast<torch::optim::AdamOptions&>(other_optimizer.param_groups()[0].options());
  EXPECT_EQ(options.lr(), 1e-3);
  for (auto* pair : {&optimizer, &other_optimizer}) {
    pair->zero_grad();
    (pair == &optimizer ? model : other)->forward(x).pow(2).sum().backward();
    pair->step();
  }
  EXPECT_TRUE(torch::equal(model->fc1->weight, other->fc1->weight));

  torch::save((x + 1.0) / 2.0, folder / torch::str("sample-", 1, ".pt"));
  torch::Tensor back;
  torch::load(back, folder / "sample-1.pt");
  EXPECT_TRUE(torch::equal(back, (x + 1.0) / 2.0));

  std::stringstream stream;
  torch::save(std::vector<torch::Tensor>{x, x.sum()}, stream);
  std::vector<torch::Tensor> list;
  torch::load(list, stream);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_TRUE(torch::equal(list[1], x.sum()));

  torch::nn::Linear wrong(3, 4);
  EXPECT_THROW(torch::load(wrong, folder / "model.pt"), std::exception);
}

TEST(TorchProgram, ArchivesHoldNumbersAndNest) {
  const DigitsFolder folder(1, 1);
  torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::ReLU(), torch::nn::Linear(3, 1));
  torch::serialize::OutputArchive model, all;
  net->save(model);
  all.write("model", model);
  all.write("epoch", 7);
  all.write("loss", 0.1);
  all.write("name", std::string("first"));
  all.save_to(folder / "all.pt");

  torch::serialize::InputArchive in, nested;
  in.load_from(folder / "all.pt");
  in.read("model", nested);
  torch::nn::Sequential other(torch::nn::Linear(2, 3), torch::nn::ReLU(), torch::nn::Linear(3, 1));
  other->load(nested);
  EXPECT_TRUE(torch::equal(net->forward(torch::ones({1, 2})), other->forward(torch::ones({1, 2}))));
  int epoch = 0;
  double loss = 0;
  std::string name;
  in.read("epoch", epoch);
  in.read("loss", loss);
  in.read("name", name);
  EXPECT_EQ(epoch, 7);
  EXPECT_EQ(loss, 0.1);
  EXPECT_EQ(name, "first");
  EXPECT_FALSE(in.try_read("nothing", nested));
  torch::Tensor t;
  EXPECT_THROW(in.read("nothing", t), std::exception);
}
