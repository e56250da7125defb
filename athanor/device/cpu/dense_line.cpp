#include "athanor/device/cpu/dense_line.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "athanor/device/cpu/copy_blocks.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kPiece = 1024;

void half_to_float(float* to, const void* from, DType from_type, std::int64_t n) {
  const auto& ops = block_ops();
  (from_type == DType::Half ? ops.half_to_float : ops.bfloat16_to_float)(to, static_cast<const std::uint16_t*>(from),
                                                                         n);
}

void float_to_half(void* to, DType to_type, const float* from, std::int64_t n) {
  const auto& ops = block_ops();
  (to_type == DType::Half ? ops.float_to_half : ops.float_to_bfloat16)(static_cast<std::uint16_t*>(to), from, n);
}

void convert_plain(void* to, DType to_type, const void* from, DType from_type, std::int64_t n) {
  char* const ptrs[2] = {static_cast<char*>(to), static_cast<char*>(const_cast<void*>(from))};
  const std::int64_t strides[2] = {static_cast<std::int64_t>(item_size(to_type)),
                                   static_cast<std::int64_t>(item_size(from_type))};
  block_ops().convert[static_cast<int>(from_type)][static_cast<int>(to_type)](ptrs, strides, n, nullptr);
}

template <class U>
void gather(void* to, const void* from, std::int64_t stride, std::int64_t n) {
  auto* t = static_cast<U*>(to);
  const auto* f = static_cast<const U*>(from);
  for (std::int64_t i = 0; i < n; ++i) t[i] = f[i * stride];
}

template <class U>
void scatter(void* to, std::int64_t stride, const void* from, std::int64_t n) {
  auto* t = static_cast<U*>(to);
  const auto* f = static_cast<const U*>(from);
  for (std::int64_t i = 0; i < n; ++i) t[i * stride] = f[i];
}

void gather(void* to, const void* from, std::size_t size, std::int64_t stride, std::int64_t n) {
  if (stride == 2) return block_ops().every_second[std::countr_zero(size)](to, from, n);
  switch (size) {
    case 1:
      return gather<std::uint8_t>(to, from, stride, n);
    case 2:
      return gather<std::uint16_t>(to, from, stride, n);
    case 4:
      return gather<std::uint32_t>(to, from, stride, n);
    default:
      return gather<std::uint64_t>(to, from, stride, n);
  }
}

void scatter(void* to, std::size_t size, std::int64_t stride, const void* from, std::int64_t n) {
  switch (size) {
    case 1:
      return scatter<std::uint8_t>(to, stride, from, n);
    case 2:
      return scatter<std::uint16_t>(to, stride, from, n);
    case 4:
      return scatter<std::uint32_t>(to, stride, from, n);
    default:
      return scatter<std::uint64_t>(to, stride, from, n);
  }
}

}  // namespace

void convert_line(void* to, DType to_type, const void* from, DType from_type, std::int64_t n) {
  if (to_type == from_type) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * item_size(to_type));
    return;
  }
  const bool half_in = is_half(from_type), half_out = is_half(to_type);
  if (!half_in && !half_out) return convert_plain(to, to_type, from, from_type, n);
  if (half_in && to_type == DType::Float) return half_to_float(static_cast<float*>(to), from, from_type, n);
  if (half_out && from_type == DType::Float) return float_to_half(to, to_type, static_cast<const float*>(from), n);
  float piece[kPiece];
  for (std::int64_t b = 0; b < n; b += kPiece) {
    const std::int64_t m = std::min(kPiece, n - b);
    const void* source = element(const_cast<void*>(from), b, item_size(from_type));
    void* target = element(to, b, item_size(to_type));
    if (half_in)
      half_to_float(piece, source, from_type, m);
    else
      convert_plain(piece, DType::Float, source, from_type, m);
    if (half_out)
      float_to_half(target, to_type, piece, m);
    else
      convert_plain(target, to_type, piece, DType::Float, m);
  }
}

void load_line(void* to, DType to_type, const void* from, DType from_type, std::int64_t stride, std::int64_t n) {
  if (stride == 1) return convert_line(to, to_type, from, from_type, n);
  const std::size_t size = item_size(from_type);
  if (to_type == from_type) return gather(to, from, size, stride, n);
  alignas(64) char piece[kPiece * 8];
  for (std::int64_t b = 0; b < n; b += kPiece) {
    const std::int64_t m = std::min(kPiece, n - b);
    gather(piece, element(const_cast<void*>(from), b * stride, size), size, stride, m);
    convert_line(element(to, b, item_size(to_type)), to_type, piece, from_type, m);
  }
}

