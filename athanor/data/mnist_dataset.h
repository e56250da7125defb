#pragma once
/// MNIST and its relatives as datasets: libtorch's datasets::MNIST, Python's FashionMNIST, KMNIST, EMNIST, QMNIST.

#include <memory>
#include <string>

#include "athanor/data/datasets.h"
#include "athanor/data/mnist.h"

namespace athanor::data::datasets {

/// Examples are an image (1, 28, 28), float from 0 to 1, and its class, int64. Pixels are kept as bytes. Copies share
/// them. get and get_batch are thread-safe.
class MNIST : public Dataset<MNIST> {
 public:
  enum class Mode { kTrain, kTest };
  /// The files in `root`, in its "raw" or in "MNIST/raw" below it, packed or not; nothing is looked for elsewhere.
  /// Throws IoError naming the file or folder if they are missing or damaged.
  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain);
  /// Where load_mnist finds them: other folders, a download, generated digits.
  explicit MNIST(const MnistOptions& options, Mode mode = Mode::kTrain);
  MNIST(const MnistSplit& split, Mode mode);

  Example<> get(std::size_t index) override;
  Example<> get_stacked(ArrayRef<std::size_t> indices);
  std::optional<std::size_t> size() const override;
  bool is_train() const noexcept { return mode_ == Mode::kTrain; }
  /// All images (N, 1, 28, 28), converted at the first call and kept then.
  const Tensor& images() const;
  /// All classes (N).
  const Tensor& targets() const;
  /// All images as they are in the file: uint8 (N, 1, 28, 28).
  const Tensor& bytes() const;

 private:
  struct Content;
  std::shared_ptr<const Content> content_;
  Mode mode_;
};

/// 10 kinds of clothing in MNIST's format; in `root`, or in "FashionMNIST/raw" below it.
class FashionMNIST : public MNIST {
 public:
  explicit FashionMNIST(const std::string& root, Mode mode = Mode::kTrain);
};

/// 10 cursive Japanese characters; in `root`, or in "KMNIST/raw" below it.
class KMNIST : public MNIST {
 public:
  explicit KMNIST(const std::string& root, Mode mode = Mode::kTrain);
};

/// Letters and digits. split: "balanced", "byclass", "bymerge", "digits", "letters" (classes 1 to 26) or "mnist".
class EMNIST : public MNIST {
 public:
  EMNIST(const std::string& root, const std::string& split, Mode mode = Mode::kTrain);
};

/// MNIST with its test set restored to 60000 digits (Yadav & Bottou, 2019): files qmnist-train-… and qmnist-test-… in
/// `root` or in "QMNIST/raw" below it. Labels are their first column, the class.
class QMNIST : public MNIST {
 public:
  explicit QMNIST(const std::string& root, Mode mode = Mode::kTrain);
};

}  // namespace athanor::data::datasets
