// Writing by index with a reduction: scatter_reduce and index_reduce.
#include "athanor/ops/index_reduce.h"

#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/index.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/kernels/index.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

IndexReduce reduction_named(const char* op, std::string_view name, bool with_sum) {
  if (name == "prod") return IndexReduce::Multiply;
  if (name == "mean") return IndexReduce::Mean;
  if (name == "amax") return IndexReduce::Amax;
  if (name == "amin") return IndexReduce::Amin;
  if (with_sum && name == "sum") return IndexReduce::Add;
  ATHANOR_THROW(Error, op, "(): reduce argument must be one of ", with_sum ? "sum, " : "",
                "prod, mean, amax, amin, got ", name);
}

/// What the gradients of both ops are written with: reading self's places and adding to them.
struct Places {
  bool along_dim;  ///< index_reduce: one index for a whole slice
  std::int64_t dim;
  Tensor index;
  Tensor read(const Tensor& t) const { return along_dim ? index_select(t, dim, index) : gather(t, dim, index); }
  Tensor added(const Tensor& to, const Tensor& what) const {
    return along_dim ? index_add(to, dim, index, what) : scatter_add(to, dim, index, what);
  }
  Tensor set(const Tensor& to, const Scalar& value) const {
    return along_dim ? index_fill(to, dim, index, value) : scatter(to, dim, index, value);
  }
};

struct Gradients {
  Tensor self, src;
};

/// `src` has the index's shape.
Gradients reduce_gradients(const Tensor& grad, const Tensor& self, const Tensor& src, const Tensor& result,
                           const Places& at, IndexReduce reduce, bool include_self) {
  Gradients g;
  const TensorOptions options = self.options();
  switch (reduce) {
    case IndexReduce::Add:
      g = {grad, at.read(grad)};
      break;
    case IndexReduce::Mean: {
      Tensor count = include_self ? ones(self.sizes(), options) : zeros(self.sizes(), options);
      count = clamp_min(at.added(count, ones(src.sizes(), options)), 1);
      g = {div(grad, count), at.read(div(grad, count))};
      break;
    }
    case IndexReduce::Multiply: {
      // Products of all but one factor; zeros are counted apart, so that one zero leaves its own gradient.
      const Tensor own = include_self ? self : at.set(self, Scalar(1));
      const Tensor own_zero = eq(own, 0), src_zero = eq(src, 0);
      ATHANOR_CHECK_TYPE(
          NotImplementedError,
          !GradMode::is_enabled() || !(any(own_zero).item().toBool() || any(src_zero).item().toBool()),
          "scatter_reduce, index_reduce: gradients of the gradient of \"prod\" are not supported where a ",
          "factor is zero");
      const Tensor filled_own = masked_fill(own, own_zero, Scalar(1)),
                   filled_src = masked_fill(src, src_zero, Scalar(1));
      Tensor product = filled_own;
      product = at.along_dim ? index_reduce(product, at.dim, at.index, filled_src, "prod", true)
                             : scatter_reduce(product, at.dim, at.index, filled_src, "prod", true);
      const Tensor zeros_at = at.added(cast(own_zero, self.dtype()), cast(src_zero, self.dtype()));
      auto share = [&](const Tensor& all, const Tensor& count, const Tensor& factor, const Tensor& is_zero) {
        const Tensor none = div(all, factor);
        const Tensor only = logical_and(is_zero, eq(count, 1));
        return where(eq(count, 0), none, where(only, all, Scalar(0)));
      };
      g.self = mul(grad, share(product, zeros_at, filled_own, own_zero));
      g.src = mul(at.read(grad), share(at.read(product), at.read(zeros_at), filled_src, src_zero));
      break;
    }
    default: {
      // Equals share.
      Tensor from_self = cast(eq(self, result), self.dtype());
      if (!include_self) from_self = at.set(from_self, Scalar(0));
      const Tensor from_src = cast(eq(src, at.read(result)), self.dtype());
      // Places that nothing reaches keep self's gradient whole.
      const Tensor count = clamp_min(at.added(from_self, from_src), 1);
      const Tensor each = div(grad, count);
      g = {mul(each, from_self), mul(at.read(each), from_src)};
    }
  }
  if (!include_self) g.self = at.set(g.self, Scalar(0));
  return g;
}

Meta checked(const char* op, const Tensor& self, const Tensor& index, const Tensor& src, std::int64_t& dim) {
  dim = wrap_dim(dim, self.dim(), op);
  ATHANOR_CHECK_INDEX(index.dtype() == DType::Long || index.dtype() == DType::Int, op,
                      "(): Expected dtype int32/int64 for index, got ", index.dtype());
  ATHANOR_CHECK(self.dtype() == src.dtype(), op, "(): self (", dtype_libtorch_name(self.dtype()), ") and src (",
                dtype_libtorch_name(src.dtype()), ") must have the same dtype; convert one with .to()");
  return {DimVector(self.sizes()), self.dtype(), self.device(), {}};
}

