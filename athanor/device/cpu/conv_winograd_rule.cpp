// Which convolutions go by Winograd's algorithm.
#include <atomic>

#include "athanor/base/env.h"
#include "athanor/device/cpu/conv_winograd.h"

namespace athanor::detail {

namespace {

/// Rows that follow each other, with unit step along the width or the channels.
bool dense_planes(const ConvData& d, std::int64_t width) {
  if (d.step[2] == 1) return d.step[1] == width;
  return d.channel_step == 1 && d.step[1] == width * d.step[2];
}

std::atomic<bool>& winograd_switch() {
  static std::atomic<bool> on{env::flag("ATHANOR_WINOGRAD", true)};
  return on;
}

}  // namespace

bool winograd_enabled() { return winograd_switch().load(std::memory_order_relaxed); }
void set_winograd_enabled(bool on) { winograd_switch().store(on, std::memory_order_relaxed); }

bool winograd_fits(const ConvCall& call) {
  if (!winograd_enabled()) return false;
  const ConvShape& s = call.shape;
  if (call.dtype != DType::Float || s.x[0] != 1 || s.y[0] != 1 || s.kernel[0] != 1 || s.pad[0] != 0) return false;
  for (int e = 1; e < kAxes; ++e)
    if (s.kernel[e] != 3 || s.stride[e] != 1 || s.dil[e] != 1 || s.pad[e] > 2 || s.y[e] < 4 || s.x[e] < 4) return false;
  if (s.x_channels < 16 || s.y_channels < 16 || s.batch == 0) return false;
  if (call.epilogue != Epilogue::None && call.epilogue != Epilogue::Relu) return false;
  return dense_planes(call.x, s.x[2]) && dense_planes(call.y, s.y[2]);
}

}  // namespace athanor::detail
