#pragma once
/// A convolution as the blocked products see it. Both directions are one thing, a *tap convolution*:
///
///     dest[m, p] = sum over source channels c and taps t of weight[m, c, t] · source[c, p + offset(t)]
///
/// on a grid of positions p. The source is first staged: copied with its zero padding, its positions split modulo the
/// stride, so that every tap reads consecutive values. Forward takes the input as source; the gradient of the input
/// takes the output's gradient, one grid of positions per residue of the stride.

#include <array>
#include <cstdint>
#include <vector>

#include "athanor/ops/kernels/conv.h"

namespace athanor::detail {

inline constexpr int kAxes = 3;  // spatial axes; missing ones come first, with size 1

/// Sizes of a plain (not transposed) convolution x → y.
struct ConvShape {
  std::int64_t batch = 0, groups = 1, x_channels = 0, y_channels = 0;  ///< channels of one group
  std::array<std::int64_t, kAxes> x{1, 1, 1}, y{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, pad{0, 0, 0}, dil{1, 1, 1};

  std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  std::int64_t y_pixels() const { return y[0] * y[1] * y[2]; }
};

/// An activation: address and strides in elements, spatial axes aligned as in ConvShape.
struct ConvData {
  void* data = nullptr;
  std::int64_t batch_step = 0, channel_step = 0;
  std::array<std::int64_t, kAxes> step{0, 0, 0};
  int block = 0;  ///< View::block; the steps are those of the plain layout
};

/// Whether an activation of so many channels, of all groups, and of this size lies without gaps, its channels last.
bool channels_last(const ConvData& d, const std::array<std::int64_t, kAxes>& size, std::int64_t channels);

/// A weight (y channels × x channels × kernel) of all groups.
struct ConvWeight {
  void* data = nullptr;
  std::int64_t y_step = 0, x_step = 0;  ///< y_step also leads from the last channel of a group to the next group
  std::array<std::int64_t, kAxes> step{0, 0, 0};
};

struct Tap {
  std::int64_t index;          ///< along the kernel
  std::int64_t phase, offset;  ///< where it reads: staged position (dest position + offset) of this phase
};

/// Dest positions origin + i · step, i < count, and the taps that reach them.
struct AxisPart {
  std::int64_t origin = 0, step = 1, count = 0;
  std::vector<Tap> taps;
};

/// One spatial axis of a tap convolution. Staged position q of phase f is source position q · phases + f - shift.
struct TapAxis {
  std::int64_t source = 1, phases = 1, shift = 0, reach = 0;  ///< reach: largest offset of a tap
  std::vector<AxisPart> parts;
  std::int64_t longest = 0;  ///< largest count of a part
};

struct TapConv {
  std::array<TapAxis, kAxes> axis;
  std::int64_t batch = 0, groups = 1, from = 0, to = 0;  ///< channels of one group on the source and dest side
  bool forward = true;
};

TapConv forward_taps(const ConvShape& s);
TapConv input_gradient_taps(const ConvShape& s);

/// What one call computes.
struct ConvCall {
  DType dtype = DType::Float;
  ConvShape shape;
  ConvData x, y;
  ConvWeight w;
  const void* bias = nullptr;  ///< per dest channel, or null
  std::int64_t bias_step = 0;
  Epilogue epilogue = Epilogue::None;
  const KeptValues* kept = nullptr;  ///< of the weight that is read, or null
  bool accumulate = false;           ///< the weight's gradient is added to what is there
};

/// Takes from `call` the outer taps that meet nothing but padding, as on planes smaller than the kernel. Returns
/// whether there were any.
bool drop_idle_taps(ConvCall& call);

/// Whether a kernel of one tap leaves out pixels of x, plain ones, and the pass reads the rest faster from a copy. Not
/// with AVX-512, where it was not measured.
bool skips_pixels(const ConvCall& call, ConvPass pass);
/// A call that skips pixels as one of stride 1 on those that it reads.
ConvCall dense_call(const ConvCall& call, const ConvData& x);

/// Whether the kernels for few channels take it (conv_direct-inl.h, conv_dots-inl.h): two spatial axes, dense planes on
/// the dest's side (of y for the weight), no grid per residue of a stride.
bool few_channels(const ConvCall& call, const TapConv& taps);
/// Columns of taps that conv_scatter-inl.h has room for.
inline constexpr int kMostScatterColumns = 16;
/// Gradients of the input that conv_scatter-inl.h takes, a part of those of few_channels.
bool scatters(const ConvCall& call, const TapConv& taps);
bool few_weights(const ConvCall& call, const TapConv& taps);
/// Whether the kernels for one source and one dest channel in each group take it (conv_depthwise-inl.h): up to two
/// spatial axes, rows dense on the dest's side (of y for the weight), no grid per residue of a stride.
bool depthwise(const ConvCall& call, const TapConv& taps);

/// dest = taps(source); forward: y from x, else x from y. By the family of dtype.
void tap_conv_f32(const ConvCall& call, const TapConv& taps);
void tap_conv_f64(const ConvCall& call, const TapConv& taps);
void tap_conv_int(const ConvCall& call, const TapConv& taps);
/// w = gradient of the weight from x and the gradient y of the output.
void conv_weight_f32(const ConvCall& call);
void conv_weight_f64(const ConvCall& call);
void conv_weight_int(const ConvCall& call);

}  // namespace athanor::detail
