// Views: results that share their input's storage.
#include "athanor/ops/view.h"

#include <numeric>

#include "athanor/base/parallel.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/index.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/ternary.h"

namespace athanor::ops {

namespace {

/// a · b, or 0 where that overflows: a place that no element has. Only what has no element along a dim, or a single
/// one, reaches that far.
std::int64_t reach_of(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? 0 : product;
}

Geometry same_geometry(const Tensor& t) { return {DimVector(t.sizes()), DimVector(t.strides()), t.storage_offset()}; }

/// Strides under which `t`'s memory reads as `shape`, or nothing if a copy is needed.
std::optional<DimVector> view_strides(const Tensor& t, IntArrayRef shape) {
  DimVector strides(shape.size());
  if (t.numel() == 0 || t.is_contiguous()) {
    std::uint64_t step = 1;  // wraps only beside a size of 0
    for (std::size_t d = shape.size(); d-- > 0;) {
      strides[d] = static_cast<std::int64_t>(step);
      step *= static_cast<std::uint64_t>(std::max<std::int64_t>(shape[d], 1));
    }
    return strides;
  }
  // Old dims are merged into runs of regular memory; each run must be cut exactly by new dims.
  const IntArrayRef old = t.sizes(), old_strides = t.strides();
  std::ptrdiff_t view_d = static_cast<std::ptrdiff_t>(shape.size()) - 1;
  std::int64_t base = old.empty() ? 1 : old_strides[old.size() - 1], run = 1, taken = 1;
  for (std::ptrdiff_t d = static_cast<std::ptrdiff_t>(old.size()) - 1; d >= 0; --d) {
    const auto ud = static_cast<std::size_t>(d);
    run *= old[ud];
    if (d > 0 && (old[ud - 1] == 1 || old_strides[ud - 1] == run * base)) continue;
    while (view_d >= 0 && (taken < run || shape[static_cast<std::size_t>(view_d)] == 1)) {
      strides[static_cast<std::size_t>(view_d)] = taken * base;
      taken *= shape[static_cast<std::size_t>(view_d)];
      --view_d;
    }
    if (taken != run) return std::nullopt;
    if (d > 0) {
      base = old_strides[ud - 1];
      run = 1;
      taken = 1;
    }
  }
  if (view_d != -1) return std::nullopt;
  return strides;
}

/// One past the last element that a geometry reads; `offset` if it reads none. Throws Error if that overflows.
std::int64_t end_of(const Geometry& g) {
  std::int64_t last = g.offset, reach = 0;
  for (std::size_t d = 0; d < g.sizes.size(); ++d) {
    if (g.sizes[d] == 0) return g.offset;
    ATHANOR_CHECK(!__builtin_mul_overflow(g.sizes[d] - 1, g.strides[d], &reach) &&
                      !__builtin_add_overflow(last, reach, &last) && last < INT64_MAX,
                  "as_strided: sizes ", IntArrayRef(g.sizes), " with strides ", IntArrayRef(g.strides),
                  " reach beyond any memory");
  }
  return last + 1;
}

/// True if two elements of the geometry may be at one place; false for sure if none are.
bool may_overlap(const Geometry& g) {
  SmallVector<std::size_t, 8> order(g.sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return g.strides[a] < g.strides[b]; });
  std::int64_t covered = 0;
  for (const auto d : order) {
    if (g.sizes[d] <= 1) continue;
    if (g.strides[d] <= covered) return true;
    covered += (g.sizes[d] - 1) * g.strides[d];
  }
  return false;
}

/// The gradient with respect to a tensor of geometry `in` of its memory read as `out`. What several elements of the
/// view read is summed; where several elements of the input are one place, they share its gradient evenly. Both
/// geometries count in elements of one storage.
Tensor as_strided_gradient(Tensor grad, const Geometry& in, Geometry out) {
  const TensorOptions options = grad.options();
  if (grad.numel() == 0) return zeros(in.sizes, options);
  DimVector repeated;
  for (std::size_t d = 0; d < out.sizes.size(); ++d) {
    if (out.strides[d] != 0 || out.sizes[d] == 1) continue;
    repeated.push_back(static_cast<std::int64_t>(d));
    out.sizes[d] = 1;
  }
  if (!repeated.empty()) grad = sum(grad, IntArrayRef(repeated), true);
  const std::int64_t first = std::min(in.offset, out.offset);
  const std::int64_t room = std::max(end_of(in), end_of(out)) - first;
  auto part = [&](const Tensor& flat, const Geometry& g) {
    return as_strided(flat, g.sizes, g.strides, g.offset - first);
  };
  auto places = [&](const Geometry& g) { return reshape(part(arange(room, TensorOptions(grad.device())), g), {-1}); };
  Tensor flat = zeros({room}, options);
  if (may_overlap(out))
    flat = index_add(flat, 0, places(out), reshape(grad, {-1}));
  else
    copy_(part(flat, out), grad);
  if (may_overlap(in)) {
    const Tensor shared = places(in);
    const Tensor count = index_add(zeros({room}, options), 0, shared, ones({shared.numel()}, options));
    flat = div(flat, clamp_min(count, 1));  // places that the input does not read have no count
  }
  return part(flat, in);
}

/// Elements start, start + step, … before end of dim; start <= end are within its size.
std::int64_t slice_length(std::int64_t start, std::int64_t end, std::int64_t step) {
  return end > start ? (end - start - 1) / step + 1 : 0;
}

Geometry slice_geometry(const Tensor& t, std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  Geometry g = same_geometry(t);
  const auto d = static_cast<std::size_t>(dim);
  g.sizes[d] = slice_length(start, end, step);
  g.offset += reach_of(start, g.strides[d]);
  g.strides[d] = reach_of(g.strides[d], step);
  return g;
}

/// A slice's bounds as positions in a dim of n elements, start <= end.
std::pair<std::int64_t, std::int64_t> clip_bounds(std::optional<std::int64_t> start, std::optional<std::int64_t> end,
                                                  std::int64_t n) {
  const auto clip = [n](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + n : i, 0, n); };
  const std::int64_t b = clip(start.value_or(0));
  return {b, std::max(b, end ? clip(*end) : n)};
}

}  // namespace

