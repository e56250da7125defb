// Two networks against each other: one draws digits from noise, the other tells them from real ones. Learns from MNIST,
// or from generated digits where MNIST cannot be had. `dcgan --help` lists the flags.
#include <cstdio>
#include <filesystem>
#include <string>

#include "athanor/athanor.h"
#include "athanor/data/mnist.h"
#include "athanor/data/synthetic_digits.h"
#include "athanor/io/file.h"
#include "athanor/io/summary_writer.h"
#include "cli/command_line.h"

namespace {

using namespace athanor;

struct Flags {
  std::string data, out = ".";
  std::int64_t epochs = 5, batch_size = 64, noise = 100, features = 64, limit = 0, samples = 64, log_interval = 100;
  std::uint64_t seed = 1;
  double lr = 2e-4, beta1 = 0.5;
  bool synthetic = false;
};

nn::Sequential make_generator(std::int64_t noise, std::int64_t f) {
  const auto up = [](std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                     std::int64_t padding) {
    return nn::ConvTranspose2d(nn::ConvTranspose2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false));
  };
  // 1 → 4 → 7 → 14 → 28 pixels.
  return nn::Sequential(up(noise, f * 4, 4, 1, 0), nn::BatchNorm2d(f * 4), nn::ReLU(), up(f * 4, f * 2, 3, 2, 1),
                        nn::BatchNorm2d(f * 2), nn::ReLU(), up(f * 2, f, 4, 2, 1), nn::BatchNorm2d(f), nn::ReLU(),
                        up(f, 1, 4, 2, 1), nn::Tanh());
}

nn::Sequential make_discriminator(std::int64_t f) {
  const auto down = [](std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                       std::int64_t padding) {
    return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false));
  };
  const auto leaky = [] { return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)); };
  return nn::Sequential(down(1, f, 4, 2, 1), leaky(), down(f, f * 2, 4, 2, 1), nn::BatchNorm2d(f * 2), leaky(),
                        down(f * 2, f * 4, 4, 2, 1), nn::BatchNorm2d(f * 4), leaky(), down(f * 4, 1, 3, 1, 0),
                        nn::Flatten());
}

/// Radford and others' first values: normal ones, narrow.
void initialize(nn::Module& module) {
  const NoGradGuard off;
  for (const auto& child : module.modules(false)) {
    if (auto* conv = child->as<nn::Conv2d>()) nn::init::normal_(conv->weight, 0, 0.02);
    if (auto* conv = child->as<nn::ConvTranspose2d>()) nn::init::normal_(conv->weight, 0, 0.02);
    if (auto* norm = child->as<nn::BatchNorm2d>()) nn::init::normal_(norm->weight, 1, 0.02);
  }
}

/// Images as [N, 1, 28, 28], -1 paper to 1 ink.
Tensor load_images(const Flags& f) {
  std::vector<std::uint8_t> bytes;
  if (f.synthetic) {
    bytes = data::synthetic_digits(f.limit > 0 ? f.limit : 60000, f.seed).images;
  } else {
    data::MnistOptions o;
    o.root = f.data;
    bytes = data::load_mnist_split(true, o).images;
  }
  auto n = static_cast<std::int64_t>(bytes.size()) / data::kDigitPixels;
  if (f.limit > 0) n = std::min(n, f.limit);
  return from_blob(bytes.data(), {n, 1, data::kDigitSide, data::kDigitSide}, TensorOptions(kByte)).to(kFloat) / 127.5 -
         1;
}

/// Images in rows of eight, as a PNG file.
void write_grid(const std::string& path, const Tensor& images) {
  constexpr std::int64_t kColumns = 8, kSide = data::kDigitSide + 2;
  const std::int64_t n = images.size(0), rows = (n + kColumns - 1) / kColumns;
  const Tensor grid = zeros({rows * kSide, kColumns * kSide}, TensorOptions(kByte));
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t y = i / kColumns * kSide + 1, x = i % kColumns * kSide + 1;
    grid.slice(0, y, y + data::kDigitSide)
        .slice(1, x, x + data::kDigitSide)
        .copy_(((images[i][0] + 1) * 127.5).round().clamp(0, 255));
  }
  io::write_file(path, io::detail::encode_png(grid.data_ptr<std::uint8_t>(), static_cast<std::uint32_t>(grid.size(0)),
                                              static_cast<std::uint32_t>(grid.size(1)), 1));
}

