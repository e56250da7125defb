#include "athanor/ops/kernels/matmul.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>
#include <utility>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/gemm_amx.h"
#include "athanor/device/cpu/gemm_pairs.h"
#include "athanor/device/cpu/onednn.h"
#include "each_target.h"
#include "strided_array.h"

namespace athanor::matmul_test {
namespace {

using testing::on_each_target;
using testing::StridedArray;
using testing::wrapped;

const View kNone{};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void run_gemm(StridedArray& out, StridedArray& a, StridedArray& b, StridedArray* bias, Scalar alpha, Scalar beta) {
  gemm_kernel.get(kCPU)(out.view(), a.view(), b.view(), bias ? bias->view() : kNone, alpha, beta);
}

/// What a result near `want` may be off: half types round once, the sums of `k` products grow their error with k.
double tolerance(DType t, std::int64_t k, double want) {
  const double n = 4 + static_cast<double>(k);
  if (is_integral(t)) return 0;
  if (t == DType::Double) return 1e-15 * n;
  const double rounding = t == DType::Half ? 5e-4 : t == DType::BFloat16 ? 4e-3 : 0;
  return rounding * (std::fabs(want) + .01) + 6e-8 * n;
}

/// Element (i, j) of alpha · a @ b + beta · bias, in double or exact integers.
double expected(const StridedArray& a, const StridedArray& b, std::int64_t i, std::int64_t j, double alpha,
                double bias_term, DType t) {
  const std::int64_t k = a.sizes()[1];
  double sum = 0;
  for (std::int64_t p = 0; p < k; ++p) sum += a.at({i, p}) * b.at({p, j});
  const double value = alpha * sum + bias_term;
  return is_integral(t) ? wrapped(static_cast<std::int64_t>(value), t) : value;
}

struct Shape {
  std::int64_t m, n, k;
};

void check(DType t, Shape s, std::vector<int> order_a, std::vector<int> order_b, std::vector<int> order_c,
           std::int64_t gap = 0, double alpha = 1, double beta = 0) {
  SCOPED_TRACE(::testing::Message() << dtype_name(t) << " " << s.m << "x" << s.n << "x" << s.k << " orders "
                                    << order_a[0] << order_b[0] << order_c[0] << " gap " << gap << " beta " << beta);
  StridedArray a(t, {s.m, s.k}, order_a, gap), b(t, {s.k, s.n}, order_b, gap), c(t, {s.m, s.n}, order_c, gap);
  StridedArray bias(t, {s.m, s.n});
  a.fill(1), b.fill(2), c.fill_with(3), bias.fill(3);
  run_gemm(c, a, b, beta != 0 ? &bias : nullptr, Scalar(alpha), Scalar(beta));
  EXPECT_TRUE(c.margins_intact());
  // All of a small result, a sample of a large one.
  const std::int64_t step_i = s.m > 40 ? 7 : 1, step_j = s.n > 40 ? 5 : 1;
  for (std::int64_t i = 0; i < s.m; i += step_i)
    for (std::int64_t j = 0; j < s.n; j += step_j) {
      const double want = expected(a, b, i, j, alpha, beta != 0 ? beta * bias.at({i, j}) : 0, t);
      ASSERT_NEAR(c.at({i, j}), want, 4 * tolerance(t, s.k, want)) << "at " << i << ", " << j;
    }
}

constexpr DType kAll[] = {DType::Float, DType::Double, DType::BFloat16, DType::Half, DType::Byte,
                          DType::Char,  DType::Short,  DType::Int,      DType::Long};

TEST(Gemm, EveryDtypeAndOrderOverOddShapes) {
  const Shape shapes[] = {{1, 1, 1},    {3, 5, 7},    {1, 33, 19},   {17, 1, 40},  {14, 32, 9},
                          {15, 31, 33}, {29, 65, 70}, {33, 47, 130}, {64, 10, 128}};
  for (DType t : kAll)
    for (const Shape& s : shapes)
      for (int orders = 0; orders < 8; ++orders) {
        auto order = [&](int bit) { return orders & bit ? std::vector<int>{1, 0} : std::vector<int>{0, 1}; };
        check(t, s, order(1), order(2), order(4));
      }
}

TEST(Gemm, SpansSeveralBlocksOfEveryDimension) {
  for (DType t : {DType::Float, DType::Double, DType::Int, DType::Half, DType::BFloat16}) {
    check(t, {350, 70, 700}, {0, 1}, {0, 1}, {0, 1});
    check(t, {37, 600, 650}, {1, 0}, {1, 0}, {0, 1});
    check(t, {9, 2100, 330}, {0, 1}, {0, 1}, {0, 1});
    check(t, {45, 1300, 520}, {0, 1}, {0, 1}, {0, 1});  // one stripe: blocks of b take turns in one place
    check(t, {530, 520, 40}, {0, 1}, {1, 0}, {1, 0});
  }
}

TEST(Gemm, TilesOfEveryHeightPackWhatTheyReadFirst) {
  // Of 12, 13 and 14 rows and of two heights; a packed, or read where it is; a narrow last panel of b or none.
  for (const DType t : {DType::Float, DType::Double})
    for (const std::int64_t m : {72, 78, 84, 75, 130})
      for (const std::int64_t n : {70, 96, 330})
        for (const std::int64_t k : {130, 700}) {
          check(t, {m, n, k}, {1, 0}, {0, 1}, {0, 1});
          check(t, {m, n, k}, {1, 0}, {0, 1}, {0, 1}, 0, 1, 3);
          check(t, {m, n, k}, {0, 1}, {0, 1}, {0, 1}, 0, 1, 3);
          check(t, {m, n, k}, {1, 0}, {1, 0}, {0, 1});
        }
  check(DType::Float, {130, 512, 300}, {1, 0}, {0, 1}, {0, 1});  // rows of b 2048 bytes apart
}

TEST(Gemm, FewRowsMeetPanelsThatArePackedInTurn) {
  // One block of steps or several; rows and columns of b in one piece; a packed, or read where it is; narrow last
  // panels. On one thread: how much of b a thread has decides.
  const int before = get_num_threads();
  set_num_threads(1);
  on_each_target([] {
    for (const DType t : {DType::Float, DType::Double})
      for (const std::int64_t m : {33, t == DType::Float ? 190 : 125})
        for (const auto& [n, k] : {std::pair{1100, 129}, {205, 700}, {460, 300}})
          for (const auto& b : {std::vector<int>{0, 1}, {1, 0}}) {
            check(t, {m, n, k}, {0, 1}, b, {0, 1});
            check(t, {m, n, k}, {1, 0}, b, {0, 1}, 0, 1, 3);
          }
  });
  set_num_threads(before);
}

TEST(Gemm, DotProductsOfTilesOfEveryHeightAndOfEveryLength) {
  // Of a few rows, or columns, by many; inner sizes of less than a vector, of whole ones and of parts.
  on_each_target([] {
    for (const DType t : {DType::Float, DType::Double, DType::BFloat16, DType::Half})
      for (const std::int64_t k : {1, 3, 7, 8, 9, 16, 21, 63, 200})
        for (const std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 11, 16})
          for (const std::int64_t n : {1, 2, 3, 4, 7, 18, 41, 66, 131})
            for (const auto& c : {std::vector<int>{0, 1}, {1, 0}}) {
              check(t, {m, n, k}, {0, 1}, {1, 0}, c);
              check(t, {n, m, k}, {0, 1}, {1, 0}, c, 0, 2, 3);
            }
  });
}

TEST(Gemm, SmallOperandsAreReadWhereTheyAre) {
  // Tiles of one to six rows and of four, two and one vectors of columns.
  for (const std::int64_t m : {15, 16, 20, 33, 64})
    for (const std::int64_t n : {64, 80, 96, 112, 128, 100})
      for (const std::int64_t k : {5, 16, 70, 200})
        for (const auto& a : {std::vector<int>{0, 1}, {1, 0}}) {
          check(DType::Float, {m, n, k}, a, {0, 1}, {0, 1});
          check(DType::Float, {m, n, k}, a, {0, 1}, {0, 1}, 0, 2, 1);
          check(DType::Float, {m, n, k}, a, {0, 1}, {0, 1}, 2);
          check(DType::Double, {m, n / 2, k}, a, {0, 1}, {0, 1});
        }
}

TEST(Gemm, SmallOperandsAreReadWhereTheyAreByThreadsThatShareColumns) {
  const int before = get_num_threads();
  for (const int threads : {3, 4, 5}) {
    set_num_threads(threads);
    for (const std::int64_t m : {37, 40, 48, 64})
      for (const std::int64_t n : {64, 80, 112})
        for (const DType t : {DType::Float, DType::Double}) check(t, {m, n, 512}, {1, 0}, {0, 1}, {0, 1});
  }
  set_num_threads(before);
}

TEST(Gemm, BlocksOfBfloat16OfEveryWidthAndHeight) {
  // Columns of one to four vectors, whole and in part; rows left over; inner sizes of a part of a step, of one, of
  // several, even and odd.
  for (const std::int64_t n : {10, 16, 20, 32, 40, 48, 64, 75, 90, 130})
    for (const std::int64_t m : {1, 3, 7, 8, 37, 66})
      for (const std::int64_t k : {4, 32, 75, 130, 300}) {
        check(DType::BFloat16, {m, n, k}, {0, 1}, {0, 1}, {0, 1});
        check(DType::BFloat16, {m, n, k}, {1, 0}, {1, 0}, {0, 1}, 0, 2, 1);
      }
  check(DType::BFloat16, {70, 1100, 520}, {0, 1}, {0, 1}, {0, 1});  // packed columns in two turns
}

TEST(Gemm, AcceptsGapsBetweenElements) {
  for (DType t : kAll) check(t, {21, 37, 18}, {0, 1}, {0, 1}, {0, 1}, 2);
}

TEST(Gemm, ScalesAndAddsABias) {
  for (DType t : kAll)
    for (const Shape& s : {Shape{5, 40, 12}, Shape{40, 7, 350}, Shape{1, 50, 64}}) {
      check(t, s, {0, 1}, {0, 1}, {0, 1}, 0, 2, 1);
      check(t, s, {0, 1}, {1, 0}, {0, 1}, 0, 1, 3);
      check(t, s, {1, 0}, {0, 1}, {1, 0}, 1, -1, 2);
    }
}

TEST(Gemm, InnerSizeZeroLeavesTheBias) {
  for (DType t : kAll) {
    StridedArray a(t, {3, 0}), b(t, {0, 70}), c(t, {3, 70}), bias(t, {3, 70});
    c.fill_with(9);
    run_gemm(c, a, b, nullptr, 1, 0);
    for (double v : c.values()) EXPECT_EQ(v, 0);
    bias.fill(4);
    run_gemm(c, a, b, &bias, 1, 2);
    c.each_index([&](const auto& i) {
      const double want = 2 * bias.at(i);
      EXPECT_EQ(c.at(i), is_integral(t) ? wrapped(static_cast<std::int64_t>(want), t) : want);
    });
  }
}

TEST(Gemm, EmptyResultIsNotTouched) {
  StridedArray a(DType::Float, {0, 4}), b(DType::Float, {4, 5}), c(DType::Float, {0, 5});
  run_gemm(c, a, b, nullptr, 1, 0);
  EXPECT_TRUE(c.margins_intact());
}

TEST(Gemm, BiasMayBeTheOutputItself) {
  for (DType t : kAll)
    for (std::int64_t k : {5, 700}) {
      StridedArray a(t, {20, k}), b(t, {k, 37}), c(t, {20, 37});
      a.fill(1), b.fill(2), c.fill(3);
      StridedArray before = c;
      run_gemm(c, a, b, &c, 1, 2);
      c.each_index([&](const auto& i) {
        const double want = expected(a, b, i[0], i[1], 1, 2 * before.at(i), t);
        ASSERT_NEAR(c.at(i), want, 4 * tolerance(t, k, want));
      });
    }
}

TEST(Gemm, BroadcastBiasAndOperands) {
  StridedArray a(DType::Float, {1, 9}), b(DType::Float, {9, 1}), row(DType::Float, {1, 35}), col(DType::Float, {18, 1});
  a.fill(1).broadcast(0, 18), b.fill(2).broadcast(1, 35), row.fill(3).broadcast(0, 18), col.fill(4).broadcast(1, 35);
  for (StridedArray* bias : {&row, &col}) {
    StridedArray c(DType::Float, {18, 35});
    run_gemm(c, a, b, bias, 1, 1);
    c.each_index(
        [&](const auto& i) { ASSERT_NEAR(c.at(i), expected(a, b, i[0], i[1], 1, bias->at(i), DType::Float), 1e-6); });
  }
}

TEST(Gemm, ABiasOfRowsOrColumnsIsAddedToTilesOfEveryKind) {
  on_each_target([] {
    for (const DType t : {DType::Float, DType::Double})
      for (const auto& [m, n, k] :
           {Shape{41, 70, 30}, {41, 70, 300}, {130, 460, 300}, {12, 300, 20}, {41, 1077, 300}, {41, 2101, 129}}) {
        StridedArray a(t, {m, k}), b(t, {k, n}), row(t, {1, n}), col(t, {m, 1});
        a.fill(1), b.fill(2), row.fill(3).broadcast(0, m), col.fill(4).broadcast(1, n);
        for (StridedArray* bias : {&row, &col}) {
          StridedArray c(t, {m, n});
          run_gemm(c, a, b, bias, 1, 1);
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = i % 7; j < n; j += 7) {
              const double want = expected(a, b, i, j, 1, bias->at({i, j}), t);
              ASSERT_NEAR(c.at({i, j}), want, 4 * tolerance(t, k, want)) << m << "x" << n << " at " << i << ", " << j;
            }
        }
      }
  });
}

