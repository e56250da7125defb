// Expected values were computed with PyTorch.
#include "helpers.h"

namespace athanor::nn::layers_test {
namespace {

namespace F = functional;
using test::error_of;
using test::expect_near;
using test::list;
using test::ramp;

void set(const Tensor& target, const Tensor& value) {
  const NoGradGuard guard;
  target.copy_(value);
}

TEST(LinearLayer, IsAffineAndStartsAsPyTorch) {
  Linear fc(100, 50);
  EXPECT_EQ(fc->weight.sizes().vec(), (std::vector<std::int64_t>{50, 100}));
  EXPECT_TRUE(fc->weight.requires_grad());
  const double bound = 1 / std::sqrt(100.0);
  EXPECT_LE(fc->weight.abs().max().item<double>(), bound);
  EXPECT_GT(fc->weight.abs().max().item<double>(), 0.95 * bound);
  EXPECT_LE(fc->bias.abs().max().item<double>(), bound);
  set(fc->weight, ramp({50, 100}, 0.001));
  set(fc->bias, ones({50}));
  const Tensor x = ramp({3, 100}, 0.01);
  const Tensor y = fc(x);
  EXPECT_NEAR(y.select(0, 1).select(0, 2).item<double>(),
              (x.select(0, 1) * fc->weight.select(0, 2)).sum().item<double>() + 1, 1e-4);
  y.sum().backward();
  EXPECT_EQ(fc->weight.grad().sizes(), fc->weight.sizes());
  expect_near(fc->bias.grad(), std::vector<double>(50, 3));
  EXPECT_NO_THROW(Linear(0, 3));
}

TEST(BilinearLayer, AgreesWithPyTorch) {
  Bilinear layer(2, 3, 2);
  set(layer->weight, ramp({2, 2, 3}, 0.1, -0.5));
  set(layer->bias, tensor({1.0F, -1.0F}));
  expect_near(layer(ramp({2, 2}, 0.5), ramp({2, 3}, 0.25, -1)), {1.1375, -1.5375, 1.125, -0.875});
  EXPECT_THROW(layer(ones({2, 2}), ones({3, 3})), Error);
}

TEST(ShapeLayers, FlattenAndUnflattenUndoEachOther) {
  const Tensor x = ramp({2, 3, 4});
  const Tensor flat = Flatten()(x);
  EXPECT_EQ(flat.sizes().vec(), (std::vector<std::int64_t>{2, 12}));
  EXPECT_EQ(list(Unflatten(1, std::vector<std::int64_t>{3, -1})(flat)), list(x));
  EXPECT_THROW(Unflatten(1, std::vector<std::int64_t>{5, 2})(flat), Error);
  EXPECT_TRUE(Identity()(x).is_same(x));
  EXPECT_EQ(Flatten(FlattenOptions().start_dim(0).end_dim(1))(x).sizes().vec(), (std::vector<std::int64_t>{6, 4}));
}

TEST(ConvLayer, EveryPaddingMode) {
  const std::pair<detail::conv_padding_mode_t, std::vector<double>> cases[] = {
      {kZeros, {0.95, 1.85, 2.6, 1.65, 3.6, 5.25, 5.7, 3.15, 0.65, 0.35, 0.2, -0.65}},
      {kReflect, {0.6, 1.05, 1.5, 1.35, 4.8, 5.25, 5.7, 5.55, 1.8, 2.25, 2.7, 2.55}},
      {kReplicate, {1.8, 2.25, 2.7, 2.85, 4.8, 5.25, 5.7, 5.85, 4.2, 4.65, 5.1, 5.25}},
      {kCircular, {-0.6, -0.15, 0.3, -0.45, 4.8, 5.25, 5.7, 4.95, -0.6, -0.15, 0.3, -0.45}}};
  for (const auto& [mode, expected] : cases) {
    Conv2d conv(Conv2dOptions(1, 1, 3).padding(1).bias(false).padding_mode(mode));
    set(conv->weight, ramp({1, 1, 3, 3}, 0.1, -0.3));
    expect_near(conv(ramp({1, 1, 3, 4}, 0.5, -1)), expected, 1e-5);
  }
}

TEST(ConvLayer, SameKeepsTheSize) {
  Conv2d conv(Conv2dOptions(1, 1, {2, 3}).padding(kSame).bias(false));
  set(conv->weight, ramp({1, 1, 2, 3}, 0.1, -0.3));
  expect_near(conv(ramp({1, 1, 3, 4}, 0.5, -1)),
              {0.65, 0.95, 0.8, 0.15, 0.65, 0.35, 0.2, -0.65, -0.95, -2, -2.3, -2.1});
  Conv1d line(Conv1dOptions(1, 1, 4).padding(kSame).dilation(2).padding_mode(kCircular).bias(false));
  set(line->weight, ramp({1, 1, 4}, 0.1, -0.3));
  expect_near(line(ramp({1, 1, 9}, 0.5, -1)), {-1.15, -0.55, -0.85, 0.2, -0.1, -0.4, -0.7, -1, -0.85});
  EXPECT_THROW(Conv2d(Conv2dOptions(1, 1, 3).padding(kSame).stride(2)), Error);
  EXPECT_EQ(Conv3d(Conv3dOptions(2, 4, 3).padding(kValid).groups(2))(ones({1, 2, 5, 5, 5})).sizes().vec(),
            (std::vector<std::int64_t>{1, 4, 3, 3, 3}));
}

TEST(ConvLayer, ShapesFirstValuesAndErrors) {
  Conv2d conv(Conv2dOptions(4, 6, {3, 2}).groups(2).stride({1, 2}).dilation(2));
  EXPECT_EQ(conv->weight.sizes().vec(), (std::vector<std::int64_t>{6, 2, 3, 2}));
  EXPECT_LE(conv->weight.abs().max().item<double>(), 1 / std::sqrt(12.0));
  EXPECT_EQ(conv(ones({2, 4, 9, 9})).sizes().vec(), (std::vector<std::int64_t>{2, 6, 5, 4}));
  EXPECT_EQ(error_of([] { Conv2d(Conv2dOptions(3, 6, 3).groups(2)); }),
            "in_channels must be divisible by groups, got 3 and 2");
  EXPECT_THROW(Conv2d(Conv2dOptions(4, 5, 3).groups(2)), Error);
  EXPECT_THROW(Conv2d(Conv2dOptions(0, 5, 3)), Error);
  EXPECT_EQ(error_of([] { ExpandingArray<2>({1, 2, 3}); }), "Expected 2 values, but instead got 3");
}

TEST(ConvTransposeLayer, TakesAnOutputSize) {
  ConvTranspose2d conv(ConvTranspose2dOptions(1, 1, 3).stride(2).bias(false));
  set(conv->weight, ramp({1, 1, 3, 3}, 0.1, -0.3));
  const std::int64_t size[] = {6, 5};
  const Tensor y = conv->forward(ramp({1, 1, 2, 2}), IntArrayRef(size));
  expect_near(y, {0, 0,   -0.3, -0.2, -0.1, 0,   0,   0,   0.1, 0.2, -0.6, -0.4, -0.8, -0.2, 0.2,
                  0, 0.2, 0.4,  0.3,  0.6,  0.6, 0.8, 1.9, 1.2, 1.5, 0,    0,    0,    0,    0});
  const std::int64_t wrong[] = {9, 5};
  EXPECT_THROW(conv->forward(ramp({1, 1, 2, 2}), IntArrayRef(wrong)), ValueError);
  EXPECT_EQ(ConvTranspose1d(2, 4, 3)(ones({1, 2, 5})).sizes().vec(), (std::vector<std::int64_t>{1, 4, 7}));
  Sequential seq(ConvTranspose1d(2, 4, 3));
  EXPECT_EQ(seq(ones({1, 2, 5})).sizes().vec(), (std::vector<std::int64_t>{1, 4, 7}));
}

TEST(PoolLayers, StrideDefaultsToTheKernel) {
  const Tensor x = ramp({1, 1, 4, 6});
  EXPECT_EQ(list(MaxPool2d(2)(x)), (std::vector<double>{7, 9, 11, 19, 21, 23}));
  EXPECT_EQ(list(AvgPool2d(2)(x)), (std::vector<double>{3.5, 5.5, 7.5, 15.5, 17.5, 19.5}));
  EXPECT_EQ(MaxPool2d(MaxPool2dOptions(2).stride(1))(x).sizes().vec(), (std::vector<std::int64_t>{1, 1, 3, 5}));
  const auto [y, places] = MaxPool2d(2)->forward_with_indices(x);
  EXPECT_EQ(list(places), list(y));
  EXPECT_EQ(AdaptiveAvgPool2d(AdaptiveAvgPool2dOptions({2, std::nullopt}))(x).sizes().vec(),
            (std::vector<std::int64_t>{1, 1, 2, 6}));
  EXPECT_EQ(list(AdaptiveMaxPool1d(2)(ramp({1, 5}))), (std::vector<double>{2, 4}));
  expect_near(LPPool1d(2, 2)(ramp({1, 1, 6}, 1, -2)), {2.236068, 1, 3.605551});
}

TEST(BatchNormLayer, TrainsAndEvaluates) {
  BatchNorm2d bn(2);
  const Tensor x = ramp({2, 2, 1, 2}, 0.7, -1);
  expect_near(bn(x), {-1.212675, -0.7276051, -1.212675, -0.7276051, 0.7276052, 1.212675, 0.7276052, 1.212675});
  expect_near(bn->running_mean, {0.075, 0.215});
  expect_near(bn->running_var, {1.177667, 1.177667});
  EXPECT_EQ(bn->num_batches_tracked.item<std::int64_t>(), 1);
  bn->eval();
  expect_near(bn(x), {-0.9905934, -0.3455558, 0.1704742, 0.8155117, 1.589557, 2.234594, 2.750624, 3.395662});
  expect_near(bn->running_mean, {0.075, 0.215});
  EXPECT_EQ(bn->state_dict().keys(),
            (std::vector<std::string>{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}));
}

TEST(BatchNormLayer, CumulativeMeanAndNoTracking) {
  BatchNorm1d bn(BatchNorm1dOptions(2).momentum(std::nullopt));
  bn(ramp({3, 2}));
  bn(ramp({3, 2}, 2, 1));
  expect_near(bn->running_mean, {3.5, 5});
  expect_near(bn->running_var, {10, 10});
  BatchNorm1d plain(BatchNorm1dOptions(2).track_running_stats(false).affine(false));
  plain->eval();
  expect_near(plain(ramp({3, 2})), {-1.224743, -1.224743, 0, 0, 1.224743, 1.224742});
  EXPECT_EQ(plain->state_dict().size(), 0U);
}

TEST(BatchNormLayer, BadInput) {
  EXPECT_EQ(error_of([] {
              BatchNorm2d(2)(ones({2, 2, 3}));
            }),
            "BatchNorm2d: expected 4D input (got 3D input), its shape is [2, 2, 3]");
  EXPECT_EQ(error_of([] {
              BatchNorm1d(2)(ones({2, 2, 3, 3}));
            }),
            "BatchNorm1d: expected 2D or 3D input (got 4D input), its shape is [2, 2, 3, 3]");
  EXPECT_NE(error_of([] {
              BatchNorm1d(2)(ones({1, 2}));
            }).find("Expected more than 1 value per channel when training"),
            std::string::npos);
}

TEST(NormLayers, AgreeWithPyTorch) {
  expect_near(LayerNorm(std::vector<std::int64_t>{2, 3})(ramp({2, 2, 3}, 0.3).pow(2)),
              {-1.030417, -0.9180081, -0.5807806, -0.01873484, 0.7681292, 1.779812, -1.344085, -0.8979633, -0.3832074,
               0.200183, 0.8522072, 1.572866},
              1e-4);
  expect_near(GroupNorm(2, 4)(ramp({1, 4, 3}, 0.3).pow(2)),
              {-1.030417, -0.9180081, -0.5807806, -0.01873489, 0.7681291, 1.779811, -1.344085, -0.8979632, -0.3832073,
               0.2001831, 0.8522073, 1.572866},
              1e-4);
  EXPECT_THROW(GroupNorm(3, 4), ValueError);
  EXPECT_THROW(LayerNorm(std::vector<std::int64_t>{4})(ones({2, 3})), Error);
  expect_near(F::normalize(ramp({2, 3}, 1, 1)), {0.2672612, 0.5345225, 0.8017837, 0.4558423, 0.5698029, 0.6837634});
}

TEST(EmbeddingLayer, PaddingAndMaxNorm) {
  Embedding table(EmbeddingOptions(4, 2).padding_idx(1).max_norm(1.0));
  EXPECT_EQ(list(table->weight.select(0, 1)), (std::vector<double>{0, 0}));
  set(table->weight, ramp({4, 2}));
  const Tensor where = tensor({{0, 2}, {3, 1}}, kLong);
  const Tensor y = table(where);
  expect_near(y, {0, 1, 0.624695, 0.7808688, 0.6507914, 0.7592566, 0.5547002, 0.8320503});
  expect_near(table->weight, {0, 1, 0.5547002, 0.8320503, 0.624695, 0.7808688, 0.6507914, 0.7592566});
  y.sum().backward();
  EXPECT_EQ(list(table->weight.grad()), (std::vector<double>{1, 1, 0, 0, 1, 1, 1, 1}));
  EXPECT_THROW(table(tensor({4}, kLong)), IndexError);
  EXPECT_THROW(Embedding(EmbeddingOptions(4, 2).padding_idx(4)), Error);
}

TEST(EmbeddingLayer, FromPretrainedIsFrozen) {
  Embedding table = Embedding::from_pretrained(ramp({3, 2}));
  EXPECT_FALSE(table->weight.requires_grad());
  EXPECT_EQ(list(table(tensor({2, 0}, kLong))), (std::vector<double>{4, 5, 0, 1}));
  EXPECT_TRUE(
      Embedding::from_pretrained(ramp({3, 2}), EmbeddingFromPretrainedOptions().freeze(false))->weight.requires_grad());
}

TEST(DropoutLayers, DropInTrainingOnly) {
  manual_seed(3);
  const Tensor x = ones({40, 50});
  Dropout drop(0.25);
  const auto y = list(drop(x));
  const double kept = static_cast<double>(std::count_if(y.begin(), y.end(), [](double v) { return v != 0; }));
  EXPECT_NEAR(kept / 2000, 0.75, 0.05);
  for (const double v : y) EXPECT_TRUE(v == 0 || std::abs(v - 1 / 0.75) < 1e-6);
  drop->eval();
  EXPECT_EQ(list(drop(x)), list(x));
  const Tensor channels = Dropout2d(0.5)(ones({8, 16, 3, 3})).flatten(2);
  const auto sums = list(channels.sum(IntArrayRef{2}));
  for (const double s : sums) EXPECT_TRUE(s == 0 || std::abs(s - 18) < 1e-5) << s;
  Tensor in_place = ones({100});
  F::dropout(in_place, F::DropoutFuncOptions().p(0.5).inplace(true));
  EXPECT_NE(list(in_place), std::vector<double>(100, 1));
  EXPECT_EQ(list(Dropout(1.0)(x)), std::vector<double>(2000, 0));
  for (const double p : {-0.1, 1.1}) EXPECT_THROW(Dropout{p}, Error);
  // Alpha dropout keeps mean and variance.
  const Tensor noise = AlphaDropout(0.2)(randn({20000}));
  EXPECT_NEAR(noise.mean().item<double>(), 0, 0.05);
  EXPECT_NEAR(noise.square().mean().item<double>(), 1, 0.1);
}

TEST(Activations, AgreeWithPyTorch) {
  const Tensor z = ramp({7}, 1, -3);
  expect_near(ReLU()(z), {0, 0, 0, 0, 1, 2, 3});
  expect_near(ReLU6()(z * 3), {0, 0, 0, 0, 3, 6, 6});
  expect_near(LeakyReLU(0.1)(z), {-0.3, -0.2, -0.1, 0, 1, 2, 3});
  expect_near(ELU(0.5)(z), {-0.4751065, -0.4323324, -0.3160603, 0, 1, 2, 3});
  expect_near(SELU()(z), {-1.670569, -1.520167, -1.111331, 0, 1.050701, 2.101402, 3.152103});
  expect_near(CELU(2.0)(z), {-1.55374, -1.264241, -0.7869387, 0, 1, 2, 3});
  expect_near(GELU()(z), {-0.004050225, -0.04550028, -0.1586553, 0, 0.8413447, 1.9545, 2.99595});
  expect_near(GELU(GELUOptions().approximate("tanh"))(z),
              {-0.003637433, -0.04540229, -0.158808, 0, 0.841192, 1.954598, 2.996363});
  expect_near(SiLU()(z), {-0.1422776, -0.2384058, -0.2689414, 0, 0.7310586, 1.761594, 2.857723});
  expect_near(Mish()(z), {-0.1456475, -0.2525015, -0.3034014, 0, 0.8650984, 1.943959, 2.986535});
  expect_near(Sigmoid()(z), {0.04742587, 0.1192029, 0.2689414, 0.5, 0.7310586, 0.880797, 0.9525741});
  expect_near(Tanh()(z), {-0.9950548, -0.9640276, -0.7615942, 0, 0.7615942, 0.9640276, 0.9950548});
  expect_near(Softplus(SoftplusOptions().beta(2).threshold(3))(z),
              {0.001237843, 0.009074965, 0.063464, 0.3465736, 1.063464, 2, 3});
  expect_near(Softsign()(z), {-0.75, -0.6666667, -0.5, 0, 0.5, 0.6666667, 0.75});
  expect_near(Hardtanh(HardtanhOptions().min_val(-1.5).max_val(2))(z), {-1.5, -1.5, -1, 0, 1, 2, 2});
  EXPECT_THROW(Hardtanh(HardtanhOptions().min_val(0.5).max_val(0.5)), ValueError);
  expect_near(Hardswish()(z), {0, -0.3333333, -0.3333333, 0, 0.6666667, 1.666667, 3});
  expect_near(Hardsigmoid()(z), {0, 0.1666667, 0.3333333, 0.5, 0.6666667, 0.8333333, 1});
  expect_near(Threshold(0.5, 9.)(z), {9, 9, 9, 9, 1, 2, 3});
  expect_near(LogSigmoid()(z), {-3.048587, -2.126928, -1.313262, -0.6931472, -0.3132617, -0.126928, -0.04858735});
  expect_near(Softshrink(1.)(z), {-2, -1, 0, 0, 0, 1, 2});
  expect_near(Hardshrink(1.)(z), {-3, -2, 0, 0, 0, 2, 3});
  expect_near(Tanhshrink()(z), {-2.004945, -1.035972, -0.2384058, 0, 0.2384058, 1.035972, 2.004945});
  expect_near(Softmax(0)(z), {0.0015683, 0.004263083, 0.01158826, 0.03150015, 0.0856263, 0.2327564, 0.6326975});
  expect_near(LogSoftmax(0)(z), {-6.457763, -5.457763, -4.457763, -3.457763, -2.457763, -1.457763, -0.4577628});
  expect_near(Softmin(0)(z), {0.6326975, 0.2327564, 0.0856263, 0.03150015, 0.01158826, 0.004263083, 0.0015683});
  RReLU rrelu;
  rrelu->eval();
  expect_near(rrelu(z), {-0.6875, -0.4583333, -0.2291667, 0, 1, 2, 3});
  rrelu->train();
  for (const double v : list(rrelu(full({50}, -1.0)))) EXPECT_TRUE(v <= -0.125 && v >= -0.3334) << v;
  PReLU prelu(2);
  set(prelu->weight, tensor({0.1F, 0.2F}));
  expect_near(prelu(ramp({1, 2, 3}, 1, -3)), {-0.3, -0.2, -0.1, 0, 1, 2});
  expect_near(GLU(0)(ramp({6}, 1, -3)), {-1.5, -1.462117, -0.880797});
}

TEST(Activations, InPlaceFormsChangeTheirInput) {
  Tensor x = ramp({3}, 1, -1);
  const Tensor y = ReLU(true)(x);
  EXPECT_EQ(list(x), (std::vector<double>{0, 0, 1}));
  EXPECT_TRUE(y.is_alias_of(x));
  x = ramp({3}, 1, -1);
  LeakyReLU(LeakyReLUOptions(0.5).inplace(true))(x);
  EXPECT_EQ(list(x), (std::vector<double>{-0.5, 0, 1}));
}

TEST(GumbelSoftmax, IsADistributionOrOneHot) {
  const Tensor logits = ramp({4, 3}, 0.3).requires_grad_();
  const Tensor soft = F::gumbel_softmax(logits, F::GumbelSoftmaxFuncOptions().dim(1));
  expect_near(soft.sum(IntArrayRef{1}), {1, 1, 1, 1});
  const Tensor hard = F::gumbel_softmax(logits, F::GumbelSoftmaxFuncOptions().hard(true).dim(1));
  expect_near(std::get<0>(hard.max(1)), {1, 1, 1, 1});
  hard.select(1, 0).sum().backward();
  EXPECT_TRUE(logits.grad().defined());
}

TEST(PaddingLayers, PadAsTheirNamesSay) {
  const Tensor x = ramp({1, 1, 3}, 1, 1);
  EXPECT_EQ(list(ReflectionPad1d(ReflectionPad1dOptions({2, 1}))(x)), (std::vector<double>{3, 2, 1, 2, 3, 2}));
  EXPECT_EQ(list(ReplicationPad1d(1)(x)), (std::vector<double>{1, 1, 2, 3, 3}));
  EXPECT_EQ(list(ZeroPad1d(1)(x)), (std::vector<double>{0, 1, 2, 3, 0}));
  EXPECT_EQ(list(ConstantPad1d(1, 5.0)(x)), (std::vector<double>{5, 1, 2, 3, 5}));
  EXPECT_EQ(ZeroPad2d(ZeroPad2dOptions({1, 2, 3, 4}))(ones({1, 1, 2, 2})).sizes().vec(),
            (std::vector<std::int64_t>{1, 1, 9, 5}));
}

TEST(LossLayers, ReduceAsAsked) {
  const Tensor a = tensor({0.5F, -2.0F, 3.0F}), b = tensor({1.0F, 1.0F, 0.0F});
  expect_near(MSELoss()(a, b), {6.083333});
  expect_near(MSELoss(MSELossOptions(kSum))(a, b), {18.25});
  expect_near(MSELoss(MSELossOptions().reduction(kNone))(a, b), {0.25, 9, 9});
  expect_near(L1Loss(kSum)(a, b), {6.5});
  expect_near(SmoothL1Loss(SmoothL1LossOptions().beta(4.0))(a, b), {0.7604167});
  expect_near(HuberLoss(HuberLossOptions().delta(2.0))(a, b), {2.708333});
  expect_near(BCEWithLogitsLoss(BCEWithLogitsLossOptions().pos_weight(tensor({2.0F, 1.0F, 0.5F})))(a, b), {2.0412233});
  expect_near(BCELoss()(a.sigmoid(), b), {1.883197});
  const Tensor x = tensor({{0.5F, -1.0F, 2.0F}, {1.5F, 0.25F, -0.75F}}), t = tensor({2, 0}, kLong);
  const Tensor w = tensor({0.2F, 0.3F, 0.5F});
  expect_near(CrossEntropyLoss()(x, t), {0.285992});
  expect_near(CrossEntropyLoss(CrossEntropyLossOptions().weight(w).label_smoothing(0.1))(x, t), {0.3959675});
  expect_near(NLLLoss(NLLLossOptions().weight(w).ignore_index(0))(x.log_softmax(1), t), {0.2413113});
  expect_near(KLDivLoss(kBatchMean)(x.log_softmax(1), full({2, 3}, 1.0 / 3)), {0.520713});
  expect_near(MarginRankingLoss(MarginRankingLossOptions().margin(0.5))(a, b, tensor({1.0F, -1.0F, 1.0F})),
              {0.3333333});
  CrossEntropyLoss weighted(CrossEntropyLossOptions().weight(w));
  weighted->to(kDouble);
  EXPECT_EQ(weighted(x.to(kDouble), t).dtype(), kDouble);
}

TEST(Functional, SharesItsNamesWithLibtorch) {
  const Tensor x = ones({1, 1, 4, 4});
  EXPECT_EQ(F::max_pool2d(x, F::MaxPool2dFuncOptions(2)).sizes().vec(), (std::vector<std::int64_t>{1, 1, 2, 2}));
  EXPECT_EQ(F::conv2d(x, ones({1, 1, 3, 3}), F::Conv2dFuncOptions().padding(1)).sizes().vec(),
            (std::vector<std::int64_t>{1, 1, 4, 4}));
  EXPECT_EQ(F::pad(x, F::PadFuncOptions({1, 1}).mode(kReflect)).sizes().vec(), (std::vector<std::int64_t>{1, 1, 4, 6}));
  EXPECT_EQ(F::softmax(x, 1).sum().item<float>(), 16);
  EXPECT_EQ(F::relu(-x).sum().item<float>(), 0);
  EXPECT_EQ(F::linear(ones({2, 3}), ones({4, 3})).sum().item<float>(), 24);
  EXPECT_EQ(F::one_hot(tensor({2, 0}, kLong)).sizes().vec(), (std::vector<std::int64_t>{2, 3}));
}

}  // namespace
}  // namespace athanor::nn::layers_test
