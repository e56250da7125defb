#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/conv_winograd.cpp"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/conv_winograd.h"
#include "athanor/device/cpu/gemm_block.h"
#include "athanor/device/cpu/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

using detail::ConvCall;
using detail::ConvData;
using detail::thread_scratch;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;
inline constexpr std::int64_t kL = kVector<float>;
inline constexpr int kPoints = 36;

inline constexpr float kA = .625F, kB = 1.5F;  // the interpolation points ±kA, ±kB
inline constexpr float kA2 = kA * kA, kB2 = kB * kB;
// Lagrange denominators of the points, which go to the filter's side.
inline constexpr float kN0 = 1 / (kA2 * kB2), kNA = 1 / (2 * kA2 * (kA2 - kB2)), kNB = 1 / (2 * kB2 * (kB2 - kA2));

enum Slot { kSumSlot, kStageSlot, kSourceSlot, kFilterSlot, kProductSlot, kGradSlot, kRowSlot };

float* scratch(int slot, std::int64_t count) {
  return static_cast<float*>(thread_scratch(slot, sizeof(float) * static_cast<std::size_t>(count)));
}
std::int64_t padded(std::int64_t channels) { return (channels + kL - 1) / kL * kL; }

// ---- one-dimensional transforms; s is the step between elements of in and out ----

/// 6 source values to 6 points.
HWY_INLINE void source_points(const V* in, int s, V* out) {
  const F d;
  const V a = hn::Set(d, kA), b = hn::Set(d, kB), a2 = hn::Set(d, kA2), b2 = hn::Set(d, kB2);
  const V ab = hn::Set(d, kA2 * kB2), sum = hn::Set(d, kA2 + kB2);
  const V x0 = in[0], x1 = in[s], x2 = in[2 * s], x3 = in[3 * s], x4 = in[4 * s], x5 = in[5 * s];
  const V even_a = hn::NegMulAdd(b2, x2, x4), odd_a = hn::NegMulAdd(b2, x1, x3);
  const V even_b = hn::NegMulAdd(a2, x2, x4), odd_b = hn::NegMulAdd(a2, x1, x3);
  out[0] = hn::MulAdd(ab, x0, hn::NegMulAdd(sum, x2, x4));
  out[s] = hn::MulAdd(a, odd_a, even_a);
  out[2 * s] = hn::NegMulAdd(a, odd_a, even_a);
  out[3 * s] = hn::MulAdd(b, odd_b, even_b);
  out[4 * s] = hn::NegMulAdd(b, odd_b, even_b);
  out[5 * s] = hn::MulAdd(ab, x1, hn::NegMulAdd(sum, x3, x5));
}

/// kCount filter values (3, or 4 when the output's gradient is the filter) to 6 points.
template <int kCount>
HWY_INLINE void filter_points(const V* in, int s, V* out) {
  const F d;
  const V x0 = in[0], x1 = in[s], x2 = in[2 * s];
  const V odd3 = kCount == 4 ? in[(kCount - 1) * s] : hn::Zero(d);
  auto pair = [&](float p, float n, V& plus, V& minus) {
    const V even = hn::MulAdd(hn::Set(d, n * p * p), x2, hn::Mul(hn::Set(d, n), x0));
    V odd = hn::Mul(hn::Set(d, n * p), x1);
    if (kCount == 4) odd = hn::MulAdd(hn::Set(d, n * p * p * p), odd3, odd);
    plus = hn::Add(even, odd);
    minus = hn::Sub(even, odd);
  };
  out[0] = hn::Mul(hn::Set(d, kN0), x0);
  pair(kA, kNA, out[s], out[2 * s]);
  pair(kB, kNB, out[3 * s], out[4 * s]);
  out[5 * s] = kCount == 4 ? odd3 : x2;
}

