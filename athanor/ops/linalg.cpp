// Small dense linear algebra on batches of matrices: solve, inverse, determinant, Cholesky factor.
#include "athanor/ops/linalg.h"

#include <cmath>

#include "athanor/ops/autocast.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/diagonal.h"
#include "athanor/ops/join.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/kernels/linalg.h"
#include "athanor/ops/linalg_checks.h"
#include "athanor/ops/linalg_decompose.h"
#include "athanor/ops/matmul.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reduce_extreme.h"
#include "athanor/ops/reshape.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

using linalg::batch_sizes;
using linalg::check_square;
using linalg::swapped;

/// A number per matrix, made to broadcast against the matrices.
Tensor for_matrices(const Tensor& t) { return unsqueeze(unsqueeze(t, -1), -1); }

/// Room for the factorization of matrices, which gradients solve with again.
struct LuRoom {
  Tensor lu, pivots;
  LuRoom() = default;
  explicit LuRoom(const Tensor& a)
      : lu(detail::empty_tensor(a.sizes(), a.dtype(), a.device())),
        pivots(detail::empty_tensor(a.sizes().slice(0, a.sizes().size() - 1), DType::Long, a.device())) {}
};

}  // namespace

/// self⁻¹ b, or that of self's transpose, with the factors of self.
struct SolveAgain {
  ATHANOR_OP("_solve_again(Tensor self, Tensor b, Tensor lu, Tensor pivots, bool transposed) -> Tensor | function");
  static constexpr const char* grad_name = "LinalgSolveExBackward0";
  bool transposed;
  SavedTensor a, x;
  LuRoom factors;
  Meta infer(const Tensor&, const Tensor& b, const Tensor&, const Tensor&) {
    return {DimVector(b.sizes()), b.dtype(), b.device(), {}};
  }
  void run(const Tensor& out, const Tensor&, const Tensor& b, const Tensor& lu, const Tensor& pivots) {
    launch(solve_again_kernel, out, lu, pivots, b, transposed);
  }
  void save(const Node&, const Tensor& self, const Tensor&, const Tensor& lu, const Tensor& pivots) {
    a.save(self);
    factors.lu = lu, factors.pivots = pivots;
  }
  void save_results(Node* n, const Tensor& out) { x.save_result(out, n); }
  void grad(GradCall& g) {
    const Tensor gb = _solve_again(g.get(a), g.grad(), factors.lu, factors.pivots, !transposed), y = g.get(x);
    if (g.needs(0)) g.set(0, neg(transposed ? matmul(y, swapped(gb)) : matmul(gb, swapped(y))));
    if (g.needs(1)) g.set(1, gb);
  }
};

/// a⁻¹ b for matrices (…, n, n) and (…, n, m) of the same batch dims.
struct Solve {
  ATHANOR_OP("_solve(Tensor self, Tensor b, bool inverts=False) -> Tensor | function");
  static constexpr const char* grad_name = "LinalgSolveExBackward0";
  bool inverts;  // b is the identity
  SavedTensor a, x;
  LuRoom factors;
  Meta infer(const Tensor& self, const Tensor& b) { return {DimVector(b.sizes()), self.dtype(), self.device(), {}}; }
  void run(const Tensor& out, const Tensor& self, const Tensor& b) {
    factors = LuRoom(self);
    launch<3>(solve_kernel, out, factors.lu, factors.pivots, self, b, inverts);
  }
  void save(const Node&, const Tensor& self, const Tensor&) {
    if (!inverts) a.save(self);
  }
  void save_results(Node* n, const Tensor& out) {
    x.save_result(out, n);
    if (inverts) factors = LuRoom();
  }
  void grad(GradCall& g) {
    const Tensor back = swapped(g.get(x));
    const Tensor gb =
        inverts ? matmul(back, g.grad()) : _solve_again(g.get(a), g.grad(), factors.lu, factors.pivots, true);
    if (g.needs(0)) g.set(0, neg(matmul(gb, back)));
    if (g.needs(1)) g.set(1, gb);
  }
};

