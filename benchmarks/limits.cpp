// What this machine can do at most: rates of copying, reading and filling memory, with ordinary and streaming stores,
// and of multiply-add in registers. Speaks the protocol of benchmarks/protocol.h; threads from OMP_NUM_THREADS.
#include <omp.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/protocol.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

/// Floats on pages that have been touched, huge where the system grants it: what a caching allocator hands out.
class Buffer {
 public:
  explicit Buffer(std::int64_t floats)
      : data_(static_cast<float*>(std::aligned_alloc(kAlignment, round_up(floats * 4)))) {
    if (!data_) throw std::bad_alloc();
#ifdef __linux__
    madvise(data_.get(), round_up(floats * 4), MADV_HUGEPAGE);
#endif
#pragma omp parallel for
    for (std::int64_t i = 0; i < floats; ++i) data_.get()[i] = 1.0f;
  }
  float* get() const { return data_.get(); }

 private:
  static constexpr std::size_t kAlignment = 1 << 21;
  static std::size_t round_up(std::int64_t bytes) {
    return (static_cast<std::size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
  }
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
};

/// How memory is walked: with ordinary or streaming stores from front to back; four pages in step (with streaming
/// stores), which suits processors that fetch ahead within a page only; or with ordinary stores from front to back and
/// from back to front in turns, which finds the end that the last walk touched last still in a core's cache; or with
/// streaming stores from front to back, asking for what lies 2 KB ahead.
enum class Way { Ordinary, Streaming, Pages, Turns, Ahead };
/// What a row of `way` is called after its size.
constexpr const char* suffix_of(Way way) {
  constexpr const char* suffixes[] = {"", "@streaming", "@pages", "@turns", "@ahead"};
  return suffixes[static_cast<int>(way)];
}
constexpr bool streams(Way way) { return way == Way::Streaming || way == Way::Pages || way == Way::Ahead; }

#ifdef __x86_64__
#define LIMITS_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LIMITS_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define LIMITS_AVX2 __attribute__((target("avx2,fma")))

/// Calls step(i) for each cache line of 16 floats of [0, n) in the order of `way`; returns where the rest begins.
template <class F>
__attribute__((always_inline)) inline std::int64_t each_line(std::int64_t n, Way way, F&& step) {
  constexpr std::int64_t kPage = 1024;
  std::int64_t i = 0;
  if (way == Way::Pages)
    for (; i + 4 * kPage <= n; i += 4 * kPage)
      for (std::int64_t k = i; k < i + kPage; k += 16)
        for (int page = 0; page < 4; ++page) step(k + page * kPage);
  for (; i + 16 <= n; i += 16) step(i);
  return i;
}

LIMITS_AVX2 inline void put(float* to, __m256 low, __m256 high, bool streaming) {
  if (streaming) {
    _mm256_stream_ps(to, low);
    _mm256_stream_ps(to + 8, high);
  } else {
    _mm256_storeu_ps(to, low);
    _mm256_storeu_ps(to + 8, high);
  }
}

constexpr std::int64_t kAhead = 512;  // floats

LIMITS_AVX2 void copy_range(float* to, const float* from, std::int64_t n, Way way) {
  const bool streaming = streams(way);
  std::int64_t i = each_line(n, way, [&](std::int64_t k) LIMITS_AVX2 {
    if (way == Way::Ahead) _mm_prefetch(reinterpret_cast<const char*>(from + k + kAhead), _MM_HINT_T0);
    put(to + k, _mm256_loadu_ps(from + k), _mm256_loadu_ps(from + k + 8), streaming);
  });
  _mm_sfence();
  for (; i < n; ++i) to[i] = from[i];
}

LIMITS_AVX2 void add_range(float* to, const float* a, const float* b, std::int64_t n, Way way) {
  const bool streaming = streams(way);
  std::int64_t i = each_line(n, way, [&](std::int64_t k) LIMITS_AVX2 {
    if (way == Way::Ahead) {
      _mm_prefetch(reinterpret_cast<const char*>(a + k + kAhead), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(b + k + kAhead), _MM_HINT_T0);
    }
    put(to + k, _mm256_add_ps(_mm256_loadu_ps(a + k), _mm256_loadu_ps(b + k)),
        _mm256_add_ps(_mm256_loadu_ps(a + k + 8), _mm256_loadu_ps(b + k + 8)), streaming);
  });
  _mm_sfence();
  for (; i < n; ++i) to[i] = a[i] + b[i];
}

LIMITS_AVX2 void fill_range(float* to, std::int64_t n, Way way) {
  const bool streaming = streams(way);
  const __m256 value = _mm256_set1_ps(2.0f);
  std::int64_t i = each_line(n, way, [&](std::int64_t k) LIMITS_AVX2 { put(to + k, value, value, streaming); });
  _mm_sfence();
  for (; i < n; ++i) to[i] = 2.0f;
}

LIMITS_AVX2 float sum_range(const float* from, std::int64_t n, Way way) {
  __m256 sums[8];
  for (auto& s : sums) s = _mm256_setzero_ps();
  std::int64_t i = 0;
  const std::int64_t kStep = way == Way::Pages ? 1024 : 16;  // between the four pairs of vectors of one turn
  const std::int64_t kTurn = 4 * kStep, kInner = way == Way::Pages ? 1024 : 16;
  for (; i + kTurn <= n; i += kTurn)
    for (std::int64_t k = i; k < i + kInner; k += 16)
      for (int pair = 0; pair < 4; ++pair) {
        sums[2 * pair] = _mm256_add_ps(sums[2 * pair], _mm256_loadu_ps(from + k + pair * kStep));
        sums[2 * pair + 1] = _mm256_add_ps(sums[2 * pair + 1], _mm256_loadu_ps(from + k + pair * kStep + 8));
      }
  float total = 0;
  for (const auto& s : sums) total += _mm256_cvtss_f32(s);
  for (; i < n; ++i) total += from[i];
  return total;
}

constexpr int kChains = 12;  // enough independent chains to hide the latency of a multiply-add

LIMITS_AVX512 float fma_512(std::int64_t steps) {
  __m512 a[kChains];
  for (int i = 0; i < kChains; ++i) a[i] = _mm512_set1_ps(0.1f * static_cast<float>(i));
  const __m512 m = _mm512_set1_ps(0.999f), c = _mm512_set1_ps(0.001f);
  for (std::int64_t s = 0; s < steps; ++s)
    for (auto& x : a) x = _mm512_fmadd_ps(x, m, c);
  float total = 0;
  for (const auto& x : a) total += _mm512_cvtss_f32(x);
  return total;
}

LIMITS_AVX512 double fma_f64_512(std::int64_t steps) {
  __m512d a[kChains];
  for (int i = 0; i < kChains; ++i) a[i] = _mm512_set1_pd(0.1 * i);
  const __m512d m = _mm512_set1_pd(0.999), c = _mm512_set1_pd(0.001);
  for (std::int64_t s = 0; s < steps; ++s)
    for (auto& x : a) x = _mm512_fmadd_pd(x, m, c);
  double total = 0;
  for (const auto& x : a) total += _mm512_cvtsd_f64(x);
  return total;
}

LIMITS_BF16 float dot_bf16_512(std::int64_t steps) {
  __m512 a[kChains];
  for (int i = 0; i < kChains; ++i) a[i] = _mm512_set1_ps(0.1f * static_cast<float>(i));
  const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f));
  const __m512bh y = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.01f), _mm512_set1_ps(0.01f));
  for (std::int64_t s = 0; s < steps; ++s)
    for (auto& sum : a) sum = _mm512_dpbf16_ps(sum, x, y);
  float total = 0;
  for (const auto& sum : a) total += _mm512_cvtss_f32(sum);
  return total;
}

