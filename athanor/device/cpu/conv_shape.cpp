#include "athanor/device/cpu/conv_shape.h"

#include <algorithm>

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

}  // namespace athanor::detail