/// The solution X of A X = B, or X A = B if not left. B may be a batch of vectors where A has one dim more than B, or
/// B's shape is A's without its last size. Throws LinAlgError for a singular A.
ATHANOR_FUNCTION("linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor | out");
Tensor linalg_solve(const Tensor& A_, const Tensor& B_, bool left) {
  const Tensor A = autocast_to_float(A_), B = autocast_to_float(B_);
  check_square("linalg.solve", A);
  ATHANOR_CHECK(B.defined() && B.dtype() == A.dtype(), "linalg.solve: expected A and B to have the same dtype, got ",
                A.dtype(), " and ", B.defined() ? B.dtype() : DType::Undefined);
  const DimVector batch = batch_sizes(A);
  DimVector vector_shape(batch);
  vector_shape.push_back(A.size(-1));
  const bool vector = B.dim() == 1 || (A.dim() - 1 == B.dim() && B.sizes() == IntArrayRef(vector_shape));
  if (vector) {
    ATHANOR_CHECK(left, "linalg.solve: Vector broadcasting of the left hand side is not supported for left=false");
    return squeeze(linalg_solve(A, unsqueeze(B, -1), true), -1);
  }
  ATHANOR_CHECK(B.dim() >= 2 && B.size(left ? -2 : -1) == A.size(-1),
                "linalg.solve: Incompatible shapes of A and B for ", "the equation ", left ? "AX = B" : "XA = B", " (",
                A.sizes(), " and ", B.sizes(), ")");
  if (!left) return swapped(linalg_solve(swapped(A), swapped(B), true));
  const DimVector common = broadcast_shapes(batch, batch_sizes(B), "linalg.solve");
  DimVector a_sizes(common), b_sizes(common);
  for (const std::int64_t d : {-2, -1}) {
    a_sizes.push_back(A.size(d));
    b_sizes.push_back(B.size(d));
  }
  return _solve(expand(A, a_sizes), expand(B, b_sizes));
}

/// The inverse of square matrices. Throws LinAlgError for a singular one.
ATHANOR_FUNCTION("linalg_inv(Tensor A) -> Tensor | out");
Tensor linalg_inv(const Tensor& A_) {
  const Tensor A = autocast_to_float(A_);
  check_square("linalg.inv", A);
  return _solve(A, expand(eye(A.size(-1), A.options()), A.sizes()), true);
}
/// The inverse of each matrix, (*, n, n). Throws LinAlgError if there is none.
ATHANOR_FUNCTION("inverse(Tensor self) -> Tensor | out");
Tensor inverse(const Tensor& self) { return linalg_inv(self); }

/// Sign and logarithm of the absolute value of determinants; 0 and -inf for a singular matrix, which has no gradient.
struct SlogDet {
  ATHANOR_OP("linalg_slogdet(Tensor A) -> (Tensor, Tensor) | out");
  static constexpr const char* grad_name = "LinalgSlogdetBackward0";
  SavedTensor a;
  std::array<Meta, 2> infer(const Tensor& A) {
    check_square("linalg.slogdet", A);
    const Meta m{batch_sizes(A), A.dtype(), A.device(), {}};
    return {m, m};
  }
  void run(const Tensor& sign, const Tensor& logabs, const Tensor& A) {
    const LuRoom room(A);
    launch<4>(slogdet_kernel, sign, logabs, room.lu, room.pivots, A);
  }
  void save(const Node&, const Tensor& A) { a.save(A); }
  void grad(GradCall& g) {
    // The sign is constant in pieces.
    if (g.has(1)) g.set(0, mul(for_matrices(g.grad(1)), swapped(linalg_inv(g.get(a)))));
  }
};
/// The sign of the determinant of each matrix, (*, n, n), and the logarithm of its size.
ATHANOR_FUNCTION("slogdet(Tensor self) -> (Tensor, Tensor) | out");
std::tuple<Tensor, Tensor> slogdet(const Tensor& self) { return linalg_slogdet(self); }

