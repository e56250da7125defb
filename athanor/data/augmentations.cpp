#include "athanor/data/augmentations.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "athanor/base/parallel.h"
#include "athanor/data/randomness.h"

namespace athanor::data::transforms {

namespace {

void check_image(const char* name, const Tensor& image, std::int64_t least_dims = 2) {
  ATHANOR_CHECK_VALUE(image.dim() >= least_dims && image.numel() > 0, name, ": expected an image (..., ",
                      least_dims > 2 ? "channels, " : "", "height, width) with pixels, got shape ", image.sizes());
}

void check_colors(const char* name, const Tensor& image) {
  check_image(name, image, 3);
  ATHANOR_CHECK_VALUE(image.size(-3) == 1 || image.size(-3) == 3, name, ": expected 1 or 3 channels, got shape ",
                      image.sizes());
  ATHANOR_CHECK_TYPE(TypeError, image.dtype() == kByte || image.is_floating_point(), name,
                     ": expected bytes or floats, got ", image.dtype());
}

// a · ratio + b · (1 - ratio) within the range of colours.
Tensor blend(const Tensor& a, const Tensor& b, double ratio) {
  const bool bytes = a.dtype() == kByte;
  const Tensor x = bytes ? a.to(kFloat) : a;
  return (x * ratio + b.to(x.dtype()) * (1 - ratio)).clamp(0, bytes ? 255 : 1).to(a.dtype());
}

Tensor gray_of(const Tensor& image) {
  const Tensor x = image.dtype() == kByte ? image.to(kFloat) : image;
  const Tensor gray = x.narrow(-3, 0, 1) * 0.2989 + x.narrow(-3, 1, 1) * 0.587 + x.narrow(-3, 2, 1) * 0.114;
  return gray.to(image.dtype());
}

// Which pixel stands at `i`, -before <= i < n + after.
std::int64_t padded_index(std::int64_t i, std::int64_t n, PaddingMode mode) {
  if (mode == PaddingMode::Edge) return std::clamp<std::int64_t>(i, 0, n - 1);
  const std::int64_t shift = mode == PaddingMode::Symmetric ? 1 : 0;
  if (i < 0) return -i - shift;
  return i < n ? i : 2 * (n - 1) - i + shift;
}

Tensor pad_side(const Tensor& image, std::int64_t dim, std::int64_t before, std::int64_t after, PaddingMode mode) {
  const std::int64_t n = image.size(dim), most = mode == PaddingMode::Reflect ? n - 1 : n;
  ATHANOR_CHECK_VALUE(mode == PaddingMode::Edge || (before <= most && after <= most), "Pad: padding of ", before,
                      " and ", after, " by reflection, at most ", most, " are possible for shape ", image.sizes());
  if (before == 0 && after == 0) return image;
  Tensor index = empty({before + n + after}, kLong);
  for (std::int64_t i = 0; i < before + n + after; ++i)
    index.data_ptr<std::int64_t>()[i] = padded_index(i - before, n, mode);
  return image.index_select(dim, index);
}

struct Hsv {
  float h, s, v;
};

Hsv to_hsv(float r, float g, float b) {
  const float most = std::max({r, g, b}), least = std::min({r, g, b}), range = most - least;
  if (range == 0) return {0, 0, most};
  const float rc = (most - r) / range, gc = (most - g) / range, bc = (most - b) / range;
  const float h = most == r ? bc - gc : most == g ? 2 + rc - bc : 4 + gc - rc;
  return {std::fmod(h / 6 + 1, 1.0F), range / most, most};
}

std::array<float, 3> to_rgb(Hsv c) {
  const float sector = std::floor(c.h * 6), f = c.h * 6 - sector;
  const auto unit = [](float x) { return std::clamp(x, 0.0F, 1.0F); };
  const float p = unit(c.v * (1 - c.s)), q = unit(c.v * (1 - c.s * f)), t = unit(c.v * (1 - c.s * (1 - f)));
  switch (static_cast<int>(sector) % 6) {
    case 0:
      return {c.v, t, p};
    case 1:
      return {q, c.v, p};
    case 2:
      return {p, c.v, t};
    case 3:
      return {p, q, c.v};
    case 4:
      return {t, p, c.v};
    default:
      return {c.v, p, q};
  }
}

// Where the pixels of a turned image come from: x' = cos · x + sin · y, y' = -sin · x + cos · y about both middles.
struct Turn {
  double cosine, sine;
  std::int64_t height, width, out_height, out_width;