TEST(Gemm, BetaZeroIgnoresNanInTheBias) {
  StridedArray a(DType::Float, {2, 3}), b(DType::Float, {3, 4}), c(DType::Float, {2, 4});
  a.fill(1), b.fill(2), c.fill_with(kNan);
  run_gemm(c, a, b, &c, 1, 0);
  for (double v : c.values()) EXPECT_FALSE(std::isnan(v));
}

TEST(Gemm, NanAndInfinityReachExactlyTheirRowsAndColumns) {
  for (std::int64_t m : {2, 40}) {
    StridedArray a(DType::Float, {m, 20}), b(DType::Float, {20, 33}), c(DType::Float, {m, 33});
    a.fill(1), b.fill(2);
    a.put({1, 3}, kNan);
    b.put({5, 32}, std::numeric_limits<double>::infinity());
    b.put({5, 31}, 0);
    run_gemm(c, a, b, nullptr, 1, 0);
    c.each_index(
        [&](const auto& i) { EXPECT_EQ(std::isfinite(c.at(i)), i[0] != 1 && i[1] != 32) << i[0] << " " << i[1]; });
  }
}

TEST(Gemm, NanAndInfinityReachExactlyTheirDotProducts) {
  // In the part of a row that its last vector reads again, and behind whole vectors.
  on_each_target([] {
    for (const DType t : {DType::Float, DType::Double, DType::BFloat16, DType::Half})
      for (const std::int64_t m : {2, 5, 9})
        for (const std::int64_t at : {1, 14, 16, 20}) {
          StridedArray a(t, {m, 21}), b(t, {21, 33}, {1, 0}), c(t, {m, 33});
          a.fill(1), b.fill(2);
          a.put({1, at}, kNan);
          b.put({at, 32}, std::numeric_limits<double>::infinity());
          b.put({at, 31}, 0);
          run_gemm(c, a, b, nullptr, 1, 0);
          c.each_index([&](const auto& i) {
            EXPECT_EQ(std::isfinite(c.at(i)), i[0] != 1 && i[1] != 32) << dtype_name(t) << " " << i[0] << " " << i[1];
            EXPECT_TRUE(i[0] != 1 || std::isnan(c.at(i))) << dtype_name(t) << " " << i[1];
          });
        }
  });
}

