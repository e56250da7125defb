#include <algorithm>

#include "athanor/base/parallel.h"
#include "numeric.h"

namespace athanor {
namespace {

using test::error_of;
using test::expect_close;
using test::gradcheck;
using test::gradgradcheck;
using test::list;
using test::values;

enum class Kind { Max, Average };

/// 2-d pooling of a plane by its definition.
std::vector<double> pooled(const std::vector<double>& x, std::int64_t h, std::int64_t w, Kind kind, std::int64_t k,
                           std::int64_t s, std::int64_t p, std::int64_t dilation, std::int64_t oh, std::int64_t ow,
                           bool count_pad = true) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < oh; ++i)
    for (std::int64_t j = 0; j < ow; ++j) {
      double best = -INFINITY, sum = 0;
      std::int64_t inside = 0;
      for (std::int64_t a = 0; a < k; ++a)
        for (std::int64_t b = 0; b < k; ++b) {
          const std::int64_t y = i * s - p + a * dilation, z = j * s - p + b * dilation;
          if (y < 0 || z < 0 || y >= h || z >= w) continue;
          const double v = x[static_cast<std::size_t>(y * w + z)];
          best = std::isnan(v) || v > best ? v : best;
          sum += v;
          ++inside;
        }
      const std::int64_t bottom = std::min(i * s - p + k, h + p), right = std::min(j * s - p + k, w + p);
      const auto area = static_cast<double>(count_pad ? (bottom - (i * s - p)) * (right - (j * s - p)) : inside);
      out.push_back(kind == Kind::Max ? best : sum / area);
    }
  return out;
}

}  // namespace

TEST(MaxPool, AgreesWithItsDefinition) {
  const Tensor x = values({1, 1, 7, 9}, kFloat, 1);
  const auto v = list(x);
  expect_close(max_pool2d(x, 3).reshape({2, 3}), tensor(pooled(v, 7, 9, Kind::Max, 3, 3, 0, 1, 2, 3)).reshape({2, 3}));
  expect_close(max_pool2d(x, 3, 2, 1), tensor(pooled(v, 7, 9, Kind::Max, 3, 2, 1, 1, 4, 5)).reshape({1, 1, 4, 5}));
  expect_close(max_pool2d(x, 2, 2, 0, 2), tensor(pooled(v, 7, 9, Kind::Max, 2, 2, 0, 2, 3, 4)).reshape({1, 1, 3, 4}));
  expect_close(max_pool2d(x, 2, 2, 0, 1, true),
               tensor(pooled(v, 7, 9, Kind::Max, 2, 2, 0, 1, 4, 5)).reshape({1, 1, 4, 5}));
}

TEST(MaxPool, IndicesNameTheFirstMaximumInItsPlane) {
  const Tensor x = tensor({{1.0F, 5.0F, 5.0F}, {2.0F, 0.0F, 5.0F}}).reshape({1, 1, 2, 3});
  const auto [y, i] = max_pool2d_with_indices(x, 2, 1);
  EXPECT_EQ(list(y), (std::vector<double>{5, 5}));
  EXPECT_EQ(list(i), (std::vector<double>{1, 1}));
}

TEST(MaxPool, GradientsToSecondOrderWithSmallAndLargeWindows) {
  Tensor x = values({2, 2, 6, 5}, kDouble, 3).requires_grad_();
  const auto f = [](const std::vector<Tensor>& in) { return max_pool2d(in[0], {3, 2}, {2, 1}, {1, 1}, 1, true); };
  gradcheck(f, {x});
  gradgradcheck(f, {x});
  // Above 256 taps the indices take the other form.
  Tensor wide = values({1, 1, 20, 20}, kDouble, 4).requires_grad_();
  const auto g = [](const std::vector<Tensor>& in) { return max_pool2d(in[0], 17, 1); };
  gradcheck(g, {wide});
  gradgradcheck(g, {wide});
  Tensor line = values({2, 9}, kDouble, 5).requires_grad_();
  gradgradcheck([](const std::vector<Tensor>& in) { return max_pool1d(in[0], 3, 2, 1, 2); }, {line});
  Tensor volume = values({1, 2, 4, 4, 3}, kDouble, 6).requires_grad_();
  gradgradcheck([](const std::vector<Tensor>& in) { return max_pool3d(in[0], 2, 1); }, {volume});
  gradcheck([](const std::vector<Tensor>& in) { return std::get<0>(max_pool3d_with_indices(in[0], 2, 2)); }, {volume});
}

