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
