#pragma once
/// Images made by hand for tests: PNG through zlib, JPEG through libjpeg.

#include <zlib.h>

#include <cstdint>
#include <cstdio>
// After <cstdio>, whose FILE it needs.
#include <jpeglib.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace athanor::io {

inline std::string big_endian(std::uint32_t n) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(n >> shift);
  return out;
}

inline std::string png_chunk(const std::string& type, const std::string& content) {
  const std::string checked = type + content;
  const auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return big_endian(static_cast<std::uint32_t>(content.size())) + checked + big_endian(static_cast<std::uint32_t>(crc));
}

/// `rows`: each row's bytes after its filter byte; color as in the format: 0 gray, 2 RGB, 3 palette, 4 gray and alpha,
/// 6 RGBA. `extra` chunks come before the pixels.
inline std::string png_file(std::uint32_t width, std::uint32_t height, int bits, int color, const std::string& rows,
                            const std::string& extra = "", bool interlaced = false) {
  uLongf size = ::compressBound(rows.size());
  std::string packed(size, '\0');
  if (::compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
                 rows.size()) != Z_OK)
    std::abort();
  packed.resize(size);
  const std::string header = big_endian(width) + big_endian(height) + static_cast<char>(bits) +
                             static_cast<char>(color) + '\0' + '\0' + static_cast<char>(interlaced);
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + extra + png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

/// `pixels`: rows of `channels` bytes each: 1 gray, 3 RGB, 4 CMYK.
inline std::string jpeg_file(unsigned width, unsigned height, int channels, std::vector<std::uint8_t> pixels,
                             bool progressive = false, int quality = 95) {
  jpeg_compress_struct state{};
  jpeg_error_mgr errors{};
  state.err = ::jpeg_std_error(&errors);
  ::jpeg_create_compress(&state);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  ::jpeg_mem_dest(&state, &out, &size);
  state.image_width = width;
  state.image_height = height;
  state.input_components = channels;
  state.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  ::jpeg_set_defaults(&state);
  ::jpeg_set_quality(&state, quality, TRUE);
  if (progressive) ::jpeg_simple_progression(&state);
  ::jpeg_start_compress(&state, TRUE);
  while (state.next_scanline < height) {
    JSAMPROW row = pixels.data() + std::size_t{state.next_scanline} * width * static_cast<unsigned>(channels);
    ::jpeg_write_scanlines(&state, &row, 1);
  }
  ::jpeg_finish_compress(&state);
  std::string file(reinterpret_cast<char*>(out), size);
  ::jpeg_destroy_compress(&state);
  std::free(out);
  return file;
}

}  // namespace athanor::io