TEST(Gemm, IntegersWrapAround) {
  StridedArray a(DType::Long, {1, 2}), b(DType::Long, {2, 1}), c(DType::Long, {1, 1});
  a.fill_with(3037000500.0), b.fill_with(3037000500.0);
  run_gemm(c, a, b, nullptr, 1, 0);
  const std::uint64_t square = 3037000500ull * 3037000500ull * 2;
  EXPECT_EQ(*c.view().ptr<std::int64_t>(), static_cast<std::int64_t>(square));
  StridedArray d(DType::Char, {1, 2}), e(DType::Char, {2, 1}), f(DType::Char, {1, 1});
  d.fill_with(100), e.fill_with(100);
  run_gemm(f, d, e, nullptr, 1, 0);
  EXPECT_EQ(f.at({0, 0}), wrapped(20000, DType::Char));
}

TEST(Gemm, SameBitsOnAnyNumberOfThreads) {
  const int before = get_num_threads();
  // Transposed b with few rows: ours in float32 too. Larger float32 products are left to oneDNN.
  for (const Shape& s : {Shape{60, 410, 900}, Shape{1, 3000, 2000}, Shape{2000, 1, 3000}, Shape{64, 128, 784},
                         Shape{1, 128, 784}, Shape{128, 784, 1}, Shape{4, 500, 100}, Shape{12, 71, 301},
                         Shape{10, 30, 900}, Shape{990, 7, 99}, Shape{7, 989, 99}})
    for (DType t : {DType::Float, DType::Double, DType::Half, DType::BFloat16}) {
      const bool paired = t == DType::BFloat16 && pairs::available();  // but for transposed operands
      StridedArray a(t, {s.m, s.k}), b(t, {s.k, s.n}, {paired ? 0 : 1, paired ? 1 : 0}), c(t, {s.m, s.n});
      // Sums of products that are not exact: their order shows.
      const auto each = [](StridedArray& x, double unit) {
        x.each_index([&](const auto& i) { x.put(i, std::sin(unit * static_cast<double>(1 + 7 * i[0] + 3 * i[1]))); });
      };
      each(a, 1), each(b, 0.7);
      std::vector<char> first;
      for (int threads : {1, 2, 7}) {
        set_num_threads(threads);
        c.fill_with(0);
        run_gemm(c, a, b, nullptr, 1, 0);
        if (first.empty()) first = c.bytes();
        EXPECT_EQ(first, c.bytes()) << threads << " threads, " << dtype_name(t) << " m " << s.m;
      }
    }
  set_num_threads(before);
}

