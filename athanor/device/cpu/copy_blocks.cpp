#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/copy_blocks.cpp"
#include "athanor/device/cpu/copy_blocks.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "athanor/device/cpu/simd_targets.h"
#include "athanor/device/cpu/wide_vectors.h"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/half_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void half_to_float(float* HWY_RESTRICT to, const std::uint16_t* HWY_RESTRICT from, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Half* half = reinterpret_cast<const Half*>(from);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load_halves(d, half + i), d, to + i);
  for (; i < n; ++i) to[i] = athanor::detail::half_bits_to_float(from[i]);
}

void float_to_half(std::uint16_t* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Half* half = reinterpret_cast<Half*>(to);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store_halves(d, hn::LoadU(d, from + i), half + i);
  for (; i < n; ++i) to[i] = athanor::detail::float_to_half_bits(from[i]);
}

void bfloat16_to_float(float* HWY_RESTRICT to, const std::uint16_t* HWY_RESTRICT from, std::int64_t n) {
  auto* bits = reinterpret_cast<std::uint32_t*>(to);
  for (std::int64_t i = 0; i < n; ++i) bits[i] = static_cast<std::uint32_t>(from[i]) << 16;
}

void float_to_bfloat16(std::uint16_t* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::int64_t n) {
  const auto* bits = reinterpret_cast<const std::uint32_t*>(from);
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::uint32_t> wide;
  const hn::Rebind<std::uint16_t, decltype(wide)> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(wide));
  const auto rounded = [&](const std::uint32_t* p) HWY_ATTR {
    const auto u = hn::LoadU(wide, p), upper = hn::ShiftRight<16>(u);
    const auto nearest =
        hn::ShiftRight<16>(hn::Add(u, hn::Add(hn::Set(wide, 0x7fff), hn::And(upper, hn::Set(wide, 1)))));
    const auto nan = hn::RebindMask(wide, hn::IsNaN(hn::BitCast(hn::RebindToFloat<decltype(wide)>(), u)));
    return hn::IfThenElse(nan, hn::Or(upper, hn::Set(wide, 0x40)), nearest);
  };
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::TruncateTo(narrow, rounded(bits + i)), narrow, to + i);
#endif
  for (; i < n; ++i) {
    const std::uint32_t u = bits[i];
    const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
    const std::uint32_t nan = (u >> 16) | 0x40U;
    to[i] = static_cast<std::uint16_t>((u & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
  }
}

void stream(void* to, const void* from, std::int64_t bytes) {
  auto* out = static_cast<std::uint8_t*>(to);
  const auto* in = static_cast<const std::uint8_t*>(from);
  const std::int64_t head = std::min(bytes, static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(to) & 63U));
  if (head > 0) std::memcpy(out, in, static_cast<std::size_t>(head));
  const hn::ScalableTag<std::uint8_t> d;
  constexpr std::int64_t kLine = 64;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto line = [&](std::int64_t at) HWY_ATTR {
    for (std::int64_t k = 0; k < kLine; k += lanes) hn::Stream(hn::LoadU(d, in + at + k), d, out + at + k);
  };
  std::int64_t i = head;
  // Most hardware fetches ahead within a page only: a few pages in step keep it busy. Lines that take two stores each
  // may leave half-written then, which costs four fifths of the speed on AMD's Zen 3.
  constexpr std::int64_t kPage = 4096, kPages = 4;
  if (walks_pages_in_step())
    for (; i + kPages * kPage <= bytes; i += kPages * kPage)
      for (std::int64_t at = i; at < i + kPage; at += kLine)
        for (std::int64_t page = 0; page < kPages; ++page) line(at + page * kPage);
  // Zen 4's hardware does fetch ahead; being asked two lines at a time helps it by a tenth.
  constexpr std::int64_t kAhead = 2048;
  if (fetches_across_pages())
    for (; i + 2 * kLine <= bytes; i += 2 * kLine) {
      hwy::Prefetch(in + i + kAhead);
      hwy::Prefetch(in + i + kAhead + kLine);
      line(i);
      line(i + kLine);
    }
  for (; i + kLine <= bytes; i += kLine) line(i);
  if (i < bytes) std::memcpy(out + i, in + i, static_cast<std::size_t>(bytes - i));
}

template <class U>
void fill(void* to, const void* value, std::int64_t n) {
  U v;
  std::memcpy(&v, value, sizeof v);
  using Place [[gnu::aligned(1), gnu::may_alias]] = U;
  auto* out = static_cast<Place*>(to);
  for (std::int64_t i = 0; i < n; ++i) out[i] = v;
}

void stream_fence() { hwy::FlushStream(); }