#define LIMITS_AMX __attribute__((target("amx-tile,amx-bf16")))

/// True if this processor has matrix units for bfloat16 and the system lets the process use them.
bool may_use_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kBf16) == 0 || (d & kTile) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// Products of tiles of 16 × 32 and 32 × 16, four sums side by side: 4 × 16384 FLOP a step.
LIMITS_AMX float dot_amx(std::int64_t steps) {
  struct alignas(64) Config {
    std::uint8_t palette = 1, start = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } const config;
  _tile_loadconfig(&config);
  alignas(64) std::uint16_t ones[512];
  for (auto& x : ones) x = 0x3c00;  // 2^-7
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  for (std::int64_t s = 0; s < steps; ++s) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  alignas(64) float sums[256];
  float total = 0;
  _tile_stored(0, sums, 64);
  total += sums[0];
  _tile_stored(1, sums, 64);
  total += sums[0];
  _tile_stored(2, sums, 64);
  total += sums[0];
  _tile_stored(3, sums, 64);
  total += sums[0];
  _tile_release();
  return total;
}

LIMITS_AVX2 float fma_256(std::int64_t steps) {
  __m256 a[kChains];
  for (int i = 0; i < kChains; ++i) a[i] = _mm256_set1_ps(0.1f * static_cast<float>(i));
  const __m256 m = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(0.001f);
  for (std::int64_t s = 0; s < steps; ++s)
    for (auto& x : a) x = _mm256_fmadd_ps(x, m, c);
  float total = 0;
  for (const auto& x : a) total += _mm256_cvtss_f32(x);
  return total;
}
#else
// Other processors: what the compiler makes of plain loops, and no figure for arithmetic.
void copy_range(float* to, const float* from, std::int64_t n, Way) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = from[i];
}
void add_range(float* to, const float* a, const float* b, std::int64_t n, Way) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = a[i] + b[i];
}
void fill_range(float* to, std::int64_t n, Way) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = 2.0f;
}
float sum_range(const float* from, std::int64_t n, Way) {
  float sums[16] = {};
  for (std::int64_t i = 0; i < n; ++i) sums[i % 16] += from[i];
  return sums[0];
}
#endif

