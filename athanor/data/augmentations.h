#pragma once
/// More transforms of images (…, channels, height, width), with torchvision's names, defaults and formulas: padding,
/// colours, random crops, rotation and erasing. Bytes stay bytes (0 … 255), floats are taken as 0 … 1. Random ones draw
/// from data/randomness.h. Not part of athanor.h.

#include <array>
#include <memory>
#include <vector>

#include "athanor/data/image_transforms.h"

namespace athanor::data::transforms {

/// How pixels outside the image are made up.
enum class PaddingMode { Constant, Edge, Reflect, Symmetric };
enum class Interpolation { Nearest, Bilinear };

/// Pixels added to the left, top, right and bottom.
struct Padding {
  Padding(std::int64_t all) : left(all), top(all), right(all), bottom(all) {}
  Padding(std::int64_t left_right, std::int64_t top_bottom)
      : left(left_right), top(top_bottom), right(left_right), bottom(top_bottom) {}
  Padding(std::int64_t l, std::int64_t t, std::int64_t r, std::int64_t b) : left(l), top(t), right(r), bottom(b) {}
  std::int64_t left, top, right, bottom;
};

/// From lowest to highest.
struct Interval {
  double low, high;
};

/// The transforms as functions, torchvision.transforms.functional. All throw ValueError naming the shape or number that
/// does not fit.
namespace functional {
/// Reflect needs less padding than pixels, Symmetric no more.
Tensor pad(const Tensor& image, Padding padding, double fill = 0, PaddingMode mode = PaddingMode::Constant);
Tensor crop(const Tensor& image, std::int64_t top, std::int64_t left, ImageSize size);
/// 0.2989 R + 0.587 G + 0.114 B, in one channel or three alike. One channel is gray already.
Tensor rgb_to_grayscale(const Tensor& image, std::int64_t channels = 1);
/// image · factor.
Tensor adjust_brightness(const Tensor& image, double factor);
/// image · factor + mean of its gray · (1 - factor).
Tensor adjust_contrast(const Tensor& image, double factor);
/// image · factor + its gray · (1 - factor).
Tensor adjust_saturation(const Tensor& image, double factor);
/// The hue turned by `factor` of a full circle, -0.5 to 0.5.
Tensor adjust_hue(const Tensor& image, double factor);
/// Counter-clockwise by `degrees` about the middle. With `expand` the result holds the whole turned image. Where a
/// bilinear pixel reaches beyond the image, `fill` counts with the share that lies there; torchvision's RandomRotation
/// takes the image's part times its share once more, so that its edges are darker.
Tensor rotate(const Tensor& image, double degrees, Interpolation interpolation = Interpolation::Nearest,
              bool expand = false, double fill = 0);
/// A copy with a rectangle set to `value`: one number, or one per channel.
Tensor erase(const Tensor& image, std::int64_t top, std::int64_t left, ImageSize size, ArrayRef<double> value);
}  // namespace functional

namespace detail {
Tensor random_resized_crop(const Tensor& image, ImageSize size, Interval scale, Interval ratio);
Tensor random_erase(const Tensor& image, double p, Interval scale, Interval ratio, ArrayRef<double> value);
Tensor jitter(const Tensor& image, const std::array<Interval, 4>& ranges);
Interval jitter_range(const char* name, double amount, bool is_hue);
double draw_from(Interval range);
void check_interval(const char* name, Interval range, double least);
}  // namespace detail

template <class Target = Tensor>
class Pad : public TensorTransform<Target> {
 public:
  explicit Pad(Padding padding, double fill = 0, PaddingMode mode = PaddingMode::Constant)
      : padding_(padding), fill_(fill), mode_(mode) {}
  Tensor operator()(Tensor image) override { return functional::pad(image, padding_, fill_, mode_); }

 private:
  Padding padding_;
  double fill_;
  PaddingMode mode_;
};

template <class Target = Tensor>
class Grayscale : public TensorTransform<Target> {
 public:
  explicit Grayscale(std::int64_t channels = 1) : channels_(channels) {}
  Tensor operator()(Tensor image) override { return functional::rgb_to_grayscale(image, channels_); }

 private:
  std::int64_t channels_;
};

/// Gray with probability p, with as many channels as before.
template <class Target = Tensor>
class RandomGrayscale : public TensorTransform<Target> {
 public:
  explicit RandomGrayscale(double p = 0.1) : p_(p) { detail::check_probability("RandomGrayscale", p); }
  Tensor operator()(Tensor image) override {
    return detail::draw_from({0, 1}) < p_ ? functional::rgb_to_grayscale(image, image.size(-3)) : image;
  }