/// Float to integer by truncation, any value defined: what does not fit gives the integer's most negative value. Narrow
/// integers take the low bits of the int32 conversion.
template <class To, class From>
HWY_INLINE To convert_value(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    using Wide = std::conditional_t<sizeof(To) == 8, std::int64_t, std::int32_t>;
    constexpr From kLow = static_cast<From>(std::numeric_limits<Wide>::min());
    return static_cast<To>(x >= kLow && x < -kLow ? static_cast<Wide>(x) : std::numeric_limits<Wide>::min());
  } else {
    return static_cast<To>(x);
  }
}

template <class To, class From>
void convert(char* const* ptrs, const std::int64_t*, std::int64_t n, const void*) {
  // bool is stored as 0 or 1 and read as a byte: other bytes must not be undefined behaviour.
  using In = std::conditional_t<std::is_same_v<From, bool>, std::uint8_t, From>;
  auto* HWY_RESTRICT to = reinterpret_cast<To*>(ptrs[0]);
  const auto* HWY_RESTRICT from = reinterpret_cast<const In*>(ptrs[1]);
  for (std::int64_t i = 0; i < n; ++i) to[i] = convert_value<To>(from[i]);
}

template <class From>
void fill_row(LoopFn* row) {
  row[static_cast<int>(DType::Byte)] = &convert<std::uint8_t, From>;
  row[static_cast<int>(DType::Char)] = &convert<std::int8_t, From>;
  row[static_cast<int>(DType::Short)] = &convert<std::int16_t, From>;
  row[static_cast<int>(DType::Int)] = &convert<std::int32_t, From>;
  row[static_cast<int>(DType::Long)] = &convert<std::int64_t, From>;
  row[static_cast<int>(DType::Float)] = &convert<float, From>;
  row[static_cast<int>(DType::Double)] = &convert<double, From>;
  row[static_cast<int>(DType::Bool)] = &convert<bool, From>;
}

/// N vectors of N lanes within each 128-bit block, transposed by log2(N) perfect shuffles.
template <std::size_t N, class D, class V>
HWY_INLINE void transpose_lanes(D d, V* v) {
  for (std::size_t stage = 1; stage < N; stage *= 2) {
    V w[N];
    for (std::size_t i = 0; i < N / 2; ++i) {
      w[2 * i] = hn::InterleaveLower(d, v[i], v[i + N / 2]);
      w[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + N / 2]);
    }
    for (std::size_t i = 0; i < N; ++i) v[i] = w[i];
  }
}

/// Lane block k holds 16 bytes from `from + k * step`.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_blocks(D d, const T* from, std::int64_t step) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) == 16) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> dh;
    constexpr std::int64_t kHalfBlocks = hn::MaxLanes(D()) * sizeof(T) / 32;
    return hn::Combine(d, load_blocks(dh, from + kHalfBlocks * step, step), load_blocks(dh, from, step));
  }
}

/// Rows [r, r + lanes(d)) of a block of columns: each column becomes one full vector of the result.
template <bool kStream, class T, class D>
HWY_INLINE void transpose_strip(D d, T* to, std::int64_t ts, const T* from, std::int64_t fs) {
  constexpr std::size_t kPerBlock = 16 / sizeof(T);
  using V = hn::Vec<D>;
  V v[kPerBlock];
  for (std::size_t i = 0; i < kPerBlock; ++i)
    v[i] = load_blocks(d, from + static_cast<std::int64_t>(i) * fs, fs * static_cast<std::int64_t>(kPerBlock));
  transpose_lanes<kPerBlock>(d, v);
  for (std::size_t i = 0; i < kPerBlock; ++i) {
    T* place = to + static_cast<std::int64_t>(i) * ts;
    if constexpr (kStream)
      hn::Stream(v[i], d, place);
    else
      hn::StoreU(v[i], d, place);
  }
}

/// Fetches a share of the source's rows of the next cache line of the result, and that line itself: both walk across
/// too many pages for the hardware to follow. Over the columns of one cache line the shares make up the whole.
template <bool kStream, class T>
HWY_INLINE void fetch_ahead(T* to, std::int64_t ts, const T* from, std::int64_t fs, std::int64_t r, std::int64_t c) {
  constexpr std::int64_t kCols = 16 / sizeof(T), kLine = 64 / sizeof(T), kShare = kLine / 4;
  const T* source = from + (r + kLine + c / kCols % 4 * kShare) * fs + c;
  for (std::int64_t k = 0; k < kShare; ++k) hwy::Prefetch(source + k * fs);
  if constexpr (!kStream)
    for (std::int64_t i = 0; i < kCols; ++i) hwy::Prefetch(to + (c + i) * ts + r + kLine);
}

