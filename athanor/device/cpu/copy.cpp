#include "athanor/ops/kernels/copy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/copy_run.h"
#include "athanor/device/cpu/strided_loop.h"
#include "athanor/device/cpu/walk_order.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kCopyGrain = 1 << 16;  // bytes; below, one thread is as fast

void copy_bytes(char* to, const char* from, std::int64_t bytes) {
  if (to == from) return;
  const bool stream = bytes >= kStreamBytes;
  const bool backwards = !stream && begins_at_end(2 * bytes);
  constexpr std::int64_t kUnit = 4096;
  auto part = [&](std::int64_t b, std::int64_t e) {
    const std::int64_t at = b * kUnit, n = std::min(e * kUnit, bytes) - at;
    if (!stream) {
      walk_stretches(at, at + n, kStretchBytes, backwards, [&](std::int64_t begin, std::int64_t end) {
        std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
      });
      return;
    }
    block_ops().stream(to + at, from + at, n);
    block_ops().stream_fence();
  };
  parallel_for(0, (bytes + kUnit - 1) / kUnit, kCopyGrain / kUnit, part);
}

/// Coordinates of a walk over a plan's rows, with a byte offset per operand.
struct Rows {
  const LoopPlan& p;
  std::int64_t at[kMaxLoopDims];
  std::int64_t offset[2] = {0, 0};

  Rows(const LoopPlan& plan, std::int64_t linear) : p(plan) {
    for (int d = 0; d < p.ndim; ++d) {
      at[d] = linear % p.sizes[d];
      linear /= p.sizes[d];
      for (int i = 0; i < p.operands; ++i) offset[i] += at[d] * p.strides[i][d];
    }
  }
  std::int64_t left_in_row() const { return p.sizes[0] - at[0]; }
  /// `rows` further, at most as many as dim 1 has left.
  void next_row(std::int64_t rows = 1) {
    shift(0, -at[0]);
    at[0] = 0;
    for (int d = 1; d < p.ndim; ++d) {
      shift(d, rows);
      at[d] += rows;
      if (at[d] < p.sizes[d]) return;
      shift(d, -at[d]);
      at[d] = 0;
      rows = 1;
    }
  }

 private:
  void shift(int d, std::int64_t n) {
    for (int i = 0; i < p.operands; ++i) offset[i] += n * p.strides[i][d];
  }
};

/// Rows one after the other along dim 1, each too short for a call of its own.
template <class U>
void copy_short_rows(const LoopPlan& p, char* to, const char* from, std::int64_t rows) {
  using Place = typename Unaligned<U>::type;
  const std::int64_t n = p.sizes[0], to_step = p.strides[0][0], from_step = p.strides[1][0];
  const std::int64_t to_row = p.strides[0][1], from_row = p.strides[1][1];
  for (std::int64_t r = 0; r < rows; ++r, to += to_row, from += from_row)
    for (std::int64_t i = 0, t = 0, f = 0; i < n; ++i, t += to_step, f += from_step)
      *reinterpret_cast<Place*>(to + t) = *reinterpret_cast<const Place*>(from + f);
}

template <class U>
void copy_strided(const LoopPlan& p, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kShortRow = 8;
  const bool short_rows = p.ndim > 1 && p.sizes[0] <= kShortRow;
  Rows rows(p, begin);
  while (begin < end) {
    const std::int64_t whole =
        short_rows && rows.at[0] == 0 ? std::min((end - begin) / p.sizes[0], p.sizes[1] - rows.at[1]) : 0;
    if (whole > 0) {
      copy_short_rows<U>(p, p.data[0] + rows.offset[0], p.data[1] + rows.offset[1], whole);
      begin += whole * p.sizes[0];
      rows.next_row(whole);
      continue;
    }
    const std::int64_t n = std::min(end - begin, rows.left_in_row());
    move_run<U>(p.data[0] + rows.offset[0], p.strides[0][0], p.data[1] + rows.offset[1], p.strides[1][0], n);
    begin += n;
    rows.next_row();
  }
}

/// The dim along which the input is dense while the output is dense along dim 0; 0 if there is none.
int transposed_dim(const LoopPlan& p, std::int64_t size) {
  if (p.ndim < 2 || p.strides[0][0] != size || p.strides[1][0] == size || p.strides[1][0] == 0) return 0;
  for (int d = 1; d < p.ndim; ++d)
    if (p.strides[1][d] == size) return d;
  return 0;
}

