// Decompositions of batches of matrices: QR, singular values, eigenvalues of symmetric ones; triangular systems.
#include "athanor/ops/linalg_decompose.h"

#include "athanor/ops/autocast.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/diagonal.h"
#include "athanor/ops/join.h"
#include "athanor/ops/kernels/linalg.h"
#include "athanor/ops/kernels/linalg_decompose.h"
#include "athanor/ops/linalg.h"
#include "athanor/ops/linalg_checks.h"
#include "athanor/ops/matmul.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reshape.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace linalg {

void check_matrix(const char* op, const Tensor& a) {
  ATHANOR_CHECK(a.defined(), op, ": expected a tensor, got an undefined one");
  ATHANOR_CHECK(a.dim() >= 2, op, ": The input tensor A must have at least 2 dimensions, got shape ", a.sizes());
  ATHANOR_CHECK_TYPE(NotImplementedError, a.dtype() == DType::Float || a.dtype() == DType::Double, op,
                     ": Expected a float32 or float64 tensor, got ", a.dtype(), "; convert it with .to()");
}

void check_square(const char* op, const Tensor& a) {
  check_matrix(op, a);
  ATHANOR_CHECK(a.size(-1) == a.size(-2), op, ": A must be batches of square matrices, but they are ", "of shape ",
                a.sizes());
}

void check_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  ATHANOR_CHECK(b.defined() && b.dtype() == a.dtype(), op, ": expected A and B to have the same dtype, got ", a.dtype(),
                " and ", b.defined() ? b.dtype() : DType::Undefined);
}

DimVector batch_sizes(const Tensor& a) { return DimVector(a.sizes().slice(0, a.sizes().size() - 2)); }

}  // namespace linalg

namespace {

using linalg::swapped;

enum QrMode : std::int64_t { kReduced, kComplete, kOnlyR };

Meta meta_of(const Tensor& a, std::initializer_list<std::int64_t> last) {
  DimVector sizes = linalg::batch_sizes(a);
  for (const std::int64_t size : last) sizes.push_back(size);
  return {sizes, a.dtype(), a.device(), {}};
}

void add_to(Tensor& sum, const Tensor& t) { sum = sum.defined() ? add(sum, t) : t; }

}  // namespace

/// self = Q R; mode 0: reduced, 1: complete, 2: R alone.
struct Qr {
  ATHANOR_OP("_qr(Tensor self, int mode) -> (Tensor, Tensor) | function");
  static constexpr const char* grad_name = "LinalgQrBackward0";
  std::int64_t mode;
  SavedTensor q, r;
  std::array<Meta, 2> infer(const Tensor& self) {
    const std::int64_t m = self.size(-2), n = self.size(-1), k = mode == kComplete ? m : std::min(m, n);
    if (mode == kOnlyR) return {Meta{{0}, self.dtype(), self.device(), {}}, meta_of(self, {k, n})};
    return {meta_of(self, {m, k}), meta_of(self, {k, n})};
  }
  void run(const Tensor& orthogonal, const Tensor& upper, const Tensor& self) {
    launch<2>(qr_kernel, mode == kOnlyR ? Tensor() : orthogonal, upper, self);
  }
  void save_results(Node* n, const Tensor& orthogonal, const Tensor& upper) {
    q.save_result(orthogonal, n), r.save_result(upper, n);
  }
  void grad(GradCall& g) {
    ATHANOR_CHECK(
        mode != kOnlyR,
        "linalg.qr: The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use ",
        "linalg.qr(A, mode='reduced') if you are going to differentiate through linalg.qr.");
    // Walter & Lehmann, "Algorithmic differentiation of linear algebra functions with application in optimum
    // experimental design", 2010; for wide matrices Roberts & Roberts, "QR and LQ decomposition matrix backpropagation
    // algorithms for square, wide, and deep matrices", 2020: the first columns are Q R1, the others Q R2.
    const Tensor Q = g.get(q), R = g.get(r);
    const std::int64_t m = Q.size(-2), n = R.size(-1);
    ATHANOR_CHECK(mode != kComplete || m <= n, "linalg.qr: The QR decomposition is not differentiable when ",
                  "mode='complete' and nrows > ncols, here ", m, " > ", n, "; use mode='reduced'");
    const bool wide = m < n;
    const auto first = [&](const Tensor& t) { return wide ? narrow(t, -1, 0, m) : t; };
    const Tensor R1 = first(R);
    Tensor gq = g.grad(0), inner, others;
    if (g.has(1)) {
      inner = matmul(first(g.grad(1)), swapped(R1));
      if (wide) {
        const Tensor g2 = narrow(g.grad(1), -1, m, n - m);
        others = matmul(Q, g2);
        add_to(gq, matmul(Q, matmul(narrow(R, -1, m, n - m), swapped(g2))));
      }
    }
    if (gq.defined()) add_to(inner, neg(matmul(swapped(Q), gq)));
    Tensor sum = matmul(Q, add(triu(inner, 0), swapped(triu(inner, 1))));
    if (gq.defined()) sum = add(sum, gq);
    Tensor result = linalg_solve_triangular(swapped(R1), sum, false, false, false);
    if (wide) {
      if (!others.defined()) others = zeros(meta_of(Q, {m, n - m}).sizes, Q.options());
      result = cat({result, others}, -1);
    }
    g.set(0, result);
  }
};

