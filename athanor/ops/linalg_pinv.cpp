// What follows from singular values and eigenvalues: pseudo-inverses, ranks, condition numbers, least squares.
#include "athanor/ops/linalg_pinv.h"

#include <cmath>

#include "athanor/ops/autocast.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/linalg.h"
#include "athanor/ops/linalg_checks.h"
#include "athanor/ops/linalg_decompose.h"
#include "athanor/ops/matmul.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reduce_extreme.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

using linalg::swapped;

/// Singular values up to the greater of `atol` and `rtol` times the greatest count as zeros.
struct Tolerance {
  double atol, rtol;
  Tolerance(const Tensor& a, std::optional<double> absolute, std::optional<double> relative)
      : atol(absolute.value_or(0)),
        rtol(relative   ? *relative
             : atol > 0 ? 0
                        : static_cast<double>(std::max(a.size(-2), a.size(-1))) *
                              (a.dtype() == DType::Float ? 1.1920928955078125e-07 : 2.220446049250313e-16)) {}
  /// Of singular values (*, k), k > 0: which count.
  Tensor above(const Tensor& s) const {
    return gt(s, clamp_min(mul(amax(s, IntArrayRef{std::int64_t{-1}}, true), rtol), atol));
  }
};

Tensor sum_last(const Tensor& t, std::optional<DType> dtype = {}) {
  return sum(t, IntArrayRef{std::int64_t{-1}}, false, dtype);
}

}  // namespace

/// The pseudo-inverse, and how many singular values it is made of.
struct Pinv {
  ATHANOR_OP("_pinv(Tensor self, float atol, float rtol, bool hermitian) -> (Tensor, Tensor) | function");
  static constexpr const char* grad_name = "LinalgPinvBackward0";
  double atol, rtol;
  bool hermitian;
  SavedTensor a, p;
  std::array<Meta, 2> infer(const Tensor& self) {
    DimVector sizes = linalg::batch_sizes(self);
    const Meta rank{sizes, DType::Long, self.device(), {}};
    sizes.push_back(self.size(-1));
    sizes.push_back(self.size(-2));
    return {Meta{sizes, self.dtype(), self.device(), {}}, rank};
  }
  void run(const Tensor& out, const Tensor& rank, const Tensor& self) {
    const NoGradGuard off;
    const Tensor plain = detach(self);
    if (self.numel() == 0) {
      zero_(out), zero_(rank);
      return;
    }
    Tensor left, s, right;
    if (hermitian) {
      std::tie(s, left) = linalg_eigh(plain);
      right = swapped(left);
    } else {
      std::tie(left, s, right) = _svd(plain);
    }
    const Tensor counts = Tolerance(plain, atol, rtol).above(abs(s));
    copy_(rank, sum_last(counts));
    const Tensor inverse = where(counts, reciprocal(where(counts, s, Scalar(1))), Scalar(0));
    copy_(out, matmul(mul(swapped(right), unsqueeze(inverse, -2)), swapped(left)));
  }
  void save(const Node&, const Tensor& self) { a.save(self); }
  void save_results(Node* n, const Tensor& out, const Tensor&) { p.save_result(out, n); }
  void grad(GradCall& g) {
    // Golub & Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose variables
    // separate", 1973, 4.12: of a rank that does not change.
    const Tensor A = g.get(a), P = g.get(p), up = swapped(g.grad());
    const Tensor Pt = swapped(P);
    Tensor sum = neg(matmul(matmul(Pt, g.grad()), Pt));
    // The products of A with P are as small as A's shorter side.
    if (A.size(-2) <= A.size(-1)) {
      const Tensor k = matmul(up, P), kp = matmul(k, Pt);
      sum = add(add(sum, sub(kp, matmul(matmul(A, P), kp))), matmul(matmul(Pt, P), sub(up, matmul(k, A))));
    } else {
      const Tensor k = matmul(P, up), pk = matmul(Pt, k);
      sum = add(add(sum, matmul(matmul(sub(up, matmul(A, k)), P), Pt)), sub(pk, matmul(matmul(pk, P), A)));
    }
    g.set(0, sum);
  }
};

namespace {

std::tuple<Tensor, Tensor> pseudo_inverse(const char* op, const Tensor& self, std::optional<double> atol,
                                          std::optional<double> rtol, bool hermitian) {
  const Tensor A = autocast_to_float(self);
  const autocast::AutocastGuard whole(false);
  hermitian ? linalg::check_square(op, A) : linalg::check_matrix(op, A);
  const Tolerance t(A, atol, rtol);
  return _pinv(A, t.atol, t.rtol, hermitian);
}

}  // namespace

