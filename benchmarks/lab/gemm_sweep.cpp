// Products of many small shapes, and element-wise operations within the first cache or past all, as rows that
// benchmarks/two_builds.py times with two builds of the library: how detail::reads_in_place of
// athanor/device/cpu/gemm.cpp, the sizes of blocks in gemm_block-inl.h, amx::suits_floats and pays_deep were found.
//   cmake build -DATHANOR_LAB=ON && ninja -C build lab_gemm_sweep
//   benchmarks/two_builds.py OLD --program lab_gemm_sweep --rounds 5 --min-time 0.002 --filter '^float32/'
#include <cstdlib>
#include <functional>
#include <string>

#include "athanor/athanor.h"
#include "benchmarks/protocol.h"

namespace {

using namespace athanor;
using bench::Body;

struct Shape {
  DType dtype;
  bool turned;  // a lies transposed
  std::int64_t m, n, k;

  double work() const { return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  std::string name() const {
    return std::string(dtype == kDouble ? "float64" : "float32") + (turned ? "/turned/" : "/plain/") +
           std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
  }
};

void add_product(bench::Program& program, const Shape& s) {
  program.add(s.name(), "FLOP", 2 * s.work(), [s]() -> Body {
    const Tensor a = s.turned ? randn({s.k, s.m}, s.dtype).t() : randn({s.m, s.k}, s.dtype);
    return [a, b = randn({s.k, s.n}, s.dtype)] {
      const NoGradGuard off;
      const Tensor c = mm(a, b);
    };
  });
}

/// Products of float32 in which matrix units may pay, for operands plain or turned.
void add_large(bench::Program& program, std::int64_t m, std::int64_t n, std::int64_t k) {
  for (const char* layout : {"plain", "a", "b"}) {
    const bool a_turned = layout[0] == 'a', b_turned = layout[0] == 'b';
    const std::string name =
        std::string("large/") + layout + "/" + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
    program.add(name, "FLOP", 2.0 * static_cast<double>(m * n * k), [=]() -> Body {
      return [a = a_turned ? randn({k, m}).t() : randn({m, k}), b = b_turned ? randn({n, k}).t() : randn({k, n})] {
        const NoGradGuard off;
        const Tensor c = mm(a, b);
      };
    });
  }
}

/// x @ w.t() + bias, as a linear layer of `rows` examples.
void add_linear(bench::Program& program, std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                DType dtype = kFloat) {
  const std::string name = "linear/" + std::to_string(rows) + "x" + std::to_string(outputs) + "x" +
                           std::to_string(inputs) +
                           (dtype == kFloat    ? ""
                            : dtype == kDouble ? "@float64"
                                               : "@bfloat16");
  program.add(name, "FLOP", 2.0 * static_cast<double>(rows * outputs * inputs), [=]() -> Body {
    return [x = randn({rows, inputs}, dtype), w = randn({outputs, inputs}, dtype), bias = randn({outputs}, dtype)] {
      const NoGradGuard off;
      const Tensor y = linear(x, w, bias);
    };
  });
}

void add_pointwise(bench::Program& program, const std::string& name, Tensor (*fn)(const Tensor&)) {
  constexpr std::int64_t kElements = 4096;
  program.add("pointwise/" + name, "B", 8.0 * kElements, [fn]() -> Body {
    return [fn, x = randn({kElements})] {
      const NoGradGuard off;
      const Tensor y = fn(x);
    };
  });
}

/// x + row and x + column, of a few elements or of so many that results go past the caches.
void add_broadcast(bench::Program& program, std::int64_t rows, std::int64_t cols) {
  for (const bool row : {true, false}) {
    const std::string name =
        std::string(row ? "broadcast/row/" : "broadcast/column/") + std::to_string(rows) + "x" + std::to_string(cols);
    program.add(name, "B", 8.0 * static_cast<double>(rows * cols), [=]() -> Body {
      return [x = randn({rows, cols}), y = row ? randn({cols}) : randn({rows, 1})] {
        const NoGradGuard off;
        const Tensor z = x + y;
      };
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  set_num_threads(threads);
  bench::Program program("athanor", "sweep", threads);
  for (const DType dtype : {kFloat, kDouble})
    for (const bool turned : {false, true})
      for (const std::int64_t m : {16, 32, 64, 128, 300})
        for (const std::int64_t n : {32, 64, 80, 112, 128, 256})
          for (const std::int64_t k : {16, 64, 128, 500})
            if (static_cast<double>(m * n * k) < 1 << 20) add_product(program, {dtype, turned, m, n, k});
  for (const Shape& s :
       {Shape{kFloat, false, 20000, 1008, 32}, Shape{kFloat, true, 4096, 2048, 16}, Shape{kFloat, true, 20000, 64, 64},
        Shape{kFloat, false, 2048, 4096, 8}, Shape{kDouble, false, 2000, 512, 32}})
    add_product(program, s);
  for (const std::int64_t k : {192, 512, 1024}) add_product(program, {kDouble, false, 1024, 1024, k});
  for (const std::int64_t m : {64, 128, 250, 512, 2000})
    for (const std::int64_t n : {64, 128, 192, 256, 1024})
      for (const std::int64_t k : {32, 64, 128, 256, 500, 2048}) add_large(program, m, n, k);
  for (const std::int64_t m : {512, 1024, 2048})
    for (const std::int64_t n : {512, 1000, 2048})
      for (const std::int64_t k : {512, 1024, 2048}) add_large(program, m, n, k);
  for (const std::int64_t k : {784, 2000, 4096, 16384}) add_linear(program, 64, 1024, k);
  add_linear(program, 100, 4000, 1000);
  add_linear(program, 64, 128, 784);
  add_linear(program, 40, 1000, 4096);
  for (const DType dtype : {kFloat, kDouble, kBFloat16})
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 64, 128, 256})
      for (const std::int64_t outputs : {2, 3, 4, 8, 10, 12, 15, 16, 24, 32, 48, 64, 128, 512, 2048})
        for (const std::int64_t inputs : {6, 8, 12, 16, 24, 32, 48, 64, 100, 128, 256, 512, 1024, 4096})
          add_linear(program, rows, outputs, inputs, dtype);
  add_pointwise(program, "exp", [](const Tensor& x) { return exp(x); });
  add_pointwise(program, "gelu", [](const Tensor& x) { return gelu(x); });
  add_pointwise(program, "tanh", [](const Tensor& x) { return tanh(x); });
  for (const std::int64_t cols : {300, 1000, 5000, 5003, 10000}) add_broadcast(program, 100000000 / cols, cols);
  for (const std::int64_t cols : {10, 50, 200, 1000, 3000}) add_broadcast(program, 40000 / cols, cols);
  return program.serve();
}