/// The memory of self read with other sizes, strides and offset (in elements, absolute in the storage).
struct AsStrided {
  ATHANOR_VIEW("as_strided(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor | inplace_view");
  DimVector size, stride;
  std::optional<std::int64_t> storage_offset;
  DimVector in_sizes, in_strides;
  std::int64_t in_offset = 0, offset = 0;

  void note(const Tensor& self) {
    in_sizes = DimVector(self.sizes());
    in_strides = DimVector(self.strides());
    in_offset = self.storage_offset();
    offset = storage_offset.value_or(in_offset);
  }
  Geometry view(const Tensor& self) {
    ATHANOR_CHECK(size.size() == stride.size(), "as_strided: got ", size.size(), " sizes and ", stride.size(),
                  " strides");
    note(self);
    ATHANOR_CHECK(offset >= 0, "as_strided: storage_offset must not be negative, got ", offset);
    for (const std::int64_t s : stride)
      ATHANOR_CHECK(s >= 0, "as_strided: negative strides are not supported, got ", IntArrayRef(stride));
    const auto room = static_cast<std::int64_t>(self.storage()->nbytes() / self.itemsize());
    if (checked_numel(size, "as_strided") != 0) {
      const std::int64_t end = end_of({size, stride, offset});
      ATHANOR_CHECK(end <= room, "as_strided: sizes ", IntArrayRef(size), ", strides ", IntArrayRef(stride),
                    " and offset ", offset, " need ", end, " elements, the storage has ", room);
    }
    return {size, stride, offset};
  }
  void grad(GradCall& g) {
    g.set(0, as_strided_gradient(g.grad(), {in_sizes, in_strides, in_offset}, {size, stride, offset}));
  }
};

IntrusivePtr<Node> make_as_strided_node(const Tensor& base, IntArrayRef size, IntArrayRef stride, std::int64_t offset) {
  AsStrided op{DimVector(size), DimVector(stride), offset, {}, {}};
  op.note(base);
  return IntrusivePtr<Node>(make_node(op, base));
}

