#pragma once
/// Geometry shared by the pooling kernels: three spatial axes, missing ones first with size 1.

#include <algorithm>
#include <array>
#include <cstdint>

#include "athanor/ops/kernels/pool.h"

namespace athanor::detail {

inline constexpr int kPoolAxes = 3;

/// An activation: address and strides in elements.
struct PoolData {
  void* data = nullptr;
  std::int64_t batch_step = 0, channel_step = 0;
  std::array<std::int64_t, kPoolAxes> size{1, 1, 1}, step{0, 0, 0};

  std::int64_t plane() const { return size[0] * size[1] * size[2]; }
  /// Rows follow each other without gaps.
  bool dense() const { return step[2] == 1 && step[1] == size[2] && step[0] == size[2] * size[1]; }
};

inline PoolData pool_data(const View& v) {
  PoolData d;
  d.data = v.data;
  d.batch_step = v.stride(0);
  d.channel_step = v.stride(1);
  const int spatial = v.ndim - 2;
  for (int e = 0; e < spatial; ++e) {
    d.size[kPoolAxes - spatial + e] = v.size(2 + e);
    d.step[kPoolAxes - spatial + e] = v.stride(2 + e);
  }
  // Axes of size 1 may carry any stride; give them the dense one.
  for (int e = kPoolAxes - 1; e >= 0; --e)
    if (d.size[e] == 1) d.step[e] = e == kPoolAxes - 1 ? 1 : d.step[e + 1] * d.size[e + 1];
  return d;
}

struct PoolWindow {
  std::array<std::int64_t, kPoolAxes> kernel{1, 1, 1}, stride{1, 1, 1}, pad{0, 0, 0}, dil{1, 1, 1};

  explicit PoolWindow(const PoolParams& p) {
    for (int e = 0; e < p.spatial; ++e) {
      const int to = kPoolAxes - p.spatial + e;
      kernel[to] = p.kernel[e];
      stride[to] = p.stride[e];
      pad[to] = p.padding[e];
      dil[to] = p.dilation[e];
    }
  }
  std::int64_t start(int e, std::int64_t o) const { return o * stride[e] - pad[e]; }
};

struct TapRange {
  std::int64_t begin = 0, end = 0;
};
/// Taps of window `o` along axis `e` that lie inside an input of `size`.
inline TapRange taps_inside(const PoolWindow& w, int e, std::int64_t o, std::int64_t size) {
  const std::int64_t start = w.start(e, o), dil = w.dil[e];
  const std::int64_t begin = start < 0 ? (-start + dil - 1) / dil : 0;
  const std::int64_t end = start < size ? (size - start + dil - 1) / dil : 0;
  return {std::min(begin, w.kernel[e]), std::clamp<std::int64_t>(end, 0, w.kernel[e])};
}

/// Where the window of an output starts in a plane. One in the padding alone starts, as in PyTorch, where its taps come
/// out of the near padding. One copy for all kernels.
[[gnu::noinline]] inline std::int64_t plane_start(const PoolWindow& w, const PoolData& in,
                                                  const std::array<std::int64_t, kPoolAxes>& at) {
  std::int64_t start = 0, past = 0;
  bool none = false;
  for (int e = 0; e < kPoolAxes; ++e) {
    const std::int64_t begin = w.start(e, at[e]), dil = w.dil[e];
    const std::int64_t first = begin < 0 ? begin + (-begin + dil - 1) / dil * dil : begin;
    none = none || first >= in.size[e];
    start = start * in.size[e] + begin;
    past = past * in.size[e] + first;
  }
  return none ? past : start;
}

/// Output positions along the last axis whose windows lie wholly inside an input of `size`.
inline TapRange inner_outputs(const PoolWindow& w, std::int64_t outputs, std::int64_t size) {
  const std::int64_t reach = (w.kernel[2] - 1) * w.dil[2];
  const std::int64_t begin = std::min((w.pad[2] + w.stride[2] - 1) / w.stride[2], outputs);
  const std::int64_t room = size - 1 - reach + w.pad[2];
  const std::int64_t end = room < 0 ? 0 : std::min(room / w.stride[2] + 1, outputs);
  return {begin, std::max(begin, end)};
}

}  // namespace athanor::detail