/// The part of t that index covers.
Tensor covered(Tensor t, IntArrayRef sizes) {
  for (std::int64_t d = 0; d < t.dim(); ++d)
    if (t.sizes()[static_cast<std::size_t>(d)] != sizes[static_cast<std::size_t>(d)])
      t = narrow(t, d, 0, sizes[static_cast<std::size_t>(d)]);
  return t;
}

}  // namespace

/// self with src's elements combined into the places that index names along dim (as scatter): "sum", "prod", "mean",
/// "amax" or "amin". Without include_self the old values of those places do not count.
struct ScatterReduce {
  ATHANOR_OP(
      "scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> "
      "Tensor | inplace out");
  static constexpr bool inputs_apart = true;
  static constexpr const char* grad_name = "ScatterReduceBackward0";
  static constexpr bool keeps_self = true;
  std::int64_t dim;
  std::string_view reduce;
  bool include_self;
  IndexReduce kind = IndexReduce::Add;
  SavedTensor x, where, from, y;
  Meta infer(const Tensor& self, const Tensor& index, const Tensor& src) {
    kind = reduction_named("scatter_reduce", reduce, true);
    Meta m = checked("scatter_reduce", self, index, src, dim);
    const std::int64_t n = std::max<std::int64_t>(self.dim(), 1);
    ATHANOR_CHECK(index.numel() == 0 || (std::max<std::int64_t>(index.dim(), 1) == n &&
                                         std::max<std::int64_t>(src.dim(), 1) == n && index.numel() <= src.numel()),
                  "scatter_reduce(): Index and src must have as many dimensions as self, got shapes ", index.sizes(),
                  ", ", src.sizes(), " and ", self.sizes());
    for (std::int64_t d = 0; d < index.dim() && index.numel() && self.dim() && src.dim(); ++d)
      ATHANOR_CHECK((d == dim || index.size(d) <= self.size(d)) && index.size(d) <= src.size(d),
                    "scatter_reduce(): Expected index ", index.sizes(), " to be smaller than self ", self.sizes(),
                    " apart from dimension ", dim, " and to be smaller size than src ", src.sizes());
    return m;
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& index, const Tensor& src) {
    if (!out.is_same(self)) launch(copy_kernel, out, self);
    launch(scatter_kernel, out, index, src, dim, kind, include_self);
  }
  void save(const Node&, const Tensor& self, const Tensor& index, const Tensor& src) {
    reduce = {};  // the node outlives it
    x.save(self);
    where.save(index);
    from.save(src);
  }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) {
    const Tensor index = g.get(where), src = g.get(from);
    const Tensor used = covered(src, index.sizes());
    const Gradients both =
        reduce_gradients(g.grad(), g.get(x), used, g.get(y), {false, dim, index}, kind, include_self);
    if (g.needs(0)) g.set(0, both.self);
    if (!g.needs(2)) return;
    if (used.sizes() == src.sizes()) return g.set(2, both.src);
    const Tensor whole = zeros(src.sizes(), src.options());
    copy_(covered(whole, index.sizes()), both.src);
    g.set(2, whole);
  }
};

/// self with the slices of source combined into the slices that a 1-d index names: "prod", "mean", "amax" or "amin".
struct IndexReduceOp {
  ATHANOR_OP(
      "index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> "
      "Tensor "
      "| inplace out");
  static constexpr bool inputs_apart = true;
  static constexpr const char* grad_name = "IndexReduceBackward0";
  static constexpr bool keeps_self = true;
  std::int64_t dim;
  std::string_view reduce;
  bool include_self;
  IndexReduce kind = IndexReduce::Add;
  SavedTensor x, where, from, y;
  Meta infer(const Tensor& self, const Tensor& index, const Tensor& source) {
    kind = reduction_named("index_reduce", reduce, false);
    Meta m = checked("index_reduce", self, index, source, dim);
    ATHANOR_CHECK_INDEX(index.dim() <= 1, "index_reduce(): Index is supposed to be a vector, got shape ",
                        index.sizes());
    DimVector expected(self.sizes());
    if (!expected.empty()) expected[static_cast<std::size_t>(dim)] = index.numel();
    ATHANOR_CHECK(source.sizes() == IntArrayRef(expected), "index_reduce(): expected source of shape ",
                  IntArrayRef(expected), " for ", index.numel(), " indices along dim ", dim, " of self of shape ",
                  self.sizes(), ", got ", source.sizes());
    return m;
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& index, const Tensor& source) {
    if (!out.is_same(self)) launch(copy_kernel, out, self);
    launch(index_reduce_kernel, out, index, source, dim, kind, include_self);
  }
  void save(const Node&, const Tensor& self, const Tensor& index, const Tensor& source) {
    reduce = {};  // the node outlives it
    x.save(self);
    where.save(index);
    from.save(source);
  }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) {
    const Gradients both =
        reduce_gradients(g.grad(), g.get(x), g.get(from), g.get(y), {true, dim, g.get(where)}, kind, include_self);
    if (g.needs(0)) g.set(0, both.self);
    if (g.needs(2)) g.set(2, both.src);
  }
};

}  // namespace athanor::ops

#include "athanor/ops/index_reduce.glue.inc"
