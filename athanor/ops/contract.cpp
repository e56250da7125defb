// Products that sum over named or chosen dims: einsum, tensordot and their kin, and products of several matrices.
#include "athanor/ops/contract.h"

#include <array>

#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/diagonal.h"
#include "athanor/ops/einsum.h"
#include "athanor/ops/join.h"
#include "athanor/ops/linalg.h"
#include "athanor/ops/matmul.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reshape.h"
#include "athanor/ops/scan_sort.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

/// Sum over the products of dims_self of self with dims_other of other, pair by pair; the result has the dims of self
/// that are left, then those of other.
ATHANOR_FUNCTION("tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor | function out");
Tensor tensordot(const Tensor& left, const Tensor& right, IntArrayRef dims_self, IntArrayRef dims_other) {
  ATHANOR_CHECK(left.defined() && right.defined(), "tensordot: expected tensors, got an undefined one");
  Tensor self = left, other = right;
  ATHANOR_CHECK(dims_self.size() == dims_other.size(), "tensordot: both dimension lists should have same length, got ",
                dims_self, " and ", dims_other);
  ATHANOR_CHECK(self.dtype() == other.dtype(), "tensordot: both inputs should have same dtype, got ", self.dtype(),
                " and ", other.dtype());
  std::vector<bool> left_summed(static_cast<std::size_t>(self.dim())),
      right_summed(static_cast<std::size_t>(other.dim()));
  DimVector left_last, right_first;
  std::int64_t inner = 1;
  for (std::size_t i = 0; i < dims_self.size(); ++i) {
    const std::int64_t a = wrap_dim(dims_self[i], self.dim(), "tensordot");
    const std::int64_t b = wrap_dim(dims_other[i], other.dim(), "tensordot");
    ATHANOR_CHECK(!left_summed[static_cast<std::size_t>(a)] && !right_summed[static_cast<std::size_t>(b)],
                  "tensordot: a dim appears twice in ", dims_self, " or ", dims_other);
    // A dim of size 1 broadcasts: the other side's is summed.
    if (self.size(a) == 1 && other.size(b) != 1) other = sum(other, OptionalIntArrayRef(b), true, other.dtype());
    if (other.size(b) == 1 && self.size(a) != 1) self = sum(self, OptionalIntArrayRef(a), true, self.dtype());
    ATHANOR_CHECK(self.size(a) == other.size(b), "tensordot: contracted dimensions need to match, but first has size ",
                  self.size(a), " in dim ", a, " and second has size ", other.size(b), " in dim ", b);
    left_summed[static_cast<std::size_t>(a)] = right_summed[static_cast<std::size_t>(b)] = true;
    left_last.push_back(a);
    right_first.push_back(b);
    inner *= self.size(a);
  }
  DimVector left_order, right_order(right_first), sizes;
  std::int64_t rows = 1, columns = 1;
  for (std::int64_t d = 0; d < self.dim(); ++d)
    if (!left_summed[static_cast<std::size_t>(d)]) {
      left_order.push_back(d);
      sizes.push_back(self.size(d));
      rows *= self.size(d);
    }
  for (const std::int64_t d : left_last) left_order.push_back(d);
  for (std::int64_t d = 0; d < other.dim(); ++d)
    if (!right_summed[static_cast<std::size_t>(d)]) {
      right_order.push_back(d);
      sizes.push_back(other.size(d));
      columns *= other.size(d);
    }
  return reshape(
      mm(reshape(permute(self, left_order), {rows, inner}), reshape(permute(other, right_order), {inner, columns})),
      sizes);
}

/// Sums over the last dim of both; with a 0-d operand the plain product.
ATHANOR_FUNCTION("inner(Tensor self, Tensor other) -> Tensor | out");
Tensor inner(const Tensor& self, const Tensor& other) {
  ATHANOR_CHECK(self.defined() && other.defined(), "inner: expected tensors, got an undefined one");
  if (self.dim() == 0 || other.dim() == 0) return mul(self, other);
  ATHANOR_CHECK(self.dtype() == other.dtype(), "inner: expected both operands of one dtype, got ", self.dtype(),
                " and ", other.dtype());
  ATHANOR_CHECK(self.size(-1) == other.size(-1),
                "inner(): the last dimension must match on both input tensors but got ", "shapes ", self.sizes(),
                " and ", other.sizes());
  if (self.dim() == 1 && other.dim() == 1) return dot(self, other);
  return tensordot(self, other, std::int64_t{-1}, std::int64_t{-1});
}