void store_line(void* to, DType to_type, std::int64_t stride, const void* from, DType from_type, std::int64_t n) {
  if (stride == 1) return convert_line(to, to_type, from, from_type, n);
  const std::size_t size = item_size(to_type);
  if (to_type == from_type) return scatter(to, size, stride, from, n);
  alignas(64) char piece[kPiece * 8];
  for (std::int64_t b = 0; b < n; b += kPiece) {
    const std::int64_t m = std::min(kPiece, n - b);
    convert_line(piece, to_type, element(const_cast<void*>(from), b, item_size(from_type)), from_type, m);
    scatter(element(to, b * stride, size), size, stride, piece, m);
  }
}

namespace {

/// Calls fn(offset, stride, n) for the runs along the last dim that make up elements [start, start + n) of `v`.
template <class F>
void each_run(const View& v, std::int64_t start, std::int64_t n, F&& fn) {
  if (v.contiguous || v.ndim == 0) return fn(start, std::int64_t{1}, n);
  const std::int64_t inner = v.size(-1), stride = v.stride(-1);
  while (n > 0) {
    const std::int64_t i = start % inner, m = std::min(n, inner - i);
    std::int64_t offset = i * stride, outer = start / inner;
    for (int d = v.ndim - 2; d >= 0 && outer > 0; --d) {
      offset += outer % v.sizes[d] * v.strides[d];
      outer /= v.sizes[d];
    }
    fn(offset, stride, m);
    start += m;
    n -= m;
  }
}

}  // namespace

void load_range(void* to, DType to_type, const View& v, std::int64_t start, std::int64_t n) {
  each_run(v, start, n, [&](std::int64_t offset, std::int64_t stride, std::int64_t m) {
    load_line(to, to_type, element(v.data, offset, v.item_size()), v.dtype, stride, m);
    to = element(to, m, item_size(to_type));
  });
}

void store_range(const View& v, std::int64_t start, const void* from, DType from_type, std::int64_t n) {
  each_run(v, start, n, [&](std::int64_t offset, std::int64_t stride, std::int64_t m) {
    store_line(element(v.data, offset, v.item_size()), v.dtype, stride, from, from_type, m);
    from = element(const_cast<void*>(from), m, item_size(from_type));
  });
}

Lines::Lines(const View* const* views, int n, std::int64_t dim) {
  const View& first = *views[0];
  const int axis = static_cast<int>(dim < 0 ? dim + first.ndim : dim);
  for (int v = 0; v < n; ++v) line_stride[v] = views[v]->defined() && first.ndim > 0 ? views[v]->strides[axis] : 0;
  if (first.ndim > 0) {
    length = first.sizes[axis];
    for (int v = 0; v < n; ++v)
      if (views[v]->defined() && views[v]->sizes[axis] == 1) line_stride[v] = 1;
  } else {
    for (int v = 0; v < n; ++v) line_stride[v] = 1;
  }
  stride = line_stride[0];
  for (int d = first.ndim - 1; d >= 0; --d) {
    if (d == axis) continue;
    count *= first.sizes[d];
    if (first.sizes[d] == 1) continue;
    // Insertion by the first operand's stride, repeated dims outermost.
    const auto key = [](std::int64_t s) { return s == 0 ? INT64_MAX : s < 0 ? -s : s; };
    int at = ndim++;
    for (; at > 0 && key(strides[0][at - 1]) > key(first.strides[d]); --at) {
      sizes[at] = sizes[at - 1];
      for (int v = 0; v < n; ++v) strides[v][at] = strides[v][at - 1];
    }
    sizes[at] = first.sizes[d];
    for (int v = 0; v < n; ++v) strides[v][at] = views[v]->defined() ? views[v]->strides[d] : 0;
  }
  int last = 0;
  for (int d = 1; d < ndim; ++d) {
    bool joins = true;
    for (int v = 0; v < n && joins; ++v) joins = strides[v][d] == strides[v][last] * sizes[last];
    if (joins) {
      sizes[last] *= sizes[d];
    } else if (++last != d) {
      sizes[last] = sizes[d];
      for (int v = 0; v < n; ++v) strides[v][last] = strides[v][d];
    }
  }
  if (ndim > 0) ndim = last + 1;
}

}  // namespace athanor::cpu