template <bool kStream, class T>
void transpose_tiles(T* to, std::int64_t ts, const T* from, std::int64_t fs, std::int64_t rows, std::int64_t cols) {
  const hn::ScalableTag<T> d;
  constexpr auto kRows = static_cast<std::int64_t>(hn::MaxLanes(d));
  constexpr std::int64_t kCols = 16 / sizeof(T);
  constexpr std::int64_t kLine = 64 / sizeof(T);  // rows of one cache line of the result
  std::int64_t r = 0;
  for (; r + kLine <= rows; r += kLine) {
    std::int64_t c = 0;
    for (; c + kCols <= cols; c += kCols) {
      fetch_ahead<kStream>(to, ts, from, fs, r, c);
      for (std::int64_t k = 0; k < kLine; k += kRows)
        transpose_strip<kStream>(d, to + c * ts + r + k, ts, from + (r + k) * fs + c, fs);
    }
    for (; c < cols; ++c)
      for (std::int64_t k = 0; k < kLine; ++k) to[c * ts + r + k] = from[(r + k) * fs + c];
  }
  for (; r + kRows <= rows; r += kRows) {
    std::int64_t c = 0;
    for (; c + kCols <= cols; c += kCols) transpose_strip<false>(d, to + c * ts + r, ts, from + r * fs + c, fs);
    for (; c < cols; ++c)
      for (std::int64_t k = r; k < r + kRows; ++k) to[c * ts + k] = from[k * fs + c];
  }
  for (std::int64_t c = 0; c < cols; ++c)
    for (std::int64_t k = r; k < rows; ++k) to[c * ts + k] = from[k * fs + c];
}

template <class T>
void transpose(void* to, std::int64_t ts, const void* from, std::int64_t fs, std::int64_t rows, std::int64_t cols,
               bool streams) {
  auto* out = static_cast<T*>(to);
  const auto* in = static_cast<const T*>(from);
  const bool aligned = (reinterpret_cast<std::uintptr_t>(to) | (static_cast<std::uintptr_t>(ts) * sizeof(T))) % 64 == 0;
  if (streams && aligned)
    transpose_tiles<true>(out, ts, in, fs, rows, cols);
  else
    transpose_tiles<false>(out, ts, in, fs, rows, cols);
}

template <class U>
void every_second(void* to, const void* from, std::int64_t n) {
  const hn::ScalableTag<U> d;
  constexpr std::int64_t L = hn::MaxLanes(d);
  const auto* f = static_cast<const U*>(from);
  auto* t = static_cast<U*>(to);
  std::int64_t i = 0;
  for (; i + L < n; i += L) {  // the element after the last one is not read
    hn::Vec<decltype(d)> even, odd;
    hn::LoadInterleaved2(d, f + 2 * i, even, odd);
    hn::StoreU(even, d, t + i);
  }
  for (; i < n; ++i) t[i] = f[2 * i];
}

BlockOps make_block_ops() {
  BlockOps ops{&half_to_float,
               &bfloat16_to_float,
               &float_to_half,
               &float_to_bfloat16,
               &stream,
               &stream_fence,
               {&fill<std::uint8_t>, &fill<std::uint16_t>, &fill<std::uint32_t>, &fill<std::uint64_t>},
               {&every_second<std::uint8_t>, &every_second<std::uint16_t>, &every_second<std::uint32_t>,
                &every_second<std::uint64_t>},
               {},
               {}};
  fill_row<std::uint8_t>(ops.convert[static_cast<int>(DType::Byte)]);
  fill_row<std::int8_t>(ops.convert[static_cast<int>(DType::Char)]);
  fill_row<std::int16_t>(ops.convert[static_cast<int>(DType::Short)]);
  fill_row<std::int32_t>(ops.convert[static_cast<int>(DType::Int)]);
  fill_row<std::int64_t>(ops.convert[static_cast<int>(DType::Long)]);
  fill_row<float>(ops.convert[static_cast<int>(DType::Float)]);
  fill_row<double>(ops.convert[static_cast<int>(DType::Double)]);
  fill_row<bool>(ops.convert[static_cast<int>(DType::Bool)]);
  ops.transpose[0] = &transpose<std::uint8_t>;
  ops.transpose[1] = &transpose<std::uint16_t>;
  ops.transpose[2] = &transpose<std::uint32_t>;
  ops.transpose[3] = &transpose<std::uint64_t>;
  return ops;
}

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
namespace {
HWY_EXPORT(make_block_ops);

BlockOps& mutable_block_ops() {
  static BlockOps ops = HWY_DYNAMIC_DISPATCH(make_block_ops)();
  return ops;
}
}  // namespace

const BlockOps& block_ops() { return mutable_block_ops(); }
void reload_block_ops() { mutable_block_ops() = HWY_DYNAMIC_DISPATCH(make_block_ops)(); }

}  // namespace athanor::cpu
#endif
