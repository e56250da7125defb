#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/index_space.h"
#include "athanor/device/cpu/owned_view.h"
#include "athanor/ops/kernels/index.h"

namespace athanor::cpu {
namespace {

/// The values of an index tensor in row-major order, all in [0, size).
std::vector<std::int64_t> checked_values(const char* op, const View& index, std::int64_t size) {
  ATHANOR_CHECK_INDEX(index.dtype == DType::Long || index.dtype == DType::Int, op,
                      ": expected an index of dtype int64 or int32, got ", index.dtype);
  std::vector<std::int64_t> values(static_cast<std::size_t>(index.numel));
  const OwnedGeometry to(values.data(), DType::Long, DimVector(index.shape()), row_major_strides(index.shape()));
  copy_kernel.get(DeviceType::CPU)(to.view(), index);
  for (const std::int64_t v : values)
    ATHANOR_CHECK_INDEX(v >= 0 && v < size, op, ": index ", v, " is out of bounds for dimension 0 with size ", size);
  return values;
}

/// The tokens that name each row, in order: a counting sort.
struct Tokens {
  std::vector<std::int64_t> start;  // row v's tokens are order[start[v]] … order[start[v + 1] - 1]
  std::vector<std::int64_t> order;

  Tokens(const std::vector<std::int64_t>& index, std::int64_t rows, std::int64_t skip)
      : start(static_cast<std::size_t>(rows) + 1, 0), order(index.size()) {
    for (const std::int64_t v : index)
      if (v != skip) ++start[static_cast<std::size_t>(v) + 1];
    for (std::size_t v = 1; v < start.size(); ++v) start[v] += start[v - 1];
    std::vector<std::int64_t> next(start.begin(), start.end() - 1);
    for (std::size_t t = 0; t < index.size(); ++t)
      if (index[t] != skip)
        order[static_cast<std::size_t>(next[static_cast<std::size_t>(index[t])]++)] = static_cast<std::int64_t>(t);
  }
  /// First row at which rows and tokens before it add up to at least `weight`; the measure by which work is shared out.
  std::int64_t row_at(std::int64_t weight) const {
    std::int64_t low = 0, high = static_cast<std::int64_t>(start.size()) - 1;
    while (low < high) {
      const std::int64_t mid = (low + high) / 2;
      if (start[static_cast<std::size_t>(mid)] + mid < weight)
        low = mid + 1;
      else
        high = mid;
    }
    return low;
  }
};

void zero_row(char* out, std::int64_t bytes, bool stream) {
  alignas(64) static constexpr char kZeros[4096] = {};
  if (!stream) {
    std::memset(out, 0, static_cast<std::size_t>(bytes));
    return;
  }
  for (std::int64_t i = 0; i < bytes; i += 4096)
    block_ops().stream(out + i, kZeros, std::min<std::int64_t>(4096, bytes - i));
}

template <class T>
void sum_row(T* out, const T* grad, const std::int64_t* tokens, std::int64_t count, std::int64_t width, bool average,
             std::vector<float>& room) {
  using W = std::conditional_t<is_half_v<T>, float, T>;
  W* sum;
  if constexpr (is_half_v<T>) {
    room.resize(static_cast<std::size_t>(width));
    sum = room.data();
  } else {
    sum = out;
  }
  for (std::int64_t c = 0; c < count; ++c) {
    const T* __restrict from = grad + tokens[c] * width;
    W* __restrict to = sum;
    if (c == 0)
      for (std::int64_t d = 0; d < width; ++d) to[d] = static_cast<W>(from[d]);
    else
      for (std::int64_t d = 0; d < width; ++d) to[d] += static_cast<W>(from[d]);
  }
  if (average)
    for (std::int64_t d = 0; d < width; ++d) sum[d] /= static_cast<W>(count);
  if constexpr (is_half_v<T>)
    for (std::int64_t d = 0; d < width; ++d) out[d] = static_cast<T>(sum[d]);
}

void embedding_backward_cpu(const View& grad_weight, const View& grad, const View& index, std::int64_t padding_idx,
                            bool scale_grad_by_freq) {
  ATHANOR_CHECK(grad_weight.contiguous, "embedding_backward: expected a contiguous result");
  const std::int64_t rows = grad_weight.size(0), width = grad_weight.size(1);
  const auto values = checked_values("embedding_backward", index, rows);
  if (grad_weight.numel == 0) return;
  const Tokens tokens(values, rows, padding_idx);
  const Dense from(grad);
  dispatch_floating(grad_weight.dtype, "embedding_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::int64_t weight = rows + tokens.start.back();
    const std::int64_t grain = std::max<std::int64_t>(1, 16384 / width);
    const bool stream = grad_weight.numel * static_cast<std::int64_t>(sizeof(T)) >= kStreamBytes;
    parallel_for(0, weight, grain, [&](std::int64_t b, std::int64_t e) {
      std::vector<float> room;
      const std::int64_t end = e == weight ? rows : tokens.row_at(e);
      for (std::int64_t v = tokens.row_at(b); v < end; ++v) {
        const std::int64_t first = tokens.start[static_cast<std::size_t>(v)];
        const std::int64_t count = tokens.start[static_cast<std::size_t>(v) + 1] - first;
        T* out = grad_weight.ptr<T>() + v * width;
        if (count == 0)
          zero_row(reinterpret_cast<char*>(out), width * static_cast<std::int64_t>(sizeof(T)), stream);
        else
          sum_row(out, from.as<T>(), tokens.order.data() + first, count, width, scale_grad_by_freq, room);
      }
      if (stream) block_ops().stream_fence();
    });
  });
}

template <class T>
T narrow(double x) {
  if constexpr (is_half_v<T>)
    return T(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

double row_norm(const std::vector<double>& row, double p) {
  double sum = 0;
  for (const double x : row) {
    const double a = std::fabs(x);
    if (std::isinf(p))
      sum = p > 0 ? std::max(sum, a) : std::min(&x == row.data() ? a : sum, a);
    else if (p == 0)
      sum += a != 0 ? 1 : 0;
    else
      sum += p == 2 ? a * a : p == 1 ? a : std::pow(a, p);
  }
  return std::isinf(p) || p == 0 || p == 1 ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p);
}

void embedding_renorm_cpu(const View& weight, const View& index, double max_norm, double norm_type) {
  auto values = checked_values("embedding_renorm", index, weight.size(0));
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  dispatch_floating(weight.dtype, "embedding_renorm", [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<double> row(static_cast<std::size_t>(weight.size(1)));
    for (const std::int64_t v : values) {
      T* at = weight.ptr<T>() + v * weight.stride(0);
      for (std::size_t d = 0; d < row.size(); ++d)
        row[d] = static_cast<double>(at[static_cast<std::int64_t>(d) * weight.stride(1)]);
      const double norm = row_norm(row, norm_type);
      if (!(norm > max_norm)) continue;
      const double scale = max_norm / (norm + 1e-7);
      for (std::size_t d = 0; d < row.size(); ++d)
        at[static_cast<std::int64_t>(d) * weight.stride(1)] = narrow<T>(row[d] * scale);
    }
  });
}

void one_hot_cpu(const View& out, const View& index) {
  ATHANOR_CHECK(out.dtype == DType::Long && out.contiguous && out.ndim > 0,
                "one_hot: expected a contiguous int64 result");
  ATHANOR_CHECK_TYPE(TypeError, index.dtype == DType::Long || index.dtype == DType::Int,
                     "one_hot: expected classes of dtype int64, got ", index.dtype);
  const std::int64_t classes = out.size(-1);
  std::vector<std::int64_t> values(static_cast<std::size_t>(index.numel));
  const OwnedGeometry to(values.data(), DType::Long, DimVector(index.shape()), row_major_strides(index.shape()));
  copy_kernel.get(DeviceType::CPU)(to.view(), index);
  for (const std::int64_t v : values) {
    ATHANOR_CHECK(v >= 0, "one_hot: Class values must be non-negative, got ", v);
    ATHANOR_CHECK(v < classes, "one_hot: Class values must be smaller than num_classes = ", classes, ", got ", v);
  }
  auto* hot = out.ptr<std::int64_t>();
  parallel_for(0, index.numel, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(classes, 1)),
               [&](std::int64_t b, std::int64_t e) {
                 std::memset(hot + b * classes, 0, static_cast<std::size_t>((e - b) * classes) * sizeof(std::int64_t));
                 for (std::int64_t i = b; i < e; ++i) hot[i * classes + values[static_cast<std::size_t>(i)]] = 1;
               });
}

ATHANOR_REGISTER_KERNEL(embedding_backward_kernel, CPU, &embedding_backward_cpu);
ATHANOR_REGISTER_KERNEL(embedding_renorm_kernel, CPU, &embedding_renorm_cpu);
ATHANOR_REGISTER_KERNEL(one_hot_kernel, CPU, &one_hot_cpu);

}  // namespace
}  // namespace athanor::cpu
