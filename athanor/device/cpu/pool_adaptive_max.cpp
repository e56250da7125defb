// The greatest value of each window of adaptive pooling, with its place. Windows differ in size: one value at a time.
#include <type_traits>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/pool_shape.h"

namespace athanor {
namespace {

using detail::kPoolAxes;
using detail::pool_data;
using detail::PoolData;
using detail::TapRange;

/// Input positions of window o of an axis.
TapRange adaptive_window(std::int64_t o, std::int64_t outputs, std::int64_t size) {
  return {o * size / outputs, ((o + 1) * size + outputs - 1) / outputs};
}

/// Comparisons of halves are made in float32.
template <class T>
using Wide = std::conditional_t<is_half_v<T>, float, T>;

template <class T>
struct Greatest {
  Wide<T> value{};
  std::int64_t place = -1;  ///< in the plane
};

/// The first of the greatest values of a window, or its last NaN.
template <class T>
Greatest<T> greatest(const T* from, const PoolData& in, const TapRange (&window)[kPoolAxes]) {
  Greatest<T> best;
  for (std::int64_t i = window[0].begin; i < window[0].end; ++i)
    for (std::int64_t j = window[1].begin; j < window[1].end; ++j)
      for (std::int64_t k = window[2].begin; k < window[2].end; ++k) {
        const auto v = static_cast<Wide<T>>(from[i * in.step[0] + j * in.step[1] + k * in.step[2]]);
        if (best.place < 0 || v > best.value || v != v) best = {v, (i * in.size[1] + j) * in.size[2] + k};
      }
  return best;
}

template <class T>
void plane(const PoolData& in, const T* from, const PoolData& out, T* to, const PoolData& index, std::int64_t* places) {
  for (std::int64_t d = 0; d < out.size[0]; ++d)
    for (std::int64_t h = 0; h < out.size[1]; ++h)
      for (std::int64_t x = 0; x < out.size[2]; ++x) {
        const TapRange window[] = {adaptive_window(d, out.size[0], in.size[0]),
                                   adaptive_window(h, out.size[1], in.size[1]),
                                   adaptive_window(x, out.size[2], in.size[2])};
        const Greatest<T> best = greatest(from, in, window);
        to[d * out.step[0] + h * out.step[1] + x * out.step[2]] = static_cast<T>(best.value);
        if (places) places[d * index.step[0] + h * index.step[1] + x * index.step[2]] = best.place;
      }
}

template <class T>
void run(const View& out, const View& indices, const View& in) {
  const PoolData from = pool_data(in), to = pool_data(out);
  const PoolData index = indices.defined() ? pool_data(indices) : PoolData{};
  const std::int64_t channels = in.size(1);
  parallel_for(0, in.size(0) * channels, 1 + 16384 / (from.plane() + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t n = t / channels, c = t % channels;
      auto* places = static_cast<std::int64_t*>(index.data);
      if (places) places += n * index.batch_step + c * index.channel_step;
      plane(from, static_cast<const T*>(from.data) + n * from.batch_step + c * from.channel_step, to,
            static_cast<T*>(to.data) + n * to.batch_step + c * to.channel_step, index, places);
    }
  });
}

void adaptive_max_pool_cpu(const View& out, const View& indices, const View& in) {
  dispatch_all(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>) run<T>(out, indices, in);
  });
}

ATHANOR_REGISTER_KERNEL(adaptive_max_pool_kernel, CPU, &adaptive_max_pool_cpu);

}  // namespace
}  // namespace athanor