  Turn(const Tensor& image, double degrees, bool expand)
      : height(image.size(-2)), width(image.size(-1)), out_height(height), out_width(width) {
    const double angle = -degrees * std::numbers::pi / 180;
    cosine = std::cos(angle);
    sine = std::sin(angle);
    if (!expand) return;
    // Corners may miss a whole number by rounding: a tenth of a thousandth of a pixel does not count.
    const double w = static_cast<double>(width) / 2, h = static_cast<double>(height) / 2;
    const auto extent = [](double a, double b, double middle) {
      const double reach = std::max(std::abs(a), std::abs(b));
      return static_cast<std::int64_t>(std::ceil(middle + reach - 1e-4) - std::floor(middle - reach + 1e-4));
    };
    out_width = extent(w * cosine + h * sine, w * cosine - h * sine, w);
    out_height = extent(-w * sine + h * cosine, w * sine + h * cosine, h);
  }
  // In pixels of the source, between which it may lie.
  std::pair<double, double> source(std::int64_t row, std::int64_t column) const {
    const double x = static_cast<double>(column) - static_cast<double>(out_width - 1) / 2,
                 y = static_cast<double>(row) - static_cast<double>(out_height - 1) / 2;
    return {cosine * x + sine * y + static_cast<double>(width - 1) / 2,
            -sine * x + cosine * y + static_cast<double>(height - 1) / 2};
  }
};

// Calls take(pixel, weight) for the source's pixels that make up one of the result.
template <class F>
void for_sources(const Turn& turn, Interpolation interpolation, std::int64_t row, std::int64_t column, F&& take) {
  const auto [x, y] = turn.source(row, column);
  const auto at = [&](double px, double py, double weight) {
    if (px >= 0 && py >= 0 && px < static_cast<double>(turn.width) && py < static_cast<double>(turn.height))
      take(static_cast<std::int64_t>(py) * turn.width + static_cast<std::int64_t>(px), static_cast<float>(weight));
  };
  if (interpolation == Interpolation::Nearest) return at(std::nearbyint(x), std::nearbyint(y), 1);
  const double left = std::floor(x), top = std::floor(y), right = x - left, bottom = y - top;
  at(left, top, (1 - right) * (1 - bottom));
  at(left + 1, top, right * (1 - bottom));
  at(left, top + 1, (1 - right) * bottom);
  at(left + 1, top + 1, right * bottom);
}

}  // namespace

namespace functional {

Tensor pad(const Tensor& image, Padding p, double fill, PaddingMode mode) {
  check_image("Pad", image);
  ATHANOR_CHECK_VALUE(p.left >= 0 && p.top >= 0 && p.right >= 0 && p.bottom >= 0, "Pad: padding of ", p.left, ", ",
                      p.top, ", ", p.right, ", ", p.bottom, ", expected none below 0");
  const NoGradGuard off;
  if (mode == PaddingMode::Constant) return constant_pad_nd(image, {p.left, p.right, p.top, p.bottom}, fill);
  return pad_side(pad_side(image, -1, p.left, p.right, mode), -2, p.top, p.bottom, mode);
}

Tensor crop(const Tensor& image, std::int64_t top, std::int64_t left, ImageSize size) {
  check_image("crop", image);
  ATHANOR_CHECK_VALUE(top >= 0 && left >= 0 && size.height > 0 && size.width > 0 &&
                          top <= image.size(-2) - size.height && left <= image.size(-1) - size.width,
                      "crop: ", size.height, "x", size.width, " at ", top, ", ", left, " passes the edge of shape ",
                      image.sizes());
  return image.narrow(-2, top, size.height).narrow(-1, left, size.width);
}

Tensor rgb_to_grayscale(const Tensor& image, std::int64_t channels) {
  check_colors("Grayscale", image);
  ATHANOR_CHECK_VALUE(channels == 1 || channels == 3, "Grayscale: ", channels, " channels asked for, expected 1 or 3");
  const NoGradGuard off;
  const Tensor gray = image.size(-3) == 3 ? gray_of(image) : image;
  return channels == 1 ? gray : cat({gray, gray, gray}, -3);
}

Tensor adjust_brightness(const Tensor& image, double factor) {
  check_colors("adjust_brightness", image);
  ATHANOR_CHECK_VALUE(factor >= 0, "adjust_brightness: factor ", factor, ", expected at least 0");
  const NoGradGuard off;
  return blend(image, zeros({1}, kFloat), factor);
}

Tensor adjust_contrast(const Tensor& image, double factor) {
  check_colors("adjust_contrast", image);
  ATHANOR_CHECK_VALUE(factor >= 0, "adjust_contrast: factor ", factor, ", expected at least 0");
  const NoGradGuard off;
  const Tensor gray = rgb_to_grayscale(image);
  const Tensor mean = (gray.dtype() == kByte ? gray.to(kFloat) : gray).mean({-3, -2, -1}, true);
  return blend(image, mean, factor);
}

Tensor adjust_saturation(const Tensor& image, double factor) {
  check_colors("adjust_saturation", image);
  ATHANOR_CHECK_VALUE(factor >= 0, "adjust_saturation: factor ", factor, ", expected at least 0");
  const NoGradGuard off;
  return image.size(-3) == 1 ? image : blend(image, gray_of(image), factor);
}

Tensor adjust_hue(const Tensor& image, double factor) {
  check_colors("adjust_hue", image);
  ATHANOR_CHECK_VALUE(factor >= -0.5 && factor <= 0.5, "adjust_hue: factor ", factor, ", expected -0.5 to 0.5");
  if (image.size(-3) == 1) return image;
  const NoGradGuard off;
  const bool bytes = image.dtype() == kByte;
  Tensor x = bytes ? image.to(kFloat).div_(255) : image.to(kFloat).clone().contiguous();
  x = x.contiguous();
  const std::int64_t plane = image.size(-2) * image.size(-1);
  for (std::int64_t i = 0; i < x.numel() / (3 * plane); ++i) {
    float* r = x.data_ptr<float>() + i * 3 * plane;
    parallel_for(0, plane, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) {
        Hsv color = to_hsv(r[p], r[plane + p], r[2 * plane + p]);
        const float turned = color.h + static_cast<float>(factor);
        color.h = turned - std::floor(turned);
        const auto rgb = to_rgb(color);
        for (std::int64_t c = 0; c < 3; ++c) r[c * plane + p] = rgb[static_cast<std::size_t>(c)];
      }
    });
  }
  // torchvision's way back to bytes: each of the 256 gets the same share of 0 … 1.
  return bytes ? x.mul_(255.999).to(kByte) : x.to(image.dtype());
}

