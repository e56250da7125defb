// Reading and writing by index: gather, scatter, masks, advanced indexing.
#include "athanor/ops/index.h"

#include "athanor/ops/autocast.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/kernels/index.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reduce_extreme.h"
#include "athanor/ops/spread.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

Meta like(const Tensor& t) { return {DimVector(t.sizes()), t.dtype(), t.device(), {}}; }

void check_index_dtype(const char* op, const Tensor& index) {
  ATHANOR_CHECK_INDEX(index.dtype() == DType::Long || index.dtype() == DType::Int, op,
                      "(): Expected dtype int32/int64 for index, got ", index.dtype());
}

void check_same_dtype(const char* op, const Tensor& self, const Tensor& source) {
  ATHANOR_CHECK(self.dtype() == source.dtype(), op, "(): self (", dtype_libtorch_name(self.dtype()), ") and source (",
                dtype_libtorch_name(source.dtype()), ") must have the same dtype; convert one with .to()");
}

/// The kernels change `out`, which must hold self: the in-place form has it there already.
void hold_self(const Tensor& out, const Tensor& self) {
  if (!out.is_same(self)) launch(copy_kernel, out, self);
}

void check_gather_shapes(const char* op, const Tensor& self, const Tensor& index, std::int64_t dim) {
  const std::int64_t n = std::max<std::int64_t>(self.dim(), 1), m = std::max<std::int64_t>(index.dim(), 1);
  ATHANOR_CHECK(index.numel() == 0 || n == m, op, "(): Index tensor must have the same number of dimensions as self ",
                "tensor, got ", index.sizes(), " and ", self.sizes());
  for (std::int64_t d = 0; d < index.dim() && index.numel() && self.dim(); ++d)
    ATHANOR_CHECK(d == dim || index.size(d) <= self.size(d), op, "(): Expected index ", index.sizes(),
                  " to be smaller than self ", self.sizes(), " apart from dimension ", dim);
}

void check_scatter_shapes(const char* op, const Tensor& self, const Tensor& index, const Tensor& src,
                          std::int64_t dim) {
  check_gather_shapes(op, self, index, dim);
  bool fits =
      std::max<std::int64_t>(index.dim(), 1) == std::max<std::int64_t>(src.dim(), 1) && index.numel() <= src.numel();
  for (std::int64_t d = 0; fits && d < index.dim(); ++d) fits = src.dim() == 0 || index.size(d) <= src.size(d);
  ATHANOR_CHECK(fits || index.numel() == 0, op, "(): Expected index ", index.sizes(),
                " to have the number of dimensions of src and to be no larger, got src of shape ", src.sizes());
}

/// The gradient of a source of which only the part of part's shape was used.
Tensor widened(const Tensor& part, IntArrayRef sizes) {
  if (part.sizes() == sizes) return part;
  if (sizes.empty()) return reshape(part, sizes);  // a number counts as a list of one
  Tensor out = zeros(sizes, part.options());
  Tensor used = out;
  for (std::int64_t d = 0; d < part.dim(); ++d) used = slice(used, d, 0, part.size(d));
  copy_(used, part);
  return out;
}

}  // namespace

/// The entries of dim named by a 1-d index, in its order.
struct IndexSelect {
  ATHANOR_OP("index_select(Tensor self, int dim, Tensor index) -> Tensor | out");
  static constexpr bool inputs_apart = true;
  std::int64_t dim;
  SavedTensor index;
  DimVector from;
  Meta infer(const Tensor& self, const Tensor& i) {
    dim = wrap_dim(dim, self.dim(), "index_select");
    check_index_dtype("index_select", i);
    ATHANOR_CHECK_INDEX(i.dim() <= 1, "index_select(): Index is supposed to be a vector, got shape ", i.sizes());
    Meta m = like(self);
    from = m.sizes;
    if (self.dim() > 0) m.sizes[static_cast<std::size_t>(dim)] = i.numel();
    return m;
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& i) { launch(index_select_kernel, out, self, i, dim); }
  void save(const Node&, const Tensor&, const Tensor& i) { index.save(i); }
  void grad(GradCall& g) { spread(g, from, index_add_, dim, g.get(index), g.grad(), Scalar(1)); }
};