TEST(AvgPool, AgreesWithItsDefinition) {
  const Tensor x = values({1, 1, 7, 9}, kFloat, 1);
  const auto v = list(x);
  expect_close(avg_pool2d(x, 3, 2, 1), tensor(pooled(v, 7, 9, Kind::Average, 3, 2, 1, 1, 4, 5)).reshape({1, 1, 4, 5}));
  expect_close(avg_pool2d(x, 3, 2, 1, false, false),
               tensor(pooled(v, 7, 9, Kind::Average, 3, 2, 1, 1, 4, 5, false)).reshape({1, 1, 4, 5}));
  expect_close(avg_pool2d(x, 2, 2, 0, true),
               tensor(pooled(v, 7, 9, Kind::Average, 2, 2, 0, 1, 4, 5)).reshape({1, 1, 4, 5}));
  expect_close(avg_pool2d(x, 2, 2, 0, false, true, 1), avg_pool2d(x, 2, 2) * 4);
}

TEST(AvgPool, GradientsToSecondOrder) {
  Tensor x = values({2, 2, 5, 6}, kDouble, 3).requires_grad_();
  gradgradcheck([](const std::vector<Tensor>& in) { return avg_pool2d(in[0], 3, 2, 1, true, false); }, {x});
  Tensor line = values({2, 9}, kDouble, 5).requires_grad_();
  gradgradcheck([](const std::vector<Tensor>& in) { return avg_pool1d(in[0], 3, 2, 1); }, {line});
  Tensor volume = values({1, 1, 4, 4, 3}, kDouble, 6).requires_grad_();
  gradgradcheck([](const std::vector<Tensor>& in) { return avg_pool3d(in[0], 2, 1, 0, false, true, 3); }, {volume});
}

TEST(AdaptivePool, WindowsCoverTheInput) {
  const Tensor x = tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F}).reshape({1, 1, 5});
  // Windows of 5 in 3: [0, 2), [1, 4), [3, 5).
  EXPECT_EQ(list(adaptive_avg_pool1d(x, 3)), (std::vector<double>{1.5, 3, 4.5}));
  const auto [y, i] = adaptive_max_pool1d(x, 3);
  EXPECT_EQ(list(y), (std::vector<double>{2, 4, 5}));
  EXPECT_EQ(list(i), (std::vector<double>{1, 3, 4}));
}

TEST(AdaptivePool, GradientsToSecondOrder) {
  Tensor x = values({2, 2, 5, 7}, kDouble, 3).requires_grad_();
  gradgradcheck([](const std::vector<Tensor>& in) { return adaptive_avg_pool2d(in[0], {3, 2}); }, {x});
  gradgradcheck([](const std::vector<Tensor>& in) { return std::get<0>(adaptive_max_pool2d(in[0], {3, 2})); }, {x});
  Tensor volume = values({1, 1, 4, 4, 3}, kDouble, 6).requires_grad_();
  gradcheck([](const std::vector<Tensor>& in) { return adaptive_avg_pool3d(in[0], {2, 3, 2}); }, {volume});
}

TEST(AdaptivePool, WideWindowsOfStridedRowsAreMeans) {
  const Tensor x = values({2, 5, 3, 150}, kFloat, 3).transpose(1, 2);  // rows are dense, planes are not
  const Tensor pooled = adaptive_avg_pool2d(x, {2, 2});
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      expect_close(pooled.select(3, j).select(2, i), x.narrow(2, 2 * i, 3).narrow(3, 75 * j, 75).mean({2, 3}), 1e-5,
                   1e-6);
  expect_close(adaptive_avg_pool2d(x.to(kHalf), 1).to(kFloat), x.mean({2, 3}, true), 1e-2, 1e-2);
  EXPECT_EQ(adaptive_avg_pool2d(x, {0, 2}).numel(), 0);
}