/// 6 points to kCount results (4, or 3 for a weight's gradient).
template <int kCount>
HWY_INLINE void result_values(const V* in, int in_step, V* out, int out_step) {
  const F d;
  const V m0 = in[0], m5 = in[5 * in_step];
  const V sum_a = hn::Add(in[in_step], in[2 * in_step]), dif_a = hn::Sub(in[in_step], in[2 * in_step]);
  const V sum_b = hn::Add(in[3 * in_step], in[4 * in_step]), dif_b = hn::Sub(in[3 * in_step], in[4 * in_step]);
  out[0] = hn::Add(m0, hn::Add(sum_a, sum_b));
  out[out_step] = hn::MulAdd(hn::Set(d, kA), dif_a, hn::Mul(hn::Set(d, kB), dif_b));
  const V second = hn::MulAdd(hn::Set(d, kA2), sum_a, hn::Mul(hn::Set(d, kB2), sum_b));
  if constexpr (kCount == 4) {
    out[2 * out_step] = second;
    out[3 * out_step] = hn::MulAdd(hn::Set(d, kA * kA2), dif_a, hn::MulAdd(hn::Set(d, kB * kB2), dif_b, m5));
  } else {
    out[2 * out_step] = hn::Add(second, m5);
  }
}

// ---- planes ----

/// One side of a convolution: (batch, channels, height, width) with unit step along the width or the channels.
struct Planes {
  float* data;
  std::int64_t batch_step, channel_step, channels, height, width;
  bool channels_last;

  Planes(const ConvData& d, std::int64_t first_channel, std::int64_t n, std::int64_t h, std::int64_t w)
      : data(static_cast<float*>(d.data) + first_channel * d.channel_step),
        batch_step(d.batch_step),
        channel_step(d.channel_step),
        channels(n),
        height(h),
        width(w),
        channels_last(d.step[2] != 1) {
    pixel_step = channels_last ? d.step[2] : 1;
  }
  std::int64_t pixel_step;
  float* at(std::int64_t image, std::int64_t channel, std::int64_t y) const {
    return data + image * batch_step + channel * channel_step + y * width * pixel_step;
  }
};

/// Copies pixels [0, width) of rows [y, y + rows) of an image, one vector of channels per pixel, zeros outside: `to` is
/// (rows, left + width + right, vector). Lanes beyond the last channel hold anything finite or not.
void load_rows(const Planes& p, std::int64_t image, std::int64_t channel, std::int64_t y, std::int64_t rows,
               std::int64_t left, std::int64_t right, float* to) {
  const F d;
  const std::int64_t row = (left + p.width + right) * kL;
  const int lanes = static_cast<int>(std::min(kL, p.channels - channel));
  for (std::int64_t r = 0; r < rows; ++r, to += row) {
    if (y + r < 0 || y + r >= p.height) {
      std::fill_n(to, row, 0.F);
      continue;
    }
    std::fill_n(to, left * kL, 0.F);
    const float* from = p.at(image, channel, y + r);
    float* out = to + left * kL;
    if (!p.channels_last) {
      transpose_rows<float>(from, RowOffsets<float>(lanes, p.channel_step), p.width, out, kL);
    } else if (lanes == kL) {
      for (std::int64_t x = 0; x < p.width; ++x) hn::StoreU(hn::LoadU(d, from + x * p.pixel_step), d, out + x * kL);
    } else {
      for (std::int64_t x = 0; x < p.width; ++x)
        for (int i = 0; i < kL; ++i) out[x * kL + i] = i < lanes ? from[x * p.pixel_step + i] : 0.F;
    }
    std::fill_n(out + p.width * kL, right * kL, 0.F);
  }
}

/// to[lane · lane_step + i] = from[i · vector + lane] for i < count, lane < lanes.
void scatter_lanes(const float* from, std::int64_t count, std::int64_t lanes, float* to, std::int64_t lane_step) {
  const RowOffsets<float> offsets(static_cast<int>(kL), kL);
  std::int64_t i = 0;
  for (; i + kL <= count; i += kL) transpose_rows<float>(from + i * kL, offsets, lanes, to + i, lane_step);
  if (i == count) return;
  if (count > kL) {
    i = count - kL;
    transpose_rows<float>(from + i * kL, offsets, lanes, to + i, lane_step);
    return;
  }
  for (; i < count; ++i)
    for (std::int64_t c = 0; c < lanes; ++c) to[c * lane_step + i] = from[i * kL + c];
}

/// Writes rows (rows, width, vector) to rows [y, y + rows) of an image, the inverse of load_rows.
void store_rows(const Planes& p, std::int64_t image, std::int64_t channel, std::int64_t y, std::int64_t rows,
                const float* from) {
  const F d;
  const std::int64_t pixels = rows * p.width, lanes = std::min(kL, p.channels - channel);
  float* to = p.at(image, channel, y);
  if (p.channels_last) {
    for (std::int64_t i = 0; i < pixels; ++i, to += p.pixel_step, from += kL) {
      if (lanes == kL)
        hn::StoreU(hn::LoadU(d, from), d, to);
      else
        std::copy_n(from, lanes, to);
    }
    return;
  }
  scatter_lanes(from, pixels, lanes, to, p.channel_step);
}

