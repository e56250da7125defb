// What happens to the sums of a product on their way to the output: scale, bias, epilogue, conversion. Compiled once
// per SIMD target; included by kernel files after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_GEMM_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_GEMM_FINISH_INL_H_
#undef ATHANOR_DEVICE_CPU_GEMM_FINISH_INL_H_
#else
#define ATHANOR_DEVICE_CPU_GEMM_FINISH_INL_H_
#endif
// clang-format on

#include <type_traits>

#include "athanor/device/cpu/gemm.h"
#include "athanor/device/cpu/gemm_epilogue.h"
#include "athanor/device/cpu/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

template <class T>
T apply(Epilogue epilogue, T x) {
  if constexpr (std::is_floating_point_v<T>) return detail::apply_epilogue(epilogue, x);
  return x;
}

/// What happens to a sum on its way to the output. Integers are computed modulo 2^bits as unsigned values.
template <class T, class Out>
struct Finish {
  const GemmProblem& g;
  T alpha, beta;
  bool biased, plain;

  explicit Finish(const GemmProblem& problem) : g(problem) {
    if constexpr (std::is_integral_v<T>) {
      alpha = static_cast<T>(g.alpha.to<std::int64_t>());
      beta = static_cast<T>(g.beta.to<std::int64_t>());
    } else {
      alpha = g.alpha.to<T>();
      beta = g.beta.to<T>();
    }
    biased = g.bias && beta != T(0);
    plain = alpha == T(1) && !biased && g.epilogue == Epilogue::None;
  }

  /// Whether the bias has a value for each row. With AVX-512 tiles leave it to the operator below.
  bool row_biased() const { return HWY_MAX_BYTES < 64 && biased && g.bias_row == 1 && g.bias_col == 0; }

  /// True if a TileEnd can do it all: a bias per column or row, relu.
  bool in_registers() const {
    if (plain) return true;
    if (!std::is_floating_point_v<T> || alpha != T(1)) return false;
    const bool column_biased = g.bias_row == 0 && g.bias_col == 1;
    if (biased && !(beta == T(1) && (column_biased || row_biased()))) return false;
    return g.epilogue == Epilogue::None || g.epilogue == Epilogue::Relu;
  }

  Out relu(Out x) const {
    if constexpr (std::is_integral_v<T>)
      return is_signed(g.dtype) && static_cast<std::make_signed_t<Out>>(x) < 0 ? Out(0) : x;
    else
      return x < Out(0) ? Out(0) : x;
  }

  /// Rows [i, i + rows) × columns [j, j + cols) of the output from sums at `from`.
  void operator()(std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t cols, const T* from,
                  std::int64_t step) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      Out* c = static_cast<Out*>(const_cast<void*>(static_cast<const void*>(g.c))) + (i + r) * g.c_row + j * g.c_col;
      const Out* bias = biased ? static_cast<const Out*>(g.bias) + (i + r) * g.bias_row + j * g.bias_col : nullptr;
      row(from + r * step, c, bias, cols);
    }
  }

 private:
  void row(const T* from, Out* c, const Out* bias, std::int64_t cols) const {
    if (g.epilogue != Epilogue::None && g.epilogue != Epilogue::Relu) {
      for (std::int64_t j = 0; j < cols; ++j)
        c[j * g.c_col] =
            convert<Out>(apply(g.epilogue, alpha * from[j] + (bias ? beta * convert<T>(bias[j * g.bias_col]) : T(0))));
      return;
    }
    if (g.c_col == 1 && (!bias || g.bias_col == 1)) {
      if (bias)
#pragma GCC ivdep
        for (std::int64_t j = 0; j < cols; ++j) c[j] = convert<Out>(alpha * from[j] + beta * convert<T>(bias[j]));
      else
#pragma GCC ivdep
        for (std::int64_t j = 0; j < cols; ++j) c[j] = convert<Out>(alpha * from[j]);
    } else {
      for (std::int64_t j = 0; j < cols; ++j)
        c[j * g.c_col] = convert<Out>(alpha * from[j] + (bias ? beta * convert<T>(bias[j * g.bias_col]) : T(0)));
    }
    if (g.epilogue == Epilogue::Relu)
#pragma GCC ivdep
      for (std::int64_t j = 0; j < cols; ++j) c[j * g.c_col] = relu(c[j * g.c_col]);
  }
};

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