// Sums of many steps in parts, whose order neither the edges of a product nor its threads may change. 47 threads have
// tiles of fewer rows than those that pack.
TEST(Gemm, LargeFloatsAgreeWithFloat64AndHaveTheSameBitsOnAnyNumberOfThreads) {
  const int before = get_num_threads();
  struct Case {
    Shape s;
    std::vector<int> order_a, order_b;
  };
  const std::vector<int> plain{0, 1}, turned{1, 0};
  for (const Case& t : {Case{{2050, 2049, 1030}, plain, plain}, Case{{530, 600, 2100}, turned, plain},
                        Case{{530, 1024, 1537}, turned, plain}, Case{{600, 530, 1100}, plain, turned},
                        Case{{517, 520, 4099}, turned, turned}}) {
    SCOPED_TRACE(::testing::Message() << t.s.m << "x" << t.s.n << "x" << t.s.k);
    StridedArray a(DType::Float, {t.s.m, t.s.k}, t.order_a), b(DType::Float, {t.s.k, t.s.n}, t.order_b),
        c(DType::Float, {t.s.m, t.s.n});
    StridedArray wide_a(DType::Double, {t.s.m, t.s.k}, t.order_a), wide_b(DType::Double, {t.s.k, t.s.n}, t.order_b),
        wide_c(DType::Double, {t.s.m, t.s.n});
    for (const auto& [narrow, wide, seed] : {std::tuple{&a, &wide_a, 1}, std::tuple{&b, &wide_b, 2}}) {
      // Of 24 bits: sums of what fill() gives would be exact in any order.
      for (std::int64_t i = 0; i < narrow->view().numel; ++i) {
        const auto value = static_cast<float>(std::sin(static_cast<double>(seed * i)));
        narrow->view().ptr<float>()[i] = value;
        wide->view().ptr<double>()[i] = value;
      }
    }
    run_gemm(wide_c, wide_a, wide_b, nullptr, 1, 0);
    std::vector<char> first;
    for (int threads : {1, 2, 7, 47}) {
      set_num_threads(threads);
      c.fill_with(3);
      run_gemm(c, a, b, nullptr, 1, 0);
      if (first.empty()) first = c.bytes();
      EXPECT_EQ(first, c.bytes()) << threads << " threads";
    }
    const double tolerance = 2e-6 * std::sqrt(static_cast<double>(t.s.k));
    double worst = 0;
    for (std::int64_t i = 0; i < c.view().numel; ++i)
      worst = std::max(worst, std::fabs(c.view().ptr<float>()[i] - wide_c.view().ptr<double>()[i]));
    EXPECT_LT(worst, tolerance);
  }
  set_num_threads(before);
}