/// Tiles of the result plane and the blocks of them that are worked on at once: whole rows of tiles of one image, or
/// whole images.
struct Tiling {
  std::int64_t rows, cols, batch;
  std::int64_t rows_at_once, images_at_once;

  Tiling(std::int64_t n, std::int64_t height, std::int64_t width, std::int64_t target)
      : rows((height + 3) / 4), cols((width + 3) / 4), batch(n) {
    rows_at_once = std::clamp<std::int64_t>(target / cols, 1, rows);
    const std::int64_t strips = (rows + rows_at_once - 1) / rows_at_once;
    rows_at_once = (rows + strips - 1) / strips;
    images_at_once = strips > 1 ? 1 : std::max<std::int64_t>(1, target / (rows * cols));
  }
  std::int64_t blocks_per_image() const { return (rows + rows_at_once - 1) / rows_at_once; }
  std::int64_t blocks() const { return (batch + images_at_once - 1) / images_at_once * blocks_per_image(); }
  std::int64_t most_tiles() const { return rows_at_once * cols * images_at_once; }
};

struct Block {
  std::int64_t image, images, row, rows;  ///< rows of tiles
};
Block block_at(const Tiling& t, std::int64_t i) {
  const std::int64_t per = t.blocks_per_image();
  Block b;
  b.image = i / per * t.images_at_once;
  b.images = std::min(t.images_at_once, t.batch - b.image);
  b.row = i % per * t.rows_at_once;
  b.rows = std::min(t.rows_at_once, t.rows - b.row);
  return b;
}

/// A step between the 36 matrices of a block that does not fall on the same cache sets.
std::int64_t spread(std::int64_t elements) { return padded(elements) + kL; }

/// Points of all tiles of a block: points[p · step + tile · padded(channels) + channel]. kSource: 6 × 6 source values
/// around each tile (the plane is padded above and to the left), else the tile's own 4 × 4 values as a filter, which
/// are also added up in `sums` (a value per channel) unless null.
template <bool kSource>
void plane_points(const Planes& p, const Tiling& t, const Block& b, std::int64_t above, std::int64_t left,
                  std::int64_t step, float* points, float* sums = nullptr) {
  const F d;
  const std::int64_t width = t.cols * 4 + (kSource ? 2 : 0), rows = b.rows * 4 + (kSource ? 2 : 0);
  const std::int64_t right = std::max<std::int64_t>(0, width - left - p.width), pitch = left + p.width + right;
  const std::int64_t row_channels = padded(p.channels);
  float* stage = scratch(kStageSlot, rows * pitch * kL);
  constexpr int n = kSource ? 6 : 4;
  for (std::int64_t c = 0; c < p.channels; c += kL)
    for (std::int64_t i = 0; i < b.images; ++i) {
      load_rows(p, b.image + i, c, b.row * 4 - above, rows, left, right, stage);
      if (sums) {
        V sum = hn::Zero(d);
        for (std::int64_t q = 0; q < rows * pitch; ++q) sum = hn::Add(sum, hn::LoadU(d, stage + q * kL));
        hn::StoreU(hn::Add(sum, hn::LoadU(d, sums + c)), d, sums + c);
      }
      for (std::int64_t ty = 0; ty < b.rows; ++ty)
        for (std::int64_t tx = 0; tx < t.cols; ++tx) {
          const float* at = stage + (ty * 4 * pitch + tx * 4) * kL;
          V half[6 * n];
#pragma GCC unroll 6
          for (int x = 0; x < n; ++x) {
            V column[n], result[6];
#pragma GCC unroll 6
            for (int y = 0; y < n; ++y) column[y] = hn::LoadU(d, at + (y * pitch + x) * kL);
            if constexpr (kSource)
              source_points(column, 1, result);
            else
              filter_points<4>(column, 1, result);
#pragma GCC unroll 6
            for (int y = 0; y < 6; ++y) half[y * n + x] = result[y];
          }
          float* out = points + ((i * b.rows + ty) * t.cols + tx) * row_channels + c;
#pragma GCC unroll 6
          for (int y = 0; y < 6; ++y) {
            V result[6];
            if constexpr (kSource)
              source_points(half + y * n, 1, result);
            else
              filter_points<4>(half + y * n, 1, result);
#pragma GCC unroll 6
            for (int x = 0; x < 6; ++x) hn::StoreU(result[x], d, out + (y * 6 + x) * step);
          }
        }
    }
}