/// A (*, m, n) = Q R with Q of orthonormal columns and R upper triangular. mode "reduced": Q is (*, m, min(m, n));
/// "complete": (*, m, m), without a gradient if m > n; "r": R alone, without a gradient, and Q is empty.
ATHANOR_FUNCTION("linalg_qr(Tensor A, str mode='reduced') -> (Tensor, Tensor) | out");
std::tuple<Tensor, Tensor> linalg_qr(const Tensor& A_, std::string_view mode) {
  const Tensor A = autocast_to_float(A_);
  linalg::check_matrix("linalg.qr", A);
  ATHANOR_CHECK(mode == "reduced" || mode == "complete" || mode == "r", "linalg.qr: qr received unrecognized mode '",
                mode, "' but expected one of 'reduced' (default), 'r', or 'complete'");
  return _qr(A, mode == "reduced" ? kReduced : mode == "complete" ? kComplete : kOnlyR);
}

namespace {

/// Orthonormal columns u (*, m, k), and m - k more behind them that have no gradient.
Tensor completed(const Tensor& u) {
  const std::int64_t m = u.size(-2), k = u.size(-1);
  if (m == k) return u;
  return cat({u, narrow(std::get<0>(_qr(detach(u), kComplete)), -1, k, m - k)}, -1);
}

void check_driver(const std::optional<std::string_view>& driver) {
  ATHANOR_CHECK(!driver,
                "linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend, ",
                "got ", driver.value_or(""));
}

}  // namespace

/// Singular values alone.
struct SvdValues {
  ATHANOR_OP("_svd_values(Tensor self) -> Tensor | function");
  Meta infer(const Tensor& self) { return meta_of(self, {std::min(self.size(-2), self.size(-1))}); }
  void run(const Tensor& out, const Tensor& self) { launch<3>(svd_kernel, Tensor(), out, Tensor(), self); }
};

/// A (*, m, n) = U diag(S) Vh: U (*, m, m) and Vh (*, n, n) have orthonormal columns and rows, S (*, min(m, n)) is not
/// negative, the greatest first. Without full_matrices U is (*, m, min(m, n)) and Vh (*, min(m, n), n); what
/// full_matrices adds has no gradient. The gradient of U and Vh is infinite where singular values meet. Throws
/// LinAlgError for what is not finite.
ATHANOR_FUNCTION(
    "linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor, Tensor, Tensor) | out");
std::tuple<Tensor, Tensor, Tensor> linalg_svd(const Tensor& A_, bool full_matrices,
                                              std::optional<std::string_view> driver) {
  const Tensor A = autocast_to_float(A_);
  linalg::check_matrix("linalg.svd", A);
  check_driver(driver);
  auto [u, s, vh] = _svd(A);
  if (!full_matrices) return {u, s, vh};
  return {completed(u), s, swapped(completed(swapped(vh)))};
}