TEST(Gemm, LargeFloatsAddToTheirOutput) {
  for (const auto& [order_a, order_b] : {std::pair{std::vector<int>{1, 0}, std::vector<int>{0, 1}},
                                         std::pair{std::vector<int>{0, 1}, std::vector<int>{1, 0}}}) {
    check(DType::Float, {513, 518, 1025}, order_a, order_b, {0, 1}, 0, 1, 3);
    check(DType::Float, {513, 518, 1025}, order_a, order_b, {1, 0}, 5, 0.5, 1);
  }
}

// oneDNN frees the code it made at the program's end, under whoever still runs it.
TEST(Gemm, OwnKernelsTakeOverOnceOneDnnIsClosed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::atomic<int> rounds{0};
        std::atomic<bool> stop{false};
        std::thread beside([&] {
          for (; !stop; ++rounds)
            for (const Shape& s : {Shape{130, 140, 150}, Shape{128, 160, 128}})
              check(DType::Float, s, {0, 1}, {0, 1}, {0, 1});
        });
        const auto await_rounds = [&](int more) {
          for (const int end = rounds + more; rounds < end;) std::this_thread::yield();
        };
        await_rounds(2);
        const bool ended = athanor::onednn::close();
        await_rounds(2);
        stop = true;
        beside.join();
        std::_Exit(!ended || HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Bmm, MultipliesEachMatrixOfTheBatch) {
  for (DType t : {DType::Float, DType::Double, DType::Long, DType::BFloat16})
    for (bool shared : {false, true})
      for (std::int64_t count : {0, 1, 3, 20}) {
        StridedArray a(t, {count, 6, 11}), b(t, {shared ? 1 : count, 11, 37}, {0, 2, 1}), c(t, {count, 6, 37});
        StridedArray bias(t, {1, 1, 37});
        a.fill(1), b.fill(2), bias.fill(3).broadcast(0, count).broadcast(1, 6);
        if (shared) b.broadcast(0, count);
        bmm_kernel.get(kCPU)(c.view(), a.view(), b.view(), bias.view(), 2, 1);
        EXPECT_TRUE(c.margins_intact());
        c.each_index([&](const auto& i) {
          double sum = 0;
          for (std::int64_t p = 0; p < 11; ++p) sum += a.at({i[0], i[1], p}) * b.at({i[0], p, i[2]});
          const double value = 2 * sum + bias.at(i);
          ASSERT_NEAR(c.at(i), is_integral(t) ? wrapped(static_cast<std::int64_t>(value), t) : value,
                      4 * tolerance(t, 11, value));
        });
      }
}

TEST(Linear, AppliesBiasAndEpilogue) {
  auto reference = [](Epilogue e, double x) {
    switch (e) {
      case Epilogue::None:
        return x;
      case Epilogue::Relu:
        return x > 0 ? x : 0;
      case Epilogue::Gelu:
        return .5 * x * (1 + std::erf(x / std::sqrt(2.0)));
      case Epilogue::GeluTanh:
        return .5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + .044715 * x * x * x)));
      case Epilogue::Sigmoid:
        return 1 / (1 + std::exp(-x));
      case Epilogue::Tanh:
        return std::tanh(x);
      case Epilogue::Silu:
        return x / (1 + std::exp(-x));
    }
    return x;
  };
  for (DType t : {DType::Float, DType::Double, DType::Half, DType::BFloat16})
    for (int e = 0; e <= static_cast<int>(Epilogue::Silu); ++e)
      for (const Shape& s : {Shape{1, 10, 20}, Shape{7, 33, 400}, Shape{40, 64, 16}, Shape{17, 80, 33}})
        for (bool with_bias : {false, true}) {
          // The last weight's rows are those of its transpose: the operands may be read where they are.
          StridedArray in(t, {s.m, s.k}), w(t, {s.n, s.k}, s.m == 17 ? std::vector<int>{1, 0} : std::vector<int>{0, 1}),
              bias(t, {s.n}), out(t, {s.m, s.n});
          in.fill(1), w.fill(2), bias.fill(3);
          const auto epilogue = static_cast<Epilogue>(e);
          linear_kernel.get(kCPU)(out.view(), in.view(), w.view(), with_bias ? bias.view() : kNone, epilogue);
          EXPECT_TRUE(out.margins_intact());
          out.each_index([&](const auto& i) {
            double sum = with_bias ? bias.at({i[1]}) : 0;
            for (std::int64_t p = 0; p < s.k; ++p) sum += in.at({i[0], p}) * w.at({i[1], p});
            const double want = reference(epilogue, sum);
            ASSERT_NEAR(out.at(i), want, 4 * tolerance(t, s.k, want)) << e << " " << dtype_name(t);
          });
        }
}

