#pragma once
/// The functions that a product may apply to its results, one value at a time.

#include <cmath>

#include "athanor/ops/kernels/matmul.h"

namespace athanor::detail {

/// T: float or double.
template <class T>
T apply_epilogue(Epilogue epilogue, T x) {
  switch (epilogue) {
    case Epilogue::None:
      return x;
    case Epilogue::Relu:
      return x < T(0) ? T(0) : x;
    case Epilogue::Gelu:
      return T(0.5) * x * (T(1) + std::erf(x * T(0.70710678118654752440)));
    case Epilogue::GeluTanh:
      return T(0.5) * x * (T(1) + std::tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
    case Epilogue::Sigmoid:
      return T(1) / (T(1) + std::exp(-x));
    case Epilogue::Tanh:
      return std::tanh(x);
    case Epilogue::Silu:
      return x / (T(1) + std::exp(-x));
  }
  return x;
}

}  // namespace athanor::detail
