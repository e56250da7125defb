#pragma once
/// Loops over the elements of many dense tensors: a thousand small ones cost one parallel region.

#include <algorithm>

#include "athanor/base/parallel.h"
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

/// for_tensor_ranges over one optimizer step: step(param, its state, gradient, begin, end).
template <class F>
void for_steps(ArrayRef<View> params, ArrayRef<View> state, ArrayRef<View> grads, F&& step) {
  constexpr std::int64_t kGrain = 1 << 15;
  const std::size_t per_param = state.size() / params.size();
  for_tensor_ranges(params, kGrain, [&](std::size_t i, std::int64_t b, std::int64_t e) {
    step(params[i], state.data() + i * per_param, grads[i], b, e);
  });
}

}  // namespace athanor::cpu
