#pragma once
/// Folders of images as a dataset, as torchvision's ImageFolder: one folder per class. Not part of athanor.h.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "athanor/data/datasets.h"
#include "athanor/io/image.h"

namespace athanor::data::datasets {

/// The folders in `root`, sorted by name, are the classes 0, 1, …; the images (.png, .jpg, .jpeg in any case) in and
/// below each folder, sorted, are its examples. An example is the image as uint8 (channels, height, width) and its
/// class, int64. Images are decoded by get(), so in the loader's workers; bring them to one size before they are
/// stacked:
///
///     ImageFolder("train").map(RandomResizedCrop<>(224)).map(ToTensor<>()).map(Stack<>())
///
/// Copies share the list of files. Thread-safe.
class ImageFolder : public Dataset<ImageFolder> {
 public:
  using IsValidFile = std::function<bool(const std::string& path)>;
  /// With `is_valid_file` the examples are the files for which it is true. Throws IoError for a root without folders,
  /// for a folder without images, and without is_valid_file for images in a format that is not read here (.webp, .tif,
  /// .bmp, .ppm …), which would be missed silently.
  explicit ImageFolder(const std::string& root, io::ImageMode mode = io::ImageMode::Rgb,
                       const IsValidFile& is_valid_file = nullptr);

  /// Throws IoError naming the file if it cannot be decoded, IndexError.
  Example<> get(std::size_t index) override;
  std::optional<std::size_t> size() const override { return content_->samples.size(); }
  const std::vector<std::string>& classes() const { return content_->classes; }
  const std::map<std::string, std::int64_t>& class_to_idx() const { return content_->class_to_idx; }
  /// Path and class of every example.
  const std::vector<std::pair<std::string, std::int64_t>>& samples() const { return content_->samples; }
  std::vector<std::int64_t> targets() const;

 private:
  struct Content {
    std::vector<std::string> classes;
    std::map<std::string, std::int64_t> class_to_idx;
    std::vector<std::pair<std::string, std::int64_t>> samples;
  };
  std::shared_ptr<const Content> content_;
  io::ImageMode mode_;
};

}  // namespace athanor::data::datasets
