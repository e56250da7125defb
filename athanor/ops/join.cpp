// Joining, cutting and rearranging: cat, stack, split, flip, roll, repeat, triangles.
#include "athanor/ops/join.h"

#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/history.h"
#include "athanor/ops/index.h"
#include "athanor/ops/kernels/index.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pad.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reshape.h"
#include "athanor/ops/spatial.h"
#include "athanor/ops/spread.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

/// 1-d tensors without elements are left out of a cat, whatever the others' shape.
bool is_skipped(const Tensor& t) { return t.dim() == 1 && t.numel() == 0; }

Tensor as_one_of_several(Tensor view) {
  if (AutogradMeta* meta = detail::autograd_meta_or_null(view); meta && meta->origin == ViewOrigin::Ordinary)
    meta->origin = ViewOrigin::MultiOutput;
  return view;
}

/// The parts of a tensor together: one gradient is joined from theirs, instead of a sum of one with zeros for each.
class SplitNode final : public Node {
 public:
  explicit SplitNode(std::int64_t dim) : dim_(dim) {}
  void apply(const GradList& in, GradList& out) override {
    if (!needs(0)) return;
    const TensorBase* given = nullptr;
    for (std::size_t i = 0; i < num_outputs() && !given; ++i)
      if (in[i].defined()) given = &in[i];
    if (!given) return;
    if (const Tensor whole = joined_again(in, num_outputs(), dim_); whole.defined()) {
      out[0] = whole;
      return;
    }
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < num_outputs(); ++i)
      parts.push_back(in[i].defined() ? in[i] : zeros(output(i).sizes, given->options()));
    out[0] = cat(parts, dim_);
  }
  std::string name() const override { return "SplitWithSizesBackward0"; }

 private:
  const std::int64_t dim_;
};

}  // namespace

/// Inputs of one dtype joined along dim.
struct Cat {
  ATHANOR_OP("cat_same_dtype(Tensor[] tensors, int dim) -> Tensor | function internal");
  static constexpr const char* grad_name = "CatBackward0";
  std::int64_t dim;
  std::vector<std::int64_t> lengths;  // -1: skipped
  Meta infer(const TensorList& tensors) {
    const Tensor* first = nullptr;
    std::int64_t total = 0;
    for (const Tensor& t : tensors) {
      ATHANOR_CHECK(t.dim() > 0, "cat: zero-dimensional tensor (at position ", &t - tensors.begin(),
                    ") cannot be concatenated");
      if (is_skipped(t)) {
        lengths.push_back(-1);
        continue;
      }
      if (!first) {
        first = &t;
        dim = wrap_dim(dim, t.dim(), "cat");
      }
      ATHANOR_CHECK(t.dim() == first->dim(), "cat: Tensors must have same number of dimensions: got ", first->dim(),
                    " and ", t.dim());
      for (std::int64_t d = 0; d < t.dim(); ++d)
        ATHANOR_CHECK(d == dim || t.size(d) == first->size(d), "cat: Sizes of tensors must match except in dimension ",
                      dim, ". Expected size ", first->size(d), " but got size ", t.size(d), " for tensor number ",
                      &t - tensors.begin(), " in the list; shapes ", first->sizes(), " and ", t.sizes());
      lengths.push_back(t.size(dim));
      ATHANOR_CHECK(!__builtin_add_overflow(total, t.size(dim), &total), "cat(): sizes along dimension ", dim,
                    " add up to more than a tensor can have");
    }
    if (!first) return {{0}, tensors[0].dtype(), tensors[0].device(), {}};
    Meta m{DimVector(first->sizes()), first->dtype(), first->device(), {}};
    m.sizes[static_cast<std::size_t>(dim)] = total;
    const bool alike = std::all_of(tensors.begin(), tensors.end(),
                                   [&](const Tensor& t) { return is_skipped(t) || !layout_like(t, m.sizes).empty(); });
    if (alike) m.strides = layout_like(*first, m.sizes);
    return m;
  }
  void run(const Tensor& out, const TensorList& tensors) { launch(cat_kernel, out, tensors, dim); }
  void grad(GradCall& g) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (lengths[i] < 0) continue;
      if (g.needs(i)) g.set(i, narrow(g.grad(), dim, at, lengths[i]));
      at += lengths[i];
    }
  }
};

