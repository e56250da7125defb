#include "athanor/data/synthetic_digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/data/digit_strokes.h"

namespace athanor::data {

namespace {

using detail::DigitRandom;
using detail::Drawing;
using detail::Point;
using detail::SinCos;
using detail::sincos_turns;
using detail::Stroke;

// MNIST scales each digit into a box of this side and then centres it by mass.
constexpr float kBox = 20.0F;
constexpr int kSide = kDigitSide;

struct PenPoint {
  float x;
  float y;
  float radius;
};

struct Line {
  static constexpr std::size_t kCapacity = 512;
  std::array<PenPoint, kCapacity> points;
  std::size_t size = 0;
  std::array<std::size_t, Drawing::kCapacity + 1> starts{};  // of the strokes
  std::size_t strokes = 0;
};

// One person's hand: how the paper lies, how far each part of the plane is pulled aside.
class Warp {
 public:
  Warp(int digit, DigitRandom& r) {
    const float slant = r.normal(0.12F, 0.2F);
    const SinCos turn = sincos_turns(r.normal(0, digit == 1 ? 0.03F : 0.025F));
    const float wide = r.normal(1.0F, 0.12F);
    xx_ = wide * turn.cos;
    xy_ = -slant * turn.cos - turn.sin;
    yx_ = wide * turn.sin;
    yy_ = turn.cos - slant * turn.sin;
    for (Wave& w : waves_) {
      w.dx = r.normal(0, 0.03F);
      w.dy = r.normal(0, 0.03F);
      w.fx = r.uniform(-0.8F, 0.8F);
      w.fy = r.uniform(-0.8F, 0.8F);
      w.phase = r.uniform();
    }
  }
  Point operator()(Point p) const {
    for (const Wave& w : waves_) {
      const float s = sincos_turns(w.fx * p.x + w.fy * p.y + w.phase).sin;
      p.x += w.dx * s;
      p.y += w.dy * s;
    }
    return {xx_ * p.x + xy_ * p.y, yx_ * p.x + yy_ * p.y};
  }

