#pragma once
/// Helpers of the indexing tests: coordinates, tensors in several layouts, all by plain loops.

#include <random>
#include <string>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/ops/kernels/index.h"
#include "pointwise_util.h"

namespace athanor::testing {

inline Dims coordinates(const Dims& sizes, std::int64_t i) {
  Dims at(sizes.size());
  for (std::size_t d = sizes.size(); d-- > 0;) {
    at[d] = i % sizes[d];
    i /= sizes[d];
  }
  return at;
}
inline std::int64_t position(const Dims& sizes, const Dims& at) {
  std::int64_t i = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) i = i * sizes[d] + at[d];
  return i;
}

/// Layout 0: dense; 1: dims in reverse order in memory; 2: gaps between elements and an odd start.
inline Box make(DType t, const Dims& sizes, int layout) {
  Dims strides = dense_strides(sizes);
  if (layout == 1) {
    std::int64_t step = 1;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      strides[d] = step;
      step *= std::max<std::int64_t>(sizes[d], 1);
    }
  } else if (layout == 2) {
    for (auto& s : strides) s *= 3;
  }
  return Box(t, sizes, strides, layout == 2 ? 1 : 0);
}

/// Small whole numbers, exact in every dtype and in their sums.
inline Box values(DType t, const Dims& sizes, int layout, unsigned seed) {
  std::mt19937 rng(seed);
  Box box = make(t, sizes, layout);
  return box.fill([&](std::int64_t) { return t == kBool ? static_cast<int>(rng() % 2) : static_cast<int>(rng() % 7); });
}

inline Box indices(DType t, const Dims& sizes, int layout, std::int64_t low, std::int64_t high, unsigned seed) {
  std::mt19937 rng(seed);
  Box box = make(t, sizes, layout);
  return box.fill(
      [&](std::int64_t) { return low + static_cast<std::int64_t>(rng() % static_cast<unsigned>(high - low)); });
}

inline Box clone(const Box& box) {
  Box copy(box.dtype(), box.sizes());
  for (std::int64_t i = 0; i < box.numel(); ++i) std::memcpy(copy.at(i), box.at(i), item_size(box.dtype()));
  return copy;
}

template <class K, class... Args>
void call(const K& kernel, const Args&... args) {
  kernel.get(kCPU)(args...);
}

inline void expect_same(const Box& got, const Box& want) {
  ASSERT_EQ(got.sizes(), want.sizes());
  for (std::int64_t i = 0; i < got.numel(); ++i)
    ASSERT_TRUE(same(got.get(i), want.get(i))) << "element " << i << ": " << got.get(i) << ", expected " << want.get(i);
}

/// The message of the E that f throws; fails the test if it throws none.
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "expected an exception";
  return "";
}

/// Runs body with 1, 2 and 7 threads.
template <class F>
void with_thread_counts(F&& body) {
  for (int n : {1, 2, 7}) {
    const ThreadTeamGuard team(n);
    body(n);
  }
}

}  // namespace athanor::testing
