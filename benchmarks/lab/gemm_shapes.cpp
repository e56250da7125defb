// Our products beside dnnl_sgemm, interleaved. Usage: lab_gemm_shapes [threads] [seconds per shape] [only shapes whose
// name contains this]
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/gemm.h"

using namespace athanor;

namespace {

bool cpu_time = true;  // of the thread: what other programs take does not count

double now() {
  timespec t;
  clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
/// A quarter of the runs were faster.
double typical(std::vector<double>& t) {
  std::nth_element(t.begin(), t.begin() + t.size() / 4, t.end());
  return t[t.size() / 4];
}

/// On huge pages, as the framework's allocator gives large blocks.
struct Floats {
  explicit Floats(std::size_t n) : count(n) {
    const std::size_t bytes = (n * 4 + (2 << 20) - 1) >> 21 << 21;
    p = static_cast<float*>(std::aligned_alloc(2 << 20, bytes));
    madvise(p, bytes, MADV_HUGEPAGE);
  }
  ~Floats() { std::free(p); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* data() { return p; }
  std::size_t size() const { return count; }
  float& operator[](std::size_t i) { return p[i]; }
  float* p;
  std::size_t count;
};

struct Shape {
  std::int64_t m, n, k;
  bool ta, tb;
  const char* what;
};

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.3;
  cpu_time = threads == 1;
  set_num_threads(threads);
  omp_set_num_threads(threads);
  const Shape shapes[] = {{1, 128, 784, false, true, "mlp b1 fc1 forward"},
                          {128, 784, 1, true, false, "mlp b1 fc1 weights"},
                          {1, 64, 128, false, true, "mlp b1 fc2 forward"},
                          {1, 128, 64, false, false, "mlp b1 fc2 input"},
                          {64, 128, 784, false, true, "mlp b64 fc1 forward"},
                          {128, 784, 64, true, false, "mlp b64 fc1 weights"},
                          {64, 64, 128, false, true, "mlp b64 fc2 forward"},
                          {64, 64, 128, true, false, "mlp b64 fc2 weights"},
                          {64, 128, 64, false, false, "mlp b64 fc2 input"},
                          {64, 10, 64, false, true, "mlp b64 fc3 forward"},
                          {10, 64, 64, true, false, "mlp b64 fc3 weights"},
                          {64, 64, 10, false, false, "mlp b64 fc3 input"},
                          {64, 128, 9216, false, true, "convnet fc1 forward"},
                          {64, 9216, 128, false, false, "convnet fc1 input"},
                          {128, 9216, 64, true, false, "convnet fc1 weights"},
                          {64, 64, 64, false, false, "64"},
                          {128, 128, 128, false, false, "128"},
                          {256, 256, 256, false, false, "256"},
                          {512, 512, 512, false, false, "512"},
                          {1024, 1024, 1024, false, false, "1024"},
                          {1024, 1024, 1024, false, true, "1024 NT"},
                          {1024, 1024, 1024, true, false, "1024 TN"},
                          {2048, 2048, 2048, false, false, "2048"},
                          {2048, 2048, 2048, false, true, "2048 NT"},

                          {1, 4096, 4096, false, false, "vector by matrix"},
                          {1, 4096, 4096, false, true, "vector by transposed matrix"},
                          {1024, 256, 256, false, true, "gpt linear"},
                          {1024, 768, 256, false, true, "gpt qkv"}};
  std::printf("%-28s %18s %10s %10s %7s\n", "", "m x n x k", "ours", "sgemm", "ratio");
  for (const Shape& s : shapes) {
    if (argc > 3 && !std::strstr(s.what, argv[3])) continue;
    Floats a(s.m * s.k), b(s.k * s.n), c(s.m * s.n);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 13) / 13;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 17) / 17;
    GemmProblem g;
    g.m = s.m, g.n = s.n, g.k = s.k;
    g.a = a.data(), g.b = b.data(), g.c = c.data();
    g.a_row = s.ta ? 1 : s.k, g.a_col = s.ta ? s.m : 1;
    g.b_row = s.tb ? 1 : s.n, g.b_col = s.tb ? s.k : 1;
    g.c_row = s.n, g.c_col = 1;
    const double flop = 2.0 * s.m * s.n * s.k;
    const int inner = std::max(1, static_cast<int>(2e7 / flop));
    std::vector<double> ours, theirs;
    const double end = now() + seconds;
    for (int round = 0; round < 5 || now() < end; ++round) {
      double t = now();
      for (int i = 0; i < inner; ++i) gemm(g);
      const double one = now() - t;
      t = now();
      for (int i = 0; i < inner; ++i)
        dnnl_sgemm(s.ta ? 'T' : 'N', s.tb ? 'T' : 'N', s.m, s.n, s.k, 1, a.data(), s.ta ? s.m : s.k, b.data(),
                   s.tb ? s.k : s.n, 0, c.data(), s.n);
      const double two = now() - t;
      if (round >= 2) ours.push_back(one), theirs.push_back(two);
    }
    const double x = typical(ours) / inner, y = typical(theirs) / inner;
    std::printf("%-28s %5ld x%5ld x%5ld %7.1f GF %7.1f GF %6.2fx  %9.2f us\n", s.what, static_cast<long>(s.m),
                static_cast<long>(s.n), static_cast<long>(s.k), flop / x / 1e9, flop / y / 1e9, y / x, x * 1e6);
  }
}
