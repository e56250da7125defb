// Diagonals: reading, building and changing them.
#include "athanor/ops/diagonal.h"

#include "athanor/ops/autocast.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/op.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

struct Dims {
  std::int64_t first, second;
};

Dims wrap_dims(std::int64_t dim1, std::int64_t dim2, std::int64_t ndim, const char* op) {
  const Dims d{wrap_dim(dim1, ndim, op), wrap_dim(dim2, ndim, op)};
  ATHANOR_CHECK(d.first != d.second, op, ": diagonal dimensions cannot be identical ", dim1, ", ", dim2);
  return d;
}

/// Of a matrix. Offsets beyond it, the extreme ones included, leave nothing.
std::int64_t diagonal_length(std::int64_t rows, std::int64_t columns, std::int64_t offset) {
  if (offset >= 0) return offset < columns ? std::min(rows, columns - offset) : 0;
  return offset > -rows ? std::min(rows + offset, columns) : 0;
}

Geometry diagonal_geometry(const Tensor& self, std::int64_t offset, Dims dims) {
  Geometry g{DimVector(self.sizes()), DimVector(self.strides()), self.storage_offset()};
  const auto a = static_cast<std::size_t>(dims.first), b = static_cast<std::size_t>(dims.second);
  const std::int64_t length = diagonal_length(g.sizes[a], g.sizes[b], offset), step = g.strides[a] + g.strides[b];
  if (length > 0) g.offset += offset >= 0 ? offset * g.strides[b] : -offset * g.strides[a];
  g.sizes.erase(std::max(a, b));
  g.sizes.erase(std::min(a, b));
  g.strides.erase(std::max(a, b));
  g.strides.erase(std::min(a, b));
  g.sizes.push_back(length);
  g.strides.push_back(step);
  return g;
}

Tensor diagonal_alias(const Tensor& self, std::int64_t offset, Dims dims) {
  const Geometry g = diagonal_geometry(self, offset, dims);
  return detail::alias(self, g.sizes, g.strides, g.offset);
}

}  // namespace

/// The elements whose indices along dim2 and dim1 differ by offset, as a last dim; dim1 and dim2 disappear.
struct Diagonal {
  ATHANOR_VIEW("diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor");
  std::int64_t offset, dim1, dim2;
  DimVector from;
  Geometry view(const Tensor& self) {
    const Dims d = wrap_dims(dim1, dim2, self.dim(), "diagonal");
    dim1 = d.first;
    dim2 = d.second;
    from = DimVector(self.sizes());
    return diagonal_geometry(self, offset, d);
  }
  void grad(GradCall& g) { g.set(0, diagonal_backward(g.grad(), from, offset, dim1, dim2)); }
};

/// Zeros of `input_sizes` with grad_output on their diagonal.
struct DiagonalBackward {
  ATHANOR_OP(
      "diagonal_backward(Tensor grad_output, int[] input_sizes, int offset, int dim1, int dim2) -> Tensor | function");
  DimVector input_sizes;
  std::int64_t offset, dim1, dim2;
  Meta infer(const Tensor& grad) {
    const Dims d = wrap_dims(dim1, dim2, static_cast<std::int64_t>(input_sizes.size()), "diagonal_backward");
    dim1 = d.first;
    dim2 = d.second;
    const auto a = static_cast<std::size_t>(dim1), b = static_cast<std::size_t>(dim2);
    DimVector sizes = input_sizes;
    sizes.push_back(diagonal_length(sizes[a], sizes[b], offset));
    sizes.erase(std::max(a, b));
    sizes.erase(std::min(a, b));
    ATHANOR_CHECK(grad.sizes() == IntArrayRef(sizes), "diagonal_backward: diagonal ", offset, " of ",
                  IntArrayRef(input_sizes), " has the shape ", IntArrayRef(sizes), ", but its gradient has ",
                  grad.sizes());
    return {input_sizes, grad.dtype(), grad.device(), {}};
  }
  void run(const Tensor& out, const Tensor& grad) {
    launch(fill_kernel, out, Scalar(0));
    launch(copy_kernel, diagonal_alias(out, offset, {dim1, dim2}), grad);
  }
  void grad(GradCall& g) { g.set(0, diagonal(g.grad(), offset, dim1, dim2)); }
};

