// Forms of ops that libtorch has beside those of their schemas.
#include "athanor/autograd/autograd.h"
#include "numeric.h"

namespace athanor::overloads_test {
namespace {

Tensor longs(std::initializer_list<std::int64_t> values) { return tensor(std::vector<std::int64_t>(values), kLong); }

TEST(Overloads, ScatterCombinesWithWhatIsThere) {
  const Tensor x = tensor({1.0, 2.0, 3.0}), at = longs({0, 0, 2}), src = tensor({10.0, 20.0, 30.0});
  EXPECT_TRUE(equal(x.scatter(0, at, src, "add"), tensor({31.0, 2.0, 33.0})));
  EXPECT_TRUE(equal(x.scatter(0, at, src, "multiply"), tensor({200.0, 2.0, 90.0})));
  EXPECT_TRUE(equal(scatter(x, 0, at, 2, "multiply"), tensor({4.0, 2.0, 6.0})));
  EXPECT_TRUE(equal(scatter(x, 0, at, src, "add"), tensor({31.0, 2.0, 33.0})));
  Tensor y = x.clone();
  y.scatter_(0, at, src, "add").scatter_(0, at, 2, "add");
  EXPECT_TRUE(equal(y, tensor({35.0, 2.0, 35.0})));
  EXPECT_THROW(x.scatter(0, at, src, "mean"), ValueError);
  const Tensor leaf = src.clone().requires_grad_();
  x.scatter(0, at, leaf, "add").sum().backward();
  EXPECT_TRUE(equal(leaf.grad(), ones({3})));
}

TEST(Overloads, ScatterInPlaceKeepsWhatItsGradientReads) {
  const Tensor at = longs({0, 0, 2});
  const Tensor leaf = tensor({1.0, 2.0, 3.0}).requires_grad_(), src = tensor({10.0, 20.0, 30.0}).requires_grad_();
  Tensor y = leaf * 1;
  y.scatter_(0, at, src, "multiply");
  y.sum().backward();
  EXPECT_TRUE(equal(leaf.grad(), tensor({200.0, 1.0, 30.0})));
  EXPECT_TRUE(equal(src.grad(), tensor({20.0, 10.0, 3.0})));
  leaf.mutable_grad() = Tensor();
  y = leaf * 1;
  y.scatter_(0, at, 2, "multiply");
  y.sum().backward();
  EXPECT_TRUE(equal(leaf.grad(), tensor({4.0, 1.0, 2.0})));
}

TEST(Overloads, IndexFillTakesATensorAndGivesItItsGradient) {
  const Tensor x = ones({2, 3}), value = tensor(5.0).requires_grad_();
  const Tensor filled = x.index_fill(1, longs({0, 2, 2}), value);
  EXPECT_TRUE(equal(filled, tensor({{5.0, 1.0, 5.0}, {5.0, 1.0, 5.0}})));
  filled.sum().backward();
  EXPECT_EQ(value.grad().item<double>(), 4);
  EXPECT_TRUE(equal(index_fill(x, -2, longs({1}), tensor(2.0)), tensor({{1.0, 1.0, 1.0}, {2.0, 2.0, 2.0}})));
  Tensor y = ones({2}), number = tensor(1.0);
  EXPECT_TRUE(equal(y.index_fill_(0, longs({1}), tensor(7.0)), tensor({1.0, 7.0})));
  EXPECT_EQ(number.index_fill_(0, longs({0}), tensor(7.0)).item<float>(), 7);
  EXPECT_THROW(x.index_fill(0, longs({0}), ones({1})), Error);
  EXPECT_THROW(x.index_fill(2, longs({0}), tensor(1.0)), IndexError);
  Tensor repeated = ones({1, 3}).expand({2, 3});
  EXPECT_THROW(repeated.index_fill_(1, longs({0}), tensor(1.0)), Error);
  EXPECT_THROW(repeated.index_fill_(1, longs({0}), 1.0), Error);
  EXPECT_THROW(x.index_fill(0, longs({2}), tensor(1.0)), IndexError);
}

TEST(Overloads, WhereAsAMethodAndOfAConditionAlone) {
  const Tensor x = tensor({{1.0, -2.0}, {-3.0, 4.0}});
  EXPECT_TRUE(equal(x.where(x > 0, zeros({2, 2})), x.clamp(0)));
  EXPECT_TRUE(equal(x.where(x > 0, 0), x.clamp(0)));
  const std::vector<Tensor> places = where(x > 0);
  ASSERT_EQ(places.size(), 2U);
  EXPECT_TRUE(equal(places[0], longs({0, 1})));
  EXPECT_TRUE(equal(places[1], longs({0, 1})));
}

TEST(Overloads, PolygammaIsAMethod) {
  const Tensor x = tensor({1.0, 2.5}, kDouble);
  EXPECT_TRUE(equal(x.polygamma(1), polygamma(1, x)));
  EXPECT_TRUE(equal(x.clone().polygamma_(2), polygamma(2, x)));
  EXPECT_THROW(longs({1, 2}).polygamma_(1), Error);
  const Tensor leaf = x.clone().requires_grad_();
  (leaf * 1).polygamma_(1).sum().backward();
  EXPECT_TRUE(allclose(leaf.grad(), polygamma(2, x)));
}

TEST(Overloads, ANumberMayComeFirst) {
  const Tensor x = longs({1, 6, 3});
  EXPECT_TRUE(equal(bitwise_and(3, x), longs({1, 2, 3})));
  EXPECT_TRUE(equal(bitwise_or(4, x), longs({5, 6, 7})));
  EXPECT_TRUE(equal(bitwise_xor(5, x), longs({4, 3, 6})));
  EXPECT_TRUE(equal(bitwise_left_shift(1, x), longs({2, 64, 8})));
  EXPECT_TRUE(equal(bitwise_right_shift(64, x), longs({32, 1, 8})));
  EXPECT_TRUE(equal(remainder(-7, x), longs({0, 5, 2})));
  EXPECT_TRUE(equal(float_power(2, x), tensor({2.0, 64.0, 8.0}, kDouble)));
  // The number does not widen the result.
  EXPECT_EQ(bitwise_and(3, x.to(kByte)).dtype(), kByte);
  EXPECT_EQ(remainder(7, x.to(kShort)).dtype(), kShort);
  EXPECT_EQ(remainder(7.5, x.to(kFloat)).dtype(), kFloat);
}

TEST(Overloads, PadsOfSoManyDimsAreThoseOfPad) {
  const Tensor x = arange(24, kFloat).view({1, 2, 3, 4}), line = x.view({1, 4, 6}), block = x.view({1, 1, 2, 3, 4});
  EXPECT_TRUE(equal(reflection_pad1d(line, {2, 1}), pad(line, {2, 1}, "reflect")));
  EXPECT_TRUE(equal(reflection_pad2d(x, {1, 2, 1, 0}), pad(x, {1, 2, 1, 0}, "reflect")));
  EXPECT_TRUE(equal(reflection_pad3d(block, {1, 1, 1, 1, 1, 0}), pad(block, {1, 1, 1, 1, 1, 0}, "reflect")));
  EXPECT_TRUE(equal(replication_pad1d(line, {2, 1}), pad(line, {2, 1}, "replicate")));
  EXPECT_TRUE(equal(replication_pad2d(x[0], {1, 2, 1, 0}), pad(x[0], {1, 2, 1, 0}, "replicate")));
  EXPECT_TRUE(equal(replication_pad3d(block, {1, 1, 1, 1, 2, 0}), pad(block, {1, 1, 1, 1, 2, 0}, "replicate")));
  EXPECT_THROW(reflection_pad1d(line, {1, 1, 1, 1}), Error);
  EXPECT_THROW(replication_pad3d(line, {1, 1, 1, 1, 1, 1}), Error);
}

TEST(Overloads, FunctionsOfWhatAreMethods) {
  Tensor x = ones({2, 3});
  EXPECT_EQ(numel(x), 6);
  EXPECT_FALSE(is_inference(x));
  EXPECT_TRUE(is_same_size(x, zeros({2, 3})));
  EXPECT_FALSE(x.is_same_size(zeros({3, 2})));
  EXPECT_EQ(as_strided_(x, {3, 2}, {2, 1}).sizes().vec(), (std::vector<std::int64_t>{3, 2}));
  Tensor y = ones({2}).requires_grad_() * 2;
  EXPECT_FALSE(detach_(y).requires_grad());
}

}  // namespace
}  // namespace athanor::overloads_test
