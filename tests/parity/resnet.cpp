// Athanor's side of the comparison with torchvision's ResNets; tests/parity/resnet.py says how it goes.
//   resnet_parity input OUT.safetensors PHOTO...    writes the photos as a batch "input"
//   resnet_parity NAME WEIGHTS.safetensors DATA.safetensors
//     loads the state_dict of models::NAME and compares with DATA's "logits" for its "input"
#include <cmath>
#include <cstdio>
#include <map>
#include <string_view>

#include "athanor/athanor.h"
#include "athanor/io/checkpoint.h"
#include "athanor/io/image.h"
#include "athanor/io/tensor_io.h"
#include "athanor/models/resnet.h"
#include "athanor/nn/vision.h"

namespace {

using namespace athanor;  // NOLINT(google-build-using-namespace)

// In the middle, 224 x 224, with the usual mean and deviation.
Tensor prepared(const char* path) {
  namespace F = nn::functional;
  const Tensor photo = io::read_image(path, io::ImageMode::Rgb).to(kFloat).div(255).unsqueeze(0);
  const std::int64_t height = photo.size(2), width = photo.size(3), side = std::min(height, width);
  const Tensor square = photo.narrow(2, (height - side) / 2, side).narrow(3, (width - side) / 2, side);
  const Tensor small = F::interpolate(square, F::InterpolateFuncOptions()
                                                  .size(std::vector<std::int64_t>{224, 224})
                                                  .mode(kBilinear)
                                                  .align_corners(false)
                                                  .antialias(true));
  const Tensor mean = tensor({0.485F, 0.456F, 0.406F}).view({1, 3, 1, 1}),
               deviation = tensor({0.229F, 0.224F, 0.225F}).view({1, 3, 1, 1});
  return (small - mean) / deviation;
}

int write_input(const std::string& file, char** photos, int count) {
  std::vector<Tensor> batch;
  for (int i = 0; i < count; ++i) batch.push_back(prepared(photos[i]));
  io::save_safetensors(file, {{"input", cat(batch)}});
  return 0;
}

models::ResNet network(std::string_view name) {
  if (name == "resnet18") return models::resnet18();
  if (name == "resnet34") return models::resnet34();
  if (name == "resnet50") return models::resnet50();
  if (name == "resnet101") return models::resnet101();
  if (name == "resnet152") return models::resnet152();
  ATHANOR_THROW(ValueError, "no network is called ", name);
}

int compare(const char* name, const char* weights, const char* file) {
  models::ResNet net = network(name);
  io::load_module(weights, *net);
  net->eval();
  std::map<std::string, Tensor> data;
  for (const auto& [key, value] : io::load_safetensors(file)) data[key] = value;
  const NoGradGuard off;
  const Tensor expected = data.at("logits"), got = net(data.at("input"));
  ATHANOR_CHECK(got.sizes() == expected.sizes(), name, ": logits of shape ", got.sizes(), ", torchvision's have ",
                expected.sizes());
  const double off_by = (got - expected).abs().max().item<double>(), largest = expected.abs().max().item<double>();
  const bool good = off_by <= 1e-4 && std::isfinite(largest) && got.argmax(1).equal(expected.argmax(1));
  std::printf("%s: logits up to %.3g, off by %.2e at most: %s\n", name, largest, off_by, good ? "good" : "DIFFERS");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 3 && std::string_view(argv[1]) == "input") return write_input(argv[2], argv + 3, argc - 3);
    if (argc == 4) return compare(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "resnet_parity: %s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "usage: resnet_parity input OUT PHOTO... | resnet_parity NAME WEIGHTS DATA\n");
  return 2;
}
