#include "numeric.h"

namespace athanor {
namespace {

using test::error_of;
using test::expect_close;
using test::gradcheck;
using test::gradgradcheck;
using test::list;
using test::values;

Tensor naive_mm(const Tensor& a, const Tensor& b) {
  const auto x = list(a), y = list(b);
  const auto m = a.size(0), k = a.size(1), n = b.size(1);
  std::vector<double> out(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t p = 0; p < k; ++p)
        out[static_cast<std::size_t>(i * n + j)] +=
            x[static_cast<std::size_t>(i * k + p)] * y[static_cast<std::size_t>(p * n + j)];
  return tensor(out, kDouble).reshape({m, n});
}

Tensor grad_values(IntArrayRef sizes, unsigned seed) { return values(sizes, kDouble, seed).requires_grad_(); }

}  // namespace

TEST(Mm, AgreesWithLoopsForEveryDtype) {
  for (const DType t : {kByte, kChar, kShort, kInt, kLong, kFloat, kDouble}) {
    const Tensor a = values({5, 7}, t, 1), b = values({7, 3}, t, 2);
    const Tensor expected = naive_mm(a, b).to(t);
    expect_close(a.mm(b), expected, 1e-5, is_integral(t) ? 0 : 1e-6);
  }
  for (const DType t : {kHalf, kBFloat16}) {
    const Tensor a = values({5, 7}, t, 1), b = values({7, 3}, t, 2);
    expect_close(a.mm(b), naive_mm(a, b), 1e-2, 1e-2);
  }
}

TEST(Mm, TakesTransposedStridedAndEmptyOperands) {
  const Tensor a = values({7, 5}, kFloat, 1), b = values({3, 14}, kFloat, 2);
  const Tensor bt = b.slice(1, 0, 14, 2).t();
  expect_close(a.t().mm(bt), naive_mm(a.t(), bt));
  EXPECT_EQ(zeros({0, 3}).mm(zeros({3, 2})).sizes().vec(), (std::vector<std::int64_t>{0, 2}));
  expect_close(ones({2, 0}).mm(ones({0, 2})), zeros({2, 2}));
}

TEST(Mm, OutMayBeAnOperand) {
  Tensor a = values({4, 4}, kDouble, 1);
  const Tensor expected = naive_mm(a, a);
  mm_out(a, a, a);
  expect_close(a, expected);
}

TEST(Mm, GradientsToSecondOrder) {
  const auto f = [](const std::vector<Tensor>& in) { return in[0].mm(in[1]); };
  gradcheck(f, {grad_values({3, 4}, 1), grad_values({4, 2}, 2)});
  gradgradcheck(f, {grad_values({3, 4}, 1), grad_values({4, 2}, 2)});
}

TEST(Mm, GradientHasTheLayoutOfATransposedOperand) {
  Tensor w = grad_values({4, 3}, 1);
  const Tensor x = values({5, 3}, kDouble, 2);
  x.mm(w.t()).sum().backward();
  EXPECT_TRUE(w.grad().is_contiguous());
}

TEST(Mm, BadInputNamesShapes) {
  EXPECT_NE(error_of([] {
              ones({2, 3}).mm(ones({4, 5}));
            }).find("cannot be multiplied (2x3 and 4x5)"),
            std::string::npos);
  EXPECT_NE(error_of([] { ones({2, 3, 1}).mm(ones({4, 5})); }).find("must be a matrix"), std::string::npos);
  EXPECT_NE(error_of([] { ones({2, 3}).mm(ones({3, 2}, kDouble)); }).find("same dtype"), std::string::npos);
  EXPECT_THROW(ones({2, 2}, kBool).mm(ones({2, 2}, kBool)), NotImplementedError);
  EXPECT_THROW(ones({2, 2}).mm(Tensor()), Error);
}

TEST(Addmm, BroadcastsBiasAndIgnoresItForBetaZero) {
  const Tensor a = values({3, 4}, kDouble, 1), b = values({4, 2}, kDouble, 2), bias = values({2}, kDouble, 3);
  expect_close(addmm(bias, a, b, 0.5, 2.0), naive_mm(a, b) * 2 + bias * 0.5);
  expect_close(addmm(full({2}, NAN, kDouble), a, b, 0), naive_mm(a, b));
  Tensor c = values({3, 2}, kDouble, 4);
  const Tensor expected = naive_mm(a, b) + c;
  c.addmm_(a, b);
  expect_close(c, expected);
  EXPECT_THROW(addmm(ones({5}, kDouble), a, b), Error);
}

TEST(Addmm, GradientsToSecondOrder) {
  const auto f = [](const std::vector<Tensor>& in) { return addmm(in[0], in[1], in[2], 0.5, 3.0); };
  gradcheck(f, {grad_values({2}, 1), grad_values({3, 4}, 2), grad_values({4, 2}, 3)});
  gradgradcheck(f, {grad_values({2}, 1), grad_values({3, 4}, 2), grad_values({4, 2}, 3)});
}

TEST(Bmm, EveryMatrixOfTheBatch) {
  const Tensor a = values({3, 2, 4}, kFloat, 1), b = values({3, 4, 5}, kFloat, 2);
  const Tensor out = bmm(a, b);
  for (std::int64_t i = 0; i < 3; ++i) expect_close(out.select(0, i), naive_mm(a.select(0, i), b.select(0, i)));
  const auto f = [](const std::vector<Tensor>& in) { return bmm(in[0], in[1]); };
  gradgradcheck(f, {grad_values({2, 2, 3}, 1), grad_values({2, 3, 2}, 2)});
  EXPECT_NE(error_of([&] { bmm(a, ones({3, 3, 5})); }).find("[3, 4] but got: [3, 3]"), std::string::npos);
}

TEST(Bmm, OperandsMayShareTheirFirstElement) {
  for (const std::int64_t size : {4, 256})
    for (const DType dtype : {kFloat, kDouble}) {
      const Tensor a = randn({3, size, size}, TensorOptions().dtype(dtype));
      const Tensor b = a.slice(0, 0, 1).slice(2, 0, 1).expand({3, size, 1});
      const Tensor want = (a * b.transpose(1, 2)).sum(2, true);
      EXPECT_TRUE(allclose(bmm(a, b), want, 1e-4, 1e-4)) << size;
    }
}

TEST(Baddbmm, AddsScaledBias) {
  const Tensor a = values({2, 3, 4}, kDouble, 1), b = values({2, 4, 2}, kDouble, 2), bias = values({3, 1}, kDouble, 3);
  expect_close(baddbmm(bias, a, b, 2.0, 0.5), bmm(a, b) * 0.5 + bias * 2);
  expect_close(addbmm(zeros({3, 2}, kDouble), a, b), bmm(a, b).sum(IntArrayRef{0}));
  const auto f = [](const std::vector<Tensor>& in) { return baddbmm(in[0], in[1], in[2], 2.0, 0.5); };
  gradcheck(f, {grad_values({3, 1}, 1), grad_values({2, 3, 2}, 2), grad_values({2, 2, 2}, 3)});
}

TEST(VectorProducts, AgreeWithMatrixProducts) {
  const Tensor m = values({3, 4}, kDouble, 1), v = values({8}, kDouble, 2).slice(0, 0, 8, 2),
               u = values({3}, kDouble, 3);
  expect_close(mv(m, v), naive_mm(m, v.unsqueeze(1)).squeeze(1));
  expect_close(addmv(u, m, v, 2.0, 0.5), naive_mm(m, v.unsqueeze(1)).squeeze(1) * 0.5 + u * 2);
  expect_close(dot(v, v), naive_mm(v.unsqueeze(0), v.unsqueeze(1)).reshape({}));
  expect_close(outer(u, v), naive_mm(u.unsqueeze(1), v.unsqueeze(0)));
  expect_close(addr(ones({3, 4}, kDouble), u, v, 2.0, 3.0), outer(u, v) * 3 + 2);
  EXPECT_EQ(dot(zeros({0}), zeros({0})).item<float>(), 0);
  EXPECT_THROW(dot(v, u), Error);
  EXPECT_THROW(mv(m, u), Error);
}

TEST(VectorProducts, GradientsToSecondOrder) {
  gradgradcheck([](const std::vector<Tensor>& in) { return mv(in[0], in[1]); },
                {grad_values({3, 4}, 1), grad_values({4}, 2)});
  gradgradcheck([](const std::vector<Tensor>& in) { return dot(in[0], in[1]); },
                {grad_values({4}, 1), grad_values({4}, 2)});
  gradcheck([](const std::vector<Tensor>& in) { return addmv(in[0], in[1], in[2], 2, 3); },
            {grad_values({3}, 1), grad_values({3, 4}, 2), grad_values({4}, 3)});
}

TEST(Matmul, FollowsEveryShapeRule) {
  struct Case {
    std::vector<std::int64_t> a, b, out;
  };
  const Case cases[] = {
      {{4}, {4}, {}},
      {{3, 4}, {4}, {3}},
      {{4}, {4, 2}, {2}},
      {{3, 4}, {4, 2}, {3, 2}},
      {{5, 3, 4}, {4}, {5, 3}},
      {{5, 3, 4}, {4, 2}, {5, 3, 2}},
      {{4}, {5, 4, 2}, {5, 2}},
      {{3, 4}, {5, 4, 2}, {5, 3, 2}},
      {{5, 3, 4}, {5, 4, 2}, {5, 3, 2}},
      {{6, 1, 3, 4}, {5, 4, 2}, {6, 5, 3, 2}},
      {{6, 5, 3, 4}, {4}, {6, 5, 3}},
      {{4}, {6, 5, 4, 2}, {6, 5, 2}},
      {{0, 3, 4}, {4, 2}, {0, 3, 2}},
      {{3, 0}, {0, 2}, {3, 2}},
  };
  for (const Case& c : cases) {
    for (const bool grad : {false, true}) {
      Tensor a = values(c.a, kDouble, 1), b = values(c.b, kDouble, 2);
      a.requires_grad_(grad);
      b.requires_grad_(grad);
      const Tensor out = matmul(a, b);
      ASSERT_EQ(out.sizes().vec(), c.out);
      // The definition: broadcast products summed over the inner dimension.
      Tensor x = a.detach(), y = b.detach();
      if (x.dim() == 1) x = x.unsqueeze(0);
      if (y.dim() == 1) y = y.unsqueeze(1);
      const Tensor all = x.unsqueeze(-1) * y.unsqueeze(-3);
      expect_close(out, all.sum(IntArrayRef{-2}).reshape(c.out));
      if (grad && out.numel() > 0 && a.numel() > 0)
        gradcheck([](const std::vector<Tensor>& in) { return matmul(in[0], in[1]); }, {a, b});
    }
  }
  EXPECT_NE(error_of([] { matmul(ones({}), ones({2})); }).find("at least 1D"), std::string::npos);
  EXPECT_THROW(matmul(ones({2, 3, 4}), ones({3, 4, 2})), Error);
  EXPECT_THROW(matmul(ones({2, 3}), ones({2, 4, 2})), Error);
}

TEST(Linear, IsProductWithTransposedWeightPlusBias) {
  const Tensor w = values({3, 4}, kDouble, 1), b = values({3}, kDouble, 2);
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{4}, {5, 4}, {2, 5, 4}, {2, 3, 5, 4}, {0, 4}, {2, 0, 4}}) {
    const Tensor x = values(shape, kDouble, 3);
    expect_close(linear(x, w, b), matmul(x, w.t()) + b);
    expect_close(linear(x, w), matmul(x, w.t()));
  }
  const Tensor strided = values({4, 5, 2}, kDouble, 3).transpose(0, 2);
  expect_close(linear(strided, w, b), matmul(strided.contiguous(), w.t()) + b);
}

