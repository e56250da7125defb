#pragma once

#include "athanor/tensor/tensor_base.h"

namespace athanor {

/// Has a tensor that is no leaf keep its gradient, that of its newest value.
void retain_grad(const TensorBase& t);

}  // namespace athanor