/// Tensors joined along dim; dtypes are promoted.
ATHANOR_FUNCTION("cat(Tensor[] tensors, int dim=0) -> Tensor | out");
Tensor cat(TensorList tensors, std::int64_t dim) {
  ATHANOR_CHECK_VALUE(!tensors.empty(), "cat(): expected a non-empty list of Tensors");
  Promotion p;
  bool same = true;
  for (const Tensor& t : tensors) {
    ATHANOR_CHECK(t.defined(), "cat(): tensor ", &t - tensors.begin(), " of the list is not defined");
    p.add(t);
    same = same && t.dtype() == tensors[0].dtype();
  }
  if (same) return cat_same_dtype(tensors, dim);
  std::vector<Tensor> converted;
  for (const Tensor& t : tensors) converted.push_back(cast(t, p.type()));
  return cat_same_dtype(converted, dim);
}
/// Another name of cat: the tensors one after the other along dim; their other dims are equal.
ATHANOR_FUNCTION("concat(Tensor[] tensors, int dim=0) -> Tensor | out");
Tensor concat(TensorList tensors, std::int64_t dim) { return cat(tensors, dim); }

/// Tensors of one shape joined along a new dim.
ATHANOR_FUNCTION("stack(Tensor[] tensors, int dim=0) -> Tensor | out");
Tensor stack(TensorList tensors, std::int64_t dim) {
  ATHANOR_CHECK(!tensors.empty(), "stack expects a non-empty TensorList");
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors) {
    ATHANOR_CHECK(t.sizes() == tensors[0].sizes(), "stack expects each tensor to be equal size, but got ",
                  tensors[0].sizes(), " at entry 0 and ", t.sizes(), " at entry ", &t - tensors.begin());
    parts.push_back(unsqueeze(t, dim));
  }
  return cat(parts, wrap_dim(dim, tensors[0].dim() + 1, "stack"));
}

/// The tensors side by side: along the second dim, the first for vectors.
ATHANOR_FUNCTION("hstack(Tensor[] tensors) -> Tensor | out");
Tensor hstack(TensorList tensors) {
  ATHANOR_CHECK(!tensors.empty(), "hstack expects a non-empty TensorList");
  const auto parts = atleast_1d(tensors);
  return cat(parts, parts[0].dim() == 1 ? 0 : 1);
}
/// The tensors on top of each other: along the first dim; vectors are rows.
ATHANOR_FUNCTION("vstack(Tensor[] tensors) -> Tensor | out");
Tensor vstack(TensorList tensors) {
  ATHANOR_CHECK(!tensors.empty(), "vstack expects a non-empty TensorList");
  return cat(atleast_2d(tensors), 0);
}
/// The tensors behind each other: along the third dim, which smaller ones get.
ATHANOR_FUNCTION("dstack(Tensor[] tensors) -> Tensor | out");
Tensor dstack(TensorList tensors) {
  ATHANOR_CHECK(!tensors.empty(), "dstack expects a non-empty TensorList");
  return cat(atleast_3d(tensors), 2);
}
/// Vectors become columns, which are joined with the matrices among `tensors`.
ATHANOR_FUNCTION("column_stack(Tensor[] tensors) -> Tensor | out");
Tensor column_stack(TensorList tensors) {
  ATHANOR_CHECK(!tensors.empty(), "column_stack expects a non-empty TensorList");
  std::vector<Tensor> columns;
  for (const Tensor& t : tensors) columns.push_back(t.dim() <= 1 ? reshape(t, {t.numel(), 1}) : t);
  return hstack(columns);
}