// ---- forward, and the gradient of the input ----

class TapWinograd {
 public:
  TapWinograd(const ConvCall& call, bool forward) : call_(call), forward_(forward) {
    const auto& s = call.shape;
    from_ = forward ? s.x_channels : s.y_channels;
    to_ = forward ? s.y_channels : s.x_channels;
    pad_y_ = forward ? s.pad[1] : 2 - s.pad[1];
    pad_x_ = forward ? s.pad[2] : 2 - s.pad[2];
  }

  void run() {
    for (std::int64_t g = 0; g < call_.shape.groups; ++g) group(g);
  }

 private:
  static constexpr std::int64_t kTiles = 42;    // of a block, about
  static constexpr std::int64_t kOutputs = 64;  // channels whose products are kept at once

  /// filter[(p · panels + q) · from · 2L + c · width + k]: what the register tiles take as b.
  void transform_filters(std::int64_t g) {
    const auto& w = call_.w;
    const std::int64_t panels = (to_ + 2 * kL - 1) / (2 * kL);
    filter_step_ = panels * from_ * 2 * kL;
    const auto& shape = call_.shape;
    const KeptForms::Key key{forward_ ? 3 : 4, g,         shape.y_channels,
                             shape.x_channels, w.y_step,  w.x_step,
                             w.step[1],        w.step[2], reinterpret_cast<std::int64_t>(w.data)};
    KeptForms* const forms = call_.kept ? call_.kept->forms.get() : nullptr;
    kept_ = forms ? forms->find(key, call_.kept->changes) : nullptr;
    const bool ready = static_cast<bool>(kept_);
    if (forms && !ready)
      kept_ = forms->room(key, call_.kept->changes, sizeof(float) * static_cast<std::size_t>(kPoints * filter_step_));
    filters_ = kept_ ? static_cast<float*>(kept_->data()) : scratch(kFilterSlot, kPoints * filter_step_);
    if (!ready) write_filters(g);
    if (kept_ && !ready) forms->keep(key, call_.kept->changes, kept_);
  }

