#include "athanor/io/array.h"

#include <numeric>

#include "helpers.h"

namespace athanor::io {

TEST(Array, EmptyArrayHasRowMajorStridesAndAlignedMemory) {
  const Array a = empty_array(kFloat, {2, 3, 4});
  EXPECT_EQ(a.strides, (std::vector<std::int64_t>{12, 4, 1}));
  EXPECT_EQ(a.numel(), 24);
  EXPECT_EQ(a.nbytes(), 96U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data) % 64, 0U);
  EXPECT_TRUE(a.is_contiguous());
  EXPECT_EQ(empty_array(kDouble, {}).numel(), 1);
}

TEST(Array, ZeroSizedArraysNeedNoMemoryHoweverLargeTheOtherSizes) {
  const Array a = empty_array(kFloat, {INT64_MAX, 0, INT64_MAX});
  EXPECT_EQ(a.numel(), 0);
  EXPECT_EQ(a.data, nullptr);
  EXPECT_TRUE(a.is_contiguous());
}

TEST(Array, OverflowingAndNegativeSizesAreErrors) {
  EXPECT_CONTAINS(error_of<ValueError>([] { empty_array(kFloat, {INT64_MAX, 2}); }), "[9223372036854775807, 2]");
  EXPECT_THROW(empty_array(kLong, {std::int64_t{1} << 61}), ValueError);
  EXPECT_THROW(empty_array(kFloat, {-1, 0}), ValueError);
  EXPECT_THROW(empty_array(kByte, {std::int64_t{1} << 60}), OutOfMemoryError);
  EXPECT_THROW(borrow_array(kByte, {1}, nullptr), ValueError);
}

TEST(Array, ValuesChecksTheType) {
  const Array a = empty_array(kFloat, {2});
  EXPECT_EQ(a.values<float>().size(), 2U);
  EXPECT_CONTAINS(error_of<TypeError>([&] { a.values<double>(); }), "expected values of float64, it holds float32");
}

TEST(Array, ContiguousCopiesStridedValues) {
  std::vector<std::int16_t> values(24);
  std::iota(values.begin(), values.end(), 0);
  Array a = borrow_array(kShort, {2, 3, 4}, values.data());
  EXPECT_EQ(contiguous(a).data, a.data);
  a.sizes = {4, 3, 2};
  a.strides = {1, 4, 12};
  EXPECT_FALSE(a.is_contiguous());
  EXPECT_THROW(a.values<std::int16_t>(), Error);
  const Array copy = contiguous(a);
  const auto out = copy.values<std::int16_t>();
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 2; ++k) EXPECT_EQ(out[(i * 3 + j) * 2 + k], i + 4 * j + 12 * k);
}

TEST(Array, BoolsOtherThanZeroAndOneAreReported) {
  std::uint8_t bytes[] = {0, 1, 7};
  check_bools(borrow_array(kBool, {2}, bytes), "x");
  EXPECT_CONTAINS(error_of([&] { check_bools(borrow_array(kBool, {3}, bytes), "f.npy"); }),
                  "f.npy: byte 2 of a bool array is 7");
}

TEST(Array, SwapBytesReversesEachItem) {
  auto bytes = bytes_of({1, 2, 3, 4, 5, 6, 7, 8});
  swap_bytes(bytes.data(), 4, 2);
  EXPECT_EQ(bytes, bytes_of({2, 1, 4, 3, 6, 5, 8, 7}));
  swap_bytes(bytes.data(), 2, 4);
  EXPECT_EQ(bytes, bytes_of({3, 4, 1, 2, 7, 8, 5, 6}));
  swap_bytes(bytes.data(), 1, 8);
  EXPECT_EQ(bytes, bytes_of({6, 5, 8, 7, 2, 1, 4, 3}));
  swap_bytes(bytes.data(), 8, 1);
  EXPECT_EQ(bytes, bytes_of({6, 5, 8, 7, 2, 1, 4, 3}));
}

}  // namespace athanor::io