/// The singular values of A (*, m, n), the greatest first: (*, min(m, n)). Throws LinAlgError for what is not finite.
ATHANOR_FUNCTION("linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor | out");
Tensor linalg_svdvals(const Tensor& A_, std::optional<std::string_view> driver) {
  const Tensor A = autocast_to_float(A_);
  linalg::check_matrix("linalg.svd", A);
  check_driver(driver);
  return GradMode::is_enabled() && wants_grad(A) ? std::get<1>(_svd(A)) : _svd_values(A);
}

/// linalg_svd by its old name: input = U diag(S) Vᵀ, with V, not its transpose. some=False is full_matrices=True;
/// without compute_uv U and V are zeros.
ATHANOR_FUNCTION("svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor, Tensor, Tensor) | out");
std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& self, bool some, bool compute_uv) {
  if (!compute_uv) {
    const Tensor s = linalg_svdvals(self);
    const auto zero = [&](std::int64_t dim) {
      return zeros(meta_of(self, {self.size(dim), self.size(dim)}).sizes, s.options());
    };
    return {zero(-2), s, zero(-1)};
  }
  auto [u, s, vh] = linalg_svd(self, !some);
  return {u, s, swapped(vh)};
}

/// Eigenvalues of symmetric matrices, the least first, and eigenvectors, or undefined ones without `vectors`.
struct Eigh {
  ATHANOR_OP("_eigh(Tensor self, bool upper, bool vectors) -> (Tensor, Tensor) | function");
  static constexpr const char* grad_name = "LinalgEighBackward0";
  bool upper, vectors;
  SavedTensor l, v;
  std::array<Meta, 2> infer(const Tensor& self) {
    const std::int64_t n = self.size(-1);
    return {meta_of(self, {n}), vectors ? meta_of(self, {n, n}) : Meta{}};
  }
  void run(const Tensor& values, const Tensor& basis, const Tensor& self) {
    launch<2>(eigh_kernel, values, basis, self, upper);
  }
  void save_results(Node* n, const Tensor& values, const Tensor& basis) {
    l.save_result(values, n), v.save_result(basis, n);
  }
  void grad(GradCall& g) {
    // Giles, "An extended collection of matrix derivative results", 2008: V (diag(gL) + skew(Vᵀ gV) / (L_j - L_i)) Vᵀ.
    const Tensor V = g.get(v);
    if (!g.has(1)) return g.set(0, matmul(mul(V, unsqueeze(g.grad(0), -2)), swapped(V)));
    const Tensor L = g.get(l), product = matmul(swapped(V), g.grad(1));
    const Tensor same = eye(L.size(-1), TensorOptions(DType::Bool).device(L.device()));
    const Tensor apart = where(same, Scalar(1), sub(unsqueeze(L, -2), unsqueeze(L, -1)));
    Tensor inner = mul(div(sub(product, swapped(product)), apart), 0.5);
    if (g.has(0)) inner = add(inner, diag_embed(g.grad(0)));
    g.set(0, matmul(matmul(V, inner), swapped(V)));
  }
};

namespace {

bool reads_upper(std::string_view UPLO) {
  const bool upper = UPLO == "U" || UPLO == "u";
  ATHANOR_CHECK(upper || UPLO == "L" || UPLO == "l", "linalg.eigh: Expected UPLO argument to be 'L' or 'U', but got ",
                UPLO);
  return upper;
}

}  // namespace

/// Eigenvalues (*, n), the least first, and eigenvectors, the columns of (*, n, n), of symmetric matrices. Only the
/// lower triangle is read, or with UPLO="U" the upper one. The gradient of the vectors is infinite where eigenvalues
/// meet; that of the input is symmetric. What is not finite gives NaN.
ATHANOR_FUNCTION("linalg_eigh(Tensor self, str UPLO='L') -> (Tensor, Tensor) | function out");
std::tuple<Tensor, Tensor> linalg_eigh(const Tensor& self_, std::string_view UPLO) {
  const Tensor self = autocast_to_float(self_);
  linalg::check_square("linalg.eigh", self);
  return _eigh(self, reads_upper(UPLO), true);
}

/// The eigenvalues of linalg_eigh.
ATHANOR_FUNCTION("linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor | function out");
Tensor linalg_eigvalsh(const Tensor& self_, std::string_view UPLO) {
  const Tensor self = autocast_to_float(self_);
  linalg::check_square("linalg.eigh", self);
  return std::get<0>(_eigh(self, reads_upper(UPLO), GradMode::is_enabled() && wants_grad(self)));
}