/// Every element of self times the whole of other, in blocks; missing leading dims count as 1.
ATHANOR_FUNCTION("kron(Tensor self, Tensor other) -> Tensor | out");
Tensor kron(const Tensor& self, const Tensor& other) {
  ATHANOR_CHECK(self.defined() && other.defined(), "kron: expected tensors, got an undefined one");
  const std::int64_t n = std::max(self.dim(), other.dim());
  DimVector left, right, sizes;
  for (std::int64_t d = 0; d < n; ++d) {
    const std::int64_t a = d + self.dim() < n ? 1 : self.size(d + self.dim() - n);
    const std::int64_t b = d + other.dim() < n ? 1 : other.size(d + other.dim() - n);
    left.push_back(a);
    left.push_back(1);
    right.push_back(1);
    right.push_back(b);
    sizes.push_back(a * b);
  }
  return reshape(mul(reshape(self, left), reshape(other, right)), sizes);
}

/// The vector product of the triples along dim; the other dims broadcast.
ATHANOR_FUNCTION("linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor | function out");
Tensor linalg_cross(const Tensor& self, const Tensor& other, std::int64_t dim) {
  ATHANOR_CHECK(self.defined() && other.defined(), "linalg.cross: expected tensors, got an undefined one");
  ATHANOR_CHECK(self.dim() == other.dim(), "linalg.cross: inputs must have the same number of dimensions, got shapes ",
                self.sizes(), " and ", other.sizes());
  const std::int64_t d = wrap_dim(dim, self.dim(), "linalg.cross");
  ATHANOR_CHECK(self.dim() > 0 && self.size(d) == 3 && other.size(d) == 3, "linalg.cross: inputs dimension ", dim,
                " must have length 3. Got shapes ", self.sizes(), " and ", other.sizes());
  auto turned = [d](const Tensor& t, std::int64_t by) { return roll(t, -by, d); };
  return sub(mul(turned(self, 1), turned(other, 2)), mul(turned(self, 2), turned(other, 1)));
}

/// linalg_cross; without dim, the first dim of size 3.
ATHANOR_FUNCTION("cross(Tensor self, Tensor other, int? dim=None) -> Tensor | out");
Tensor cross(const Tensor& self, const Tensor& other, std::optional<std::int64_t> dim) {
  if (dim) return linalg_cross(self, other, *dim);
  for (std::int64_t d = 0; d < self.dim(); ++d)
    if (self.size(d) == 3) return linalg_cross(self, other, d);
  ATHANOR_THROW(Error, "cross: no dimension of size 3 in input of shape ", self.sizes());
}

/// Powers 0 … N - 1 of a vector's elements, a row each; by default as many as elements, falling.
ATHANOR_FUNCTION("vander(Tensor x, int? N=None, bool increasing=False) -> Tensor");
Tensor vander(const Tensor& x, std::optional<std::int64_t> N, bool increasing) {
  ATHANOR_CHECK(x.defined() && x.dim() == 1, "vander: x must be a one-dimensional tensor");
  const std::int64_t n = N.value_or(x.numel());
  ATHANOR_CHECK(n >= 0, "vander: N must be non-negative, got ", n);
  const DType type = is_floating_point(x.dtype()) ? x.dtype() : DType::Long;
  const TensorOptions options = TensorOptions(type).device(x.device());
  if (n == 0) return empty({x.numel(), 0}, options);
  const Tensor first = ones({x.numel(), 1}, options);
  const Tensor rest = cumprod(expand(unsqueeze(cast(x, type), 1), {x.numel(), n - 1}), 1);
  const Tensor rising = cat(TensorList{first, rest}, 1);
  return increasing ? rising : flip(rising, std::int64_t{1});
}