/// self's last dim laid on diagonal `offset` of new dims dim1 and dim2, zero elsewhere.
struct DiagEmbed {
  ATHANOR_OP("diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor");
  std::int64_t offset, dim1, dim2;
  Meta infer(const Tensor& self) {
    const Dims d = wrap_dims(dim1, dim2, self.dim() + 1, "diag_embed");
    ATHANOR_CHECK_INDEX(self.dim() > 0, "diag_embed: expected at least a 1-d tensor, got a 0-d one");
    dim1 = d.first;
    dim2 = d.second;
    std::int64_t n = 0;
    ATHANOR_CHECK(offset != INT64_MIN && !__builtin_add_overflow(self.size(-1), std::abs(offset), &n),
                  "diag_embed: offset ", offset, " makes the result too large");
    Meta m{DimVector(self.sizes()), self.dtype(), self.device(), {}};
    m.sizes.pop_back();
    m.sizes.insert(static_cast<std::size_t>(std::min(dim1, dim2)), n);
    m.sizes.insert(static_cast<std::size_t>(std::max(dim1, dim2)), n);
    return m;
  }
  void run(const Tensor& out, const Tensor& self) {
    launch(fill_kernel, out, Scalar(0));
    launch(copy_kernel, diagonal_alias(out, offset, {dim1, dim2}), self);
  }
  void grad(GradCall& g) { g.set(0, diagonal(g.grad(), offset, dim1, dim2)); }
};

/// A matrix with the vector self on its diagonal, or a copy of the diagonal of the matrix self.
ATHANOR_FUNCTION("diag(Tensor self, int diagonal=0) -> Tensor | out");
Tensor diag(const Tensor& self, std::int64_t diagonal) {
  ATHANOR_CHECK(self.dim() == 1 || self.dim() == 2, "diag(): Supports 1D or 2D tensors. Got ", self.dim(), "D");
  return self.dim() == 1 ? diag_embed(self, diagonal, 0, 1) : clone(ops::diagonal(self, diagonal, 0, 1));
}

/// self as a vector on the diagonal of a matrix.
ATHANOR_FUNCTION("diagflat(Tensor self, int offset=0) -> Tensor");
Tensor diagflat(const Tensor& self, std::int64_t offset) {
  return diag_embed(reshape(self, {self.numel()}), offset, 0, 1);
}

/// Sum of the diagonal of a matrix.
ATHANOR_FUNCTION("trace(Tensor self) -> Tensor");
Tensor trace(const Tensor& self) {
  ATHANOR_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  return sum(diagonal(autocast_to_float(self)));
}

/// A copy of self with src on its diagonal.
struct DiagonalScatter {
  ATHANOR_OP("diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor");
  std::int64_t offset, dim1, dim2;
  DimVector src_sizes;
  Meta infer(const Tensor& self, const Tensor& src) {
    const Dims d = wrap_dims(dim1, dim2, self.dim(), "diagonal_scatter");
    dim1 = d.first;
    dim2 = d.second;
    src_sizes = diagonal_geometry(self, offset, d).sizes;
    ATHANOR_CHECK(src.sizes() == IntArrayRef(src_sizes), "diagonal_scatter: expected src to have a size equal to the ",
                  "slice of self. src size = ", src.sizes(), ", slice size = ", IntArrayRef(src_sizes));
    return {DimVector(self.sizes()), self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& src) {
    launch(copy_kernel, out, self);
    launch(copy_kernel, diagonal_alias(out, offset, {dim1, dim2}), src);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, diagonal_scatter(g.grad(), zeros(src_sizes, g.grad().options()), offset, dim1, dim2));
    if (g.needs(1)) g.set(1, diagonal(g.grad(), offset, dim1, dim2));
  }
};

}  // namespace athanor::ops

#include "athanor/ops/diagonal.glue.inc"
