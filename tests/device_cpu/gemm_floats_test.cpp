// Products of float32 that are large enough for matrix units, where the processor has them; elsewhere the same holds of
// multiply-adds.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/gemm.h"
#include "athanor/device/cpu/gemm_amx.h"
#include "athanor/device/cpu/gemm_f32_amx.h"

namespace athanor::gemm_floats_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// rows × cols values, in rows or (turned) in columns, with a gap after each line.
struct Matrix {
  Matrix(std::int64_t r, std::int64_t c, bool turn, std::int64_t gap = 0)
      : rows(r), cols(c), turned(turn), step((turn ? r : c) + gap), values(size(), 0.F) {}
  std::size_t size() const { return static_cast<std::size_t>(step * (turned ? cols : rows)); }
  std::int64_t row() const { return turned ? 1 : step; }
  std::int64_t col() const { return turned ? step : 1; }
  float& at(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * row() + j * col())]; }
  float at(std::int64_t i, std::int64_t j) const { return values[static_cast<std::size_t>(i * row() + j * col())]; }

  template <class F>
  Matrix& fill(F&& value) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) at(i, j) = value(i, j);
    return *this;
  }
  Matrix& normal(unsigned seed, float scale = 1) {
    std::mt19937 bits(seed);
    std::normal_distribution<float> draw;
    return fill([&](auto, auto) { return scale * draw(bits); });
  }

  std::int64_t rows, cols;
  bool turned;
  std::int64_t step;
  std::vector<float> values;
};

GemmProblem problem(const Matrix& a, const Matrix& b, Matrix& c) {
  GemmProblem g;
  g.m = a.rows, g.n = b.cols, g.k = a.cols;
  g.a = a.values.data(), g.a_row = a.row(), g.a_col = a.col();
  g.b = b.values.data(), g.b_row = b.row(), g.b_col = b.col();
  g.c = c.values.data(), g.c_row = c.row(), g.c_col = c.col();
  return g;
}

/// Sums in double, and what they are made of.
struct Expected {
  std::vector<double> sums, magnitudes;
  Expected(const Matrix& a, const Matrix& b)
      : sums(static_cast<std::size_t>(a.rows * b.cols)), magnitudes(sums.size()), cols(b.cols) {
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t p = 0; p < a.cols; ++p) {
        const double x = a.at(i, p);
        double *sum = &sums[static_cast<std::size_t>(i * cols)],
               *size = &magnitudes[static_cast<std::size_t>(i * cols)];
        for (std::int64_t j = 0; j < cols; ++j) {
          const double product = x * b.at(p, j);
          sum[j] += product;
          size[j] += std::fabs(product);
        }
      }
  }
  double sum(std::int64_t i, std::int64_t j) const { return sums[static_cast<std::size_t>(i * cols + j)]; }
  double magnitude(std::int64_t i, std::int64_t j) const { return magnitudes[static_cast<std::size_t>(i * cols + j)]; }
  std::int64_t cols;
};

/// Every element within `units` · 2^-24 of the sum of magnitudes, and a step of denormal numbers for each of `steps`.
void expect_near(const Matrix& c, const Expected& want, double units, double steps = 1) {
  double worst = 0;
  for (std::int64_t i = 0; i < c.rows; ++i)
    for (std::int64_t j = 0; j < c.cols; ++j) {
      const double off = std::fabs(c.at(i, j) - want.sum(i, j)) - steps * 0x1p-149;
      if (!(off <= 0)) worst = std::max(worst, off / (want.magnitude(i, j) * 0x1p-24));
      ASSERT_FALSE(std::isnan(c.at(i, j))) << i << ", " << j;
    }
  EXPECT_LE(worst, units);
}

void multiply(const GemmProblem& g, const GemmBatch& batch = {}) {
  EXPECT_EQ(amx::suits_floats(g), amx::available()) << "a test of other sizes than it means";
  gemm(g, batch);
}

struct Shape {
  std::int64_t m, n, k;
};