/// The same elements in another shape, without copying; one size may be -1. Throws if the strides do not allow it.
struct ViewAs {
  ATHANOR_VIEW("view(Tensor self, int[] size) -> Tensor | method");
  DimVector size;
  DimVector from;
  Geometry view(const Tensor& self) {
    from = DimVector(self.sizes());
    const DimVector shape = infer_size(size, self.numel(), "view");
    auto strides = view_strides(self, shape);
    ATHANOR_CHECK(strides,
                  "view size is not compatible with input tensor's size and stride (at least one dimension "
                  "spans across two contiguous subspaces). Use .reshape(...) instead. Got size ",
                  IntArrayRef(size), " for sizes ", self.sizes(), " and strides ", self.strides());
    return {shape, *strides, self.storage_offset()};
  }
  void grad(GradCall& g) { g.set(0, reshape(g.grad(), from)); }
};

/// A view if possible, else a copy.
ATHANOR_FUNCTION("reshape(Tensor self, int[] shape) -> Tensor");
Tensor reshape(const Tensor& self, IntArrayRef shape) {
  const DimVector size = infer_size(shape, self.numel(), "reshape");
  if (view_strides(self, size)) return view(self, size);
  return view(clone(self, MemoryFormat::Contiguous), size);
}

/// self repeated along dims of size 1 (or new leading ones) without copying; -1 keeps a size.
struct Expand {
  ATHANOR_VIEW("expand(Tensor self, int[] size, *, bool implicit=False) -> Tensor");
  DimVector size;
  bool implicit;
  Geometry view(const Tensor& self) {
    const auto n = self.dim();
    const auto m = static_cast<std::int64_t>(size.size());
    ATHANOR_CHECK(m >= n, "expand: the number of sizes provided (", m,
                  ") must be greater or equal to the number of dimensions in the tensor (", n, ")");
    Geometry g{DimVector(size.size()), DimVector(size.size()), self.storage_offset()};
    for (std::int64_t d = 0; d < m; ++d) {
      const auto u = static_cast<std::size_t>(d);
      const std::int64_t from = d - (m - n);
      const std::int64_t have = from < 0 ? 1 : self.impl()->dims[from];
      ATHANOR_CHECK(size[u] != -1 || from >= 0, "expand: -1 is not allowed in a leading, non-existing dimension ", d);
      const std::int64_t want = size[u] == -1 ? have : size[u];
      ATHANOR_CHECK(want >= 0 && (have == want || have == 1), "expand: The expanded size of the tensor (", want,
                    ") must match the existing size (", have, ") at non-singleton dimension ", d,
                    ". Target sizes: ", IntArrayRef(size), ". Tensor sizes: ", self.sizes());
      g.sizes[u] = want;
      g.strides[u] = from < 0 || (have == 1 && want != 1) ? 0 : self.impl()->dims[n + from];
    }
    // New dims of one element stride over what follows them, as unsqueeze's do.
    for (auto u = static_cast<std::size_t>(m - n); u-- > 0;)
      if (g.sizes[u] == 1) g.strides[u] = u + 1 == g.sizes.size() ? 1 : reach_of(g.sizes[u + 1], g.strides[u + 1]);
    return g;
  }
  void grad(GradCall& g) { g.set(0, g.grad()); }  // the engine sums over what was repeated
};

/// A view repeated to the shape of other along dims of one element.
ATHANOR_FUNCTION("expand_as(Tensor self, Tensor other) -> Tensor | method");
Tensor expand_as(const Tensor& self, const Tensor& other) { return expand(self, other.sizes()); }

