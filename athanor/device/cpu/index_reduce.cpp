#include <functional>
#include <vector>

#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/device/cpu/index_combine.h"
#include "athanor/ops/kernels/index.h"

namespace athanor::cpu {
namespace {

std::int64_t item_of(const View& v) { return static_cast<std::int64_t>(v.item_size()); }

/// `like` with one value in place of its elements.
struct Repeated {
  ElementBytes value;
  DimVector strides;
  View view;
  Repeated(Scalar s, const View& like, DType t)
      : value(s, t), strides(static_cast<std::size_t>(like.ndim), 0), view(like) {
    view.data = value.bytes;
    view.strides = strides.data();
    view.dtype = t;
    view.contiguous = false;
  }
};

/// A row-major Long tensor of zeros in the shape of `like`.
struct Counts {
  std::vector<std::int64_t> values;
  DimVector strides;
  View view;
  explicit Counts(const View& like)
      : values(static_cast<std::size_t>(like.numel), 0), strides(static_cast<std::size_t>(like.ndim)), view(like) {
    std::int64_t step = 1;
    for (int d = like.ndim - 1; d >= 0; --d) {
      strides[static_cast<std::size_t>(d)] = step;
      step *= like.sizes[d];
    }
    view.data = values.data();
    view.strides = strides.data();
    view.dtype = DType::Long;
    view.contiguous = true;
  }
};

/// out /= counts + extra where counts is not 0.
template <class T>
void divide_by_counts(const View& out, const Counts& counts, std::int64_t extra) {
  IndexWalk walk(out.ndim, out.sizes);
  walk.add(out.strides);
  auto* data = out.ptr<T>();
  for (const std::int64_t count : counts.values) {
    T& x = data[walk[0]];
    const std::int64_t n = count + extra;
    if (count == 0) {
    } else if constexpr (std::is_floating_point_v<T>) {
      x /= static_cast<T>(n);
    } else if constexpr (is_half_v<T>) {
      x = T(static_cast<float>(x) / static_cast<float>(n));
    } else if constexpr (!std::is_same_v<T, bool>) {
      const std::int64_t v = +x;
      x = static_cast<T>(v / n - (v % n < 0 ? 1 : 0));
    }
    walk.next();
  }
}

/// How to pair base with flat through the index of the kernel at hand.
using MakeSpace = std::function<IndexSpace(const View& base, const View& flat)>;

/// The reductions that scatter and index_reduce share. `flat` has the shape that `make` expects of it.
void reduce_into(const char* op, const View& out, const View& flat, IndexReduce reduce, bool include_self,
                 const MakeSpace& make) {
  ATHANOR_CHECK_TYPE(NotImplementedError, reduce != IndexReduce::Mean || out.dtype != DType::Bool, op,
                     "mean is not defined for bool");
  if (reduce == IndexReduce::None) return run_write(make(out, flat), write_action(item_of(out)));
  const Combine combine = reduce == IndexReduce::Multiply ? Combine::Multiply
                          : reduce == IndexReduce::Amax   ? Combine::Amax
                          : reduce == IndexReduce::Amin   ? Combine::Amin
                                                          : Combine::Add;
  const CombineScale scale;
  if (!include_self) {
    const Repeated identity(combine_identity(combine, out.dtype), flat, out.dtype);
    run_write(make(out, identity.view), write_action(item_of(out)));
  }
  run_write(make(out, flat), combine_action(combine, out.dtype, &scale));
  if (reduce != IndexReduce::Mean) return;
  Counts counts(out);
  const Repeated one(1, flat, DType::Long);
  run_write(make(counts.view, one.view), combine_action(Combine::Add, DType::Long, &scale));
  dispatch_all(out.dtype,
               [&](auto tag) { divide_by_counts<typename decltype(tag)::type>(out, counts, include_self ? 1 : 0); });
}

void scatter_cpu(const View& out, const View& index, const View& src, std::int64_t dim, IndexReduce reduce,
                 bool include_self) {
  reduce_into("scatter: ", out, src, reduce, include_self,
              [&](const View& base, const View& flat) { return space_pointwise("scatter: ", base, flat, index, dim); });
}

void scatter_value_cpu(const View& out, const View& index, Scalar value, std::int64_t dim, IndexReduce reduce) {
  const Repeated src(value, index, out.dtype);
  scatter_cpu(out, index, src.view, dim, reduce, true);
}

void index_add_cpu(const View& out, const View& index, const View& source, std::int64_t dim, Scalar alpha) {
  CombineScale scale(alpha);
  if (out.dtype == DType::Bool) scale.whole = alpha.toBool();  // 0.5 is true
  IndexSpace space = space_along("index_add: ", out, source, index, dim);
  space.plain_error = true;
  run_write(std::move(space), combine_action(Combine::Add, out.dtype, &scale));
}

void index_reduce_cpu(const View& out, const View& index, const View& source, std::int64_t dim, IndexReduce reduce,
                      bool include_self) {
  reduce_into("index_reduce: ", out, source, reduce, include_self, [&](const View& base, const View& flat) {
    return space_along("index_reduce: ", base, flat, index, dim);
  });
}

void index_put_cpu(const View& out, const View& values, ArrayRef<View> indices, bool accumulate) {
  const CombineScale scale;
  run_write(space_advanced("index_put: ", out, values, indices),
            accumulate ? combine_action(Combine::Add, out.dtype, &scale) : write_action(item_of(out)));
}

void put_cpu(const View& out, const View& index, const View& source, bool accumulate) {
  const CombineScale scale;
  run_write(space_flat("put: ", out, source, index),
            accumulate ? combine_action(Combine::Add, out.dtype, &scale) : write_action(item_of(out)));
}

ATHANOR_REGISTER_KERNEL(scatter_kernel, CPU, &scatter_cpu);
ATHANOR_REGISTER_KERNEL(scatter_value_kernel, CPU, &scatter_value_cpu);
ATHANOR_REGISTER_KERNEL(index_add_kernel, CPU, &index_add_cpu);
ATHANOR_REGISTER_KERNEL(index_reduce_kernel, CPU, &index_reduce_cpu);
ATHANOR_REGISTER_KERNEL(index_put_kernel, CPU, &index_put_cpu);
ATHANOR_REGISTER_KERNEL(put_kernel, CPU, &put_cpu);

}  // namespace
}  // namespace athanor::cpu