 private:
  double p_;
};

/// Brightness, contrast, saturation and hue changed at random, in random order. A number b means factors from
/// max(0, 1 - b) to 1 + b, for the hue from -b to b (at most 0.5).
template <class Target = Tensor>
class ColorJitter : public TensorTransform<Target> {
 public:
  explicit ColorJitter(double brightness = 0, double contrast = 0, double saturation = 0, double hue = 0)
      : ranges_{detail::jitter_range("brightness", brightness, false),
                detail::jitter_range("contrast", contrast, false),
                detail::jitter_range("saturation", saturation, false), detail::jitter_range("hue", hue, true)} {}
  Tensor operator()(Tensor image) override { return detail::jitter(image, ranges_); }

 private:
  std::array<Interval, 4> ranges_;
};

/// A random part of the image, of `scale` of its area and `ratio` of width to height, resized.
template <class Target = Tensor>
class RandomResizedCrop : public TensorTransform<Target> {
 public:
  explicit RandomResizedCrop(ImageSize size, Interval scale = {0.08, 1}, Interval ratio = {3.0 / 4, 4.0 / 3})
      : size_(size), scale_(scale), ratio_(ratio) {
    detail::check_image_size("RandomResizedCrop", size);
    detail::check_interval("RandomResizedCrop: scale", scale, 0);
    detail::check_interval("RandomResizedCrop: ratio", ratio, 1e-6);
  }
  Tensor operator()(Tensor image) override { return detail::random_resized_crop(image, size_, scale_, ratio_); }

 private:
  ImageSize size_;
  Interval scale_, ratio_;
};

/// Turned by an angle from the interval, or from -degrees to degrees.
template <class Target = Tensor>
class RandomRotation : public TensorTransform<Target> {
 public:
  explicit RandomRotation(double degrees, Interpolation interpolation = Interpolation::Nearest, bool expand = false,
                          double fill = 0)
      : RandomRotation(Interval{-degrees, degrees}, interpolation, expand, fill) {}
  explicit RandomRotation(Interval degrees, Interpolation interpolation = Interpolation::Nearest, bool expand = false,
                          double fill = 0)
      : degrees_(degrees), interpolation_(interpolation), expand_(expand), fill_(fill) {
    detail::check_interval("RandomRotation: degrees", degrees, -1e9);
  }
  Tensor operator()(Tensor image) override {
    return functional::rotate(image, detail::draw_from(degrees_), interpolation_, expand_, fill_);
  }

 private:
  Interval degrees_;
  Interpolation interpolation_;
  bool expand_;
  double fill_;
};

/// A random rectangle, of `scale` of the area and `ratio` of height to width, erased with probability p.
template <class Target = Tensor>
class RandomErasing : public TensorTransform<Target> {
 public:
  explicit RandomErasing(double p = 0.5, Interval scale = {0.02, 0.33}, Interval ratio = {0.3, 3.3},
                         std::vector<double> value = {0})
      : p_(p), scale_(scale), ratio_(ratio), value_(std::move(value)) {
    detail::check_probability("RandomErasing", p);
    detail::check_interval("RandomErasing: scale", scale, 0);
    detail::check_interval("RandomErasing: ratio", ratio, 1e-6);
  }
  Tensor operator()(Tensor image) override { return detail::random_erase(image, p_, scale_, ratio_, value_); }

 private:
  double p_;
  Interval scale_, ratio_;
  std::vector<double> value_;
};

/// Another transform, applied with probability p.
template <class Target = Tensor>
class RandomApply : public TensorTransform<Target> {
 public:
  template <class Inner>
  requires(!std::is_same_v<std::decay_t<Inner>, RandomApply>) explicit RandomApply(Inner inner, double p = 0.5)
      : inner_(std::make_shared<Inner>(std::move(inner))), p_(p) {
    detail::check_probability("RandomApply", p);
  }
  Tensor operator()(Tensor image) override {
    return detail::draw_from({0, 1}) < p_ ? (*inner_)(std::move(image)) : image;
  }

 private:
  std::shared_ptr<TensorTransform<Target>> inner_;
  double p_;
};

}  // namespace athanor::data::transforms
