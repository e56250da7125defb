// More ways to see a tensor: moved, split and merged dims, windows, other dtypes, views in place.
#include "athanor/ops/reshape.h"

#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/index.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

/// The same values in the shape of other, without a copy. Throws Error where that needs one.
ATHANOR_FUNCTION("view_as(Tensor self, Tensor other) -> Tensor | method");
Tensor view_as(const Tensor& self, const Tensor& other) { return view(self, other.sizes()); }

/// The same values in the shape of other; a view where possible.
ATHANOR_FUNCTION("reshape_as(Tensor self, Tensor other) -> Tensor | method");
Tensor reshape_as(const Tensor& self, const Tensor& other) { return reshape(self, other.sizes()); }

/// All elements in row-major order as one dim; a view if possible.
ATHANOR_FUNCTION("ravel(Tensor self) -> Tensor");
Tensor ravel(const Tensor& self) { return reshape(contiguous(self), {given("ravel", self).numel()}); }

/// A view repeated to the given size along dims of one element, and along new ones in front.
ATHANOR_FUNCTION("broadcast_to(Tensor self, int[] size) -> Tensor");
Tensor broadcast_to(const Tensor& self, IntArrayRef size) { return expand(self, size); }

/// All tensors expanded to their common shape.
ATHANOR_FUNCTION("broadcast_tensors(Tensor[] tensors) -> Tensor[]");
std::vector<Tensor> broadcast_tensors(TensorList tensors) {
  DimVector shape;
  for (const Tensor& t : tensors) shape = broadcast_shapes(shape, t.sizes(), "broadcast_tensors");
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) out.push_back(expand(t, shape));
  return out;
}

/// Dim `dim` cut into the dims `sizes`, one of which may be -1.
ATHANOR_FUNCTION("unflatten(Tensor self, int dim, int[] sizes) -> Tensor");
Tensor unflatten(const Tensor& self, std::int64_t dim, IntArrayRef sizes) {
  const std::int64_t d = wrap_dim(dim, self.dim(), "unflatten");
  ATHANOR_CHECK(!sizes.empty(), "unflatten: sizes must be non-empty");
  const std::int64_t n = self.dim() ? self.size(d) : 1;
  std::int64_t known = 1;
  int unknown = 0;
  for (const std::int64_t s : sizes) {
    ATHANOR_CHECK(s >= -1, "unflatten: invalid size ", s, " in ", sizes);
    if (s == -1)
      ++unknown;
    else
      ATHANOR_CHECK(!__builtin_mul_overflow(known, s, &known), "unflatten: the product of ", sizes, " overflows");
  }
  ATHANOR_CHECK(unknown <= 1, "unflatten: only one dimension can be inferred, got ", sizes);
  ATHANOR_CHECK(!unknown || known != 0, "unflatten: sizes ", sizes, " leave the dimension of size -1 ambiguous");
  ATHANOR_CHECK(unknown ? n % known == 0 : n == known, "unflatten: Provided sizes ", sizes,
                " don't multiply up to the size of dim ", d, " (", n, ") in the input tensor");
  DimVector shape;
  for (std::int64_t i = 0; i < self.dim(); ++i) {
    if (i != d) {
      shape.push_back(self.size(i));
      continue;
    }
    for (const std::int64_t s : sizes) shape.push_back(s == -1 ? n / known : s);
  }
  if (self.dim() == 0)
    for (const std::int64_t s : sizes) shape.push_back(s == -1 ? n / known : s);
  return view(self, shape);
}

/// Dims `source` moved to the positions `destination`; the others keep their order.
ATHANOR_FUNCTION("movedim(Tensor self, int[] source, int[] destination) -> Tensor");
Tensor movedim(const Tensor& self, IntArrayRef source, IntArrayRef destination) {
  ATHANOR_CHECK(source.size() == destination.size(), "movedim: Invalid source or destination dims: source (", source,
                " dims) should contain the same number of dims as destination (", destination, " dims)");
  const std::int64_t n = self.dim();
  DimVector order(static_cast<std::size_t>(n), -1);
  std::uint64_t from = 0, to = 0;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::int64_t s = wrap_dim(source[i], n, "movedim"), d = wrap_dim(destination[i], n, "movedim");
    ATHANOR_CHECK(!(from >> s & 1), "movedim: repeated dim in `source` (", source, ")");
    ATHANOR_CHECK(!(to >> d & 1), "movedim: repeated dim in `destination` (", destination, ")");
    from |= std::uint64_t{1} << s;
    to |= std::uint64_t{1} << d;
    if (n > 0) order[static_cast<std::size_t>(d)] = s;
  }
  std::int64_t next = 0;
  for (std::int64_t& d : order) {
    if (d >= 0) continue;
    while (from >> next & 1) ++next;
    d = next++;
  }
  return permute(self, order);
}
ATHANOR_FUNCTION("movedim.int(Tensor self, int source, int destination) -> Tensor");
Tensor movedim(const Tensor& self, std::int64_t source, std::int64_t destination) {
  return movedim(self, IntArrayRef(source), IntArrayRef(destination));
}