Tensor rotate(const Tensor& image, double degrees, Interpolation interpolation, bool expand, double fill) {
  check_image("rotate", image);
  ATHANOR_CHECK_VALUE(std::isfinite(degrees), "rotate: by ", degrees, " degrees");
  const NoGradGuard off;
  const Turn turn(image, degrees, expand);
  const Tensor x = image.to(kFloat).contiguous();
  DimVector shape(image.sizes());
  shape[shape.size() - 2] = turn.out_height;
  shape[shape.size() - 1] = turn.out_width;
  Tensor out = empty(shape, kFloat);
  const std::int64_t from_plane = turn.height * turn.width, to_plane = turn.out_height * turn.out_width,
                     planes = x.numel() / from_plane;
  const float* from = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
  parallel_for(0, turn.out_height, std::max<std::int64_t>(1, (1 << 13) / turn.out_width),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row)
                   for (std::int64_t column = 0; column < turn.out_width; ++column) {
                     float covered = 0;
                     const std::int64_t at = row * turn.out_width + column;
                     for (std::int64_t c = 0; c < planes; ++c) to[c * to_plane + at] = 0;
                     for_sources(turn, interpolation, row, column, [&](std::int64_t pixel, float weight) {
                       covered += weight;
                       for (std::int64_t c = 0; c < planes; ++c)
                         to[c * to_plane + at] += weight * from[c * from_plane + pixel];
                     });
                     for (std::int64_t c = 0; c < planes; ++c)
                       to[c * to_plane + at] += (1 - covered) * static_cast<float>(fill);
                   }
               });
  return image.is_floating_point() ? out.to(image.dtype()) : out.round_().to(image.dtype());
}

Tensor erase(const Tensor& image, std::int64_t top, std::int64_t left, ImageSize size, ArrayRef<double> value) {
  check_image("erase", image, 3);
  ATHANOR_CHECK_VALUE(value.size() == 1 || static_cast<std::int64_t>(value.size()) == image.size(-3),
                      "erase: ", value.size(), " values, expected one, or one for each of the ", image.size(-3),
                      " channels");
  const NoGradGuard off;
  Tensor out = image.clone();
  const Tensor part = crop(out, top, left, size);
  for (std::int64_t c = 0; c < image.size(-3); ++c)
    part.select(-3, c).fill_(value[value.size() == 1 ? 0 : static_cast<std::size_t>(c)]);
  return out;
}

}  // namespace functional

