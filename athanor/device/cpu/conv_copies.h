#pragma once
/// Calls of convolutions over copies of their operands: half precision as float32, by which all but the processor's own
/// instructions are faster, and the pixels that a stride does not leave out.

#include <array>
#include <cstdint>

#include "athanor/device/cpu/conv_shape.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/ops/kernels/copy.h"

namespace athanor::detail {

/// Sizes or strides of an operand: two dims of channels or images and the spatial axes.
using Five = std::array<std::int64_t, kAxes + 2>;

/// An operand and memory of a dtype of its own for it without gaps: in row-major order, or channels last.
class CopiedOperand {
 public:
  CopiedOperand(DType given_type, DType own_type, void* data, const Five& sizes, const Five& strides,
                bool channels_last)
      : given_type_(given_type),
        own_type_(own_type),
        given_data_(data),
        sizes_(sizes),
        given_(strides),
        contiguous_(!channels_last) {
    constexpr std::array<std::size_t, kAxes + 2> kRowMajor{4, 3, 2, 1, 0}, kChannelsLast{1, 4, 3, 2, 0};
    for (const std::size_t d : channels_last ? kChannelsLast : kRowMajor) {
      own_[d] = numel_;
      numel_ *= sizes[d];
    }
    room_ = cpu::HostBuffer<char>(numel_ * static_cast<std::int64_t>(item_size(own_type)));
  }

  void read() const { copy_kernel.get(DeviceType::CPU)(own(), given()); }
  void write() const { copy_kernel.get(DeviceType::CPU)(given(), own()); }

  void* data() const { return room_.data(); }
  const Five& strides() const { return own_; }
  /// As an activation.
  ConvData activation() const { return {data(), own_[0], own_[1], {own_[2], own_[3], own_[4]}, 0}; }

 private:
  View view(void* data, DType dtype, const Five& strides, bool contiguous) const {
    View v;
    v.data = data;
    v.sizes = sizes_.data();
    v.strides = strides.data();
    v.numel = numel_;
    v.dtype = dtype;
    v.ndim = kAxes + 2;
    v.contiguous = contiguous;
    return v;
  }
  View own() const { return view(data(), own_type_, own_, contiguous_); }
  View given() const { return view(given_data_, given_type_, given_, false); }

  DType given_type_, own_type_;
  void* given_data_;
  Five sizes_, given_, own_{};
  bool contiguous_;
  std::int64_t numel_ = 1;
  cpu::HostBuffer<char> room_;
};

/// An activation, which keeps its channels last if they are.
inline CopiedOperand copied_activation(const ConvCall& c, DType own_type, const ConvData& d, std::int64_t channels,
                                       const std::array<std::int64_t, kAxes>& size, bool channels_last) {
  return {c.dtype,
          own_type,
          d.data,
          {c.shape.batch, channels, size[0], size[1], size[2]},
          {d.batch_step, d.channel_step, d.step[0], d.step[1], d.step[2]},
          channels_last};
}

/// A call of half precision and the same in float32, whose operands are read and written as the pass needs it.
/// Activations keep their channels last, weights are row-major. `bias_channels`: values of the bias.
class WideCall {
 public:
  WideCall(const ConvCall& c, std::int64_t bias_channels)
      : x(activation(c, c.x, c.shape.x_channels, c.shape.x)),
        y(activation(c, c.y, c.shape.y_channels, c.shape.y)),
        w(c.dtype, DType::Float, c.w.data,
          {c.shape.y_channels * c.shape.groups, c.shape.x_channels, c.shape.kernel[0], c.shape.kernel[1],
           c.shape.kernel[2]},
          {c.w.y_step, c.w.x_step, c.w.step[0], c.w.step[1], c.w.step[2]}, false),
        bias(c.dtype, DType::Float, const_cast<void*>(c.bias), {1, 1, 1, 1, c.bias ? bias_channels : 0},
             {0, 0, 0, 0, c.bias_step}, false),
        call(c) {
    call.dtype = DType::Float;
    call.kept = nullptr;  // forms of the narrow weight
    call.x = x.activation();
    call.y = y.activation();
    const Five& s = w.strides();
    call.w = {w.data(), s[0], s[1], {s[2], s[3], s[4]}};
    if (c.bias) {
      call.bias = bias.data();
      call.bias_step = 1;
    }
  }
  WideCall(const WideCall&) = delete;
  WideCall& operator=(const WideCall&) = delete;

  const CopiedOperand x, y, w, bias;
  ConvCall call;

 private:
  static CopiedOperand activation(const ConvCall& c, const ConvData& d, std::int64_t channels,
                                  const std::array<std::int64_t, kAxes>& size) {
    const std::int64_t all = channels * c.shape.groups;
    return copied_activation(c, DType::Float, d, all, size, channels_last(d, size, all));
  }
};

/// A call that skips pixels as one on a copy of those that it reads.
class DenseCall {
 public:
  explicit DenseCall(const ConvCall& c)
      : x_(copied_activation(c, c.dtype, sparse_x(c), c.shape.x_channels * c.shape.groups, c.shape.y,
                             channels_last(c.x, c.shape.x, c.shape.x_channels * c.shape.groups))),
        call(dense_call(c, x_.activation())) {
    x_.read();
  }
  DenseCall(const DenseCall&) = delete;
  DenseCall& operator=(const DenseCall&) = delete;

 private:
  static ConvData sparse_x(const ConvCall& c) {
    ConvData x = c.x;
    for (std::size_t e = 0; e < kAxes; ++e) x.step[e] *= c.shape.stride[e];
    return x;
  }
  const CopiedOperand x_;

 public:
  const ConvCall call;
};

}  // namespace athanor::detail