TEST(EmbeddingBag, RowsAddedInVectorsGiveTheSameBits) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < 31; ++i) rows.push_back(i * 7 % 12);
  const Tensor indices = tensor(rows, kLong), offsets = tensor(std::vector<std::int64_t>{0, 0, 3, 13}, kLong);
  const Tensor apart = stack({indices, indices}, 1).select(1, 0), ones_of_all = ones({31});
  for (const DType dtype : {kFloat, kDouble})
    for (const std::int64_t width : {0, 1, 19, 64, 85})
      for (const std::int64_t padding : {-1, 0, 5}) {  // with rows to skip, and without
        const Tensor table = values({12, width}, dtype, 4), columns = table.t().contiguous().t();
        const auto pad = padding < 0 ? std::optional<std::int64_t>() : std::optional<std::int64_t>(padding);
        const auto sums = [&](const Tensor& of, const Tensor& at, const Tensor& factors) {
          return std::get<0>(embedding_bag(of, at, offsets, false, 0, false, factors, false, pad));
        };
        const Tensor fast = sums(table, indices, Tensor());
        EXPECT_TRUE(equal(fast, sums(table, indices, ones_of_all.to(dtype)))) << width;
        EXPECT_TRUE(equal(fast, sums(columns, indices, Tensor()))) << width;
        EXPECT_TRUE(equal(fast, sums(table, indices.to(kInt), Tensor()))) << width;
        EXPECT_TRUE(equal(fast, sums(table, apart, Tensor()))) << width;
      }
}

TEST(Pool, KeepsChannelsLastAndTakesUnbatchedInput) {
  const Tensor x = values({2, 3, 6, 6}, kFloat, 1);
  const Tensor last = x.contiguous(MemoryFormat::ChannelsLast);
  EXPECT_TRUE(max_pool2d(last, 2).is_contiguous(MemoryFormat::ChannelsLast));
  expect_close(max_pool2d(last, 2), max_pool2d(x, 2));
  expect_close(avg_pool2d(last, 2), avg_pool2d(x, 2));
  expect_close(adaptive_avg_pool2d(last, 2), adaptive_avg_pool2d(x, 2));
  expect_close(max_pool2d(x.select(0, 1), 2), max_pool2d(x, 2).select(0, 1));
}

TEST(EmbeddingBag, GivesTheSameBitsOnAnyNumberOfThreads) {
  constexpr std::int64_t kRows = 50, kIndices = 6000;
  std::vector<std::int64_t> rows, starts;
  for (std::int64_t i = 0; i < kIndices; ++i) rows.push_back(i * 31 % kRows);
  for (std::int64_t i = 0; i < kIndices; i += 7) starts.push_back(i);
  const Tensor indices = tensor(rows, kLong), offsets = tensor(starts, kLong);
  const auto run = [&](std::int64_t mode, int threads) {
    Tensor table = values({kRows, 33}, kFloat, 4).requires_grad_();
    Tensor shares = values({kIndices}, kFloat, 5).requires_grad_();
    const int before = get_num_threads();
    set_num_threads(threads);
    const Tensor out =
        std::get<0>(embedding_bag(table, indices, offsets, false, mode, false, mode == 0 ? shares : Tensor()));
    out.backward(values(out.sizes().vec(), kFloat, 6));
    set_num_threads(before);
    std::vector<Tensor> all{out.detach(), table.grad()};
    if (mode == 0) all.push_back(shares.grad());
    return all;
  };
  for (const std::int64_t mode : {0, 1, 2}) {
    const auto single = run(mode, 1);
    for (const int threads : {2, 7}) {
      const auto many = run(mode, threads);
      for (std::size_t i = 0; i < single.size(); ++i)
        EXPECT_TRUE(equal(single[i], many[i])) << "mode " << mode << ", tensor " << i << ", threads " << threads;
    }
  }
}

TEST(EmbeddingBag, ToldOfWrongIndicesNamesTheirDTypeAndShape) {
  const std::string text = error_of([] { embedding_bag(ones({3, 2}), ones({1000}), zeros({1}, kLong)); });
  EXPECT_NE(text.find("got float32 of shape [1000]"), std::string::npos) << text.substr(0, 300);
  EXPECT_LT(text.size(), 300U);
}