/// Copies in tiles small enough that every cache line and page a tile touches is used whole while it is at hand.
void copy_transposed(const LoopPlan& p, int dense, std::int64_t size) {
  constexpr std::int64_t kTileRows = 512;
  const std::int64_t tile_cols = 512 / size;
  const std::int64_t row_tiles = (p.sizes[0] + kTileRows - 1) / kTileRows;
  const std::int64_t col_tiles = (p.sizes[dense] + tile_cols - 1) / tile_cols;
  LoopPlan outer;  // the other dims
  outer.operands = 2;
  outer.ndim = 0;
  outer.numel = 1;
  for (int d = 1; d < p.ndim; ++d) {
    if (d == dense) continue;
    outer.sizes[outer.ndim] = p.sizes[d];
    outer.numel *= p.sizes[d];
    for (int i = 0; i < 2; ++i) outer.strides[i][outer.ndim] = p.strides[i][d];
    ++outer.ndim;
  }
  const auto transpose = block_ops().transpose[std::countr_zero(static_cast<std::uint64_t>(size))];
  const bool stream = p.numel * size >= kStreamBytes;
  const std::int64_t grain = std::max<std::int64_t>(1, kCopyGrain / (kTileRows * tile_cols * size));
  const std::int64_t to_stride = p.strides[0][dense] / size, from_stride = p.strides[1][0] / size;
  parallel_for(0, outer.numel * row_tiles * col_tiles, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t r = t % row_tiles * kTileRows, c = t / row_tiles % col_tiles * tile_cols;
      const Rows rest(outer, t / row_tiles / col_tiles);
      transpose(p.data[0] + rest.offset[0] + r * size + c * p.strides[0][dense], to_stride,
                p.data[1] + rest.offset[1] + r * p.strides[1][0] + c * size, from_stride,
                std::min(kTileRows, p.sizes[0] - r), std::min(tile_cols, p.sizes[dense] - c), stream);
    }
    if (stream) block_ops().stream_fence();
  });
}

void copy_same_dtype(const View& out, const View& in) {
  const auto size = static_cast<std::int64_t>(out.item_size());
  if (out.contiguous && in.contiguous && out.numel == in.numel)
    return copy_bytes(out.ptr<char>(), in.ptr<char>(), out.numel * size);
  LoopPlan p;
  const View* views[] = {&out, &in};
  plan_loop(p, views, 2);
  if (p.ndim == 1 && p.strides[0][0] == size && p.strides[1][0] == size)
    return copy_bytes(p.data[0], p.data[1], p.numel * size);
  if (const int dense = transposed_dim(p, size)) return copy_transposed(p, dense, size);
  parallel_blocks(p.numel, kCopyGrain / size, [&](std::int64_t begin, std::int64_t end) {
    switch (size) {
      case 1:
        return copy_strided<std::uint8_t>(p, begin, end);
      case 2:
        return copy_strided<std::uint16_t>(p, begin, end);
      case 4:
        return copy_strided<std::uint32_t>(p, begin, end);
      default:
        return copy_strided<std::uint64_t>(p, begin, end);
    }
  });
}

/// Dense conversions between float32 and the halves need no second pass.
bool copy_halves(const View& out, const View& in) {
  if (!out.contiguous || !in.contiguous || out.numel != in.numel) return false;
  if (out.numel * static_cast<std::int64_t>(out.item_size()) >= kStreamBytes) return false;
  const BlockOps& ops = block_ops();
  if (out.dtype == DType::Float && is_half(in.dtype)) {
    const auto widen = in.dtype == DType::Half ? ops.half_to_float : ops.bfloat16_to_float;
    parallel_blocks(out.numel, kCopyGrain / 4, [&](std::int64_t b, std::int64_t e) {
      widen(out.ptr<float>() + b, in.ptr<std::uint16_t>() + b, e - b);
    });
    return true;
  }
  if (in.dtype == DType::Float && is_half(out.dtype)) {
    const auto narrow = out.dtype == DType::Half ? ops.float_to_half : ops.float_to_bfloat16;
    parallel_blocks(out.numel, kCopyGrain / 4, [&](std::int64_t b, std::int64_t e) {
      narrow(out.ptr<std::uint16_t>() + b, in.ptr<float>() + b, e - b);
    });
    return true;
  }
  return false;
}

void copy_cpu(const View& out, const View& in) {
  if (out.numel == 0) return;
  if (out.dtype == in.dtype) return copy_same_dtype(out, in);
  if (copy_halves(out, in)) return;
  const auto wide = [](DType t) { return is_half(t) ? DType::Float : t; };
  LoopSpec spec;
  spec.fn = block_ops().convert[static_cast<int>(wide(in.dtype))][static_cast<int>(wide(out.dtype))];
  spec.storage[0] = out.dtype;
  spec.storage[1] = in.dtype;
  spec.widen[0] = is_half(out.dtype);
  spec.widen[1] = is_half(in.dtype);
  const View* views[] = {&out, &in};
  run_views(spec, views, 2);
}

}  // namespace