/// Determinants. The gradient is right for singular matrices too; that of their third order takes what svd's takes.
struct Det {
  ATHANOR_OP("linalg_det(Tensor A) -> Tensor | out");
  static constexpr const char* grad_name = "LinalgDetBackward0";
  SavedTensor a, d;
  LuRoom factors;
  Meta infer(const Tensor& A) {
    check_square("linalg.det", A);
    return {batch_sizes(A), A.dtype(), A.device(), {}};
  }
  void run(const Tensor& out, const Tensor& A) {
    factors = LuRoom(A);
    const bool direct = out.is_contiguous();
    const Tensor values = direct ? out : detail::empty_tensor(out.sizes(), out.dtype(), out.device());
    launch<4>(slogdet_kernel, values, Tensor(), factors.lu, factors.pivots, A);
    if (!direct) launch(copy_kernel, out, values);
  }
  void save(const Node&, const Tensor& A) { a.save(A); }
  void save_results(Node* n, const Tensor& out) { d.save_result(out, n); }
  void grad(GradCall& g) {
    const Tensor m = g.get(a), det = g.get(d), singular = for_matrices(eq(det, 0)), up = for_matrices(g.grad());
    const Tensor one = eye(m.size(-1), m.options());
    if (!any(singular).item().toBool())
      return g.set(0, _solve_again(m, mul(mul(up, for_matrices(det)), one), factors.lu, factors.pivots, true));
    const Tensor by_inverse = mul(for_matrices(det), swapped(linalg_inv(where(singular, one, m))));
    g.set(0, mul(up, where(singular, _cofactors(m), by_inverse)));
  }
};
/// The determinant of each matrix, (*, n, n).
ATHANOR_FUNCTION("det(Tensor self) -> Tensor");
Tensor det(const Tensor& self) { return linalg_det(self); }

/// Logarithms of determinants; NaN where one is negative.
ATHANOR_FUNCTION("logdet(Tensor self) -> Tensor");
Tensor logdet(const Tensor& self) {
  const auto [sign, logabs] = linalg_slogdet(self);
  return add(logabs, log(detach(sign)));
}

