#include <gtest/gtest.h>

#include "index_util.h"

namespace athanor {
namespace {

using namespace testing;

void check_cat(DType t, const std::vector<Box>& inputs, std::int64_t dim, const Dims& out_sizes, int layout) {
  const auto d = static_cast<std::size_t>(dim);
  const Box out = make(t, out_sizes, layout);
  std::vector<View> views;
  for (const Box& b : inputs) views.push_back(b.view());
  call(cat_kernel, out.view(), ArrayRef<View>(views), dim);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    Dims at = coordinates(out_sizes, i);
    std::size_t k = 0;
    while (inputs[k].numel() == 0 || at[d] >= inputs[k].sizes()[d]) {
      if (inputs[k].numel() != 0) at[d] -= inputs[k].sizes()[d];
      ++k;
    }
    ASSERT_EQ(out.get(i), inputs[k].get(position(inputs[k].sizes(), at))) << "element " << i;
  }
}

TEST(Cat, JoinsAlongAnyDim) {
  for (DType t : kAllDTypes)
    for (int layout : {0, 1, 2})
      for (std::int64_t dim : {0, 1, 2}) {
        std::vector<Box> inputs;
        Dims out_sizes{3, 4, 5};
        out_sizes[static_cast<std::size_t>(dim)] = 0;
        for (std::int64_t n : {2, 0, 1, 7}) {
          Dims sizes{3, 4, 5};
          sizes[static_cast<std::size_t>(dim)] = n;
          out_sizes[static_cast<std::size_t>(dim)] += n;
          inputs.push_back(values(t, sizes, layout, static_cast<unsigned>(n)));
        }
        check_cat(t, inputs, dim, out_sizes, 0);
        check_cat(t, inputs, dim, out_sizes, layout);
      }
}

TEST(Cat, ConvertsInputsAndSkipsEmptyVectors) {
  check_cat(kFloat, {values(kInt, {2, 3}, 0, 1), Box(kFloat, {0}), values(kHalf, {1, 3}, 0, 2)}, 0, {3, 3}, 0);
  check_cat(kFloat, {Box(kFloat, {0}), Box(kFloat, {0})}, 0, {0}, 0);
}

TEST(Cat, HandlesLargeInputsOnSeveralThreads) {
  with_thread_counts([](int) {
    check_cat(kFloat, {values(kFloat, {50000}, 0, 1), values(kFloat, {70001}, 0, 2)}, 0, {120001}, 0);
    check_cat(kFloat, {values(kFloat, {30, 5000}, 0, 1), values(kFloat, {30, 701}, 0, 2)}, 1, {30, 5701}, 0);
    check_cat(kByte, {values(kByte, {9000, 1}, 0, 1), values(kByte, {9000, 3}, 0, 2)}, 1, {9000, 4}, 0);
    std::vector<Box> columns;
    for (unsigned i = 0; i < 10; ++i) columns.push_back(values(kDouble, {5000, 1}, 0, i));
    check_cat(kDouble, columns, 1, {5000, 10}, 0);
  });
}

TEST(Cat, LargeResultsBypassTheCachesCorrectly) {
  const Box a = values(kInt, {3, 2000003}, 0, 1), b = values(kInt, {3, 1000001}, 0, 2), out(kInt, {3, 3000004});
  const std::vector<View> views{a.view(), b.view()};
  call(cat_kernel, out.view(), ArrayRef<View>(views), 1);
  for (std::int64_t r = 0; r < 3; ++r) {
    ASSERT_EQ(0, std::memcmp(out.at(r * 3000004), a.at(r * 2000003), 2000003 * 4));
    ASSERT_EQ(0, std::memcmp(out.at(r * 3000004 + 2000003), b.at(r * 1000001), 1000001 * 4));
  }
}

TEST(Cat, RefusesShapesThatDoNotFit) {
  const Box a(kFloat, {2, 3}), b(kFloat, {2, 4}), out(kFloat, {4, 3}), flat(kFloat, {3});
  const std::vector<View> wrong{a.view(), b.view()}, fewer{a.view()}, ranks{a.view(), flat.view()};
  EXPECT_THROW(call(cat_kernel, out.view(), ArrayRef<View>(wrong), 0), Error);
  EXPECT_THROW(call(cat_kernel, out.view(), ArrayRef<View>(fewer), 0), Error);
  EXPECT_THROW(call(cat_kernel, out.view(), ArrayRef<View>(ranks), 0), Error);
}

TEST(Flip, ReversesTheGivenDims) {
  for (DType t : kAllDTypes)
    for (int layout : {0, 1, 2})
      for (const Dims& sizes : {Dims{3, 4, 50}, Dims{2, 1, 16}, Dims{5, 6, 1}, Dims{2, 0, 3}})
        for (const Dims& dims : {Dims{}, Dims{0}, Dims{2}, Dims{1, 2}, Dims{0, 1, 2}}) {
          const Box in = values(t, sizes, layout, 1), out = make(t, sizes, layout == 1 ? 0 : layout);
          call(flip_kernel, out.view(), in.view(), IntArrayRef(dims));
          for (std::int64_t i = 0; i < out.numel(); ++i) {
            Dims at = coordinates(sizes, i);
            for (auto d : dims)
              at[static_cast<std::size_t>(d)] =
                  sizes[static_cast<std::size_t>(d)] - 1 - at[static_cast<std::size_t>(d)];
            ASSERT_EQ(out.get(i), in.get(position(sizes, at)));
          }
        }
}

TEST(Roll, ShiftsAroundTheEnds) {
  for (DType t : {kByte, kFloat, kDouble})
    for (int layout : {0, 1, 2})
      for (std::int64_t shift : {0, 1, 3, 4, -1, 9, -23}) {
        const Dims sizes{4, 5, 3};
        const Box in = values(t, sizes, layout, 1), out = make(t, sizes, layout);
        call(roll_kernel, out.view(), in.view(), IntArrayRef({shift, 2, 1}), IntArrayRef({0, 2, 0}));
        for (std::int64_t i = 0; i < out.numel(); ++i) {
          Dims at = coordinates(sizes, i);
          at[0] = (at[0] - shift - 1 + 400) % 4;
          at[2] = (at[2] - 2 + 300) % 3;
          ASSERT_EQ(out.get(i), in.get(position(sizes, at)));
        }
      }
}

TEST(Roll, ShiftsOneDimOfRowsShortAndLong) {
  for (DType t : {kBool, kShort, kFloat, kDouble})
    for (int layout : {0, 1})
      for (const Dims& sizes : {Dims{3, 1}, Dims{50, 3}, Dims{4, 5, 3}, Dims{7, 300}, Dims{3, 5000}})
        for (std::size_t dim = 0; dim < sizes.size(); ++dim)
          for (std::int64_t shift : {1, -1, 2, 700, -700}) {
            const Box in = values(t, sizes, layout, 1), out = make(t, sizes, layout);
            call(roll_kernel, out.view(), in.view(), IntArrayRef({shift}),
                 IntArrayRef({static_cast<std::int64_t>(dim)}));
            for (std::int64_t i = 0; i < out.numel(); ++i) {
              Dims at = coordinates(sizes, i);
              at[dim] = ((at[dim] - shift) % sizes[dim] + sizes[dim]) % sizes[dim];
              ASSERT_EQ(out.get(i), in.get(position(sizes, at)));
            }
          }
}

TEST(Repeat, TilesTrailingDims) {
  for (DType t : {kShort, kFloat, kBool})
    for (int layout : {0, 1, 2}) {
      const Box in = values(t, {2, 3}, layout, 1), out = make(t, {2, 6, 3}, layout);
      call(repeat_kernel, out.view(), in.view());
      for (std::int64_t i = 0; i < out.numel(); ++i) {
        const Dims at = coordinates({2, 6, 3}, i);
        ASSERT_EQ(out.get(i), in.get(at[1] % 2 * 3 + at[2]));
      }
    }
  const Box one(kFloat, {}), many(kFloat, {5});
  call(repeat_kernel, many.view(), one.view());
  const Box odd(kFloat, {5}), two(kFloat, {2});
  EXPECT_THROW(call(repeat_kernel, odd.view(), two.view()), Error);
}

TEST(RepeatInterleave, RepeatsEachEntry) {
  Box repeats(kLong, {3});
  repeats.set(0, 2);
  repeats.set(2, 3);
  const std::int64_t from[] = {0, 0, 2, 2, 2};
  for (DType t : {kByte, kFloat}) {
    const Box in = values(t, {3, 4}, 1, 1), out(t, {5, 4});
    call(repeat_interleave_kernel, out.view(), in.view(), repeats.view(), 0);
    for (std::int64_t i = 0; i < 20; ++i) ASSERT_EQ(out.get(i), in.get(from[i / 4] * 4 + i % 4));
  }
  Box twice(kInt, {});
  twice.set(0, 2);
  const Box in = values(kFloat, {3, 4}, 0, 1), out(kFloat, {3, 8});
  call(repeat_interleave_kernel, out.view(), in.view(), twice.view(), 1);
  for (std::int64_t i = 0; i < 24; ++i) ASSERT_EQ(out.get(i), in.get(i / 8 * 4 + i % 8 / 2));
  for (std::int64_t v : {-1, 5, 3}) {
    repeats.set(0, v);
    EXPECT_THROW(call(repeat_interleave_kernel, Box(kFloat, {5, 4}).view(), in.view(), repeats.view(), 0), ValueError);
  }
}

TEST(Triangles, KeepTheirSideOfTheDiagonal) {
  for (DType t : kAllDTypes)
    for (int layout : {0, 1, 2})
      for (const Dims& sizes : {Dims{4, 4}, Dims{2, 3, 5}, Dims{5, 2}, Dims{0, 3}})
        for (std::int64_t diagonal :
             {std::int64_t{0}, std::int64_t{1}, std::int64_t{-2}, std::int64_t{9},
              std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()})
          for (bool in_place : {false, true})
            for (bool lower : {false, true}) {
              const Box in = values(t, sizes, layout, 1), before = clone(in), other = make(t, sizes, layout);
              const Box& out = in_place ? in : other;
              call(lower ? tril_kernel : triu_kernel, out.view(), in.view(), diagonal);
              for (std::int64_t i = 0; i < out.numel(); ++i) {
                const Dims at = coordinates(sizes, i);
                const double off = static_cast<double>(at[at.size() - 1] - at[at.size() - 2]);
                const bool kept = lower ? off <= static_cast<double>(diagonal) : off >= static_cast<double>(diagonal);
                ASSERT_EQ(out.get(i), kept ? before.get(i) : 0);
              }
            }
}

}  // namespace
}  // namespace athanor
