#include "athanor/io/image.h"

#include "athanor/io/image_codec.h"
#include "athanor/ops/factory.h"

namespace athanor::io {

namespace detail {

void check_image(std::uint64_t width, std::uint64_t height, std::uint64_t pixels_per_byte, std::uint64_t bytes,
                 const std::string& name) {
  constexpr std::uint64_t kMaxPixels = std::uint64_t{1} << 28;
  std::uint64_t pixels = 0;
  ATHANOR_CHECK_TYPE(IoError, width > 0 && height > 0, name, ": an image of ", width, "x", height, " pixels");
  ATHANOR_CHECK_TYPE(IoError, !__builtin_mul_overflow(width, height, &pixels) && pixels <= kMaxPixels, name,
                     ": an image of ", width, "x", height, " pixels, at most ", kMaxPixels, " are read");
  ATHANOR_CHECK_TYPE(IoError, pixels / pixels_per_byte <= bytes, name, ": truncated or hostile: it claims ", width, "x",
                     height, " pixels, its ", bytes, " bytes cannot hold them");
}

}  // namespace detail

namespace {

int channels_of(ImageMode mode, int present) {
  switch (mode) {
    case ImageMode::Gray:
      return 1;
    case ImageMode::GrayAlpha:
      return 2;
    case ImageMode::Rgb:
      return 3;
    case ImageMode::RgbAlpha:
      return 4;
    case ImageMode::Unchanged:
      break;
  }
  return present;
}

// Rec. 601's luma in 16 bits, rounded.
std::uint8_t luma(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 0x8000) >> 16);
}

// Pixels side by side to planes, one after the other.
void spread(const detail::Pixels& from, int channels, std::uint8_t* to) {
  const std::size_t pixels = from.width * from.height, step = static_cast<std::size_t>(from.channels);
  const bool had_colors = from.channels >= 3, had_alpha = from.channels % 2 == 0;
  const int colors = channels >= 3 ? 3 : 1;
  for (int c = 0; c < channels; ++c, to += pixels) {
    const std::uint8_t* pixel = from.values.data();
    if (c == colors && !had_alpha)
      std::fill_n(to, pixels, std::uint8_t{255});
    else if (c < colors && colors == 1 && had_colors)
      for (std::size_t i = 0; i < pixels; ++i, pixel += step) to[i] = luma(pixel);
    else {
      pixel += c == colors ? from.channels - 1 : had_colors ? c : 0;
      for (std::size_t i = 0; i < pixels; ++i, pixel += step) to[i] = *pixel;
    }
  }
}

}  // namespace

Tensor decode_image(Bytes content, const std::string& name, ImageMode mode) {
  ATHANOR_CHECK_TYPE(IoError, detail::is_png(content) || detail::is_jpeg(content), name,
                     ": neither a PNG nor a JPEG image (", content.size(), " bytes)");
  const detail::Pixels pixels =
      detail::is_png(content) ? detail::decode_png(content, name) : detail::decode_jpeg(content, name);
  const int channels = channels_of(mode, pixels.channels);
  Tensor image = empty({channels, static_cast<std::int64_t>(pixels.height), static_cast<std::int64_t>(pixels.width)},
                       TensorOptions(DType::Byte));
  spread(pixels, channels, image.data_ptr<std::uint8_t>());
  return image;
}

Tensor read_image(const std::string& path, ImageMode mode) {
  const MappedFile file(path);
  return decode_image(file.bytes(), athanor::detail::str("'", path, "'"), mode);
}

}  // namespace athanor::io