  void write_filters(std::int64_t g) {
    const auto& w = call_.w;
    const std::int64_t y_channels = call_.shape.y_channels;
    const float* base = static_cast<const float*>(w.data) + g * y_channels * w.y_step;
    const std::int64_t to_step = forward_ ? w.y_step : w.x_step, from_step = forward_ ? w.x_step : w.y_step;
    const std::int64_t vectors = (to_ + kL - 1) / kL;
    parallel_for(0, vectors * from_, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t k = i / from_ * kL, c = i % from_;
        const std::int64_t left = to_ - k / (2 * kL) * 2 * kL, width = left <= kL ? kL : 2 * kL;
        float* out = filters_ + k / (2 * kL) * from_ * 2 * kL + c * width + k % (2 * kL);
        one_filter(base + k * to_step + c * from_step, to_step, std::min(kL, to_ - k), out);
      }
    });
  }

  void one_filter(const float* w, std::int64_t lane_step, std::int64_t lanes, float* out) const {
    const F d;
    HWY_ALIGN float taps[9 * kL];
    for (int y = 0; y < 3; ++y)
      for (int x = 0; x < 3; ++x) {
        // The gradient of the input takes the kernel turned round.
        const float* at = w + (forward_ ? y : 2 - y) * call_.w.step[1] + (forward_ ? x : 2 - x) * call_.w.step[2];
        float* to = taps + (y * 3 + x) * kL;
        for (std::int64_t i = 0; i < kL; ++i) to[i] = i < lanes ? at[i * lane_step] : 0.F;
      }
    V half[18];
    for (int x = 0; x < 3; ++x) {
      const V column[3] = {hn::Load(d, taps + x * kL), hn::Load(d, taps + (3 + x) * kL),
                           hn::Load(d, taps + (6 + x) * kL)};
      V result[6];
      filter_points<3>(column, 1, result);
      for (int y = 0; y < 6; ++y) half[y * 3 + x] = result[y];
    }
    for (int y = 0; y < 6; ++y) {
      V result[6];
      filter_points<3>(half + y * 3, 1, result);
      for (int x = 0; x < 6; ++x) hn::StoreU(result[x], d, out + (y * 6 + x) * filter_step_);
    }
  }

  void group(std::int64_t g) {
    transform_filters(g);
    const auto& s = call_.shape;
    const auto& from_size = forward_ ? s.x : s.y;
    const auto& to_size = forward_ ? s.y : s.x;
    const Planes source(forward_ ? call_.x : call_.y, g * from_, from_, from_size[1], from_size[2]);
    const Planes dest(forward_ ? call_.y : call_.x, g * to_, to_, to_size[1], to_size[2]);
    const std::int64_t team = in_parallel_region() ? 1 : get_num_threads();
    const std::int64_t all = s.batch * ((dest.height + 3) / 4) * ((dest.width + 3) / 4);
    const Tiling tiling(s.batch, dest.height, dest.width, std::min(kTiles, (all + team - 1) / team));
    parallel_for(0, tiling.blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) block(g, source, dest, tiling, block_at(tiling, i));
    });
  }

  void block(std::int64_t g, const Planes& source, const Planes& dest, const Tiling& t, const Block& b) const {
    const std::int64_t tiles = b.images * b.rows * t.cols, row = padded(from_);
    const std::int64_t step = spread(tiles * row);
    float* points = scratch(kSourceSlot, kPoints * step);
    plane_points<true>(source, t, b, pad_y_, pad_x_, step, points);
    for (std::int64_t k = 0; k < to_; k += kOutputs) {
      const std::int64_t n = std::min(kOutputs, to_ - k), product_row = padded(n);
      const std::int64_t product_step = spread(tiles * product_row);
      float* products = scratch(kProductSlot, kPoints * product_step);
      for (int p = 0; p < kPoints; ++p)
        multiply(points + p * step, row, tiles, p, k, n, products + p * product_step, product_row);
      results(g, dest, t, b, k, n, products, product_step, product_row);
    }
  }

  void multiply(const float* points, std::int64_t row, std::int64_t tiles, int p, std::int64_t k, std::int64_t n,
                float* out, std::int64_t out_row) const {
    const std::int64_t groups = (tiles + kTileRows - 1) / kTileRows;
    for (std::int64_t q = 0; q < n; q += 2 * kL) {
      const std::int64_t width = n - q <= kL ? kL : 2 * kL;
      const float* filter = filters_ + p * filter_step_ + (k + q) * from_;
      for (std::int64_t i = 0; i < groups; ++i) {
        const std::int64_t t0 = i * tiles / groups, t1 = (i + 1) * tiles / groups;
        tile_for<float>(static_cast<int>(t1 - t0), static_cast<int>(width / kL), AForm::Rows)(
            from_, points + t0 * row, row, filter, width, nullptr, out + t0 * out_row + q, out_row, nullptr);
      }
    }
  }

  void results(std::int64_t g, const Planes& dest, const Tiling& t, const Block& b, std::int64_t k, std::int64_t n,
               const float* products, std::int64_t step, std::int64_t row) const {
    const F d;
    float* lines = scratch(kRowSlot, 4 * dest.width * kL);
    for (std::int64_t j = 0; j < n; j += kL) {
      const V bias = bias_of(g * to_ + k + j, std::min(kL, n - j));
      for (std::int64_t i = 0; i < b.images; ++i)
        for (std::int64_t ty = 0; ty < b.rows; ++ty) {
          const std::int64_t y = (b.row + ty) * 4;
          for (std::int64_t tx = 0; tx < t.cols; ++tx) {
            const float* at = products + ((i * b.rows + ty) * t.cols + tx) * row + j;
            const int valid = static_cast<int>(std::min<std::int64_t>(4, dest.width - tx * 4));
            V half[24];
#pragma GCC unroll 6
            for (int x = 0; x < 6; ++x) {
              V column[6];
#pragma GCC unroll 6
              for (int r = 0; r < 6; ++r) column[r] = hn::LoadU(d, at + (r * 6 + x) * step);
              result_values<4>(column, 1, half + x, 6);
            }
#pragma GCC unroll 4
            for (int r = 0; r < 4; ++r) {
              V result[4];
              result_values<4>(half + r * 6, 1, result, 1);
              float* line = lines + (r * dest.width + tx * 4) * kL;
#pragma GCC unroll 4
              for (int x = 0; x < 4; ++x) {
                V v = hn::Add(result[x], bias);
                if (call_.epilogue == Epilogue::Relu) v = hn::Max(hn::Zero(d), v);
                if (x < valid) hn::StoreU(v, d, line + x * kL);
              }
            }
          }
          store_rows(dest, b.image + i, k + j, y, std::min<std::int64_t>(4, dest.height - y), lines);
        }
    }
  }

  V bias_of(std::int64_t channel, std::int64_t lanes) const {
    const F d;
    if (!call_.bias) return hn::Zero(d);
    HWY_ALIGN float values[kL] = {};
    for (std::int64_t i = 0; i < lanes; ++i)
      values[i] = static_cast<const float*>(call_.bias)[(channel + i) * call_.bias_step];
    return hn::Load(d, values);
  }

  const ConvCall& call_;
  const bool forward_;
  std::int64_t from_ = 0, to_ = 0, pad_y_ = 0, pad_x_ = 0, filter_step_ = 0;
  float* filters_ = nullptr;
  IntrusivePtr<KeptForm> kept_;
};