TEST(Matmul, LargeProductsOfBFloat16) {
  for (const auto& a : {std::vector<int>{0, 1}, {1, 0}})
    for (const auto& b : {std::vector<int>{0, 1}, {1, 0}})
      for (const auto& c : {std::vector<int>{0, 1}, {1, 0}}) {
        check(DType::BFloat16, {64, 96, 128}, a, b, c);
        check(DType::BFloat16, {61, 77, 131}, a, b, c);
        check(DType::BFloat16, {61, 77, 131}, a, b, c, 3);
        check(DType::BFloat16, {64, 96, 128}, a, b, c, 0, 1, 1);
        check(DType::BFloat16, {64, 96, 128}, a, b, c, 0, 2, .5);
      }
}

TEST(Matmul, BFloat16SpansSeveralBlocksOfEveryDimension) {
  const Shape shapes[] = {{42, 90, 4500}, {70, 1100, 600}, {45, 17, 2080},  {17, 49, 2049},
                          {96, 64, 128},  {500, 8, 4},     {42, 170, 2100}, {5, 64, 64}};
  for (const Shape& s : shapes)
    for (const auto& a : {std::vector<int>{0, 1}, {1, 0}})
      for (const auto& b : {std::vector<int>{0, 1}, {1, 0}}) {
        check(DType::BFloat16, s, a, b, {0, 1});
        if (s.k < 4500) check(DType::BFloat16, s, a, b, {1, 0}, 0, 1, 1);
      }
}

