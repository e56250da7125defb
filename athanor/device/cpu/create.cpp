// Tensors made from a rule: arange, linspace, coordinates of triangles.
#include "athanor/ops/kernels/create.h"

#include <algorithm>
#include <bit>

#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/create_lines.h"
#include "athanor/device/cpu/dense_line.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 32768;  // elements for which a second thread pays

/// Calls make(to, start, n), which writes n elements of dtype `t` densely, for all of `out`: directly where it is dense
/// and of that dtype, else through a block on the stack.
template <class F>
void fill_blocks(const View& out, DType t, F&& make) {
  const auto size = static_cast<std::int64_t>(item_size(t));
  const bool same = out.contiguous && out.dtype == t;
  const bool stream = same && out.numel * size > kStreamBytes;
  parallel_blocks(out.numel, kGrain, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) char block[kBlock * 8];
    for (std::int64_t at = begin; at < end; at += kBlock) {
      const std::int64_t n = std::min(kBlock, end - at);
      if (same && !stream) {
        make(element(out.data, at, static_cast<std::size_t>(size)), at, n);
        continue;
      }
      make(block, at, n);
      if (stream)
        block_ops().stream(element(out.data, at, static_cast<std::size_t>(size)), block, n * size);
      else
        store_range(out, at, block, t, n);
    }
    if (stream) block_ops().stream_fence();
  });
}

auto line_of(DType t) { return t == DType::Float ? create_fns().line_f32 : create_fns().line_f64; }

void arange_cpu(const View& out, Scalar start, Scalar step) {
  if (is_floating_point(out.dtype)) {
    const double a = start.toDouble(), s = step.toDouble();
    // Halves are rounded once, from float64.
    const DType t = out.dtype == DType::Float ? DType::Float : DType::Double;
    return fill_blocks(
        out, t, [&](void* to, std::int64_t i, std::int64_t n) { line_of(t)(to, n, a, s, static_cast<double>(i), 1); });
  }
  ATHANOR_CHECK_TYPE(NotImplementedError, out.dtype != DType::Bool, "arange: not implemented for bool");
  const auto a = static_cast<std::uint64_t>(start.toLong()), s = static_cast<std::uint64_t>(step.toLong());
  const auto ramp = create_fns().ramp[std::countr_zero(out.item_size())];
  fill_blocks(out, out.dtype,
              [&](void* to, std::int64_t i, std::int64_t n) { ramp(to, n, a + static_cast<std::uint64_t>(i) * s, s); });
}

void linspace_cpu(const View& out, Scalar start, Scalar end) {
  ATHANOR_CHECK_TYPE(NotImplementedError, out.dtype != DType::Bool, "linspace: not implemented for bool");
  const bool whole = !is_floating_point(out.dtype);
  const double a = whole ? static_cast<double>(start.toLong()) : start.toDouble();
  const double b = whole ? static_cast<double>(end.toLong()) : end.toDouble();
  const std::int64_t last = out.numel - 1, half = out.numel / 2;
  const double step = last > 0 ? (b - a) / static_cast<double>(last) : 0;
  if (last == 0) return arange_cpu(out, start, Scalar(0.0));
  const DType t = out.dtype == DType::Float ? DType::Float : DType::Double;
  fill_blocks(out, t, [&](void* to, std::int64_t i, std::int64_t n) {
    const std::int64_t left = std::clamp<std::int64_t>(half - i, 0, n);
    line_of(t)(to, left, a, step, static_cast<double>(i), 1);
    line_of(t)(element(to, left, item_size(t)), n - left, b, -step, static_cast<double>(last - i - left), -1);
  });
}

template <class T>
void triangle_rows(const View& out, std::int64_t columns, std::int64_t offset, bool upper, std::int64_t begin,
                   std::int64_t end, std::int64_t at) {
  T* const i_out = out.ptr<T>() + at * out.stride(1);
  T* const j_out = i_out + out.stride(0);
  const std::int64_t step = out.stride(1);
  std::int64_t place = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    const TriangleRow row = triangle_row(i, columns, offset, upper);
    for (std::int64_t j = row.begin; j < row.end; ++j, place += step) {
      i_out[place] = static_cast<T>(i);
      j_out[place] = static_cast<T>(j);
    }
  }
}

void triangle_indices_cpu(const View& out, std::int64_t rows, std::int64_t columns, std::int64_t offset, bool upper) {
  ATHANOR_CHECK_TYPE(TypeError, out.dtype == DType::Long || out.dtype == DType::Int,
                     "triangle_indices: expected int32 or int64, got ", dtype_name(out.dtype));
  if (out.numel == 0) return;
  // Rows without elements are passed over: there may be very many.
  const std::int64_t first = upper ? 0 : std::max<std::int64_t>(0, -offset);
  const std::int64_t last = upper && offset > columns - rows ? columns - offset : rows;
  parallel_for(first, last, std::max<std::int64_t>(1, kGrain / columns), [&](std::int64_t begin, std::int64_t end) {
    // Elements above row `begin`.
    const std::int64_t at = triangle_size(begin, columns, offset, upper);
    (out.dtype == DType::Long ? triangle_rows<std::int64_t> : triangle_rows<std::int32_t>)(out, columns, offset, upper,
                                                                                           begin, end, at);
  });
}

}  // namespace

ATHANOR_REGISTER_KERNEL(arange_kernel, CPU, &arange_cpu);
ATHANOR_REGISTER_KERNEL(linspace_kernel, CPU, &linspace_cpu);
ATHANOR_REGISTER_KERNEL(triangle_indices_kernel, CPU, &triangle_indices_cpu);

}  // namespace athanor::cpu
