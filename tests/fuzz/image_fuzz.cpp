// PNG and JPEG images: whatever the bytes, decoding returns or throws IoError, and takes memory in proportion.
#include "athanor/base/error.h"
#include "athanor/io/image.h"
#include "fuzz.h"

namespace athanor::fuzz {

namespace {

void fuzz_image(const std::uint8_t* data, std::size_t size) {
  try {
    const Tensor image = io::decode_image(std::as_bytes(std::span(data, size)), "input", io::ImageMode::RgbAlpha);
    touch(image.data_ptr(), image.nbytes());
  } catch (const IoError&) {
  }
}

}  // namespace

}  // namespace athanor::fuzz

FUZZ_TARGET(athanor::fuzz::fuzz_image);

#ifndef ATHANOR_LIBFUZZER
#include <gtest/gtest.h>

#include "io/image_builder.h"

namespace athanor::fuzz {

using namespace std::string_literals;

TEST(Fuzz, PngDecoder) {
  FuzzOptions options;
  const std::string palette = io::png_chunk("PLTE", "\x0a\x14\x1e\x28\x32\x3c"), clear = io::png_chunk("tRNS", "\x80");
  for (const std::string& file : {
           io::png_file(2, 2, 8, 2, "\0\1\2\3\4\5\6\1\1\2\3\4\5\6"s),
           io::png_file(2, 1, 1, 3, "\0\x40"s, palette + clear),
           io::png_file(3, 3, 16, 6, std::string(75, '\4')),
           io::png_file(2, 2, 8, 0, "\0\1\0\2\0\3\4"s, "", true),
           io::png_file(16, 16, 4, 0, std::string(16 * 9, '\2'), io::png_chunk("gAMA", "\0\0\xb1\x8f"s)),
       })
    options.corpus.push_back(bytes_of(file));
  options.words = {"IDAT", "IEND", "PLTE", "tRNS", "\0\0\0\0IDAT\x35\xaf\x06\x1e"s, io::png_chunk("IEND", ""), palette};
  // A thousand bytes of rows in one, an eighth of a byte per pixel, four channels; and the decoded copy.
  options.memory_per_byte = 34000;
  run_fuzzer(fuzz_image, options);
}

TEST(Fuzz, JpegDecoder) {
  FuzzOptions options;
  for (const bool progressive : {false, true})
    for (const int channels : {1, 3, 4}) {
      std::vector<std::uint8_t> pixels;
      for (int i = 0; i < 24 * 20 * channels; ++i) pixels.push_back(static_cast<std::uint8_t>(i * i / 7));
      options.corpus.push_back(bytes_of(io::jpeg_file(24, 20, channels, pixels, progressive)));
    }
  options.words = {"\xff\xd8", "\xff\xd9",          "\xff\xda", "\xff\xc4",
                   "\xff\xdb", "\xff\xdd\0\4\0\1"s, "\xff\xc2", "\xff\xd0"};
  options.memory_per_byte = 4200;
  run_fuzzer(fuzz_image, options);
}

}  // namespace athanor::fuzz
#endif
