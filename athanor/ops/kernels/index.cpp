#include "athanor/ops/kernels/index.h"

#include <algorithm>

namespace athanor {

#define ATHANOR_KERNEL(name, ...) \
  constinit decltype(name##_kernel) name##_kernel { #name __VA_OPT__(, ) __VA_ARGS__ }
ATHANOR_KERNEL(index_select);
ATHANOR_KERNEL(gather);
ATHANOR_KERNEL(scatter, kUpdates);
ATHANOR_KERNEL(scatter_value, kUpdates);
ATHANOR_KERNEL(index_add, kUpdates);
ATHANOR_KERNEL(index_copy, kUpdates);
ATHANOR_KERNEL(index_fill, kUpdates);
ATHANOR_KERNEL(index_reduce, kUpdates);
ATHANOR_KERNEL(index);
ATHANOR_KERNEL(index_put, kUpdates);
ATHANOR_KERNEL(take);
ATHANOR_KERNEL(put, kUpdates);
ATHANOR_KERNEL(masked_fill);
ATHANOR_KERNEL(masked_scatter, kUpdates);
ATHANOR_KERNEL(masked_select);
ATHANOR_KERNEL(nonzero_count);
ATHANOR_KERNEL(nonzero);
ATHANOR_KERNEL(cat);
ATHANOR_KERNEL(flip);
ATHANOR_KERNEL(roll);
ATHANOR_KERNEL(repeat);
ATHANOR_KERNEL(repeat_interleave);
ATHANOR_KERNEL(tril);
ATHANOR_KERNEL(triu);
ATHANOR_KERNEL(embedding);
ATHANOR_KERNEL(embedding_backward);
ATHANOR_KERNEL(embedding_renorm, kUpdates);
ATHANOR_KERNEL(one_hot);
#undef ATHANOR_KERNEL

namespace {

/// The shape to which the defined index views broadcast.
DimVector broadcast_indices(ArrayRef<View> indices) {
  DimVector shape;
  for (const View& v : indices) {
    if (!v.defined()) continue;
    const auto ndim = v.shape().size();
    while (shape.size() < ndim) shape.insert(0, 1);
    for (std::size_t d = 0; d < ndim; ++d) {
      std::int64_t& size = shape[shape.size() - ndim + d];
      if (v.sizes[d] == 1) continue;
      ATHANOR_CHECK_INDEX(size == 1 || size == v.sizes[d],
                          "index: shape mismatch: indexing tensors could not be broadcast together: ", v.shape(),
                          " does not fit ", IntArrayRef(shape));
      size = v.sizes[d];
    }
  }
  return shape;
}

}  // namespace

DimVector index_shape(IntArrayRef sizes, ArrayRef<View> indices) {
  ATHANOR_CHECK_INDEX(indices.size() <= sizes.size(), "index: too many indices for tensor of dimension ", sizes.size(),
                      ": got ", indices.size());
  const DimVector points = broadcast_indices(indices);
  std::size_t first = sizes.size(), last = 0, count = 0;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].defined()) continue;
    first = std::min(first, d);
    last = d;
    ++count;
  }
  if (count == 0) return DimVector(sizes);
  const bool adjacent = last - first + 1 == count;
  DimVector shape;
  const auto add_points = [&] {
    for (const std::int64_t n : points) shape.push_back(n);
  };
  if (!adjacent) add_points();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (adjacent && d == first) add_points();
    if (d >= indices.size() || !indices[d].defined()) shape.push_back(sizes[d]);
  }
  return shape;
}

}  // namespace athanor