/// Matrices along a diagonal, zero elsewhere; vectors count as rows, dtypes are promoted.
ATHANOR_FUNCTION("block_diag(Tensor[] tensors) -> Tensor");
Tensor block_diag(TensorList tensors) {
  ATHANOR_CHECK(!tensors.empty(), "block_diag: expected at least one tensor");
  Promotion p;
  std::int64_t columns = 0;
  for (const Tensor& t : tensors) {
    ATHANOR_CHECK(t.dim() <= 2, "block_diag: Input tensors must have 2 or fewer dimensions. Input ",
                  &t - tensors.begin(), " has ", t.dim(), " dimensions");
    p.add(t);
    ATHANOR_CHECK(!__builtin_add_overflow(columns, t.dim() == 0 ? 1 : t.size(-1), &columns),
                  "block_diag: the blocks have more columns than a tensor can have");
  }
  std::vector<Tensor> rows;
  std::int64_t before = 0;
  for (const Tensor& block : atleast_2d(tensors)) {
    const std::int64_t after = columns - before - block.size(1);
    rows.push_back(constant_pad_nd(cast(block, p.type()), {before, after}));
    before += block.size(1);
  }
  return cat(rows, 0);
}

namespace {

/// Throws Error where a list of views would take memory out of all proportion to the call: some hundred bytes each.
void check_parts(const char* op, std::int64_t parts) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  ATHANOR_CHECK(parts <= kMost, op, ": ", parts, " parts are too many; at most ", kMost, " can be made");
}

/// Views of these lengths along dim. One node joins their gradients.
std::vector<Tensor> parts_of(const Tensor& self, IntArrayRef lengths, std::int64_t dim) {
  IntrusivePtr<Node> node;
  if (lengths.size() > 1 && GradMode::is_enabled() && wants_grad(self)) {
    node = IntrusivePtr<Node>(new SplitNode(dim));
    node->add_edge(gradient_edge(self));
  }
  std::vector<Tensor> out;
  std::int64_t at = 0;
  for (const std::int64_t n : lengths) {
    if (node) {
      DimVector sizes(self.sizes());
      sizes[static_cast<std::size_t>(dim)] = n;
      const Tensor part = detail::alias(self, sizes, self.strides(), self.storage_offset() + at * self.stride(dim));
      note_view(part, self);
      set_history(part, node);
      out.push_back(part);
    } else {
      out.push_back(narrow(self, dim, at, n));
    }
    at += n;
  }
  return out;
}

}  // namespace

/// Views of the given lengths along dim, which must add up to its size.
ATHANOR_FUNCTION("split_with_sizes(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]");
std::vector<Tensor> split_with_sizes(const Tensor& self, IntArrayRef split_sizes, std::int64_t dim) {
  ATHANOR_CHECK(self.dim() > 0, "split expects at least a 1-dimensional tensor");
  dim = wrap_dim(dim, self.dim(), "split");
  std::int64_t total = 0;
  for (const std::int64_t n : split_sizes) {
    ATHANOR_CHECK(n >= 0, "split_with_sizes expects split_sizes have only non-negative entries, but got ", split_sizes);
    if (__builtin_add_overflow(total, n, &total)) total = -1;
    if (total < 0) break;
  }
  ATHANOR_CHECK(total == self.size(dim), "split_with_sizes expects split_sizes to sum exactly to ", self.size(dim),
                " (input tensor's size at dimension ", dim, "), but got split_sizes=", split_sizes);
  std::vector<Tensor> out = parts_of(self, split_sizes, dim);
  for (Tensor& part : out) part = as_one_of_several(std::move(part));
  return out;
}