/// Dimensions dim0 and dim1 exchanged.
struct Transpose {
  ATHANOR_VIEW("transpose(Tensor self, int dim0, int dim1) -> Tensor | inplace_view");
  std::int64_t dim0, dim1;
  Geometry view(const Tensor& self) {
    Geometry g = same_geometry(self);
    if (self.dim() == 0) {
      wrap_dim(dim0, 0, "transpose");
      wrap_dim(dim1, 0, "transpose");
      return g;
    }
    const auto a = static_cast<std::size_t>(wrap_dim(dim0, self.dim(), "transpose"));
    const auto b = static_cast<std::size_t>(wrap_dim(dim1, self.dim(), "transpose"));
    std::swap(g.sizes[a], g.sizes[b]);
    std::swap(g.strides[a], g.strides[b]);
    return g;
  }
  void grad(GradCall& g) { g.set(0, transpose(g.grad(), dim0, dim1)); }
};

/// A matrix transposed; 0-d and 1-d tensors as they are.
struct MatrixTranspose {
  ATHANOR_VIEW("t(Tensor self) -> Tensor | inplace_view");
  Geometry view(const Tensor& self) {
    ATHANOR_CHECK(self.dim() <= 2, "t() expects a tensor with <= 2 dimensions, but self is ", self.dim(), "D");
    Geometry g = same_geometry(self);
    if (self.dim() == 2) {
      std::swap(g.sizes[0], g.sizes[1]);
      std::swap(g.strides[0], g.strides[1]);
    }
    return g;
  }
  void grad(GradCall& g) { g.set(0, t(g.grad())); }
};

/// Dimensions in a new order.
struct Permute {
  ATHANOR_VIEW("permute(Tensor self, int[] dims) -> Tensor");
  DimVector dims;
  Geometry view(const Tensor& self) {
    ATHANOR_CHECK(static_cast<std::int64_t>(dims.size()) == self.dim(),
                  "permute: number of dimensions in the tensor input does not match the length of the desired ordering "
                  "of dimensions i.e. input.dim() = ",
                  self.dim(), " is not equal to len(dims) = ", dims.size());
    Geometry g{DimVector(dims.size()), DimVector(dims.size()), self.storage_offset()};
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      dims[i] = wrap_dim(dims[i], self.dim(), "permute");
      ATHANOR_CHECK(!(seen >> dims[i] & 1), "permute: repeated dim ", dims[i], " in ", IntArrayRef(dims));
      seen |= std::uint64_t{1} << dims[i];
      g.sizes[i] = self.impl()->dims[dims[i]];
      g.strides[i] = self.impl()->dims[self.dim() + dims[i]];
    }
    return g;
  }
  void grad(GradCall& g) {
    DimVector back(dims.size());
    for (std::size_t i = 0; i < dims.size(); ++i)
      back[static_cast<std::size_t>(dims[i])] = static_cast<std::int64_t>(i);
    g.set(0, permute(g.grad(), back));
  }
};

/// A new dimension of size 1 at dim.
struct Unsqueeze {
  ATHANOR_VIEW("unsqueeze(Tensor self, int dim) -> Tensor | inplace_view");
  std::int64_t dim;
  Geometry view(const Tensor& self) {
    dim = wrap_dim(dim, self.dim() + 1, "unsqueeze");
    Geometry g = same_geometry(self);
    const auto at = static_cast<std::size_t>(dim);
    const std::int64_t step = at < g.sizes.size() ? reach_of(g.sizes[at], g.strides[at]) : 1;
    g.sizes.insert(at, 1);
    g.strides.insert(at, step);
    return g;
  }
  void grad(GradCall& g) { g.set(0, squeeze(g.grad(), dim)); }
};

/// Dimension dim removed if its size is 1.
struct SqueezeDim {
  ATHANOR_VIEW("squeeze.dim(Tensor self, int dim) -> Tensor | inplace_view");
  static constexpr const char* grad_name = "SqueezeBackward1";
  std::int64_t dim;
  bool removed = false;
  Geometry view(const Tensor& self) {
    dim = wrap_dim(dim, self.dim(), "squeeze");
    Geometry g = same_geometry(self);
    removed = self.dim() > 0 && g.sizes[static_cast<std::size_t>(dim)] == 1;
    if (removed) {
      g.sizes.erase(static_cast<std::size_t>(dim));
      g.strides.erase(static_cast<std::size_t>(dim));
    }
    return g;
  }
  void grad(GradCall& g) { g.set(0, removed ? unsqueeze(g.grad(), dim) : g.grad()); }
};