TEST(Matmul, RoundSizesOfFloat32) {
  for (const auto& a : {std::vector<int>{0, 1}, {1, 0}})
    for (const auto& b : {std::vector<int>{0, 1}, {1, 0}})
      for (const auto& c : {std::vector<int>{0, 1}, {1, 0}}) {
        check(DType::Float, {128, 96, 160}, a, b, c);
        check(DType::Float, {64, 384, 64}, a, b, c, 3);
        check(DType::Float, {96, 128, 128}, a, b, c, 0, 2, .5);
      }
  StridedArray a(DType::Float, {128, 64}), b(DType::Float, {64, 192}), c(DType::Float, {128, 192});
  StridedArray row(DType::Float, {1, 192});
  a.fill(1), b.fill(2), row.fill(3).broadcast(0, 128);
  run_gemm(c, a, b, &row, 1, 1);
  c.each_index([&](const auto& i) {
    const double want = expected(a, b, i[0], i[1], 1, row.at(i), DType::Float);
    ASSERT_NEAR(c.at(i), want, 4 * tolerance(DType::Float, 64, want));
  });
  EXPECT_TRUE(c.margins_intact());
}

TEST(Matmul, LargeProductsAddToTheirOutput) {
  for (const DType t : {DType::BFloat16, DType::Float})
    for (const double beta : {1.0, -.5}) {
      const Shape s = t == DType::BFloat16 ? Shape{70, 80, 90} : Shape{128, 96, 128};
      StridedArray a(t, {s.m, s.k}), b(t, {s.k, s.n}), c(t, {s.m, s.n});
      a.fill(1), b.fill(2), c.fill(3);
      const StridedArray before = c;
      run_gemm(c, a, b, &c, 1, beta);
      c.each_index([&](const auto& i) {
        const double want = expected(a, b, i[0], i[1], 1, beta * before.at(i), t);
        ASSERT_NEAR(c.at(i), want, 4 * tolerance(t, s.k, want));
      });
    }
}

