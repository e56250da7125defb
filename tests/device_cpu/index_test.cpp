#include <gtest/gtest.h>

#include <limits>

#include "index_util.h"

namespace athanor {
namespace {

using namespace testing;

constexpr DType kIndexTypes[] = {kLong, kInt};

// ---- index_select, index_copy, index_fill, embedding ---------------------------------------------------------------

void check_index_select(DType t, DType index_type, const Dims& sizes, std::int64_t dim, std::int64_t n, int layout) {
  const Box in = values(t, sizes, layout, 1);
  const std::int64_t bound = sizes.empty() ? 1 : sizes[static_cast<std::size_t>(dim)];
  const Box index = indices(index_type, {n}, layout, 0, bound, 2);
  Dims out_sizes = sizes;
  if (!sizes.empty()) out_sizes[static_cast<std::size_t>(dim)] = n;
  const Box out = make(t, out_sizes, layout), want(t, out_sizes);
  for (std::int64_t i = 0; i < want.numel(); ++i) {
    Dims at = coordinates(out_sizes, i);
    if (!sizes.empty()) {
      const auto d = static_cast<std::size_t>(dim);
      at[d] = index.get_int(at[d]);
    }
    std::memcpy(want.at(i), in.at(position(sizes, at)), item_size(t));
  }
  call(index_select_kernel, out.view(), in.view(), index.view(), dim);
  expect_same(out, want);
}

TEST(IndexSelect, TakesEntriesAlongAnyDimOfAnyDType) {
  for (DType t : kAllDTypes)
    for (DType index_type : kIndexTypes)
      for (int layout : {0, 1, 2})
        for (std::int64_t dim : {0, 1, 2}) {
          SCOPED_TRACE(::testing::Message() << dtype_name(t) << " layout " << layout << " dim " << dim);
          check_index_select(t, index_type, {5, 4, 6}, dim, 9, layout);
        }
}

TEST(IndexSelect, HandlesRowsOfEveryWidth) {
  for (DType t : {kByte, kShort, kFloat, kDouble})
    for (std::int64_t width : {1, 2, 3, 4, 7, 8, 16, 31, 33, 300})
      for (int layout : {0, 2}) check_index_select(t, kLong, {50, width}, 0, 700, layout);
}

TEST(IndexSelect, HandlesLargeInputsOnSeveralThreads) {
  with_thread_counts([](int) {
    check_index_select(kFloat, kLong, {3000}, 0, 40000, 0);
    check_index_select(kFloat, kLong, {300, 200}, 0, 500, 0);
    check_index_select(kFloat, kInt, {300, 200}, 1, 300, 0);
    check_index_select(kHalf, kInt, {3, 20000}, 1, 30000, 1);
  });
}

TEST(IndexSelect, AcceptsScalarsAndNoIndices) {
  check_index_select(kFloat, kLong, {}, 0, 1, 0);
  check_index_select(kFloat, kLong, {5, 4}, 0, 0, 0);
  check_index_select(kFloat, kLong, {5, 0}, 0, 3, 0);
}

TEST(IndexSelect, NamesTheFirstIndexOutOfRange) {
  with_thread_counts([](int) {
    const Box in(kFloat, {5, 2}), out(kFloat, {40000, 2});
    for (std::int64_t wrong : {std::int64_t{7}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(),
                               std::numeric_limits<std::int64_t>::max()}) {
      Box index(kLong, {40000});
      index.set(12000, wrong);
      index.set(39999, 99);
      EXPECT_EQ(message_of<IndexError>([&] { call(index_select_kernel, out.view(), in.view(), index.view(), 0); }),
                "index_select: index " + std::to_string(wrong) + " is out of bounds for dimension 0 with size 5");
    }
  });
}

TEST(IndexSelect, RefusesIndicesIntoNothing) {
  const Box in(kFloat, {0, 3}), out(kFloat, {1, 3}), index(kLong, {1});
  EXPECT_THROW(call(index_select_kernel, out.view(), in.view(), index.view(), 0), IndexError);
  const Box empty_in(kFloat, {0, 0}), empty_out(kFloat, {1, 0});
  EXPECT_THROW(call(index_select_kernel, empty_out.view(), empty_in.view(), index.view(), 0), IndexError);
  const Box float_index(kFloat, {1}), some(kFloat, {3, 3});
  EXPECT_THROW(call(index_select_kernel, out.view(), some.view(), float_index.view(), 0), IndexError);
}

TEST(IndexCopy, KeepsTheLastOfRepeatedIndices) {
  with_thread_counts([](int) {
    for (std::int64_t width : {std::int64_t{1}, std::int64_t{3}, std::int64_t{400}})
      for (std::int64_t rows : {std::int64_t{7}, std::int64_t{3000000} / width}) {
        const std::int64_t n = 40000 / width + 5;
        Box out = values(kInt, {rows, width}, 0, 1);
        const Box want = clone(out), index = indices(kLong, {n}, 0, 0, rows, 2);
        Box source(kInt, {n, width});
        source.fill([](std::int64_t i) { return i; });
        for (std::int64_t i = 0; i < source.numel(); ++i)
          std::memcpy(want.at(index.get_int(i / width) * width + i % width), source.at(i), 4);
        call(index_copy_kernel, out.view(), index.view(), source.view(), 0);
        for (std::int64_t i = 0; i < out.numel(); ++i)
          if (out.get_int(i) != want.get_int(i)) FAIL() << "element " << i << " of width " << width;
      }
  });
}

TEST(IndexFill, WrapsNegativeIndicesAndChecksBeforeWriting) {
  for (DType t : kAllDTypes)
    for (int layout : {0, 1, 2}) {
      const Box out = values(t, {4, 5, 3}, layout, 1), want = clone(out);
      Box index(kLong, {2});
      index.set(0, -1);
      index.set(1, 1);
      for (std::int64_t i = 0; i < want.numel(); ++i) {
        const auto at = coordinates({4, 5, 3}, i);
        if (at[1] == 4 || at[1] == 1) const_cast<Box&>(want).set(i, 1);
      }
      call(index_fill_kernel, out.view(), index.view(), Scalar(1), 1);
      expect_same(out, want);
      index.set(1, -6);
      EXPECT_THROW(call(index_fill_kernel, out.view(), index.view(), Scalar(0), 1), IndexError);
      expect_same(out, want);
    }
}

TEST(Embedding, LooksUpRowsForIndicesOfAnyShape) {
  for (DType t : {kFloat, kBFloat16, kDouble})
    for (int layout : {0, 1}) {
      const Box weight = values(t, {11, 5}, layout, 1), index = indices(kLong, {3, 4}, layout, 0, 11, 2);
      const Box out(t, {3, 4, 5});
      call(embedding_kernel, out.view(), weight.view(), index.view());
      for (std::int64_t i = 0; i < out.numel(); ++i)
        ASSERT_EQ(out.get(i), weight.get(index.get_int(i / 5) * 5 + i % 5));
    }
  Box index(kLong, {2});
  index.set(1, -1);
  const Box weight(kFloat, {3, 2}), out(kFloat, {2, 2});
  EXPECT_THROW(call(embedding_kernel, out.view(), weight.view(), index.view()), IndexError);
}

// ---- gather
// ----------------------------------------------------------------------------------------------------------

void check_gather(DType t, DType index_type, const Dims& sizes, const Dims& index_sizes, std::int64_t dim, int layout) {
  const auto d = static_cast<std::size_t>(dim);
  const Box in = values(t, sizes, layout, 3), index = indices(index_type, index_sizes, layout, 0, sizes[d], 4);
  const Box out = make(t, index_sizes, layout), want(t, index_sizes);
  for (std::int64_t i = 0; i < want.numel(); ++i) {
    Dims at = coordinates(index_sizes, i);
    at[d] = index.get_int(i);
    std::memcpy(want.at(i), in.at(position(sizes, at)), item_size(t));
  }
  call(gather_kernel, out.view(), in.view(), index.view(), dim);
  expect_same(out, want);
}

TEST(Gather, FollowsItsDefinition) {
  for (DType t : kAllDTypes)
    for (DType index_type : kIndexTypes)
      for (int layout : {0, 1, 2})
        for (std::int64_t dim : {0, 1, 2}) {
          SCOPED_TRACE(::testing::Message() << dtype_name(t) << " layout " << layout << " dim " << dim);
          check_gather(t, index_type, {5, 4, 6}, {5, 4, 6}, dim, layout);
          Dims longer{3, 4, 1};
          longer[static_cast<std::size_t>(dim)] = 13;
          check_gather(t, index_type, {5, 4, 6}, longer, dim, layout);
        }
}

TEST(Gather, HandlesLargeInputsOnSeveralThreads) {
  with_thread_counts([](int) {
    check_gather(kFloat, kLong, {50000}, {70000}, 0, 0);
    check_gather(kFloat, kLong, {20000, 10}, {20000, 1}, 1, 0);
    check_gather(kFloat, kLong, {20000, 10}, {20000, 3}, 1, 0);
    check_gather(kFloat, kInt, {10, 9000}, {20, 9000}, 0, 0);
    check_gather(kByte, kInt, {10, 9000}, {10, 9000}, 0, 1);
  });
}

TEST(Gather, AcceptsScalarsAndEmptyIndices) {
  Box in(kFloat, {}), out(kFloat, {}), index(kLong, {});
  in.set(0, 5);
  call(gather_kernel, out.view(), in.view(), index.view(), 0);
  EXPECT_EQ(out.get(0), 5);
  check_gather(kFloat, kLong, {5, 4}, {0, 4}, 0, 0);
  index.set(0, 1);
  EXPECT_THROW(call(gather_kernel, out.view(), in.view(), index.view(), 0), Error);
}

// ---- advanced indexing
// -----------------------------------------------------------------------------------------------

/// Base coordinates of element i of x[indices].
Dims advanced_coordinates(const Dims& sizes, const std::vector<const Box*>& index, const Dims& shape, std::int64_t i) {
  std::size_t first = index.size(), last = 0, count = 0;
  Dims points;
  for (std::size_t d = 0; d < index.size(); ++d) {
    if (!index[d]) continue;
    first = std::min(first, d);
    last = d;
    ++count;
    const Dims& s = index[d]->sizes();
    if (points.size() < s.size()) points.insert(points.begin(), s.size() - points.size(), 1);
    for (std::size_t k = 1; k <= s.size(); ++k)
      points[points.size() - k] = std::max(points[points.size() - k], s[s.size() - k]);
    for (std::size_t k = 1; k <= s.size(); ++k)
      if (s[s.size() - k] == 0) points[points.size() - k] = 0;
  }
  const bool adjacent = last - first + 1 == count;
  const std::size_t points_at = adjacent ? first : 0;
  const Dims at = coordinates(shape, i);
  const Dims point(at.begin() + static_cast<std::ptrdiff_t>(points_at),
                   at.begin() + static_cast<std::ptrdiff_t>(points_at + points.size()));
  Dims rest(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(points_at));
  rest.insert(rest.end(), at.begin() + static_cast<std::ptrdiff_t>(points_at + points.size()), at.end());
  Dims base(sizes.size());
  std::size_t r = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (d < index.size() && index[d]) {
      const std::int64_t v = index[d]->get_int(broadcast_index(index[d]->sizes(), points, position(points, point)));
      base[d] = v < 0 ? v + sizes[d] : v;
    } else {
      base[d] = rest[r++];
    }
  }
  return base;
}

std::vector<View> views_of(const std::vector<const Box*>& index) {
  std::vector<View> views;
  for (const Box* b : index) views.push_back(b ? b->view() : View{});
  return views;
}

Dims shape_of(const Dims& sizes, const std::vector<View>& views) { return index_shape(sizes, views).vec(); }

void check_index(DType t, const Dims& sizes, const std::vector<const Box*>& index, int layout) {
  const auto views = views_of(index);
  const Dims shape = shape_of(sizes, views);
  const Box in = values(t, sizes, layout, 5), out = make(t, shape, layout), want(t, shape);
  for (std::int64_t i = 0; i < want.numel(); ++i)
    std::memcpy(want.at(i), in.at(position(sizes, advanced_coordinates(sizes, index, shape, i))), item_size(t));
  call(index_kernel, out.view(), in.view(), ArrayRef<View>(views));
  expect_same(out, want);
}

TEST(AdvancedIndex, ShapesFollowTheAdjacencyRule) {
  const Box a(kLong, {2, 1}), b(kLong, {3});
  EXPECT_EQ(shape_of({4, 5, 6, 7}, views_of({&a, &b})), (Dims{2, 3, 6, 7}));
  EXPECT_EQ(shape_of({4, 5, 6, 7}, views_of({nullptr, &a, &b})), (Dims{4, 2, 3, 7}));
  EXPECT_EQ(shape_of({4, 5, 6, 7}, views_of({&a, nullptr, &b})), (Dims{2, 3, 5, 7}));
  EXPECT_EQ(shape_of({4, 5, 6, 7}, views_of({nullptr, &b, nullptr, &a})), (Dims{2, 3, 4, 6}));
  EXPECT_EQ(shape_of({4, 5}, views_of({})), (Dims{4, 5}));
  EXPECT_THROW(shape_of({4}, views_of({&a, &b})), IndexError);
  const Box c(kLong, {4});
  EXPECT_THROW(shape_of({4, 5}, views_of({&b, &c})), IndexError);
}

TEST(AdvancedIndex, ReadsAnyMixOfIndexedAndWholeDims) {
  for (DType t : {kByte, kHalf, kFloat, kDouble, kBool})
    for (int layout : {0, 1, 2}) {
      const Box a = indices(kLong, {2, 1}, layout, -4, 4, 6), b = indices(kInt, {3}, layout, -3, 3, 7);
      const Box scalar = indices(kLong, {}, 0, -3, 3, 8), none(kLong, {0});
      const Dims sizes{4, 5, 3, 4};
      for (const auto& index : std::vector<std::vector<const Box*>>{{&a},
                                                                    {nullptr, &a},
                                                                    {nullptr, nullptr, &b},
                                                                    {nullptr, nullptr, nullptr, &a},
                                                                    {&a, &b},
                                                                    {&a, nullptr, &b},
                                                                    {nullptr, &a, &b},
                                                                    {&b, nullptr, nullptr, &a},
                                                                    {&a, &b, &b, &a},
                                                                    {&scalar},
                                                                    {nullptr, &scalar, &a},
                                                                    {&none},
                                                                    {nullptr, &none},
                                                                    {&scalar, nullptr, &scalar}})
        check_index(t, sizes, index, layout);
    }
}

TEST(AdvancedIndex, HandlesLargeInputsOnSeveralThreads) {
  with_thread_counts([](int) {
    const Box rows = indices(kLong, {30000}, 0, -100, 100, 1), columns = indices(kLong, {30000}, 0, 0, 50, 2);
    check_index(kFloat, {100, 50}, {&rows, &columns}, 0);
    const Box few = indices(kLong, {37}, 0, 0, 50, 3);
    check_index(kFloat, {1000, 50}, {nullptr, &few}, 0);
    check_index(kFloat, {50, 1000}, {&few}, 0);
    check_index(kFloat, {30, 50, 40}, {nullptr, &few}, 1);
  });
}

TEST(AdvancedIndex, NamesDimAndSizeOfAWrongIndex) {
  Box a(kLong, {2}), b(kLong, {2});
  b.set(1, 5);
  const Box in(kFloat, {3, 5}), out(kFloat, {2});
  const auto views = views_of({&a, &b});
  EXPECT_EQ(message_of<IndexError>([&] { call(index_kernel, out.view(), in.view(), ArrayRef<View>(views)); }),
            "index 5 is out of bounds for dimension 1 with size 5");
  b.set(1, -6);
  EXPECT_EQ(message_of<IndexError>([&] { call(index_kernel, out.view(), in.view(), ArrayRef<View>(views)); }),
            "index -6 is out of bounds for dimension 1 with size 5");
}

TEST(IndexPut, WritesAndBroadcastsValues) {
  for (DType t : kAllDTypes)
    for (int layout : {0, 1, 2})
      for (bool accumulate : {false, true}) {
        const Box a = indices(kLong, {2, 1}, layout, -4, 4, 6), b = indices(kLong, {3}, layout, 0, 3, 7);
        const Dims sizes{4, 5, 3};
        for (const auto& index : std::vector<std::vector<const Box*>>{{&a}, {&a, nullptr, &b}, {nullptr, &a, &b}}) {
          const auto views = views_of(index);
          const Dims shape = shape_of(sizes, views);
          for (const Dims& value_sizes : {Dims{}, Dims{shape.back()}, shape}) {
            const Box out = values(t, sizes, layout, 8), source = values(t, value_sizes, layout, 9);
            Box want = clone(out);
            for (std::int64_t i = 0; i < Box(kByte, shape).numel(); ++i) {
              const std::int64_t to = position(sizes, advanced_coordinates(sizes, index, shape, i));
              const double v = source.get(broadcast_index(value_sizes, shape, i));
              want.set(to, accumulate ? (t == kBool ? double(want.get(to) != 0 || v != 0) : want.get(to) + v) : v);
            }
            call(index_put_kernel, out.view(), source.view(), ArrayRef<View>(views), accumulate);
            expect_same(out, want);
          }
        }
      }
}

TEST(IndexPut, ChecksBeforeWriting) {
  Box a(kLong, {3});
  a.set(2, 9);
  Box out(kFloat, {4});
  Box source(kFloat, {3});
  source.fill([](std::int64_t) { return 1; });
  const auto views = views_of({&a});
  for (bool accumulate : {false, true}) {
    EXPECT_THROW(call(index_put_kernel, out.view(), source.view(), ArrayRef<View>(views), accumulate), IndexError);
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(out.get(i), 0);
  }
  const Box wrong_shape(kFloat, {2});
  a.set(2, 0);
  EXPECT_THROW(call(index_put_kernel, out.view(), wrong_shape.view(), ArrayRef<View>(views), false), Error);
}

// ---- take, put
// -------------------------------------------------------------------------------------------------------

TEST(TakeAndPut, UseFlatPositionsWhateverTheLayout) {
  for (DType t : {kByte, kHalf, kFloat, kLong})
    for (int layout : {0, 1, 2}) {
      const Box in = values(t, {4, 5}, layout, 1), index = indices(kLong, {3, 2}, layout, -20, 20, 2);
      const Box out = make(t, {3, 2}, layout);
      call(take_kernel, out.view(), in.view(), index.view());
      for (std::int64_t i = 0; i < 6; ++i) ASSERT_EQ(out.get(i), in.get((index.get_int(i) + 20) % 20));
      for (bool accumulate : {false, true}) {
        const Box to = values(t, {4, 5}, layout, 3), source = values(t, {3, 2}, layout, 4);
        Box want = clone(to);
        for (std::int64_t i = 0; i < 6; ++i) {
          const std::int64_t at = (index.get_int(i) + 20) % 20;
          want.set(at, source.get(i) + (accumulate ? want.get(at) : 0));
        }
        call(put_kernel, to.view(), index.view(), source.view(), accumulate);
        expect_same(to, want);
      }
    }
  const Box in(kFloat, {2, 5}), out(kFloat, {1});
  Box index(kLong, {1});
  index.set(0, 77);
  EXPECT_EQ(message_of<IndexError>([&] { call(take_kernel, out.view(), in.view(), index.view()); }),
            "take: out of range: tried to access index 77 on a tensor of 10 elements.");
}

}  // namespace
}  // namespace athanor