TEST(Linear, StridesOfDimsWithOneElementMeanNothing) {
  const Tensor w = values({3, 4}, kDouble, 1), b = values({3}, kDouble, 2), x = values({2, 5, 4}, kDouble, 3);
  // Shape (3, 1, 4), strides (4, 20, 1): contiguous, though the step between rows is not that of the last but one dim.
  const Tensor turned = x.slice(0, 0, 1).slice(1, 0, 3).transpose(0, 1);
  ASSERT_EQ(turned.stride(1), 20);
  expect_close(linear(turned, w, b), matmul(turned.clone(), w.t()) + b);
  const Tensor lone = x.slice(0, 1, 2).slice(1, 2, 3).as_strided({1, 1, 4}, {7, 9, 1});
  expect_close(linear(lone, w, b), matmul(lone.clone(), w.t()) + b);
}

TEST(Linear, GradientsToSecondOrder) {
  const auto f = [](const std::vector<Tensor>& in) { return linear(in[0], in[1], in[2]); };
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{4}, {1, 4}, {5, 4}, {2, 3, 4}}) {
    gradcheck(f, {grad_values(shape, 1), grad_values({3, 4}, 2), grad_values({3}, 3)});
    gradgradcheck(f, {grad_values(shape, 1), grad_values({3, 4}, 2), grad_values({3}, 3)});
  }
}

TEST(Linear, BadInputNamesShapes) {
  EXPECT_NE(error_of([] { linear(ones({2, 3}), ones({4, 5})); }).find("(2x3 and 5x4)"), std::string::npos);
  EXPECT_NE(error_of([] {
              linear(ones({2, 3}), ones({4, 3}), ones({3}));
            }).find("expected bias of shape [4]"),
            std::string::npos);
  EXPECT_THROW(linear(ones({}), ones({4, 3})), Error);
}

}  // namespace athanor
