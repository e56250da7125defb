#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "athanor/base/parallel.h"
#include "athanor/ops/kernels/reduce.h"
#include "device_cpu/strided_array.h"

namespace athanor::reduce_arg_test {
namespace {

using testing::StridedArray;
using Shape = std::vector<std::int64_t>;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const DType kAll[] = {DType::Byte, DType::Char,  DType::Short,  DType::Int,  DType::Long,
                      DType::Half, DType::Float, DType::Double, DType::Bool, DType::BFloat16};

void arg_reduce(ArgReduceOp op, const View& values, const View& indices, const View& in, std::int64_t dim) {
  arg_reduce_kernel.get(DeviceType::CPU)(op, values, indices, in, dim);
}

bool better(ArgReduceOp op, double x, double best) {
  if (std::isnan(best)) return false;
  return std::isnan(x) || (op == ArgReduceOp::Max ? x > best : x < best);
}

void check(StridedArray& in, std::int64_t dim, const std::vector<int>& out_order = {}) {
  Shape reduced = in.sizes();
  if (!reduced.empty()) reduced[static_cast<std::size_t>(dim)] = 1;
  for (ArgReduceOp op : {ArgReduceOp::Max, ArgReduceOp::Min}) {
    StridedArray values(in.view().dtype, reduced, out_order, 1), indices(DType::Long, reduced, out_order);
    arg_reduce(op, values.view(), indices.view(), in.view(), dim);
    values.each_index([&](const Shape& index) {
      Shape at = index;
      double best = in.at(at);
      std::int64_t place = 0;
      for (std::int64_t i = 1; !at.empty() && i < in.sizes()[static_cast<std::size_t>(dim)]; ++i) {
        at[static_cast<std::size_t>(dim)] = i;
        if (better(op, in.at(at), best)) {
          best = in.at(at);
          place = i;
        }
      }
      ASSERT_EQ(indices.at(index), static_cast<double>(place)) << dtype_name(in.view().dtype);
      if (std::isnan(best))
        ASSERT_TRUE(std::isnan(values.at(index)));
      else
        ASSERT_EQ(values.at(index), best);
    });
    EXPECT_TRUE(values.margins_intact());
    EXPECT_TRUE(indices.margins_intact());
  }
}

TEST(ArgReduce, FindsTheFirstExtremeOfEveryDtypeAlongEveryDim) {
  struct Case {
    Shape sizes;
    std::vector<int> order;
    std::int64_t gap;
  };
  for (const auto& c : {Case{{}, {}, 0}, Case{{1}, {}, 0}, Case{{200}, {}, 0}, Case{{77}, {}, 2}, Case{{9, 33}, {}, 0},
                        Case{{33, 9}, {1, 0}, 0}, Case{{5, 70, 3}, {}, 0}, Case{{5, 70, 3}, {2, 0, 1}, 1},
                        Case{{60, 10}, {}, 0}, Case{{3, 5000}, {}, 0}, Case{{40, 600}, {}, 0}})
    for (DType t : kAll) {
      StridedArray in(t, c.sizes, c.order, c.gap);
      in.fill(17);
      for (std::size_t d = 0; d < std::max<std::size_t>(1, c.sizes.size()); ++d)
        check(in, static_cast<std::int64_t>(d));
    }
}

TEST(ArgReduce, TreatsNaNAsTheExtreme) {
  for (DType t : {DType::Float, DType::Double, DType::Half, DType::BFloat16})
    for (std::int64_t at : {0, 1, 40, 69}) {
      StridedArray in(t, {70, 70});
      in.fill(3).put({at, 2}, kNaN);
      in.put({at, 5}, kNaN);
      in.put({69, 2}, kNaN);
      in.put({at, 68}, kNaN);
      check(in, 0);
      check(in, 1);
    }
}

TEST(ArgReduce, TakesInfinitiesAndLowestValues) {
  const double inf = std::numeric_limits<double>::infinity();
  for (double v : {inf, -inf}) {
    StridedArray in(DType::Float, {4, 50});
    in.fill_with(v);
    check(in, 0);
    check(in, 1);
  }
  StridedArray low(DType::Char, {3, 100}), high(DType::Byte, {3, 100});
  low.fill_with(-128);
  high.fill_with(255);
  check(low, 1);
  check(high, 1);
  check(low, 0);
}

TEST(ArgReduce, CutsLongLinesAndDeepColumns) {
  for (DType t : {DType::Float, DType::Half, DType::Long})
    for (const Shape& sizes : {Shape{300000}, Shape{2, 200000}, Shape{50000, 12}, Shape{3000, 512}}) {
      StridedArray in(t, sizes);
      in.fill(29, 100);
      for (std::size_t d = 0; d < sizes.size(); ++d) check(in, static_cast<std::int64_t>(d));
    }
}

TEST(ArgReduce, DoesNotDependOnThreads) {
  const int before = get_num_threads();
  StridedArray in(DType::Int, {400000});
  in.fill(2);
  for (int threads : {1, 2, 7}) {
    set_num_threads(threads);
    check(in, 0);
  }
  set_num_threads(before);
}

TEST(ArgReduce, LeavesOutWhatIsNotAskedFor) {
  StridedArray in(DType::Float, {3, 20}), values(DType::Float, {3, 1}), indices(DType::Long, {3, 1});
  in.fill(6);
  StridedArray both_values(DType::Float, {3, 1}), both_indices(DType::Long, {3, 1});
  arg_reduce(ArgReduceOp::Max, both_values.view(), both_indices.view(), in.view(), 1);
  arg_reduce(ArgReduceOp::Max, values.view(), View{}, in.view(), -1);
  arg_reduce(ArgReduceOp::Max, View{}, indices.view(), in.view(), -1);
  EXPECT_EQ(values.values(), both_values.values());
  EXPECT_EQ(indices.values(), both_indices.values());
}

TEST(ArgReduce, RefusesAnEmptyDim) {
  StridedArray in(DType::Float, {3, 0}), out(DType::Float, {3, 1}), none(DType::Float, {1, 0});
  EXPECT_THROW(arg_reduce(ArgReduceOp::Max, out.view(), View{}, in.view(), 1), IndexError);
  EXPECT_NO_THROW(arg_reduce(ArgReduceOp::Max, none.view(), View{}, in.view(), 0));
}

}  // namespace
}  // namespace athanor::reduce_arg_test