/// The lower factor of symmetric positive-definite matrices.
struct Cholesky {
  ATHANOR_OP("_cholesky(Tensor self) -> Tensor | function");
  static constexpr const char* grad_name = "LinalgCholeskyExBackward0";
  SavedTensor l;
  Meta infer(const Tensor& self) {
    check_square("linalg.cholesky", self);
    return {DimVector(self.sizes()), self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self) {
    launch(cholesky_kernel, out, self, static_cast<const char*>("linalg.cholesky"));
  }
  void save_results(Node* n, const Tensor& out) { l.save_result(out, n); }
  void grad(GradCall& g) {
    // Murray, "Differentiation of the Cholesky decomposition", 2016: S = L⁻ᵀ Φ(Lᵀ gL) L⁻¹, made symmetric.
    const Tensor factor = g.get(l), upper = swapped(factor);
    const Tensor inner = matmul(upper, g.grad());
    const Tensor half = add(tril(inner, 0), tril(inner, -1));  // twice Φ
    const Tensor left = _solve(upper, half);
    const Tensor s = swapped(_solve(upper, swapped(left)));
    g.set(0, mul(add(s, swapped(s)), 0.25));
  }
};

/// L with L Lᵀ = A, or its transpose if `upper`. A must be symmetric: only its lower (upper) triangle is read.
ATHANOR_FUNCTION("linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor | function out");
Tensor linalg_cholesky(const Tensor& self, bool upper) {
  check_square("linalg.cholesky", self);
  return upper ? swapped(_cholesky(swapped(self))) : _cholesky(self);
}
/// L, lower triangular with L Lᵀ = input, of each symmetric positive-definite matrix, (*, n, n), or Lᵀ with upper.
/// Throws LinAlgError for others.
ATHANOR_FUNCTION("cholesky(Tensor self, bool upper=False) -> Tensor");
Tensor cholesky(const Tensor& self, bool upper) { return linalg_cholesky(self, upper); }

// Singular values, and what follows from them.

namespace {

Tensor as_row(const Tensor& s) { return unsqueeze(s, -2); }
Tensor as_column(const Tensor& s) { return unsqueeze(s, -1); }

}  // namespace

/// self (…, m, n) = U diag(S) Vh with k = min(m, n) singular values, the greatest first. The gradient of U and Vh is
/// infinite where singular values meet. Throws LinAlgError for what is not finite.
struct Svd {
  ATHANOR_OP("_svd(Tensor self) -> (Tensor, Tensor, Tensor) | function");
  static constexpr const char* grad_name = "LinalgSvdBackward0";
  SavedTensor u, s, vh;
  std::array<Meta, 3> infer(const Tensor& self) {
    ATHANOR_CHECK_TYPE(NotImplementedError, self.dtype() == DType::Float || self.dtype() == DType::Double,
                       "linalg.svd: Expected a float32 or float64 tensor, got ", self.dtype(),
                       "; convert it with .to()");
    const std::int64_t m = self.size(-2), n = self.size(-1), k = std::min(m, n);
    const auto meta = [&](std::initializer_list<std::int64_t> last) {
      DimVector sizes(self.sizes().slice(0, self.sizes().size() - 2));
      for (const std::int64_t size : last) sizes.push_back(size);
      return Meta{sizes, self.dtype(), self.device(), {}};
    };
    return {meta({m, k}), meta({k}), meta({k, n})};
  }
  void run(const Tensor& left, const Tensor& values, const Tensor& right, const Tensor& self) {
    launch<3>(svd_kernel, left, values, right, self);
  }
  void save_results(Node* n, const Tensor& left, const Tensor& values, const Tensor& right) {
    u.save_result(left, n), s.save_result(values, n), vh.save_result(right, n);
  }
  void grad(GradCall& g) {
    // Townsend, "Differentiating the singular value decomposition", 2016.
    const Tensor U = g.get(u), S = g.get(s), Vh = g.get(vh);
    const std::int64_t k = S.size(-1);
    Tensor inner = g.has(1) ? diag_embed(g.grad(1)) : Tensor(), result;
    const auto add_to = [](Tensor& sum, const Tensor& t) { sum = sum.defined() ? add(sum, t) : t; };
    // Xᵀ - X is divided by differences of squares; on its diagonal it is 0.
    const Tensor squares = mul(S, S);
    const Tensor apart = where(eye(k, TensorOptions(DType::Bool).device(S.device())), Scalar(1),
                               sub(as_row(squares), as_column(squares)));
    const auto skew = [&](const Tensor& x) { return div(sub(x, swapped(x)), apart); };
    if (g.has(0)) {
      const Tensor& gu = g.grad(0);
      const Tensor scaled = div(gu, as_row(S));
      add_to(inner, mul(skew(matmul(swapped(U), gu)), as_row(S)));
      if (U.size(-2) > k) add_to(result, matmul(sub(scaled, matmul(U, matmul(swapped(U), scaled))), Vh));
    }
    if (g.has(2)) {
      const Tensor& gv = g.grad(2);
      const Tensor scaled = div(gv, as_column(S));
      add_to(inner, mul(as_column(S), skew(matmul(Vh, swapped(gv)))));
      if (Vh.size(-1) > k) add_to(result, matmul(U, sub(scaled, matmul(matmul(scaled, swapped(Vh)), Vh))));
    }
    if (inner.defined()) add_to(result, matmul(matmul(U, inner), Vh));
    g.set(0, result);
  }
};

namespace {

/// The products of all s (…, k) but those that `left_out` (…, k, …), broadcast against s, names.
Tensor products_without(const Tensor& s, const Tensor& left_out) {
  return prod(where(left_out, Scalar(1), s), -1, false, std::nullopt);
}

struct Factors {
  Tensor u, s, vh, sign;
  explicit Factors(const Tensor& a) {
    std::tie(u, s, vh) = _svd(a);
    sign = for_matrices(round(mul(linalg_det(u), linalg_det(vh))));
  }
  Tensor same() const { return eye(s.size(-1), TensorOptions(DType::Bool).device(s.device())); }
};

}  // namespace

/// The matrix of cofactors, det(self) self⁻ᵀ where there is an inverse: the gradient of the determinant.
struct Cofactors {
  ATHANOR_OP("_cofactors(Tensor self) -> Tensor | function");
  SavedTensor a;
  Meta infer(const Tensor& self) { return {DimVector(self.sizes()), self.dtype(), self.device(), {}}; }
  void run(const Tensor& out, const Tensor& self) {
    const NoGradGuard off;
    const Factors f(detach(self));
    const Tensor others = products_without(as_row(f.s), f.same());
    copy_(out, matmul(mul(mul(f.u, f.sign), as_row(others)), f.vh));
  }
  void save(const Node&, const Tensor& self) { a.save(self); }
  void grad(GradCall& g) {
    // Of a diagonal matrix the cofactors change by J, which is symmetric: J(E)_ii = Σ_k P_ik E_kk, J(E)_ij = -P_ij E_ji
    // with P_ij the product of all entries but i and j. Nothing is divided by what may be 0.
    const Factors f(g.get(a));
    const Tensor same = f.same();
    const Tensor left_out = logical_or(unsqueeze(same, 1), unsqueeze(same, 0));
    const Tensor others = where(same, Scalar(0), products_without(as_row(as_row(f.s)), left_out));
    const Tensor e = matmul(matmul(swapped(f.u), g.grad()), swapped(f.vh));
    const Tensor diagonals = squeeze(matmul(others, as_column(diagonal(e, 0, -2, -1))), -1);
    const Tensor j = sub(diag_embed(diagonals), mul(others, swapped(e)));
    g.set(0, matmul(mul(matmul(f.u, j), f.sign), f.vh));
  }
};

namespace {

/// The two dims of matrices, counted from the front.
std::pair<std::int64_t, std::int64_t> matrix_dims(const Tensor& a, IntArrayRef dim) {
  ATHANOR_CHECK(a.defined() && a.dim() >= 2,
                "linalg.matrix_norm: The input tensor A must have at least 2 dimensions, got ",
                a.defined() ? a.dim() : 0);
  ATHANOR_CHECK(dim.size() == 2, "linalg.matrix_norm: dim must be a 2-tuple. Got ", dim);
  const std::int64_t rows = wrap_dim(dim[0], a.dim(), "linalg.matrix_norm"),
                     columns = wrap_dim(dim[1], a.dim(), "linalg.matrix_norm");
  ATHANOR_CHECK(rows != columns, "linalg.matrix_norm: dims must be different. Got ", dim);
  return {rows, columns};
}

Tensor with_norm_dtype(const Tensor& a, std::optional<DType> dtype) {
  ATHANOR_CHECK_TYPE(NotImplementedError, is_floating_point(a.dtype()),
                     "linalg.matrix_norm: Expected a floating point tensor as input. Got ",
                     dtype_libtorch_name(a.dtype()), "; convert it with .to(kFloat)");
  if (!dtype) return a;
  ATHANOR_CHECK(is_floating_point(*dtype), "linalg.matrix_norm: dtype should be a floating one, got ", *dtype);
  return cast(a, *dtype);
}

/// The greatest or least along dim; the greatest of none is 0, as the norm of nothing is.
Tensor extreme_of(const Tensor& t, std::int64_t dim, bool greatest) {
  if (!greatest) return amin(t, IntArrayRef(dim), true);
  return t.size(dim) == 0 ? sum(t, IntArrayRef(dim), true, std::nullopt) : amax(t, IntArrayRef(dim), true);
}

/// Along `dims`, whose sizes become 1, or go.
Tensor without_dims(const Tensor& self, const Tensor& norm, std::pair<std::int64_t, std::int64_t> dims, bool keepdim) {
  DimVector sizes;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const bool gone = d == dims.first || d == dims.second;
    if (!gone || keepdim) sizes.push_back(gone ? 1 : self.size(d));
  }
  return reshape(norm, sizes);
}

Tensor singular_values(const Tensor& a, std::pair<std::int64_t, std::int64_t> dims) {
  return linalg_svdvals(movedim(a, IntArrayRef{dims.first, dims.second}, IntArrayRef{-2, -1}));
}

}  // namespace