class Trainer {
 public:
  explicit Trainer(const Flags& f)
      : flags_(f),
        images_(load_images(f)),
        generator_(make_generator(f.noise, f.features)),
        discriminator_(make_discriminator(f.features)),
        generator_steps_(generator_->parameters(), optim::AdamOptions(f.lr).betas({f.beta1, 0.999})),
        discriminator_steps_(discriminator_->parameters(), optim::AdamOptions(f.lr).betas({f.beta1, 0.999})),
        fixed_noise_(randn({f.samples, f.noise, 1, 1})) {
    initialize(*generator_);
    initialize(*discriminator_);
  }

  void run() {
    const std::int64_t batches = images_.size(0) / flags_.batch_size;
    ATHANOR_CHECK_VALUE(batches > 0, "--batch-size ", flags_.batch_size, " is more than the ", images_.size(0),
                        " images there are");
    for (std::int64_t epoch = 1; epoch <= flags_.epochs; ++epoch) {
      const Tensor order = randperm(images_.size(0));
      for (std::int64_t i = 0; i < batches; ++i) {
        const std::int64_t first = i * flags_.batch_size;
        const Losses l = step(images_.index_select(0, order.slice(0, first, first + flags_.batch_size)));
        if ((i + 1) % flags_.log_interval == 0 || i + 1 == batches)
          std::printf("[%lld/%lld][%lld/%lld] D loss %.4f  G loss %.4f\n", static_cast<long long>(epoch),
                      static_cast<long long>(flags_.epochs), static_cast<long long>(i) + 1,
                      static_cast<long long>(batches), l.discriminator, l.generator);
      }
      const std::string path = flags_.out + "/fake_samples_epoch_" + std::to_string(epoch) + ".png";
      const NoGradGuard off;
      write_grid(path, generator_->forward(fixed_noise_));
      std::printf("Wrote %s\n", path.c_str());
      std::fflush(stdout);
    }
    save(generator_, flags_.out + "/generator.safetensors");
    save(discriminator_, flags_.out + "/discriminator.safetensors");
  }

 private:
  struct Losses {
    double discriminator, generator;
  };

  Tensor judge(const Tensor& images, double truth) {
    const Tensor logits = discriminator_->forward(images);
    return binary_cross_entropy_with_logits(logits, full_like(logits, truth));
  }

  Losses step(const Tensor& real) {
    discriminator_steps_.zero_grad();
    const Tensor fake = generator_->forward(randn({real.size(0), flags_.noise, 1, 1}));
    const Tensor on_real = judge(real, 1), on_fake = judge(fake.detach(), 0);
    (on_real + on_fake).backward();
    discriminator_steps_.step();

    // The discriminator's gradients of this pass are cleared before its next step.
    generator_steps_.zero_grad();
    const Tensor loss = judge(fake, 1);
    loss.backward();
    generator_steps_.step();
    return {on_real.item<double>() + on_fake.item<double>(), loss.item<double>()};
  }

  const Flags& flags_;
  const Tensor images_;
  nn::Sequential generator_, discriminator_;
  optim::Adam generator_steps_, discriminator_steps_;
  const Tensor fixed_noise_;
};

int run(int argc, char** argv) {
  Flags f;
  cli::CommandLine app{"Trains a generator of digits against a discriminator"};
  app.add("--data", f.data, "folder of the MNIST files; else $ATHANOR_DATA, known places, a download");
  app.add_flag("--synthetic", f.synthetic, "learn from generated digits");
  app.add("--limit", f.limit, "use only the first N images").non_negative();
  app.add("--out", f.out, "folder for images and parameters; made if it is not there");
  app.add("--epochs", f.epochs, "passes over the images").non_negative();
  app.add("--batch-size", f.batch_size, "images per step").positive();
  app.add("--noise", f.noise, "numbers a digit is made from").positive();
  app.add("--features", f.features, "channels of the widest images' layers").positive();
  app.add("--samples", f.samples, "digits drawn after each epoch").positive();
  app.add("--log-interval", f.log_interval, "steps between lines").positive();
  app.add("--lr", f.lr, "learning rate of both").positive();
  app.add("--beta1", f.beta1, "first beta of Adam").real_range(0.0, 0.999999);
  app.add("--seed", f.seed, "random seed");
  if (const auto status = app.parse(argc, argv)) return *status;
  manual_seed(f.seed);
  io::make_folders(f.out);
  Trainer(f).run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "dcgan: %s\n", e.what());
    return 1;
  }
}