/// out[i][j] = self[index[i][j]][j] for dim 0.
struct Gather {
  ATHANOR_OP("gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor | out");
  static constexpr bool inputs_apart = true;
  std::int64_t dim;
  bool sparse_grad;
  SavedTensor index;
  DimVector from;
  Meta infer(const Tensor& self, const Tensor& i) {
    dim = wrap_dim(dim, self.dim(), "gather");
    check_index_dtype("gather", i);
    check_gather_shapes("gather", self, i, dim);
    from = DimVector(self.sizes());
    return {DimVector(i.sizes()), self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& i) { launch(gather_kernel, out, self, i, dim); }
  void save(const Node&, const Tensor&, const Tensor& i) { index.save(i); }
  void grad(GradCall& g) { spread(g, from, scatter_add_, dim, g.get(index), g.grad()); }
};

/// self with self[index[i][j]][j] = src[i][j] for dim 0.
struct Scatter {
  ATHANOR_OP("scatter(Tensor self, int dim, Tensor index, Tensor src) -> Tensor | inplace out");
  static constexpr bool inputs_apart = true;
  std::int64_t dim;
  SavedTensor index;
  DimVector source_sizes;
  Meta infer(const Tensor& self, const Tensor& i, const Tensor& src) {
    dim = wrap_dim(dim, self.dim(), "scatter");
    check_index_dtype("scatter", i);
    check_same_dtype("scatter", self, src);
    check_scatter_shapes("scatter", self, i, src, dim);
    source_sizes = DimVector(src.sizes());
    return like(self);
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& i, const Tensor& src) {
    hold_self(out, self);
    launch(scatter_kernel, out, i, src, dim, IndexReduce::None, true);
  }
  void save(const Node&, const Tensor&, const Tensor& i, const Tensor&) { index.save(i); }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, scatter(g.grad(), dim, g.get(index), Scalar(0)));
    if (g.needs(2)) g.set(2, widened(gather(g.grad(), dim, g.get(index)), source_sizes));
  }
};

struct ScatterValue {
  ATHANOR_OP("scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor | inplace out");
  static constexpr bool inputs_apart = true;
  std::int64_t dim;
  Scalar value;
  SavedTensor index;
  Meta infer(const Tensor& self, const Tensor& i) {
    dim = wrap_dim(dim, self.dim(), "scatter");
    check_index_dtype("scatter", i);
    check_gather_shapes("scatter", self, i, dim);
    return like(self);
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& i) {
    hold_self(out, self);
    launch(scatter_value_kernel, out, i, value, dim, IndexReduce::None);
  }
  void save(const Node&, const Tensor&, const Tensor& i) { index.save(i); }
  void grad(GradCall& g) { g.set(0, scatter(g.grad(), dim, g.get(index), Scalar(0))); }
};

/// As scatter, adding; repeated places add up.
struct ScatterAdd {
  ATHANOR_OP("scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor | inplace out");
  static constexpr bool inputs_apart = true;
  std::int64_t dim;
  SavedTensor index;
  DimVector source_sizes;
  Meta infer(const Tensor& self, const Tensor& i, const Tensor& src) {
    dim = wrap_dim(dim, self.dim(), "scatter_add");
    check_index_dtype("scatter_add", i);
    check_same_dtype("scatter_add", self, src);
    check_scatter_shapes("scatter_add", self, i, src, dim);
    source_sizes = DimVector(src.sizes());
    return like(self);
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& i, const Tensor& src) {
    hold_self(out, self);
    launch(scatter_kernel, out, i, src, dim, IndexReduce::Add, true);
  }
  void save(const Node&, const Tensor&, const Tensor& i, const Tensor&) { index.save(i); }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, g.grad());
    if (g.needs(2)) g.set(2, widened(gather(g.grad(), dim, g.get(index)), source_sizes));
  }
};