/// The Moore-Penrose inverse of matrices, (*, n, m) of (*, m, n). Singular values up to the greater of atol (0) and
/// rtol times the greatest count as zeros; rtol is max(m, n) times the dtype's precision, or 0 where atol is given.
/// hermitian: the matrices are symmetric, and only their lower triangles are read, but both for the gradient, as in
/// PyTorch. The gradient takes the rank for constant.
ATHANOR_FUNCTION(
    "linalg_pinv(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor | function out");
Tensor linalg_pinv(const Tensor& self, std::optional<double> atol, std::optional<double> rtol, bool hermitian) {
  return std::get<0>(pseudo_inverse("linalg.pinv", self, atol, rtol, hermitian));
}
ATHANOR_FUNCTION("linalg_pinv.rcond(Tensor self, float rcond, bool hermitian=False) -> Tensor | function out");
Tensor linalg_pinv(const Tensor& self, double rcond, bool hermitian) {
  return std::get<0>(pseudo_inverse("linalg.pinv", self, std::nullopt, rcond, hermitian));
}
/// linalg_pinv by its old name.
ATHANOR_FUNCTION("pinverse(Tensor self, float rcond=1e-15) -> Tensor");
Tensor pinverse(const Tensor& self, double rcond) { return linalg_pinv(self, rcond, false); }

/// How many singular values of each matrix are above the greater of atol and rtol times the greatest, as linalg_pinv
/// has them; int64, without a gradient. hermitian: of symmetric matrices the sizes of the eigenvalues.
ATHANOR_FUNCTION(
    "linalg_matrix_rank(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor "
    "| function out");
Tensor linalg_matrix_rank(const Tensor& self, std::optional<double> atol, std::optional<double> rtol, bool hermitian) {
  const NoGradGuard off;
  linalg::check_matrix("linalg.matrix_rank", autocast_to_float(self));
  const Tensor A = autocast_to_float(self);
  if (A.numel() == 0) return zeros(linalg::batch_sizes(A), TensorOptions(DType::Long).device(A.device()));
  const Tensor s = hermitian ? abs(linalg_eigvalsh(A)) : linalg_svdvals(A);
  return sum_last(Tolerance(A, atol, rtol).above(s));
}
ATHANOR_FUNCTION("linalg_matrix_rank.tol(Tensor self, float tol, bool hermitian=False) -> Tensor | function out");
Tensor linalg_matrix_rank(const Tensor& self, double tol, bool hermitian) {
  return linalg_matrix_rank(self, tol, 0, hermitian);
}

namespace {

/// The norm of a matrix times that of its inverse; infinite where there is none. Without `order` the norm is "fro".
Tensor condition(const Tensor& A, const std::optional<Scalar>& order) {
  const auto norm = [&](const Tensor& t) {
    return order ? linalg_matrix_norm(t, *order) : linalg_matrix_norm(t, "fro");
  };
  // Of a matrix whose greatest number is 1 neither norm overflows or vanishes.
  const Tensor most = amax(abs(detach(A)), IntArrayRef{std::int64_t{-2}, std::int64_t{-1}}, true);
  const Tensor scaled = div(A, where(logical_and(gt(most, 0), isfinite(most)), most, Scalar(1)));
  const Tensor singular = eq(std::get<0>(linalg_slogdet(detach(scaled))), 0);
  const Tensor regular = where(unsqueeze(unsqueeze(singular, -1), -1), eye(A.size(-1), A.options()), scaled);
  return where(singular, Scalar(INFINITY), mul(norm(scaled), norm(linalg_inv(regular))));
}

}  // namespace

/// The condition number of matrices: the greatest singular value divided by the least (p: None or 2; -2: the reverse),
/// or of square ones the norm of that order, as linalg_matrix_norm has it, times that of the inverse; inf without
/// inverse.
ATHANOR_FUNCTION("linalg_cond(Tensor self, Scalar? p=None) -> Tensor | function out");
Tensor linalg_cond(const Tensor& self, const std::optional<Scalar>& p) {
  const Tensor A = autocast_to_float(self);
  linalg::check_matrix("linalg.cond", A);
  const double order = p ? p->toDouble() : 2;
  ATHANOR_CHECK_TYPE(ValueError, std::abs(order) == 1 || std::abs(order) == 2 || std::isinf(order),
                     "linalg.cond: linalg.cond got an invalid norm type: ", order,
                     ", expected None, 1, 2, inf, their negatives, 'fro' or 'nuc'");
  if (std::abs(order) != 2) linalg::check_square("linalg.cond", A);
  if (A.numel() == 0) return zeros(linalg::batch_sizes(A), A.options());
  if (std::abs(order) != 2) return condition(A, Scalar(order));
  const Tensor s = linalg_svdvals(A), greatest = select(s, -1, 0), least = select(s, -1, -1);
  return order > 0 ? div(greatest, least) : div(least, greatest);
}
ATHANOR_FUNCTION("linalg_cond.p_str(Tensor self, str p) -> Tensor | function out");
Tensor linalg_cond(const Tensor& self, std::string_view p) {
  const Tensor A = autocast_to_float(self);
  linalg::check_square("linalg.cond", A);
  ATHANOR_CHECK_TYPE(ValueError, p == "fro" || p == "nuc", "linalg.cond: linalg.cond got an invalid norm type: ", p,
                     ", expected None, 1, 2, inf, their negatives, 'fro' or 'nuc'");
  if (A.numel() == 0) return zeros(linalg::batch_sizes(A), A.options());
  // The sum of all singular values times that of their reciprocals, even where those are infinite.
  if (p == "nuc") {
    const Tensor s = linalg_svdvals(A);
    return mul(sum_last(s), sum_last(reciprocal(s)));
  }
  return condition(A, std::nullopt);
}

