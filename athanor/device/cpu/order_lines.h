#pragma once
/// Driver of kernels that look at whole lines along a dim and give values, places or both.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "athanor/tensor/view.h"

namespace athanor::cpu {

/// One dense line in, dense lines out; an output that is not wanted is null.
using OrderLineFn = void (*)(const void* context, const void* in, void* values, std::int64_t* indices);

void run_order_lines(const View& in, const View& values, const View& indices, std::int64_t dim, std::int64_t cost,
                     OrderLineFn fn, const void* context);

/// Calls fn(in, values, indices) for every line along `dim`, from several threads if there are many lines and from the
/// caller's if there are few (then fn may use threads itself). `in` may not be empty along dim unless the outputs are.
/// `values` and `indices` may be undefined; they have the shape of `in` but for dim. `cost`: how many times the work of
/// a simple loop fn does per element.
template <class F>
void each_order_line(const View& in, const View& values, const View& indices, std::int64_t dim, std::int64_t cost,
                     const F& fn) {
  run_order_lines(
      in, values, indices, dim, cost,
      [](const void* context, const void* line, void* v, std::int64_t* i) {
        (*static_cast<const F*>(context))(line, v, i);
      },
      &fn);
}

/// Bools as the bytes they are.
inline View as_bytes(View v) {
  if (v.dtype == DType::Bool) v.dtype = DType::Byte;
  return v;
}

}  // namespace athanor::cpu
