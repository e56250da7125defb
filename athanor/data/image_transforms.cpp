#include "athanor/data/image_transforms.h"

#include <algorithm>
#include <cmath>

#include "athanor/data/randomness.h"

namespace athanor::data::transforms::detail {

namespace {

void check_image(const char* name, const Tensor& image) {
  ATHANOR_CHECK_VALUE(image.dim() >= 2, name, ": expected an image (..., height, width), got shape ", image.sizes());
}

Tensor crop(const Tensor& image, std::int64_t top, std::int64_t left, ImageSize size) {
  return image.narrow(-2, top, size.height).narrow(-1, left, size.width);
}

// Row i holds what each of `from` input samples contributes to output sample i: a triangle around the sample's place,
// as wide as the samples it stands for. Rows add up to 1, which at the edges equals repeating the edge.
Tensor bilinear_weights(std::int64_t from, std::int64_t to) {
  Tensor weights = zeros({to, from}, kFloat);
  float* row = weights.data_ptr<float>();
  const double scale = static_cast<double>(from) / static_cast<double>(to), reach = std::max(scale, 1.0);
  for (std::int64_t i = 0; i < to; ++i, row += from) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(center - reach)));
    const auto last = std::min(from - 1, static_cast<std::int64_t>(std::ceil(center + reach)));
    const auto weight = [&](std::int64_t j) {
      return std::max(0.0, 1 - std::abs(static_cast<double>(j) + 0.5 - center) / reach);
    };
    double total = 0;
    for (std::int64_t j = first; j <= last; ++j) total += weight(j);
    for (std::int64_t j = first; j <= last; ++j) row[j] = static_cast<float>(weight(j) / total);
  }
  return weights;
}

}  // namespace

void check_image_size(const char* name, ImageSize size) {
  ATHANOR_CHECK_VALUE(size.height > 0 && size.width > 0, name, ": the size is ", size.height, "x", size.width,
                      ", expected positive numbers");
}

void check_probability(const char* name, double p) {
  ATHANOR_CHECK_VALUE(p >= 0 && p <= 1, name, ": the probability is ", p, ", expected 0 to 1");
}

Tensor center_crop(const Tensor& image, ImageSize size) {
  check_image("CenterCrop", image);
  const NoGradGuard off;
  const std::int64_t h = image.size(-2), w = image.size(-1);
  const std::int64_t need_h = std::max<std::int64_t>(0, size.height - h),
                     need_w = std::max<std::int64_t>(0, size.width - w);
  const Tensor padded =
      need_h || need_w ? constant_pad_nd(image, {need_w / 2, need_w - need_w / 2, need_h / 2, need_h - need_h / 2}, 0)
                       : image;
  // Halves to even, as Python's round.
  const auto middle = [](std::int64_t slack) {
    return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(slack) / 2));
  };
  return crop(padded, middle(padded.size(-2) - size.height), middle(padded.size(-1) - size.width), size);
}

Tensor random_crop(const Tensor& image, ImageSize size, std::int64_t padding) {
  check_image("RandomCrop", image);
  const NoGradGuard off;
  const Tensor padded = padding ? constant_pad_nd(image, {padding, padding, padding, padding}, 0) : image;
  const std::int64_t rows = padded.size(-2) - size.height, columns = padded.size(-1) - size.width;
  ATHANOR_CHECK_VALUE(rows >= 0 && columns >= 0, "RandomCrop: required crop size ", size.height, "x", size.width,
                      " is larger than the image's ", padded.size(-2), "x", padded.size(-1), " with padding ", padding);
  const auto top = static_cast<std::int64_t>(draw_below(static_cast<std::size_t>(rows) + 1));
  const auto left = static_cast<std::int64_t>(draw_below(static_cast<std::size_t>(columns) + 1));
  return crop(padded, top, left, size);
}

Tensor random_flip(const Tensor& image, std::int64_t dim, double p) {
  check_image("RandomFlip", image);
  const NoGradGuard off;
  return draw_uniform() < p ? image.flip({dim}) : image;
}

Tensor resize(const Tensor& image, ImageSize size) {
  check_image("Resize", image);
  ATHANOR_CHECK_VALUE(image.size(-2) > 0 && image.size(-1) > 0, "Resize: the image is empty, shape ", image.sizes());
  if (image.size(-2) == size.height && image.size(-1) == size.width) return image;
  const NoGradGuard off;
  const bool bytes = image.dtype() == kByte;
  const Tensor x = image.is_floating_point() ? image : image.to(kFloat);
  const Tensor rows = bilinear_weights(image.size(-2), size.height).to(x.dtype());
  const Tensor columns = bilinear_weights(image.size(-1), size.width).to(x.dtype());
  const Tensor out = matmul(matmul(rows, x), columns.t());
  return bytes ? out.round().clamp(0, 255).to(kByte) : out;
}

Tensor resize_shorter(const Tensor& image, std::int64_t shorter) {
  check_image("Resize", image);
  const std::int64_t h = image.size(-2), w = image.size(-1);
  ATHANOR_CHECK_VALUE(h > 0 && w > 0, "Resize: the image is empty, shape ", image.sizes());
  return h <= w ? resize(image, {shorter, shorter * w / h}) : resize(image, {shorter * h / w, shorter});
}

}  // namespace athanor::data::transforms::detail
