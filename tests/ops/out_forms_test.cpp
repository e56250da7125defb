// Results written into tensors that the caller has.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "athanor/ops/tensor.h"
#include "numeric.h"

namespace athanor {
namespace {

TEST(OutForms, OfScalarOperandsWriteWhereTheyAreTold) {
  const Tensor x = tensor({6.0, 7.0}, kFloat);
  Tensor out = empty({0}, kFloat);
  const float* memory = nullptr;
  const auto expect = [&](double first, double second) {
    EXPECT_TRUE(equal(out, tensor({first, second}, kFloat))) << out;
    EXPECT_TRUE(!memory || out.data_ptr<float>() == memory);
    memory = out.data_ptr<float>();
  };
  mul_out(out, x, 2);
  expect(12, 14);
  add_out(out, x, 1, 3);
  expect(9, 10);
  sub_out(out, x, 1);
  expect(5, 6);
  div_out(out, x, 4);
  expect(1.5, 1.75);
  remainder_out(out, x, 4);
  expect(2, 3);
  Tensor whole = empty({2}, kLong);
  EXPECT_THROW(div_out(whole, x, 4), Error);
}

TEST(OutForms, OfSeveralResultsWriteEach) {
  const Tensor x = tensor({3.0, 1.0, 2.0, 9.0, 7.0, 8.0}, kFloat).view({2, 3});
  const auto expect = [&](auto&& into, auto&& made) {
    Tensor values = empty({0}, kFloat), indices = empty({7}, kLong);
    const std::tuple<Tensor&, Tensor&> returned = into(values, indices);
    EXPECT_TRUE(std::get<0>(returned).is_same(values) && std::get<1>(returned).is_same(indices));
    const auto [v, i] = made();
    EXPECT_TRUE(equal(values, v)) << values << v;
    EXPECT_TRUE(equal(indices, i)) << indices << i;
  };
#define EXPECT_OUT(name, ...) \
  expect([&](Tensor& v, Tensor& i) { return name##_out(v, i, __VA_ARGS__); }, [&] { return name(__VA_ARGS__); })
  EXPECT_OUT(max, x, 1);
  EXPECT_OUT(min, x, 0, true);
  EXPECT_OUT(sort, x, 1, true);
  EXPECT_OUT(sort, x, std::optional<bool>(true));
  EXPECT_OUT(topk, x, 2);
  EXPECT_OUT(kthvalue, x, 2);
  EXPECT_OUT(median, x, 1);
  EXPECT_OUT(nanmedian, x, 1);
  EXPECT_OUT(mode, x);
  EXPECT_OUT(cummax, x, 1);
  EXPECT_OUT(cummin, x, 1);
#undef EXPECT_OUT
  Tensor least = empty({0}, kFloat), most = empty({0}, kFloat);
  aminmax_out(least, most, x);
  EXPECT_EQ(least.item<float>(), 1);
  EXPECT_EQ(most.item<float>(), 9);
  slogdet_out(least, most, eye(2) * -2);
  EXPECT_EQ(least.item<float>(), 1);
  EXPECT_NEAR(most.item<float>(), std::log(4.0), 1e-6);
  Tensor self = x.clone(), where = empty({0}, kLong);
  sort_out(self, where, self);
  EXPECT_TRUE(equal(self, std::get<0>(sort(x))));
  Tensor wrong = empty({1}, kFloat);
  EXPECT_THROW(max_out(least, wrong, x, 1), Error);
  EXPECT_EQ(least.numel(), 1) << "written although the second tensor cannot be";
}

Tensor longs(std::initializer_list<std::int64_t> values) { return tensor(std::vector<std::int64_t>(values), kLong); }

TEST(OutForms, LinearWritesRowsThatAreNotOneRunOfMemory) {
  const Tensor x = ones({2, 3, 2}), w = ones({4, 2});
  const Tensor wide = zeros({2, 6, 4});
  Tensor part = wide.slice(1, 0, 3);
  linear_out(part, x, w);
  EXPECT_TRUE(equal(part, full({2, 3, 4}, 2.0)));
  EXPECT_TRUE(equal(wide.slice(1, 3, 6), zeros({2, 3, 4})));
  Tensor flipped = empty({3, 2, 4}).transpose(0, 1);
  linear_out(flipped, x, w, ones({4}));
  EXPECT_TRUE(equal(flipped, full({2, 3, 4}, 3.0)));
}

TEST(OutForms, ResizeAnInputAfterItWasRead) {
  const auto expect = [](auto&& op, auto&& into, Tensor x) {
    const Tensor expected = op(x.clone());
    into(x, x);
    EXPECT_TRUE(equal(x, expected)) << x << expected;
  };
#define EXPECT_OUT(name, x) \
  expect([](const Tensor& t) { return name(t); }, [](Tensor& o, const Tensor& t) { name##_out(o, t); }, x)
  const Tensor x = arange(6, kFloat).view({3, 2}), truth = x > -1;
  const Tensor w = arange(10, kFloat).view({5, 2});
  EXPECT_OUT(max, x.clone());
  EXPECT_OUT(min, x.clone());
  EXPECT_OUT(mean, x.clone());
  EXPECT_OUT(all, truth.clone());
  EXPECT_OUT(any, truth.clone());
#undef EXPECT_OUT
  Tensor out = x.clone();
  linear_out(out, out, w);  // more elements: new memory
  EXPECT_TRUE(equal(out, linear(x, w)));
  out = x.clone();
  linear_out(out, out, w.narrow(0, 0, 1));  // fewer: over what is read
  EXPECT_TRUE(equal(out, linear(x, w.narrow(0, 0, 1))));
  out = x.clone();
  mm_out(out, out, w.t());
  EXPECT_TRUE(equal(out, mm(x, w.t())));
  const Tensor square = arange(9, kFloat).view({3, 3});
  out = square.clone();
  linear_out(out, out, square);
  EXPECT_TRUE(equal(out, linear(square, square)));
}

TEST(OutForms, InputsThatShareMemoryAreReadBeforeTheyChange) {
  const Tensor self = tensor({1.0, 2.0, 3.0}), at = longs({2, 0, 0}), src = tensor({10.0, 20.0, 30.0});
  Tensor out = src.clone();
  index_copy_out(out, self, 0, longs({2, 0, 1}), out);
  EXPECT_TRUE(equal(out, tensor({20.0, 30.0, 10.0})));
  out = src.clone();
  scatter_add_out(out, self, 0, at, out);
  EXPECT_TRUE(equal(out, tensor({51.0, 2.0, 13.0})));
  out = src.clone();
  scatter_reduce_out(out, self, 0, at, out, "sum");
  EXPECT_TRUE(equal(out, tensor({51.0, 2.0, 13.0})));
  out = src.clone();
  index_reduce_out(out, self, 0, at, out, "prod");
  EXPECT_TRUE(equal(out, tensor({600.0, 2.0, 30.0})));
  Tensor index = at.clone();
  scatter_out(index, longs({4, 5, 6}), 0, index, 7);
  EXPECT_TRUE(equal(index, longs({7, 5, 7})));
  out = src.clone();
  out.index_add_(0, longs({1, 2, 0}), out);
  EXPECT_TRUE(equal(out, tensor({40.0, 30.0, 50.0})));
}

TEST(OutForms, RangesFillWhatHasAsManyElements) {
  Tensor out = empty({2, 3});
  arange_out(out, 6);
  EXPECT_TRUE(equal(out, arange(6, kFloat).view({2, 3})));
  linspace_out(out, 0, 5, 6);
  EXPECT_TRUE(equal(out, arange(6, kFloat).view({2, 3})));
  logspace_out(out, 0, 5, 6, 2);
  EXPECT_TRUE(equal(out, tensor({{1.0, 2.0, 4.0}, {8.0, 16.0, 32.0}})));
  const Tensor wide = zeros({2, 4});
  Tensor part = wide.narrow(1, 0, 3);
  arange_out(part, 6);
  EXPECT_TRUE(equal(wide, tensor({{0.0, 1.0, 2.0, 0.0}, {3.0, 4.0, 5.0, 0.0}})));
  arange_out(out, 2, 4);
  EXPECT_TRUE(equal(out, tensor({2.0, 3.0})));
}

TEST(OutForms, EmptyLeavesWhatIsThere) {
  Tensor out = ones({2, 3});
  empty_out(out, {2, 3});
  EXPECT_TRUE(equal(out, ones({2, 3})));
  empty_out(out, {4, 5});
  EXPECT_EQ(out.sizes().vec(), (std::vector<std::int64_t>{4, 5}));
  EXPECT_THROW(empty_out(out, {-1}), Error);
  Tensor whole = ones({3}, kLong);
  empty_out(whole, {2});
  EXPECT_EQ(whole.dtype(), kLong);
}

TEST(OutForms, BernoulliFillsIntegers) {
  const Tensor p = tensor({0.0, 1.0, 0.5, 0.5, 0.5});
  Tensor out = empty({0}, kInt);
  manual_seed(3);
  bernoulli_out(out, p);
  manual_seed(3);
  EXPECT_TRUE(equal(out, bernoulli(p).to(kInt)));
  EXPECT_EQ(out.dtype(), kInt);
}

TEST(OutForms, WhatIsRefusedDrawsNothing) {
  const auto next = [] { return rand({4}); };
  manual_seed(5);
  const Tensor expected = next();
  Tensor recorded = zeros({4}).requires_grad_(), none, plain = empty({0});
  const Tensor leaf = ones({4}).requires_grad_(), number = ones({4});
  manual_seed(5);
  EXPECT_THROW(rand_out(recorded, {4}), Error);
  EXPECT_THROW(randn_out(none, {4}), Error);
  EXPECT_THROW(normal_out(plain, leaf, 1.0), Error);
  EXPECT_THROW(normal_out(plain, 1.0, leaf), Error);
  EXPECT_THROW(normal_out(plain, number, leaf), Error);
  EXPECT_THROW(normal_out(recorded, number, number), Error);
  EXPECT_THROW(bernoulli_out(plain, leaf), Error);
  EXPECT_TRUE(equal(next(), expected));
  const NoGradGuard off;
  normal_out(plain, leaf, 1.0);
  EXPECT_EQ(plain.numel(), 4);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(OutForms, OfAFixedDtypeRefuseOthers) {
  const Tensor x = tensor({{1.0, 0.0}, {2.0, 3.0}});
  Tensor whole = empty({0}, kInt), single = empty({0}), wide = empty({0}, kDouble), byte = empty({0}, kByte);
  const auto expect = [](const char* type, const std::function<void()>& call) {
    EXPECT_THAT(refusal(call), testing::HasSubstr(std::string("Expected out tensor to have dtype ") + type));
  };
  expect("int64", [&] { nonzero_out(whole, x); });
  expect("int64", [&] { multinomial_out(whole, x + 1, 1); });
  expect("float64", [&] { float_power_out(single, x, 2); });
  expect("float64", [&] { mean_out(single, x, 1, false, kDouble); });
  expect("float64", [&] { sum_out(single, x, 1, false, kDouble); });
  expect("float64", [&] { prod_out(single, x, 1, false, kDouble); });
  expect("float64", [&] { cumsum_out(single, x, 1, kDouble); });
  expect("bool", [&] { all_out(single, x); });
  expect("bool", [&] { any_out(single, x, 1); });
  expect("bool", [&] { isin_out(byte, x, x); });
  sum_out(wide, x, 1);
  EXPECT_TRUE(equal(wide, tensor({1.0, 5.0}, kDouble)));
  all_out(byte, x);
  EXPECT_EQ(byte.item<int>(), 0);
  Tensor truth = empty({0}, kBool);
  any_out(truth, x.to(kByte));
  EXPECT_TRUE(truth.item<bool>());
}

TEST(OutForms, ReductionsByIndexConvertTheirResult) {
  const Tensor x = tensor({1.0, 2.0}, kFloat), src = tensor({3.0, 4.0}, kFloat);
  Tensor wide = empty({0}, kDouble);
  scatter_reduce_out(wide, x, 0, longs({0, 0}), src, "sum");
  EXPECT_TRUE(equal(wide, tensor({8.0, 2.0}, kDouble)));
  index_reduce_out(wide, x, 0, longs({0, 0}), src, "prod");
  EXPECT_TRUE(equal(wide, tensor({12.0, 2.0}, kDouble)));
  EXPECT_THROW(scatter_reduce_out(wide, x, 0, longs({0, 0}), src, ""), Error);
}

}  // namespace
}  // namespace athanor
