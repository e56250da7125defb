#pragma once
/// Loops over the elements of many dense tensors: a thousand small ones cost one parallel region.

#include <algorithm>

#include "athanor/base/parallel.h"
#include "athanor/tensor/hidden_layout.h"
#include "athanor/tensor/view.h"

namespace athanor::cpu {

/// Calls body(tensor, begin, end) on ranges that cover all elements of all tensors, each once. Tensors of more than
/// `grain` elements are cut where kernels for that tensor alone cut it, so that a thread finds in its cache what it
/// wrote there; the smaller ones are taken together.
template <class F>
void for_tensor_ranges(ArrayRef<View> tensors, std::int64_t grain, F&& body) {
  SmallVector<std::size_t, 32> small;
  SmallVector<std::int64_t, 32> starts;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].numel > grain) {
      parallel_for(0, tensors[i].numel, grain, [&](std::int64_t b, std::int64_t e) { body(i, b, e); });
    } else {
      small.push_back(i);
      starts.push_back(total);
      total += tensors[i].numel;
    }
  }
  starts.push_back(total);
  parallel_for(0, total, grain, [&](std::int64_t begin, std::int64_t end) {
    auto k = static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin() - 1);
    for (; begin < end; ++k) {
      const std::int64_t stop = std::min(end, starts[k + 1]);
      if (stop > begin) body(small[k], begin - starts[k], stop - starts[k]);
      begin = std::max(begin, stop);
    }
  });
}

/// Elements [begin, begin + count) of a hidden outer product.
void multiply_out(const View& product, std::int64_t begin, std::int64_t count, float* to);

/// A step whose gradient is a hidden outer product, multiplied out in the first cache.
template <class F>
void step_by_products(const View& param, ArrayRef<View> state, const View& grad, std::int64_t begin, std::int64_t end,
                      F&& step) {
  constexpr std::int64_t kPiece = 512;
  alignas(64) float products[kPiece];
  View g = grad, p = param;
  SmallVector<View, 4> own(state.begin(), state.end());
  g.data = products;
  for (; begin < end; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, end - begin);
    p.data = param.ptr<float>() + begin;
    for (std::size_t i = 0; i < own.size(); ++i) own[i].data = state[i].ptr<float>() + begin;
    multiply_out(grad, begin, count, products);
    step(p, own.data(), g, 0, count);
  }
}

/// for_tensor_ranges over one optimizer step: step(param, its state, gradient, begin, end).
template <class F>
void for_steps(ArrayRef<View> params, ArrayRef<View> state, ArrayRef<View> grads, F&& step) {
  constexpr std::int64_t kGrain = 1 << 15;
  const std::size_t per_param = state.size() / params.size();
  for_tensor_ranges(params, kGrain, [&](std::size_t i, std::int64_t b, std::int64_t e) {
    const auto run = [&](const View& param, const View* own, const View& grad, std::int64_t from, std::int64_t to) {
      step(param, own, grad, from, to);
    };
    const View* own = state.data() + i * per_param;
    if (grads[i].block == kOuterProduct)
      step_by_products(params[i], {own, per_param}, grads[i], b, e, run);
    else
      run(params[i], own, grads[i], b, e);
  });
}

}  // namespace athanor::cpu
