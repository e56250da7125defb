// Expected values were computed with PyTorch in double precision.
#include "helpers.h"

namespace athanor::nn {
namespace {

namespace F = functional;
using test::error_of;
using test::expect_near;
using test::text_of;

Tensor waves() {
  std::vector<double> values;
  for (int i = 0; i < 24; ++i) values.push_back(2 * std::sin(-2 + 5.0 * i / 23));
  return tensor(values, kDouble).reshape({2, 3, 4});
}

void set(const Tensor& target, const Tensor& value) {
  const NoGradGuard guard;
  target.copy_(value);
}

TEST(InstanceNormLayer, AgreesWithPyTorch) {
  InstanceNorm1d layer(InstanceNorm1dOptions(3).affine(true).track_running_stats(true).momentum(0.3));
  layer->to(kDouble);
  set(layer->weight, tensor({1.0, 2.0, 0.5}, kDouble));
  set(layer->bias, tensor({0.0, 1.0, -1.0}, kDouble));
  Tensor x = waves();
  x.requires_grad_();
  const Tensor y = layer(x);
  expect_near(
      y, {1.65854416,  -0.35699347, -1.01551853,  -0.28603216,  -1.46295151,  -0.104723821, 1.70035655,  3.86731878,
          -1.67291145, -1.22360287, -0.770007669, -0.333478008, -1.45915147,  -0.318308021, 0.581005101, 1.19645439,
          2.71632192,  2.59919339,  0.921694444,  -2.23720975,  -0.355764845, -0.748799867, -1.20184913, -1.69358616});
  (y * test::ramp({2, 3, 4}).to(kDouble)).sum().backward();
  expect_near(x.grad(), {-2.27104899, -11.6430023,  -4.77869967,   18.6927509,      -0.781493231,  0.685898251,
                         0.662842094, -0.567247114, 0.00481336228, -3.73586588e-05, -0.0149285113, 0.0101525077,
                         0.408672246, -0.513699141, -0.502109979,  0.607136873,     -10.2391398,   5.45362588,
                         7.67595939,  -2.89044545,  -0.0716512253, 0.0713433318,    0.0575701655,  -0.057262272},
              1e-4);
  expect_near(layer->weight.grad(), {1.18693835, 0.314449317, 0.00538232805});
  expect_near(layer->running_mean, {-0.0553934894, 0.0735224681, 0.150260824});
  expect_near(layer->running_var, {0.717344856, 0.725102658, 0.782105811});
  layer->eval();
  expect_near(layer(x), {-2.08178029, -2.24318916, -2.29592535,  -2.23750641,  -3.42193602,  -2.89005163,
                         -2.18317893, -1.33459265, -1.3765958,   -1.13410061,  -0.8892919,   -0.653693587,
                         1.41562511,  1.80167756,  2.10599805,   2.31426125,   5.50461759,   5.48814842,
                         5.25227926,  4.80811321,  -0.278733283, -0.468710701, -0.687696603, -0.92538263});
}

TEST(InstanceNormLayer, EveryImageIsNormalizedByItself) {
  const Tensor x = randn({3, 2, 4, 5}), volume = randn({2, 2, 3, 2, 2});
  const auto check = [](const Tensor& in, const Tensor& out) {
    const Tensor flat = out.flatten(2);
    EXPECT_TRUE(allclose(flat.mean(2), zeros({in.size(0), in.size(1)}), 1e-5, 1e-5));
    EXPECT_TRUE(allclose(flat.var(2, false), ones({in.size(0), in.size(1)}), 1e-3, 1e-3));
  };
  check(x, InstanceNorm2d(2)(x));
  check(volume, InstanceNorm3d(2)(volume));
  // Without a batch, and in evaluation, where nothing is tracked.
  InstanceNorm2d layer(2);
  layer->eval();
  EXPECT_TRUE(allclose(layer(x[1]), layer(x)[1]));
  EXPECT_TRUE(allclose(F::instance_norm(x.transpose(2, 3)), layer(x.transpose(2, 3).contiguous())));
}

TEST(InstanceNormLayer, MistakesAreNamed) {
  EXPECT_NE(error_of([] { InstanceNorm2d(2)(ones({2, 2})); }).find("3D or 4D"), std::string::npos);
  EXPECT_NE(error_of([] { InstanceNorm1d(2)(ones({2, 2, 1})); }).find("more than 1 spatial"), std::string::npos);
  EXPECT_NE(error_of([] {
              InstanceNorm1d(InstanceNorm1dOptions(3).affine(true))(ones({2, 2, 4}));
            }).find("(3)"),
            std::string::npos);
  EXPECT_THROW(F::instance_norm(ones({2, 2, 4}), F::InstanceNormFuncOptions().use_input_stats(false)), Error);
  EXPECT_EQ(text_of(InstanceNorm2d(4)),
            "torch::nn::InstanceNorm2d(4, eps=1e-05, momentum=0.1, affine=false, track_running_stats=false)");
}

TEST(RmsNormLayer, AgreesWithPyTorch) {
  RMSNorm layer(RMSNormOptions({4}).eps(0.01));
  layer->to(kDouble);
  set(layer->weight, tensor({1.0, 2.0, 3.0, 4.0}, kDouble));
  expect_near(layer(waves()), {-0.939908719, -2.02112784, -3.10094606, -4.03230541,  -1.25532286, -2.19638508,
                               -2.66810049,  -2.55470328, -1.02389817, -0.345092668, 2.0607834,   6.05626431,
                               0.71878065,   1.8485853,   3.25888584,  4.78865025,   1.0508256,   2.09425111,
                               2.98240202,   3.57738174,  1.45637258,  2.22638685,   2.15283824,  1.15300707});
  EXPECT_TRUE(
      allclose(F::rms_norm(waves(), F::RMSNormFuncOptions({4}).weight(layer->weight).eps(0.01)), layer(waves())));
  EXPECT_FALSE(RMSNorm(RMSNormOptions({4}).elementwise_affine(false))->weight.defined());
  EXPECT_EQ(text_of(RMSNorm(std::vector<std::int64_t>{4})),
            "torch::nn::RMSNorm([4], eps=None, elementwise_affine=true)");
}

TEST(LinearFunction, TakesAWeightOfOneDimension) {
  const Tensor x = test::ramp({2, 3, 4}, 0.5), w = test::ramp({4}, 1, -1);
  EXPECT_TRUE(allclose(F::linear(x, w), x.matmul(w)));
  EXPECT_TRUE(allclose(F::linear(x, w, tensor(2.0F)), x.matmul(w) + 2));
  EXPECT_THROW(F::linear(x, ones({5})), Error);
}

TEST(DropoutFunction, KeepsWhatIsNotANumber) {
  // As PyTorch's product with the mask: 0 times NaN or infinity is NaN.
  const Tensor x = full({1000}, std::numeric_limits<double>::quiet_NaN(), kDouble);
  EXPECT_TRUE(isnan(F::dropout(x)).all().item<bool>());
  const Tensor y = F::dropout(full({1000}, std::numeric_limits<float>::infinity()));
  EXPECT_EQ(isnan(y).sum().item<std::int64_t>() + isinf(y).sum().item<std::int64_t>(), 1000);
  EXPECT_GT(isnan(y).sum().item<std::int64_t>(), 400);
}

}  // namespace
}  // namespace athanor::nn
