#include <gtest/gtest.h>

#include <sstream>

#include "athanor/autograd/autograd.h"
#include "athanor/ops/factory.h"

namespace athanor {
namespace {

using namespace indexing;

Tensor counting() { return tensor({{0.0, 1.0, 2.0, 3.0}, {4.0, 5.0, 6.0, 7.0}, {8.0, 9.0, 10.0, 11.0}}); }
std::vector<float> values(const Tensor& t) {
  const Tensor c = t.contiguous();
  return {c.data_ptr<float>(), c.data_ptr<float>() + c.numel()};
}

}  // namespace

TEST(Indexing, IntegersAndSlicesGiveViews) {
  Tensor x = counting();
  EXPECT_EQ(values(x.index({Slice(0, 2), 1})), (std::vector<float>{1, 5}));
  EXPECT_EQ(values(x.index({"...", Slice(None, None, 2)})), (std::vector<float>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(x.index({None, -1}).sizes(), (std::vector<std::int64_t>{1, 4}));
  x.index({1, 2}).fill_(60);
  EXPECT_EQ(x[1][2].item<float>(), 60);
}

TEST(Indexing, TensorsAndMasksGather) {
  const Tensor x = counting(), i = tensor({2, 0});
  EXPECT_EQ(values(x.index({i})), (std::vector<float>{8, 9, 10, 11, 0, 1, 2, 3}));
  EXPECT_EQ(values(x.index({Slice(), i})), (std::vector<float>{2, 0, 6, 4, 10, 8}));
  EXPECT_EQ(values(x.index({i, tensor({-1, 1})})), (std::vector<float>{11, 1}));
  EXPECT_EQ(values(x.index({x.gt(8)})), (std::vector<float>{9, 10, 11}));
}

TEST(Indexing, AnIntegerInATensorSelectsAView) {
  Tensor x = counting();
  const Tensor one = full({}, 1, kInt);
  EXPECT_EQ(x.index({one}).data_ptr(), x[1].data_ptr());
  x.index({one, full({}, -1, kLong)}).fill_(70);
  EXPECT_EQ(x[1][3].item<float>(), 70);
  x.index_put_({full({}, 0, kShort)}, tensor({9, 8, 7, 6}));  // converted to the dtype, as behind a number
  EXPECT_EQ(values(x[0]), (std::vector<float>{9, 8, 7, 6}));
  try {
    x.index({0, full({}, 4, kLong)});
    FAIL();
  } catch (const IndexError& e) {
    EXPECT_NE(std::string(e.what()).find("index 4 is out of bounds for dimension 1 with size 4"), std::string::npos)
        << e.what();
  }
}

TEST(Indexing, LeadingOnesOfAValueDoNotCount) {
  Tensor x = counting();
  x.index_put_({tensor({0, 2})}, ones({1, 1, 2, 4}));
  EXPECT_EQ(values(x), (std::vector<float>{1, 1, 1, 1, 4, 5, 6, 7, 1, 1, 1, 1}));
}

TEST(Indexing, AssignmentWritesThrough) {
  Tensor x = counting();
  x.index_put_({Slice(), 0}, tensor({-1.0, -2.0, -3.0}));
  x.index_put_({tensor({0, 1}), tensor({1, 2})}, 50);
  x.index_put_({x.gt(9)}, 0);
  EXPECT_EQ(values(x), (std::vector<float>{-1, 0, 2, 3, -2, 5, 0, 7, -3, 9, 0, 0}));
}

TEST(Indexing, GradientsFlowBackToWhatWasRead) {
  Tensor x = counting().requires_grad_();
  x.index({tensor({1, 1}), Slice(0, 2)}).sum().backward();
  EXPECT_EQ(values(x.grad()), (std::vector<float>{0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0}));
}

TEST(Indexing, ANumberMayBeReadByAnEllipsis) {
  const Tensor x = tensor(3.0).requires_grad_();
  const Tensor y = x.index({indexing::Ellipsis});
  EXPECT_EQ(y.dim(), 0);
  (y * y).backward();
  EXPECT_EQ(x.grad().item<double>(), 6.0);
}

TEST(Indexing, ScatteredNumbersGetTheirGradients) {
  const Tensor index = zeros({1}, kLong), value = tensor(2.0).requires_grad_();
  zeros({2}).scatter(0, index, value).sum().backward();
  zeros({2}).scatter_add(0, index, value).sum().backward();
  EXPECT_EQ(value.grad().dim(), 0);
  EXPECT_EQ(value.grad().item<double>(), 2.0);
}

TEST(Indexing, SourcesOfAddedAndCopiedSlicesHaveTheirShape) {
  const Tensor x = zeros({3, 2}), two = zeros({2}, kLong);
  for (const auto& shape : {std::vector<std::int64_t>{2, 3}, {2, 1}, {2, 0}, {1, 2}, {3, 2}, {2}, {2, 2, 1}}) {
    EXPECT_THROW(x.index_copy(0, two, ones(shape)), Error);
    EXPECT_THROW(x.clone().index_copy_(0, two, ones(shape)), Error);
    EXPECT_THROW(x.index_add(0, two, ones(shape)), Error);
  }
  EXPECT_THROW(x.index_copy(0, zeros({1, 2}, kLong), ones({2, 2})), IndexError);
  EXPECT_THROW(zeros({3}).index_add(0, zeros({1}, kLong), ones({})), Error);
  EXPECT_EQ(zeros({3}).index_copy(0, ones({1}, kLong), ones({})).sum().item<float>(), 1);
  EXPECT_EQ(x.index_copy(1, two, ones({3, 2})).sum().item<float>(), 3);
}

TEST(Cdist, NanAndInfiniteRowsAreFarFromEverythingAlsoByAProduct) {
  Tensor x = ones({30, 3}), y = zeros({30, 3});
  x.index_put_({0, 0}, NAN);
  x.index_put_({1, 0}, INFINITY);
  for (const std::int64_t mode : {1, 2}) {
    const Tensor d = cdist(x, y, 2, mode);
    EXPECT_TRUE(isnan(d[0]).all().item<bool>()) << mode;
    EXPECT_FALSE(isfinite(d[1]).any().item<bool>()) << mode;
    EXPECT_NEAR(d[2][0].item<double>(), std::sqrt(3.0), 1e-6) << mode;
  }
}

TEST(Distance, OfTheGreatestDifferenceGivesTiesTheWholeGradient) {
  const Tensor x = tensor({0., 1., 3., 1., 1., 1.}, kDouble).view({2, 3}).requires_grad_(true);
  const Tensor y = tensor({1., 0., 2.}, kDouble).view({1, 3});
  const double inf = std::numeric_limits<double>::infinity();
  cdist(x, y, inf).sum().backward();
  EXPECT_TRUE(equal(x.grad(), tensor({-1., 1., 1., 0., 1., -1.}, kDouble).view({2, 3})));
  const Tensor z = tensor({0., 1., 2., 0.}, kDouble).view({2, 2}).requires_grad_(true);
  pdist(cat({z, z.slice(0, 0, 1)}), inf).sum().backward();
  EXPECT_TRUE(equal(z.grad(), tensor({-2., 0., 2., 0.}, kDouble).view({2, 2})));
}

TEST(Indexing, WhatNothingIsReadByIsNotLookedAt) {
  const Tensor none = zeros({0}, kLong), far = tensor({9}), x = counting();
  EXPECT_EQ(x.index({none, far}).sizes(), (IntArrayRef{0}));
  EXPECT_EQ(ones({3, 0}).index({none, "...", tensor({0})}).sizes(), (IntArrayRef{0}));
  EXPECT_EQ(ones({2, 0}).index({far}).sizes(), (IntArrayRef{1, 0}));
  EXPECT_TRUE(equal(counting().index_put_({none, far}, 5), x));
  EXPECT_THROW(ones({0, 0}).index({far}), IndexError) << "there is a place, and nothing to read";
  EXPECT_THROW(ones({2, 0}).index({Slice(), far}), IndexError);
}

TEST(Indexing, NumbersMayBeWrittenWhereElementsShareMemory) {
  const Tensor row = ones({1, 3});
  Tensor all = row.expand({4, 3});
  all.fill_(2);
  EXPECT_TRUE(equal(row, tensor({{2, 2, 2}}, kFloat)));
  all.index_put_({Slice(), 1}, 5);
  EXPECT_TRUE(equal(row, tensor({{2, 5, 2}}, kFloat)));
  all.zero_();
  EXPECT_TRUE(equal(row, zeros({1, 3})));
  EXPECT_THROW(all.add_(1), Error);
  EXPECT_THROW(all.copy_(ones({3})), Error);
  EXPECT_THROW(all.index_put_({Slice(), 1}, ones({4})), Error);
  const Tensor seen = ones({3}).requires_grad_();
  EXPECT_THROW((seen * 1).expand({4, 3}).fill_(2), Error) << "a gradient would not know whose";
}

TEST(Indexing, AddsBoolsByWhetherAlphaIsTrue) {
  const Tensor one = ones({1}, kBool), place = tensor({1});
  EXPECT_TRUE(equal(zeros({2}, kBool).index_add(0, place, one, 0.5), tensor({false, true})));
  EXPECT_TRUE(equal(zeros({2}, kBool).index_add(0, place, one, 0), tensor({false, false})));
}

TEST(Indexing, ScatterDoesNotReadPastItsSource) {
  const Tensor x = zeros({2, 3}), index = tensor({{0, 1}});
  for (const Tensor& src : {ones({1, 1}), ones({2}), ones({1, 0}), ones({})}) {
    EXPECT_THROW(x.scatter(1, index, src), Error) << src.sizes();
    EXPECT_THROW(x.scatter_add(1, index, src), Error) << src.sizes();
    EXPECT_THROW(x.scatter_reduce(1, index, src, "sum"), Error) << src.sizes();
  }
  EXPECT_THROW(zeros({3}).scatter(0, tensor(2), ones({0})), Error);
  EXPECT_THROW(zeros({3}).scatter_reduce(0, tensor(2), ones({0}), "sum"), Error);
  EXPECT_TRUE(equal(x.scatter(1, index, ones({2, 3})).sum(), tensor(2.F)));
  EXPECT_TRUE(equal(zeros({3}).scatter(0, tensor({1}), ones({})), tensor({0, 1, 0}, kFloat)));
}

TEST(Indexing, BadIndicesAreNamed) {
  const Tensor x = counting();
  EXPECT_THROW(x.index({0, 0, 0}), IndexError);
  EXPECT_THROW(x.index({3}), IndexError);
  EXPECT_THROW(x.index({tensor({5})}), IndexError);
  EXPECT_THROW(x.index({tensor({0.5})}), IndexError);
  EXPECT_THROW(x.index({zeros({1}, kShort)}), IndexError);
  EXPECT_THROW(x.index({"...", "..."}), IndexError);
  EXPECT_THROW(x.index({tensor({true, false})}), IndexError);
}

TEST(Printing, StreamsAsLibtorchDoes) {
  std::ostringstream out;
  out << tensor({1.0, 2.5});
  EXPECT_EQ(out.str(), " 1.0000\n 2.5000\n[ CPUFloatType{2} ]");
}

}  // namespace athanor
