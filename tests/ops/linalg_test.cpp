#include "athanor/tensor/stream.h"
#include "numeric.h"

namespace athanor {
namespace {

using test::expect_close;
using test::values;

/// Matrices of every relation to the panels that the factorizations work by.
constexpr std::int64_t kSizes[] = {0, 1, 2, 31, 32, 33, 64, 65, 100, 130};

Tensor regular(std::int64_t n, unsigned seed) { return values({n, n}, kDouble, seed).add(eye(n, kDouble), 3); }

}  // namespace

TEST(Solve, GivesWhatMultipliesToTheRightSideForAnySize) {
  for (const std::int64_t n : kSizes)
    for (const std::int64_t m : {0, 1, 5, 130}) {
      const Tensor a = regular(n, 1), b = values({n, m}, kDouble, 2);
      expect_close(a.mm(linalg_solve(a, b)), b, 1e-8, 1e-8);
      expect_close(a.t().mm(linalg_solve(a.t(), b)), b, 1e-8, 1e-8);
      // Rows in reverse order: every step must exchange two.
      expect_close(a.flip(0).mm(linalg_solve(a.flip(0), b)), b, 1e-8, 1e-8);
    }
}

TEST(Solve, TakesTrianglesAndBatches) {
  for (const std::int64_t n : {2, 33, 70}) {
    const Tensor a = stack({regular(n, 1), regular(n, 3).triu(), regular(n, 4).tril()}),
                 b = values({3, n, 4}, kDouble, 2);
    expect_close(matmul(a, linalg_solve(a, b)), b, 1e-8, 1e-8);
    Tensor singular = regular(n, 5).triu();
    singular.select(0, n - 1).select(0, n - 1).zero_();
    EXPECT_THROW(linalg_solve(singular, b[0]), LinAlgError);
    EXPECT_EQ(linalg_det(singular).item().toDouble(), 0);
    const Tensor twice = regular(n, 6);
    twice.select(0, 0).copy_(twice.select(0, n - 1));
    EXPECT_NEAR(linalg_det(twice.div(3)).item().toDouble(), 0, 1e-9);
  }
}

TEST(Solve, GivesTheSameBitsOnAnyNumberOfThreads) {
  const auto run = [](int threads) {
    const int before = get_num_threads();
    set_num_threads(threads);
    std::vector<Tensor> all;
    for (const std::int64_t n : {33, 130}) {
      Tensor a = regular(n, 1).div(4).to(kFloat).requires_grad_(), b = values({n, 150}, kFloat, 2).requires_grad_();
      const Tensor x = linalg_solve(a, b), inverse = linalg_inv(a), d = linalg_det(a);
      (x.sum() + inverse.sum() + d).backward();
      for (const Tensor& t : {x, inverse, d, a.grad(), b.grad()}) all.push_back(t.detach());
    }
    set_num_threads(before);
    return all;
  };
  const auto single = run(1);
  for (const int threads : {2, 7}) {
    const auto many = run(threads);
    for (std::size_t i = 0; i < single.size(); ++i) EXPECT_TRUE(equal(single[i], many[i])) << i << ", " << threads;
  }
}

TEST(Solve, GradientsOfBatchesAreThoseOfTheInverse) {
  // By plain products with an inverse, pivots and all: rows in reverse order make every step exchange two.
  for (const std::int64_t n : {1, 3, 33}) {
    Tensor a = stack({regular(n, 1).flip(0), regular(n, 2), regular(n, 3).triu()}).requires_grad_();
    Tensor b = values({3, n, 4}, kDouble, 4).requires_grad_();
    const Tensor g = values({3, n, 4}, kDouble, 5);
    linalg_solve(a, b).backward(g);
    const Tensor back = linalg_inv(a.detach()).transpose(1, 2), gb = matmul(back, g);
    expect_close(b.grad(), gb, 1e-8, 1e-8);
    expect_close(a.grad(), matmul(gb, matmul(linalg_inv(a.detach()), b.detach()).transpose(1, 2)).neg(), 1e-7, 1e-7);
  }
}

TEST(Solve, OnAQueueHasNoFactorsOfASingularMatrixToSolveWithAgain) {
  detail::configure_cpu_queues(2);
  {
    const TensorOptions on(Device(DeviceType::CPU, 0));
    Tensor a = eye(64).expand({8, 64, 64}).clone();
    a.select(0, 0).zero_();
    a = a.to(on);
    const Tensor b = ones({8, 64, 3}).to(on).requires_grad_(), up = ones({8, 64, 3}).to(on);
    Tensor busy = ones({600, 600}).to(on);
    for (int i = 0; i < 8; ++i) busy = busy.mm(busy);  // the queue has not come to the solution when it is returned
    const Tensor x = linalg_solve(a, b);
    EXPECT_THROW(x.cpu(), LinAlgError);
    EXPECT_THROW(autograd::grad({x}, {b}, {up})[0].cpu(), Error);
  }
  detail::configure_cpu_queues(0);
}

TEST(Det, IsWrittenWhereAStridedResultLies) {
  const Tensor a = eye(2).mul(tensor({1., 2., 3.}).to(kFloat).reshape({3, 1, 1}));
  Tensor both = zeros({3, 2}), column = both.select(1, 0);
  linalg_det_out(column, a);
  EXPECT_TRUE(equal(both, tensor({1., 0., 4., 0., 9., 0.}).to(kFloat).reshape({3, 2})));
}

TEST(Det, IsTheProductOfTheDiagonalsOfAProductOfTriangles) {
  for (const std::int64_t n : kSizes) {
    const Tensor lower = regular(n, 1).mul(0.1).tril().add(eye(n, kDouble)),
                 upper = regular(n, 2).mul(0.1).triu().add(eye(n, kDouble));
    const double expected =
        lower.diagonal().log().sum().item().toDouble() + upper.diagonal().log().sum().item().toDouble();
    const auto [sign, logabs] = linalg_slogdet(lower.mm(upper));
    EXPECT_EQ(sign.item().toDouble(), 1) << n;
    EXPECT_NEAR(logabs.item().toDouble(), expected, 1e-8) << n;
  }
}

TEST(Det, HasTheCofactorsForItsGradientWhereTheMatrixIsSingular) {
  const auto gradient = [](const Tensor& a) {
    const Tensor x = a.clone().requires_grad_(true);
    linalg_det(x).sum().backward();
    return x.grad();
  };
  expect_close(gradient(tensor({1., 2., 2., 4.}, kDouble).view({2, 2})),
               tensor({4., -2., -2., 1.}, kDouble).view({2, 2}), 1e-12, 1e-12);
  EXPECT_TRUE(equal(gradient(zeros({3, 3}, kDouble)), zeros({3, 3}, kDouble)));
  EXPECT_EQ(gradient(zeros({1, 1}, kDouble)).item<double>(), 1);
  // Of a batch, regular matrices keep the gradient that they have alone.
  const Tensor a = regular(3, 1), singular = ones({3, 3}, kDouble).triu();
  singular.select(0, 2).zero_();
  const Tensor both = gradient(stack({a, singular}));
  expect_close(both[0], linalg_det(a) * linalg_inv(a).t(), 1e-10, 1e-10);
  EXPECT_NEAR(both[1][2][2].item<double>(), 1, 1e-12);
  EXPECT_NEAR(both[1][0][0].item<double>(), 0, 1e-12);
}

TEST(Det, HasSecondDerivativesOfSingularMatricesWhoseSingularValuesMeet) {
  const Tensor x = zeros({2, 2}, kDouble).requires_grad_(true);
  const Tensor first = autograd::grad({linalg_det(x)}, {x}, {}, true, true)[0];
  const Tensor second = autograd::grad({first[0][0]}, {x})[0];
  EXPECT_TRUE(equal(second, tensor({0., 0., 0., 1.}, kDouble).view({2, 2})));
}

TEST(Det, IsAProductInTheDtypeOfTheMatrix) {
  // A logarithm in float32 would lose the last digits.
  EXPECT_EQ(linalg_det(tensor({3.F, 0.F, 0.F, 7.F}).view({2, 2})).item<float>(), 21);
  EXPECT_EQ(linalg_det(eye(20) * 10).item<float>(), 1e20F);
  EXPECT_EQ(linalg_det(full({1, 1}, -5.F)).item<float>(), -5);
  const Tensor mixed = cat({full({5}, 1e30F), full({5}, 1e-30F)});
  EXPECT_NEAR(linalg_det(diag(mixed)).item<float>(), 1, 1e-5);  // although a part of the product overflows
}

TEST(MatrixNorm, OfSingularValuesHoldsForWideTallAndDependentMatrices) {
  for (const auto& [m, n] : {std::pair{5, 3}, {3, 5}, {40, 40}, {1, 7}}) {
    const Tensor a = values({m, n}, kDouble, 3);
    const double nuclear = linalg_matrix_norm(a, "nuc").item<double>(), two = linalg_matrix_norm(a, 2).item<double>();
    EXPECT_NEAR(linalg_matrix_norm(a.t(), "nuc").item<double>(), nuclear, 1e-10);
    EXPECT_NEAR(linalg_matrix_norm(a * 1e-200, 2).item<double>(), two * 1e-200, two * 1e-210);
    EXPECT_NEAR(linalg_matrix_norm(a * 1e200, 2).item<double>(), two * 1e200, two * 1e190);
    // U Vᵀ, of which the singular values are 1.
    const Tensor x = a.clone().requires_grad_(true);
    linalg_matrix_norm(x, "nuc").backward();
    const Tensor g = m <= n ? x.grad().mm(x.grad().t()) : x.grad().t().mm(x.grad());
    expect_close(g, eye(std::min(m, n), kDouble), 1e-10, 1e-10);
  }
  const Tensor column = values({6, 1}, kDouble, 1), dependent = column.mm(values({1, 4}, kDouble, 2));
  EXPECT_NEAR(linalg_matrix_norm(dependent, "nuc").item<double>(), linalg_matrix_norm(dependent, "fro").item<double>(),
              1e-12);
  EXPECT_NEAR(linalg_matrix_norm(dependent, -2).item<double>(), 0, 1e-14);
  const Tensor x = dependent.clone().requires_grad_(true);
  linalg_matrix_norm(x, "nuc").backward();
  expect_close(x.grad().t().mm(x.grad()), eye(4, kDouble), 1e-10, 1e-10);
  EXPECT_EQ(linalg_matrix_norm(zeros({3, 3}), "nuc").item<float>(), 0);
  EXPECT_EQ(linalg_matrix_norm(zeros({0, 3}), 2).item<float>(), 0);
}

TEST(MatrixNorm, TakesAnyTwoDims) {
  const Tensor a = values({3, 2, 4}, kDouble, 3);
  const Tensor norms = linalg_matrix_norm(a, "nuc", {2, 0}, true);
  EXPECT_EQ(norms.sizes().vec(), (std::vector<std::int64_t>{1, 2, 1}));
  for (std::int64_t i = 0; i < 2; ++i)
    EXPECT_NEAR(norms[0][i][0].item<double>(), linalg_matrix_norm(a.select(1, i), "nuc").item<double>(), 1e-12);
  EXPECT_EQ(linalg_norm(ones({2, 3}, kFloat), std::nullopt, std::nullopt, false, kDouble).dtype(), kDouble);
}

TEST(Inverse, OfASingularMatrixNamesItself) {
  try {
    linalg_inv(zeros({2, 2}));
    FAIL() << "no error";
  } catch (const LinAlgError& e) {
    EXPECT_NE(std::string(e.what()).find("linalg.inv: The diagonal element 1 is zero, the inversion"),
              std::string::npos)
        << e.what();
  }
}

TEST(Cholesky, FactorsAnySizeAndReadsOneTriangleOnly) {
  for (const std::int64_t n : kSizes) {
    const Tensor r = values({n, n}, kDouble, 1), a = r.mm(r.t()).add(eye(n, kDouble));
    const Tensor l = linalg_cholesky(a);
    expect_close(l.mm(l.t()), a, 1e-8, 1e-8);
    EXPECT_TRUE(equal(l, l.tril())) << n;
    EXPECT_TRUE(equal(linalg_cholesky(a.tril().add(values({n, n}, kDouble, 7).triu(1))), l)) << n;
    if (n < 2) continue;
    const Tensor bad = a.clone();
    bad.select(0, n - 1).select(0, n - 1).fill_(-1);
    EXPECT_THROW(linalg_cholesky(bad), LinAlgError);
  }
}

}  // namespace athanor