/// All dimensions of size 1 removed.
struct Squeeze {
  ATHANOR_VIEW("squeeze(Tensor self) -> Tensor | inplace_view");
  DimVector from;
  Geometry view(const Tensor& self) {
    from = DimVector(self.sizes());
    Geometry g{{}, {}, self.storage_offset()};
    for (std::int64_t d = 0; d < self.dim(); ++d)
      if (self.size(d) != 1) {
        g.sizes.push_back(self.size(d));
        g.strides.push_back(self.stride(d));
      }
    return g;
  }
  void grad(GradCall& g) { g.set(0, reshape(g.grad(), from)); }
};

/// Elements start, start + step, … before end along dim.
struct SliceOp {
  ATHANOR_VIEW("slice(Tensor self, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor");
  std::int64_t dim;
  std::optional<std::int64_t> start, end;
  std::int64_t step;
  DimVector from;
  Geometry view(const Tensor& self) {
    ATHANOR_CHECK_INDEX(self.dim() > 0, "slice() cannot be applied to a 0-dim tensor.");
    dim = wrap_dim(dim, self.dim(), "slice");
    ATHANOR_CHECK_VALUE(step > 0, "slice step must be positive, got ", step);
    from = DimVector(self.sizes());
    std::tie(start, end) = clip_bounds(start, end, from[static_cast<std::size_t>(dim)]);
    return slice_geometry(self, dim, *start, *end, step);
  }
  void grad(GradCall& g) { g.set(0, slice_backward(g.grad(), from, dim, *start, *end, step)); }
};

/// Index `index` along dim, which disappears.
struct Select {
  ATHANOR_VIEW("select(Tensor self, int dim, int index) -> Tensor");
  std::int64_t dim, index;
  DimVector from;
  Geometry view(const Tensor& self) {
    ATHANOR_CHECK_INDEX(self.dim() > 0, "select() cannot be applied to a 0-dim tensor.");
    dim = wrap_dim(dim, self.dim(), "select");
    from = DimVector(self.sizes());
    Geometry g = same_geometry(self);
    const auto d = static_cast<std::size_t>(dim);
    ATHANOR_CHECK_INDEX(index >= -g.sizes[d] && index < g.sizes[d], "select: index ", index,
                        " is out of bounds for dimension ", dim, " with size ", g.sizes[d]);
    if (index < 0) index += g.sizes[d];
    g.offset += index * g.strides[d];
    g.sizes.erase(d);
    g.strides.erase(d);
    return g;
  }
  void grad(GradCall& g) { g.set(0, slice_backward(unsqueeze(g.grad(), dim), from, dim, index, index + 1, 1)); }
};