TEST(Bmm, LargeBatchesOfBFloat16) {
  for (bool shared : {false, true}) {
    StridedArray a(DType::BFloat16, {3, 65, 70}), b(DType::BFloat16, {shared ? 1 : 3, 70, 66}, {0, 2, 1});
    StridedArray c(DType::BFloat16, {3, 65, 66}), bias(DType::BFloat16, {1, 1, 66});
    a.fill(1), b.fill(2), bias.fill(3).broadcast(0, 3).broadcast(1, 65);
    if (shared) b.broadcast(0, 3);
    bmm_kernel.get(kCPU)(c.view(), a.view(), b.view(), bias.view(), 1, 1);
    EXPECT_TRUE(c.margins_intact());
    c.each_index([&](const auto& i) {
      double want = bias.at(i);
      for (std::int64_t p = 0; p < 70; ++p) want += a.at({i[0], i[1], p}) * b.at({i[0], p, i[2]});
      ASSERT_NEAR(c.at(i), want, 4 * tolerance(DType::BFloat16, 70, want));
    });
  }
}

TEST(Linear, LargeBFloat16WithBias) {
  struct Call {
    StridedArray in{DType::BFloat16, {70, 90}}, w{DType::BFloat16, {80, 90}}, bias{DType::BFloat16, {80}};
    StridedArray out{DType::BFloat16, {70, 80}};
  };
  std::array<Call, 3> calls;  // of one shape, which share a primitive but no operand
  for (unsigned seed = 1; Call & c : calls) {
    c.in.fill(seed++), c.w.fill(seed++), c.bias.fill(seed++);
    linear_kernel.get(kCPU)(c.out.view(), c.in.view(), c.w.view(), c.bias.view(), Epilogue::None);
  }
  for (const Call& c : calls)
    c.out.each_index([&](const auto& i) {
      double want = c.bias.at({i[1]});
      for (std::int64_t p = 0; p < 90; ++p) want += c.in.at({i[0], p}) * c.w.at({i[1], p});
      ASSERT_NEAR(c.out.at(i), want, 4 * tolerance(DType::BFloat16, 90, want));
    });
}

TEST(Linear, ReluOfIntegersIsSigned) {
  StridedArray in(DType::Int, {3, 4}), w(DType::Int, {20, 4}), out(DType::Int, {3, 20});
  in.fill(1), w.fill(2);
  linear_kernel.get(kCPU)(out.view(), in.view(), w.view(), kNone, Epilogue::Relu);
  out.each_index([&](const auto& i) {
    double sum = 0;
    for (std::int64_t p = 0; p < 4; ++p) sum += in.at({i[0], p}) * w.at({i[1], p});
    EXPECT_EQ(out.at(i), std::max(sum, 0.0));
  });
}

TEST(Linear, ReluKeepsNan) {
  StridedArray in(DType::Float, {2, 3}), w(DType::Float, {5, 3}), out(DType::Float, {2, 5});
  in.fill(1), w.fill(2);
  in.put({1, 1}, kNan);
  linear_kernel.get(kCPU)(out.view(), in.view(), w.view(), kNone, Epilogue::Relu);
  out.each_index([&](const auto& i) { EXPECT_EQ(std::isnan(out.at(i)), i[0] == 1); });
}

}  // namespace
}  // namespace athanor::matmul_test