// ---- the gradient of the weight: tiles of the output's gradient are filters over the source ----

class WeightWinograd {
 public:
  explicit WeightWinograd(const ConvCall& call)
      : call_(call), channels_(call.shape.x_channels), outputs_(call.shape.y_channels) {}

  void run() {
    for (std::int64_t g = 0; g < call_.shape.groups; ++g) group(g);
  }

 private:
  static constexpr std::int64_t kTiles = 72;  // of a block, about: the inner dimension of its products

  std::int64_t row_tiles() const { return (channels_ + kTileRows - 1) / kTileRows; }
  std::int64_t row_at(std::int64_t t) const { return t * channels_ / row_tiles(); }
  std::int64_t panels() const { return (outputs_ + 2 * kL - 1) / (2 * kL); }
  std::int64_t width(std::int64_t panel) const { return outputs_ - panel * 2 * kL <= kL ? kL : 2 * kL; }
  /// Where the sums of point p, panel q and row tile t lie in a share.
  std::int64_t sums_at(int p, std::int64_t q, std::int64_t t) const {
    return ((p * panels() + q) * row_tiles() + t) * kTileRows * 2 * kL;
  }

  void group(std::int64_t g) {
    const auto& s = call_.shape;
    const Planes x(call_.x, g * channels_, channels_, s.x[1], s.x[2]);
    const Planes y(call_.y, g * outputs_, outputs_, s.y[1], s.y[2]);
    const Tiling tiling(s.batch, y.height, y.width, kTiles);
    // Shares of the blocks are summed apart, then added in order; their number depends on the shape alone.
    const std::int64_t size = sums_at(kPoints, 0, 0);
    const std::int64_t shares =
        std::clamp<std::int64_t>((4 << 20) / size, 1, std::min<std::int64_t>(8, tiling.blocks()));
    const std::int64_t team = in_parallel_region() ? 1 : get_num_threads();
    const std::int64_t cuts = std::clamp<std::int64_t>(team / shares, 1, panels());
    const std::int64_t share_step = size + panels() * 2 * kL;
    float* sums = scratch(kFilterSlot, shares * share_step);
    parallel_for(0, shares * cuts, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t j = i / cuts, cut = i % cuts;
        share(x, y, tiling, j * tiling.blocks() / shares, (j + 1) * tiling.blocks() / shares, cut * panels() / cuts,
              (cut + 1) * panels() / cuts, sums + j * share_step, sums + j * share_step + size);
      }
    });
    parallel_for(0, (outputs_ + kL - 1) / kL, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k) store(g, k * kL, sums, shares, share_step);
    });
    if (float* bias = static_cast<float*>(const_cast<void*>(call_.bias)))
      for (std::int64_t k = 0; k < outputs_; ++k) {
        float total = 0;
        for (std::int64_t j = 0; j < shares; ++j) total += sums[j * share_step + size + k];
        bias[(g * outputs_ + k) * call_.bias_step] = total;
      }
  }

  /// Blocks [b0, b1) of tiles, panels [q0, q1) of output channels.
  void share(const Planes& x, const Planes& y, const Tiling& t, std::int64_t b0, std::int64_t b1, std::int64_t q0,
             std::int64_t q1, float* sums, float* bias) const {
    Planes part = y;
    part.data += q0 * 2 * kL * y.channel_step;
    part.channels = std::min(outputs_, q1 * 2 * kL) - q0 * 2 * kL;
    std::fill_n(bias + q0 * 2 * kL, padded(part.channels), 0.F);
    if (b0 == b1)
      for (int p = 0; p < kPoints; ++p) std::fill_n(sums + sums_at(p, q0, 0), sums_at(0, q1 - q0, 0), 0.F);
    for (std::int64_t b = b0; b < b1; ++b) {
      const Block block = block_at(t, b);
      const std::int64_t tiles = block.images * block.rows * t.cols;
      const std::int64_t x_row = padded(channels_), y_row = padded(part.channels);
      const std::int64_t x_step = spread(tiles * x_row), y_step = spread(tiles * y_row);
      float* source = scratch(kSourceSlot, kPoints * x_step);
      float* grad = scratch(kGradSlot, kPoints * y_step);
      plane_points<true>(x, t, block, call_.shape.pad[1], call_.shape.pad[2], x_step, source);
      plane_points<false>(part, t, block, 0, 0, y_step, grad, bias + q0 * 2 * kL);
      for (int p = 0; p < kPoints; ++p)
        for (std::int64_t q = q0; q < q1; ++q)
          for (std::int64_t i = 0; i < row_tiles(); ++i) {
            float* to = sums + sums_at(p, q, i);
            tile_for<float>(static_cast<int>(row_at(i + 1) - row_at(i)), static_cast<int>(width(q) / kL),
                            AForm::Columns)(tiles, source + p * x_step + row_at(i), x_row,
                                            grad + p * y_step + (q - q0) * 2 * kL, y_row, b > b0 ? to : nullptr, to,
                                            width(q), nullptr);
          }
    }
  }

  /// Weights of output channels [k, k + vector) from the sums of all shares.
  void store(std::int64_t g, std::int64_t k, const float* sums, std::int64_t shares, std::int64_t share_step) const {
    const F d;
    const auto& w = call_.w;
    const std::int64_t q = k / (2 * kL), lanes = std::min(kL, outputs_ - k);
    const bool dense = w.x_step == 9 && w.step[1] == 3 && w.step[2] == 1;
    float* lines = scratch(kRowSlot, channels_ * 9 * kL);
    for (std::int64_t i = 0; i < row_tiles(); ++i)
      for (std::int64_t c = row_at(i); c < row_at(i + 1); ++c) {
        V total[kPoints];
        for (int p = 0; p < kPoints; ++p) {
          const float* at = sums + sums_at(p, q, i) + (c - row_at(i)) * width(q) + k % (2 * kL);
          total[p] = hn::LoadU(d, at);
          for (std::int64_t j = 1; j < shares; ++j) total[p] = hn::Add(total[p], hn::LoadU(d, at + j * share_step));
        }
        V half[18];
        for (int x = 0; x < 6; ++x) result_values<3>(total + x, 6, half + x, 6);
        for (int y = 0; y < 3; ++y) {
          V result[3];
          result_values<3>(half + y * 6, 1, result, 1);
          for (int x = 0; x < 3; ++x) hn::StoreU(result[x], d, lines + (c * 9 + y * 3 + x) * kL);
        }
      }
    float* to = static_cast<float*>(w.data) + (g * outputs_ + k) * w.y_step;
    if (dense) {
      scatter_lanes(lines, channels_ * 9, lanes, to, w.y_step);
      return;
    }
    for (std::int64_t c = 0; c < channels_; ++c)
      for (int t = 0; t < 9; ++t)
        for (std::int64_t i = 0; i < lanes; ++i)
          to[i * w.y_step + c * w.x_step + t / 3 * w.step[1] + t % 3 * w.step[2]] = lines[(c * 9 + t) * kL + i];
  }

  const ConvCall& call_;
  const std::int64_t channels_, outputs_;
};

void winograd_taps(const ConvCall& call, bool forward) { TapWinograd(call, forward).run(); }
void winograd_weight(const ConvCall& call) { WeightWinograd(call).run(); }

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor {
HWY_EXPORT(winograd_taps);
HWY_EXPORT(winograd_weight);

namespace detail {

void winograd_taps(const ConvCall& call, bool forward) { HWY_DYNAMIC_DISPATCH(winograd_taps)(call, forward); }
void winograd_weight(const ConvCall& call) { HWY_DYNAMIC_DISPATCH(winograd_weight)(call); }

}  // namespace detail
}  // namespace athanor
#endif