namespace detail {

namespace {

std::int64_t draw_place(std::int64_t room) {
  return static_cast<std::int64_t>(draw_below(static_cast<std::size_t>(room) + 1));
}

// Side lengths of a rectangle with the drawn area and the drawn ratio of the first side to the second.
std::pair<std::int64_t, std::int64_t> draw_sides(double area, Interval scale, Interval ratio) {
  const double wanted = area * draw_from(scale);
  const double shape = std::exp(draw_from({std::log(ratio.low), std::log(ratio.high)}));
  return {static_cast<std::int64_t>(std::nearbyint(std::sqrt(wanted * shape))),
          static_cast<std::int64_t>(std::nearbyint(std::sqrt(wanted / shape)))};
}

constexpr int kAttempts = 10;

}  // namespace

double draw_from(Interval range) { return range.low + (range.high - range.low) * draw_uniform(); }

void check_interval(const char* name, Interval range, double least) {
  ATHANOR_CHECK_VALUE(range.low >= least && range.low <= range.high && std::isfinite(range.high), name, " is ",
                      range.low, " to ", range.high, ", expected rising numbers from ", least, " on");
}

Interval jitter_range(const char* name, double amount, bool is_hue) {
  ATHANOR_CHECK_VALUE(amount >= 0 && (!is_hue || amount <= 0.5) && std::isfinite(amount), "ColorJitter: ", name, " is ",
                      amount, ", expected ", is_hue ? "0 to 0.5" : "at least 0");
  return is_hue ? Interval{-amount, amount} : Interval{std::max(0.0, 1 - amount), 1 + amount};
}

Tensor jitter(const Tensor& image, const std::array<Interval, 4>& ranges) {
  using Adjust = Tensor (*)(const Tensor&, double);
  static constexpr Adjust kAdjust[] = {functional::adjust_brightness, functional::adjust_contrast,
                                       functional::adjust_saturation, functional::adjust_hue};
  std::array<std::size_t, 4> order = {0, 1, 2, 3};
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw_below(i)]);
  Tensor out = image;
  for (const std::size_t which : order)
    if (ranges[which].low < ranges[which].high) out = kAdjust[which](out, draw_from(ranges[which]));
  return out;
}

Tensor random_resized_crop(const Tensor& image, ImageSize size, Interval scale, Interval ratio) {
  check_image("RandomResizedCrop", image);
  const std::int64_t height = image.size(-2), width = image.size(-1);
  const auto h = static_cast<double>(height), w = static_cast<double>(width);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto [columns, rows] = draw_sides(h * w, scale, ratio);
    if (columns <= 0 || rows <= 0 || columns > width || rows > height) continue;
    const std::int64_t top = draw_place(height - rows), left = draw_place(width - columns);
    return resize(functional::crop(image, top, left, {rows, columns}), size);
  }
  // The largest part in the middle whose ratio is allowed.
  std::int64_t rows = height, columns = width;
  if (w / h < ratio.low) rows = static_cast<std::int64_t>(std::nearbyint(w / ratio.low));
  if (w / h > ratio.high) columns = static_cast<std::int64_t>(std::nearbyint(h * ratio.high));
  rows = std::clamp<std::int64_t>(rows, 1, height);
  columns = std::clamp<std::int64_t>(columns, 1, width);
  return resize(functional::crop(image, (height - rows) / 2, (width - columns) / 2, {rows, columns}), size);
}

Tensor random_erase(const Tensor& image, double p, Interval scale, Interval ratio, ArrayRef<double> value) {
  check_image("RandomErasing", image, 3);
  if (draw_uniform() >= p) return image;
  const std::int64_t height = image.size(-2), width = image.size(-1);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto [rows, columns] = draw_sides(static_cast<double>(height * width), scale, ratio);
    if (rows <= 0 || columns <= 0 || rows >= height || columns >= width) continue;
    const std::int64_t top = draw_place(height - rows), left = draw_place(width - columns);
    return functional::erase(image, top, left, {rows, columns}, value);
  }
  return image;
}

}  // namespace detail

}  // namespace athanor::data::transforms