/// The dims `dim` removed where their size is 1.
struct SqueezeDims {
  ATHANOR_VIEW("squeeze.dims(Tensor self, int[] dim) -> Tensor | inplace_view");
  static constexpr const char* grad_name = "SqueezeBackward2";
  DimVector dim;
  DimVector from;
  Geometry view(const Tensor& self) {
    from = DimVector(self.sizes());
    std::uint64_t named = 0;
    for (const std::int64_t d : dim) {
      const std::int64_t w = wrap_dim(d, self.dim(), "squeeze");
      ATHANOR_CHECK(!(named >> w & 1), "squeeze: dim ", w, " appears multiple times in the list of dims");
      named |= std::uint64_t{1} << w;
    }
    Geometry g{{}, {}, self.storage_offset()};
    for (std::int64_t d = 0; d < self.dim(); ++d) {
      if ((named >> d & 1) && self.size(d) == 1) continue;
      g.sizes.push_back(self.size(d));
      g.strides.push_back(self.stride(d));
    }
    return g;
  }
  void grad(GradCall& g) { g.set(0, reshape(g.grad(), from)); }
};

namespace {

void check_matrices(const char* op, const Tensor& self) {
  ATHANOR_CHECK(self.dim() >= 2, "tensor.", op, " is only supported on matrices or batches of matrices. Got ",
                self.dim(), "-D tensor.");
}

}  // namespace

/// The last two dims exchanged.
ATHANOR_FUNCTION("mT(Tensor self) -> Tensor | method");
Tensor mT(const Tensor& self) {
  check_matrices("mT", self);
  return transpose(self, -2, -1);
}
/// mT: there are no complex tensors.
ATHANOR_FUNCTION("adjoint(Tensor self) -> Tensor");
Tensor adjoint(const Tensor& self) {
  if (self.dim() == 0) return transpose(self, 0, 0);
  check_matrices("adjoint()", self);
  return transpose(self, -2, -1);
}

/// Windows of `size` elements every `step` along a dim, whose size becomes their number; a last dim runs within them.
struct Unfold {
  ATHANOR_VIEW("unfold(Tensor self, int dimension, int size, int step) -> Tensor | method");
  std::int64_t dimension, size, step;
  DimVector from;
  Geometry view(const Tensor& self) {
    dimension = wrap_dim(dimension, self.dim(), "unfold");
    from = DimVector(self.sizes());
    Geometry g{from, DimVector(self.strides()), self.storage_offset()};
    const auto d = static_cast<std::size_t>(dimension);
    const std::int64_t n = from.empty() ? 1 : from[d];
    ATHANOR_CHECK(size >= 0, "unfold: size is ", size, " but must be >= 0");
    ATHANOR_CHECK(size <= n, "unfold: maximum size for tensor at dimension ", dimension, " is ", n, " but size is ",
                  size);
    ATHANOR_CHECK(step > 0, "unfold: step is ", step, " but must be > 0");
    g.sizes.push_back(size);
    g.strides.push_back(from.empty() ? 1 : g.strides[d]);
    if (!from.empty()) {
      g.sizes[d] = (n - size) / step + 1;
      if (__builtin_mul_overflow(g.strides[d], step, &g.strides[d])) g.strides[d] = 0;  // one window only
    }
    return g;
  }
  void grad(GradCall& g) { g.set(0, unfold_backward(g.grad(), from, dimension, size, step)); }
};

/// The gradient of unfold: what the windows read of each element, summed.
ATHANOR_FUNCTION("unfold_backward(Tensor grad_in, int[] input_sizes, int dim, int size, int step) -> Tensor");
Tensor unfold_backward(const Tensor& grad_in, IntArrayRef input_sizes, std::int64_t dim, std::int64_t size,
                       std::int64_t step) {
  Tensor none = zeros(input_sizes, grad_in.options());
  if (grad_in.numel() == 0) return none;
  if (input_sizes.empty()) return reshape(grad_in, {});
  if (step >= size) {  // no two windows meet
    copy_(unfold(none, dim, size, step), grad_in);
    return none;
  }
  const TensorOptions indices(grad_in.device());
  const Tensor start = unsqueeze(mul(arange(grad_in.size(dim), indices), Scalar(step)), 1);
  const Tensor place = reshape(add(start, arange(size, indices)), {-1});
  return index_add(none, dim, place, flatten(movedim(grad_in, -1, dim + 1), dim, dim + 1));
}

