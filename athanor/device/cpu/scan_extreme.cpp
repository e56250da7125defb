// Running maxima and minima along a dim, with their places.
#include <algorithm>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/order_key.h"
#include "athanor/device/cpu/order_lines.h"
#include "athanor/ops/kernels/scan_sort.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kChunk = 65536;  // of a long line

/// The greatest rank wins, of equals the latest; NaN has the greatest of all.
template <class T, bool Max>
struct Running {
  using Key = KeyOf<T>;
  Key rank = 0;
  std::int64_t place = -1;

  static Key rank_of(T v) {
    const Key k = order_key(v);
    if constexpr (Max) return k;
    return is_nan_element(v) ? k : static_cast<Key>(~k);
  }
  void take(Key r, std::int64_t at) {
    place = r >= rank ? at : place;
    rank = std::max(rank, r);
  }
};

template <class T, bool Max>
void scan_extreme_line(const T* in, std::int64_t n, T* values, std::int64_t* indices) {
  using State = Running<T, Max>;
  const std::int64_t chunks = (n + kChunk - 1) / kChunk;
  const HostBuffer<State> starts(chunks);
  starts[0] = State();
  const auto each_chunk = [&](auto&& fn) {
    parallel_for(0, chunks, 1, [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) fn(b, b * kChunk, std::min(n, (b + 1) * kChunk));
    });
  };
  each_chunk([&](std::int64_t c, std::int64_t begin, std::int64_t end) {
    if (c + 1 == chunks) return;
    State s;
    for (std::int64_t i = begin; i < end; ++i) s.take(State::rank_of(in[i]), i);
    starts[c + 1] = s;
  });
  for (std::int64_t c = 1; c < chunks; ++c) {
    const State earlier = starts[c - 1];
    if (starts[c].rank < earlier.rank) starts[c] = earlier;
  }
  each_chunk([&](std::int64_t c, std::int64_t begin, std::int64_t end) {
    // A branch: most lines have few new extremes or nothing else, and the next step need not wait for this one.
    State s = starts[c];
    T value = s.place < 0 ? T() : in[s.place];
    for (std::int64_t i = begin; i < end; ++i) {
      const T next = in[i];
      const auto rank = State::rank_of(next);
      if (rank >= s.rank) {
        s.rank = rank;
        s.place = i;
        value = next;
      }
      values[i] = value;
      indices[i] = s.place;
    }
  });
}

void scan_extreme_cpu(ScanExtremeOp op, const View& values, const View& indices, const View& in, std::int64_t dim) {
  const View from = as_bytes(in);
  const std::int64_t n = in.ndim > 0 ? in.size(static_cast<int>(dim)) : 1;
  dispatch_all(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>)
      each_order_line(from, as_bytes(values), indices, dim, 4, [&](const void* line, void* v, std::int64_t* i) {
        if (op == ScanExtremeOp::CumMax)
          scan_extreme_line<T, true>(static_cast<const T*>(line), n, static_cast<T*>(v), i);
        else
          scan_extreme_line<T, false>(static_cast<const T*>(line), n, static_cast<T*>(v), i);
      });
  });
}

}  // namespace

ATHANOR_REGISTER_KERNEL(scan_extreme_kernel, CPU, &scan_extreme_cpu);

}  // namespace athanor::cpu