/// a⁻¹ b for triangular matrices (…, n, n) and b (…, n, m) of the same batch dims.
struct SolveTriangular {
  ATHANOR_OP("_solve_triangular(Tensor self, Tensor b, bool upper, bool unit) -> Tensor | function");
  static constexpr const char* grad_name = "LinalgSolveTriangularBackward0";
  bool upper, unit;
  SavedTensor a, x;
  Meta infer(const Tensor& self, const Tensor& b) { return {DimVector(b.sizes()), self.dtype(), self.device(), {}}; }
  void run(const Tensor& out, const Tensor& self, const Tensor& b) {
    launch(solve_triangular_kernel, out, self, b, upper, unit);
  }
  void save(const Node&, const Tensor& self, const Tensor&) { a.save(self); }
  void save_results(Node* n, const Tensor& out) { x.save_result(out, n); }
  void grad(GradCall& g) {
    const Tensor gb = _solve_triangular(swapped(g.get(a)), g.grad(), !upper, unit);
    if (g.needs(0)) {
      const Tensor full = neg(matmul(gb, swapped(g.get(x))));
      g.set(0, upper ? triu(full, unit ? 1 : 0) : tril(full, unit ? -1 : 0));
    }
    if (g.needs(1)) g.set(1, gb);
  }
};

/// The solution X of A X = B, or X A = B if not left, for a triangular A (*, n, n), of which the other triangle is not
/// read; with unitriangular neither is its diagonal, which counts as ones. Batch dims broadcast. A zero on the diagonal
/// gives infinities and NaN.
ATHANOR_FUNCTION(
    "linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor "
    "| function out");
Tensor linalg_solve_triangular(const Tensor& self, const Tensor& B_, bool upper, bool left, bool unitriangular) {
  static constexpr const char* op = "linalg.solve_triangular";
  const Tensor A = autocast_to_float(self), B = autocast_to_float(B_);
  linalg::check_square(op, A);
  linalg::check_same_dtype(op, A, B);
  ATHANOR_CHECK(B.dim() >= 2, op, ": The input tensor B must have at least 2 dimensions, got shape ", B.sizes());
  ATHANOR_CHECK(B.size(left ? -2 : -1) == A.size(-1), op, ": Incompatible shapes of A and B for the equation ",
                left ? "AX = B" : "XA = B", " (", A.sizes(), " and ", B.sizes(), ")");
  if (!left) return swapped(linalg_solve_triangular(swapped(A), swapped(B), !upper, true, unitriangular));
  const DimVector common = broadcast_shapes(linalg::batch_sizes(A), linalg::batch_sizes(B), op);
  DimVector a_sizes(common), b_sizes(common);
  for (const std::int64_t d : {-2, -1}) {
    a_sizes.push_back(A.size(d));
    b_sizes.push_back(B.size(d));
  }
  return _solve_triangular(expand(A, a_sizes), expand(B, b_sizes), upper, unitriangular);
}

/// The solution X of A X = input for A = L Lᵀ, whose factor L is given, or Lᵀ with upper. Batch dims broadcast.
ATHANOR_FUNCTION("cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor | out");
Tensor cholesky_solve(const Tensor& self, const Tensor& input2, bool upper) {
  const Tensor B = autocast_to_float(self), L = autocast_to_float(input2);
  linalg::check_square("cholesky_solve", L);
  linalg::check_same_dtype("cholesky_solve", L, B);
  ATHANOR_CHECK(B.dim() >= 2, "cholesky_solve: b should have at least 2 dimensions, but has ", B.dim(),
                " dimensions instead");
  ATHANOR_CHECK(B.size(-2) == L.size(-1), "cholesky_solve: Incompatible matrix sizes: each A matrix is ", L.size(-2),
                " by ", L.size(-1), " but each b matrix is ", B.size(-2), " by ", B.size(-1));
  const Tensor lower = upper ? swapped(L) : L;
  return linalg_solve_triangular(swapped(lower), linalg_solve_triangular(lower, B, false), true);
}

}  // namespace athanor::ops

#include "athanor/ops/linalg_decompose.glue.inc"
