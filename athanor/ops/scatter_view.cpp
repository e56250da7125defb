// Copies of a tensor with a part of it, named like a view, replaced.
#include "athanor/ops/scatter_view.h"

#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/op.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

/// The part of `t` that view(t) shows, outside the graph.
template <class View>
Tensor part_of(const Tensor& t, View&& view) {
  const NoGradGuard guard;
  return view(t);
}

Meta check_part(const char* op, const Tensor& self, const Tensor& src, const Tensor& part) {
  ATHANOR_CHECK(src.sizes() == part.sizes(), op,
                ": expected src to have a size equal to the slice of self. src size = ", src.sizes(),
                ", slice size = ", part.sizes());
  Meta m{DimVector(self.sizes()), self.dtype(), self.device(), {}};
  if (!self.is_contiguous() && self.is_non_overlapping_and_dense()) m.strides = DimVector(self.strides());
  return m;
}

}  // namespace

/// A copy of self with src at index `index` of dim.
struct SelectScatter {
  ATHANOR_OP("select_scatter(Tensor self, Tensor src, int dim, int index) -> Tensor");
  std::int64_t dim, index;
  DimVector src_sizes;
  Tensor part(const Tensor& t) const {
    return part_of(t, [&](const Tensor& x) { return select(x, dim, index); });
  }
  Meta infer(const Tensor& self, const Tensor& src) {
    src_sizes = DimVector(src.sizes());
    return check_part("select_scatter", self, src, part(self));
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& src) {
    launch(copy_kernel, out, self);
    launch(copy_kernel, part(out), src);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, select_scatter(g.grad(), zeros(src_sizes, g.grad().options()), dim, index));
    if (g.needs(1)) g.set(1, select(g.grad(), dim, index));
  }
};

/// A copy of self with src in the slice start:end:step of dim.
struct SliceScatter {
  ATHANOR_OP("slice_scatter(Tensor self, Tensor src, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor");
  std::int64_t dim;
  std::optional<std::int64_t> start, end;
  std::int64_t step;
  DimVector src_sizes;
  Tensor part(const Tensor& t) const {
    return part_of(t, [&](const Tensor& x) { return slice(x, dim, start, end, step); });
  }
  Meta infer(const Tensor& self, const Tensor& src) {
    src_sizes = DimVector(src.sizes());
    return check_part("slice_scatter", self, src, part(self));
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& src) {
    launch(copy_kernel, out, self);
    launch(copy_kernel, part(out), src);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, slice_scatter(g.grad(), zeros(src_sizes, g.grad().options()), dim, start, end, step));
    if (g.needs(1)) g.set(1, slice(g.grad(), dim, start, end, step));
  }
};

/// A copy of self, laid out as self is, with src in the memory that as_strided would show. The gradient needs a self
/// whose elements are all at places of their own.
struct AsStridedScatter {
  ATHANOR_OP(
      "as_strided_scatter(Tensor self, Tensor src, int[] size, int[] stride, int? storage_offset=None) -> Tensor");
  DimVector size, stride;
  std::optional<std::int64_t> storage_offset;
  DimVector self_sizes, self_strides;
  Tensor part(const Tensor& t) const {
    return part_of(t, [&](const Tensor& x) { return as_strided(x, size, stride, storage_offset); });
  }
  Meta infer(const Tensor& self, const Tensor& src) {
    ATHANOR_CHECK(self.is_non_overlapping_and_dense() && self.storage_offset() == 0,
                  "as_strided_scatter: self of sizes ", self.sizes(), " and strides ", self.strides(),
                  " has gaps or repeats in memory; call contiguous() first");
    self_sizes = DimVector(self.sizes());
    self_strides = DimVector(self.strides());
    return check_part("as_strided_scatter", self, src, part(self));
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& src) {
    launch(copy_kernel, out, self);
    launch(copy_kernel, part(out), src);
  }
  void grad(GradCall& g) {
    // The incoming gradient in self's own memory layout.
    Tensor laid = as_strided(zeros(DimVector{checked_numel(self_sizes, "as_strided_scatter")}, g.grad().options()),
                             self_sizes, self_strides, 0);
    copy_(laid, g.grad());
    if (g.needs(0)) g.set(0, as_strided_scatter(laid, zeros(size, g.grad().options()), size, stride, storage_offset));
    if (g.needs(1)) g.set(1, as_strided(laid, size, stride, storage_offset));
  }
};

}  // namespace athanor::ops

#include "athanor/ops/scatter_view.glue.inc"
