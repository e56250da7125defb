#pragma once
/// Crops, flips and resizing of images (…, height, width), for `dataset.map(…)` or Compose. Random ones draw from
/// data/randomness.h.

#include <array>

#include "athanor/data/transforms.h"

namespace athanor::data::transforms {

/// Height and width; one number is a square.
struct ImageSize {
  ImageSize(std::int64_t side) : height(side), width(side) {}
  ImageSize(std::int64_t h, std::int64_t w) : height(h), width(w) {}
  std::int64_t height, width;
};

namespace detail {
Tensor center_crop(const Tensor& image, ImageSize size);
Tensor random_crop(const Tensor& image, ImageSize size, std::int64_t padding);
Tensor random_flip(const Tensor& image, std::int64_t dim, double p);
Tensor resize(const Tensor& image, ImageSize size);
Tensor resize_shorter(const Tensor& image, std::int64_t shorter);
void check_image_size(const char* name, ImageSize size);
void check_probability(const char* name, double p);
}  // namespace detail

/// The middle of the image; where it is too small, zeros around it.
template <class Target = Tensor>
class CenterCrop : public TensorTransform<Target> {
 public:
  explicit CenterCrop(ImageSize size) : size_(size) { detail::check_image_size("CenterCrop", size); }
  Tensor operator()(Tensor image) override { return detail::center_crop(image, size_); }

 private:
  ImageSize size_;
};

/// A part at a random place, of the image with `padding` zeros on every side. Throws ValueError if it is too small.
template <class Target = Tensor>
class RandomCrop : public TensorTransform<Target> {
 public:
  explicit RandomCrop(ImageSize size, std::int64_t padding = 0) : size_(size), padding_(padding) {
    detail::check_image_size("RandomCrop", size);
    ATHANOR_CHECK_VALUE(padding >= 0, "RandomCrop: padding is ", padding, ", expected at least 0");
  }
  Tensor operator()(Tensor image) override { return detail::random_crop(image, size_, padding_); }

 private:
  ImageSize size_;
  std::int64_t padding_;
};

/// Mirrored left to right with probability p.
template <class Target = Tensor>
class RandomHorizontalFlip : public TensorTransform<Target> {
 public:
  explicit RandomHorizontalFlip(double p = 0.5) : p_(p) { detail::check_probability("RandomHorizontalFlip", p); }
  Tensor operator()(Tensor image) override { return detail::random_flip(image, -1, p_); }

 private:
  double p_;
};

/// Upside down with probability p.
template <class Target = Tensor>
class RandomVerticalFlip : public TensorTransform<Target> {
 public:
  explicit RandomVerticalFlip(double p = 0.5) : p_(p) { detail::check_probability("RandomVerticalFlip", p); }
  Tensor operator()(Tensor image) override { return detail::random_flip(image, -2, p_); }

 private:
  double p_;
};

/// Bilinear, averaging where the image shrinks (Python's antialias=True). One number: the shorter side becomes that and
/// the other keeps the ratio. Bytes are rounded and stay bytes.
template <class Target = Tensor>
class Resize : public TensorTransform<Target> {
 public:
  explicit Resize(std::int64_t shorter) : size_(shorter), keep_ratio_(true) {
    detail::check_image_size("Resize", size_);
  }
  Resize(std::int64_t height, std::int64_t width) : size_(height, width), keep_ratio_(false) {
    detail::check_image_size("Resize", size_);
  }
  Tensor operator()(Tensor image) override {
    return keep_ratio_ ? detail::resize_shorter(image, size_.height) : detail::resize(image, size_);
  }

 private:
  ImageSize size_;
  bool keep_ratio_;
};

}  // namespace athanor::data::transforms
