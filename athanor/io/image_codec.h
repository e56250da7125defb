#pragma once
/// What the decoders of image formats give.

#include <cstdint>
#include <string>
#include <vector>

#include "athanor/io/file.h"

namespace athanor::io::detail {

/// Rows from the top, pixels side by side: gray, gray and alpha, RGB or RGBA.
struct Pixels {
  std::uint64_t width = 0, height = 0;
  int channels = 0;
  std::vector<std::uint8_t> values;
};

bool is_png(Bytes content);
bool is_jpeg(Bytes content);
/// Throw IoError, NotImplementedError.
Pixels decode_png(Bytes content, const std::string& name);
Pixels decode_jpeg(Bytes content, const std::string& name);

/// Throws IoError for an image without pixels, with more than 2^28, or with more than `bytes` of its file can say at
/// `pixels_per_byte`.
void check_image(std::uint64_t width, std::uint64_t height, std::uint64_t pixels_per_byte, std::uint64_t bytes,
                 const std::string& name);

}  // namespace athanor::io::detail
