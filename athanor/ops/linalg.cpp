// Small dense linear algebra on batches of square matrices: solve, inverse, determinant, Cholesky factor.
#include "athanor/ops/linalg.h"

#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/join.h"
#include "athanor/ops/kernels/linalg.h"
#include "athanor/ops/matmul.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reshape.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

void check_square(const char* op, const Tensor& a) {
  ATHANOR_CHECK(a.defined(), op, ": expected a tensor, got an undefined one");
  ATHANOR_CHECK(a.dim() >= 2 && a.size(-1) == a.size(-2), op, ": A must be batches of square matrices, but they are ",
                "of shape ", a.sizes());
  ATHANOR_CHECK_TYPE(NotImplementedError, a.dtype() == DType::Float || a.dtype() == DType::Double, op,
                     ": Expected a float32 or float64 tensor, got ", a.dtype(), "; convert it with .to()");
}

DimVector batch_sizes(const Tensor& a) { return DimVector(a.sizes().slice(0, a.sizes().size() - 2)); }

Tensor flipped(const Tensor& a) { return transpose(a, -2, -1); }

}  // namespace

/// a⁻¹ b for matrices (…, n, n) and (…, n, m) of the same batch dims.
struct Solve {
  ATHANOR_OP("_solve(Tensor self, Tensor b) -> Tensor | function");
  static constexpr const char* grad_name = "LinalgSolveExBackward0";
  SavedTensor a, x;
  Meta infer(const Tensor& self, const Tensor& b) { return {DimVector(b.sizes()), self.dtype(), self.device(), {}}; }
  void run(const Tensor& out, const Tensor& self, const Tensor& b) {
    launch(solve_kernel, out, self, b, static_cast<const char*>("linalg.solve"));
  }
  void save(const Node&, const Tensor& self, const Tensor&) { a.save(self); }
  void save_results(Node* n, const Tensor& out) { x.save_result(out, n); }
  void grad(GradCall& g) {
    const Tensor gb = _solve(flipped(g.get(a)), g.grad());
    if (g.needs(0)) g.set(0, neg(matmul(gb, flipped(g.get(x)))));
    if (g.needs(1)) g.set(1, gb);
  }
};

/// The solution X of A X = B, or X A = B if not left. B may be a batch of vectors where A has one dim more than B, or
/// B's shape is A's without its last size. Throws LinAlgError for a singular A.
ATHANOR_FUNCTION("linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor | out");
Tensor linalg_solve(const Tensor& A, const Tensor& B, bool left) {
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
  if (!left) return flipped(linalg_solve(flipped(A), flipped(B), true));
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
Tensor linalg_inv(const Tensor& A) {
  check_square("linalg.inv", A);
  return _solve(A, expand(eye(A.size(-1), A.options()), A.sizes()));
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
  void run(const Tensor& sign, const Tensor& logabs, const Tensor& A) { launch<2>(slogdet_kernel, sign, logabs, A); }
  void save(const Node&, const Tensor& A) { a.save(A); }
  void grad(GradCall& g) {
    // The sign is constant in pieces.
    if (g.has(1)) g.set(0, mul(unsqueeze(unsqueeze(g.grad(1), -1), -1), flipped(linalg_inv(g.get(a)))));
  }
};
/// The sign of the determinant of each matrix, (*, n, n), and the logarithm of its size.
ATHANOR_FUNCTION("slogdet(Tensor self) -> (Tensor, Tensor) | out");
std::tuple<Tensor, Tensor> slogdet(const Tensor& self) { return linalg_slogdet(self); }

/// Determinants. Their gradient needs the inverse: it throws LinAlgError for a singular matrix.
ATHANOR_FUNCTION("linalg_det(Tensor A) -> Tensor | out");
Tensor linalg_det(const Tensor& A) {
  const auto [sign, logabs] = linalg_slogdet(A);
  return mul(sign, exp(logabs));
}
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
    const Tensor factor = g.get(l), upper = flipped(factor);
    const Tensor inner = matmul(upper, g.grad());
    const Tensor half = add(tril(inner, 0), tril(inner, -1));  // twice Φ
    const Tensor left = _solve(upper, half);
    const Tensor s = flipped(_solve(upper, flipped(left)));
    g.set(0, mul(add(s, flipped(s)), 0.25));
  }
};

/// L with L Lᵀ = A, or its transpose if `upper`. A must be symmetric: only its lower (upper) triangle is read.
ATHANOR_FUNCTION("linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor | function out");
Tensor linalg_cholesky(const Tensor& self, bool upper) {
  check_square("linalg.cholesky", self);
  return upper ? flipped(_cholesky(flipped(self))) : _cholesky(self);
}
/// L, lower triangular with L Lᵀ = input, of each symmetric positive-definite matrix, (*, n, n), or Lᵀ with upper.
/// Throws LinAlgError for others.
ATHANOR_FUNCTION("cholesky(Tensor self, bool upper=False) -> Tensor");
Tensor cholesky(const Tensor& self, bool upper) { return linalg_cholesky(self, upper); }

}  // namespace athanor::ops

#include "athanor/ops/linalg.glue.inc"
