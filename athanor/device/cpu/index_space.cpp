#include "athanor/device/cpu/index_space.h"

#include <algorithm>

#include "athanor/base/error.h"

namespace athanor::cpu {
namespace {

std::int64_t item_of(const View& v) { return static_cast<std::int64_t>(v.item_size()); }

IndexOperand make_operand(const char* op, const View& index, const View& base, std::int64_t dim, bool wrap) {
  ATHANOR_CHECK_INDEX(index.dtype == DType::Long || index.dtype == DType::Int, op,
                      "expected an index of dtype int64 or int32, got ", index.dtype);
  IndexOperand o;
  o.data = index.ptr<const char>();
  o.is_long = index.dtype == DType::Long;
  o.wrap = wrap;
  o.dim = dim;
  o.numel = index.numel;
  o.size = base.ndim == 0 ? 1 : base.size(static_cast<int>(dim));
  o.stride = base.ndim == 0 ? item_of(base) : base.stride(static_cast<int>(dim)) * item_of(base);
  return o;
}

IndexSpace start(const char* op, const View& base, const View& flat) {
  IndexSpace s;
  s.op = op;
  s.flat = flat.ptr<char>();
  s.base = base.ptr<char>();
  s.item = item_of(base);
  return s;
}

/// Strides in bytes of `v` when it is broadcast to `shape`.
DimVector broadcast_strides(const View& v, const DimVector& shape, const char* op) {
  DimVector strides(shape.size(), 0);
  const std::size_t lead = shape.size() - static_cast<std::size_t>(v.ndim);
  ATHANOR_CHECK(static_cast<std::size_t>(v.ndim) <= shape.size(), op, "shape ", v.shape(), " does not broadcast to ",
                IntArrayRef(shape));
  for (std::size_t d = lead; d < shape.size(); ++d) {
    const std::int64_t size = v.sizes[d - lead];
    ATHANOR_CHECK(size == shape[d] || size == 1, op, "shape mismatch: value tensor of shape ", v.shape(),
                  " cannot be broadcast to indexing result of shape ", IntArrayRef(shape));
    strides[d] = size == 1 ? 0 : v.strides[d - lead] * item_of(v);
  }
  return strides;
}

}  // namespace

std::int64_t IndexSpace::numel() const {
  std::int64_t n = 1;
  for (int d = 0; d < ndim; ++d) n *= sizes[d];
  return n;
}

void IndexSpace::simplify() {
  int kept = 0;
  const auto move = [&](int to, int from) {
    sizes[to] = sizes[from];
    flat_strides[to] = flat_strides[from];
    base_strides[to] = base_strides[from];
    for (auto& o : operands) o.strides[to] = o.strides[from];
  };
  const auto joins = [&](int outer, int inner) {
    const std::int64_t n = sizes[inner];
    if (flat_strides[outer] != flat_strides[inner] * n || base_strides[outer] != base_strides[inner] * n) return false;
    return std::all_of(operands.begin(), operands.end(),
                       [&](const IndexOperand& o) { return o.strides[outer] == o.strides[inner] * n; });
  };
  for (int d = 0; d < ndim; ++d) {
    if (sizes[d] == 1) continue;
    if (kept > 0 && joins(kept - 1, d)) {
      const std::int64_t merged = sizes[kept - 1] * sizes[d];
      move(kept - 1, d);
      sizes[kept - 1] = merged;
    } else {
      move(kept++, d);
    }
  }
  ndim = kept;
}

IndexSpace IndexSpace::narrow(int dim, std::int64_t begin, std::int64_t end) const {
  IndexSpace s = *this;
  s.flat += begin * flat_strides[dim];
  s.base += begin * base_strides[dim];
  for (auto& o : s.operands) o.data += begin * o.strides[dim];
  s.sizes[dim] = end - begin;
  return s;
}

IndexSpace space_along(const char* op, const View& base, const View& flat, const View& index, std::int64_t dim,
                       bool wrap) {
  IndexSpace s = start(op, base, flat);
  s.operands.push_back(make_operand(op, index, base, dim, wrap));
  const std::int64_t index_stride = index.ndim == 0 ? 0 : index.strides[0] * item_of(index);
  const std::int64_t item = s.item;
  if (base.ndim == 0) {
    s.add_dim(index.numel, flat.ndim == 0 ? 0 : flat.strides[0] * item, 0);
    s.operands[0].strides[0] = index_stride;
  }
  for (int d = 0; d < base.ndim; ++d) {
    const std::int64_t flat_stride = flat.ndim == 0 ? 0 : flat.strides[d] * item;
    if (d == dim) {
      s.add_dim(index.numel, flat_stride, 0);
      s.operands[0].strides[d] = index_stride;
    } else {
      s.add_dim(base.sizes[d], flat_stride, base.strides[d] * item);
    }
  }
  return s;
}

IndexSpace space_pointwise(const char* op, const View& base, const View& flat, const View& index, std::int64_t dim) {
  IndexSpace s = start(op, base, flat);
  s.plain_error = true;
  s.operands.push_back(make_operand(op, index, base, dim, false));
  for (int d = 0; d < index.ndim; ++d) {
    const std::int64_t flat_stride = flat.ndim == 0 ? 0 : flat.strides[d] * s.item;
    s.add_dim(index.sizes[d], flat_stride, d == dim || base.ndim == 0 ? 0 : base.strides[d] * s.item);
    s.operands[0].strides[d] = index.strides[d] * item_of(index);
  }
  return s;
}

IndexSpace space_advanced(const char* op, const View& base, const View& flat, ArrayRef<View> indices) {
  IndexSpace s = start(op, base, flat);
  s.unread = true;
  const DimVector shape = index_shape(base.shape(), indices);
  const DimVector flat_strides = broadcast_strides(flat, shape, op);
  std::size_t first = indices.size(), last = 0, count = 0;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].defined()) continue;
    s.operands.push_back(make_operand(op, indices[d], base, static_cast<std::int64_t>(d), true));
    first = std::min(first, d);
    last = d;
    ++count;
  }
  const std::size_t free_dims = static_cast<std::size_t>(base.ndim) - count;
  const std::size_t point_dims = shape.size() - free_dims;
  std::size_t at = 0;  // dim of the result
  const auto add_points = [&] {
    const std::size_t begin = at;
    for (std::size_t d = 0; d < point_dims; ++d, ++at) s.add_dim(shape[at], flat_strides[at], 0);
    std::size_t k = 0;
    for (const View& v : indices) {
      if (!v.defined()) continue;
      IndexOperand& o = s.operands[k++];
      const std::size_t lead = point_dims - static_cast<std::size_t>(v.ndim);
      for (int d = 0; d < v.ndim; ++d)
        o.strides[begin + lead + static_cast<std::size_t>(d)] = v.sizes[d] == 1 ? 0 : v.strides[d] * item_of(v);
    }
  };
  const bool adjacent = count > 0 && last - first + 1 == count;
  if (!adjacent && count > 0) add_points();
  for (std::size_t d = 0; d < static_cast<std::size_t>(base.ndim); ++d) {
    if (adjacent && d == first) add_points();
    if (d < indices.size() && indices[d].defined()) continue;
    s.add_dim(base.sizes[d], flat_strides[at], base.strides[d] * s.item);
    ++at;
  }
  return s;
}

IndexSpace space_flat(const char* op, const View& base, const View& flat, const View& index) {
  IndexSpace s = start(op, base, flat);
  IndexOperand o = make_operand(op, index, base, 0, true);
  o.size = base.numel;
  o.dim = -1;
  o.stride = base.contiguous ? s.item : 1;
  o.shape = base.contiguous ? nullptr : &base;
  s.operands.push_back(o);
  const bool same_shape = flat.shape().equals(index.shape());
  if (same_shape) {
    for (int d = 0; d < index.ndim; ++d) {
      s.add_dim(index.sizes[d], flat.strides[d] * s.item, 0);
      s.operands[0].strides[d] = index.strides[d] * item_of(index);
    }
    return s;
  }
  ATHANOR_CHECK(flat.contiguous && index.contiguous, op, "operands of different shapes must be contiguous");
  s.add_dim(index.numel, s.item, 0);
  s.operands[0].strides[0] = item_of(index);
  return s;
}

}  // namespace athanor::cpu
