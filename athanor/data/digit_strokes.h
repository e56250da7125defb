#pragma once
/// How the ten digits are written: pen strokes as curves through control points. Part of synthetic_digits.

#include <array>
#include <cstddef>
#include <cstdint>

namespace athanor::data::detail {

/// Numbers that depend on (seed, index) and on how many were drawn before, on nothing else.
class DigitRandom {
 public:
  DigitRandom(std::uint64_t seed, std::uint64_t index) : state_(mix(mix(seed) + index * 0x9e3779b97f4a7c15ULL)) {}

  std::uint64_t bits() { return mix(state_ += 0x9e3779b97f4a7c15ULL); }
  /// In [0, 1).
  float uniform() { return static_cast<float>(bits() >> 40) * 0x1p-24F; }
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  /// About normal, within three and a half deviations: a sum of four uniforms.
  float normal(float mean, float deviation) {
    const std::uint64_t b = bits();
    const auto sum = static_cast<float>((b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48));
    return mean + deviation * 1.7320508F * (sum * 0x1p-16F - 2.0F);
  }
  bool chance(float probability) { return uniform() < probability; }

 private:
  // The finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

/// Sine and cosine of an angle in turns, by polynomials: the same bits wherever floats are IEEE. Error below 2e-6.
struct SinCos {
  float sin;
  float cos;
};
SinCos sincos_turns(float turns);

struct Point {
  float x;
  float y;
};

/// A curve through its points, drawn without lifting the pen. A point given twice in a row makes a corner.
struct Stroke {
  static constexpr std::size_t kCapacity = 28;
  std::array<Point, kCapacity> points;
  std::size_t size = 0;
};

/// A digit about one unit high, y downwards.
struct Drawing {
  static constexpr std::size_t kCapacity = 4;
  std::array<Stroke, kCapacity> strokes;
  std::size_t size = 0;
};

/// Writes `digit` (0 to 9) in one of its usual forms, proportions and curves drawn from `random`.
Drawing draw_digit(int digit, DigitRandom& random);

}  // namespace athanor::data::detail
