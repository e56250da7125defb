// Expected values were computed with PyTorch 2.15, printed forms with libtorch 1.13.
#include "athanor/autograd/gradcheck.h"
#include "helpers.h"

namespace athanor::nn {
namespace {

namespace F = functional;
using test::error_of;
using test::expect_near;
using test::list;
using test::ramp;
using test::text_of;

/// 0, 1, 4, 9 … divided by 50, as an image of 4 rows and 6 columns.
Tensor squares() { return (ramp({1, 1, 4, 6}) * ramp({1, 1, 4, 6})) / 50; }

using Doubles = std::vector<double>;
using Sizes = std::vector<std::int64_t>;

TEST(Interpolate, AgreesWithPyTorchInEveryMode) {
  const Tensor x = squares();
  auto size = [](Sizes s) { return F::InterpolateFuncOptions().size(s); };
  auto scale = [](Doubles s) { return F::InterpolateFuncOptions().scale_factor(s); };
  expect_near(F::interpolate(x, size({3, 4}).mode(kNearestExact)),
              {0, .08, .18, .5, 2.88, 3.92, 4.5, 5.78, 6.48, 8, 8.82, 10.58}, 1e-4);
  expect_near(F::interpolate(x.squeeze(0), scale({1.5}).mode(kNearestExact)).slice(1, 0, 1),
              {0, .02, .02, .08, .18, .18, .32, .5, .5}, 1e-4);
  expect_near(F::interpolate(x, size({3, 4}).mode(kArea)),
              {.43, .59, 1.03, 1.31, 1.99, 2.39, 3.31, 3.83, 4.99, 5.63, 7.03, 7.79}, 1e-4);
  expect_near(F::interpolate(x, size({2, 3}).mode(kBilinear).antialias(true)),
              {0.86245, 1.28857, 1.83184, 4.52612, 5.62571, 6.84245}, 1e-4);
  expect_near(F::interpolate(x, size({2, 3}).mode(kBicubic).antialias(true)),
              {0.51918, 0.91706, 1.46133, 4.70274, 5.95805, 7.35975}, 1e-4);
  expect_near(F::interpolate(x, size({5, 3}).mode(kBicubic).antialias(true).align_corners(true)),
              {-0.03143, 0.15834, 0.38897, 0.42287, 0.98472, 1.45646, 1.64162, 2.70364, 3.49949, 3.7343, 5.26245,
               6.36036, 6.78397, 8.7941, 10.20433},
              1e-4);
  expect_near(F::interpolate(x, scale({0.6}).mode(kBilinear)), {0.27333, 0.48, 0.80667, 3.04667, 3.92, 4.91333}, 1e-4);
  expect_near(F::interpolate(x, scale({0.6}).mode(kBilinear).recompute_scale_factor(true)),
              {.43, .79, 1.31, 4.99, 6.31, 7.79}, 1e-4);
  expect_near(F::interpolate(x.reshape({1, 1, 2, 2, 6}), size({1, 3, 2}).mode(kTrilinear).align_corners(true)),
              {0, .5, .36, 1.46, .72, 2.42}, 1e-4);
  EXPECT_EQ(list(F::interpolate(ramp({1, 1, 2}), size({4}))), (Doubles{0, 0, 1, 1}));
  EXPECT_EQ(F::interpolate(ones({1, 2, 2, 2, 2}), scale({2})).sizes().vec(), (Sizes{1, 2, 4, 4, 4}));
}

TEST(Interpolate, GivesANewTensorAndGradientsOfEveryForm) {
  const Tensor x = squares();
  const Tensor same = F::interpolate(x, F::InterpolateFuncOptions().size(Sizes{4, 6}));
  EXPECT_FALSE(same.is_same(x));
  EXPECT_NE(same.data_ptr(), x.data_ptr());
  for (const bool antialias : {false, true}) {
    Tensor leaf = squares().to(kDouble).requires_grad_();
    auto fn = [=](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{
          F::interpolate(in[0], F::InterpolateFuncOptions().size(Sizes{3, 4}).mode(kBicubic).antialias(antialias))};
    };
    EXPECT_TRUE(autograd::gradcheck(fn, {leaf}));
    EXPECT_TRUE(autograd::gradgradcheck(fn, {leaf}));
  }
  const Tensor last = squares().expand({2, 3, 4, 6}).contiguous(MemoryFormat::ChannelsLast);
  const Tensor y = F::interpolate(last, F::InterpolateFuncOptions().size(Sizes{5, 5}).mode(kBilinear));
  EXPECT_TRUE(y.is_contiguous(MemoryFormat::ChannelsLast));
  EXPECT_EQ(list(y),
            list(F::interpolate(last.contiguous(), F::InterpolateFuncOptions().size(Sizes{5, 5}).mode(kBilinear))));
}

TEST(Interpolate, SaysWhatIsWrong) {
  const Tensor x = squares();
  auto fails = [&](const F::InterpolateFuncOptions& o) { return error_of([&] { F::interpolate(x, o); }); };
  EXPECT_THAT(fails({}), testing::HasSubstr("either size or scale_factor should be defined"));
  EXPECT_THAT(fails(F::InterpolateFuncOptions().size(Sizes{2}).scale_factor(Doubles{2})),
              testing::HasSubstr("only one of size or scale_factor"));
  EXPECT_THAT(fails(F::InterpolateFuncOptions().size(Sizes{2}).align_corners(true)),
              testing::HasSubstr("linear | bilinear | bicubic | trilinear"));
  EXPECT_THAT(fails(F::InterpolateFuncOptions().size(Sizes{2}).mode(kLinear)), testing::HasSubstr("kLinear 3D"));
  EXPECT_THAT(fails(F::InterpolateFuncOptions().size(Sizes{2, 2, 2})),
              testing::HasSubstr("one per spatial dimension, 2"));
  EXPECT_THAT(fails(F::InterpolateFuncOptions().size(Sizes{2}).antialias(true)), testing::HasSubstr("antialias"));
  EXPECT_THROW(F::interpolate(ones({2, 2}), F::InterpolateFuncOptions().size(Sizes{2})), ValueError);
}

TEST(VisionLayers, ForwardAsTheirFunctions) {
  const Tensor x = squares();
  EXPECT_EQ(list(Upsample(UpsampleOptions().scale_factor(Doubles{1.5}).mode(kBilinear).align_corners(true))(x)),
            list(F::interpolate(
                x, F::InterpolateFuncOptions().scale_factor(Doubles{1.5}).mode(kBilinear).align_corners(true))));
  const Tensor channels = ramp({1, 4, 2, 2});
  const Tensor shuffled = PixelShuffle(PixelShuffleOptions(2))(channels);
  EXPECT_EQ(list(shuffled), (Doubles{0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15}));
  EXPECT_EQ(list(PixelUnshuffle(PixelUnshuffleOptions(2))(shuffled)), list(channels));
  EXPECT_EQ(list(ChannelShuffle(ChannelShuffleOptions(2))(channels).select(2, 0).select(2, 0)), (Doubles{0, 8, 4, 12}));
  Unfold unfold(UnfoldOptions({2, 3}).padding(1));
  Fold fold(FoldOptions({4, 6}, {2, 3}).padding(1));
  const Tensor columns = unfold(x);
  EXPECT_EQ(columns.sizes().vec(), (Sizes{1, 6, 30}));
  // Folding what was unfolded counts every element as often as a window reads it.
  expect_near(fold(columns), list(x * fold(unfold(ones({1, 1, 4, 6})))));
  Sequential seq(Upsample(UpsampleOptions().size(Sizes{2, 2})), PixelUnshuffle(PixelUnshuffleOptions(2)));
  EXPECT_EQ(seq(x).sizes().vec(), (Sizes{1, 4, 1, 1}));
}

TEST(LpPool, OfInfiniteOrderTakesTheGreatestOrLeastSize) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = tensor({1., -2., 3., 4., -5., 6.}, kDouble).view({1, 1, 6}).requires_grad_(true);
  const Tensor most = F::lp_pool1d(x, F::LPPool1dFuncOptions(inf, 2)),
               least = F::lp_pool1d(x, F::LPPool1dFuncOptions(-inf, 2));
  EXPECT_TRUE(equal(most.view({3}), tensor({2., 4., 6.}, kDouble)));
  EXPECT_TRUE(equal(least.view({3}), tensor({1., 3., 5.}, kDouble)));
  most.sum().backward();
  EXPECT_TRUE(equal(x.grad().view({6}), tensor({0., -1., 0., 1., 0., 1.}, kDouble)));
  EXPECT_EQ(F::lp_pool2d(x.view({1, 1, 2, 3}), F::LPPool2dFuncOptions(inf, {2, 3})).item<double>(), 6);
  EXPECT_THROW(F::lp_pool1d(x, F::LPPool1dFuncOptions(0, 2)), ValueError);
}

TEST(GridSample, TheIdentityGridReadsTheImage) {
  const Tensor x = squares();
  const Tensor theta = tensor({1.0F, 0.0F, 0.0F, 0.0F, 1.0F, 0.0F}).reshape({1, 2, 3});
  for (const bool align : {false, true}) {
    const Tensor grid = F::affine_grid(theta, x.sizes(), align);
    for (const auto& mode : {F::GridSampleFuncOptions().mode(kBilinear), F::GridSampleFuncOptions().mode(kNearest),
                             F::GridSampleFuncOptions().mode(kBicubic)})
      expect_near(F::grid_sample(x, grid, F::GridSampleFuncOptions(mode).align_corners(align)), list(x), 1e-5);
  }
}

TEST(GridSample, NothingLiesAtNaN) {
  const Tensor grid = full({1, 1, 2, 2}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(list(F::grid_sample(squares(), grid, F::GridSampleFuncOptions().mode(kNearest))), (Doubles{0, 0}));
  for (const double v : list(F::grid_sample(squares(), grid))) EXPECT_TRUE(std::isnan(v));
}

TEST(GridSample, PlacesInALargeImageOfHalvesAreThoseOfFloats) {
  for (const auto& [dtype, size] : {std::pair{kBFloat16, 512}, std::pair{kHalf, 4096}}) {
    // 1 is the outer edge, half of the last element; what rounds to it may be meant to lie inside.
    for (const bool border : {false, true}) {
      Tensor x = arange(2 * size, kFloat).fmod(64).reshape({1, 1, 2, size}).to(dtype).requires_grad_();
      Tensor grid = tensor({1.0F, 0.5F, -1.0F, -0.5F, 0.998F, 1.0F}).reshape({1, 1, 3, 2}).to(dtype).requires_grad_();
      auto options = F::GridSampleFuncOptions().align_corners(false);
      if (border) options.padding_mode(kBorder);
      const Tensor y = F::grid_sample(x, grid, options);
      const Tensor expected = F::grid_sample(x.detach().to(kFloat), grid.detach().to(kFloat), options);
      expect_near(y, list(expected), 0.5);
      y.sum().backward();
      EXPECT_EQ(x.grad().sizes(), x.sizes());
      EXPECT_EQ(grid.grad().dtype(), dtype);
    }
  }
}

TEST(GridSample, PointsOutsideTakeNothingOfAnInfiniteImage) {
  const Tensor image = full({1, 2, 3, 3}, std::numeric_limits<double>::infinity());
  const Tensor grid = full({1, 1, 2, 2}, 3.0).set_requires_grad(true);
  const Tensor y = F::grid_sample(image, grid);
  EXPECT_EQ(list(y), Doubles(4, 0));
  y.sum().backward();
  EXPECT_EQ(list(grid.grad()), Doubles(4, 0));
}

/// x (1, channels, places) divided by (1 + alpha · mean of the squares of `size` channels around)^0.75; a channel that
/// does not exist counts as zeros.
Doubles local_response(const Tensor& x, std::int64_t size, double alpha) {
  const Doubles v = list(x);
  const std::int64_t channels = x.size(1), places = x.size(2);
  Doubles out;
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t i = 0; i < places; ++i) {
      double squares = 0;
      for (std::int64_t d = c - size / 2; d <= c + (size - 1) / 2; ++d)
        if (d >= 0 && d < channels) squares += std::pow(v[static_cast<std::size_t>(d * places + i)], 2);
      out.push_back(v[static_cast<std::size_t>(c * places + i)] /
                    std::pow(1 + alpha * squares / static_cast<double>(size), 0.75));
    }
  return out;
}

TEST(LocalNorms, DivideByTheSquaresOfTheChannelsAround) {
  const Tensor x = squares().reshape({1, 4, 6}) / 4;
  for (const std::int64_t size : {1, 2, 3, 4, 7})
    expect_near(LocalResponseNorm(LocalResponseNormOptions(size).alpha(0.5))(x), local_response(x, size, 0.5), 1e-5);
}

TEST(LocalNorms, AgreeWithPyTorch) {
  const Tensor x = squares().reshape({1, 4, 6}) / 4;
  auto options = [](std::int64_t n) { return LocalResponseNormOptions(n).alpha(0.5); };
  const Tensor two = LocalResponseNorm(options(2))(x), three = LocalResponseNorm(options(3))(x);
  expect_near(two.select(1, 2), {0.6536, 0.74001, 0.82125, 0.89458, 0.95776, 1.00934}, 1e-4);
  expect_near(three.select(1, 1), {0.16853, 0.22369, 0.28315, 0.34495, 0.40698, 0.46716}, 1e-4);
  const Tensor image = x.reshape({1, 4, 2, 3});
  // PyTorch's windows keep the first channels.
  expect_near(CrossMapLRN2d(options(2))(image).select(1, 2), {0.65711, 0.74706, 0.83389, 0.91513, 0.9886, 1.0525},
              1e-4);
  expect_near(CrossMapLRN2d(options(3))(image).select(1, 2), {0.52358, 0.57468, 0.61934, 0.65691, 0.68718, 0.71032},
              1e-4);
  expect_near(CrossMapLRN2d(options(4))(image).select(1, 3), {1.26353, 1.33404, 1.39275, 1.43922, 1.47353, 1.49624},
              1e-4);
  EXPECT_THROW(LocalResponseNorm(2)(ones({2, 2})), ValueError);
  EXPECT_THROW(CrossMapLRN2d(2)(ones({2, 2, 2})), ValueError);
}

TEST(Distances, NormalizeAndLayers) {
  expect_near(F::normalize(squares().reshape({4, 6}).slice(0, 0, 2)),
              {0, 0.03196, 0.12784, 0.28764, 0.51136, 0.799, 0.1823, 0.24814, 0.3241, 0.41019, 0.5064, 0.61275}, 1e-4);
  EXPECT_EQ(list(F::normalize(zeros({2, 2}))), (Doubles{0, 0, 0, 0}));
  const Tensor a = ramp({2, 3}), b = ramp({2, 3}, -1, 4);
  EXPECT_EQ(list(CosineSimilarity()(a, b)), list(cosine_similarity(a, b)));
  EXPECT_EQ(list(PairwiseDistance(PairwiseDistanceOptions().p(1).keepdim(true))(a, b)),
            list(pairwise_distance(a, b, 1, 1e-6, true)));
  EXPECT_EQ(list(F::pdist(a)), list(pdist(a)));
}

TEST(UnpoolLayers, UndoMaxPooling) {
  const Tensor x = squares();
  const auto [small, places] = MaxPool2d(2)->forward_with_indices(x);
  const Tensor back = MaxUnpool2d(2)(small, places);
  EXPECT_EQ(back.sizes().vec(), x.sizes().vec());
  EXPECT_EQ(list(MaxPool2d(2)(back)), list(small));
  EXPECT_EQ(back.gt(0).sum().item<std::int64_t>(), 6);
  const auto [line, where] = MaxPool1d(2)->forward_with_indices(ramp({1, 5}));
  EXPECT_EQ(list(MaxUnpool1d(2)->forward(line, where, Sizes{5})), (Doubles{0, 1, 0, 3, 0}));
  EXPECT_EQ(list(MaxUnpool1d(2)(line, where)), (Doubles{0, 1, 0, 3}));
  EXPECT_THROW(MaxUnpool1d(2)->forward(line, where, Sizes{9}), ValueError);
  const auto [cube, in_cube] = MaxPool3d(2)->forward_with_indices(ramp({1, 1, 2, 4, 2}));
  EXPECT_EQ(list(MaxUnpool3d(2)(cube, in_cube)).back(), 15);
}

TEST(FractionalPoolLayers, DrawTheirWindowsOrTakeThem) {
  const Tensor x = ramp({2, 3, 9, 8});
  FractionalMaxPool2d by_ratio(FractionalMaxPool2dOptions(2).output_ratio(ExpandingArray<2, double>(0.5)));
  EXPECT_EQ(by_ratio(x).sizes().vec(), (Sizes{2, 3, 4, 4}));
  const Tensor samples = full({2, 3, 2}, 0.3);
  FractionalMaxPool2d fixed(
      FractionalMaxPool2dOptions({2, 3}).output_size(ExpandingArray<2>({4, 3}))._random_samples(samples));
  const auto [y, places] = fixed->forward_with_indices(x);
  EXPECT_EQ(list(y), list(fixed(x)));
  EXPECT_EQ(list(x.flatten(2).gather(2, places.flatten(2))), list(y));
  EXPECT_EQ(y.select(0, 0).select(0, 0).max().item<float>(), 71);  // the last window ends with the plane
  EXPECT_EQ(FractionalMaxPool3d(FractionalMaxPool3dOptions(2).output_size(ExpandingArray<3>(2)))(ones({1, 5, 5, 5}))
                .sizes()
                .vec(),
            (Sizes{1, 2, 2, 2}));
  EXPECT_THROW(FractionalMaxPool2d(2), ValueError);
  EXPECT_THROW(FractionalMaxPool2d(FractionalMaxPool2dOptions(2).output_ratio(ExpandingArray<2, double>(1.5))),
               ValueError);
}

TEST(EmbeddingBagLayer, BagsOfRowsOfColumnsAndOffsets) {
  EmbeddingBag bag(EmbeddingBagOptions(5, 2).mode(kSum)._weight(ramp({5, 2})));
  const Tensor rows = tensor({0, 1, 4, 4}).to(kLong);
  EXPECT_EQ(list(bag(rows.reshape({2, 2}))), (Doubles{2, 4, 16, 18}));
  EXPECT_EQ(list(bag(rows, tensor({0, 1, 1}).to(kLong))), (Doubles{0, 1, 0, 0, 18, 21}));
  EXPECT_EQ(list(bag->forward(rows, tensor({0, 2}).to(kLong), tensor({1.0F, 2.0F, 0.0F, 0.5F}))),
            (Doubles{4, 7, 4, 4.5}));
  EmbeddingBag largest(EmbeddingBagOptions(5, 2).mode(kMax)._weight(ramp({5, 2})).padding_idx(-1));
  EXPECT_EQ(list(largest(rows.reshape({2, 2}))), (Doubles{2, 3, 0, 0}));
  EXPECT_EQ(largest->options.padding_idx(), 4);
  EmbeddingBag mean(EmbeddingBagOptions(5, 2).padding_idx(1));
  EXPECT_EQ(list(mean->weight.select(0, 1)), (Doubles{0, 0}));
  mean(rows.reshape({2, 2})).sum().backward();
  EXPECT_EQ(list(mean->weight.grad()), (Doubles{1, 1, 0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_FALSE(EmbeddingBag::from_pretrained(ramp({5, 2}))->weight.requires_grad());
  EmbeddingBag bounded(EmbeddingBagOptions(5, 2).max_norm(1)._weight(ramp({5, 2})));
  bounded(rows.reshape({2, 2}));
  EXPECT_NEAR(bounded->weight.select(0, 4).norm().item<double>(), 1, 1e-5);
  EXPECT_THROW(bag(rows.reshape({2, 2}), rows), ValueError);
  EXPECT_THROW(bag(rows), ValueError);
  Sequential seq(EmbeddingBag(5, 2), Linear(2, 3));
  EXPECT_EQ(seq(rows.reshape({2, 2})).sizes().vec(), (Sizes{2, 3}));
}

TEST(MoreLosses, ForwardAsTheirFunctions) {
  const Tensor a = ramp({3, 4}, 0.3), b = ramp({3, 4}, -0.2, 2), c = ramp({3, 4}, 0.1, -1);
  const Tensor signs = tensor({1.0F, -1.0F, 1.0F}), classes = tensor({0, 3, 1}).to(kLong), weight = ramp({4}, 1, 1);
  EXPECT_EQ(list(CosineEmbeddingLoss(CosineEmbeddingLossOptions().margin(0.5).reduction(kNone))(a, b, signs)),
            list(cosine_embedding_loss(a, b, signs, 0.5, Reduction::None)));
  MultiMarginLoss margin(MultiMarginLossOptions().p(2).weight(weight).reduction(kSum));
  EXPECT_EQ(list(margin(a, classes)), list(multi_margin_loss(a, classes, 2, 1, weight, Reduction::Sum)));
  EXPECT_EQ(margin->named_buffers().keys(), std::vector<std::string>{"weight"});
  EXPECT_THROW(MultiMarginLoss(MultiMarginLossOptions().p(3)), Error);
  const Tensor listed = tensor({3, 0, -1, 1, -1, 2, 0, 1, 0, 1, 2, 3}).to(kLong).reshape({3, 4});
  EXPECT_EQ(list(MultiLabelMarginLoss(kSum)(a, listed)), list(multilabel_margin_loss(a, listed, Reduction::Sum)));
  const Tensor many = a.gt(1).to(kFloat);
  EXPECT_EQ(list(MultiLabelSoftMarginLoss(MultiLabelSoftMarginLossOptions().weight(weight))(a, many)),
            list(multilabel_soft_margin_loss(a, many, weight)));
  EXPECT_EQ(list(TripletMarginLoss(TripletMarginLossOptions().swap(true).margin(3))(a, b, c)),
            list(triplet_margin_loss(a, b, c, 3, 2, 1e-6, true)));
  EXPECT_EQ(list(TripletMarginWithDistanceLoss(TripletMarginWithDistanceLossOptions().margin(3).swap(true))(a, b, c)),
            list(triplet_margin_loss(a, b, c, 3, 2, 1e-6, true)));
  TripletMarginWithDistanceLoss own(
      TripletMarginWithDistanceLossOptions()
          .distance_function([](const Tensor& x, const Tensor& y) { return (x - y).abs().sum(1); })
          .reduction(kNone));
  expect_near(own(a, b, c), list(((a - b).abs().sum(1) - (a - c).abs().sum(1) + 1).clamp_min(0)));
  const Tensor var = ramp({3, 4}, 0.1, 0.5);
  EXPECT_EQ(list(GaussianNLLLoss(GaussianNLLLossOptions().full(true))(a, b, var)),
            list(gaussian_nll_loss(a, b, var, true)));
}

TEST(CtcLossLayer, LearnsThroughLogSoftmax) {
  manual_seed(3);
  Tensor logits = (randn({12, 2, 5}) * 0.1).requires_grad_();
  const Tensor targets = tensor({1, 2, 2, 3, 4, 0}).to(kLong).reshape({2, 3});
  const Tensor steps = full({2}, 12, kLong), lengths = tensor({3, 2}).to(kLong);
  CTCLoss loss;
  double first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    logits.mutable_grad() = Tensor();
    const Tensor value = loss(log_softmax(logits, 2), targets, steps, lengths);
    (i ? last : first) = value.item<double>();
    value.backward();
    // The gradient of logits sums to zero over the classes.
    EXPECT_LT(logits.grad().sum(2).abs().max().item<double>(), 1e-5);
    const NoGradGuard guard;
    logits.sub_(logits.grad() * 4);
  }
  EXPECT_LT(last, first / 10);
  // An alignment needs a blank between two equal labels: it does not fit.
  const Tensor short_steps = full({2}, 1, kLong);
  EXPECT_TRUE(std::isinf(loss(log_softmax(logits.detach(), 2), targets, short_steps, lengths).item<double>()));
  CTCLoss forgiving(CTCLossOptions().zero_infinity(true));
  Tensor again = logits.detach().requires_grad_();
  const Tensor zero = forgiving(log_softmax(again, 2), targets, short_steps, lengths);
  zero.backward();
  EXPECT_EQ(zero.item<double>(), 0);
  EXPECT_EQ(again.grad().abs().max().item<double>(), 0);
}

TEST(MorePadsAndDropouts, AreAsTheirFunctions) {
  const Tensor x = squares().slice(2, 0, 2).slice(3, 0, 3);
  expect_near(CircularPad2d(CircularPad2dOptions({1, 1, 0, 0}))(x), {.08, 0, .02, .08, 0, 1.28, .72, .98, 1.28, .72},
              1e-4);
  EXPECT_EQ(CircularPad1d(1)(ramp({1, 3})).size(1), 5);
  EXPECT_EQ(CircularPad3d(1)(ramp({1, 1, 2, 2, 2})).numel(), 64);
  manual_seed(1);
  Dropout1d drop(0.5);
  const Tensor y = drop(ones({8, 16, 5}));
  for (const double v : list(y.amax({2}) - y.amin({2}))) EXPECT_EQ(v, 0);  // whole channels
  for (const double v : list(y)) EXPECT_TRUE(v == 0 || v == 2) << v;
  drop->eval();
  EXPECT_EQ(list(drop(x.squeeze(0))), list(x));
  EXPECT_THROW(drop(ones({2})), Error);
}

TEST(MoreLayers, PrintAsLibtorch) {
  EXPECT_EQ(text_of(Upsample(UpsampleOptions().scale_factor(Doubles{2}))),
            "torch::nn::Upsample(scale_factor=[2], mode=kNearest)");
  EXPECT_EQ(text_of(Upsample(UpsampleOptions().size(Sizes{3, 4}).mode(kBilinear))),
            "torch::nn::Upsample(size=[3, 4], mode=kBilinear)");
  EXPECT_EQ(text_of(Upsample(UpsampleOptions().scale_factor(Doubles{1.5, 2}).mode(kBicubic).align_corners(true))),
            "torch::nn::Upsample(scale_factor=[1.5, 2], mode=kBicubic)");
  EXPECT_EQ(text_of(PixelShuffle(PixelShuffleOptions(5))), "torch::nn::PixelShuffle(upscale_factor=5)");
  EXPECT_EQ(text_of(PixelUnshuffle(PixelUnshuffleOptions(5))), "torch::nn::PixelUnshuffle(downscale_factor=5)");
  EXPECT_EQ(text_of(Fold(FoldOptions({2, 3}, {4, 5}).stride(2))),
            "torch::nn::Fold(output_size=[2, 3], kernel_size=[4, 5], dilation=[1, 1], padding=[0, 0], stride=[2, 2])");
  EXPECT_EQ(text_of(Unfold(UnfoldOptions({4, 5}).padding(2))),
            "torch::nn::Unfold(kernel_size=[4, 5], dilation=[1, 1], padding=[2, 2], stride=[1, 1])");
  EXPECT_EQ(text_of(MaxUnpool1d(3)), "torch::nn::MaxUnpool1d(kernel_size=3, stride=3, padding=0)");
  EXPECT_EQ(text_of(MaxUnpool2d(MaxUnpool2dOptions({3, 2}).stride(1))),
            "torch::nn::MaxUnpool2d(kernel_size=[3, 2], stride=[1, 1], padding=[0, 0])");
  EXPECT_EQ(text_of(MaxUnpool3d(3)),
            "torch::nn::MaxUnpool3d(kernel_size=[3, 3, 3], stride=[3, 3, 3], padding=[0, 0, 0])");
  EXPECT_EQ(text_of(FractionalMaxPool2d(FractionalMaxPool2dOptions(3).output_size(ExpandingArray<2>(2)))),
            "torch::nn::FractionalMaxPool2d()");
  EXPECT_EQ(text_of(LocalResponseNorm(LocalResponseNormOptions(4).alpha(0.0002).beta(0.85).k(2.))),
            "torch::nn::LocalResponseNorm(4, alpha=0.0002, beta=0.85, k=2)");
  EXPECT_EQ(text_of(CrossMapLRN2d(4)), "torch::nn::CrossMapLRN2d(4, alpha=0.0001, beta=0.75, k=1)");
  EXPECT_EQ(text_of(CosineSimilarity()), "torch::nn::CosineSimilarity(dim=1, eps=1e-08)");
  EXPECT_EQ(text_of(PairwiseDistance(PairwiseDistanceOptions().p(3).eps(0.5).keepdim(true))),
            "torch::nn::PairwiseDistance(p=3, eps=0.5, keepdim=true)");
  EXPECT_EQ(text_of(EmbeddingBag(10, 2)), "torch::nn::EmbeddingBag(num_embeddings=10, embedding_dim=2)");
  EXPECT_EQ(text_of(EmbeddingBag(EmbeddingBagOptions(10, 2)
                                     .max_norm(2)
                                     .norm_type(2.5)
                                     .scale_grad_by_freq(true)
                                     .sparse(true)
                                     .mode(kSum)
                                     .include_last_offset(true)
                                     .padding_idx(-1))),
            "torch::nn::EmbeddingBag(num_embeddings=10, embedding_dim=2, max_norm=2, norm_type=2.5, "
            "scale_grad_by_freq=true, sparse=true, mode=kSum, include_last_offset=true, padding_idx=9)");
  EXPECT_EQ(text_of(CosineEmbeddingLoss()), "torch::nn::CosineEmbeddingLoss(margin=0)");
  EXPECT_EQ(text_of(MultiMarginLoss()),
            "torch::nn::MultiMarginLoss(p=1, margin=1, weight=[ Tensor (undefined) ], reduction=kMean)");
  EXPECT_EQ(text_of(MultiLabelMarginLoss()), "torch::nn::MultiLabelMarginLoss()");
  EXPECT_EQ(text_of(MultiLabelSoftMarginLoss()), "torch::nn::MultiLabelSoftMarginLoss()");
  EXPECT_EQ(text_of(TripletMarginLoss()), "torch::nn::TripletMarginLoss(margin=1, p=2, eps=1e-06, swap=false)");
  EXPECT_EQ(text_of(TripletMarginWithDistanceLoss()), "torch::nn::TripletMarginWithDistanceLoss(margin=1, swap=false)");
  EXPECT_EQ(text_of(CTCLoss()), "torch::nn::CTCLoss()");
  EXPECT_EQ(text_of(Dropout1d()), "torch::nn::Dropout1d(p=0.5, inplace=false)");
  EXPECT_EQ(text_of(CircularPad1d(2)), "torch::nn::CircularPad1d(padding=[2, 2])");
}

TEST(MoreLayers, CloneKeepsOptionsAndTensors) {
  EmbeddingBag bag(EmbeddingBagOptions(4, 2).mode(kMax));
  const auto copy = std::dynamic_pointer_cast<EmbeddingBagImpl>(bag->clone());
  ASSERT_TRUE(copy);
  EXPECT_EQ(list(copy->weight), list(bag->weight));
  EXPECT_NE(copy->weight.data_ptr(), bag->weight.data_ptr());
  EXPECT_TRUE(copy->options.mode() == kMax);
  EXPECT_EQ(bag->named_parameters().keys(), std::vector<std::string>{"weight"});
  Upsample up(UpsampleOptions().scale_factor(Doubles{2}));
  const auto other = std::dynamic_pointer_cast<UpsampleImpl>(up->clone());
  ASSERT_TRUE(other);
  EXPECT_EQ(list(other->forward(squares())), list(up(squares())));
  MultiMarginLoss loss(MultiMarginLossOptions().weight(ones({3})));
  const auto weighted = std::dynamic_pointer_cast<MultiMarginLossImpl>(loss->clone());
  ASSERT_TRUE(weighted);
  EXPECT_EQ(list(weighted->weight), (Doubles{1, 1, 1}));
}

}  // namespace
}  // namespace athanor::nn
