// Reductions over any set of dimensions.
#include "athanor/ops/reduce.h"

#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/kernels/reduce.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce_op.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

std::uint64_t reduce_mask(std::optional<IntArrayRef> dims, std::int64_t ndim, const char* op, bool empty_is_all) {
  const std::uint64_t all = ndim >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << ndim) - 1;
  if (!dims || (dims->empty() && empty_is_all)) return all;
  std::uint64_t mask = 0;
  for (const std::int64_t d : *dims) {
    const std::int64_t w = wrap_dim(d, ndim, op);
    ATHANOR_CHECK(!(mask >> w & 1), op, ": dim ", w, " appears multiple times in the list of dims");
    mask |= std::uint64_t{1} << w;
  }
  return ndim == 0 ? 0 : mask;
}

DimVector reduced_keepdim(IntArrayRef sizes, std::uint64_t mask) {
  DimVector out(sizes);
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (mask >> d & 1) out[d] = 1;
  return out;
}

DimVector reduced_shape(IntArrayRef sizes, std::uint64_t mask) {
  DimVector out;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (!(mask >> d & 1)) out.push_back(sizes[d]);
  return out;
}

Tensor restore_dims(const Tensor& out, std::uint64_t mask, std::int64_t ndim) {
  DimVector shape;
  std::size_t next = 0;
  for (std::int64_t d = 0; d < ndim; ++d) shape.push_back(mask >> d & 1 ? 1 : out.sizes()[next++]);
  return reshape(out, shape);
}

Tensor keepdim_alias(const Tensor& out, IntArrayRef keepdim_sizes) {
  if (out.sizes() == keepdim_sizes) return out;
  DimVector strides;
  std::int64_t kept = 0;
  for (const std::int64_t s : keepdim_sizes) {
    const bool is_kept = kept < out.dim() && out.size(kept) == s;
    strides.push_back(is_kept ? out.stride(kept) : 1);
    if (is_kept) ++kept;
  }
  return detail::alias(out, keepdim_sizes, strides, out.storage_offset());
}

/// Sum over dims (all by default); integers and bool are summed in int64.
struct SumDim {
  ATHANOR_OP("sum.dim_IntList(Tensor self, int[]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor | out");
  static constexpr const char* grad_name = "SumBackward1";
  std::optional<DimVector> dim;
  bool keepdim;
  std::optional<DType> dtype;
  std::uint64_t mask = 0;
  DimVector from;
  Meta infer(const Tensor& self) {
    mask = reduce_mask(dim ? std::optional<IntArrayRef>(*dim) : std::nullopt, self.dim(), "sum");
    from = DimVector(self.sizes());
    const DType t = dtype.value_or(is_floating_point(self.dtype()) ? self.dtype() : DType::Long);
    return {keepdim ? reduced_keepdim(from, mask) : reduced_shape(from, mask), t, self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self) {
    launch(reduce_kernel, ReduceOp::Sum, keepdim_alias(out, reduced_keepdim(from, mask)), self, mask, 0.0);
  }
  void grad(GradCall& g) {
    const auto n = static_cast<std::int64_t>(from.size());
    g.set(0, expand(keepdim ? g.grad() : restore_dims(g.grad(), mask, n), from));
  }
};

struct SumAll {
  ATHANOR_OP("sum(Tensor self, *, ScalarType? dtype=None) -> Tensor");
  std::optional<DType> dtype;
  DimVector from;
  Meta infer(const Tensor& self) {
    from = DimVector(self.sizes());
    return {{}, dtype.value_or(is_floating_point(self.dtype()) ? self.dtype() : DType::Long), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self) {
    const std::uint64_t mask = reduce_mask(std::nullopt, self.dim(), "sum");
    launch(reduce_kernel, ReduceOp::Sum, keepdim_alias(out, reduced_keepdim(from, mask)), self, mask, 0.0);
  }
  void grad(GradCall& g) { g.set(0, expand(g.grad(), from)); }
};

/// self summed over what broadcasting had repeated, so that its shape becomes `size`.
ATHANOR_FUNCTION("sum_to_size(Tensor self, int[] size) -> Tensor | method");
Tensor sum_to_size(const Tensor& self, IntArrayRef size) {
  if (self.sizes() == size) return self;
  const std::int64_t extra = self.dim() - static_cast<std::int64_t>(size.size());
  ATHANOR_CHECK(extra >= 0, "sum_to_size: size ", size, " is not expandable to ", self.sizes());
  DimVector dims;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const std::int64_t want = d < extra ? 1 : size[static_cast<std::size_t>(d - extra)];
    ATHANOR_CHECK(want == self.size(d) || want == 1, "sum_to_size: size ", size, " is not expandable to ",
                  self.sizes());
    if (d < extra || (want == 1 && self.size(d) != 1)) dims.push_back(d);
  }
  Tensor out = dims.empty() ? self : sum(self, IntArrayRef(dims), true, std::nullopt);
  return extra > 0 || out.sizes() != size ? reshape(out, size) : out;
}

}  // namespace athanor::ops

#include "athanor/ops/reduce.glue.inc"