TEST(GemmFloats, AreAsExactAsMultiplyAddsInEveryLayout) {
  for (const Shape& s : {Shape{250, 300, 130}, Shape{257, 273, 333}, Shape{289, 247, 2100}, Shape{2100, 150, 96}})
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true}) {
        SCOPED_TRACE(::testing::Message() << s.m << "x" << s.n << "x" << s.k << " " << a_turned << b_turned);
        Matrix a(s.m, s.k, a_turned, 3), b(s.k, s.n, b_turned, 5), c(s.m, s.n, false, 7);
        a.normal(1), b.normal(2);
        for (float& x : c.values) x = kNan;
        multiply(problem(a, b, c));
        // Multiply-adds, in blocks of 256 steps: 4.9 for 256 steps, 0.8 for 4096.
        expect_near(c, Expected(a, b), 6);
        for (std::int64_t i = 0; i < c.rows; ++i)
          for (std::int64_t gap = 0; gap < 7; ++gap)
            ASSERT_TRUE(std::isnan(c.values[static_cast<std::size_t>(i * c.step + c.cols + gap)]));
      }
}

/// A copy of values that ends where memory may not be read.
class Guarded {
 public:
  explicit Guarded(const std::vector<float>& values) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), bytes = values.size() * sizeof(float);
    const std::size_t whole = (bytes + page - 1) / page * page;
    size_ = whole + page;
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(static_cast<char*>(at) + whole, page, PROT_NONE) != 0)
      throw std::runtime_error("no memory with a guard");
    start_ = at;
    data_ = static_cast<char*>(at) + whole - bytes;
    std::memcpy(data_, values.data(), bytes);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(start_, size_); }
  const void* data() const { return data_; }

 private:
  void* start_ = nullptr;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

TEST(GemmFloats, ReadNothingBehindTheirOperands) {
  for (const Shape& s : {Shape{250, 300, 130}, Shape{257, 273, 333}, Shape{271, 263, 1039}, Shape{5, 31, 6},
                         Shape{3, 33, 21}, Shape{300, 3, 5}})
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true}) {
        SCOPED_TRACE(::testing::Message() << s.m << "x" << s.n << "x" << s.k << " " << a_turned << b_turned);
        Matrix a(s.m, s.k, a_turned), b(s.k, s.n, b_turned), c(s.m, s.n, false), bias(s.m, s.n, false), guarded = c;
        a.normal(1), b.normal(2), bias.normal(3);
        GemmProblem g = problem(a, b, c);
        g.beta = 1;
        g.bias = bias.values.data(), g.bias_row = s.n, g.bias_col = 1;
        multiply(g);
        const Guarded a_end(a.values), b_end(b.values), bias_end(bias.values);
        g.a = a_end.data(), g.b = b_end.data(), g.bias = bias_end.data(), g.c = guarded.values.data();
        multiply(g);
        EXPECT_EQ(c.values, guarded.values);
      }
}

TEST(GemmFloats, OtherLayoutsAndFactorsAreLeftToMultiplyAdds) {
  Matrix a(512, 512, false), b(512, 512, false), c(512, 512, false);
  a.normal(1), b.normal(2);
  GemmProblem plain = problem(a, b, c);
  plain.m = plain.n = plain.k = 256;
  EXPECT_EQ(amx::suits_floats(plain), amx::available()) << "the cases are refused for their size";
  struct Case {
    const char* name;
    std::int64_t stride_a, stride_b, stride_c;
    double alpha;
  };
  for (const Case& x :
       {Case{"c with gaps", 1, 1, 2, 1}, Case{"a with gaps", 2, 1, 1, 1}, Case{"b with gaps", 1, 2, 1, 1},
        Case{"large alpha", 1, 1, 1, 0x1p41}, Case{"small alpha", 1, 1, 1, 0x1p-41}, Case{"no alpha", 1, 1, 1, 0}}) {
    SCOPED_TRACE(x.name);
    GemmProblem g = plain;
    g.a_col = x.stride_a, g.b_col = x.stride_b, g.c_col = x.stride_c, g.alpha = x.alpha;
    EXPECT_FALSE(amx::suits_floats(g));
    for (float& value : c.values) value = kNan;
    gemm(g);
    Matrix left(256, 256, false), right(256, 256, false);
    left.fill([&](auto i, auto p) { return a.at(i, p * x.stride_a); });
    right.fill([&](auto p, auto j) { return b.at(p, j * x.stride_b); });
    const Expected want(left, right);
    for (std::int64_t i = 0; i < 256; ++i)
      for (std::int64_t j = 0; j < 256; ++j)
        ASSERT_NEAR(c.at(i, j * x.stride_c), x.alpha * want.sum(i, j), x.alpha * want.magnitude(i, j) * 0x1p-21);
  }
}