/// The same bytes read as another dtype. Sizes of elements may differ if the last dim is dense and divides. The result
/// has no gradient.
ATHANOR_FUNCTION("view.dtype(Tensor self, ScalarType dtype) -> Tensor | method");
Tensor view(const Tensor& self, DType dtype) {
  Geometry g{DimVector(self.sizes()), DimVector(self.strides()), self.storage_offset()};
  const auto have = static_cast<std::int64_t>(self.itemsize()), want = static_cast<std::int64_t>(item_size(dtype));
  ATHANOR_CHECK(want > 0, "view: cannot view ", self.dtype(), " as an undefined dtype");
  const std::string how = have == want ? std::string()
                                       : std::string("to view ") + dtype_libtorch_name(self.dtype()) + " as " +
                                             dtype_libtorch_name(dtype) + " (different element sizes)";
  if (have != want) {
    if (self.numel() == 0) g.strides = detail::strides_for(g.sizes, MemoryFormat::Contiguous);  // as good as any
    const std::size_t n = g.sizes.size();
    ATHANOR_CHECK(n > 0, "view: self.dim() cannot be 0 ", how);
    ATHANOR_CHECK(g.strides[n - 1] == 1, "view: self.stride(-1) must be 1 ", how, ", but got ", g.strides[n - 1]);
    const std::int64_t ratio = have < want ? want / have : have / want;
    if (have > want) {
      g.sizes[n - 1] *= ratio;
      g.offset *= ratio;
      for (std::size_t d = 0; d + 1 < n; ++d) g.strides[d] *= ratio;
    } else {
      ATHANOR_CHECK(g.sizes[n - 1] % ratio == 0, "view: self.size(-1) must be divisible by ", ratio, ' ', how,
                    ", but got ", g.sizes[n - 1]);
      ATHANOR_CHECK(g.offset % ratio == 0, "view: self.storage_offset() must be divisible by ", ratio, ' ', how,
                    ", but got ", g.offset);
      g.sizes[n - 1] /= ratio;
      g.offset /= ratio;
      for (std::size_t d = 0; d + 1 < n; ++d) {
        ATHANOR_CHECK(g.strides[d] % ratio == 0 || self.numel() == 0, "view: self.stride(", d,
                      ") must be divisible by ", ratio, ' ', how, ", but got ", g.strides[d]);
        g.strides[d] /= ratio;
      }
    }
  }
  Tensor out = detail::alias(self, g.sizes, g.strides, g.offset);
  out.impl()->dtype = dtype;
  return out;
}

/// At least one dim: 0-d tensors become [1].
ATHANOR_FUNCTION("atleast_1d(Tensor self) -> Tensor | function");
Tensor atleast_1d(const Tensor& self) { return given("atleast_1d", self).dim() == 0 ? unsqueeze(self, 0) : self; }

/// At least two dims: [n] becomes [1, n].
ATHANOR_FUNCTION("atleast_2d(Tensor self) -> Tensor | function");
Tensor atleast_2d(const Tensor& self) {
  const Tensor t = atleast_1d(self);
  return t.dim() == 1 ? unsqueeze(t, 0) : t;
}

/// At least three dims: [n] becomes [1, n, 1] and [n, m] becomes [n, m, 1].
ATHANOR_FUNCTION("atleast_3d(Tensor self) -> Tensor | function");
Tensor atleast_3d(const Tensor& self) {
  const Tensor t = atleast_2d(self);
  return t.dim() == 2 ? unsqueeze(t, 2) : t;
}

namespace {

std::vector<Tensor> each(TensorList tensors, Tensor (*fn)(const Tensor&)) {
  std::vector<Tensor> out;
  out.reserve(tensors.size());
  for (const Tensor& t : tensors) out.push_back(fn(t));
  return out;
}

}  // namespace

ATHANOR_FUNCTION("atleast_1d.Sequence(Tensor[] tensors) -> Tensor[]");
std::vector<Tensor> atleast_1d(TensorList tensors) { return each(tensors, atleast_1d); }
ATHANOR_FUNCTION("atleast_2d.Sequence(Tensor[] tensors) -> Tensor[]");
std::vector<Tensor> atleast_2d(TensorList tensors) { return each(tensors, atleast_2d); }
ATHANOR_FUNCTION("atleast_3d.Sequence(Tensor[] tensors) -> Tensor[]");
std::vector<Tensor> atleast_3d(TensorList tensors) { return each(tensors, atleast_3d); }

/// narrow with its start in a 0-d integer tensor.
ATHANOR_FUNCTION("narrow.Tensor(Tensor self, int dim, Tensor start, int length) -> Tensor");
Tensor narrow(const Tensor& self, std::int64_t dim, const Tensor& start, std::int64_t length) {
  ATHANOR_CHECK(start.defined() && start.dim() == 0 && is_integral(start.dtype()),
                "narrow: start must be an 0-dim integral Tensor, got ",
                start.defined() ? detail::str(start.dtype(), " of shape ", start.sizes()) : "an undefined one");
  return narrow(self, dim, start.item().toLong(), length);
}

}  // namespace athanor::ops

#include "athanor/ops/reshape.glue.inc"
