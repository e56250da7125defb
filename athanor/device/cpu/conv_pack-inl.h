// Weights of a tap convolution (see conv_shape.h) in the order in which the register tiles read them. Compiled once per
// SIMD target; included after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_CONV_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_CONV_PACK_INL_H_
#undef ATHANOR_DEVICE_CPU_CONV_PACK_INL_H_
#else
#define ATHANOR_DEVICE_CPU_CONV_PACK_INL_H_
#endif
// clang-format on

#include <algorithm>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/conv_stage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

/// The taps of one combination of axis parts, and where the weights of that part lie in packed form.
struct TapPart {
  std::array<const AxisPart*, kAxes> part{};
  std::vector<std::array<const detail::Tap*, kAxes>> taps;
  std::int64_t inner = 0;   ///< source channels × taps
  std::int64_t packed = 0;  ///< offset in the packed weights of a group
};

inline std::vector<TapPart> parts_of(const TapConv& taps) {
  std::vector<TapPart> parts;
  for (const AxisPart& a : taps.axis[0].parts)
    for (const AxisPart& b : taps.axis[1].parts)
      for (const AxisPart& c : taps.axis[2].parts) {
        TapPart p;
        p.part = {&a, &b, &c};
        for (const detail::Tap& i : a.taps)
          for (const detail::Tap& j : b.taps)
            for (const detail::Tap& k : c.taps) p.taps.push_back({&i, &j, &k});
        p.inner = taps.from * static_cast<std::int64_t>(p.taps.size());
        parts.push_back(std::move(p));
      }
  return parts;
}

/// For each group and part, panels of weights for the row tiles of dest channels; and the bias as T.
template <class In, class T>
class PackedTaps {
 public:
  PackedTaps(const ConvCall& call, const TapConv& taps)
      : call_(call), taps_(taps), tiles_(taps.to), parts_(parts_of(taps)) {}

  const std::vector<TapPart>& parts() const { return parts_; }
  const RowTiles& tiles() const { return tiles_; }
  /// Of row tile t: a[i + k · height] for k < p.inner, i < height.
  const T* panel(std::int64_t group, const TapPart& p, std::int64_t t) const {
    return weights_ + group * group_step_ + p.packed + tiles_.begin(t) * p.inner;
  }
  /// Per dest channel of all groups, or null.
  const T* bias() const { return bias_; }

  void pack() {
    std::int64_t total = 0;
    for (TapPart& p : parts_) {
      p.packed = total;
      total += taps_.to * p.inner;
    }
    group_step_ = total;
    weights_ = scratch<T>(kWeightSlot, taps_.groups * total + kVector<T> + taps_.groups * taps_.to);
    bias_ = nullptr;
    if (call_.bias) {
      T* bias = weights_ + taps_.groups * total + kVector<T>;
      for (std::int64_t i = 0; i < taps_.groups * taps_.to; ++i)
        bias[i] = convert<T>(static_cast<const In*>(call_.bias)[i * call_.bias_step]);
      bias_ = bias;
    }
    const std::int64_t runs = (tiles_.count + kRun - 1) / kRun;
    const std::int64_t per_group = static_cast<std::int64_t>(parts_.size()) * runs;
    const auto pack = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const TapPart& p = parts_[i % per_group / runs];
        const std::int64_t first = i % runs * kRun, last = std::min(first + kRun, tiles_.count);
        if (rows_in_order(p))
          pack_rows(i / per_group, p, first, last);
        else
          pack_across(i / per_group, p, first, last);
      }
    };
    if (total < (1 << 15))
      pack(0, taps_.groups * per_group);
    else
      parallel_for(0, taps_.groups * per_group, 1, pack);
  }

 private:
  static constexpr std::int64_t kRun = 16;  ///< panels packed one after the other

  /// Whether the inner dimension of the packed panel is consecutive in the weight.
  bool rows_in_order(const TapPart& p) const {
    const auto count = static_cast<std::int64_t>(p.taps.size());
    if ((taps_.forward ? call_.w.x_step : call_.w.y_step) != count) return false;
    for (std::int64_t k = 0; k < count; ++k)
      if (weight_offset(p, k) != k) return false;
    return true;
  }

  /// The weights of a group's row at inner step 0, and the distances of rows and of source channels.
  struct Rows {
    const In* data;
    std::int64_t to_step, from_step;
  };
  Rows rows_of(std::int64_t g, std::int64_t row) const {
    const auto& w = call_.w;
    const std::int64_t y_channels = taps_.forward ? taps_.to : taps_.from;
    const std::int64_t to_step = taps_.forward ? w.y_step : w.x_step, from_step = taps_.forward ? w.x_step : w.y_step;
    return {static_cast<const In*>(w.data) + g * y_channels * w.y_step + row * to_step, to_step, from_step};
  }
  T* packed_panel(std::int64_t g, const TapPart& p, std::int64_t t) const {
    return weights_ + g * group_step_ + p.packed + tiles_.begin(t) * p.inner;
  }

  /// Panels [first, last), whose rows lie in order. They are stored in whole vectors, beyond their end, but for the
  /// last, since what follows that may have been packed already, and those of a single step, which may be less than a
  /// vector.
  void pack_rows(std::int64_t g, const TapPart& p, std::int64_t first, std::int64_t last) const {
    for (std::int64_t t = first; t < last; ++t) {
      const int n = tiles_.height(t);
      const Rows rows = rows_of(g, tiles_.begin(t));
      T* const out = packed_panel(g, p, t);
      const bool apart = t + 1 == last || p.inner == 1;
      T* const to = apart ? scratch<T>(kPackedASlot, n * p.inner + kVector<T>) : out;
      pack_a<T>(rows.data, rows.to_step, 1, p.inner, n, to);
      if (apart) std::copy_n(to, n * p.inner, out);
    }
  }

  /// Panels [first, last) a source channel at a time, of which each has a few values: a panel by itself would touch a
  /// page for each channel and come back for its neighbours when they are gone.
  void pack_across(std::int64_t g, const TapPart& p, std::int64_t first, std::int64_t last) const {
    const auto count = static_cast<std::int64_t>(p.taps.size());
    std::vector<std::int64_t> offsets;
    for (std::int64_t k = 0; k < count; ++k) offsets.push_back(weight_offset(p, k));
    const Rows rows = rows_of(g, tiles_.begin(first));
    T* const panels = packed_panel(g, p, first);
    for (std::int64_t c = 0; c < taps_.from; ++c) {
      const In* from = rows.data + c * rows.from_step;
      T* panel = panels;
      for (std::int64_t t = first; t < last; ++t) {
        const std::int64_t n = tiles_.height(t);
        T* out = panel + c * count * n;
        for (std::int64_t k = 0; k < count; ++k)
          for (std::int64_t i = 0; i < n; ++i) *out++ = convert<T>(from[i * rows.to_step + offsets[k]]);
        from += n * rows.to_step;
        panel += n * p.inner;
      }
    }
  }

  std::int64_t weight_offset(const TapPart& p, std::int64_t k) const {
    std::int64_t o = 0;
    for (int e = 0; e < kAxes; ++e) o += p.taps[k][e]->index * call_.w.step[e];
    return o;
  }

  const ConvCall& call_;
  const TapConv& taps_;
  const RowTiles tiles_;
  std::vector<TapPart> parts_;
  T* weights_ = nullptr;
  const T* bias_ = nullptr;
  std::int64_t group_step_ = 0;
};

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
