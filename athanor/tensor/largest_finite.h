#pragma once

#include "athanor/tensor/dtype.h"

namespace athanor {

/// The largest finite value of a floating dtype.
double largest_finite(DType dtype);

}  // namespace athanor