 private:
  struct Wave {
    float dx, dy, fx, fy, phase;
  };
  float xx_, xy_, yx_, yy_;
  std::array<Wave, 3> waves_;
};

// Point at t in [0, 1] between b and c on the Catmull-Rom curve through a, b, c, d.
float spline(float a, float b, float c, float d, float t) {
  return b + 0.5F * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
}

void trace(const Stroke& stroke, const Warp& warp, Line& line) {
  std::array<Point, Stroke::kCapacity> p{};
  for (std::size_t i = 0; i < stroke.size; ++i) p[i] = warp(stroke.points[i]);
  line.starts[line.strokes++] = line.size;
  const auto put = [&](float x, float y) {
    if (line.size < Line::kCapacity) line.points[line.size++] = {x, y, 0};
  };
  put(p[0].x, p[0].y);
  for (std::size_t i = 0; i + 1 < stroke.size; ++i) {
    const Point b = p[i];
    const Point c = p[i + 1];
    if (b.x == c.x && b.y == c.y) continue;
    const Point a = p[i > 0 ? i - 1 : 0];
    const Point d = p[std::min(i + 2, stroke.size - 1)];
    const float length = std::max(std::abs(c.x - b.x), std::abs(c.y - b.y));
    const int steps = 2 + static_cast<int>(length * 12.0F);
    for (int k = 1; k <= steps; ++k) {
      const float t = static_cast<float>(k) / static_cast<float>(steps);
      put(spline(a.x, b.x, c.x, d.x, t), spline(a.y, b.y, c.y, d.y, t));
    }
  }
}

// Scales the line into the box and gives it the pen's width, in pixels, which varies along each stroke.
void fit(Line& line, DigitRandom& r) {
  const float radius = std::clamp(r.normal(1.25F, 0.42F), 0.55F, 2.6F);
  const float pressure = r.uniform(0.0F, 0.25F);
  const float waves = r.uniform(0.4F, 2.0F);
  const float phase = r.uniform();
  const float taper = r.chance(0.4F) ? r.uniform(0.1F, 0.6F) : 0.0F;
  float x0 = line.points[0].x, x1 = x0, y0 = line.points[0].y, y1 = y0;
  for (std::size_t i = 0; i < line.size; ++i) {
    const PenPoint& p = line.points[i];
    x0 = std::min(x0, p.x), x1 = std::max(x1, p.x);
    y0 = std::min(y0, p.y), y1 = std::max(y1, p.y);
  }
  const float room = (kBox - 2 * radius) * r.uniform(0.94F, 1.0F);
  const float scale = room / std::max({x1 - x0, y1 - y0, 0.05F});
  const float left = (static_cast<float>(kSide) - (x1 - x0) * scale) * 0.5F;
  const float top = (static_cast<float>(kSide) - (y1 - y0) * scale) * 0.5F;
  line.starts[line.strokes] = line.size;
  for (std::size_t s = 0; s < line.strokes; ++s) {
    const std::size_t begin = line.starts[s], end = line.starts[s + 1];
    for (std::size_t i = begin; i < end; ++i) {
      PenPoint& p = line.points[i];
      const float u = static_cast<float>(i - begin) / static_cast<float>(end - begin);
      const float thin = 1.0F - taper * std::max(0.0F, u * 4.0F - 3.0F);
      p = {(p.x - x0) * scale + left, (p.y - y0) * scale + top,
           radius * thin * (1.0F + pressure * sincos_turns(waves * u + phase).sin)};
    }
  }
}

using Field = std::array<float, kDigitPixels>;

// Raises `field` to how far each pixel's centre lies within the pen's path between two points (negative: outside).
void press(Field& field, const PenPoint& a, const PenPoint& b, float margin) {
  const float reach = std::max(a.radius, b.radius) + margin;
  const auto first = [&](float low) { return std::clamp(static_cast<int>(low - reach), 0, kSide); };
  const auto last = [&](float high) { return std::clamp(static_cast<int>(high + reach) + 1, 0, kSide); };
  const int x_begin = first(std::min(a.x, b.x)), x_end = last(std::max(a.x, b.x));
  const int y_begin = first(std::min(a.y, b.y)), y_end = last(std::max(a.y, b.y));
  const float dx = b.x - a.x, dy = b.y - a.y;
  const float inverse = 1.0F / (dx * dx + dy * dy + 1e-12F);
  const float dr = b.radius - a.radius;
  for (int y = y_begin; y < y_end; ++y) {
    const float py = static_cast<float>(y) + 0.5F - a.y;
    float* row = field.data() + y * kSide;
    for (int x = x_begin; x < x_end; ++x) {
      const float px = static_cast<float>(x) + 0.5F - a.x;
      const float t = std::clamp((px * dx + py * dy) * inverse, 0.0F, 1.0F);
      const float ex = px - t * dx, ey = py - t * dy;
      row[x] = std::max(row[x], a.radius + t * dr - std::sqrt(ex * ex + ey * ey));
    }
  }
}

// Ink from depth within the pen's path: soft edges, paper grain.
void develop(const Field& field, float softness, DigitRandom& r, std::array<std::uint8_t, kDigitPixels>& out) {
  const float sharp = 1.0F / softness;
  const float grain = r.uniform(0.0F, 24.0F);
  const float ink = r.uniform(235.0F, 290.0F);
  std::uint64_t bits = 0;
  for (int i = 0; i < kDigitPixels; ++i) {
    if (i % 8 == 0) bits = r.bits();
    const float cover = std::clamp(0.5F + field[static_cast<std::size_t>(i)] * sharp, 0.0F, 1.0F);
    const float speck = (static_cast<float>(bits & 0xff) - 127.5F) * (1.0F / 127.5F);
    bits >>= 8;
    const float value = cover * ink + speck * grain * cover * (2.0F - cover);
    out[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
  }
}

// Moves the image by whole pixels so that its centre of mass is in the middle.
void centre(const std::array<std::uint8_t, kDigitPixels>& image, std::uint8_t* out) {
  std::int64_t mass = 0, mx = 0, my = 0;
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const int v = image[static_cast<std::size_t>(y) * kSide + static_cast<std::size_t>(x)];
      mass += v, mx += v * x, my += v * y;
    }
  }
  const auto shift = [&](std::int64_t moment) {
    const double middle = mass > 0 ? static_cast<double>(moment) / static_cast<double>(mass) + 0.5 : kSide / 2.0;
    return static_cast<int>(std::floor(kSide / 2.0 - middle + 0.5));
  };
  const int sx = shift(mx), sy = shift(my);
  std::memset(out, 0, kDigitPixels);
  const int from = std::max(0, -sx), to = std::min(kSide, kSide - sx);
  for (int y = std::max(0, -sy); y < std::min(kSide, kSide - sy); ++y)
    std::memcpy(out + (y + sy) * kSide + from + sx, image.data() + y * kSide + from,
                static_cast<std::size_t>(to - from));
}

void render(int label, DigitRandom& r, std::uint8_t* pixels) {
  const Drawing drawing = detail::draw_digit(label, r);
  const Warp warp(label, r);
  Line line;
  for (std::size_t s = 0; s < drawing.size; ++s) trace(drawing.strokes[s], warp, line);
  fit(line, r);
  const float softness = r.uniform(0.9F, 2.0F);
  Field field;
  field.fill(-100.0F);
  for (std::size_t s = 0; s < line.strokes; ++s)
    for (std::size_t i = line.starts[s]; i + 1 < line.starts[s + 1]; ++i)
      press(field, line.points[i], line.points[i + 1], softness);
  std::array<std::uint8_t, kDigitPixels> image;
  develop(field, softness, r, image);
  centre(image, pixels);
}

}  // namespace

int synthetic_digit(std::uint64_t seed, std::uint64_t index, std::uint8_t* pixels) {
  DigitRandom random(seed, index);
  const int label = static_cast<int>((random.bits() >> 32) * 10 >> 32);
  render(label, random, pixels);
  return label;
}

void synthetic_digit_of(int label, std::uint64_t seed, std::uint64_t index, std::uint8_t* pixels) {
  ATHANOR_CHECK_VALUE(label >= 0 && label <= 9, "synthetic_digit_of: label must be 0 to 9, got ", label);
  DigitRandom random(seed, index);
  (void)random.bits();
  render(label, random, pixels);
}

SyntheticDigits synthetic_digits(std::int64_t count, std::uint64_t seed, std::uint64_t first) {
  ATHANOR_CHECK_VALUE(count >= 0, "synthetic_digits: count must not be negative, got ", count);
  SyntheticDigits digits;
  digits.images.resize(static_cast<std::size_t>(count) * kDigitPixels);
  digits.labels.resize(static_cast<std::size_t>(count));
  parallel_for(0, count, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      digits.labels[at] = static_cast<std::uint8_t>(
          synthetic_digit(seed, first + static_cast<std::uint64_t>(i), digits.images.data() + at * kDigitPixels));
    }
  });
  return digits;
}

}  // namespace athanor::data
