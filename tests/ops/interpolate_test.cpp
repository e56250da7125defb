#include <limits>

#include "athanor/device/cpu/pointwise_tables.h"
#include "numeric.h"

namespace athanor::interpolate_test {

using test::list;

/// The values that PyTorch 2 gives for these bytes.
TEST(InterpolateBytes, AreRoundedAsPyTorchRoundsThem) {
  const Tensor x = arange(35, kLong).mul(37).add(11).remainder(256).to(kByte).view({1, 1, 5, 7});
  const auto row = [](const Tensor& t, std::int64_t i) { return list(t[0][0][i]); };
  using Row = std::vector<double>;
  const Tensor linear = upsample_bilinear2d(x, {9, 4}, false);
  EXPECT_EQ(linear.dtype(), kByte);
  EXPECT_EQ(row(linear, 0), (Row{25, 90, 154, 219}));
  EXPECT_EQ(row(linear, 6), (Row{34, 99, 163, 228}));
  EXPECT_EQ(row(upsample_bicubic2d(x, {9, 4}, false), 5), (Row{30, 99, 161, 230}));
  EXPECT_EQ(row(upsample_bicubic2d(x, {9, 4}, true), 3), (Row{16, 90, 164, 238}));
  EXPECT_EQ(row(upsample_bilinear2d(x, {9, 4}, true), 6), (Row{20, 94, 168, 242}));
  EXPECT_EQ(row(_upsample_bilinear2d_aa(x, {3, 4}, false), 1), (Row{36, 94, 162, 220}));
  EXPECT_EQ(row(_upsample_bicubic2d_aa(x, {3, 4}, false), 2), (Row{37, 99, 167, 229}));
}

TEST(InterpolateBytes, AreClippedWhereCubicsOvershoot) {
  const Tensor step = tensor({0, 0, 0, 255, 255, 255}, kByte).view({1, 1, 1, 6});
  for (const double v : list(upsample_bicubic2d(step, {1, 24}, false))) {
    EXPECT_GE(v, 0);
    EXPECT_LE(v, 255);
  }
  EXPECT_EQ(list(upsample_bicubic2d(step, {1, 24}, false))[0], 0);
  EXPECT_TRUE(equal(upsample_bilinear2d(step, {1, 6}, true), step));
}

TEST(InterpolateBytes, HaveTwoSpatialDims) {
  EXPECT_THROW(upsample_linear1d(ones({1, 1, 4}, kByte), {2}, false), NotImplementedError);
  EXPECT_THROW(upsample_bilinear2d(ones({1, 1, 4, 4}, kInt), {2, 2}, false), NotImplementedError);
}

TEST(InterpolateAntialias, LeavesADimThatKeepsItsSizeAsItIs) {
  const Tensor x = arange(12, kDouble).square().view({1, 1, 3, 4});
  EXPECT_TRUE(equal(_upsample_bilinear2d_aa(x, {3, 4}, false, 1.05, 1.1), x));
  EXPECT_TRUE(equal(_upsample_bicubic2d_aa(x, {3, 4}, false, 1.05, 1.1), x));
  EXPECT_TRUE(equal(_upsample_bilinear2d_aa(x, {2, 4}, false, 0.7, 1.1),
                    _upsample_bilinear2d_aa(x, {2, 4}, false, 0.7, std::nullopt)));
  EXPECT_FALSE(equal(upsample_bilinear2d(x, {3, 4}, false, 1.05, 1.1), x)) << "its places lie elsewhere";
}

Tensor sampled(const std::vector<double>& points, std::int64_t mode, std::int64_t padding, const Tensor& image) {
  const auto n = static_cast<std::int64_t>(points.size()) / 2;
  return grid_sampler(image, tensor(points, kDouble).view({1, 1, n, 2}), mode, padding, false).view({n});
}

TEST(GridSampleOfNan, CountsAsMinusOneInsideBorders) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor image = arange(1, 13, kDouble).view({1, 1, 3, 4});
  for (const std::int64_t padding : {1, 2}) {
    for (const std::int64_t mode : {0, 1})
      EXPECT_EQ(list(sampled({nan, 0, nan, nan}, mode, padding, image)), (std::vector<double>{5, 1})) << mode;
    for (const double v : list(sampled({nan, 0, 0, nan}, 2, padding, image))) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(GridSampleOfNan, IsNanAmongZerosButReadsAndAddsNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor image = arange(1, 13, kDouble).view({1, 1, 3, 4}).requires_grad_(true);
  for (const std::int64_t mode : {0, 2}) {
    const auto out = list(sampled({nan, 0, 0, nan, .5, -.5}, mode, 0, image));
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]) && std::isfinite(out[2]));
  }
  EXPECT_EQ(list(sampled({nan, 0, 0, nan}, 1, 0, image)), (std::vector<double>{0, 0}));
  sampled({nan, 0, .5, -.5}, 0, 0, image).sum().backward();
  EXPECT_EQ(image.grad().sum().item<double>(), 1);  // the weights of the one point
  const Tensor box = ones({1, 1, 2, 2, 2}, kDouble), point = full({1, 1, 1, 1, 3}, nan, kDouble);
  EXPECT_EQ(grid_sampler(box, point, 0, 0, false).item<double>(), 0);
}

