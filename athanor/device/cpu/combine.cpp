#include "athanor/device/cpu/combine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/combine.cpp"
#include "athanor/device/cpu/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <algorithm>
#include <cstring>

#include "athanor/device/cpu/copy_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {

using cpu::Combine;

template <class T, class F>
void each(void* out, const void* a, const void* b, std::int64_t n, F f) {
  T* o = static_cast<T*>(out);
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
// The result may be one of the operands, element by element, and overlaps in no other way.
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) o[i] = f(x[i], y[i]);
}

template <class T>
T lesser(T a, T b) {
  return (b < a || b != b) && a == a ? b : a;
}
template <class T>
T greater(T a, T b) {
  return (b > a || b != b) && a == a ? b : a;
}

// Sums and products of integers have the same bits whatever their sign, so one loop serves both.
template <class T, class Wrapping = T>
void arithmetic(void* out, const void* a, const void* b, std::int64_t n, Combine op) {
  switch (op) {
    case Combine::Sum:
      return each<Wrapping>(out, a, b, n, [](Wrapping x, Wrapping y) { return static_cast<Wrapping>(x + y); });
    case Combine::Product:
      return each<Wrapping>(out, a, b, n, [](Wrapping x, Wrapping y) {
        // Two uint16_t would meet as signed int, and overflow.
        using Wide = decltype(x + y + 0U);
        return static_cast<Wrapping>(static_cast<Wide>(x) * static_cast<Wide>(y));
      });
    case Combine::Min:
      return each<T>(out, a, b, n, [](T x, T y) { return lesser(x, y); });
    default:
      return each<T>(out, a, b, n, [](T x, T y) { return greater(x, y); });
  }
}

void bits(void* out, const void* a, const void* b, std::int64_t n, Combine op) {
  using U = std::uint8_t;
  if (op == Combine::And) return each<U>(out, a, b, n, [](U x, U y) { return static_cast<U>(x & y); });
  if (op == Combine::Or) return each<U>(out, a, b, n, [](U x, U y) { return static_cast<U>(x | y); });
  each<U>(out, a, b, n, [](U x, U y) { return static_cast<U>(x ^ y); });
}

void pair(void* out, const void* a, const void* b, std::int64_t n, DType dtype, Combine op) {
  if (dtype == DType::Bool && op < Combine::And)
    op = op == Combine::Sum || op == Combine::Max ? Combine::Or : Combine::And;
  if (op >= Combine::And) return bits(out, a, b, n * static_cast<std::int64_t>(item_size(dtype)), op);
  switch (dtype) {
    case DType::Float:
      return arithmetic<float>(out, a, b, n, op);
    case DType::Double:
      return arithmetic<double>(out, a, b, n, op);
    case DType::Byte:
      return arithmetic<std::uint8_t>(out, a, b, n, op);
    case DType::Char:
      return arithmetic<std::int8_t, std::uint8_t>(out, a, b, n, op);
    case DType::Short:
      return arithmetic<std::int16_t, std::uint16_t>(out, a, b, n, op);
    case DType::Int:
      return arithmetic<std::int32_t, std::uint32_t>(out, a, b, n, op);
    default:
      return arithmetic<std::int64_t, std::uint64_t>(out, a, b, n, op);
  }
}

template <class T>
void divide_all(void* data, std::int64_t n, double divisor) {
  T* x = static_cast<T*>(data);
  const T by = static_cast<T>(divisor);
  for (std::int64_t i = 0; i < n; ++i) x[i] /= by;
}

void divide(void* data, std::int64_t n, DType dtype, double divisor) {
  if (dtype == DType::Double) return divide_all<double>(data, n, divisor);
  divide_all<float>(data, n, divisor);
}

template <class T>
void scale_all(void* out, const void* in, std::int64_t n, double factor) {
  T* o = static_cast<T*>(out);
  const T* x = static_cast<const T*>(in);
  const T by = static_cast<T>(factor);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) o[i] = x[i] * by;
}

