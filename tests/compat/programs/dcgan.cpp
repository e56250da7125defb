// A generator and a discriminator with batch norm, transposed convolutions and two optimizers.
#include <tuple>

#include "values.h"

namespace {

const int64_t kNoiseSize = 6;

struct DCGANGeneratorImpl : torch::nn::Module {
  explicit DCGANGeneratorImpl(int64_t noise_size)
      : conv1(torch::nn::ConvTranspose2dOptions(noise_size, 8, 4).bias(false)),
        batch_norm1(8),
        conv2(torch::nn::ConvTranspose2dOptions(8, 6, 3).stride(2).padding(1).bias(false)),
        batch_norm2(6),
        conv3(torch::nn::ConvTranspose2dOptions(6, 1, 4).stride(2).padding(1).bias(false)) {
    register_module("conv1", conv1);
    register_module("batch_norm1", batch_norm1);
    register_module("conv2", conv2);
    register_module("batch_norm2", batch_norm2);
    register_module("conv3", conv3);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(batch_norm1(conv1(x)));
    x = torch::relu(batch_norm2(conv2(x)));
    return torch::tanh(conv3(x));
  }
  torch::nn::ConvTranspose2d conv1;
  torch::nn::BatchNorm2d batch_norm1;
  torch::nn::ConvTranspose2d conv2;
  torch::nn::BatchNorm2d batch_norm2;
  torch::nn::ConvTranspose2d conv3;
};
TORCH_MODULE(DCGANGenerator);

}  // namespace

int main() {
  DCGANGenerator generator(kNoiseSize);
  torch::nn::Sequential discriminator(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 4).stride(2).padding(1).bias(false)),
      torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 4).stride(2).padding(1).bias(false)), torch::nn::BatchNorm2d(8),
      torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 1, 3).stride(1).padding(0).bias(false)), torch::nn::Sigmoid());
  fill(*generator, 0.4);
  fill(*discriminator, 0.3);
  for (const auto& item : generator->named_parameters()) show(item.key().c_str(), item.value());

  torch::optim::Adam generator_optimizer(generator->parameters(),
                                         torch::optim::AdamOptions(2e-3).betas(std::make_tuple(0.5, 0.9)));
  torch::optim::Adam discriminator_optimizer(discriminator->parameters(),
                                             torch::optim::AdamOptions(5e-3).betas(std::make_tuple(0.5, 0.9)));
  for (int step = 0; step < 6; ++step) {
    discriminator->zero_grad();
    torch::Tensor real_images = wave({5, 1, 14, 14}, step);
    torch::Tensor real_labels = torch::full({5}, 0.9);
    torch::Tensor real_output = discriminator->forward(real_images).reshape(real_labels.sizes());
    torch::Tensor d_loss_real = torch::binary_cross_entropy(real_output, real_labels);
    d_loss_real.backward();

    torch::Tensor noise = wave({5, kNoiseSize, 1, 1}, 10 + step);
    torch::Tensor fake_images = generator->forward(noise);
    torch::Tensor fake_labels = torch::zeros({5});
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
    std::printf("step %d D %.4f G %.4f\n", step, d_loss.item<float>(), g_loss.item<float>());
  }
  generator->eval();
  torch::NoGradGuard no_grad;
  torch::Tensor samples = generator->forward(wave({3, kNoiseSize, 1, 1}));
  std::printf("%lld %lld\n", static_cast<long long>(samples.size(2)), static_cast<long long>(samples.size(3)));
  show("mean", samples.mean().item<double>());
}