/// Calls fn(input, grid, mode, padding, align) for two and three dims and all ways; -1 and 1 are among the coordinates,
/// and more points than a block of the kernel has.
template <class F>
void each_way(F&& fn) {
  manual_seed(5);
  for (const std::int64_t dims : {2, 3})
    for (const std::int64_t mode : {0, 1, 2})
      for (const std::int64_t padding : {0, 1, 2})
        for (const bool align : {false, true}) {
          const Tensor x = dims == 2 ? rand({2, 5, 3, 4}, kDouble) : rand({2, 5, 2, 3, 2}, kDouble);
          Tensor grid = dims == 2 ? rand({2, 7, 43, 2}, kDouble) : rand({2, 3, 3, 31, 3}, kDouble);
          grid = grid * 3.2 - 1.6;
          grid = where(rand_like(grid) < 0.1, grid.sign(), grid);
          SCOPED_TRACE(std::to_string(dims) + " " + std::to_string(mode) + " " + std::to_string(padding) +
                       (align ? " align" : ""));
          fn(x.requires_grad_(true), grid.requires_grad_(true), mode, padding, align);
        }
}

/// The same with every instruction set.
template <class F>
void each_sampling(F&& fn) {
  for (int n = 0; cpu::use_simd_target(n); ++n) {
    SCOPED_TRACE(n);
    each_way(fn);
  }
  cpu::use_simd_target(0);
}

TEST(GridSampleGradient, IsTheSameWhereItIsToBeDifferentiatedInTurn) {
  each_sampling([](const Tensor& x, const Tensor& grid, std::int64_t mode, std::int64_t padding, bool align) {
    const Tensor out = grid_sampler(x, grid, mode, padding, align), g = rand_like(out);
    const auto plain = autograd::grad({out}, {x, grid}, {g}, true);
    const auto composed = autograd::grad({out}, {x, grid}, {g}, true, true);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(allclose(plain[i], composed[i].detach(), 1e-9, 1e-11)) << i;
    // Either alone is what it is beside the other.
    EXPECT_TRUE(equal(autograd::grad({out}, {x}, {g}, true)[0], plain[0]));
    EXPECT_TRUE(equal(autograd::grad({out}, {grid}, {g}, true)[0], plain[1]));
  });
}

TEST(GridSampleGradient, OfHalvesIsThatOfTheSameNumbersInFloat) {
  each_sampling([](const Tensor& x, const Tensor& grid, std::int64_t mode, std::int64_t padding, bool align) {
    for (const DType t : {kHalf, kBFloat16}) {
      Tensor in[] = {x.detach().to(t).requires_grad_(true), grid.detach().to(t).requires_grad_(true)};
      Tensor wide[] = {in[0].detach().to(kFloat).requires_grad_(true), in[1].detach().to(kFloat).requires_grad_(true)};
      const Tensor out = grid_sampler(in[0], in[1], mode, padding, align);
      const Tensor expected = grid_sampler(wide[0], wide[1], mode, padding, align);
      EXPECT_TRUE(allclose(out, expected.detach().to(t), 1e-2, 1e-3));
      const Tensor exact = grid_sampler(wide[0].to(kDouble), wide[1].to(kDouble), mode, padding, align);
      EXPECT_TRUE(allclose(expected.to(kDouble), exact, 1e-4, 1e-4));
      const Tensor g = rand_like(out);
      const auto got = autograd::grad({out}, {in[0], in[1]}, {g});
      const auto want = autograd::grad({expected}, {wide[0], wide[1]}, {g.to(kFloat)});
      for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(allclose(got[i], want[i].to(t), 1e-2, 1e-3)) << i;
    }
  });
}

}  // namespace athanor::interpolate_test