/// self with alpha * source added at the entries of dim named by index; repeats add up.
struct IndexAdd {
  ATHANOR_OP("index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor | inplace out");
  static constexpr bool inputs_apart = true;
  std::int64_t dim;
  Scalar alpha;
  SavedTensor index;
  Meta infer(const Tensor& self, const Tensor& i, const Tensor& source) {
    dim = wrap_dim(dim, self.dim(), "index_add");
    check_index_dtype("index_add", i);
    check_same_dtype("index_add", self, source);
    ATHANOR_CHECK_INDEX(i.dim() <= 1, "index_add(): Index is supposed to be a vector, got shape ", i.sizes());
    const std::int64_t have = source.dim() ? source.size(dim) : 1;
    ATHANOR_CHECK(i.numel() == have, "index_add(): Number of indices (", i.numel(),
                  ") should be equal to source.size(dim): (", have, "), for dim: ", dim);
    bool fits = self.dim() == source.dim();
    for (std::int64_t d = 0; fits && d < self.dim(); ++d) fits = d == dim || self.size(d) == source.size(d);
    ATHANOR_CHECK(fits,
                  "index_add(): source tensor shape must match self tensor shape, excluding the specified dimension. "
                  "Got self.shape = ",
                  self.sizes(), " source.shape = ", source.sizes(), ", dim = ", dim);
    return like(self);
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& i, const Tensor& source) {
    hold_self(out, self);
    launch(index_add_kernel, out, i, source, dim, alpha);
  }
  void save(const Node&, const Tensor&, const Tensor& i, const Tensor&) { index.save(i); }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, g.grad());
    if (g.needs(2)) {
      const Tensor part = index_select(g.grad(), dim, g.get(index));
      g.set(2, alpha.equal(1) ? part : mul(part, alpha));
    }
  }
};

namespace {

void check_copied(const char* op, const Tensor& self, std::int64_t dim, const Tensor& index, const Tensor& source) {
  ATHANOR_CHECK_INDEX(index.dim() <= 1, op, "(): Index should have dimension 1 or 0, got shape ", index.sizes());
  ATHANOR_CHECK_INDEX(self.dim() == source.dim() || self.dim() == 0 || source.dim() == 0, op,
                      "(): When source and destination are not scalars, their dimensionality must match. Source "
                      "dimensionality (",
                      source.dim(), "), destination dimensionality (", self.dim(), ")");
  const std::int64_t have = source.dim() ? source.size(dim) : 1;
  ATHANOR_CHECK_INDEX(index.numel() == have, op, "(): Number of indices (", index.numel(),
                      ") should be equal to source.size(dim) (", have, "), for dim: ", dim);
  bool fits = self.dim() == source.dim() || (self.dim() <= 1 && source.dim() <= 1);
  for (std::int64_t d = 0; fits && d < self.dim(); ++d)
    fits = d == dim || source.dim() == 0 || self.size(d) == source.size(d);
  ATHANOR_CHECK(fits, op, "(): Source/destination tensor must have same slice shapes, got ", source.sizes(), " for ",
                self.sizes(), " along dim ", dim);
}

}  // namespace

/// self with the entries of dim named by index replaced by source's.
struct IndexCopy {
  ATHANOR_OP("index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor | inplace out");
  static constexpr bool inputs_apart = true;
  std::int64_t dim;
  SavedTensor index;
  static void prepare(Tensor& self, const Tensor&, Tensor& source) {
    if (!athanor::detail::autocast_on || !is_floating_point(self.dtype()) || !is_floating_point(source.dtype())) return;
    const DType wider = promote_types(self.dtype(), source.dtype());
    self = cast(self, wider);
    source = cast(source, wider);
  }
  Meta infer(const Tensor& self, const Tensor& i, const Tensor& source) {
    dim = wrap_dim(dim, self.dim(), "index_copy");
    check_index_dtype("index_copy", i);
    check_same_dtype("index_copy", self, source);
    check_copied("index_copy", self, dim, i, source);
    return like(self);
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& i, const Tensor& source) {
    hold_self(out, self);
    launch(index_copy_kernel, out, i, source, dim);
  }
  void save(const Node&, const Tensor&, const Tensor& i, const Tensor&) { index.save(i); }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, index_fill(g.grad(), dim, g.get(index), Scalar(0)));
    if (g.needs(2)) g.set(2, index_select(g.grad(), dim, g.get(index)));
  }
};

