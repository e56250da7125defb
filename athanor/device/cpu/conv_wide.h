#pragma once
/// Convolutions of half precision as those of float32, by which all but the processor's own instructions are faster.

#include <array>
#include <cstdint>

#include "athanor/device/cpu/conv_shape.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/ops/kernels/copy.h"

namespace athanor::detail {

/// An operand in float32: in row-major order, or in that of the narrow one.
class WideOperand {
 public:
  using Five = std::array<std::int64_t, kAxes + 2>;

  WideOperand(DType narrow, void* data, const Five& sizes, const Five& strides, bool keeps_order)
      : narrow_(narrow), data_(data), sizes_(sizes), given_(strides), own_(strides), keeps_order_(keeps_order) {
    numel_ = 1;
    for (int d = kAxes + 1; d >= 0; --d) {
      if (!keeps_order) own_[d] = numel_;
      numel_ *= sizes[d];
    }
    room_ = cpu::HostBuffer<float>(numel_);
  }

  void read() const { copy_kernel.get(DeviceType::CPU)(wide(), narrow()); }
  void write() const { copy_kernel.get(DeviceType::CPU)(narrow(), wide()); }

  float* data() const { return room_.data(); }
  const Five& strides() const { return own_; }

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
  View wide() const { return view(room_.data(), DType::Float, own_, !keeps_order_); }
  View narrow() const { return view(data_, narrow_, given_, false); }

  DType narrow_;
  void* data_;
  Five sizes_, given_, own_;
  bool keeps_order_;
  std::int64_t numel_ = 0;
  cpu::HostBuffer<float> room_;
};

/// A call of half precision and the same in float32, whose operands are read and written as the pass needs it.
/// Activations keep their channels last, weights are row-major. `bias_channels`: values of the bias.
class WideCall {
 public:
  WideCall(const ConvCall& c, std::int64_t bias_channels)
      : x(activation(c, c.x, c.shape.x_channels, c.shape.x)),
        y(activation(c, c.y, c.shape.y_channels, c.shape.y)),
        w(c.dtype, c.w.data,
          {c.shape.y_channels * c.shape.groups, c.shape.x_channels, c.shape.kernel[0], c.shape.kernel[1],
           c.shape.kernel[2]},
          {c.w.y_step, c.w.x_step, c.w.step[0], c.w.step[1], c.w.step[2]}, false),
        bias(c.dtype, const_cast<void*>(c.bias), {1, 1, 1, 1, c.bias ? bias_channels : 0}, {0, 0, 0, 0, c.bias_step},
             false),
        call(c) {
    call.dtype = DType::Float;
    call.kept = nullptr;  // forms of the narrow weight
    call.x = data_of(x);
    call.y = data_of(y);
    const auto& s = w.strides();
    call.w = {w.data(), s[0], s[1], {s[2], s[3], s[4]}};
    if (c.bias) {
      call.bias = bias.data();
      call.bias_step = 1;
    }
  }
  WideCall(const WideCall&) = delete;
  WideCall& operator=(const WideCall&) = delete;

  const WideOperand x, y, w, bias;
  ConvCall call;

 private:
  static WideOperand activation(const ConvCall& c, const ConvData& d, std::int64_t channels,
                                const std::array<std::int64_t, kAxes>& size) {
    const std::int64_t all = channels * c.shape.groups;
    return {c.dtype,
            d.data,
            {c.shape.batch, all, size[0], size[1], size[2]},
            {d.batch_step, d.channel_step, d.step[0], d.step[1], d.step[2]},
            channels_last(d, size, all)};
  }
  static ConvData data_of(const WideOperand& o) {
    const auto& s = o.strides();
    return {o.data(), s[0], s[1], {s[2], s[3], s[4]}, 0};
  }
};

}  // namespace athanor::detail
