// Numbers that a dtype cannot hold, and sizes that no tensor can have.
#include <gmock/gmock.h>

#include <cmath>

#include "athanor/nn/functional.h"
#include "athanor/ops/tensor.h"
#include "numeric.h"

namespace athanor {
namespace {

using test::error_of;
using testing::HasSubstr;

TEST(Overflow, OfANumberThatATensorIsToHoldIsRefused) {
  Tensor bytes = zeros({3}, kChar);
  const Tensor mask = ones({3}, kBool);
  EXPECT_THAT(error_of([&] { full({2}, 300, kChar); }),
              HasSubstr("value cannot be converted to type int8_t without overflow: fill_ of 300"));
  EXPECT_THAT(error_of([&] { bytes.fill_(-129); }), HasSubstr("int8_t without overflow"));
  EXPECT_THAT(error_of([&] { bytes.masked_fill_(mask, 128); }), HasSubstr("masked_fill of 128"));
  EXPECT_THAT(error_of([&] { bytes.index_put_({0}, 128); }), HasSubstr("without overflow"));
  EXPECT_THAT(error_of([&] { constant_pad_nd(bytes, {1, 1}, 128); }), HasSubstr("constant_pad_nd of 128"));
  EXPECT_THAT(error_of([&] { full({2}, NAN, kLong); }), HasSubstr("int64_t without overflow"));
  EXPECT_THAT(error_of([&] { full({2}, 1e19, kLong); }), HasSubstr("int64_t without overflow"));
  EXPECT_THAT(error_of([&] { full({2}, 1e300, kFloat); }), HasSubstr("float without overflow"));
  EXPECT_THAT(error_of([&] { full({2}, 70'000, kHalf); }), HasSubstr("Half without overflow"));
  EXPECT_TRUE(equal(bytes, zeros({3}, kChar)));
}

TEST(Overflow, IsNotSeenInWhatFits) {
  EXPECT_EQ(full({1}, -1, kByte).item<int>(), 255);  // negative numbers of unsigned integers wrap
  EXPECT_EQ(full({1}, -128, kChar).item<int>(), -128);
  EXPECT_EQ(full({1}, 127.0, kChar).item<int>(), 127);
  EXPECT_EQ(full({1}, 65504, kHalf).item<float>(), 65504.0F);
  EXPECT_TRUE(full({1}, 300, kBool).item<bool>());
  for (const DType dtype : {kHalf, kBFloat16, kFloat, kDouble}) {
    EXPECT_TRUE(std::isinf(full({1}, -INFINITY, dtype).item<double>()));
    EXPECT_TRUE(std::isnan(full({1}, NAN, dtype).item<float>()));
  }
}

TEST(Overflow, OfAnElementThatIsAskedForIsRefused) {
  EXPECT_THAT(error_of([] { full({1}, 1e10, kDouble).item<int>(); }), HasSubstr("int without overflow: item of 1e+10"));
  EXPECT_THAT(error_of([] { full({1}, 1e300, kDouble).item<float>(); }), HasSubstr("float without overflow"));
  EXPECT_EQ(full({1}, 1e10, kDouble).item<std::int64_t>(), 10'000'000'000);
  EXPECT_EQ(full({1}, 2.5, kDouble).item<int>(), 2);
}

TEST(Overflow, OfSizesIsRefused) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_THAT(error_of([] { ones({4}).repeat({kHuge}); }), HasSubstr("repeat: 4611686018427387904 times size 4"));
  EXPECT_THAT(error_of([] { constant_pad_nd(ones({4}), {kHuge, kHuge}); }), HasSubstr("constant_pad_nd: no tensor"));
  EXPECT_NE(error_of([] { upsample_nearest1d(ones({1, 1, 4}), {1'000'000'000'000}); }), "");
  EXPECT_NE(error_of([] { upsample_linear1d(ones({1, 1, 4}), {kHuge}, false); }), "");
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  for (const char* mode : {"replicate", "circular", "reflect"})
    for (const std::int64_t huge : {kHuge, kLargest})
      EXPECT_NE(error_of([&] { pad(ones({1, 1, 4}), {huge, huge}, mode); }), "") << mode << huge;
  EXPECT_THAT(error_of([] { pad(ones({1, 1, 4}), {kLargest, kLargest}, "replicate"); }), HasSubstr("pad: no tensor"));
  EXPECT_THAT(error_of([] { pad(ones({1, 1, 4}), {-kLargest - 1, kLargest}, "replicate"); }), HasSubstr("no tensor"));
  const Tensor image = ones({1, 1, 3, 3});
  EXPECT_NE(error_of([&] { im2col(image, {1, 1}, {1, 1}, {kHuge / 2, kHuge / 2}, {1, 1}); }), "");
  EXPECT_THAT(error_of([&] { im2col(image, {5, 5}, {kHuge, kHuge}, {0, 0}, {1, 1}); }), HasSubstr("no image"));
  EXPECT_THAT(error_of([&] { im2col(image, {1, 1}, {1, 1}, {kLargest, 0}, {1, 1}); }), HasSubstr("no image"));
  EXPECT_NE(error_of([&] { col2im(ones({1, 1, 4}), {2, 2}, {1, 1}, {1, 1}, {kHuge / 2, kHuge / 2}, {1, 1}); }), "");
}

TEST(Overflow, OfTheStrideOfASingleWindowIsNone) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  const Tensor image = arange(9, kDouble).reshape({1, 1, 3, 3});
  EXPECT_TRUE(equal(im2col(image, {1, 1}, {1, 1}, {2, 2}, {kLargest, kLargest}), zeros({1, 1, 1}, kDouble)));
  EXPECT_TRUE(equal(im2col(image, {3, 3}, {1, 1}, {0, 0}, {kLargest, 3}), image.reshape({1, 9, 1})));
}

}  // namespace
}  // namespace athanor