/// Views of split_size along dim; the last may be smaller.
ATHANOR_FUNCTION("split(Tensor self, int split_size, int dim=0) -> Tensor[]");
std::vector<Tensor> split(const Tensor& self, std::int64_t split_size, std::int64_t dim) {
  ATHANOR_CHECK(self.dim() > 0, "split expects at least a 1-dimensional tensor");
  const std::int64_t n = self.size(dim);
  ATHANOR_CHECK(split_size > 0 || (split_size == 0 && n == 0),
                "split expects split_size be positive (or 0 for an empty dimension), but got split_size=", split_size);
  const std::int64_t parts = n == 0 ? 1 : (n - 1) / split_size + 1;
  check_parts("split", parts);
  DimVector sizes(static_cast<std::size_t>(parts), std::min(split_size, n));
  if (n > 0) sizes.back() = n - (parts - 1) * split_size;
  return split_with_sizes(self, sizes, dim);
}
ATHANOR_FUNCTION("split.sizes(Tensor self, int[] split_size, int dim=0) -> Tensor[]");
std::vector<Tensor> split(const Tensor& self, IntArrayRef split_size, std::int64_t dim) {
  return split_with_sizes(self, split_size, dim);
}

/// At most `chunks` views of equal size along dim; the last may be smaller.
ATHANOR_FUNCTION("chunk(Tensor self, int chunks, int dim=0) -> Tensor[]");
std::vector<Tensor> chunk(const Tensor& self, std::int64_t chunks, std::int64_t dim) {
  ATHANOR_CHECK(self.dim() > 0, "chunk expects at least a 1-dimensional tensor");
  ATHANOR_CHECK(chunks > 0, "chunk expects `chunks` to be greater than 0, got: ", chunks);
  const std::int64_t n = self.size(dim);
  if (n > 0) return split(self, (n - 1) / chunks + 1, dim);
  check_parts("chunk", chunks);
  return split_with_sizes(self, DimVector(static_cast<std::size_t>(chunks), 0), dim);
}

/// `sections` views along dim that differ by at most one in size.
ATHANOR_FUNCTION("tensor_split(Tensor self, int sections, int dim=0) -> Tensor[]");
std::vector<Tensor> tensor_split(const Tensor& self, std::int64_t sections, std::int64_t dim) {
  ATHANOR_CHECK(self.dim() > 0, "tensor_split expected at least a 1-dimensional tensor, but got a 0-dim one");
  ATHANOR_CHECK(sections > 0, "tensor_split: number of sections must be larger than 0, got ", sections);
  check_parts("tensor_split", sections);
  dim = wrap_dim(dim, self.dim(), "tensor_split");
  const std::int64_t n = self.size(dim);
  DimVector sizes;
  for (std::int64_t i = 0; i < sections; ++i) sizes.push_back(n / sections + (i < n % sections ? 1 : 0));
  return parts_of(self, sizes, dim);
}

/// Views of [0, indices[0]), [indices[0], indices[1]), … and the rest along dim, bounds clipped as a slice's are.
ATHANOR_FUNCTION("tensor_split.indices(Tensor self, int[] indices, int dim=0) -> Tensor[]");
std::vector<Tensor> tensor_split(const Tensor& self, IntArrayRef indices, std::int64_t dim) {
  ATHANOR_CHECK(self.dim() > 0, "tensor_split expected at least a 1-dimensional tensor, but got a 0-dim one");
  dim = wrap_dim(dim, self.dim(), "tensor_split");
  std::vector<Tensor> out;
  std::int64_t at = 0;
  for (const std::int64_t end : indices) {
    out.push_back(slice(self, dim, at, end));
    at = end;
  }
  out.push_back(slice(self, dim, at));
  return out;
}

/// The same with the sections (0-d) or indices (1-d) in an int64 tensor on the host.
ATHANOR_FUNCTION(
    "tensor_split.tensor_indices_or_sections(Tensor self, Tensor tensor_indices_or_sections, int dim=0) -> Tensor[]");
