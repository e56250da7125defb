#include "athanor/io/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/shared_data.h"
#include "helpers.h"
#include "io/image_builder.h"
#include "python.h"

namespace athanor::io {

namespace {

using namespace std::string_literals;

Tensor decode(const std::string& file, ImageMode mode = ImageMode::Unchanged) {
  return decode_image(std::as_bytes(std::span(file)), "'x'", mode);
}

Tensor bytes(std::vector<int> values, IntArrayRef sizes) {
  Tensor t = empty({static_cast<std::int64_t>(values.size())}, kByte);
  std::copy(values.begin(), values.end(), t.data_ptr<std::uint8_t>());
  return t.view(sizes);
}

// A soft pattern, so that JPEG changes little.
std::vector<std::uint8_t> pattern(unsigned width, unsigned height, int channels) {
  std::vector<std::uint8_t> pixels;
  for (unsigned y = 0; y < height; ++y)
    for (unsigned x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        pixels.push_back(static_cast<std::uint8_t>(60 + 2 * x + y + 20 * static_cast<unsigned>(c)));
  return pixels;
}

std::int64_t worst(const Tensor& image, const std::vector<std::uint8_t>& pixels, int channels) {
  std::int64_t most = 0;
  const auto plane = static_cast<std::size_t>(image.size(1) * image.size(2));
  const auto* values = image.data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < plane; ++i)
    for (int c = 0; c < channels; ++c)
      most = std::max<std::int64_t>(
          most, std::abs(values[static_cast<std::size_t>(c) * plane + i] -
                         pixels[i * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c)]));
  return most;
}

}  // namespace

TEST(Png, EveryKindOfPixelBecomesBytes) {
  EXPECT_TRUE(equal(decode(png_file(2, 2, 8, 0, "\0\1\2\0\3\4"s)), bytes({1, 2, 3, 4}, {1, 2, 2})));
  EXPECT_TRUE(equal(decode(png_file(8, 1, 1, 0, "\0\xa5"s)), bytes({255, 0, 255, 0, 0, 255, 0, 255}, {1, 1, 8})));
  EXPECT_TRUE(equal(decode(png_file(2, 1, 4, 0, "\0\x3f"s)), bytes({51, 255}, {1, 1, 2})));
  EXPECT_TRUE(equal(decode(png_file(1, 1, 16, 0, "\0\x80\x40"s)), bytes({128}, {1, 1, 1})));
  EXPECT_TRUE(equal(decode(png_file(2, 1, 8, 2, "\0\1\2\3\4\5\6"s)), bytes({1, 4, 2, 5, 3, 6}, {3, 1, 2})));
  EXPECT_TRUE(equal(decode(png_file(1, 1, 8, 4, "\0\7\x80"s)), bytes({7, 128}, {2, 1, 1})));
  EXPECT_TRUE(equal(decode(png_file(1, 1, 8, 6, "\0\1\2\3\4"s)), bytes({1, 2, 3, 4}, {4, 1, 1})));
  const std::string palette = png_chunk("PLTE", "\x0a\x14\x1e\x28\x32\x3c");
  EXPECT_TRUE(equal(decode(png_file(2, 1, 1, 3, "\0\x40"s, palette)), bytes({10, 40, 20, 50, 30, 60}, {3, 1, 2})));
  const std::string clear = png_chunk("tRNS", "\0"s);
  EXPECT_TRUE(equal(decode(png_file(2, 1, 1, 3, "\0\x40"s, palette + clear)).select(0, 3), bytes({0, 255}, {1, 2})));
}

TEST(Png, InterlacedRowsArePutInPlace) {
  // Adam7 of 2 x 2: the passes hold pixel (0,0), then (1,0), then row 1.
  EXPECT_TRUE(equal(decode(png_file(2, 2, 8, 0, "\0\1\0\2\0\3\4"s, "", true)), bytes({1, 2, 3, 4}, {1, 2, 2})));
}

TEST(Images, ComeInTheModeAskedFor) {
  const std::string rgb = png_file(1, 1, 8, 2, "\0\xff\x80\x10"s), rgba = png_file(1, 1, 8, 6, "\0\xff\x80\x10\x20"s),
                    gray = png_file(1, 1, 8, 0, "\0\x30"s);
  EXPECT_TRUE(equal(decode(gray, ImageMode::Rgb), bytes({48, 48, 48}, {3, 1, 1})));
  EXPECT_TRUE(equal(decode(gray, ImageMode::RgbAlpha), bytes({48, 48, 48, 255}, {4, 1, 1})));
  EXPECT_TRUE(equal(decode(rgba, ImageMode::Rgb), bytes({255, 128, 16}, {3, 1, 1})));
  // 0.299 * 255 + 0.587 * 128 + 0.114 * 16 = 153.2
  EXPECT_TRUE(equal(decode(rgb, ImageMode::Gray), bytes({153}, {1, 1, 1})));
  EXPECT_TRUE(equal(decode(rgba, ImageMode::GrayAlpha), bytes({153, 32}, {2, 1, 1})));
}

