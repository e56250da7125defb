// Two networks trained against each other, in the idiom of libtorch's users: TORCH_MODULE, Sequential with options,
// Adam with betas, checkpoints in between.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <tuple>

#include "compat/digits.h"

namespace {

const int64_t kNoiseSize = 20;

struct DCGANGeneratorImpl : torch::nn::Module {
  explicit DCGANGeneratorImpl(int noise_size)
      : conv1(torch::nn::ConvTranspose2dOptions(noise_size, 32, 4).bias(false)),
        batch_norm1(32),
        conv2(torch::nn::ConvTranspose2dOptions(32, 16, 3).stride(2).padding(1).bias(false)),
        batch_norm2(16),
        conv3(torch::nn::ConvTranspose2dOptions(16, 8, 4).stride(2).padding(1).bias(false)),
        batch_norm3(8),
        conv4(torch::nn::ConvTranspose2dOptions(8, 1, 4).stride(2).padding(1).bias(false)) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv3", conv3);
    register_module("conv4", conv4);
    register_module("batch_norm1", batch_norm1);
    register_module("batch_norm2", batch_norm2);
    register_module("batch_norm3", batch_norm3);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(batch_norm1(conv1(x)));
    x = torch::relu(batch_norm2(conv2(x)));
    x = torch::relu(batch_norm3(conv3(x)));
    return torch::tanh(conv4(x));
  }

  torch::nn::ConvTranspose2d conv1;
  torch::nn::BatchNorm2d batch_norm1;
  torch::nn::ConvTranspose2d conv2;
  torch::nn::BatchNorm2d batch_norm2;
  torch::nn::ConvTranspose2d conv3;
  torch::nn::BatchNorm2d batch_norm3;
  torch::nn::ConvTranspose2d conv4;
};
TORCH_MODULE(DCGANGenerator);

torch::nn::Sequential make_discriminator() {
  return torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 4).stride(2).padding(1).bias(false)),
      torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 4).stride(2).padding(1).bias(false)),
      torch::nn::BatchNorm2d(16), torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 4).stride(2).padding(1).bias(false)),
      torch::nn::BatchNorm2d(32), torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 1, 3).stride(1).padding(0).bias(false)), torch::nn::Sigmoid());
}

}  // namespace

TEST(TorchProgram, DcganLearnsToTellDigitsFromNoise) {
  const DigitsFolder folder(256, 1);
  torch::manual_seed(1);
  torch::Device device(torch::kCPU);

  DCGANGenerator generator(kNoiseSize);
  generator->to(device);
  torch::nn::Sequential discriminator = make_discriminator();
  discriminator->to(device);

  auto dataset = torch::data::datasets::MNIST(folder.path())
                     .map(torch::data::transforms::Normalize<>(0.5, 0.5))
                     .map(torch::data::transforms::Stack<>());
  auto data_loader =
      torch::data::make_data_loader(std::move(dataset), torch::data::DataLoaderOptions().batch_size(32).workers(2));

  torch::optim::Adam generator_optimizer(generator->parameters(),
                                         torch::optim::AdamOptions(2e-4).betas(std::make_tuple(0.5, 0.5)));
  torch::optim::Adam discriminator_optimizer(discriminator->parameters(),
                                             torch::optim::AdamOptions(5e-4).betas(std::make_tuple(0.5, 0.5)));
  float first = NAN, last = NAN;
  for (int64_t epoch = 1; epoch <= 3; ++epoch) {
    for (torch::data::Example<>& batch : *data_loader) {
      discriminator->zero_grad();
      torch::Tensor real_images = batch.data.to(device);
      torch::Tensor real_labels = torch::empty(batch.data.size(0), device).uniform_(0.8, 1.0);
      torch::Tensor real_output = discriminator->forward(real_images).reshape(real_labels.sizes());
      torch::Tensor d_loss_real = torch::binary_cross_entropy(real_output, real_labels);
      d_loss_real.backward();

      torch::Tensor noise = torch::randn({batch.data.size(0), kNoiseSize, 1, 1}, device);
      torch::Tensor fake_images = generator->forward(noise);
      ASSERT_EQ(fake_images.sizes(), real_images.sizes());
      torch::Tensor fake_labels = torch::zeros(batch.data.size(0), device);
      torch::Tensor fake_output = discriminator->forward(fake_images.detach()).reshape(fake_labels.sizes());
      torch::Tensor d_loss_fake = torch::binary_cross_entropy(fake_output, fake_labels);
      d_loss_fake.backward();
      torch::Tensor d_loss = d_loss_real + d_loss_fake;
      discriminator_optimizer.step();

      generator->zero_grad();
      fake_labels.fill_(1);
      fake_output = discriminator->forward(fake_images).reshape(fake_labels.sizes());
      torch::Tensor g_loss = torch::binary_cross_entropy(fake_output, fake_labels);
      g_loss.backward();
      generator_optimizer.step();

      last = d_loss.item<float>();
      ASSERT_FALSE(std::isnan(last) || std::isnan(g_loss.item<float>()));
      if (std::isnan(first)) first = last;
    }
  }
  EXPECT_LT(last, 0.8F * first);

  torch::save(generator, folder / "generator-checkpoint.pt");
  torch::save(generator_optimizer, folder / "generator-optimizer-checkpoint.pt");
  DCGANGenerator again(kNoiseSize);
  torch::load(again, folder / "generator-checkpoint.pt");
  generator->eval();
  again->eval();
  torch::Tensor noise = torch::randn({2, kNoiseSize, 1, 1});
  EXPECT_TRUE(torch::equal(generator(noise), again(noise)));
}