namespace {

/// V S⁻¹ Uᵀ B of A = U S Vᵀ without a gradient, the rank and S.
std::tuple<Tensor, Tensor, Tensor> solve_by_values(const Tensor& A, const Tensor& B, const Tolerance& tolerance) {
  const NoGradGuard off;
  const auto [u, s, vh] = _svd(A);
  const Tensor counts = tolerance.above(s), divisor = where(counts, s, Scalar(1));
  const Tensor parts = div(matmul(swapped(u), B), unsqueeze(divisor, -1));
  return {matmul(swapped(vh), where(unsqueeze(counts, -1), parts, Scalar(0))), sum_last(counts), s};
}

}  // namespace

/// The X of least size that makes |self X - b| least, by singular values, of which those up to rcond times the greatest
/// count as zeros: solution, residuals (the squares of |self X - b|, where self has more rows than columns and driver
/// is "gels", or self has full rank and driver is not "gelsy"), rank and singular values ("gelsd", "gelss"). What is
/// not asked for is empty. b may be a batch of vectors. driver: "gelsy" (the default), "gels", "gelsd" or "gelss"; they
/// differ in what is given beside the solution, and "gels" takes every matrix for one of full rank (rcond = 0). The
/// gradient is that of linalg_pinv.
ATHANOR_FUNCTION(
    "linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor, Tensor, Tensor, Tensor) "
    "| function out");
std::tuple<Tensor, Tensor, Tensor, Tensor> linalg_lstsq(const Tensor& self, const Tensor& b,
                                                        std::optional<double> rcond,
                                                        std::optional<std::string_view> driver_) {
  static constexpr const char* op = "linalg.lstsq";
  const Tensor A = autocast_to_float(self), given_b = autocast_to_float(b);
  const autocast::AutocastGuard whole(false);
  const std::string_view driver = driver_.value_or("gelsy");
  linalg::check_matrix(op, A);
  linalg::check_same_dtype(op, A, given_b);
  ATHANOR_CHECK(driver == "gels" || driver == "gelsy" || driver == "gelsd" || driver == "gelss", op,
                ": parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got ", driver);
  const bool vector = given_b.dim() == 1 ||
                      (A.dim() - 1 == given_b.dim() && given_b.sizes() == A.sizes().slice(0, A.sizes().size() - 1));
  const Tensor B = vector ? unsqueeze(given_b, -1) : given_b;
  ATHANOR_CHECK(B.dim() >= 2 && B.size(-2) == A.size(-2), op, ": input.size(-2) should match other.size(-2), got ",
                A.sizes(), " and ", given_b.sizes());
  if (driver == "gels") rcond = 0;
  const Tensor nothing = zeros({0}, A.options());
  Tensor x, rank, values = nothing;
  if (A.numel() != 0)
    std::tie(x, rank, values) = solve_by_values(detach(A), detach(B), Tolerance(A, std::nullopt, rcond));
  if (A.numel() == 0 || (GradMode::is_enabled() && (A.requires_grad() || B.requires_grad()))) {
    // For the gradient: a product with the inverse loses digits by the square of the condition number.
    const auto [inverse, its_rank] = pseudo_inverse(op, A, std::nullopt, rcond, false);
    const Tensor by_inverse = matmul(inverse, B);
    if (x.defined())
      x = add(sub(by_inverse, detach(by_inverse)), x);
    else
      x = by_inverse, rank = its_rank;
  }
  const std::int64_t n = A.size(-1);
  Tensor residuals = nothing;
  if (A.size(-2) > n && driver != "gelsy" && (driver == "gels" || all(eq(rank, n)).item().toBool())) {
    const Tensor rest = sub(matmul(A, x), B);
    residuals = sum(mul(rest, rest), IntArrayRef{std::int64_t{-2}}, false, std::nullopt);
  }
  const bool has_values = driver == "gelsd" || driver == "gelss";
  return {vector ? squeeze(x, -1) : x, residuals, driver == "gels" ? zeros({0}, rank.options()) : rank,
          has_values ? values : nothing};
}

}  // namespace athanor::ops

#include "athanor/ops/linalg_pinv.glue.inc"