volatile double sink;  // keeps results alive

/// Calls body(begin, end) on each thread, on equal ranges cut at multiples of 16 floats. Way::Turns walks its range in
/// stretches of 64 KB, every second time the last first.
template <class F>
void split(std::int64_t n, Way way, F&& body) {
  static bool backwards = false;
  backwards = way == Way::Turns && !backwards;
#pragma omp parallel
  {
    constexpr std::int64_t kStretch = 16384;
    const std::int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    const std::int64_t share = (n / threads + 15) / 16 * 16;
    const std::int64_t begin = std::min(n, me * share), end = me + 1 == threads ? n : std::min(n, begin + share);
    if (backwards)
      for (std::int64_t at = begin + (end - begin) / kStretch * kStretch; at >= begin; at -= kStretch)
        body(at, std::min(end, at + kStretch));
    else
      body(begin, end);
  }
}

void add_memory_rows(bench::Program& program) {
  for (const std::int64_t n : {std::int64_t{1000000}, std::int64_t{100000000}}) {
    const std::string size = n == 1000000 ? "/1e6" : "/1e8";
    const double bytes = 4.0 * static_cast<double>(n);
    for (const Way way : {Way::Ordinary, Way::Streaming, Way::Pages, Way::Turns, Way::Ahead}) {
      const std::string suffix = size + suffix_of(way);
      program.add("limit.copy" + suffix, "B", 2 * bytes, [=] {
        auto from = std::make_shared<Buffer>(n), to = std::make_shared<Buffer>(n);
        return [=] { split(n, way, [&](auto b, auto e) { copy_range(to->get() + b, from->get() + b, e - b, way); }); };
      });
      program.add("limit.add" + suffix, "B", 3 * bytes, [=] {
        auto x = std::make_shared<Buffer>(n), y = std::make_shared<Buffer>(n), to = std::make_shared<Buffer>(n);
        return [=] {
          split(n, way, [&](auto b, auto e) { add_range(to->get() + b, x->get() + b, y->get() + b, e - b, way); });
        };
      });
      program.add("limit.fill" + suffix, "B", bytes, [=] {
        auto to = std::make_shared<Buffer>(n);
        return [=] { split(n, way, [&](auto b, auto e) { fill_range(to->get() + b, e - b, way); }); };
      });
      if (way == Way::Streaming || way == Way::Ahead) continue;  // nothing is stored
      program.add("limit.read" + suffix, "B", bytes, [=] {
        auto from = std::make_shared<Buffer>(n);
        return [=] { split(n, way, [&](auto b, auto e) { sink = sum_range(from->get() + b, e - b, way); }); };
      });
    }
  }
}