std::array<char, 8> element_bytes(Scalar value, DType t) {
  if (t == DType::Float) return std::bit_cast<std::array<char, 8>>(std::array<float, 2>{value.to<float>()});
  if (t == DType::Double) return std::bit_cast<std::array<char, 8>>(value.to<double>());
  if (t == DType::Long && !value.isFloatingPoint()) return std::bit_cast<std::array<char, 8>>(value.to<std::int64_t>());
  std::array<char, 8> bytes{};
  if (t == DType::Bool) {
    bytes[0] = value.to<bool>() ? 1 : 0;
    return bytes;
  }
  const DType from = value.isFloatingPoint() ? DType::Double : DType::Long;
  const DType to = is_half(t) ? DType::Float : t;
  double real = 0;
  std::int64_t whole = 0;
  if (value.isFloatingPoint())
    real = value.to<double>();
  else
    whole = value.to<std::int64_t>();
  char* ptrs[] = {bytes.data(),
                  value.isFloatingPoint() ? reinterpret_cast<char*>(&real) : reinterpret_cast<char*>(&whole)};
  const std::int64_t strides[] = {8, 8};
  block_ops().convert[static_cast<int>(from)][static_cast<int>(to)](ptrs, strides, 1, nullptr);
  if (is_half(t)) {
    float wide;
    std::memcpy(&wide, bytes.data(), sizeof wide);
    const std::uint16_t bits = t == DType::Half ? Half(wide).bits : BFloat16(wide).bits;
    std::memcpy(bytes.data(), &bits, sizeof bits);
  }
  return bytes;
}

namespace {

template <class U>
void fill_row(char* to, std::int64_t stride, U value, std::int64_t n) {
  if (stride == sizeof(U)) {
    block_ops().fill[std::countr_zero(sizeof(U))](to, &value, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * stride, &value, sizeof value);
  }
}

template <class U>
void fill_dense(char* to, U value, std::int64_t n) {
  const bool stream = n * static_cast<std::int64_t>(sizeof(U)) >= kStreamBytes;
  alignas(64) U block[kBlock];
  if (stream) std::fill_n(block, kBlock, value);
  parallel_blocks(n, kCopyGrain / static_cast<std::int64_t>(sizeof(U)), [&](std::int64_t begin, std::int64_t end) {
    if (!stream) return fill_row<U>(to + begin * static_cast<std::int64_t>(sizeof(U)), sizeof(U), value, end - begin);
    for (std::int64_t i = begin; i < end; i += kBlock)
      block_ops().stream(to + i * static_cast<std::int64_t>(sizeof(U)), block,
                         std::min(kBlock, end - i) * static_cast<std::int64_t>(sizeof(U)));
    block_ops().stream_fence();
  });
}

template <class U>
void fill_as(const View& out, const char* bytes) {
  U value;
  std::memcpy(&value, bytes, sizeof value);
  if (out.contiguous) return fill_dense<U>(out.ptr<char>(), value, out.numel);
  LoopPlan p;
  const View* views[] = {&out};
  plan_loop(p, views, 1);
  if (p.ndim == 1 && p.strides[0][0] == sizeof(U)) return fill_dense<U>(p.data[0], value, p.numel);
  parallel_blocks(p.numel, kCopyGrain / static_cast<std::int64_t>(sizeof(U)),
                  [&](std::int64_t begin, std::int64_t end) {
                    Rows rows(p, begin);
                    while (begin < end) {
                      const std::int64_t n = std::min(end - begin, rows.left_in_row());
                      fill_row<U>(p.data[0] + rows.offset[0], p.strides[0][0], value, n);
                      begin += n;
                      rows.next_row();
                    }
                  });
}

void fill_cpu(const View& out, Scalar value) {
  if (out.numel == 0) return;
  const std::array<char, 8> bytes = element_bytes(value, out.dtype);
  switch (out.item_size()) {
    case 1:
      return fill_as<std::uint8_t>(out, bytes.data());
    case 2:
      return fill_as<std::uint16_t>(out, bytes.data());
    case 4:
      return fill_as<std::uint32_t>(out, bytes.data());
    default:
      return fill_as<std::uint64_t>(out, bytes.data());
  }
}

}  // namespace
}  // namespace athanor::cpu

namespace athanor {
ATHANOR_REGISTER_KERNEL(copy_kernel, CPU, &cpu::copy_cpu);
ATHANOR_REGISTER_KERNEL(fill_kernel, CPU, &cpu::fill_cpu);
}  // namespace athanor
