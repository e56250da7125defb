#include "numeric.h"

namespace athanor {
namespace {

using test::error_of;
using test::gradcheck;
using test::gradgradcheck;
using test::list;
using test::values;

using Sizes = std::vector<std::int64_t>;

}  // namespace

// ---- gradients of as_strided

TEST(AsStrided, OverlappingViewSumsWhatItsElementsRead) {
  Tensor x = arange(5, kDouble).requires_grad_();
  x.as_strided({3, 3}, {1, 1}).sum().backward();
  EXPECT_EQ(list(x.grad()), (std::vector<double>{1, 2, 3, 2, 1}));
}

TEST(AsStrided, GradientsToSecondOrderOfOverlappingViews) {
  Tensor x = values({4, 5}).requires_grad_();
  const auto windows = [](const std::vector<Tensor>& in) { return in[0].as_strided({3, 4}, {2, 3}, 1).pow(3); };
  gradcheck(windows, {x});
  gradgradcheck(windows, {x});
  // Repeats (stride 0) beside overlaps, and an input with gaps.
  const auto repeated = [](const std::vector<Tensor>& in) {
    return in[0].slice(1, 0, 5, 2).as_strided({2, 3, 2}, {0, 5, 5}, 0).pow(2);
  };
  gradcheck(repeated, {x});
  gradgradcheck(repeated, {x});
}

TEST(AsStrided, MemoryOutsideTheInputHasNoGradient) {
  Tensor x = values({6}).requires_grad_();
  const auto before = [](const std::vector<Tensor>& in) { return in[0].slice(0, 3).as_strided({4}, {1}, 1).pow(2); };
  const Tensor y = before({x});
  EXPECT_EQ(y.numel(), 4);
  y.sum().backward();
  const std::vector<double> v = list(x), g = list(x.grad());
  // Elements 1 and 2 are read but are no part of the input of as_strided.
  EXPECT_EQ(g, (std::vector<double>{0, 0, 0, 2 * v[3], 2 * v[4], 0}));
}

TEST(AsStrided, ElementsOfAnExpandedInputShareTheGradient) {
  Tensor x = values({1, 2}).requires_grad_();
  const Tensor y = x.expand({3, 2}).as_strided({2}, {1}, 0);
  y.sum().backward();
  EXPECT_EQ(list(x.grad()), (std::vector<double>{1, 1}));
}

TEST(AsStrided, NothingReadGivesZeros) {
  Tensor x = values({3}).requires_grad_();
  x.as_strided({0, 2}, {1, 1}).sum().backward();
  EXPECT_EQ(list(x.grad()), (std::vector<double>{0, 0, 0}));
}

TEST(AsStrided, RefusesGeometryBeyondMemory) {
  const Tensor x = ones({4});
  EXPECT_NE(error_of([&] { x.as_strided({2}, {4}); }).find("need 5 elements, the storage has 4"), std::string::npos);
  EXPECT_NE(error_of([&] { x.as_strided({3}, {INT64_MAX}); }).find("beyond any memory"), std::string::npos);
  EXPECT_THROW(x.as_strided({2}, {-1}, 1), Error);
  EXPECT_THROW(x.as_strided({1}, {1}, -1), Error);
}

TEST(Slice, GradientOfTheGradientIsASlice) {
  Tensor x = values({3, 5}).requires_grad_();
  const auto f = [](const std::vector<Tensor>& in) {
    return in[0].slice(1, 1, 5, 2).pow(3) * in[0].select(1, 0).unsqueeze(1);
  };
  gradcheck(f, {x});
  gradgradcheck(f, {x});
}

TEST(Slice, GradientOfManyPiecesIsZeroBesideTheSlice) {
  const std::int64_t rows = 700, columns = 301;
  const int before = get_num_threads();
  for (const int threads : {1, 2, 7}) {
    set_num_threads(threads);
    for (const std::int64_t dim : {0, 1})
      for (const std::int64_t step : {std::int64_t{1}, std::int64_t{3}, std::int64_t{250}, INT64_MAX})
        for (const auto& [start, end] : {std::pair{0, 700}, {1, 300}, {299, 300}, {300, 300}}) {
          const Tensor part = zeros({rows, columns}).slice(dim, start, end, step);
          const Tensor got = slice_backward(values(part.sizes().vec(), kFloat), {rows, columns}, dim, start, end, step);
          EXPECT_TRUE(equal(got.slice(dim, start, end, step), values(part.sizes().vec(), kFloat)));
          EXPECT_EQ(got.count_nonzero().item<std::int64_t>(),
                    values(part.sizes().vec(), kFloat).count_nonzero().item<std::int64_t>());
        }
  }
  set_num_threads(before);
}

TEST(Slice, OfAWholeDimHandsTheGradientOn) {
  Tensor x = values({4, 6}).requires_grad_();
  x.slice(0).slice(1, 0, 6).pow(2).sum().backward();
  EXPECT_TRUE(equal(x.grad(), x.detach() * 2));
  const Tensor all = x.index({indexing::Slice()});
  EXPECT_FALSE(all.is_same(x)) << "still a view of its own";
  EXPECT_EQ(all.data_ptr(), x.data_ptr());
}

// ---- views in place

TEST(ViewInPlace, ChangesShapeAndKeepsStorageAndVersion) {
  Tensor x = arange(6, kFloat).view({2, 3});
  const Tensor before = x;
  void* const data = x.data_ptr();
  const auto version = x._version();
  x.t_();
  EXPECT_EQ(x.sizes().vec(), (Sizes{3, 2}));
  EXPECT_TRUE(before.is_same(x));
  x.transpose_(0, 1).unsqueeze_(0).squeeze_(0).unsqueeze_(-1).squeeze_();
  EXPECT_EQ(x.sizes().vec(), (Sizes{2, 3}));
  x.swapaxes_(0, 1).swapdims_(0, 1);
  EXPECT_EQ(list(x), list(arange(6)));
  EXPECT_EQ(x.data_ptr(), data);
  EXPECT_EQ(x._version(), version);
  x.as_strided_({2}, {3}, 1);
  EXPECT_EQ(list(x), (std::vector<double>{1, 4}));
}

TEST(ViewInPlace, ManyDimsAndBack) {
  Tensor x = ones({2});
  for (int i = 0; i < 8; ++i) x.unsqueeze_(0);
  EXPECT_EQ(x.dim(), 9);
  x.squeeze_();
  EXPECT_EQ(x.sizes().vec(), (Sizes{2}));
}

TEST(ViewInPlace, GradientsGoThrough) {
  Tensor x = values({2, 3}).requires_grad_();
  const auto f = [](const std::vector<Tensor>& in) {
    Tensor y = in[0] * 1;
    y.t_();
    y.unsqueeze_(1);
    return y.pow(2) * arange(6, kDouble).view({3, 1, 2});
  };
  gradcheck(f, {x});
  gradgradcheck(f, {x});
  EXPECT_EQ(f({x}).grad_fn()->name(), "MulBackward0");
  Tensor y = x * 1;
  y.t_();
  EXPECT_EQ(y.grad_fn()->name(), "TBackward0");
}

TEST(ViewInPlace, WritesThroughAViewThatWasTurned) {
  Tensor x = values({2, 3}).requires_grad_();
  Tensor y = x * 1;
  Tensor v = y.slice(1, 0, 2);
  v.t_();
  v.mul_(arange(4, kDouble).view({2, 2}));
  y.sum().backward();
  EXPECT_EQ(list(x.grad()), (std::vector<double>{0, 2, 1, 1, 3, 1}));
}

TEST(ViewInPlace, RefusesLeavesThatRequireGrad) {
  Tensor x = ones({2}).requires_grad_();
  EXPECT_NE(error_of([&] { x.unsqueeze_(0); }).find("a leaf Variable that requires grad"), std::string::npos);
  EXPECT_EQ(x.dim(), 1);
}

// ---- views

TEST(Views, WriteThrough) {
  Tensor x = zeros({3, 3});
  x.diagonal().fill_(1);
  movedim(x, 0, 1).select(0, 2).fill_(5);
  x.unfold(0, 1, 2).select(0, 1).select(0, 0).fill_(7);
  EXPECT_EQ(list(x), (std::vector<double>{1, 0, 5, 0, 1, 5, 7, 0, 5}));
}

TEST(Views, DiagonalInPlaceHasGradients) {
  Tensor x = values({3, 3}).requires_grad_();
  const auto f = [](const std::vector<Tensor>& in) {
    Tensor y = in[0] * 1;
    y.diagonal(1).mul_(in[0].diagonal(1));
    return y.pow(2);
  };
  gradcheck(f, {x});
  gradgradcheck(f, {x});
}

TEST(ViewDtype, ReinterpretsBytes) {
  const Tensor x = ones({2, 3});
  EXPECT_EQ(x.view(kInt)[0][0].item<std::int64_t>(), 0x3f800000);
  EXPECT_EQ(x.view(kShort).sizes().vec(), (Sizes{2, 6}));
  EXPECT_EQ(ones({2, 4}).view(kDouble).sizes().vec(), (Sizes{2, 2}));
  Tensor y = ones({4});
  const auto version = y._version();
  y.view(kInt).fill_(0);
  EXPECT_EQ(y.sum().item<float>(), 0);
  EXPECT_EQ(y._version(), version + 1);
  const Tensor part = arange(8, kInt).slice(0, 2, 6).view(kLong);
  EXPECT_EQ(list(part), (std::vector<double>{2 + 3 * 4294967296.0, 4 + 5 * 4294967296.0}));
  EXPECT_FALSE(ones({2}).requires_grad_().view(kInt).requires_grad());
}

TEST(Squeeze, ByDimsGradient) {
  Tensor x = values({1, 2, 1}).requires_grad_();
  EXPECT_EQ(x.squeeze({0, 1}).sizes().vec(), (Sizes{2, 1}));
  EXPECT_EQ(x.squeeze({0, 2}).grad_fn()->name(), "SqueezeBackward2");
}

TEST(AsStridedScatter, KeepsTheLayoutOfItsInput) {
  const Tensor x = arange(6, kDouble).view({2, 3}).t();
  const Tensor y = as_strided_scatter(x, full({2}, 50.0, kDouble), {2}, {1}, 1);
  EXPECT_EQ(y.strides().vec(), (Sizes{1, 3}));
  EXPECT_EQ(list(y), (std::vector<double>{0, 3, 50, 4, 50, 5}));
  Tensor a = values({3, 2}).requires_grad_(), b = values({2}, kDouble, 5).requires_grad_();
  const auto f = [](const std::vector<Tensor>& in) {
    return as_strided_scatter(in[0].t().contiguous().t(), in[1], {2}, {3}, 1).pow(2);
  };
  gradcheck(f, {a, b});
  gradgradcheck(f, {a, b});
}

// ---- indices

TEST(TakeAlongDim, NegativeIndicesCountFromTheEndOfTheDim) {
  const Tensor x = arange(6).view({2, 3});
  EXPECT_EQ(list(take_along_dim(x, tensor({{-1}, {-3}}), 1)), (std::vector<double>{2, 3}));
  EXPECT_THROW(take_along_dim(x, tensor({{-4}}), 1), Error);
  EXPECT_THROW(take_along_dim(x, tensor({-1})), Error);
}

TEST(OneHot, CountsClassesFromTheLargest) {
  EXPECT_EQ(list(one_hot(tensor({2, 0}))), (std::vector<double>{0, 0, 1, 1, 0, 0}));
  EXPECT_THROW(one_hot(tensor({-1, 2})), Error);
  EXPECT_THROW(one_hot(tensor({-1})), Error);
}

TEST(RepeatInterleave, GradientToSecondOrder) {
  Tensor x = values({3, 2}).requires_grad_();
  const Tensor counts = tensor({2, 0, 3});
  const auto f = [&](const std::vector<Tensor>& in) { return repeat_interleave(in[0], counts, 0).pow(2); };
  gradcheck(f, {x});
  gradgradcheck(f, {x});
}

TEST(Splits, PartsOfSeveralRefuseChangesInPlaceUnderGrad) {
  const Tensor x = (ones({4}).requires_grad_() * 1);
  Tensor part = x.split(std::vector<std::int64_t>{1, 1, 2})[1];
  EXPECT_NE(error_of([&] { part.add_(1); }).find("returns multiple views"), std::string::npos);
}

TEST(Splits, GradientOfSomePartsIsZeroElsewhere) {
  Tensor x = values({2, 6}).requires_grad_();
  const auto f = [](const std::vector<Tensor>& in) {
    const auto parts = in[0].split(std::vector<std::int64_t>{1, 2, 0, 3}, 1);
    return parts[1].pow(3).sum() + (parts[3] * parts[3]).sum();
  };
  gradcheck(f, {x});
  gradgradcheck(f, {x});
  x.chunk(3, 1)[1].sum().backward();
  EXPECT_TRUE(equal(x.grad(), tensor({0., 0., 1., 1., 0., 0.}).to(x.dtype()).expand({2, 6})));
}

TEST(Splits, PartsFollowABaseThatIsChangedInPlace) {
  const Tensor leaf = values({4}).requires_grad_(), x = leaf * 1;
  const auto parts = x.chunk(2);
  x.mul_(3);
  (parts[0] * 2).sum().backward();
  EXPECT_TRUE(equal(leaf.grad(), tensor({6., 6., 0., 0.}).to(leaf.dtype())));
}

// ---- other names

TEST(Aliases, AreTheirOps) {
  const Tensor x = values({3, 3}), y = values({3, 3}, kDouble, 2);
  EXPECT_TRUE(equal(absolute(x), abs(x)) && equal(x.absolute(), x.abs()) && equal(negative(x), -x));
  EXPECT_TRUE(equal(fix(x * 3), trunc(x * 3)) && equal(arccos(x), acos(x)) && equal(arcsin(x), asin(x)));
  EXPECT_TRUE(equal(arctan(x), atan(x)) && equal(arccosh(x + 2), acosh(x + 2)) && equal(arcsinh(x), asinh(x)));
  EXPECT_TRUE(equal(arctanh(x), atanh(x)) && equal(arctan2(x, y), atan2(x, y)) && equal(x.arctan2(y), x.atan2(y)));
  EXPECT_TRUE(equal(subtract(x, y, 2), sub(x, y, 2)) && equal(multiply(x, y), x * y) && equal(x.multiply(2), x * 2));
  EXPECT_TRUE(equal(divide(x, y), x / y) && equal(true_divide(x, 3), x / 3));
  EXPECT_TRUE(equal(divide(x, y, "floor"), floor_divide(x, y)));
  EXPECT_TRUE(equal(greater(x, y), x.gt(y)) && equal(greater_equal(x, 0), x.ge(0)) && equal(less(x, y), x.lt(y)));
  EXPECT_TRUE(equal(less_equal(x, y), x.le(y)) && equal(not_equal(x, x), x.ne(x)));
  EXPECT_TRUE(equal(concatenate({x, y}, 1), cat({x, y}, 1)) && equal(row_stack({x, y}), vstack({x, y})));
  EXPECT_TRUE(equal(moveaxis(x, 0, 1), x.t()) && equal(swapaxes(x, 0, 1), x.t()) && equal(x.swapdims(0, 1), x.t()));
  EXPECT_EQ(unsafe_chunk(x, 2).size(), 2U);
  EXPECT_EQ(unsafe_split(x, 1).size(), 3U);
  EXPECT_EQ(unsafe_split_with_sizes(x, {1, 2}).size(), 2U);
}

TEST(Aliases, HaveTheFormsInPlaceAndOut) {
  Tensor x = values({3}), out = empty({0}, kDouble);
  const Tensor y = x.clone();
  EXPECT_TRUE(&x.absolute_() == &x);
  EXPECT_TRUE(equal(x, y.abs()));
  absolute_(x);
  x.multiply_(2).subtract_(1).divide_(3);
  EXPECT_TRUE(equal(x, (y.abs() * 2 - 1) / 3));
  multiply_out(out, x, y);
  EXPECT_TRUE(equal(out, x * y));
  Tensor mask = empty({0}, kBool);
  greater_out(mask, x, y);
  EXPECT_TRUE(equal(mask, x.gt(y)));
  concatenate_out(out, {x, y});
  EXPECT_EQ(out.numel(), 6);
}

TEST(Variance, ALoneZeroIsADim) {
  const Tensor x = arange(12.0).view({4, 3});
  const std::int64_t zero = 0;
  EXPECT_EQ(x.var(0).sizes(), IntArrayRef({3}));
  EXPECT_EQ(x.std(zero).sizes(), IntArrayRef({3}));
  EXPECT_TRUE(equal(var(x, zero), x.var(IntArrayRef({0}))));
  EXPECT_TRUE(equal(athanor::std(x, 0), sqrt(x.var(0))));
  EXPECT_TRUE(equal(std::get<0>(var_mean(x, 0)), x.var(0)));
  EXPECT_TRUE(equal(std::get<1>(std_mean(x, zero)), x.mean(0)));
  EXPECT_EQ(std::get<0>(var_mean(x, true)).dim(), 0);
}

TEST(To, RefusesRequiresGrad) {
  const Tensor x = ones({2});
  EXPECT_THROW(x.to(TensorOptions().requires_grad(true)), Error);
  EXPECT_EQ(x.to(TensorOptions(kDouble).requires_grad(false)).dtype(), kDouble);
}

TEST(Aliases, RecordTheOpThatTheyStandFor) {
  const Tensor x = ones({2}).requires_grad_();
  EXPECT_EQ(multiply(x, x).grad_fn()->name(), "MulBackward0");
}

TEST(Slice, OfAWholeDimHasAGradientOfItsOwn) {
  const Tensor x = ones({4, 5}).requires_grad_(), up = ones({4, 5});
  Tensor g = autograd::grad({x.slice(0, 0, 4)}, {x}, {up})[0];
  g.mul_(3);
  EXPECT_TRUE(equal(up, ones({4, 5})));
}

TEST(Cat, OfChannelsLastTensorsIsChannelsLast) {
  const auto last = [](IntArrayRef sizes) { return randn(sizes).contiguous(MemoryFormat::ChannelsLast); };
  const Tensor a = last({2, 3, 4, 5}), b = last({2, 6, 4, 5});
  const Tensor joined = cat({a, b, empty({0})}, 1);
  EXPECT_TRUE(joined.is_contiguous(MemoryFormat::ChannelsLast));
  EXPECT_TRUE(equal(joined.narrow(1, 0, 3), a) && equal(joined.narrow(1, 3, 6), b));
  EXPECT_TRUE(cat({a, b.contiguous()}, 1).is_contiguous());
  const Tensor rows = cat({a, a}, 0);
  EXPECT_TRUE(rows.is_contiguous(MemoryFormat::ChannelsLast) && equal(rows.slice(0, 2, 4), a));
}

}  // namespace athanor
