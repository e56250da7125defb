// Sorting along a dim.
#include "athanor/device/cpu/order_lines.h"
#include "athanor/device/cpu/sort_line.h"
#include "athanor/ops/kernels/scan_sort.h"

namespace athanor::cpu {

KeyRange line_key_range(const void* in, DType t, std::int64_t n) {
  constexpr std::int64_t kChunk = 262144;
  const auto fn = order_fns().key_range[static_cast<int>(t)];
  if (n <= 2 * kChunk || in_parallel_region()) return fn(in, n);
  const std::int64_t chunks = (n + kChunk - 1) / kChunk;
  const HostBuffer<KeyRange> ranges(chunks);
  const auto* bytes = static_cast<const char*>(in);
  const auto size = static_cast<std::int64_t>(item_size(t));
  parallel_for(0, chunks, 1, [&](std::int64_t b, std::int64_t e) {
    // Each chunk starts one element early (the first excepted), so that differences between chunks show.
    for (; b < e; ++b) {
      const std::int64_t first = std::max<std::int64_t>(0, b * kChunk - 1);
      ranges[b] = fn(bytes + first * size, std::min(n, (b + 1) * kChunk) - first);
    }
  });
  KeyRange all = ranges[0];
  for (std::int64_t c = 1; c < chunks; ++c) {
    all.least = std::min(all.least, ranges[c].least);
    all.greatest = std::max(all.greatest, ranges[c].greatest);
    all.varying |= ranges[c].varying;
  }
  return all;
}

namespace {

void sort_cpu(const View& values, const View& indices, const View& in, std::int64_t dim, bool descending) {
  const View from = as_bytes(in);
  const std::int64_t n = in.ndim > 0 ? in.size(static_cast<int>(dim)) : 1;
  dispatch_all(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>)
      each_order_line(from, as_bytes(values), indices, dim, 8, [&](const void* line, void* v, std::int64_t* i) {
        sort_line(static_cast<const T*>(line), n, descending, static_cast<T*>(v), i);
      });
  });
}

}  // namespace

ATHANOR_REGISTER_KERNEL(sort_kernel, CPU, &sort_cpu);

}  // namespace athanor::cpu