TEST(GemmFloats, AreExactForIntegers) {
  Matrix a(256, 500, false), b(500, 256, false), c(256, 256, false);
  a.fill([](auto i, auto p) { return static_cast<float>((i * 7 + p * 13) % 181 - 90); });
  b.fill([](auto p, auto j) { return static_cast<float>((p * 11 + j * 3) % 161 - 80); });
  multiply(problem(a, b, c));
  expect_near(c, Expected(a, b), 0);
  // All 24 bits of a value come through.
  a.fill([](auto i, auto p) { return static_cast<float>((i * 524287 + p * 104729) % 16777216); });
  b.fill([](auto p, auto j) { return p == (j * 5) % 500 ? 1.F : 0.F; });
  multiply(problem(a, b, c));
  expect_near(c, Expected(a, b), 0);
  // The largest square of 12 bits, whose first parts are rounded up to 2^24.
  a.fill([](auto, auto p) { return p == 1 ? 4095.F : 0.F; });
  b.fill([](auto p, auto) { return p == 1 ? 4095.F : 0.F; });
  multiply(problem(a, b, c));
  expect_near(c, Expected(a, b), 0);
}

TEST(GemmFloats, TakeAlphaBetaBiasAndEpilogue) {
  Matrix a(270, 200, false), b(200, 270, true), c(270, 270, false), bias(1, 270, false), relu = c;
  a.normal(1), b.normal(2), bias.normal(3);
  const Expected want(a, b);
  GemmProblem g = problem(a, b, c);
  g.alpha = 1.5, g.beta = -2;
  g.bias = bias.values.data(), g.bias_col = 1;
  multiply(g);
  g.c = relu.values.data();
  g.epilogue = Epilogue::Relu;
  multiply(g);
  Matrix onto(270, 270, false);
  onto.normal(4);
  const Matrix before = onto;
  g = problem(a, b, onto);
  g.beta = 3;
  g.bias = onto.values.data(), g.bias_row = onto.row(), g.bias_col = 1;
  multiply(g);
  Matrix gelu(270, 270, false);
  g = problem(a, b, gelu);
  g.epilogue = Epilogue::Gelu;
  multiply(g);
  for (std::int64_t i = 0; i < 270; ++i)
    for (std::int64_t j = 0; j < 270; ++j) {
      const double sum = want.sum(i, j), scaled = 1.5 * sum - 2 * bias.at(0, j);
      ASSERT_NEAR(c.at(i, j), scaled, 2e-4);
      ASSERT_NEAR(relu.at(i, j), std::max(scaled, 0.0), 2e-4);
      ASSERT_NEAR(onto.at(i, j), sum + 3 * before.at(i, j), 2e-4);
      ASSERT_NEAR(gelu.at(i, j), sum * 0.5 * std::erfc(-sum * M_SQRT1_2), 2e-4);
    }
}

