#include "athanor/device/cpu/onednn.h"

#include "athanor/device/cpu/onednn_cache.h"
#include "athanor/device/cpu/wide_vectors.h"

#include <pthread.h>
#ifndef ATHANOR_STD_THREAD_POOL
#include <omp.h>
#endif

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "athanor/base/deadline.h"
#include "athanor/base/parallel.h"

namespace athanor::onednn {

const dnnl::engine& cpu_engine() {
  static const dnnl::engine& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

constinit thread_local bool thread_ended = false;

dnnl::stream& call_stream() {
  struct OwnStream {
    dnnl::stream stream{cpu_engine()};
    ~OwnStream() { thread_ended = true; }
  };
  thread_local OwnStream own;
  return own.stream;
}

/// oneDNN asks OpenMP for its team; a thread that never set its own would get the process's default.
int use_team() {
  const int team = in_parallel_region() ? 1 : get_num_threads();
#ifndef ATHANOR_STD_THREAD_POOL
  if (omp_get_max_threads() != team) omp_set_num_threads(team);
#endif
  if (team > 1) detail::note_pool_use();
  return team;
}

namespace {

/// Calls under way, times two, and one once no more are let in.
std::atomic<std::uint64_t> calls{0};
constexpr std::uint64_t kCall = 2, kClosed = 1;
/// Those of this thread: who ends the process from within one, by a signal's handler, does not wait for itself.
constinit thread_local std::uint64_t own_calls = 0;
// The threads whose calls were under way are not in a child.
[[maybe_unused]] const int at_fork = ::pthread_atfork(nullptr, nullptr, [] { calls &= kClosed; });

void close_at_exit() {
  // A failed registration leaves what was before it: threads that outlive main.
  static_cast<void>(std::atexit([] { close(); }));
}

/// Leading dimension and orientation of a row-major operand, if BLAS can express it.
[[maybe_unused]] bool orient(std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols, char& trans,
                             std::int64_t& ld) {
  if (col == 1 && row >= cols) {
    trans = 'N';
    ld = row;
    return true;
  }
  trans = 'T';
  ld = col;
  return row == 1 && col >= rows;
}

}  // namespace

Call::Call() : admitted_(!(calls.fetch_add(kCall) & kClosed) && !thread_ended) {
  static const bool closes_at_exit = (close_at_exit(), true);
  static_cast<void>(closes_at_exit);
  own_calls += kCall;
}
Call::~Call() {
  own_calls -= kCall;
  calls.fetch_sub(kCall);
}

bool close() {
  calls |= kClosed;
  const Deadline limit = Deadline::after(std::chrono::seconds(10));
  while (calls >= kCall + own_calls && !limit.expired()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  return calls < kCall + own_calls;
}

bool sgemm([[maybe_unused]] const GemmProblem& g) {
#ifdef ATHANOR_STD_THREAD_POOL
  return false;  // for the thread sanitizer, which does not know OpenMP's barriers
#else
  // Without AVX-512 ours is as fast, and much faster where oneDNN reads b unpacked (rows 2 KB apart: 1.3 to 2 times).
  const bool wide = cpu::vectors_fill_lines();
  if (!wide) return false;
  constexpr double kLarge = 1 << 20;  // multiply-adds
  if (g.dtype != DType::Float || g.m < 32 || g.n < 32 || g.k < 32 || g.c_col != 1) return false;
  if (static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k) < kLarge) return false;
  const bool accumulate = g.bias == g.c && g.bias_row == g.c_row && g.bias_col == 1;
  if (g.bias && !accumulate) return false;
  char trans_a, trans_b;
  std::int64_t lda, ldb;
  if (!orient(g.a_row, g.a_col, g.m, g.k, trans_a, lda) || !orient(g.b_row, g.b_col, g.k, g.n, trans_b, ldb))
    return false;
  // Our packing is cheaper, and keeps its room: oneDNN takes its own from the system for every call.
  if (trans_a == 'T' || trans_b == 'T') return false;
  const Call call;
  if (!call.admitted()) return false;
  use_team();
  const float alpha = g.alpha.to<float>(), beta = accumulate ? g.beta.to<float>() : 0.F;
  const bool done =
      dnnl_sgemm(trans_a, trans_b, g.m, g.n, g.k, alpha, static_cast<const float*>(g.a), lda,
                 static_cast<const float*>(g.b), ldb, beta, static_cast<float*>(g.c), g.c_row) == dnnl_success;
  // What is registered last runs first: once more, now that oneDNN has made static objects of this function's code.
  static const bool closes_before_them = (close_at_exit(), true);
  static_cast<void>(closes_before_them);
  return done;
#endif
}

}  // namespace athanor::onednn
