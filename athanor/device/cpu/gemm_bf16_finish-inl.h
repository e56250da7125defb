// From sums of products of bfloat16 to an output of T: bfloat16 or float32. Included where AVX512_BF16 is among the
// target's attributes, after immintrin.h, gemm_bf16_pack.h and gemm_epilogue.h, which must not get those attributes.
#pragma once

namespace athanor::bf16 {
namespace {

template <class T>
class Finish {
 public:
  /// `scale`: what the sums are to be multiplied by besides alpha.
  explicit Finish(const GemmProblem& g, float scale = 1)
      : g_(g),
        alpha_(g.alpha.to<float>() * scale),
        beta_(g.beta.to<float>()),
        bias_(beta_ != 0 ? static_cast<const T*>(g.bias) : nullptr),
        in_registers_((!bias_ || g.bias_col == 1) && (g.epilogue == Epilogue::None || g.epilogue == Epilogue::Relu)),
        plain_(!bias_ && alpha_ == 1 && g.epilogue == Epilogue::None) {}

  /// Rows [i, i + rows) × columns [j, j + cols).
  void operator()(const float* sums, std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t cols) const {
    auto* c = static_cast<T*>(g_.c) + i * g_.c_row + j;
    if (plain_ && cols == kBlock) {
      for (std::int64_t r = 0; r < rows; ++r, c += g_.c_row, sums += kBlock)
        store(c, ~__mmask32{0}, _mm512_load_ps(sums), _mm512_load_ps(sums + 16));
      return;
    }
    const T* bias = bias_ ? bias_ + i * g_.bias_row + j * g_.bias_col : nullptr;
    for (std::int64_t r = 0; r < rows; ++r, c += g_.c_row, sums += kBlock) {
      if (in_registers_)
        vectors(_mm512_load_ps(sums), _mm512_load_ps(sums + 16), c, bias, cols);
      else
        values(sums, c, bias, cols);
      if (bias) bias += g_.bias_row;
    }
  }

  /// Up to 32 values of row i from column j on, whose sums are in registers.
  inline __attribute__((always_inline)) void operator()(__m512 low, __m512 high, std::int64_t i, std::int64_t j,
                                                        std::int64_t cols) const {
    auto* c = static_cast<T*>(g_.c) + i * g_.c_row + j;
    const T* bias = bias_ ? bias_ + i * g_.bias_row + j * g_.bias_col : nullptr;
    if (plain_ && cols >= kBlock)
      store(c, ~__mmask32{0}, low, high);
    else if (in_registers_)
      vectors(low, high, c, bias, cols);
    else
      one_by_one(low, high, c, bias, cols);
  }

  /// Asks for the lines of the output that will be written.
  void fetch(std::int64_t i, std::int64_t j, std::int64_t rows) const {
    const auto* c = static_cast<const T*>(g_.c) + i * g_.c_row + j;
    for (std::int64_t r = 0; r < rows; ++r, c += g_.c_row) {
      __builtin_prefetch(c, 1);
      if (sizeof(T) == 4) __builtin_prefetch(c + 16, 1);
    }
  }

 private:
  __attribute__((noinline)) void one_by_one(__m512 low, __m512 high, T* c, const T* bias, std::int64_t cols) const {
    alignas(64) float sums[kBlock];
    _mm512_store_ps(sums, low);
    _mm512_store_ps(sums + 16, high);
    values(sums, c, bias, std::min(cols, kBlock));
  }

  static inline __attribute__((always_inline)) void store(T* c, __mmask32 mask, __m512 low, __m512 high) {
    if constexpr (std::is_same_v<T, float>) {
      _mm512_mask_storeu_ps(c, static_cast<__mmask16>(mask), low);
      _mm512_mask_storeu_ps(c + 16, static_cast<__mmask16>(mask >> 16), high);
    } else {
      _mm512_mask_storeu_epi16(c, mask, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }
  static inline __attribute__((always_inline)) __m512 load(const T* from, __mmask16 mask) {
    if constexpr (std::is_same_v<T, float>)
      return _mm512_maskz_loadu_ps(mask, from);
    else
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16));
  }

  inline __attribute__((always_inline)) __m512 line(__m512 x, const T* bias, __mmask16 mask) const {
    if (alpha_ != 1) x = _mm512_mul_ps(x, _mm512_set1_ps(alpha_));
    if (bias) x = _mm512_fmadd_ps(load(bias, mask), _mm512_set1_ps(beta_), x);
    if (g_.epilogue == Epilogue::Relu)  // NaN stays
      x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ), _mm512_setzero_ps());
    return x;
  }

  inline __attribute__((always_inline)) void vectors(__m512 low, __m512 high, T* c, const T* bias,
                                                     std::int64_t cols) const {
    const __mmask32 mask = cols >= kBlock ? ~__mmask32{0} : (__mmask32{1} << cols) - 1;
    low = line(low, bias, static_cast<__mmask16>(mask));
    high = line(high, bias ? bias + 16 : nullptr, static_cast<__mmask16>(mask >> 16));
    store(c, mask, low, high);
  }

  void values(const float* sums, T* c, const T* bias, std::int64_t cols) const {
    for (std::int64_t j = 0; j < cols; ++j) {
      const float x = alpha_ * sums[j] + (bias ? beta_ * static_cast<float>(bias[j * g_.bias_col]) : 0);
      c[j] = T(detail::apply_epilogue(g_.epilogue, x));
    }
  }

  const GemmProblem& g_;
  float alpha_, beta_;
  const T* bias_;
  bool in_registers_, plain_;
};

}  // namespace
}  // namespace athanor::bf16