std::vector<Tensor> tensor_split(const Tensor& self, const Tensor& tensor_indices_or_sections, std::int64_t dim) {
  const Tensor& given = tensor_indices_or_sections;
  ATHANOR_CHECK(given.device().is_host(), "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on ",
                given.device());
  ATHANOR_CHECK(given.dtype() == DType::Long,
                "tensor_split expected tensor_indices_or_sections to have dtype of long, ", "but got ",
                dtype_libtorch_name(given.dtype()));
  ATHANOR_CHECK(given.dim() <= 1, "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or ",
                "one-dimensional tensor, but got a tensor with ", given.dim(), " dims");
  if (given.dim() == 0) return tensor_split(self, given.item().toLong(), dim);
  const Tensor dense = contiguous(given);
  const auto* values = dense.data_ptr<std::int64_t>();
  return tensor_split(self, IntArrayRef(values, static_cast<std::size_t>(dense.numel())), dim);
}

namespace {

/// Along which dim hsplit, vsplit and dsplit cut; throws if self has too few.
std::int64_t split_dim(const char* op, const Tensor& self, std::int64_t least, std::int64_t dim) {
  ATHANOR_CHECK(self.dim() >= least, op, " requires a tensor with at least ", least,
                " dimension, but got a tensor with ", self.dim(), " dimensions!");
  return dim;
}

std::vector<Tensor> split_evenly(const char* op, const Tensor& self, std::int64_t sections, std::int64_t dim) {
  ATHANOR_CHECK(sections > 0 && self.size(dim) % sections == 0, op, " attempted to split along dimension ", dim,
                ", but the size of the dimension ", self.size(dim), " is not divisible by the split_size ", sections,
                "!");
  return tensor_split(self, sections, dim);
}

}  // namespace

/// Equal parts along dim 1 (dim 0 of vectors).
ATHANOR_FUNCTION("hsplit(Tensor self, int sections) -> Tensor[]");
std::vector<Tensor> hsplit(const Tensor& self, std::int64_t sections) {
  return split_evenly("hsplit", self, sections, split_dim("hsplit", self, 1, self.dim() == 1 ? 0 : 1));
}
ATHANOR_FUNCTION("hsplit.array(Tensor self, int[] indices) -> Tensor[]");
std::vector<Tensor> hsplit(const Tensor& self, IntArrayRef indices) {
  return tensor_split(self, indices, split_dim("hsplit", self, 1, self.dim() == 1 ? 0 : 1));
}
/// Equal parts along dim 0.
ATHANOR_FUNCTION("vsplit(Tensor self, int sections) -> Tensor[]");
std::vector<Tensor> vsplit(const Tensor& self, std::int64_t sections) {
  return split_evenly("vsplit", self, sections, split_dim("vsplit", self, 2, 0));
}
ATHANOR_FUNCTION("vsplit.array(Tensor self, int[] indices) -> Tensor[]");
std::vector<Tensor> vsplit(const Tensor& self, IntArrayRef indices) {
  return tensor_split(self, indices, split_dim("vsplit", self, 2, 0));
}
/// Equal parts along dim 2.
ATHANOR_FUNCTION("dsplit(Tensor self, int sections) -> Tensor[]");
std::vector<Tensor> dsplit(const Tensor& self, std::int64_t sections) {
  return split_evenly("dsplit", self, sections, split_dim("dsplit", self, 3, 2));
}
ATHANOR_FUNCTION("dsplit.array(Tensor self, int[] indices) -> Tensor[]");
std::vector<Tensor> dsplit(const Tensor& self, IntArrayRef indices) {
  return tensor_split(self, indices, split_dim("dsplit", self, 3, 2));
}

/// The slices of dim as views without it.
ATHANOR_FUNCTION("unbind(Tensor self, int dim=0) -> Tensor[]");
std::vector<Tensor> unbind(const Tensor& self, std::int64_t dim) {
  ATHANOR_CHECK_INDEX(self.dim() > 0, "unbind: Dimension specified as ", dim, " but tensor has no dimensions");
  check_parts("unbind", self.size(dim));
  std::vector<Tensor> out;
  for (std::int64_t i = 0; i < self.size(dim); ++i) out.push_back(as_one_of_several(select(self, dim, i)));
  return out;
}

