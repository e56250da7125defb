// What training does with all gradients or all parameters at once: scaling, averaging, norms.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/tensor_lists.cpp"
#include "athanor/device/cpu/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "athanor/device/cpu/tensor_ranges.h"
#include "athanor/ops/kernels/optim.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {

template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// x * 0 is 0 unless x is infinite or not a number, and stays NaN in a sum.
template <class T>
bool scale_line(T* x, std::int64_t n, Compute<T> factor) {
  using C = Compute<T>;
  constexpr int kLanes = 16;
  C bad[kLanes] = {};
  const std::int64_t whole = n - n % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes)
    for (int j = 0; j < kLanes; ++j) {
      const T y = T(C(x[i + j]) * factor);
      x[i + j] = y;
      bad[j] += C(y) * C(0);
    }
  for (std::int64_t i = whole; i < n; ++i) {
    const T y = T(C(x[i]) * factor);
    x[i] = y;
    bad[0] += C(y) * C(0);
  }
  bool finite = true;
  for (const C b : bad) finite = finite && b == C(0);
  return finite;
}

template <class T>
double sum_squares(const T* x, std::int64_t n) {
  constexpr int kLanes = 16;
  double sums[kLanes] = {};
  const std::int64_t whole = n - n % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes)
    for (int j = 0; j < kLanes; ++j) {
      const auto v = static_cast<double>(Compute<T>(x[i + j]));
      sums[j] += v * v;
    }
  for (std::int64_t i = whole; i < n; ++i) {
    const auto v = static_cast<double>(Compute<T>(x[i]));
    sums[0] += v * v;
  }
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  return sums[0];
}

}  // namespace

/// False if a result is not finite.
bool scale_range(const View& v, std::int64_t begin, std::int64_t end, double factor) {
  return dispatch_floating(v.dtype, "scale_all", [&](auto tag) {
    using T = typename decltype(tag)::type;
    return scale_line(v.ptr<T>() + begin, end - begin, static_cast<Compute<T>>(factor));
  });
}

void lerp_range(const View& to, const View& from, std::int64_t begin, std::int64_t end, double weight) {
  dispatch_floating(to.dtype, "lerp_all", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    T* __restrict a = to.ptr<T>();
    const T* __restrict b = from.ptr<T>();
    const C w = static_cast<C>(weight), rest = static_cast<C>(1 - weight);
    // From the nearer end, so that weights 0 and 1 give the ends themselves.
    if (weight < 0.5)
      for (std::int64_t i = begin; i < end; ++i) a[i] = T(C(a[i]) + w * (C(b[i]) - C(a[i])));
    else
      for (std::int64_t i = begin; i < end; ++i) a[i] = T(C(b[i]) - rest * (C(b[i]) - C(a[i])));
  });
}

double squares_range(const View& v, std::int64_t begin, std::int64_t end) {
  return dispatch_floating(v.dtype, "norm_all", [&](auto tag) {
    using T = typename decltype(tag)::type;
    return sum_squares(v.ptr<T>() + begin, end - begin);
  });
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
namespace {

HWY_EXPORT(scale_range);
HWY_EXPORT(lerp_range);
HWY_EXPORT(squares_range);

constexpr std::int64_t kGrain = 1 << 15;

void scale_all(ArrayRef<View> tensors, const View& found, double factor) {
  std::atomic<bool> finite{true};
  for_tensor_ranges(tensors, kGrain, [&](std::size_t i, std::int64_t b, std::int64_t e) {
    if (!HWY_DYNAMIC_DISPATCH(scale_range)(tensors[i], b, e, factor)) finite.store(false, std::memory_order_relaxed);
  });
  if (found.defined() && !finite.load(std::memory_order_relaxed)) *found.ptr<float>() = 1;
}

void lerp_all(ArrayRef<View> to, ArrayRef<View> from, double weight) {
  for_tensor_ranges(to, kGrain, [&](std::size_t i, std::int64_t b, std::int64_t e) {
    HWY_DYNAMIC_DISPATCH(lerp_range)(to[i], from[i], b, e, weight);
  });
}

/// max that lets NaN through.
double larger(double a, double b) { return a >= b || a != a ? a : b; }
double smaller(double a, double b) { return a <= b || a != a ? a : b; }

/// What elements [begin, end) add to the norm of order p.
double piece_of_norm(const View& v, std::int64_t begin, std::int64_t end, double p) {
  if (p == 2) return HWY_DYNAMIC_DISPATCH(squares_range)(v, begin, end);
  return dispatch_floating(v.dtype, "norm_all", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = v.ptr<T>();
    const bool infinite = std::isinf(p);
    double sum = infinite && p < 0 ? std::numeric_limits<double>::infinity() : 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const double a = std::abs(static_cast<double>(x[i]));
      if (infinite)
        sum = p > 0 ? larger(sum, a) : smaller(sum, a);
      else if (p == 1)
        sum += a;
      else
        sum += p == 0 ? (a != 0 ? 1.0 : 0.0) : std::pow(a, p);
    }
    return sum;
  });
}

void norm_all(const View& out, ArrayRef<View> tensors, double p) {
  constexpr std::int64_t kPiece = 1 << 14;
  struct Piece {
    std::size_t tensor;
    std::int64_t begin, end;
  };
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    for (std::int64_t b = 0; b < tensors[i].numel; b += kPiece)
      pieces.push_back({i, b, std::min(b + kPiece, tensors[i].numel)});
  std::vector<double> sums(pieces.size());
  std::int64_t total = 0;
  for (const View& v : tensors) total += v.numel;
  const std::int64_t grain =
      total <= kGrain ? static_cast<std::int64_t>(pieces.size()) : 1 + static_cast<std::int64_t>(pieces.size()) / 64;
  parallel_for(0, static_cast<std::int64_t>(pieces.size()), grain, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t k = b; k < e; ++k) {
      const Piece& piece = pieces[static_cast<std::size_t>(k)];
      sums[static_cast<std::size_t>(k)] = piece_of_norm(tensors[piece.tensor], piece.begin, piece.end, p);
    }
  });
  const bool infinite = std::isinf(p);
  double sum = infinite && p < 0 ? std::numeric_limits<double>::infinity() : 0;
  for (const double s : sums) sum = infinite ? (p > 0 ? larger(sum, s) : smaller(sum, s)) : sum + s;
  if (p == 2)
    sum = std::sqrt(sum);
  else if (!infinite && p != 0 && p != 1)
    sum = std::pow(sum, 1 / p);
  *out.ptr<double>() = sum;
}

ATHANOR_REGISTER_KERNEL(scale_all_kernel, CPU, &scale_all);
ATHANOR_REGISTER_KERNEL(lerp_all_kernel, CPU, &lerp_all);
ATHANOR_REGISTER_KERNEL(norm_all_kernel, CPU, &norm_all);

}  // namespace
}  // namespace athanor::cpu
#endif
