#pragma once
/// Comparison and bitwise operators of Tensor; element by element, as libtorch.

#include "athanor/ops/tensor.h"