/// Zeros of `input_sizes` with grad written to the slice: the gradient of slice and select.
struct SliceBackward {
  ATHANOR_OP("slice_backward(Tensor grad_output, int[] input_sizes, int dim, int start, int end, int step) -> Tensor");
  DimVector input_sizes;
  std::int64_t dim, start, end, step;
  Meta infer(const Tensor& grad) {
    ATHANOR_CHECK_INDEX(!input_sizes.empty(), "slice_backward: input_sizes has no dimension");
    dim = wrap_dim(dim, static_cast<std::int64_t>(input_sizes.size()), "slice_backward");
    ATHANOR_CHECK_VALUE(step > 0, "slice step must be positive, got ", step);
    std::tie(start, end) = clip_bounds(start, end, input_sizes[static_cast<std::size_t>(dim)]);
    DimVector slice_sizes = input_sizes;
    slice_sizes[static_cast<std::size_t>(dim)] = slice_length(start, end, step);
    ATHANOR_CHECK(grad.sizes() == IntArrayRef(slice_sizes), "slice_backward: a slice of ", IntArrayRef(input_sizes),
                  " has the shape ", IntArrayRef(slice_sizes), ", but its gradient has ", grad.sizes());
    return {input_sizes, grad.dtype(), grad.device(), {}};
  }
  /// Piece by piece along the first dim, so that zeros are still in the caches where the gradient goes over them;
  /// unless zeros are so many that they bypass the caches.
  void run(const Tensor& out, const Tensor& grad) {
    constexpr std::int64_t kPieceBytes = 1 << 18, kLargest = 32 << 20;
    const std::int64_t bytes = out.numel() * static_cast<std::int64_t>(item_size(out.dtype()));
    if (bytes <= kPieceBytes || bytes >= kLargest || !out.device().is_cpu()) return write(out, grad, start, end);
    const std::int64_t rows = out.size(0), total = grad.size(0);
    const std::int64_t most = std::max<std::int64_t>(kPieceBytes * get_num_threads() / (bytes / rows), 1);
    std::int64_t taken = 0;
    for (std::int64_t row = 0; row < rows; row += most) {
      const std::int64_t part = std::min(most, rows - row);
      if (dim != 0) {
        write(rows_of(out, row, part), rows_of(grad, row, part), start, end);
        continue;
      }
      const std::int64_t first = taken < total ? std::min(start + taken * step - row, part) : part;
      const std::int64_t last = std::max(first, std::min(end - row, part)), count = slice_length(first, last, step);
      write(rows_of(out, row, part), rows_of(grad, taken, count), first, last);
      taken += count;
    }
  }
  void grad(GradCall& g) { g.set(0, slice(g.grad(), dim, start, end, step)); }

 private:
  static Tensor rows_of(const Tensor& t, std::int64_t from, std::int64_t count) {
    const Geometry g = slice_geometry(t, 0, from, from + count, 1);
    return detail::alias(t, g.sizes, g.strides, g.offset);
  }
  void write(const Tensor& out, const Tensor& grad, std::int64_t first, std::int64_t last) const {
    launch(fill_kernel, out, Scalar(0));
    const Geometry g = slice_geometry(out, dim, first, last, step);
    launch(copy_kernel, detail::alias(out, g.sizes, g.strides, g.offset), grad);
  }
};

ATHANOR_FUNCTION("narrow(Tensor self, int dim, int start, int length) -> Tensor");
Tensor narrow(const Tensor& self, std::int64_t dim, std::int64_t start, std::int64_t length) {
  ATHANOR_CHECK(self.dim() > 0, "narrow() cannot be applied to a 0-dim tensor.");
  ATHANOR_CHECK(length >= 0, "narrow(): length must be non-negative, got ", length);
  const std::int64_t n = self.size(dim);
  ATHANOR_CHECK_INDEX(start >= -n && start <= n, "narrow(): start ", start, " is out of range for size ", n);
  if (start < 0) start += n;
  ATHANOR_CHECK(length <= n - start, "narrow(): start (", start, ") + length (", length, ") exceeds dimension size (",
                n, ").");
  return slice(self, dim, start, start + length, 1);
}

/// Dimensions start_dim … end_dim merged into one.
ATHANOR_FUNCTION("flatten(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor");
Tensor flatten(const Tensor& self, std::int64_t start_dim, std::int64_t end_dim) {
  start_dim = wrap_dim(start_dim, self.dim(), "flatten");
  end_dim = wrap_dim(end_dim, self.dim(), "flatten");
  ATHANOR_CHECK(start_dim <= end_dim, "flatten() has invalid args: start_dim cannot come after end_dim, got ",
                start_dim, " and ", end_dim);
  if (self.dim() == 0) return reshape(self, {1});
  if (start_dim == end_dim) return self;
  DimVector shape;
  const auto first = static_cast<std::size_t>(start_dim), count = static_cast<std::size_t>(end_dim - start_dim + 1);
  for (std::int64_t d = 0; d < self.dim(); ++d)
    if (d < start_dim || d > end_dim)
      shape.push_back(self.size(d));
    else if (d == end_dim)
      shape.push_back(checked_numel(self.sizes().slice(first, count), "flatten"));
  return reshape(self, shape);
}

}  // namespace athanor::ops

#include "athanor/ops/view.glue.inc"