/// self with the entries of dim named by index set to value.
struct IndexFill {
  ATHANOR_OP("index_fill(Tensor self, int dim, Tensor index, Scalar value) -> Tensor | inplace");
  static constexpr bool inputs_apart = true;
  std::int64_t dim;
  Scalar value;
  SavedTensor index;
  Meta infer(const Tensor& self, const Tensor& i) {
    dim = wrap_dim(dim, self.dim(), "index_fill");
    check_index_dtype("index_fill", i);
    return like(self);
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& i) {
    hold_self(out, self);
    launch(index_fill_kernel, out, i, value, dim);
  }
  void save(const Node&, const Tensor&, const Tensor& i) { index.save(i); }
  void grad(GradCall& g) { g.set(0, index_fill(g.grad(), dim, g.get(index), Scalar(0))); }
};

/// self[indices]: indices[d] (int64) belongs to dim d, undefined ones take the whole dim.
struct AdvancedIndex {
  ATHANOR_OP("index_with(Tensor self, Tensor[] indices) -> Tensor | function internal");
  static constexpr const char* grad_name = "IndexBackward0";
  std::vector<SavedTensor> indices;
  DimVector from;
  Meta infer(const Tensor& self, const TensorList& list) {
    from = DimVector(self.sizes());
    return {index_shape(self.sizes(), detail::ViewArray(list)), self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const TensorList& list) { launch(index_kernel, out, self, list); }
  void save(const Node&, const Tensor&, const TensorList& list) {
    for (const Tensor& t : list) indices.emplace_back(t);
  }
  void grad(GradCall& g) {
    std::vector<Tensor> list;
    for (const auto& s : indices) list.push_back(g.get(s));
    spread(g, from, index_put_with_, list, g.grad(), true);
  }
};

/// self with self[indices] = values, or += with accumulate.
struct AdvancedIndexPut {
  ATHANOR_OP(
      "index_put_with(Tensor self, Tensor[] indices, Tensor values, bool accumulate=False) -> Tensor | function "
      "internal inplace");
  static constexpr bool inputs_apart = true;
  static constexpr const char* grad_name = "IndexPutBackward0";
  bool accumulate;
  std::vector<SavedTensor> indices;
  Meta infer(const Tensor& self, const TensorList& list, const Tensor& values) {
    ATHANOR_CHECK(self.dtype() == values.dtype(), "index_put: expected the source and destination dtypes match, got ",
                  dtype_libtorch_name(self.dtype()), " for the destination and ", dtype_libtorch_name(values.dtype()),
                  " for the source.");
    const DimVector shape = index_shape(self.sizes(), detail::ViewArray(list));
    bool fits = values.dim() <= static_cast<std::int64_t>(shape.size());
    for (std::int64_t d = 1; fits && d <= values.dim(); ++d)
      fits = values.size(-d) == 1 || values.size(-d) == shape[shape.size() - static_cast<std::size_t>(d)];
    ATHANOR_CHECK(fits, "index_put: shape mismatch: value tensor of shape ", values.sizes(),
                  " cannot be broadcast to indexing result of shape ", IntArrayRef(shape));
    return like(self);
  }
  void run(const Tensor& out, const Tensor& self, const TensorList& list, const Tensor& values) {
    hold_self(out, self);
    launch(index_put_kernel, out, values, list, accumulate);
  }
  void save(const Node&, const Tensor&, const TensorList& list, const Tensor&) {
    for (const Tensor& t : list) indices.emplace_back(t);
  }
  void grad(GradCall& g) {
    std::vector<Tensor> list;
    for (const auto& s : indices) list.push_back(g.get(s));
    const std::size_t values = list.size() + 1;
    if (g.needs(0)) g.set(0, accumulate ? g.grad() : index_put_with(g.grad(), list, zeros({}, g.grad().options())));
    if (g.needs(values)) g.set(values, index_with(g.grad(), list));
  }
};

/// self with value where mask is true; mask broadcasts.
struct MaskedFill {
  ATHANOR_OP("masked_fill(Tensor self, Tensor mask, Scalar value) -> Tensor | inplace");
  Scalar value;
  SavedTensor mask;
  Meta infer(const Tensor& self, const Tensor& m) {
    ATHANOR_CHECK(m.dtype() == DType::Bool, "masked_fill only supports boolean masks, but got mask with dtype ",
                  m.dtype());
    value.check_fits(self.dtype(), "masked_fill");
    return pointwise_meta(schema, self.dtype(), {&self, &m});
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& m) { launch(masked_fill_kernel, out, self, m, value); }
  void save(const Node&, const Tensor&, const Tensor& m) { mask.save(m); }
  void grad(GradCall& g) { g.set(0, masked_fill(g.grad(), g.get(mask), Scalar(0))); }
};

ATHANOR_FUNCTION("masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor | inplace");
Tensor masked_fill(const Tensor& self, const Tensor& mask, const Tensor& value) {
  ATHANOR_CHECK(value.dim() == 0, "masked_fill only supports a 0-dimensional value tensor, but got tensor with ",
                value.dim(), " dimension(s).");
  return where(mask, cast(value, self.dtype()), self);
}

/// self with the first elements of source, in row-major order, where mask is true.
struct MaskedScatter {
  ATHANOR_OP("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor | inplace");
  static constexpr bool inputs_apart = true;
  SavedTensor mask;
  DimVector source_sizes;
  Meta infer(const Tensor& self, const Tensor& m, const Tensor& source) {
    ATHANOR_CHECK(m.dtype() == DType::Bool, "masked_scatter_ only supports boolean masks, but got mask with dtype ",
                  m.dtype());
    check_same_dtype("masked_scatter", self, source);
    source_sizes = DimVector(source.sizes());
    return pointwise_meta(schema, self.dtype(), {&self, &m});
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& m, const Tensor& source) {
    hold_self(out, self);
    launch(masked_scatter_kernel, out, m, source);
  }
  void save(const Node&, const Tensor&, const Tensor& m, const Tensor&) { mask.save(m); }
  void grad(GradCall& g) {
    const Tensor m = g.get(mask);
    if (g.needs(0)) g.set(0, masked_fill(g.grad(), m, Scalar(0)));
    if (g.needs(2)) {
      const Tensor used = masked_select(g.grad(), m);
      const Tensor flat = zeros({checked_numel(source_sizes, "masked_scatter")}, g.grad().options());
      copy_(slice(flat, 0, 0, used.numel()), used);
      g.set(2, reshape(flat, source_sizes));
    }
  }
};

/// The coordinates of the elements that are not zero, one row each. Waits for the values on a queued device.
ATHANOR_FUNCTION("nonzero(Tensor self) -> Tensor | out own_dtype");
Tensor nonzero(const Tensor& self) {
  const NoGradGuard off;
  const Tensor count = detail::empty_tensor({1}, DType::Long, given("nonzero", self).device());
  launch(nonzero_count_kernel, count, self);
  Tensor out = detail::empty_tensor({count.item().toLong(), self.dim()}, DType::Long, self.device());
  launch(nonzero_kernel, out, self);
  return out;
}

/// One index tensor per dim, as NumPy's nonzero.
ATHANOR_FUNCTION("nonzero_numpy(Tensor self) -> Tensor[] | internal");
std::vector<Tensor> nonzero_numpy(const Tensor& self) {
  const Tensor rows = nonzero(given("nonzero", self).dim() == 0 ? unsqueeze(self, 0) : self);
  std::vector<Tensor> out;
  for (std::int64_t d = 0; d < rows.size(1); ++d) out.push_back(select(rows, 1, d));
  return out;
}

/// argwhere is nonzero under another name.
ATHANOR_FUNCTION("argwhere(Tensor self) -> Tensor");
Tensor argwhere(const Tensor& self) { return nonzero(self); }

/// The elements where mask is true, 1-d. Waits for the mask on a queued device.
struct MaskedSelect {
  ATHANOR_OP("masked_select(Tensor self, Tensor mask) -> Tensor | out");
  static constexpr bool inputs_apart = true;
  SavedTensor mask;
  DimVector from;
  Meta infer(const Tensor& self, const Tensor& m) {
    ATHANOR_CHECK(m.dtype() == DType::Bool, "masked_select: expected BoolTensor for mask, got ", m.dtype());
    from = broadcast_shapes(self.sizes(), m.sizes(), "masked_select");
    const Tensor count = detail::empty_tensor({1}, DType::Long, self.device());
    {
      const NoGradGuard off;
      launch(nonzero_count_kernel, count, expand(m, from));
    }
    return {{count.item().toLong()}, self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& m) { launch(masked_select_kernel, out, self, m); }
  void save(const Node&, const Tensor&, const Tensor& m) { mask.save(m); }
  void grad(GradCall& g) {
    const Tensor m = expand(g.get(mask), from);
    spread(g, from, masked_scatter_, m, g.grad());
  }
};

/// self read as 1-d at index.
struct Take {
  ATHANOR_OP("take(Tensor self, Tensor index) -> Tensor | out");
  static constexpr bool inputs_apart = true;
  SavedTensor index;
  DimVector from;
  Meta infer(const Tensor& self, const Tensor& i) {
    check_index_dtype("take", i);
    from = DimVector(self.sizes());
    return {DimVector(i.sizes()), self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& i) { launch(take_kernel, out, self, i); }
  void save(const Node&, const Tensor&, const Tensor& i) { index.save(i); }
  void grad(GradCall& g) { spread(g, from, put_, g.get(index), g.grad(), true); }
};

/// self with the elements at index, read as 1-d, replaced by (or, accumulated, increased by) source's.
struct Put {
  ATHANOR_OP("put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor | inplace");
  static constexpr bool inputs_apart = true;
  bool accumulate;
  SavedTensor index;
  void prepare(Tensor&, Tensor& i, Tensor& source) {
    // The kernel walks index and source together.
    if (source.sizes() != i.sizes() && source.numel() == i.numel()) source = reshape(source, i.sizes());
  }
  Meta infer(const Tensor& self, const Tensor& i, const Tensor& source) {
    check_index_dtype("put", i);
    check_same_dtype("put", self, source);
    ATHANOR_CHECK(i.numel() == source.numel(),
                  "put: expected source and index to have the same number of elements, "
                  "got ",
                  source.numel(), " and ", i.numel());
    return like(self);
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& i, const Tensor& source) {
    hold_self(out, self);
    launch(put_kernel, out, i, source, accumulate);
  }
  void save(const Node&, const Tensor&, const Tensor& i, const Tensor&) { index.save(i); }
  void grad(GradCall& g) {
    const Tensor i = g.get(index);
    if (g.needs(0)) g.set(0, accumulate ? g.grad() : put(g.grad(), i, zeros(i.sizes(), g.grad().options())));
    if (g.needs(2)) g.set(2, take(g.grad(), i));
  }
};

/// gather with index broadcast against self apart from dim, negative ones counted from the end; without dim, self and
/// index are read as 1-d and indices are not negative.
ATHANOR_FUNCTION("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor | out");
Tensor take_along_dim(const Tensor& self, const Tensor& indices, std::optional<std::int64_t> dim) {
  ATHANOR_CHECK(indices.dtype() == DType::Long, "take_along_dim(): dtype of indices should be Long but got ",
                dtype_libtorch_name(indices.dtype()));
  if (!dim) return gather(reshape(self, {-1}), 0, reshape(indices, {-1}));
  ATHANOR_CHECK(self.dim() == indices.dim(), "take_along_dim(): input and indices should have the same number of ",
                "dimensions, but got shapes ", self.sizes(), " and ", indices.sizes());
  const std::int64_t d = wrap_dim(*dim, self.dim(), "take_along_dim");
  DimVector a(self.sizes()), b(indices.sizes());
  a[static_cast<std::size_t>(d)] = b[static_cast<std::size_t>(d)] = 1;
  const DimVector common = broadcast_shapes(a, b, "take_along_dim");
  a = b = common;
  a[static_cast<std::size_t>(d)] = self.size(d);
  b[static_cast<std::size_t>(d)] = indices.size(d);
  const Tensor index = where(lt(indices, 0), add(indices, Scalar(self.size(d))), indices);
  return gather(expand(self, a), d, expand(index, b));
}

/// Rows of weight named by indices.
struct Embedding {
  ATHANOR_OP(
      "embedding(Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) "
      "-> Tensor");
  std::int64_t padding_idx;
  bool scale_grad_by_freq, sparse;
  SavedTensor indices;
  std::int64_t rows = 0;
  Meta infer(const Tensor& weight, const Tensor& i) {
    ATHANOR_CHECK(weight.dim() == 2, "embedding: 'weight' must be 2-D, got shape ", weight.sizes());
    ATHANOR_CHECK(i.dtype() == DType::Long || i.dtype() == DType::Int,
                  "embedding: expected indices of dtype int64 or int32, got ", i.dtype(),
                  "; convert them with .to(kLong)");
    ATHANOR_CHECK(!sparse, "embedding: sparse gradients are not supported; use sparse=false");
    rows = weight.size(0);
    DimVector shape(i.sizes());
    shape.push_back(weight.size(1));
    return {shape, weight.dtype(), weight.device(), {}};
  }
  void run(const Tensor& out, const Tensor& weight, const Tensor& i) { launch(embedding_kernel, out, weight, i); }
  void save(const Node&, const Tensor&, const Tensor& i) { indices.save(i); }
  void grad(GradCall& g) {
    g.set(0, embedding_dense_backward(g.grad(), g.get(indices), rows, padding_idx, scale_grad_by_freq));
  }
};

/// The gradient of embedding's weight.
struct EmbeddingBackward {
  ATHANOR_OP(
      "embedding_dense_backward(Tensor grad_output, Tensor indices, int num_weights, int padding_idx, bool "
      "scale_grad_by_freq) -> Tensor");
  std::int64_t num_weights, padding_idx;
  bool scale_grad_by_freq;
  SavedTensor indices;
  Meta infer(const Tensor& grad, const Tensor&) {
    return {{num_weights, grad.size(-1)}, grad.dtype(), grad.device(), {}};
  }
  void run(const Tensor& out, const Tensor& grad, const Tensor& i) {
    launch(embedding_backward_kernel, out, grad, i, padding_idx, scale_grad_by_freq);
  }
  void save(const Node&, const Tensor&, const Tensor& i) { indices.save(i); }
  void grad(GradCall& g) {
    ATHANOR_CHECK_TYPE(NotImplementedError, !scale_grad_by_freq,
                       "embedding: double backward with scale_grad_by_freq is not supported");
    const Tensor i = g.get(indices);
    Tensor out = embedding(g.grad(), i);
    if (padding_idx >= 0) out = masked_fill(out, unsqueeze(eq(i, Scalar(padding_idx)), -1), Scalar(0));
    g.set(0, out);
  }
};

/// Scales rows of weight named by indices, in place, to a norm of at most max_norm.
ATHANOR_FUNCTION("embedding_renorm_(Tensor self, Tensor indices, float max_norm, float norm_type) -> Tensor");
void embedding_renorm_(const Tensor& self, const Tensor& indices, double max_norm, double norm_type) {
  const NoGradGuard off;
  launch(embedding_renorm_kernel, self, indices, max_norm, norm_type);
  self.impl()->bump_version();
}

/// int64 tensor with a last dim of num_classes: 1 at the class, else 0. -1: one more than the largest class.
ATHANOR_FUNCTION("one_hot(Tensor self, int num_classes=-1) -> Tensor | function");
Tensor one_hot(const Tensor& self, std::int64_t num_classes) {
  ATHANOR_CHECK(self.dtype() == DType::Long, "one_hot is only applicable to index tensor, got ", self.dtype());
  if (num_classes == -1) {
    ATHANOR_CHECK(self.numel() > 0, "one_hot: can not infer total number of classes from empty tensor.");
    const std::int64_t most = max(self).item().toLong();
    ATHANOR_CHECK(most < INT64_MAX, "one_hot: no tensor has a class for each number up to ", most);
    num_classes = most + 1;
  }
  ATHANOR_CHECK(num_classes > 0, "one_hot: num_classes should be positive, got ", num_classes);
  DimVector shape(self.sizes());
  shape.push_back(num_classes);
  Tensor out = detail::empty_tensor(shape, DType::Long, self.device());
  launch(one_hot_kernel, out, self);
  return out;
}

}  // namespace athanor::ops

#include "athanor/ops/index.glue.inc"
