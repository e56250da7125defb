// A convolutional net on files in MNIST's format, through datasets, transforms and a loader.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "values.h"

namespace {

void put(std::ofstream& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.put(static_cast<char>(value >> shift & 255));
}

/// Bars at a place that depends on the label. libtorch takes files of MNIST's full size only; images beyond `drawn`
/// stay empty.
void write_split(const std::string& folder, const std::string& name, std::uint32_t count, std::uint32_t drawn) {
  std::ofstream images(folder + "/" + name + "-images-idx3-ubyte", std::ios::binary);
  std::ofstream labels(folder + "/" + name + "-labels-idx1-ubyte", std::ios::binary);
  put(images, 2051), put(images, count), put(images, 28), put(images, 28);
  put(labels, 2049), put(labels, count);
  std::string image(784, 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t label = i * 7 % 10;
    labels.put(static_cast<char>(label));
    for (std::uint32_t p = 0; p < 784 && i < drawn; ++p) {
      const bool ink = p / 28 / 3 == label || p % 28 / 3 == label;
      image[p] = static_cast<char>(ink ? 200 + (i + p) % 50 : (i * p) % 40);
    }
    images << image;
  }
}

struct Net : torch::nn::Module {
  Net()
      : conv1(torch::nn::Conv2dOptions(1, 6, /*kernel_size=*/5)),
        conv2(torch::nn::Conv2dOptions(6, 8, /*kernel_size=*/5)),
        fc1(128, 20),
        fc2(20, 10) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1->forward(x), 2));
    x = torch::relu(torch::max_pool2d(conv2->forward(x), 2));
    x = x.view({-1, 128});
    x = torch::relu(fc1->forward(x));
    return torch::log_softmax(fc2->forward(x), /*dim=*/1);
  }
  torch::nn::Conv2d conv1;
  torch::nn::Conv2d conv2;
  torch::nn::Linear fc1;
  torch::nn::Linear fc2;
};

template <typename DataLoader>
void train(int32_t epoch, Net& model, torch::Device device, DataLoader& data_loader, torch::optim::Optimizer& optimizer,
           size_t most) {
  model.train();
  size_t seen = 0;
  for (auto& batch : data_loader) {
    auto data = batch.data.to(device), targets = batch.target.to(device);
    optimizer.zero_grad();
    auto output = model.forward(data);
    auto loss = torch::nll_loss(output, targets);
    TORCH_CHECK(!std::isnan(loss.template item<float>()), "the loss is not a number");
    loss.backward();
    optimizer.step();
    seen += static_cast<size_t>(data.size(0));
    if (seen % 64 == 0) std::printf("epoch %d %zu loss %.5f\n", epoch, seen, loss.template item<float>());
    if (seen >= most) break;
  }
}

template <typename DataLoader>
void test(Net& model, torch::Device device, DataLoader& data_loader, int64_t most) {
  torch::NoGradGuard no_grad;
  model.eval();
  double test_loss = 0;
  int64_t correct = 0, seen = 0;
  for (const auto& batch : data_loader) {
    auto data = batch.data.to(device), targets = batch.target.to(device);
    auto output = model.forward(data);
    test_loss += torch::nll_loss(output, targets, /*weight=*/{}, at::Reduction::Sum).template item<double>();
    auto pred = output.argmax(1);
    correct += pred.eq(targets).sum().template item<int64_t>();
    seen += targets.size(0);
    if (seen >= most) break;
  }
  std::printf("test loss %.5f accuracy %.3f\n", test_loss / static_cast<double>(seen),
              static_cast<double>(correct) / static_cast<double>(seen));
}

}  // namespace

int main() {
  std::string folder = (std::filesystem::temp_directory_path() / "compat_mnist_XXXXXX").string();
  if (!mkdtemp(folder.data())) return 1;
  write_split(folder, "train", 60000, 512);
  write_split(folder, "t10k", 10000, 60);

  torch::manual_seed(1);
  torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  Net model;
  fill(model);
  model.to(device);

  auto train_dataset = torch::data::datasets::MNIST(folder)
                           .map(torch::data::transforms::Normalize<>(0.1307, 0.3081))
                           .map(torch::data::transforms::Stack<>());
  std::printf("%zu images\n", train_dataset.size().value());
  auto train_loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      std::move(train_dataset), torch::data::DataLoaderOptions().batch_size(16).workers(2));
  auto test_dataset = torch::data::datasets::MNIST(folder, torch::data::datasets::MNIST::Mode::kTest)
                          .map(torch::data::transforms::Normalize<>(0.1307, 0.3081))
                          .map(torch::data::transforms::Stack<>());
  const std::size_t test_batch_size = 20;
  auto test_loader =
      torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(std::move(test_dataset), test_batch_size);

  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));
  // A pass that is broken off is the only one a loader of libtorch makes.
  train(1, model, device, *train_loader, optimizer, 512);
  test(model, device, *test_loader, 60);
  std::filesystem::remove_all(folder);
}
