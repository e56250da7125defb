#include "athanor/ops/kernels/conv.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/conv_copies.h"
#include "athanor/device/cpu/conv_pointwise.h"
#include "athanor/device/cpu/conv_shape.h"
#include "athanor/device/cpu/conv_winograd.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/onednn_conv.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/kernels/hidden.h"
#include "athanor/ops/kernels/pointwise.h"
#include "athanor/ops/kernels/reduce.h"

namespace athanor {
namespace {

using detail::ConvCall;
using detail::ConvData;
using detail::ConvShape;
using detail::ConvWeight;
using detail::kAxes;

ConvData data_of(const View& v, int spatial) {
  ConvData d;
  d.data = v.data;
  d.block = v.block;
  d.batch_step = v.stride(0);
  d.channel_step = v.stride(1);
  for (int e = 0; e < spatial; ++e) d.step[kAxes - spatial + e] = v.stride(2 + e);
  return d;
}

ConvWeight weight_of(const View& v, int spatial) {
  ConvWeight w;
  w.data = v.data;
  w.y_step = v.stride(0);
  w.x_step = v.stride(1);
  for (int e = 0; e < spatial; ++e) w.step[kAxes - spatial + e] = v.stride(2 + e);
  return w;
}

/// The plain convolution x → y behind a call; a transposed one is its gradient with respect to x.
ConvShape shape_of(const View& x, const View& y, const View& weight, const ConvParams& p) {
  ConvShape s;
  s.batch = x.size(0);
  s.groups = p.groups;
  s.x_channels = weight.size(1);
  s.y_channels = weight.size(0) / p.groups;
  for (int e = 0; e < p.spatial; ++e) {
    const int to = kAxes - p.spatial + e;
    s.x[to] = x.size(2 + e);
    s.y[to] = y.size(2 + e);
    s.kernel[to] = weight.size(2 + e);
    constexpr std::int64_t kAbsurd = std::int64_t{1} << 20;
    s.stride[to] = s.y[to] == 1 && p.stride[e] > kAbsurd ? 1 : p.stride[e];  // between windows, of which there is one
    s.pad[to] = p.padding[e];
    s.dil[to] = s.kernel[to] == 1 ? 1 : p.dilation[e];
  }
  return s;
}

ConvCall call_of(const View& x, const View& y, const View& weight, const ConvParams& p) {
  ConvCall c;
  c.dtype = weight.dtype;
  c.shape = shape_of(x, y, weight, p);
  c.x = data_of(x, p.spatial);
  c.y = data_of(y, p.spatial);
  c.w = weight_of(weight, p.spatial);
  if (p.kept.forms) c.kept = &p.kept;
  detail::drop_idle_taps(c);
  return c;
}

void set_bias(ConvCall& c, const View& bias) {
  if (!bias.defined()) return;
  c.bias = bias.data;
  c.bias_step = bias.stride(0);
}

/// A channels-last activation as planes, which our own kernels read many times as fast; any other as it is.
class Planes {
 public:
  Planes(const ConvCall& c, const ConvData& given, std::int64_t channels, const std::array<std::int64_t, kAxes>& size)
      : plain(given),
        given_(given),
        bytes_(static_cast<std::int64_t>(item_size(c.dtype))),
        batch_(c.shape.batch),
        channels_(channels * c.shape.groups),
        pixels_(size[0] * size[1] * size[2]) {
    turns_ = pixels_ > 1 && detail::channels_last(given, size, channels_);
    if (!turns_) return;
    room_ = cpu::HostBuffer<char>(batch_ * channels_ * pixels_ * bytes_);
    plain.data = room_.data();
    plain.channel_step = pixels_;
    plain.step = {size[1] * size[2], size[2], 1};
  }
  Planes& read() {
    if (turns_) turn(plain.data, given_.data, pixels_, channels_);
    return *this;
  }
  void write() const {
    if (turns_) turn(given_.data, plain.data, channels_, pixels_);
  }