TEST(FractionalPool, EmptyBatchIsFine) {
  Tensor image = zeros({0, 3, 6, 7}, kDouble).requires_grad_();
  const auto [y, i] = fractional_max_pool2d(image, {2, 3}, {3, 2}, zeros({0, 3, 2}, kDouble));
  EXPECT_EQ(y.sizes().vec(), (std::vector<std::int64_t>{0, 3, 3, 2}));
  EXPECT_EQ(i.sizes().vec(), (std::vector<std::int64_t>{0, 3, 3, 2}));
  y.sum().backward();
  EXPECT_EQ(image.grad().sizes(), image.sizes());
  const auto volume = fractional_max_pool3d(zeros({0, 2, 4, 4, 4}), 2, {2, 1, 3}, zeros({0, 2, 3}));
  EXPECT_EQ(std::get<0>(volume).sizes().vec(), (std::vector<std::int64_t>{0, 2, 2, 1, 3}));
}

TEST(Pool, EmptyBatchIsFine) {
  EXPECT_EQ(max_pool2d(zeros({0, 3, 6, 6}), 2).sizes().vec(), (std::vector<std::int64_t>{0, 3, 3, 3}));
  EXPECT_EQ(avg_pool2d(zeros({0, 3, 6, 6}), 2).sizes().vec(), (std::vector<std::int64_t>{0, 3, 3, 3}));
}

TEST(Pool, BadInputNamesSizes) {
  const Tensor x = ones({1, 1, 4, 4});
  EXPECT_NE(error_of([&] { max_pool2d(x, 2, 2, 2); }).find("pad should be at most half of effective kernel size"),
            std::string::npos);
  EXPECT_NE(error_of([&] { max_pool2d(x, 5); }).find("Output size is too small"), std::string::npos);
  EXPECT_NE(error_of([&] { max_pool2d(ones({4, 4}), 2); }).find("Expected 3D or 4D"), std::string::npos);
  EXPECT_NE(error_of([&] { max_pool2d(x, {1, 2, 3}); }).find("kernel_size=[1, 2, 3]"), std::string::npos);
  EXPECT_NE(error_of([&] { max_pool2d(x, 2, 0); }).find("stride should be greater than zero"), std::string::npos);
  EXPECT_THROW(avg_pool2d(ones({1, 1, 4, 4}, kInt), 2), NotImplementedError);
  EXPECT_THROW(avg_pool2d(x, 2, 2, 0, false, true, 0), Error);
  EXPECT_THROW(adaptive_avg_pool2d(x, {-1, 2}), Error);
}

TEST(MaxPool, WindowsInThePaddingAloneAreMinusInfinityWithoutGradient) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const bool with_indices : {false, true}) {
    // Taps at -1 and 4, and at 1 and 6, of rows of 4: the first window holds nothing.
    Tensor x = values({1, 1, 4, 4}).to(kDouble).requires_grad_();
    const auto pooled = [&] {
      if (!with_indices) return max_pool2d(x, {1, 2}, {1, 2}, {0, 1}, {1, 5});
      return std::get<0>(max_pool2d_with_indices(x, {1, 2}, {1, 2}, {0, 1}, {1, 5}));
    };
    const Tensor y = pooled();
    ASSERT_EQ(y.sizes(), (IntArrayRef{1, 1, 4, 1}));
    EXPECT_EQ(y.max().item<double>(), -inf);
    y.sum().backward();
    EXPECT_TRUE(equal(x.grad(), zeros({1, 1, 4, 4}, kDouble)));
    // Of four windows over rows of 5 the two in the middle hold nothing.
    x = values({1, 1, 2, 5}).to(kDouble).requires_grad_();
    gradcheck(
        [](const std::vector<Tensor>& in) {
          return max_pool2d(in[0], {1, 2}, {1, 1}, {0, 3}, {1, 7}).clamp_min(-100);
        },
        {x});
    gradgradcheck(
        [](const std::vector<Tensor>& in) {
          return max_pool2d(in[0], {1, 2}, {1, 1}, {0, 3}, {1, 7}).clamp_min(-100).square();
        },
        {x});
  }
  EXPECT_EQ(std::get<1>(max_pool1d_with_indices(ones({1, 1, 4}), 2, 1, 1, 5)).item<std::int64_t>(), 4)
      << "as PyTorch has it";
}

}  // namespace athanor
