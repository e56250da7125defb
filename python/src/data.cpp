/// `athanor._C._data`: the library's datasets as tensors, batches of images gathered in one pass, images decoded.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdio>
#include <string_view>

#include "athanor/base/parallel.h"
#include "athanor/data/cifar.h"
#include "athanor/data/mnist_dataset.h"
#include "athanor/io/image.h"
#include "athanor/io/summary_writer.h"
#include "athanor/io/utf8.h"
#include "python/src/convert.h"

namespace nb = nanobind;

namespace athanor::python {
namespace {

namespace datasets = data::datasets;
using Pair = std::pair<Tensor, Tensor>;

/// Images as bytes (N, 1, 28, 28) and classes (N) of one of MNIST's kind; `name` as in MnistOptions.
Pair mnist(const std::string& name, const std::string& root, bool train, bool download, bool generate) {
  const Unlocked unlocked;
  data::MnistOptions options;
  options.name = name;
  options.root = root;
  options.root_only = !download && !generate;
  options.download = download;
  options.generate = generate;
  options.log = [](const std::string& text) {
    // What torchvision says nothing about: files that were there.
    if (text.find(": read from ") == std::string::npos) std::fprintf(stderr, "%s\n", text.c_str());
  };
  const datasets::MNIST set(options, train ? datasets::MNIST::Mode::kTrain : datasets::MNIST::Mode::kTest);
  return {set.bytes(), set.targets()};
}

Pair cifar(bool fine, const std::string& root, bool train) {
  const Unlocked unlocked;
  if (fine) {
    const datasets::CIFAR100 set(root, train ? datasets::CIFAR100::Mode::kTrain : datasets::CIFAR100::Mode::kTest);
    return {set.bytes(), set.targets()};
  }
  const datasets::CIFAR10 set(root, train ? datasets::CIFAR10::Mode::kTrain : datasets::CIFAR10::Mode::kTest);
  return {set.bytes(), set.targets()};
}

/// What each byte becomes: v / 255, then for each step (v - mean) / std. The operations are those that the transforms
/// do one after the other, so results are the same to the bit.
using Table = std::array<float, 256>;
using Steps = std::vector<std::pair<std::vector<double>, std::vector<double>>>;

std::vector<Table> tables(std::int64_t channels, const Steps& steps) {
  std::vector<Table> all(static_cast<std::size_t>(channels));
  for (std::size_t c = 0; c < all.size(); ++c)
    for (int v = 0; v < 256; ++v) {
      float x = static_cast<float>(v) / 255.0F;
      for (const auto& [mean, deviation] : steps) {
        const auto at = [&](const std::vector<double>& list) {
          return static_cast<float>(list[list.size() == 1 ? 0 : c]);
        };
        x = (x - at(mean)) / at(deviation);
      }
      all[c][static_cast<std::size_t>(v)] = x;
    }
  return all;
}

/// Images `indices` of `bytes` (N, C, H, W) as floats, every byte by its channel's table.
Tensor gather_images(const Tensor& bytes, const std::vector<std::int64_t>& indices, const Steps& steps) {
  const Unlocked unlocked;
  const NoGradGuard off;
  ATHANOR_CHECK_VALUE(bytes.dim() == 4 && bytes.scalar_type() == kByte && bytes.is_contiguous(),
                      "gather_images: expected contiguous bytes (N, C, H, W), got ", athanor::detail::describe(bytes));
  const std::int64_t n = bytes.size(0), channels = bytes.size(1), plane = bytes.size(2) * bytes.size(3);
  for (const auto& [mean, deviation] : steps)
    for (const auto* list : {&mean, &deviation})
      ATHANOR_CHECK_VALUE(list->size() == 1 || static_cast<std::int64_t>(list->size()) == channels,
                          "gather_images: ", list->size(), " means or deviations for ", channels, " channels");
  for (const std::int64_t i : indices)
    ATHANOR_CHECK_INDEX(i >= -n && i < n, "index ", i, " is out of bounds for a dataset of ", n, " examples");
  const auto by_byte = tables(channels, steps);
  Tensor out = empty({static_cast<std::int64_t>(indices.size()), channels, bytes.size(2), bytes.size(3)}, kFloat);
  const auto* from = bytes.data_ptr<std::uint8_t>();
  auto* to = out.data_ptr<float>();
  const std::int64_t grain = std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(plane, 1));
  parallel_for(0, static_cast<std::int64_t>(indices.size()) * channels, grain, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t k = b; k < e; ++k) {
      const std::int64_t wanted = indices[static_cast<std::size_t>(k / channels)];
      const std::uint8_t* pixels = from + ((wanted < 0 ? wanted + n : wanted) * channels + k % channels) * plane;
      const Table& table = by_byte[static_cast<std::size_t>(k % channels)];
      float* result = to + k * plane;
      for (std::int64_t i = 0; i < plane; ++i) result[i] = table[pixels[i]];
    }
  });
  return out;
}

Tensor decode_image(const std::string& path, const std::string& mode) {
  static constexpr std::pair<std::string_view, io::ImageMode> kModes[] = {{"", io::ImageMode::Unchanged},
                                                                          {"L", io::ImageMode::Gray},
                                                                          {"LA", io::ImageMode::GrayAlpha},
                                                                          {"RGB", io::ImageMode::Rgb},
                                                                          {"RGBA", io::ImageMode::RgbAlpha}};
  const Unlocked unlocked;
  for (const auto& [name, wanted] : kModes)
    if (name == mode) return io::read_image(path, wanted);
  ATHANOR_THROW(ValueError, "decode_image: mode '", io::readable(mode), "', expected '', 'L', 'LA', 'RGB' or 'RGBA'");
}

nb::bytes encode_image(const Tensor& image) {
  const Tensor rows = image.permute({1, 2, 0}).contiguous();
  const std::string file =
      io::detail::encode_png(rows.data_ptr<std::uint8_t>(), static_cast<std::uint32_t>(rows.size(0)),
                             static_cast<std::uint32_t>(rows.size(1)), static_cast<int>(rows.size(2)));
  return nb::bytes(file.data(), file.size());
}

}  // namespace

void bind_data(nb::module_& core) {
  nb::module_ m = core.def_submodule("_data", "Datasets and images; see athanor.vision.");
  m.def("mnist", &mnist, nb::arg("name"), nb::arg("root"), nb::arg("train"), nb::arg("download"), nb::arg("generate"));
  m.def("cifar", &cifar, nb::arg("fine"), nb::arg("root"), nb::arg("train"));
  m.def("gather_images", &gather_images, nb::arg("bytes"), nb::arg("indices"), nb::arg("steps"));
  m.def("decode_image", &decode_image, nb::arg("path"), nb::arg("mode") = "");
  m.def(
      "encode_png", [](nb::handle image) { return encode_image(unwrap(image.ptr())); }, nb::arg("image"));
}

}  // namespace athanor::python