void times(void* out, const void* in, std::int64_t n, DType dtype, double factor) {
  if (dtype == DType::Double) return scale_all<double>(out, in, n, factor);
  scale_all<float>(out, in, n, factor);
}

}  // namespace
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
namespace {

HWY_EXPORT(pair);
HWY_EXPORT(divide);
HWY_EXPORT(times);

constexpr std::int64_t kRoom = 4096;

void half_to_float(DType dtype, float* to, const void* from, std::int64_t n) {
  const auto* bits = static_cast<const std::uint16_t*>(from);
  (dtype == DType::Half ? block_ops().half_to_float : block_ops().bfloat16_to_float)(to, bits, n);
}

void float_to_half(DType dtype, void* to, const float* from, std::int64_t n) {
  auto* bits = static_cast<std::uint16_t*>(to);
  (dtype == DType::Half ? block_ops().float_to_half : block_ops().float_to_bfloat16)(bits, from, n);
}

const char* at(const void* base, std::int64_t offset, std::size_t item) {
  return static_cast<const char*>(base) + static_cast<std::size_t>(offset) * item;
}

// Left to right into `room`, which has place for kRoom elements and is none of the operands.
void gather_block(void* room, const void* const* in, int n, std::int64_t offset, std::int64_t count, DType dtype,
                  Combine op, double divisor) {
  const auto join = [&](void* to, const void* a, const void* b, DType type) {
    HWY_DYNAMIC_DISPATCH(pair)(to, a, b, count, type, op);
  };
  const std::size_t item = item_size(dtype);
  if (is_half(dtype) && op < Combine::And) {
    alignas(64) float next[kRoom];
    auto* sum = static_cast<float*>(room);
    half_to_float(dtype, sum, at(in[0], offset, item), count);
    for (int k = 1; k < n; ++k) {
      half_to_float(dtype, next, at(in[k], offset, item), count);
      join(sum, sum, next, DType::Float);
    }
    if (divisor != 1) HWY_DYNAMIC_DISPATCH(divide)(sum, count, DType::Float, divisor);
    float_to_half(dtype, next, sum, count);
    std::memcpy(room, next, static_cast<std::size_t>(count) * item);
    return;
  }
  if (n == 1)
    std::memcpy(room, at(in[0], offset, item), static_cast<std::size_t>(count) * item);
  else
    join(room, at(in[0], offset, item), at(in[1], offset, item), dtype);
  for (int k = 2; k < n; ++k) join(room, room, at(in[k], offset, item), dtype);
  if (divisor != 1) HWY_DYNAMIC_DISPATCH(divide)(room, count, dtype, divisor);
}

}  // namespace

void combine(void* out, const void* const* in, int n, std::int64_t count, DType dtype, Combine op, double divisor,
             bool stream) {
  const std::size_t item = item_size(dtype);
  if (n == 2 && !stream && divisor == 1 && (!is_half(dtype) || op >= Combine::And))
    return HWY_DYNAMIC_DISPATCH(pair)(out, in[0], in[1], count, dtype, op);
  alignas(64) double room[kRoom];
  for (std::int64_t done = 0; done < count; done += kRoom) {
    const std::int64_t now = std::min(kRoom, count - done);
    gather_block(room, in, n, done, now, dtype, op, divisor);
    copy_bytes(static_cast<char*>(out) + static_cast<std::size_t>(done) * item, room,
               static_cast<std::size_t>(now) * item, stream);
  }
}

void scale(void* out, const void* in, std::int64_t count, DType dtype, double factor) {
  if (!is_half(dtype)) return HWY_DYNAMIC_DISPATCH(times)(out, in, count, dtype, factor);
  alignas(64) float room[kRoom];
  for (std::int64_t done = 0; done < count; done += kRoom) {
    const std::int64_t now = std::min(kRoom, count - done);
    half_to_float(dtype, room, at(in, done, 2), now);
    HWY_DYNAMIC_DISPATCH(times)(room, room, now, DType::Float, factor);
    float_to_half(dtype, static_cast<char*>(out) + 2 * done, room, now);
  }
}

void copy_bytes(void* to, const void* from, std::size_t bytes, bool stream) {
  if (!stream || bytes < 64) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  block_ops().stream(to, from, static_cast<std::int64_t>(bytes));
  block_ops().stream_fence();
}

}  // namespace athanor::cpu
#endif