namespace {

/// The cheapest order of a product of matrices of the given borders: split[i][j] ends the left factor of i … j.
std::vector<std::vector<std::size_t>> best_splits(const std::vector<std::int64_t>& borders) {
  const std::size_t n = borders.size() - 1;
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<std::size_t>> split(n, std::vector<std::size_t>(n, 0));
  for (std::size_t length = 1; length < n; ++length)
    for (std::size_t i = 0; i + length < n; ++i) {
      const std::size_t j = i + length;
      cost[i][j] = INFINITY;
      for (std::size_t k = i; k < j; ++k) {
        const double c =
            cost[i][k] + cost[k + 1][j] +
            static_cast<double>(borders[i]) * static_cast<double>(borders[k + 1]) * static_cast<double>(borders[j + 1]);
        if (c < cost[i][j]) {
          cost[i][j] = c;
          split[i][j] = k;
        }
      }
    }
  return split;
}

Tensor product_of(const std::vector<Tensor>& m, const std::vector<std::vector<std::size_t>>& split, std::size_t i,
                  std::size_t j) {
  if (i == j) return m[i];
  const std::size_t k = split[i][j];
  return mm(product_of(m, split, i, k), product_of(m, split, k + 1, j));
}

}  // namespace

/// The product of two or more matrices in the order that costs least. The first and the last may be vectors.
ATHANOR_FUNCTION("linalg_multi_dot(Tensor[] tensors) -> Tensor | out");
Tensor linalg_multi_dot(TensorList tensors) {
  const std::size_t n = tensors.size();
  ATHANOR_CHECK(n >= 2, "multi_dot(): expected at least 2 tensors but got ", n);
  std::vector<Tensor> matrices(tensors.begin(), tensors.end());
  DimVector sizes;
  auto as_matrix = [&](std::size_t i, bool row) {
    Tensor& t = matrices[i];
    ATHANOR_CHECK(t.dim() == 1 || t.dim() == 2, "multi_dot(): the ", row ? "first" : "last",
                  " tensor must be 1D or 2D but got shape ", t.sizes());
    if (t.dim() == 2) sizes.push_back(t.size(row ? 0 : 1));
    if (t.dim() == 1) t = unsqueeze(t, row ? 0 : 1);
  };
  as_matrix(0, true);
  as_matrix(n - 1, false);
  std::vector<std::int64_t> borders{matrices[0].size(0)};
  for (std::size_t i = 0; i < n; ++i) {
    const Tensor& t = matrices[i];
    ATHANOR_CHECK(t.dim() == 2, "multi_dot(): tensor ", i, " must be 2D but got shape ", t.sizes());
    ATHANOR_CHECK(t.size(0) == borders.back(), "multi_dot(): tensors ", i - 1, " and ", i, " with shapes ",
                  tensors[i == 0 ? 0 : i - 1].sizes(), " and ", tensors[i].sizes(), " cannot be multiplied");
    borders.push_back(t.size(1));
  }
  return reshape(product_of(matrices, best_splits(borders), 0, n - 1), sizes);
}

/// The product of matrices; linalg_multi_dot for one or more.
ATHANOR_FUNCTION("chain_matmul(Tensor[] matrices) -> Tensor | out");
Tensor chain_matmul(TensorList matrices) {
  ATHANOR_CHECK(!matrices.empty(), "chain_matmul(): Expected one or more matrices");
  for (const Tensor& t : matrices)
    ATHANOR_CHECK(t.dim() == 2, "chain_matmul(): Tensor dimension is ", t.dim(), ", expected 2 instead: shape ",
                  t.sizes());
  return matrices.size() == 1 ? matrices[0] : linalg_multi_dot(matrices);
}

/// The n-th power of square matrices, in their last two dims; a negative one of the inverse.
ATHANOR_FUNCTION("linalg_matrix_power(Tensor self, int n) -> Tensor | function out");
Tensor linalg_matrix_power(const Tensor& self, std::int64_t n) {
  ATHANOR_CHECK(self.defined() && self.dim() >= 2 && self.size(-1) == self.size(-2),
                "linalg.matrix_power: A must be batches of square matrices, got shape ", self.sizes());
  if (n == 0) return clone(expand(eye(self.size(-1), self.options()), self.sizes()));
  Tensor base = n < 0 ? linalg_inv(self) : self, out;
  for (std::uint64_t rest = n < 0 ? 0 - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n); rest;
       rest >>= 1) {
    if (rest & 1) out = out.defined() ? matmul(out, base) : base;
    if (rest > 1) base = matmul(base, base);
  }
  return n == 1 ? clone(out) : out;
}

/// The product of n equal matrices, (*, m, m); of their inverses for a negative n. Throws LinAlgError if there is none.
ATHANOR_FUNCTION("matrix_power(Tensor self, int n) -> Tensor | out");
Tensor matrix_power(const Tensor& self, std::int64_t n) { return linalg_matrix_power(self, n); }

}  // namespace athanor::ops

#include "athanor/ops/contract.glue.inc"
