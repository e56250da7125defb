#include "numeric.h"

#include <limits>

namespace athanor {
namespace {

using test::error_of;
using test::list;

std::vector<double> counted(double start, double step, std::int64_t n) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(start + step * static_cast<double>(i));
  return out;
}

}  // namespace

TEST(Arange, IntegersGiveInt64AndFloatsTheDefaultDtype) {
  EXPECT_EQ(arange(5).dtype(), kLong);
  EXPECT_EQ(list(arange(5)), counted(0, 1, 5));
  EXPECT_EQ(arange(true).dtype(), kLong);
  EXPECT_EQ(arange(0, 5, 2, kInt64).dtype(), kLong);
  EXPECT_EQ(arange(0, 5, 2, kFloat).dtype(), kFloat);
  EXPECT_EQ(arange(5.0).dtype(), kFloat);
  EXPECT_EQ(arange(0, 5, 1.0).dtype(), kFloat);
  EXPECT_TRUE(arange(3, TensorOptions(kFloat).requires_grad(true)).requires_grad());
}

TEST(Arange, SizeIsTheCeilingOfTheQuotient) {
  EXPECT_EQ(arange(0, 1, 0.1).numel(), 10);
  EXPECT_EQ(arange(1, 2.5, 0.5).numel(), 3);
  EXPECT_EQ(arange(0, 10, 3).numel(), 4);
  EXPECT_EQ(arange(10, 0, -3).numel(), 4);
  EXPECT_EQ(list(arange(0.5, 3, kLong)), counted(0, 1, 3));
  EXPECT_EQ(list(arange(0, 2, 0.5, kInt)), counted(0, 0, 4));  // values in int64, where this step is 0
  EXPECT_EQ(arange(2.0, 2.0).numel(), 0);
}

TEST(Arange, ExtremeIntegersAreExact) {
  const std::int64_t low = std::numeric_limits<std::int64_t>::min(), high = std::numeric_limits<std::int64_t>::max();
  const Tensor t = arange(low, high, std::int64_t{1} << 62);
  ASSERT_EQ(t.numel(), 4);
  EXPECT_EQ(t[0].item<std::int64_t>(), low);
  EXPECT_EQ(t[3].item<std::int64_t>(), std::int64_t{1} << 62);
  const Tensor last = arange(high - 3, high);
  EXPECT_EQ(last[2].item<std::int64_t>(), high - 1);
}

TEST(Arange, LargeOnesAreRightAtEveryBlockAndThreadBoundary) {
  for (const DType type : {kByte, kShort, kInt, kLong, kFloat, kDouble}) {
    const std::int64_t n = 70001;
    const Tensor t = arange(3, 3 + 2 * n, 2, type), expected = arange(3, 3 + 2 * n, 2, kLong).to(type);
    EXPECT_TRUE(equal(t, expected)) << dtype_name(type);
  }
  // Past the size from which stores bypass the caches.
  const std::int64_t n = (std::int64_t{9} << 20) + 5;
  const Tensor t = arange(n, kInt);
  const auto* values = t.data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(values[i], i);
}

TEST(Arange, FloatsAreRoundedOnceFromFloat64) {
  const Tensor t = arange(0, 1000, 0.1);
  const auto* values = t.data_ptr<float>();
  for (std::int64_t i = 0; i < t.numel(); ++i)
    ASSERT_FLOAT_EQ(values[i], static_cast<float>(static_cast<double>(i) * 0.1));
  const Tensor h = arange(0, 4, 0.1, kHalf);
  for (std::int64_t i = 0; i < h.numel(); ++i)
    ASSERT_EQ(h[i].item<double>(), Scalar(Half(static_cast<float>(static_cast<double>(i) * 0.1))).toDouble());
}

TEST(Arange, ErrorsNameTheRange) {
  EXPECT_NE(error_of([] { arange(0, 1, 0); }).find("step must be nonzero"), std::string::npos);
  EXPECT_NE(error_of([] { arange(0, 10, NAN); }).find("step must be finite but got nan"), std::string::npos);
  EXPECT_NE(error_of([] { arange(0, -INFINITY, -1); }).find("0 -> -inf"), std::string::npos);
  EXPECT_NE(error_of([] { arange(5, 0, 1.0); }).find("inconsistent with step sign: 5 -> 0 by 1"), std::string::npos);
  EXPECT_NE(error_of([] { arange(1e30, 2e30, 1e29, kLong); }).find("cannot be converted"), std::string::npos);
  EXPECT_THROW(arange(0, 4, kBool), NotImplementedError);
  EXPECT_THROW(arange(std::int64_t{1} << 60), Error);  // more memory than there is
}

TEST(Linspace, EndsAreExactAndTheMiddleIsSymmetric) {
  for (const DType type : {kFloat, kDouble, kHalf, kBFloat16}) {
    const Tensor t = linspace(-1, 1, 7, type), back = -t.flip({0});
    EXPECT_TRUE(equal(t, back)) << dtype_name(type);
    EXPECT_EQ(t[0].item<double>(), -1);
    EXPECT_EQ(t[6].item<double>(), 1);
  }
  const Tensor t = linspace(0, 1, 100003, kDouble);
  const auto* values = t.data_ptr<double>();
  EXPECT_EQ(values[100002], 1);
  for (std::int64_t i = 0; i < 100003; ++i) ASSERT_NEAR(values[i], static_cast<double>(i) / 100002, 1e-15);
}

