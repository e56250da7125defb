// Optimizer steps: one pass over flat memory, vectorized by the compiler for each target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/optim.cpp"
#include "athanor/device/cpu/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <cmath>

#include "athanor/base/parallel.h"
#include "athanor/ops/kernels/optim.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
void sgd_range(T* __restrict p, T* __restrict buf, const T* __restrict g, std::int64_t n, const SgdStep& s) {
  using C = Compute<T>;
  const C lr = static_cast<C>(s.lr), momentum = static_cast<C>(s.momentum), keep = static_cast<C>(1 - s.dampening),
          decay = static_cast<C>(s.weight_decay), sign = s.maximize ? C(-1) : C(1);
  if (!buf) {
    for (std::int64_t i = 0; i < n; ++i) {
      const C x = p[i];
      p[i] = T(x - lr * (sign * C(g[i]) + decay * x));
    }
    return;
  }
  const C old = s.first ? C(0) : momentum, take = s.first ? C(1) : keep;
  if (s.first)
    for (std::int64_t i = 0; i < n; ++i) buf[i] = T(C(0));  // may hold NaN
  if (s.nesterov) {
    for (std::int64_t i = 0; i < n; ++i) {
      const C x = p[i], d = sign * C(g[i]) + decay * x, v = old * C(buf[i]) + take * d;
      buf[i] = T(v);
      p[i] = T(x - lr * (d + momentum * v));
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      const C x = p[i], d = sign * C(g[i]) + decay * x, v = old * C(buf[i]) + take * d;
      buf[i] = T(v);
      p[i] = T(x - lr * v);
    }
  }
}

template <class T>
void adam_range(T* __restrict p, T* __restrict m, T* __restrict v, T* __restrict top, const T* __restrict g,
                std::int64_t n, const AdamStep& s) {
  using C = Compute<T>;
  const C b1 = static_cast<C>(s.beta1), b2 = static_cast<C>(s.beta2), eps = static_cast<C>(s.eps);
  const C take1 = static_cast<C>(1 - s.beta1), take2 = static_cast<C>(1 - s.beta2);
  const C decay = static_cast<C>(s.decoupled ? 0 : s.weight_decay);
  const C shrink = static_cast<C>(s.decoupled ? 1 - s.lr * s.weight_decay : 1);
  const C step = static_cast<C>(s.lr / s.bias_correction1);
  const C scale = static_cast<C>(1 / std::sqrt(s.bias_correction2));
  const C sign = s.maximize ? C(-1) : C(1);
  if (top) {
    for (std::int64_t i = 0; i < n; ++i) {
      const C x = C(p[i]) * shrink, d = sign * C(g[i]) + decay * x;
      const C a = b1 * C(m[i]) + take1 * d, q = b2 * C(v[i]) + take2 * d * d;
      const C old = top[i], most = q > old ? q : old;
      m[i] = T(a);
      v[i] = T(q);
      top[i] = T(most);
      p[i] = T(x - step * a / (std::sqrt(most) * scale + eps));
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const C x = C(p[i]) * shrink, d = sign * C(g[i]) + decay * x;
    const C a = b1 * C(m[i]) + take1 * d, q = b2 * C(v[i]) + take2 * d * d;
    m[i] = T(a);
    v[i] = T(q);
    p[i] = T(x - step * a / (std::sqrt(q) * scale + eps));
  }
}

template <class T>
void adadelta_range(T* __restrict p, T* __restrict square, T* __restrict delta, const T* __restrict g, std::int64_t n,
                    const AdadeltaStep& s) {
  using C = Compute<T>;
  const C lr = static_cast<C>(s.lr), rho = static_cast<C>(s.rho), take = static_cast<C>(1 - s.rho),
          eps = static_cast<C>(s.eps), decay = static_cast<C>(s.weight_decay), sign = s.maximize ? C(-1) : C(1);
  for (std::int64_t i = 0; i < n; ++i) {
    const C x = p[i], d = sign * C(g[i]) + decay * x;
    const C q = rho * C(square[i]) + take * d * d, old = delta[i];
    const C u = std::sqrt(old + eps) / std::sqrt(q + eps) * d;
    square[i] = T(q);
    delta[i] = T(rho * old + take * u * u);
    p[i] = T(x - lr * u);
  }
}

void sgd_step(const View& p, const View& buf, const View& g, std::int64_t b, std::int64_t e, const SgdStep& s) {
  dispatch_floating(p.dtype, "SGD", [&](auto tag) {
    using T = typename decltype(tag)::type;
    sgd_range(p.ptr<T>() + b, buf.defined() ? buf.ptr<T>() + b : nullptr, g.ptr<T>() + b, e - b, s);
  });
}

void adam_step(const View& p, const View& m, const View& v, const View& top, const View& g, std::int64_t b,
               std::int64_t e, const AdamStep& s) {
  dispatch_floating(p.dtype, "Adam", [&](auto tag) {
    using T = typename decltype(tag)::type;
    adam_range(p.ptr<T>() + b, m.ptr<T>() + b, v.ptr<T>() + b, top.defined() ? top.ptr<T>() + b : nullptr,
               g.ptr<T>() + b, e - b, s);
  });
}

void adadelta_step(const View& p, const View& square, const View& delta, const View& g, std::int64_t b, std::int64_t e,
                   const AdadeltaStep& s) {
  dispatch_floating(p.dtype, "Adadelta", [&](auto tag) {
    using T = typename decltype(tag)::type;
    adadelta_range(p.ptr<T>() + b, square.ptr<T>() + b, delta.ptr<T>() + b, g.ptr<T>() + b, e - b, s);
  });
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
namespace {

HWY_EXPORT(sgd_step);
HWY_EXPORT(adam_step);
HWY_EXPORT(adadelta_step);

constexpr std::int64_t kGrain = 1 << 15;

void sgd(const View& p, const View& buf, const View& g, SgdStep s) {
  parallel_for(0, p.numel, kGrain, [&](std::int64_t b, std::int64_t e) {
    HWY_DYNAMIC_DISPATCH(sgd_step)(p, buf, g, b, e, s);
  });
}

void adam(const View& p, const View& m, const View& v, const View& top, const View& g, AdamStep s) {
  parallel_for(0, p.numel, kGrain, [&](std::int64_t b, std::int64_t e) {
    HWY_DYNAMIC_DISPATCH(adam_step)(p, m, v, top, g, b, e, s);
  });
}

void adadelta(const View& p, const View& square, const View& delta, const View& g, AdadeltaStep s) {
  parallel_for(0, p.numel, kGrain, [&](std::int64_t b, std::int64_t e) {
    HWY_DYNAMIC_DISPATCH(adadelta_step)(p, square, delta, g, b, e, s);
  });
}

ATHANOR_REGISTER_KERNEL(sgd_step_kernel, CPU, &sgd);
ATHANOR_REGISTER_KERNEL(adam_step_kernel, CPU, &adam);
ATHANOR_REGISTER_KERNEL(adadelta_step_kernel, CPU, &adadelta);

}  // namespace
}  // namespace athanor::cpu
#endif