  ConvData plain;

 private:
  /// `rows` lines of `cols` of each image to `cols` lines of `rows`.
  void turn(void* to, const void* from, std::int64_t rows, std::int64_t cols) const {
    const auto transpose = cpu::block_ops().transpose[std::countr_zero(static_cast<std::uint64_t>(bytes_))];
    const std::int64_t image = rows * cols * bytes_;
    parallel_for(0, batch_, (128 << 10) / image + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n)
        transpose(static_cast<char*>(to) + n * image, rows, static_cast<const char*>(from) + n * image, cols, rows,
                  cols, false);
    });
  }

  const ConvData given_;
  std::int64_t bytes_, batch_, channels_, pixels_;
  bool turns_ = false;
  cpu::HostBuffer<char> room_;
};

void run_own_taps(const ConvCall& c, const detail::TapConv& taps) {
  if (c.dtype == DType::Double)
    detail::tap_conv_f64(c, taps);
  else if (is_floating_point(c.dtype))
    detail::tap_conv_f32(c, taps);
  else
    detail::tap_conv_int(c, taps);
}

/// run(c), or on a copy of the pixels of x that are read, where others are left out.
template <class F>
auto on_read_pixels(const ConvCall& c, ConvPass pass, F&& run) {
  return detail::skips_pixels(c, pass) ? run(detail::DenseCall(c).call) : run(c);
}

void run_taps(const ConvCall& c, bool forward) {
  if (detail::skips_pixels(c, forward ? ConvPass::Forward : ConvPass::Input))
    return run_taps(detail::DenseCall(c).call, true);
  if (forward ? onednn::conv_forward(c) : onednn::conv_input(c)) return;
  if (is_half(c.dtype)) {
    const ConvShape& s = c.shape;
    const detail::WideCall wide(c, (forward ? s.y_channels : s.x_channels) * s.groups);
    wide.w.read();
    wide.bias.read();
    (forward ? wide.x : wide.y).read();
    run_taps(wide.call, forward);
    return (forward ? wide.y : wide.x).write();
  }
  if (detail::product_fits(c, forward ? ConvPass::Forward : ConvPass::Input)) return detail::product_conv(c, forward);
  const detail::TapConv taps = forward ? detail::forward_taps(c.shape) : detail::input_gradient_taps(c.shape);
  if (taps.batch == 0 || taps.to == 0) return;
  if (detail::winograd_fits(c)) return detail::winograd_taps(c, forward);
  Planes x(c, c.x, c.shape.x_channels, c.shape.x), y(c, c.y, c.shape.y_channels, c.shape.y);
  ConvCall plain = c;
  plain.x = (forward ? x.read() : x).plain;
  plain.y = (forward ? y : y.read()).plain;
  run_own_taps(plain, taps);
  (forward ? y : x).write();
}

/// A call's activation in plain order, for the kernels that take no other; a copy if it is in blocks of channels.
class PlainActivation {
 public:
  explicit PlainActivation(const View& given) : given_(given), plain_(given) {
    if (!given.block) return;
    room_ = cpu::HostBuffer<char>(given.numel * static_cast<std::int64_t>(given.item_size()));
    plain_.data = room_.data();
    plain_.block = 0;
    plain_.contiguous = true;
  }
  PlainActivation& read() {
    if (given_.block) relayout_kernel.get(DeviceType::CPU)(plain_, given_);
    return *this;
  }
  void write() const {
    if (given_.block) relayout_kernel.get(DeviceType::CPU)(given_, plain_);
  }
  const View& view() const { return plain_; }

 private:
  View given_, plain_;
  cpu::HostBuffer<char> room_;
};

