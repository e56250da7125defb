// Linear maps along one dim.
#include "athanor/ops/kernels/resample.h"

#include <algorithm>

#include "athanor/base/parallel.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;  // products for which a second thread pays
constexpr std::int64_t kChunk = 1024;   // elements of a line of lines that stay in the first cache

/// Lines that are dense in memory, each entry a sum of K (0: any number of) elements of its own line.
template <class T, int K>
void map_lines(T* out, const T* in, const ResampleTable& table, const T* weight, std::int64_t first,
               std::int64_t last) {
  const std::int64_t rows = table.rows();
  const std::int64_t* const at = table.at.data();
  for (std::int64_t line = first; line < last; ++line) {
    const T* from = in + line * table.sources;
    T* to = out + line * rows;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t begin = K > 0 ? r * K : table.begin[static_cast<std::size_t>(r)];
      const std::int64_t end = K > 0 ? begin + K : table.begin[static_cast<std::size_t>(r) + 1];
      T sum = 0;
      for (std::int64_t k = begin; k < end; ++k) sum += weight[k] * from[at[k]];
      to[r] = sum;
    }
  }
}

template <class T>
void add_scaled(T* __restrict to, const T* __restrict from, T factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}
template <class T>
void set_scaled(T* __restrict to, const T* __restrict from, T factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = factor * from[i];
}

/// Entries that are runs of `inner` elements.
template <class T>
void map_runs(T* out, const T* in, const ResampleTable& table, const T* weight, std::int64_t inner, std::int64_t first,
              std::int64_t last) {
  const std::int64_t rows = table.rows();
  for (std::int64_t i = first; i < last; ++i) {
    const auto r = static_cast<std::size_t>(i % rows);
    const T* from = in + i / rows * table.sources * inner;
    T* to = out + i * inner;
    const std::int64_t begin = table.begin[r], end = table.begin[r + 1];
    if (begin == end) std::fill_n(to, inner, T(0));
    for (std::int64_t at = 0; at < inner; at += kChunk) {
      const std::int64_t n = std::min(kChunk, inner - at);
      for (std::int64_t k = begin; k < end; ++k) {
        const T* source = from + table.at[static_cast<std::size_t>(k)] * inner + at;
        (k == begin ? set_scaled<T> : add_scaled<T>)(to + at, source, weight[k], n);
      }
    }
  }
}

template <class T>
void resample(const View& out, const View& in, std::int64_t inner, const ResampleTable& table) {
  const std::vector<T> weight(table.weight.begin(), table.weight.end());
  const std::int64_t rows = table.rows();
  if (out.numel == 0) return;
  const std::int64_t each = 1 + static_cast<std::int64_t>(table.at.size()) / rows;  // products per entry
  const std::int64_t lines = out.numel / rows / inner;
  if (inner > 1)
    return parallel_for(0, lines * rows, 1 + kGrain / (each * inner), [&](std::int64_t first, std::int64_t last) {
      map_runs(out.ptr<T>(), in.ptr<T>(), table, weight.data(), inner, first, last);
    });
  const std::int64_t taps = table.taps();
  const auto map = taps == 1   ? map_lines<T, 1>
                   : taps == 2 ? map_lines<T, 2>
                   : taps == 4 ? map_lines<T, 4>
                               : map_lines<T, 0>;
  parallel_for(0, lines, 1 + kGrain / (each * rows), [&](std::int64_t first, std::int64_t last) {
    map(out.ptr<T>(), in.ptr<T>(), table, weight.data(), first, last);
  });
}

void resample_cpu(const View& out, const View& in, std::int64_t inner, const ResampleTableRef& table) {
  out.dtype == DType::Float ? resample<float>(out, in, inner, *table) : resample<double>(out, in, inner, *table);
}

ATHANOR_REGISTER_KERNEL(resample_kernel, CPU, &resample_cpu);

}  // namespace
}  // namespace athanor::cpu
