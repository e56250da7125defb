#pragma once
/// 3×3 convolutions of stride 1 by Winograd's minimal filtering, F(4×4, 3×3): 36 products of small matrices instead of
/// 144 multiplications per tile (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). The
/// interpolation points 0, ±5/8, ±3/2, ∞ keep the relative error near 2e-6 (about twice the direct sum's). An infinity
/// or NaN spreads over the tile of 4 × 4 outputs it touches.

#include "athanor/device/cpu/conv_shape.h"

namespace athanor::detail {

/// Whether convolutions may be computed so at all: true unless ATHANOR_WINOGRAD=0, which gives the direct sum's error
/// and keeps NaN and infinities to the outputs they belong to. To be switched while no convolution is under way.
bool winograd_enabled();
void set_winograd_enabled(bool on);
/// float32, two spatial axes, 3 × 3, no stride or dilation, enough channels, dense planes; false where it is switched
/// off.
bool winograd_fits(const ConvCall& call);
/// y from x with bias and epilogue None or Relu, or (forward false) x from y.
void winograd_taps(const ConvCall& call, bool forward);
/// w and, if call.bias is given, the bias's gradient, from x and y.
void winograd_weight(const ConvCall& call);

}  // namespace athanor::detail
