#include "athanor/device/cpu/onednn_conv_rule.h"

#include <oneapi/dnnl/dnnl.hpp>

#include "athanor/device/cpu/conv_pointwise.h"
#include "athanor/device/cpu/conv_winograd.h"
#include "athanor/device/cpu/wide_vectors.h"

namespace athanor::onednn {
#ifndef ATHANOR_STD_THREAD_POOL
namespace {

using detail::ConvCall;
using detail::ConvData;
using detail::ConvShape;
using Pass = ConvPass;

bool channels_first(const ConvData& d, const ConvShape& s, const std::array<std::int64_t, 3>& size,
                    std::int64_t channels) {
  return d.step[2] == 1 && d.step[1] == size[2] && (size[0] == 1 || d.step[0] == size[1] * size[2]) &&
         d.channel_step == size[0] * size[1] * size[2] && d.batch_step == channels * s.groups * d.channel_step;
}

}  // namespace

int block_of_processor() {
  static const int block = [] {
    const auto isa = dnnl::get_effective_cpu_isa();
    const auto at_least = [&](dnnl::cpu_isa wanted) {
      return (static_cast<unsigned>(isa) & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
    };
    return at_least(dnnl::cpu_isa::avx512_core) ? 16 : at_least(dnnl::cpu_isa::avx2) ? 8 : 0;
  }();
  return block;
}

bool has_volumes(const ConvShape& s) { return s.x[0] != 1 || s.y[0] != 1 || s.kernel[0] != 1 || s.pad[0] != 0; }

namespace {

bool strided(const ConvShape& s) { return s.stride[0] > 1 || s.stride[1] > 1 || s.stride[2] > 1; }

/// The rule for planes of float32 with AVX-512 that Winograd's algorithm does not fit, small ones too; with the
/// reorders, oneDNN takes a half to a quarter of our kernels' time. Where it says None, other rules may still give them
/// to oneDNN.
Layout layout_for_planes(const ConvShape& s, Pass pass) {
  const std::int64_t x = s.x_channels, y = s.y_channels;
  if (s.x[1] == 1) return Layout::None;  // one axis: no gain
  if (strided(s)) {
    if (pass == Pass::Forward) return Layout::Blocked;
    if (s.taps() == 1 && s.y_pixels() > 400) return Layout::AsGiven;
    if (pass == Pass::Weight) return x < 4 || x >= 8 ? Layout::Blocked : Layout::None;
    if (x < 5) return y >= 8 ? Layout::AsGiven : Layout::None;
    return y >= (x < 8 ? 16 : 8) ? Layout::Blocked : Layout::None;
  }
  // Blocks of 16 that are filled well.
  const auto full = [](std::int64_t channels) { return 5 * channels >= 4 * ((channels + 15) / 16 * 16); };
  if (full(x) && full(y)) return s.taps() > 9 ? Layout::Blocked : Layout::None;
  // A net's first layer.
  const bool first =
      x == 3 && (pass == Pass::Weight ? y >= 32 && s.taps() > 4 : pass == Pass::Forward && y >= 16 && s.taps() > 9);
  return first ? Layout::Blocked : Layout::None;
}

/// The same for volumes, which no other rule gives to oneDNN.
Layout layout_for_volumes(const ConvShape& s, Pass pass, bool last) {
  const std::int64_t x = s.x_channels, y = s.y_channels;
  // oneDNN 2.6 writes beyond the gradient of a channels-last weight where a strided window may begin far outside. Which
  // other calls are safe there was not found out, so that none is made.
  for (int e = 0; e < detail::kAxes; ++e)
    if (2 * s.pad[e] > s.dil[e] * (s.kernel[e] - 1)) return Layout::None;
  if (last) return x > 1 || y > 1 ? Layout::AsGiven : Layout::None;
  bool pays = true;
  if (pass == Pass::Weight) pays = x < 4 || x >= 16;
  if (pass == Pass::Input) pays = strided(s) ? y >= 4 : y >= 16 && s.taps() > 1;
  return pays ? Layout::Blocked : Layout::None;
}

/// The same for a channel in each group, bfloat16 too. oneDNN has no fast gradient for the weights of large kernels,
/// and planes in float32 are fastest by our own kernels, unless they are small.
Layout layout_for_depthwise(const ConvShape& s, Pass pass, bool last, bool half) {
  if (pass == Pass::Weight && (s.kernel[1] > 3 || s.kernel[2] > 3)) return Layout::None;
  if (last) return Layout::AsGiven;
  const bool small = s.y_pixels() < 64 && s.groups >= 64;
  return half || small || (pass == Pass::Input && strided(s)) ? Layout::Blocked : Layout::None;
}

/// The rule for strided kernels wider than one without AVX-512, of 16 channels on: our tiles need no reorders, but a
/// weight packed for each call, which many positions have to share.
bool tiles_beat_blocks(const ConvShape& s, Pass pass) {
  const std::int64_t x = s.x_channels, y = s.y_channels, positions = s.batch * s.y_pixels();
  if (pass == Pass::Weight) return y >= 32 && positions >= 128;
  if (pass == Pass::Input) return x >= 256 && y >= 512 && positions >= 256;
  return x >= 64 && s.taps() <= 16 && positions >= 384;
}

/// The rule for kernels of one tap on plain planes of float32 without AVX-512: products of the planes as they lie,
/// where these are long, channels are many and, forward, become no more; gradients of weights, but for short planes of
/// several images and few channels.
bool product_beats_blocks(const ConvCall& call, Pass pass) {
  const ConvShape& s = call.shape;
  const std::int64_t x = s.x_channels, y = s.y_channels;
  if (s.y_pixels() < 400 && (pass != Pass::Weight || (s.batch > 1 && (x <= 16 || y <= 16)))) return false;
  if (pass != Pass::Weight && (x < 64 || y < 64)) return false;
  if (pass == Pass::Forward && x < y) return false;
  return detail::product_fits(call, pass);
}

/// The rule. Winograd's 3 × 3 and the kernels for few channels are ours; the rest of the large ones are oneDNN's.
Layout layout_for_plain(const ConvCall& call, Pass pass) {
  const ConvShape& s = call.shape;
  const bool half = call.dtype == DType::BFloat16;
  // oneDNN emulates bfloat16 where the processor does not have it: ten times as slow as float32.
  if (half && !cpu::multiplies_bfloat16()) return Layout::None;
  if ((call.dtype != DType::Float && !half) || call.epilogue != Epilogue::None) return Layout::None;
  if (s.batch == 0) return Layout::None;
  // oneDNN 2.6 gets the weight's gradient wrong there on matrix units: rows dilated, blocks of channels not full.
  if (half && pass == Pass::Weight && s.dil[1] > 1 && s.kernel[1] > 1 && s.x_channels % 16 != 0) return Layout::None;
  // And there it writes beyond its memory where strides leave out rows between those of a kernel wider than one.
  if (half && pass == Pass::Forward && s.kernel[1] < s.stride[1] && s.kernel[2] > 1) return Layout::None;
  const double work = static_cast<double>(s.batch * s.groups * s.x_channels * s.y_channels) *
                      static_cast<double>(s.taps() * s.y_pixels());
  const bool first = channels_first(call.x, s, s.x, s.x_channels) && channels_first(call.y, s, s.y, s.y_channels);
  // One channel that is first is last as well.
  const bool last = (detail::channels_last(call.x, s.x, s.x_channels * s.groups) ||
                     (s.x_channels == 1 && s.groups == 1 && channels_first(call.x, s, s.x, 1))) &&
                    detail::channels_last(call.y, s.y, s.y_channels * s.groups);
  if (!last && !first) return Layout::None;
  const bool wide = block_of_processor() == 16;
  if (has_volumes(s))
    return wide && !half && s.groups == 1 && work >= 2e5 ? layout_for_volumes(s, pass, last) : Layout::None;
  if (s.groups > 1 && s.x_channels == 1 && s.y_channels == 1 && work >= 3e4)
    return layout_for_depthwise(s, pass, last, half);
  // Not for less work: a new shape takes oneDNN some 0.4 ms.
  if (wide && !half && s.groups == 1 && work >= 2e5 && !winograd_fits(call)) {
    // Channels-last tensors it reads as they lie, at 2 to 6 times the speed of our kernels.
    if (last) return Layout::AsGiven;
    if (const Layout l = layout_for_planes(s, pass); l != Layout::None) return l;
  }
  if (work < 4e6 || s.y_channels < 16) return Layout::None;
  if (s.x_channels < 16) {
    // A net's first layer: large kernels of a stride.
    if (half || s.groups > 1 || s.stride[1] == 1 || s.y_channels < 32) return Layout::None;
    // Without AVX-512 our tiles sum small filters faster, and what is channels-last need not become blocks.
    if (!wide && pass == Pass::Weight && s.taps() <= 16) return Layout::None;
    return pass == Pass::Input || (!wide && last && pass == Pass::Forward) ? Layout::AsGiven : Layout::Blocked;
  }
  if (!wide && !half && s.groups == 1 && s.taps() > 1 && strided(s) && tiles_beat_blocks(s, pass)) return Layout::None;
  if (last) return half || !winograd_fits(call) ? Layout::AsGiven : Layout::None;
  if (half) return Layout::Blocked;
  // Tiles of 4 × 4 do not fit small planes, and many channels make the transforms of the filters dear: with AVX-512
  // they are. Without, multiplications are dearer.
  const bool small = wide && s.y_pixels() < 100 && s.x_channels >= 256 && s.y_channels >= 256;
  if (winograd_fits(call)) return small ? Layout::Blocked : Layout::None;
  if (s.taps() == 1 && s.groups == 1 && s.pad[1] == 0 && s.pad[2] == 0) {
    if (product_beats_blocks(call, pass)) return Layout::None;
    // What is given plain oneDNN computes as a plain product, without AVX-512 at half the speed of its kernels for
    // blocks.
    if (!wide || s.y_pixels() <= 400) return Layout::Blocked;
    return strided(s) && pass == Pass::Forward ? Layout::Blocked : Layout::AsGiven;
  }
  return strided(s) || s.y_channels > 32 ? Layout::Blocked : Layout::None;
}

bool known_block(const ConvData& d) { return d.block == 0 || d.block == 8 || d.block == 16; }

}  // namespace

Layout layout_for(const ConvCall& call, Pass pass) {
  if (!known_block(call.x) || !known_block(call.y)) return Layout::None;
  const Layout l = layout_for_plain(call, pass);
  return l == Layout::AsGiven && (call.x.block || call.y.block) ? Layout::Blocked : l;
}

#endif
}  // namespace athanor::onednn