void conv_layout_cpu(int& block, ConvPass pass, DType dtype, IntArrayRef x, IntArrayRef weight, IntArrayRef y,
                     const ConvParams& params) {
  const int lies_in = std::exchange(block, 0);
  if (params.spatial != 2 || params.transposed || params.groups != 1) return;
  const auto view = [&](IntArrayRef sizes, std::array<std::int64_t, 4>& strides) {
    View v;
    strides = {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
    v.sizes = sizes.data();
    v.strides = strides.data();
    v.dtype = dtype;
    v.ndim = 4;
    return v;
  };
  std::array<std::int64_t, 4> steps[3];
  ConvCall c = call_of(view(x, steps[0]), view(y, steps[1]), view(weight, steps[2]), params);
  // Where an operand of a weight's gradient lies in blocks, copies in plain order would cost what our kernels save.
  if (lies_in && pass == ConvPass::Weight) c.x.block = lies_in;
  if (!lies_in && detail::skips_pixels(c, pass)) {
    const std::array<std::int64_t, 4> read{x[0], x[1], y[2], y[3]};
    c = detail::dense_call(c, data_of(view(read, steps[0]), params.spatial));
  }
  block = onednn::conv_block(c, pass);
}

/// A value per channel, as long as the channels' dim of `like` and 1 or repeated elsewhere.
struct PerChannel {
  PerChannel(const View& values, const View& like, bool repeated) : view(values) {
    std::copy_n(like.sizes, like.ndim, sizes.begin());
    if (!repeated) std::fill_n(sizes.begin(), like.ndim, 1);
    sizes[1] = like.size(1);
    strides[1] = values.stride(0);
    view.sizes = sizes.data();
    view.strides = strides.data();
    view.ndim = like.ndim;
    if (repeated) view.numel = like.numel;
    view.contiguous = false;
  }
  PerChannel(const PerChannel&) = delete;
  PerChannel& operator=(const PerChannel&) = delete;
  std::array<std::int64_t, kAxes + 2> sizes{}, strides{};
  View view;
};

/// A transposed convolution with a bias by oneDNN, whose gradient of the input knows none. Half precision would be
/// rounded twice.
bool transposed_and_bias(const ConvCall& c, const View& out, const View& bias) {
  if (!c.bias || c.dtype != DType::Float || c.epilogue != Epilogue::None) return false;
  ConvCall plain = c;
  plain.bias = nullptr;
  if (!onednn::conv_input(plain)) return false;
  const PerChannel spread(bias, out, true);
  binary_kernel.get(DeviceType::CPU)(BinaryOp::Add, out, out, spread.view, 1, 0);
  return true;
}

void conv_forward_cpu(const View& out, const View& in, const View& weight, const View& bias, const ConvParams& params,
                      Epilogue epilogue) {
  if (out.numel == 0) return;
  ConvCall c = params.transposed ? call_of(out, in, weight, params) : call_of(in, out, weight, params);
  set_bias(c, bias);
  c.epilogue = epilogue;
  if (!out.block && !in.block) {
    if (!params.transposed || !transposed_and_bias(c, out, bias)) run_taps(c, !params.transposed);
    return;
  }
  if (!params.transposed && on_read_pixels(c, ConvPass::Forward, onednn::conv_forward)) return;
  const PlainActivation to(out);
  conv_forward_cpu(to.view(), PlainActivation(in).read().view(), weight, bias, params, epilogue);
  to.write();
}

void conv_backward_input_cpu(const View& din, const View& dout, const View& weight, const ConvParams& params) {
  if (din.numel == 0) return;
  const ConvCall c = params.transposed ? call_of(dout, din, weight, params) : call_of(din, dout, weight, params);
  if (!din.block && !dout.block) return run_taps(c, params.transposed);
  if (!params.transposed && onednn::conv_input(c)) return;
  const PlainActivation to(din);
  conv_backward_input_cpu(to.view(), PlainActivation(dout).read().view(), weight, params);
  to.write();
}

std::int64_t taps_of(const View& weight) {
  std::int64_t taps = 1;
  for (int e = 2; e < weight.ndim; ++e) taps *= weight.size(e);
  return taps;
}

void run_weight(const ConvCall& c) {
  if (detail::skips_pixels(c, ConvPass::Weight)) return run_weight(detail::DenseCall(c).call);
  if (onednn::conv_weight(c)) return;
  if (is_half(c.dtype)) {
    const detail::WideCall wide(c, c.shape.y_channels * c.shape.groups);
    wide.x.read();
    wide.y.read();
    run_weight(wide.call);
    wide.bias.write();
    return wide.w.write();
  }
  if (detail::product_fits(c, ConvPass::Weight)) return detail::product_weight(c);
  if (detail::winograd_fits(c)) return detail::winograd_weight(c);
  Planes x(c, c.x, c.shape.x_channels, c.shape.x), y(c, c.y, c.shape.y_channels, c.shape.y);
  ConvCall plain = c;
  plain.x = x.read().plain, plain.y = y.read().plain;
  if (c.dtype == DType::Double)
    detail::conv_weight_f64(plain);
  else if (is_floating_point(c.dtype))
    detail::conv_weight_f32(plain);
  else
    detail::conv_weight_int(plain);
}

void weight_gradient(const View& dweight, const View& dbias, const View& dout, const View& in,
                     const ConvParams& params) {
  ConvCall c = params.transposed ? call_of(dout, in, dweight, params) : call_of(in, dout, dweight, params);
  if (c.shape.taps() < taps_of(dweight)) fill_kernel.get(DeviceType::CPU)(dweight, 0);
  if (dout.block || in.block) {
    if (!params.transposed) set_bias(c, dbias);
    if (!params.transposed && on_read_pixels(c, ConvPass::Weight, onednn::conv_weight)) return;
    return weight_gradient(dweight, dbias, PlainActivation(dout).read().view(), PlainActivation(in).read().view(),
                           params);
  }
  // The bias belongs to the channels of dout, which are the plain convolution's input if it is transposed.
  if (!params.transposed)
    set_bias(c, dbias);
  else if (dbias.defined())
    reduce_kernel.get(DeviceType::CPU)(ReduceOp::Sum, PerChannel(dbias, dout, false).view, dout,
                                       ~std::uint64_t{2} & ((std::uint64_t{1} << dout.ndim) - 1), 0);
  if (c.shape.groups * c.shape.y_channels * c.shape.x_channels * c.shape.taps() == 0 && !c.bias) return;
  run_weight(c);
}

void conv_backward_weight_cpu(const View& dweight, const View& dbias, const View& dout, const View& in,
                              const ConvParams& params, const View& before) {
  if (!before.defined()) return weight_gradient(dweight, dbias, dout, in, params);
  if (!params.transposed && !dbias.defined()) {
    ConvCall c = call_of(in, dout, dweight, params);
    c.accumulate = true;
    const bool whole = c.shape.taps() == taps_of(dweight) && !detail::skips_pixels(c, ConvPass::Weight);
    if (whole && onednn::conv_weight(c)) return;
  }
  const cpu::HostBuffer<char> room(dweight.numel * static_cast<std::int64_t>(dweight.item_size()));
  View apart = dweight;
  apart.data = room.data();
  weight_gradient(apart, dbias, dout, in, params);
  binary_kernel.get(DeviceType::CPU)(BinaryOp::Add, dweight, before, apart, 1, 0);
}

ATHANOR_REGISTER_KERNEL(conv_layout_kernel, CPU, &conv_layout_cpu);
ATHANOR_REGISTER_KERNEL(conv_forward_kernel, CPU, &conv_forward_cpu);
ATHANOR_REGISTER_KERNEL(conv_backward_input_kernel, CPU, &conv_backward_input_cpu);
ATHANOR_REGISTER_KERNEL(conv_backward_weight_kernel, CPU, &conv_backward_weight_cpu);

}  // namespace
}  // namespace athanor