/// The order along dims reversed; a copy.
struct Flip {
  ATHANOR_OP("flip(Tensor self, int[] dims) -> Tensor");
  DimVector dims;
  Meta infer(const Tensor& self) {
    std::uint64_t seen = 0;
    for (auto& d : dims) {
      d = wrap_dim(d, self.dim(), "flip");
      ATHANOR_CHECK(!(seen >> d & 1), "flip: dim ", d, " appears multiple times in the list of dims");
      seen |= std::uint64_t{1} << d;
    }
    if (self.dim() == 0) dims.clear();
    return {DimVector(self.sizes()), self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self) { launch(flip_kernel, out, self, IntArrayRef(dims)); }
  void grad(GradCall& g) { g.set(0, flip(g.grad(), dims)); }
};

/// The columns in reverse order. Throws Error below two dims.
ATHANOR_FUNCTION("fliplr(Tensor self) -> Tensor");
Tensor fliplr(const Tensor& self) {
  ATHANOR_CHECK(self.dim() >= 2, "fliplr: Input must be >= 2-d.");
  return flip(self, {1});
}
/// The rows in reverse order. Throws Error for a tensor of no dims.
ATHANOR_FUNCTION("flipud(Tensor self) -> Tensor");
Tensor flipud(const Tensor& self) {
  ATHANOR_CHECK(self.dim() >= 1, "flipud: Input must be >= 1-d.");
  return flip(self, {0});
}

/// Turned by k quarter turns in the plane of two dims, from the first towards the second; a copy.
ATHANOR_FUNCTION("rot90(Tensor self, int k=1, int[] dims={0, 1}) -> Tensor");
Tensor rot90(const Tensor& self, std::int64_t k, IntArrayRef dims) {
  const std::int64_t n = self.dim();
  ATHANOR_CHECK(dims.size() == 2, "rot90: expected total rotation dims == 2, but got dims = ", dims.size());
  ATHANOR_CHECK(n >= 2, "rot90: expected total dims >= 2, but got total dims = ", n);
  const std::int64_t a = wrap_dim(dims[0], n, "rot90"), b = wrap_dim(dims[1], n, "rot90");
  ATHANOR_CHECK(a != b, "rot90: expected rotation dims to be different, but got dim0 = ", dims[0],
                " and dim1 = ", dims[1]);
  switch ((k % 4 + 4) % 4) {
    case 1:
      return transpose(flip(self, {b}), a, b);
    case 2:
      return flip(self, {a, b});
    case 3:
      return transpose(flip(self, {a}), a, b);
    default:
      return clone(self, MemoryFormat::Contiguous);
  }
}

/// Elements moved by shifts along dims, wrapping round; without dims over the flattened tensor.
struct RollDims {
  ATHANOR_OP("roll_dims(Tensor self, int[] shifts, int[] dims) -> Tensor | function internal");
  static constexpr const char* grad_name = "RollBackward0";
  DimVector shifts, dims;
  Meta infer(const Tensor& self) {
    ATHANOR_CHECK(shifts.size() == dims.size(), "roll: shifts and dimensions must align. shifts: ", shifts.size(),
                  ", dims:", dims.size());
    for (auto& d : dims) d = wrap_dim(d, self.dim(), "roll");
    return {DimVector(self.sizes()), self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self) {
    launch(roll_kernel, out, self, IntArrayRef(shifts), IntArrayRef(dims));
  }
  void grad(GradCall& g) {
    DimVector back;
    for (std::size_t i = 0; i < shifts.size(); ++i)
      back.push_back(-(shifts[i] % std::max<std::int64_t>(g.grad().size(dims[i]), 1)));
    g.set(0, roll_dims(g.grad(), back, dims));
  }
};

/// Elements moved on by shifts along dims, from the end back to the beginning; in flattened order without dims.
ATHANOR_FUNCTION("roll(Tensor self, int[] shifts, int[] dims=[]) -> Tensor");
Tensor roll(const Tensor& self, IntArrayRef shifts, IntArrayRef dims) {
  ATHANOR_CHECK(!shifts.empty(), "roll: `shifts` required");
  ATHANOR_CHECK_INDEX(dims.empty() || self.dim() > 0, "roll: Dimension specified as ", dims[0],
                      " but tensor has no dimensions");
  if (!dims.empty()) return roll_dims(self, shifts, dims);
  ATHANOR_CHECK(shifts.size() == 1, "roll: shifts and dimensions must align. shifts: ", shifts.size(), ", dims:0");
  return reshape(roll_dims(reshape(self, {-1}), shifts, {0}), self.sizes());
}

/// self tiled `repeats` times along each dim; leading repeats add dims.
struct Repeat {
  ATHANOR_OP("repeat(Tensor self, int[] repeats) -> Tensor | method");
  DimVector repeats;
  DimVector from;
  Meta infer(const Tensor& self) {
    const std::size_t n = repeats.size(), m = static_cast<std::size_t>(self.dim());
    ATHANOR_CHECK(n >= m,
                  "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: ",
                  IntArrayRef(repeats), " for shape ", self.sizes());
    from = DimVector(self.sizes());
    Meta out{DimVector(n), self.dtype(), self.device(), {}};
    for (std::size_t d = 0; d < n; ++d) {
      ATHANOR_CHECK(repeats[d] >= 0, "repeat: Trying to create tensor with negative dimension: repeats ",
                    IntArrayRef(repeats));
      const std::int64_t size = d < n - m ? 1 : from[d - (n - m)];
      ATHANOR_CHECK(!__builtin_mul_overflow(repeats[d], size, &out.sizes[d]), "repeat: ", repeats[d], " times size ",
                    size, " of dimension ", d, " is more than a tensor can have");
    }
    return out;
  }
  void run(const Tensor& out, const Tensor& self) {
    if (out.numel()) launch(repeat_kernel, out, self);
  }
  void grad(GradCall& g) {
    // Every repeated dim is split into (repeat, size) and summed over the first.
    const std::size_t n = repeats.size(), m = from.size();
    DimVector split, dims;
    for (std::size_t d = 0; d < n; ++d) {
      dims.push_back(static_cast<std::int64_t>(split.size()));
      split.push_back(repeats[d]);
      if (d >= n - m) split.push_back(from[d - (n - m)]);
    }
    g.set(0, dims.empty() ? g.grad() : sum(reshape(g.grad(), split), IntArrayRef(dims)));
  }
};

/// The tensor repeated dims times along its last dims.
ATHANOR_FUNCTION("tile(Tensor self, int[] dims) -> Tensor");
Tensor tile(const Tensor& self, IntArrayRef dims) {
  DimVector repeats(dims);
  while (static_cast<std::int64_t>(repeats.size()) < self.dim()) repeats.insert(0, 1);
  return repeat(self, repeats);
}

/// Each entry of dim repeated repeats[i] times (one count: all alike).
struct RepeatInterleave {
  ATHANOR_OP("repeat_interleave_dim(Tensor self, Tensor repeats, int dim, int total) -> Tensor | function internal");
  static constexpr const char* grad_name = "RepeatInterleaveBackward0";
  std::int64_t dim, total;
  SavedTensor repeats;
  DimVector from;
  Meta infer(const Tensor& self, const Tensor&) {
    from = DimVector(self.sizes());
    Meta m{from, self.dtype(), self.device(), {}};
    m.sizes[static_cast<std::size_t>(dim)] = total;
    return m;
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& r) {
    launch(repeat_interleave_kernel, out, self, r, dim);
  }
  void save(const Node&, const Tensor&, const Tensor& r) { repeats.save(r); }
  void grad(GradCall& g) {
    // The entry each repeated slice came from, then a sum by index.
    const std::int64_t n = from[static_cast<std::size_t>(dim)];
    const Tensor source = repeat_interleave_dim(arange(n, TensorOptions(g.grad().device())), g.get(repeats), 0, total);
    spread(g, from, index_add_, dim, source, g.grad(), Scalar(1));
  }
};

ATHANOR_FUNCTION("repeat_interleave(Tensor self, Tensor repeats, int? dim=None, *, int? output_size=None) -> Tensor");
Tensor repeat_interleave(const Tensor& self, const Tensor& repeats, std::optional<std::int64_t> dim,
                         std::optional<std::int64_t> output_size) {
  if (!dim) return repeat_interleave(reshape(self, {-1}), repeats, 0, output_size);
  const std::int64_t d = wrap_dim(*dim, self.dim(), "repeat_interleave");
  ATHANOR_CHECK(repeats.dtype() == DType::Long || repeats.dtype() == DType::Int,
                "repeat_interleave: repeats has to be Long or Int tensor, got ", repeats.dtype());
  ATHANOR_CHECK(repeats.dim() <= 1 && (repeats.numel() == 1 || repeats.numel() == self.size(d)),
                "repeat_interleave: repeats must have the same size as input along dim, got ", repeats.sizes(),
                " for size ", self.size(d));
  std::int64_t total = 0;
  if (output_size)
    total = *output_size;
  else if (repeats.numel() != 1)
    total = sum(repeats).item().toLong();
  else
    ATHANOR_CHECK(!__builtin_mul_overflow(repeats.item().toLong(), self.size(d), &total),
                  "repeat_interleave: ", repeats.item().toLong(), " times size ", self.size(d), " of dimension ", d,
                  " is more than a tensor can have");
  return repeat_interleave_dim(self, repeats, d, total);
}
ATHANOR_FUNCTION("repeat_interleave.int(Tensor self, int repeats, int? dim=None) -> Tensor");
Tensor repeat_interleave(const Tensor& self, std::int64_t repeats, std::optional<std::int64_t> dim) {
  return repeat_interleave(self, full({1}, Scalar(repeats), TensorOptions(kLong).device(self.device())), dim);
}
/// The numbers 0, 1, …, each repeated as often as its entry says.
ATHANOR_FUNCTION("repeat_interleave.Tensor(Tensor repeats, *, int? output_size=None) -> Tensor");
Tensor repeat_interleave(const Tensor& repeats, std::optional<std::int64_t> output_size) {
  ATHANOR_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat, got shape ", repeats.sizes());
  // The places come in the dtype of the counts, as PyTorch's do.
  return repeat_interleave(arange(repeats.numel(), TensorOptions(repeats.scalar_type()).device(repeats.device())),
                           repeats, 0, output_size);
}

namespace {
Meta triangle_meta(const char* op, const Tensor& self) {
  ATHANOR_CHECK(self.dim() >= 2, op, ": input tensor must have at least 2 dimensions, got shape ", self.sizes());
  return {DimVector(self.sizes()), self.dtype(), self.device(), {}};
}
}  // namespace

/// The lower triangle of the last two dims, zero elsewhere.
struct Tril {
  ATHANOR_OP("tril(Tensor self, int diagonal=0) -> Tensor | inplace out");
  std::int64_t diagonal;
  Meta infer(const Tensor& self) { return triangle_meta("tril", self); }
  void run(const Tensor& out, const Tensor& self) { launch(tril_kernel, out, self, diagonal); }
  void grad(GradCall& g) { g.set(0, tril(g.grad(), diagonal)); }
};

/// The upper triangle of the last two dims, zero elsewhere.
struct Triu {
  ATHANOR_OP("triu(Tensor self, int diagonal=0) -> Tensor | inplace out");
  std::int64_t diagonal;
  Meta infer(const Tensor& self) { return triangle_meta("triu", self); }
  void run(const Tensor& out, const Tensor& self) { launch(triu_kernel, out, self, diagonal); }
  void grad(GradCall& g) { g.set(0, triu(g.grad(), diagonal)); }
};

}  // namespace athanor::ops

#include "athanor/ops/join.glue.inc"
