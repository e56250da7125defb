#include "athanor/device/cpu/linalg_lines.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/linalg_lines.cpp"
#include "athanor/device/cpu/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "athanor/device/cpu/simd_tail-inl.h"
// clang-format on

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
void subtract_lines(T* y, const T* x, std::int64_t x_step, const T* c, std::int64_t c_step, std::int64_t count,
                    std::int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t at = 0;
  for (; at + 4 * lanes <= n; at += 4 * lanes) {
    auto y0 = hn::LoadU(d, y + at), y1 = hn::LoadU(d, y + at + lanes);
    auto y2 = hn::LoadU(d, y + at + 2 * lanes), y3 = hn::LoadU(d, y + at + 3 * lanes);
    for (std::int64_t k = 0; k < count; ++k) {
      const T* const line = x + k * x_step + at;
      const auto factor = hn::Set(d, c[k * c_step]);
      y0 = hn::NegMulAdd(factor, hn::LoadU(d, line), y0);
      y1 = hn::NegMulAdd(factor, hn::LoadU(d, line + lanes), y1);
      y2 = hn::NegMulAdd(factor, hn::LoadU(d, line + 2 * lanes), y2);
      y3 = hn::NegMulAdd(factor, hn::LoadU(d, line + 3 * lanes), y3);
    }
    hn::StoreU(y0, d, y + at);
    hn::StoreU(y1, d, y + at + lanes);
    hn::StoreU(y2, d, y + at + 2 * lanes);
    hn::StoreU(y3, d, y + at + 3 * lanes);
  }
  for (; at < n; at += lanes) {
    const std::int64_t left = n - at;
    auto sum = left < lanes ? load_tail(d, y + at, left) : hn::LoadU(d, y + at);
    for (std::int64_t k = 0; k < count; ++k) {
      const T* const line = x + k * x_step + at;
      const auto from = left < lanes ? load_tail(d, line, left) : hn::LoadU(d, line);
      sum = hn::NegMulAdd(hn::Set(d, c[k * c_step]), from, sum);
    }
    left < lanes ? store_tail(d, sum, y + at, left) : hn::StoreU(sum, d, y + at);
  }
}

template <class T>
std::int64_t largest(const T* x, std::int64_t n) {
  if (std::isnan(x[0])) return 0;
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto most = hn::Set(d, std::abs(x[0]));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto size = hn::Abs(hn::LoadU(d, x + i));
    most = hn::IfThenElse(hn::Gt(size, most), size, most);
  }
  const auto rest = hn::Abs(load_tail(d, x + i, n - i));
  most = hn::MaxOfLanes(d, hn::IfThenElse(hn::Gt(rest, most), rest, most));
  for (i = 0; i + lanes <= n; i += lanes) {
    const auto found = hn::FindFirstTrue(d, hn::Eq(hn::Abs(hn::LoadU(d, x + i)), most));
    if (found >= 0) return i + static_cast<std::int64_t>(found);
  }
  const T size = hn::GetLane(most);
  while (std::abs(x[i]) != size) ++i;
  return i;
}

void subtract_float(float* y, const float* x, std::int64_t x_step, const float* c, std::int64_t c_step,
                    std::int64_t count, std::int64_t n) {
  subtract_lines(y, x, x_step, c, c_step, count, n);
}
void subtract_double(double* y, const double* x, std::int64_t x_step, const double* c, std::int64_t c_step,
                     std::int64_t count, std::int64_t n) {
  subtract_lines(y, x, x_step, c, c_step, count, n);
}
std::int64_t largest_float(const float* x, std::int64_t n) { return largest(x, n); }
std::int64_t largest_double(const double* x, std::int64_t n) { return largest(x, n); }

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
namespace {
HWY_EXPORT(subtract_float);
HWY_EXPORT(subtract_double);
HWY_EXPORT(largest_float);
HWY_EXPORT(largest_double);
}  // namespace

void subtract_sum(float* y, const float* x, std::int64_t x_step, const float* c, std::int64_t c_step,
                  std::int64_t count, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(subtract_float)(y, x, x_step, c, c_step, count, n);
}
void subtract_sum(double* y, const double* x, std::int64_t x_step, const double* c, std::int64_t c_step,
                  std::int64_t count, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(subtract_double)(y, x, x_step, c, c_step, count, n);
}
std::int64_t largest_size(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(largest_float)(x, n); }
std::int64_t largest_size(const double* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(largest_double)(x, n); }

}  // namespace athanor::cpu
#endif
