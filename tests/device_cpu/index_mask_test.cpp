#include <gtest/gtest.h>

#include <limits>

#include "index_util.h"

namespace athanor {
namespace {

using namespace testing;

TEST(MaskedFill, BroadcastsMaskAndInput) {
  for (DType t : kAllDTypes)
    for (int layout : {0, 1, 2})
      for (const Dims& mask_sizes : {Dims{3, 40}, Dims{40}, Dims{3, 1}, Dims{}})
        for (const Dims& in_sizes : {Dims{3, 40}, Dims{3, 1}, Dims{}}) {
          const Box in = values(t, in_sizes, layout, 1), mask = values(kBool, mask_sizes, layout, 2);
          const Box out = make(t, {3, 40}, layout);
          call(masked_fill_kernel, out.view(), in.view(), mask.view(), Scalar(1));
          for (std::int64_t i = 0; i < 120; ++i) {
            const bool chosen = mask.get(broadcast_index(mask_sizes, {3, 40}, i)) != 0;
            ASSERT_EQ(out.get(i), chosen ? 1 : in.get(broadcast_index(in_sizes, {3, 40}, i)));
          }
        }
}

TEST(MaskedFill, WorksInPlaceOnLargeTensors) {
  with_thread_counts([](int) {
    const Box x = values(kFloat, {70001}, 0, 1), mask = values(kBool, {70001}, 0, 2), before = clone(x);
    call(masked_fill_kernel, x.view(), x.view(), mask.view(), Scalar(-std::numeric_limits<double>::infinity()));
    for (std::int64_t i = 0; i < x.numel(); ++i)
      ASSERT_EQ(x.get(i), mask.get(i) != 0 ? -std::numeric_limits<double>::infinity() : before.get(i));
  });
}

void check_select(DType t, const Dims& in_sizes, const Dims& mask_sizes, const Dims& shape, int layout) {
  const Box in = values(t, in_sizes, layout, 1), mask = values(kBool, mask_sizes, layout, 2);
  std::vector<std::int64_t> chosen;
  const std::int64_t numel = Box(kByte, shape).numel();
  for (std::int64_t i = 0; i < numel; ++i)
    if (mask.get(broadcast_index(mask_sizes, shape, i)) != 0) chosen.push_back(i);
  const Box out = make(t, {static_cast<std::int64_t>(chosen.size())}, layout);
  call(masked_select_kernel, out.view(), in.view(), mask.view());
  for (std::size_t k = 0; k < chosen.size(); ++k)
    ASSERT_EQ(out.get(static_cast<std::int64_t>(k)), in.get(broadcast_index(in_sizes, shape, chosen[k])));
}

TEST(MaskedSelect, KeepsRowMajorOrder) {
  for (DType t : kAllDTypes)
    for (int layout : {0, 1, 2}) {
      check_select(t, {7, 30}, {7, 30}, {7, 30}, layout);
      check_select(t, {30}, {7, 1}, {7, 30}, layout);
      check_select(t, {}, {}, {}, layout);
      check_select(t, {0}, {0}, {0}, layout);
      check_select(t, {1003}, {1003}, {1003}, layout);
    }
  with_thread_counts([](int) { check_select(kFloat, {300, 700}, {300, 700}, {300, 700}, 0); });
}

TEST(MaskedSelect, RefusesAResultOfTheWrongSize) {
  Box mask(kBool, {3});
  mask.set(1, true);
  const Box in(kFloat, {3}), out(kFloat, {2});
  EXPECT_THROW(call(masked_select_kernel, out.view(), in.view(), mask.view()), Error);
}

TEST(MaskedScatter, TakesSourceElementsInOrder) {
  for (DType t : kAllDTypes)
    for (int layout : {0, 1, 2})
      for (const Dims& mask_sizes : {Dims{5, 31}, Dims{31}, Dims{5, 1}}) {
        const Box out = values(t, {5, 31}, layout, 1), mask = values(kBool, mask_sizes, layout, 2);
        const Box source = values(t, {155}, layout, 3);
        Box want = clone(out);
        std::int64_t k = 0;
        for (std::int64_t i = 0; i < 155; ++i)
          if (mask.get(broadcast_index(mask_sizes, {5, 31}, i)) != 0) want.set(i, source.get(k++));
        call(masked_scatter_kernel, out.view(), mask.view(), source.view());
        expect_same(out, want);
      }
}

TEST(MaskedScatter, RefusesAShortSourceBeforeWriting) {
  Box out(kFloat, {4}), mask(kBool, {4}), source(kFloat, {2});
  mask.fill([](std::int64_t) { return true; });
  source.fill([](std::int64_t) { return 5; });
  EXPECT_THROW(call(masked_scatter_kernel, out.view(), mask.view(), source.view()), Error);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(out.get(i), 0);
}

void check_nonzero(const Box& in) {
  std::vector<Dims> want;
  for (std::int64_t i = 0; i < in.numel(); ++i)
    if (in.get(i) != 0) want.push_back(coordinates(in.sizes(), i));
  const auto n = static_cast<std::int64_t>(want.size()), dims = static_cast<std::int64_t>(in.sizes().size());
  const Box count(kLong, {});
  call(nonzero_count_kernel, count.view(), in.view());
  ASSERT_EQ(count.get_int(0), n);
  for (int layout : {0, 1}) {
    const Box out = make(kLong, {n, dims}, layout);
    call(nonzero_kernel, out.view(), in.view());
    for (std::int64_t r = 0; r < n; ++r)
      for (std::int64_t d = 0; d < dims; ++d)
        ASSERT_EQ(out.get_int(r * dims + d), want[static_cast<std::size_t>(r)][static_cast<std::size_t>(d)]);
  }
}

TEST(Nonzero, ListsCoordinatesOfEveryDType) {
  for (DType t : kAllDTypes)
    for (int layout : {0, 1, 2})
      for (const Dims& sizes : {Dims{}, Dims{0}, Dims{1000}, Dims{7, 90}, Dims{3, 1, 5, 2}, Dims{4, 0, 2}})
        check_nonzero(values(t, sizes, layout, 3));
  with_thread_counts([](int) { check_nonzero(values(kBool, {500, 400}, 0, 3)); });
}

TEST(Nonzero, CountsLongRunsOfTrue) {
  for (DType t : {kBool, kByte, kFloat}) {
    Box in(t, {100003});
    in.fill([](std::int64_t) { return 1; });
    check_nonzero(in);
  }
}

TEST(Nonzero, CountsNanButNotNegativeZero) {
  for (DType t : {kFloat, kDouble, kHalf, kBFloat16}) {
    Box in(t, {3});
    in.set(0, -0.0);
    in.set(1, std::numeric_limits<double>::quiet_NaN());
    const Box count(kLong, {1});
    call(nonzero_count_kernel, count.view(), in.view());
    EXPECT_EQ(count.get_int(0), 1);
  }
}

}  // namespace
}  // namespace athanor