TEST(GemmFloats, AccumulateOverManyStepsWithBiasOnce) {
  Matrix a(170, 5000, true), b(5000, 550, false), c(170, 550, false), bias(170, 1, false);
  a.normal(1), b.normal(2), bias.normal(3, 100);
  GemmProblem g = problem(a, b, c);
  g.beta = 1, g.epilogue = Epilogue::Relu;
  g.bias = bias.values.data(), g.bias_row = 1;
  multiply(g);
  const Expected want(a, b);
  for (std::int64_t i = 0; i < 170; ++i)
    for (std::int64_t j = 0; j < 550; ++j) ASSERT_NEAR(c.at(i, j), std::max(want.sum(i, j) + bias.at(i, 0), 0.0), 2e-3);
}

TEST(GemmFloats, LoseNothingOfSmallAndDenormalNumbers) {
  const double steps = amx::available() ? 1 : 200;  // where sums are denormal, multiply-adds round at each step
  struct Scales {
    float a, b;
  };
  for (const Scales& s : {Scales{0x1p-60F, 0x1p-60F}, Scales{0x1p-120F, 1}, Scales{0x1p-140F, 0x1p20F},
                          Scales{0x1p-70F, 0x1p-72F}, Scales{0x1p80F, 0x1p-100F}, Scales{0x1p-110F, 0x1p100F}}) {
    SCOPED_TRACE(::testing::Message() << s.a << " " << s.b);
    Matrix a(270, 200, false), b(200, 256, false), c(270, 256, false);
    a.normal(1, s.a), b.normal(2, s.b);
    multiply(problem(a, b, c));
    expect_near(c, Expected(a, b), 6, steps);
  }
  // Magnitudes of all kinds in one product.
  Matrix a(270, 200, false), b(200, 256, true), c(270, 256, false);
  a.normal(1).fill(
      [&](auto i, auto p) { return std::ldexp(a.at(i, p), static_cast<int>(i * 31 + p * 17) % 150 - 120); });
  b.normal(2).fill([&](auto p, auto j) { return std::ldexp(b.at(p, j), static_cast<int>(j * 13) % 100 - 80); });
  multiply(problem(a, b, c));
  expect_near(c, Expected(a, b), 10, steps);  // multiply-adds: 8
}

TEST(GemmFloats, HugeNumbersNanAndInfinityReachExactlyTheirRowsAndColumns) {
  for (const float special : {kInf, -kInf, kNan, 3e38F, 1e30F, 0x1p95F})
    for (const bool turned : {false, true}) {
      SCOPED_TRACE(::testing::Message() << special << " " << turned);
      Matrix a(300, 200, turned), b(200, 256, turned), c(300, 256, false);
      a.normal(1), b.normal(2);
      a.at(77, 199) = special;
      b.at(13, 255) = -special;
      multiply(problem(a, b, c));
      const Expected want(a, b);
      for (std::int64_t i = 0; i < c.rows; ++i)
        for (std::int64_t j = 0; j < c.cols; ++j) {
          const double sum = want.sum(i, j);
          const auto rounded = static_cast<float>(sum);
          if (!std::isfinite(rounded))
            ASSERT_TRUE(std::isnan(rounded) ? std::isnan(c.at(i, j)) : c.at(i, j) == rounded) << i << ", " << j;
          else
            ASSERT_NEAR(c.at(i, j), sum, want.magnitude(i, j) * 0x1p-21) << i << ", " << j;
        }
    }
}

TEST(GemmFloats, LargeSumsOfNumbersThatAreNotHugeStayFinite) {
  struct Case {
    float a, b;
  };
  for (const Case& x : {Case{0x1p40F, 0x1p40F}, Case{0x1p31F, 0x1p30F}, Case{0x1p28F, 0x1p28F}}) {
    Matrix a(256, 256, false), b(256, 256, false), c(256, 256, false);
    a.fill([&](auto, auto) { return x.a; });
    b.fill([&](auto, auto) { return x.b; });
    multiply(problem(a, b, c));
    for (const float sum : c.values) ASSERT_EQ(sum, 256 * x.a * x.b);
  }
}

