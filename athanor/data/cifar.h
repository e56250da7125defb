#pragma once
/// CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) from the files of their page, binary or Python's. Not part of athanor.h.

#include <memory>
#include <string>
#include <vector>

#include "athanor/data/datasets.h"

namespace athanor::data::datasets {

/// Examples are an image (3, 32, 32), float from 0 to 1, and its class, int64. Pixels are kept as bytes. Copies share
/// them. Thread-safe.
class CIFAR : public Dataset<CIFAR> {
 public:
  enum class Mode { kTrain, kTest };
  Example<> get(std::size_t index) override;
  Example<> get_stacked(ArrayRef<std::size_t> indices);
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(content_->targets.size(0)); }
  /// All images as they are in the files: uint8 (N, 3, 32, 32).
  const Tensor& bytes() const { return content_->bytes; }
  /// All classes (N).
  const Tensor& targets() const { return content_->targets; }

 protected:
  struct Content {
    Tensor bytes, targets;
  };
  explicit CIFAR(Content content) : content_(std::make_shared<const Content>(std::move(content))) {}

 private:
  std::shared_ptr<const Content> content_;
};

/// 10 kinds of things: in `root`, or in "cifar-10-batches-bin" or "cifar-10-batches-py" below it. Throws IoError naming
/// the file or the folders if they are missing or damaged; nothing is downloaded.
class CIFAR10 : public CIFAR {
 public:
  explicit CIFAR10(const std::string& root, Mode mode = Mode::kTrain);
};

/// 100 kinds, or their 20 groups: in `root`, or in "cifar-100-binary" or "cifar-100-python" below it.
class CIFAR100 : public CIFAR {
 public:
  enum class Labels { kFine, kCoarse };
  explicit CIFAR100(const std::string& root, Mode mode = Mode::kTrain, Labels labels = Labels::kFine);
};

}  // namespace athanor::data::datasets