TEST(Linspace, IntegersTruncateEndsFirst) {
  EXPECT_EQ(list(linspace(0, 10, 5, kInt)), (std::vector<double>{0, 2, 5, 7, 10}));
  EXPECT_EQ(list(linspace(0.9, 3.9, 4, kLong)), counted(0, 1, 4));
  EXPECT_EQ(list(linspace(0, 255, 4, kByte)), counted(0, 85, 4));
  EXPECT_EQ(list(linspace(-3, 2, 4, kChar)), (std::vector<double>{-3, -1, 0, 2}));
  EXPECT_EQ(linspace(0, 1, 5).dtype(), kFloat);
  EXPECT_NE(error_of([] { linspace(-5, 300, 4, kByte); }).find("start -5 cannot be converted to uint8"),
            std::string::npos);
  EXPECT_NE(error_of([] { linspace(0, NAN, 4, kLong); }).find("end nan"), std::string::npos);
  EXPECT_THROW(linspace(0, 1, 3, kBool), NotImplementedError);
}

TEST(Logspace, PowersOfItsBase) {
  EXPECT_EQ(list(logspace(0, 3, 4)), (std::vector<double>{1, 10, 100, 1000}));
  EXPECT_EQ(list(logspace(0.5, 3.7, 4, 2, kLong)), (std::vector<double>{1, 2, 4, 8}));
  EXPECT_EQ(list(logspace(2.5, 1, 1, 3, kInt)), (std::vector<double>{9}));
  EXPECT_TRUE(logspace(0, 1, 2, 10, TensorOptions().requires_grad(true)).is_leaf());
}

TEST(TriangleIndices, SizesNearTheEdgeOfInt64) {
  const std::int64_t big = std::int64_t{1} << 40;
  EXPECT_EQ(tril_indices(big, big, -big).numel(), 0);
  EXPECT_EQ(list(tril_indices(big, 1, -big + 1)), (std::vector<double>{static_cast<double>(big - 1), 0}));
  EXPECT_EQ(triu_indices(1, 3, INT64_MIN).numel(), 6);
  EXPECT_EQ(tril_indices(2, 2, INT64_MAX).numel(), 8);
  EXPECT_THROW(tril_indices(big, big, 0), Error);
  EXPECT_THROW(tril_indices(2, 2, 0, kFloat), NotImplementedError);
}

TEST(Eye, LargeAndStrided) {
  const Tensor t = eye(301, 257, kShort);
  EXPECT_EQ(t.sum().item<std::int64_t>(), 257);
  EXPECT_EQ(t.diagonal().sum().item<std::int64_t>(), 257);
}

TEST(Created, TensorsHaveVersionZero) {
  for (const Tensor& t : {ones({2}), zeros({2}), full({2}, 3), ones_like(ones({2}))}) {
    EXPECT_EQ(t._version(), 0U);
    t.add_(1);
    EXPECT_EQ(t._version(), 1U);
  }
}

TEST(Created, SubListsOfOneListHaveOneSize) {
  const std::string error = error_of([] { tensor({{5, 6}, {7}}); });
  EXPECT_NE(error.find("sizes: [2] (e.g. the first), but got a sub-list with sizes: [1]"), std::string::npos) << error;
}

TEST(EmptyStrided, RefusesMemoryThatCannotBe) {
  EXPECT_EQ(empty_strided({2, 3}, {1, 2}).strides().vec(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_NE(error_of([] { empty_strided({2}, {-1}); }).find("negative strides"), std::string::npos);
  EXPECT_NE(error_of([] {
              empty_strided({3, 3}, {INT64_MAX, INT64_MAX});
            }).find("can be addressed"),
            std::string::npos);
  EXPECT_EQ(empty_strided({0, 3}, {INT64_MAX, 1}).numel(), 0);
}

TEST(LikeForms, MemoryFormatAsAnArgument) {
  const Tensor x = ones({2, 3, 4, 5}).contiguous(MemoryFormat::ChannelsLast);
  EXPECT_TRUE(empty_like(x).is_contiguous(MemoryFormat::ChannelsLast));
  EXPECT_TRUE(zeros_like(x, {}, MemoryFormat::Contiguous).is_contiguous());
  EXPECT_TRUE(ones_like(x, kLong, MemoryFormat::Contiguous).is_contiguous());
  EXPECT_TRUE(
      full_like(ones({2, 3, 4, 5}), 2, {}, MemoryFormat::ChannelsLast).is_contiguous(MemoryFormat::ChannelsLast));
  EXPECT_THROW(empty_like(x, MemoryFormat::ChannelsLast, MemoryFormat::Contiguous), Error);
}

TEST(EmptyPermuted, LaysDimsInTheOrderGiven) {
  EXPECT_EQ(empty_permuted({2, 3, 4, 5}, {0, 2, 3, 1}).strides().vec(), (std::vector<std::int64_t>{60, 1, 15, 3}));
}

}  // namespace athanor
