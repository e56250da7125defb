#pragma once
/// PNG and JPEG images as tensors of bytes, decoded by libpng and libjpeg, which are loaded when first used
/// (NotImplementedError if they are not installed). Malformed, truncated and hostile images are an IoError naming the
/// file: memory is in proportion to its size. Thread-safe.

#include <string>

#include "athanor/io/file.h"
#include "athanor/ops/tensor.h"

namespace athanor::io {

/// Which channels an image shall have. Colours become gray by 0.299 R + 0.587 G + 0.114 B; alpha is dropped, or opaque
/// where there was none.
enum class ImageMode { Unchanged, Gray, GrayAlpha, Rgb, RgbAlpha };

/// The image as uint8 (channels, height, width), row-major, as torchvision's read_image. 16-bit channels are scaled to
/// 8 bits; palettes, CMYK and YCCK become RGB; gamma, colour profiles and Exif's orientation are left alone.
Tensor read_image(const std::string& path, ImageMode mode = ImageMode::Unchanged);
/// The same of a file's bytes; `name` is used in messages.
Tensor decode_image(Bytes content, const std::string& name, ImageMode mode = ImageMode::Unchanged);

}  // namespace athanor::io
