#pragma once
/// First values of parameters: torch.nn.init. Every function changes its tensor in place, records nothing, and gives it
/// back. Random values come from the default generator. While Module::replica() makes a module, random functions leave
/// the tensor as it is.

#include "athanor/nn/options.h"
#include "athanor/ops/tensor.h"

namespace athanor::nn::init {

using NonlinearityType =
    enumtype::OneOf<enumtype::kLinear, enumtype::kConv1D, enumtype::kConv2D, enumtype::kConv3D,
                    enumtype::kConvTranspose1D, enumtype::kConvTranspose2D, enumtype::kConvTranspose3D,
                    enumtype::kSigmoid, enumtype::kTanh, enumtype::kReLU, enumtype::kLeakyReLU>;
using FanModeType = enumtype::OneOf<enumtype::kFanIn, enumtype::kFanOut>;

/// The factor that keeps variance through a nonlinearity; `param` is leaky ReLU's slope.
double calculate_gain(NonlinearityType nonlinearity, double param = 0.01);
/// Connections into and out of one unit. Throws Error for tensors of fewer than 2 dims.
std::tuple<std::int64_t, std::int64_t> _calculate_fan_in_and_fan_out(const Tensor& tensor);

Tensor constant_(Tensor tensor, Scalar value);
Tensor ones_(Tensor tensor);
Tensor zeros_(Tensor tensor);
/// Identity matrix; ones on the diagonal of a rectangular one.
Tensor eye_(Tensor matrix);
/// Keeps as many input channels as it can: a convolution's identity (3 to 5 dims), in each of `groups`.
Tensor dirac_(Tensor tensor, std::int64_t groups = 1);
Tensor uniform_(Tensor tensor, double low = 0, double high = 1);
Tensor normal_(Tensor tensor, double mean = 0, double std = 1);
/// Normal values redrawn until within [a, b], by inversion of the distribution function.
Tensor trunc_normal_(Tensor tensor, double mean = 0, double std = 1, double a = -2, double b = 2);
/// Rows or columns orthonormal (Saxe, McClelland, Ganguli, "Exact solutions to the nonlinear dynamics of learning in
/// deep linear neural networks", 2014), trailing dims flattened, times gain.
Tensor orthogonal_(Tensor tensor, double gain = 1.0);
/// Normal values, the fraction `sparsity` of every column zero. 2-d only.
Tensor sparse_(Tensor tensor, double sparsity, double std = 0.01);
/// He et al., "Delving deep into rectifiers", 2015. `a` is the slope of leaky ReLU.
Tensor kaiming_normal_(Tensor tensor, double a = 0, FanModeType mode = kFanIn,
                       NonlinearityType nonlinearity = kLeakyReLU);
Tensor kaiming_uniform_(Tensor tensor, double a = 0, FanModeType mode = kFanIn,
                        NonlinearityType nonlinearity = kLeakyReLU);
/// Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
Tensor xavier_normal_(Tensor tensor, double gain = 1.0);
Tensor xavier_uniform_(Tensor tensor, double gain = 1.0);

/// Uniform within ±1/sqrt(fan_in of weight): the first values of a layer's bias. An undefined bias is left alone.
void fan_in_uniform_(const Tensor& bias, const Tensor& weight);

}  // namespace athanor::nn::init