TEST(GemmFloats, ValuesOfOneSignLoseNoMoreThanByMultiplyAdds) {
  Matrix a(256, 2048, false), b(2048, 256, false), c(256, 256, false);
  std::mt19937 bits(1);
  const auto uniform = [&](auto, auto) { return static_cast<float>(bits() >> 8) * 0x1p-24F; };
  a.fill(uniform), b.fill(uniform);
  multiply(problem(a, b, c));
  const Expected want(a, b);
  double squares = 0;
  for (std::int64_t i = 0; i < 256; ++i)
    for (std::int64_t j = 0; j < 256; ++j)
      squares += std::pow((c.at(i, j) - want.sum(i, j)) / (want.magnitude(i, j) * 0x1p-24), 2);
  // 2.1, as multiply-adds in blocks of 256 steps; 3.4 if all 2048 were summed in one go.
  EXPECT_LE(std::sqrt(squares / (256 * 256)), amx::available() ? 2.7 : 6.0);
}

TEST(GemmFloats, OperandsThatAreTakenApartInPiecesMeetTheirBiasAndSpareEachOtherNan) {
  const int before = get_num_threads();
  set_num_threads(1);
  for (const Shape& s : {Shape{140, 2100, 1024}, Shape{4200, 140, 1024}}) {
    Matrix a(s.m, s.k, false), b(s.k, s.n, false), c(s.m, s.n, false), bias(s.m, s.n, false);
    a.normal(1), b.normal(2), bias.normal(3, 100);
    a.at(100, 5) = b.at(7, 30) = kNan;
    GemmProblem g = problem(a, b, c);
    g.beta = 1;
    g.bias = bias.values.data(), g.bias_row = s.n, g.bias_col = 1;
    multiply(g);
    const Expected want(a, b);
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j)
        if (i == 100 || j == 30)
          ASSERT_TRUE(std::isnan(c.at(i, j))) << i << ", " << j;
        else
          ASSERT_NEAR(c.at(i, j), want.sum(i, j) + bias.at(i, j), 1e-3) << i << ", " << j;
  }
  set_num_threads(before);
}

TEST(GemmFloats, SumsThatOverflowAreInfinite) {
  Matrix a(270, 200, false), b(200, 256, false), c(270, 256, false);
  a.fill([](auto i, auto) { return i == 3 ? 0x1p90F : 0x1p-20F; });
  b.fill([](auto, auto j) { return j == 5 ? -0x1p50F : 1.F; });
  multiply(problem(a, b, c));
  for (std::int64_t i = 0; i < 270; ++i)
    for (std::int64_t j = 0; j < 256; ++j) {
      const float row = i == 3 ? 0x1p90F : 0x1p-20F, col = j == 5 ? -0x1p50F : 1.F;
      ASSERT_EQ(c.at(i, j), i == 3 && j == 5 ? -kInf : 200 * row * col) << i << ", " << j;
    }
}

TEST(GemmFloats, SameBitsOnAnyNumberOfThreadsAndInBatches) {
  if (!amx::available()) GTEST_SKIP() << "no matrix units: large products of float32 are left to oneDNN";
  const int before = get_num_threads();
  for (const Shape& s : {Shape{250, 300, 200}, Shape{700, 170, 2500}}) {
    Matrix a(s.m, s.k, false), b(s.k, s.n, false), c(s.m, s.n, false), first = c, batch(2 * s.m, s.n, false);
    a.normal(1), b.normal(2);
    set_num_threads(1);
    multiply(problem(a, b, first));
    for (const int threads : {2, 3, 7}) {
      set_num_threads(threads);
      multiply(problem(a, b, c));
      EXPECT_EQ(c.values, first.values) << threads << " threads";
      GemmProblem g = problem(a, b, batch);
      multiply(g, {2, 0, 0, s.m * s.n, 0});
      for (std::int64_t i = 0; i < 2; ++i)
        EXPECT_EQ(std::memcmp(&batch.at(i * s.m, 0), first.values.data(), first.values.size() * sizeof(float)), 0);
    }
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace athanor::gemm_floats_test
