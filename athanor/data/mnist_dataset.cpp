#include "athanor/data/mnist_dataset.h"

#include <cstring>
#include <mutex>

namespace athanor::data::datasets {

struct MNIST::Content {
  Tensor bytes, targets;
  mutable std::once_flag converted;
  mutable Tensor images;
};

namespace {

MnistSplit read(const std::string& name, const std::string& root, MNIST::Mode mode) {
  ATHANOR_CHECK_VALUE(!root.empty(), "MNIST: the folder's name is empty; MnistOptions lets load_mnist look for one");
  MnistOptions options;
  options.name = name;
  options.root = root;
  options.root_only = true;
  options.log = [](const std::string&) {};
  return load_mnist_split(mode == MNIST::Mode::kTrain, options);
}

}  // namespace

MNIST::MNIST(const std::string& root, Mode mode) : MNIST(read("mnist", root, mode), mode) {}
MNIST::MNIST(const MnistOptions& options, Mode mode) : MNIST(load_mnist_split(mode == Mode::kTrain, options), mode) {}

MNIST::MNIST(const MnistSplit& split, Mode mode) : mode_(mode) {
  const std::int64_t n = split.count();
  ATHANOR_CHECK_VALUE(static_cast<std::int64_t>(split.images.size()) == n * 28 * 28, "MNIST: ", split.images.size(),
                      " pixels for ", n, " labels, expected 784 each");
  auto content = std::make_shared<Content>();
  content->bytes = empty({n, 1, 28, 28}, kByte);
  if (n > 0) std::memcpy(content->bytes.data_ptr(), split.images.data(), split.images.size());
  content->targets = empty({n}, kLong);
  std::copy(split.labels.begin(), split.labels.end(), content->targets.data_ptr<std::int64_t>());
  content_ = std::move(content);
}

Example<> MNIST::get(std::size_t index) {
  const NoGradGuard off;
  ATHANOR_CHECK_INDEX(index < *size(), "MNIST: index ", index, " is out of range for ", *size(), " examples");
  const auto i = static_cast<std::int64_t>(index);
  return {detail::to_floats(content_->bytes.select(0, i)), content_->targets.select(0, i)};
}

Example<> MNIST::get_stacked(ArrayRef<std::size_t> indices) {
  const NoGradGuard off;
  return {detail::to_floats(detail::gather_rows(content_->bytes, indices)),
          detail::gather_rows(content_->targets, indices)};
}

std::optional<std::size_t> MNIST::size() const { return static_cast<std::size_t>(content_->targets.size(0)); }

const Tensor& MNIST::images() const {
  const Content& c = *content_;
  std::call_once(c.converted, [&c] {
    const NoGradGuard off;
    c.images = detail::to_floats(c.bytes);
  });
  return c.images;
}

const Tensor& MNIST::targets() const { return content_->targets; }
const Tensor& MNIST::bytes() const { return content_->bytes; }

FashionMNIST::FashionMNIST(const std::string& root, Mode mode) : MNIST(read("fashion-mnist", root, mode), mode) {}
KMNIST::KMNIST(const std::string& root, Mode mode) : MNIST(read("kmnist", root, mode), mode) {}
EMNIST::EMNIST(const std::string& root, const std::string& split, Mode mode)
    : MNIST(read("emnist-" + split, root, mode), mode) {}
QMNIST::QMNIST(const std::string& root, Mode mode) : MNIST(read("qmnist", root, mode), mode) {}

}  // namespace athanor::data::datasets
