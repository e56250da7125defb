#include "athanor/device/cpu/conv_shape.h"

#include <algorithm>

#include "athanor/device/cpu/onednn_conv.h"
#include "athanor/device/cpu/wide_vectors.h"

namespace athanor::detail {
namespace {

TapAxis forward_axis(const ConvShape& s, int e) {
  TapAxis axis;
  axis.source = s.x[e];
  axis.phases = s.stride[e];
  axis.shift = s.pad[e];
  AxisPart part;
  part.count = s.y[e];
  for (std::int64_t t = 0; t < s.kernel[e]; ++t) {
    const std::int64_t at = t * s.dil[e];
    part.taps.push_back({t, at % s.stride[e], at / s.stride[e]});
    axis.reach = std::max(axis.reach, part.taps.back().offset);
  }
  axis.longest = part.count;
  axis.parts.push_back(std::move(part));
  return axis;
}

/// x position i is reached by tap t from y position (i + pad - t·dil) / stride where that is whole.
TapAxis gradient_axis(const ConvShape& s, int e) {
  TapAxis axis;
  axis.source = s.y[e];
  const std::int64_t stride = s.stride[e], pad = s.pad[e];
  std::int64_t least = 0;
  bool any = false;
  for (std::int64_t i = 0; i < std::min(stride, s.x[e]); ++i) {
    AxisPart part;
    part.origin = i;
    part.step = stride;
    part.count = (s.x[e] - i + stride - 1) / stride;
    for (std::int64_t t = 0; t < s.kernel[e]; ++t) {
      const std::int64_t at = i + pad - t * s.dil[e];
      if (at % stride != 0) continue;
      part.taps.push_back({t, 0, at / stride});
      least = any ? std::min(least, at / stride) : at / stride;
      any = true;
    }
    axis.longest = std::max(axis.longest, part.count);
    axis.parts.push_back(std::move(part));
  }
  axis.shift = -least;
  for (AxisPart& part : axis.parts)
    for (Tap& t : part.taps) {
      t.offset -= least;
      axis.reach = std::max(axis.reach, t.offset);
    }
  return axis;
}

}  // namespace

bool channels_last(const ConvData& d, const std::array<std::int64_t, kAxes>& size, std::int64_t channels) {
  return !d.block && channels > 1 && d.channel_step == 1 && d.step[2] == channels && d.step[1] == size[2] * d.step[2] &&
         (size[0] == 1 || d.step[0] == size[1] * d.step[1]) && d.batch_step == size[0] * size[1] * d.step[1];
}

TapConv forward_taps(const ConvShape& s) {
  TapConv c;
  for (int e = 0; e < kAxes; ++e) c.axis[e] = forward_axis(s, e);
  c.batch = s.batch;
  c.groups = s.groups;
  c.from = s.x_channels;
  c.to = s.y_channels;
  return c;
}

TapConv input_gradient_taps(const ConvShape& s) {
  TapConv c;
  for (int e = 0; e < kAxes; ++e) c.axis[e] = gradient_axis(s, e);
  c.batch = s.batch;
  c.groups = s.groups;
  c.from = s.y_channels;
  c.to = s.x_channels;
  c.forward = false;
  return c;
}

namespace {

/// Whether tap t of axis e meets a value of x.
bool is_live(const ConvShape& s, int e, std::int64_t t) {
  const std::int64_t shift = t * s.dil[e] - s.pad[e];  // output y reads y * stride + shift
  const std::int64_t first = shift >= 0 ? 0 : (-shift + s.stride[e] - 1) / s.stride[e];
  return first < s.y[e] && first * s.stride[e] + shift < s.x[e];
}

}  // namespace

bool drop_idle_taps(ConvCall& call) {
  ConvShape& s = call.shape;
  bool any = false;
  for (int e = 0; e < kAxes; ++e) {
    std::int64_t begin = 0, end = s.kernel[e];
    while (begin < end && !is_live(s, e, begin)) ++begin;
    while (begin < end && !is_live(s, e, end - 1)) --end;
    if (begin == end || s.pad[e] < begin * s.dil[e] || end - begin == s.kernel[e]) continue;
    s.kernel[e] = end - begin;
    s.pad[e] -= begin * s.dil[e];
    call.w.data =
        static_cast<char*>(call.w.data) + begin * call.w.step[e] * static_cast<std::int64_t>(item_size(call.dtype));
    any = true;
  }
  return any;
}

bool skips_pixels(const ConvCall& call, ConvPass pass) {
  const ConvShape& s = call.shape;
  if (pass == ConvPass::Input || cpu::vectors_fill_lines() || s.taps() != 1 || call.x.block) return false;
  bool skips = false, skips_last = false;  // pixels of some axis, its last one among them
  for (std::size_t e = 0; e < kAxes; ++e) {
    const std::int64_t last = (s.y[e] - 1) * s.stride[e];
    // Windows may still lie in the far padding once drop_idle_taps has taken the others.
    if (s.pad[e] != 0 || last >= s.x[e]) return false;
    skips = skips || s.x[e] != s.y[e];
    skips_last = skips_last || last + 1 < s.x[e];
  }
  if (!skips || s.batch * s.y_pixels() == 0) return false;
  // A net's first layer whose many results oneDNN leaves in blocks; channels-last ones that it reads as fast as they
  // are, which it does not where the last pixel is read.
  if (pass == ConvPass::Forward && s.x_channels < 16 && onednn::conv_block(call, pass) != 0) return false;
  return !skips_last || call.x.channel_step != 1 || !onednn::takes_conv(call, pass);
}

ConvCall dense_call(const ConvCall& call, const ConvData& x) {
  ConvCall dense = call;
  dense.x = x;
  dense.shape.x = call.shape.y;
  dense.shape.stride = {1, 1, 1};
  return dense;
}

namespace {

bool one_plane_grid(const TapConv& taps, const ConvData& dest) {
  for (const TapAxis& a : taps.axis)
    if (a.parts.size() != 1) return false;
  const TapAxis &z = taps.axis[0], &y = taps.axis[1], &x = taps.axis[2];
  return z.longest == 1 && z.source == 1 && z.shift == 0 && z.parts[0].taps.size() == 1 && y.longest > 1 &&
         x.longest > 0 && dest.step[2] == 1 && dest.step[1] == x.longest;
}

}  // namespace

bool few_channels(const ConvCall& call, const TapConv& taps) {
  const std::int64_t inner = taps.from * call.shape.taps();
  if (taps.to > 32 || inner > 1024 || inner == 0) return false;
  if (call.epilogue != Epilogue::None && call.epilogue != Epilogue::Relu) return false;
  return one_plane_grid(taps, taps.forward ? call.y : call.x);
}

bool scatters(const ConvCall& call, const TapConv& taps) {
  const std::int64_t columns = call.shape.kernel[2];
  const std::int64_t sums = taps.to * columns * taps.axis[1].longest * taps.axis[2].source;
  if (taps.forward || call.bias || call.epilogue != Epilogue::None)
    return false;  // a transposed convolution may have both
  return columns > 1 && columns <= kMostScatterColumns && sums <= (128 << 10) && few_channels(call, taps);
}

bool depthwise(const ConvCall& call, const TapConv& taps) {
  const ConvData& dest = taps.forward ? call.y : call.x;
  for (const TapAxis& a : taps.axis)
    if (a.parts.size() != 1 || a.parts[0].taps.empty() || a.longest == 0) return false;
  const bool finishes = call.epilogue == Epilogue::None || call.epilogue == Epilogue::Relu;
  const TapAxis& z = taps.axis[0];
  const bool planes = z.longest == 1 && z.source == 1 && z.shift == 0 && z.parts[0].taps.size() == 1;
  return taps.from == 1 && taps.to == 1 && planes && dest.step[2] == 1 && finishes;
}

bool few_weights(const ConvCall& call, const TapConv& taps) {
  const std::int64_t weights = taps.from * taps.to * call.shape.taps();
  return weights > 0 && weights <= 8192 && taps.batch >= 4 && one_plane_grid(taps, call.y);
}

}  // namespace athanor::detail