TEST(Png, DamageNamesTheFile) {
  const std::string file = png_file(4, 4, 8, 2, std::string(4 * 13, '\0'));
  for (std::size_t n = 0; n < file.size() - 12; ++n)
    EXPECT_CONTAINS(error_of([&] { decode(file.substr(0, n)); }), "'x'");
  std::string flipped = file;
  flipped[50] = static_cast<char>(flipped[50] ^ 1);
  EXPECT_CONTAINS(error_of([&] { decode(flipped); }), "not a valid PNG image");
  EXPECT_CONTAINS(error_of([] { decode("GIF89a"); }), "neither a PNG nor a JPEG");
  EXPECT_CONTAINS(error_of([] { decode(png_file(10000, 10000, 8, 2, "\0"s)); }), "hostile");
  EXPECT_CONTAINS(error_of([] { read_image("/nonexistent/x.png"); }), "/nonexistent/x.png");
}

TEST(Jpeg, ScansOverALargePictureAreBoundedByTheFilesSize) {
  const unsigned n = 2048;
  const std::string file = jpeg_file(n, n, 1, std::vector<std::uint8_t>(std::size_t{n} * n, 77), true);
  EXPECT_EQ(decode(file).size(1), n);
  // The last scan, with its tables, over and over.
  const std::size_t scan = file.rfind("\xff\xda"), tables = file.rfind("\xff\xc4", scan), end = file.size() - 2;
  ASSERT_LT(tables, scan);
  std::string many = file.substr(0, end);
  for (int i = 0; i < 120; ++i) many += file.substr(tables, end - tables);
  try {
    decode(many + "\xff\xd9");
    ADD_FAILURE() << "read " << many.size() << " bytes";
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), ::testing::ContainsRegex("[0-9]+ scans of 2048 x 2048 pixels in [0-9]+ bytes"));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("'x': "));
  }
}

TEST(Jpeg, BaselineAndProgressiveGiveThePixels) {
  for (const bool progressive : {false, true})
    for (const int channels : {1, 3}) {
      const auto pixels = pattern(37, 21, channels);
      const Tensor image = decode(jpeg_file(37, 21, channels, pixels, progressive, 100));
      EXPECT_EQ(image.sizes().vec(), (std::vector<std::int64_t>{channels, 21, 37}));
      EXPECT_LE(worst(image, pixels, channels), 3) << channels << progressive;
    }
}

TEST(Jpeg, CmykBecomesRgb) {
  // libjpeg marks CMYK as Adobe's, in which all is inverted: (C, M, Y, K) = (255, 128, 0, 255) is (255, 128, 0).
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < 64; ++i) pixels.insert(pixels.end(), {255, 128, 0, 255});
  const Tensor image = decode(jpeg_file(8, 8, 4, pixels));
  ASSERT_EQ(image.size(0), 3);
  EXPECT_NEAR(image[0][4][4].item<int>(), 255, 2);
  EXPECT_NEAR(image[1][4][4].item<int>(), 128, 2);
  EXPECT_NEAR(image[2][4][4].item<int>(), 0, 2);
}

TEST(Jpeg, DamageNamesTheFile) {
  for (const bool progressive : {false, true}) {
    const std::string file = jpeg_file(64, 64, 3, pattern(64, 64, 3), progressive);
    for (std::size_t n = 3; n < file.size() - 2; n += 11)
      EXPECT_CONTAINS(error_of([&] { decode(file.substr(0, n)); }), "'x'");
    // Height and width follow the frame's marker, its length and precision.
    std::string huge = file;
    const auto frame = huge.find(progressive ? "\xff\xc2" : "\xff\xc0");
    ASSERT_NE(frame, std::string::npos);
    huge.replace(frame + 5, 4, "\x20\0\x20\0"s);
    EXPECT_CONTAINS(error_of([&] { decode(huge); }), "hostile: it claims 8192x8192 pixels");
    huge.replace(frame + 5, 4, "\xff\0\xff\0"s);
    EXPECT_CONTAINS(error_of([&] { decode(huge); }), "at most 268435456");
  }
}

TEST(Images, DecodeAsPillowDoes) {
  const std::string folder = data::find_shared_data("images");
  if (folder.empty()) GTEST_SKIP() << "no photographs in ../shared/data/images";
  SKIP_WITHOUT_PYTHON("PIL, numpy");
  const TempFolder temp;
  ASSERT_TRUE(run_python(temp, "PIL, numpy", "folder = '" + folder + "'" + R"(
from PIL import Image
import numpy as np
for n in 'chelsea.png', 'coffee.png', 'rocket.jpg':
    colours = Image.open(folder + '/' + n).convert('RGB')
    np.asarray(colours).transpose(2, 0, 1).tofile(n + '.raw')
    np.asarray(colours.convert('L')).tofile(n + '.gray')
)"));
  for (const std::string name : {"chelsea.png", "coffee.png", "rocket.jpg"}) {
    const std::string path = std::filesystem::path(folder) / name;
    for (const bool gray : {false, true}) {
      const Tensor image = read_image(path, gray ? ImageMode::Gray : ImageMode::Rgb);
      const auto expected = read_file(temp / (name + (gray ? ".gray" : ".raw")));
      ASSERT_EQ(image.nbytes(), expected.size());
      int most = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        most = std::max(most, std::abs(image.data_ptr<std::uint8_t>()[i] - static_cast<int>(expected[i])));
      // Versions of libjpeg may differ in the last bit.
      EXPECT_LE(most, name == "rocket.jpg" ? 2 : 0) << name;
    }
  }
}

}  // namespace athanor::io
