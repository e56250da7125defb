#pragma once
/// Convolutions by a kernel of one tap without stride or padding, which are products of matrices: of the weight and
/// each image's pixels.

#include "athanor/device/cpu/conv_shape.h"

namespace athanor::detail {

/// Whether the pass is such a product of float32 or float64, pixels lie at one distance each, and it is faster than the
/// kernels of tap_conv and conv_weight, without AVX-512.
bool product_fits(const ConvCall& call, ConvPass pass);

/// dest = weight · source, as tap_conv, and the gradient of the weight, as conv_weight. For what product_fits.
void product_conv(const ConvCall& call, bool forward);
void product_weight(const ConvCall& call);

}  // namespace athanor::detail