/// Norms of the matrices along two dims. ord: 2 (-2) the greatest (least) singular value, 1 (-1) the greatest (least)
/// sum of the absolute values of a column, inf (-inf) of a row.
ATHANOR_FUNCTION(
    "linalg_matrix_norm(Tensor self, Scalar ord, int[] dim={-2, -1}, bool keepdim=False, *, ScalarType? dtype=None) -> "
    "Tensor | function out");
Tensor linalg_matrix_norm(const Tensor& self, const Scalar& ord, IntArrayRef dim, bool keepdim,
                          std::optional<DType> dtype) {
  const auto dims = matrix_dims(self, dim);
  const double p = ord.toDouble();
  ATHANOR_CHECK(std::abs(p) == 1 || std::abs(p) == 2 || std::isinf(p), "linalg.matrix_norm: Order ", p,
                " not supported. Expected 'fro', 'nuc', 1, 2, inf or their negatives");
  const Tensor a = with_norm_dtype(self, dtype);
  if (std::abs(p) == 2) return without_dims(a, extreme_of(singular_values(a, dims), -1, p > 0), dims, keepdim);
  const bool by_columns = std::abs(p) == 1;
  const Tensor sums = sum(abs(a), IntArrayRef(by_columns ? dims.first : dims.second), true, std::nullopt);
  return without_dims(a, extreme_of(sums, by_columns ? dims.second : dims.first, p > 0), dims, keepdim);
}
/// ord: "fro", the root of the sum of squares, or "nuc", the sum of the singular values.
ATHANOR_FUNCTION(
    "linalg_matrix_norm.str_ord(Tensor self, str ord='fro', int[] dim={-2, -1}, bool keepdim=False, *, ScalarType? "
    "dtype=None) -> Tensor | function out");
