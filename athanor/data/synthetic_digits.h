#pragma once
/// Images of digits that look handwritten, made from nothing: for running MNIST programs and tests without its files.
/// Each digit is written in one of several forms by a wobbling pen of random slant, size, thickness and pressure, then
/// scaled and centred as MNIST's images are. A network trained on them alone reads most of MNIST.

#include <cstdint>
#include <vector>

namespace athanor::data {

/// Side of an image in pixels.
inline constexpr int kDigitSide = 28;
inline constexpr int kDigitPixels = kDigitSide * kDigitSide;

/// Draws image `index` of the endless series `seed` into kDigitPixels bytes (0 paper, 255 ink), row by row, and returns
/// its label, 0 to 9. The result depends on (seed, index) only. Thread-safe.
int synthetic_digit(std::uint64_t seed, std::uint64_t index, std::uint8_t* pixels);

/// The same as a digit of the caller's choice. Throws ValueError unless 0 <= label <= 9.
void synthetic_digit_of(int label, std::uint64_t seed, std::uint64_t index, std::uint8_t* pixels);

struct SyntheticDigits {
  std::vector<std::uint8_t> images;  ///< count × 28 × 28
  std::vector<std::uint8_t> labels;  ///< count
};

/// Images first … first + count - 1 of the series, drawn on all threads. Throws ValueError for a negative count.
SyntheticDigits synthetic_digits(std::int64_t count, std::uint64_t seed, std::uint64_t first = 0);

}  // namespace athanor::data