/// Copies of 4 MB in a ring of three buffers, each of which reads what the one before has written: what a program that
/// goes on with its results pays for a way of writing them. Bounds no row; says whether to stream results of 4 MB.
void add_ring_rows(bench::Program& program) {
  constexpr std::int64_t kFloats = 1000000;
  for (const Way way : {Way::Ordinary, Way::Turns, Way::Ahead})
    program.add(std::string("limit.copy.ring/1e6") + suffix_of(way), "B", 3 * 8.0 * kFloats, [=] {
      auto ring = std::make_shared<std::vector<Buffer>>();
      for (int i = 0; i < 3; ++i) ring->emplace_back(std::int64_t{kFloats});
      return [=] {
        for (std::size_t i = 0; i < 3; ++i)
          split(kFloats, way,
                [&](auto b, auto e) { copy_range((*ring)[(i + 1) % 3].get() + b, (*ring)[i].get() + b, e - b, way); });
      };
    });
}

/// A loader's least work: rows in random order, each to its place in a batch of 64. With `ask`, lines of the row after
/// the next are asked for by the second cache.
template <bool kAsk>
void gather_rows(float* to, const float* from, const std::uint32_t* order, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* const row = from + order[r] * width;
    const float* const later = from + order[std::min(r + 2, rows - 1)] * width;
    float* const place = to + r % 64 * width;
    for (std::int64_t i = 0; i < width; i += 16) {
      if constexpr (kAsk) __builtin_prefetch(later + i, 0, 2);
      std::memcpy(place + i, row + i, 64);
    }
  }
}

void add_gather_rows(bench::Program& program) {
  constexpr std::int64_t kRows = 60000, kWidth = 784;
  for (const bool ask : {false, true})
    program.add(std::string("limit.gather/60000x784") + (ask ? "@ahead" : ""), "B", 8.0 * kRows * kWidth, [=] {
      const int threads = omp_get_max_threads();
      auto from = std::make_shared<Buffer>(kRows * kWidth), to = std::make_shared<Buffer>(threads * 64 * kWidth);
      auto order = std::make_shared<std::vector<std::uint32_t>>(kRows);
      std::iota(order->begin(), order->end(), 0U);
      std::shuffle(order->begin(), order->end(), std::mt19937(1));
      return [=] {
        split(kRows, Way::Ordinary, [&](auto b, auto e) {
          (ask ? gather_rows<true> : gather_rows<false>)(to->get() + omp_get_thread_num() * 64 * kWidth, from->get(),
                                                         order->data() + b, e - b, kWidth);
        });
      };
    });
}

#ifdef __x86_64__
template <class F>
void add_arithmetic_row(bench::Program& program, const std::string& name, double flop_per_step, F kernel,
                        std::int64_t steps = 2000000) {
  program.add(name, "FLOP", flop_per_step * static_cast<double>(steps * omp_get_max_threads()), [=] {
    return [=] {
#pragma omp parallel
      sink = static_cast<double>(kernel(steps));
    };
  });
}

void add_arithmetic_rows(bench::Program& program) {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
    add_arithmetic_row(program, "limit.fma.f32", 32 * kChains, fma_512);
    add_arithmetic_row(program, "limit.fma.f64", 16 * kChains, fma_f64_512);
  }
  if (__builtin_cpu_supports("avx512bf16")) add_arithmetic_row(program, "limit.fma.bf16", 64 * kChains, dot_bf16_512);
  if (may_use_amx()) add_arithmetic_row(program, "limit.fma.bf16@amx", 4 * 16384, dot_amx, 50000);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    add_arithmetic_row(program, "limit.fma.f32@256", 16 * kChains, fma_256);
}
#else
void add_arithmetic_rows(bench::Program&) {}
#endif

}  // namespace

int main() {
  bench::Program program("limits", "", omp_get_max_threads());
  add_memory_rows(program);
  add_ring_rows(program);
  add_gather_rows(program);
  add_arithmetic_rows(program);
  return program.serve();
}