Tensor linalg_matrix_norm(const Tensor& self, std::string_view ord, IntArrayRef dim, bool keepdim,
                          std::optional<DType> dtype) {
  const auto dims = matrix_dims(self, dim);
  ATHANOR_CHECK(ord == "fro" || ord == "nuc", "linalg.matrix_norm: Order ", ord,
                " not supported. Expected 'fro', 'nuc', 1, 2, inf or their negatives");
  const Tensor a = with_norm_dtype(self, dtype);
  if (ord == "fro") return linalg_vector_norm(a, 2, IntArrayRef{dims.first, dims.second}, keepdim, std::nullopt);
  return without_dims(a, sum(singular_values(a, dims), IntArrayRef{std::int64_t{-1}}, false, std::nullopt), dims,
                      keepdim);
}

/// The norm of all elements or along dim: a vector norm, or for two dims (or a matrix) and an ord as matrix_norm.
ATHANOR_FUNCTION(
    "linalg_norm(Tensor self, Scalar? ord=None, int[]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> "
    "Tensor | function out");
Tensor linalg_norm(const Tensor& self, const std::optional<Scalar>& ord, OptionalIntArrayRef dim, bool keepdim,
                   std::optional<DType> dtype) {
  ATHANOR_CHECK(!dim.has_value() || dim->size() == 1 || dim->size() == 2 || (!ord && dim->empty()),
                "linalg.norm: If dim is specified, it must be of length 1 or 2. Got ", *dim);
  if (!ord) return linalg_vector_norm(self, 2, dim, keepdim, dtype);
  ATHANOR_CHECK(dim.has_value() || self.dim() == 1 || self.dim() == 2,
                "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got ", self.dim(), "D.");
  if (dim.has_value() ? dim->size() == 2 : self.dim() == 2)
    return linalg_matrix_norm(self, *ord, dim.has_value() ? *dim : IntArrayRef{-2, -1}, keepdim, dtype);
  return linalg_vector_norm(self, *ord, dim, keepdim, dtype);
}
ATHANOR_FUNCTION(
    "linalg_norm.ord_str(Tensor self, str ord, int[]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> "
    "Tensor | function out");
Tensor linalg_norm(const Tensor& self, std::string_view ord, OptionalIntArrayRef dim, bool keepdim,
                   std::optional<DType> dtype) {
  ATHANOR_CHECK(dim.has_value() ? dim->size() == 2 : self.dim() == 2, "linalg.norm: order ", ord,
                " is one of matrices; expected two dims of a tensor, got a tensor of shape ", self.sizes());
  return linalg_matrix_norm(self, ord, dim.has_value() ? *dim : IntArrayRef{-2, -1}, keepdim, dtype);
}

}  // namespace athanor::ops

#include "athanor/ops/linalg.glue.inc"
