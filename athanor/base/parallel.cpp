// A region has as many threads as the greatest one before it that its thread began; those without work go straight to
// its end. GNU's runtime ends the threads that a smaller team leaves over, and makes new ones for the next larger team.

#include "athanor/base/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#ifdef ATHANOR_STD_THREAD_POOL
#include <vector>
#else
#include <omp.h>
#endif

#include "athanor/base/cpus.h"
#include "athanor/base/error.h"
#include "athanor/base/pause.h"

namespace athanor {
namespace {

// The OpenMP runtime takes the program down when a team is too large for it.
constexpr int kMostThreads = 4096;

int env_threads(const char* name) {
  const char* text = std::getenv(name);
  return std::clamp(text ? std::atoi(text) : 0, 0, kMostThreads);
}

int default_threads() {
  if (int n = env_threads("ATHANOR_NUM_THREADS")) return n;
  if (int n = env_threads("OMP_NUM_THREADS")) return n;
  return usable_cpus();
}

std::atomic<int>& global_threads() {
  static std::atomic<int> value{default_threads()};
  return value;
}

std::atomic<int> host_threads{0};      // 0: follows the global value
thread_local int guarded_threads = 0;  // 0: follows the host's
thread_local bool in_region = false;
thread_local bool uses_pool = false;  // this thread has had helpers from the runtime's pool
thread_local bool pool_lost = false;  // and they stayed behind in the parent of a fork

/// Tells oneDNN, which asks the runtime.
void tell_runtime([[maybe_unused]] int n) {
#ifndef ATHANOR_STD_THREAD_POOL
  omp_set_num_threads(pool_lost ? 1 : n);
#endif
}

[[maybe_unused]] const int at_fork = ::pthread_atfork(nullptr, nullptr, [] {
  pool_lost = pool_lost || uses_pool;
  in_region = false;
  if (pool_lost) tell_runtime(1);
});

void check_team(const char* who, int threads) {
  ATHANOR_CHECK(threads >= 1 && threads <= kMostThreads, who, ": expected a positive number of threads up to ",
                kMostThreads, ", got ", threads);
}

/// Keeps the first exception of a region.
struct FirstError {
  std::exception_ptr error;
  std::mutex mutex;
  void keep() {
    const std::lock_guard lock(mutex);
    if (!error) error = std::current_exception();
  }
};

#ifndef ATHANOR_STD_THREAD_POOL
/// Threads of the calling thread's next region, of which `team` have work.
int region_threads(std::int64_t team) {
  static thread_local int most = 1;  // of its regions so far
  most = std::max(static_cast<int>(team), most);
  return std::min(most, get_num_threads());
}
#endif

void run_slice(std::int64_t begin, std::int64_t end, detail::RangeFn fn, void* context, FirstError& first) {
  in_region = true;
  try {
    fn(context, begin, end);
  } catch (...) {
    first.keep();
  }
  in_region = false;
}

void run_member(Team& team, int member, detail::MemberFn fn, void* context, FirstError& first) {
  in_region = true;
  try {
    fn(context, team, member);
  } catch (const detail::TeamFailed&) {
    // the member that failed has kept its error
  } catch (...) {
    first.keep();
    team.fail();
  }
  in_region = false;
}

}  // namespace

int get_num_threads() {
  if (pool_lost) return 1;
  if (guarded_threads) return guarded_threads;
  const int host = host_threads.load(std::memory_order_relaxed);
  return host ? host : detail::configured_threads();
}

void set_num_threads(int n) {
  check_team("set_num_threads", n);
  global_threads() = n;
  tell_runtime(n);
}

bool in_parallel_region() { return in_region; }

ThreadTeamGuard::ThreadTeamGuard(int threads) : previous_(guarded_threads) {
  check_team("ThreadTeamGuard", threads);
  guarded_threads = threads;
  tell_runtime(threads);
}

ThreadTeamGuard::~ThreadTeamGuard() {
  guarded_threads = previous_;
  tell_runtime(get_num_threads());
}

namespace detail {

int configured_threads() { return global_threads().load(std::memory_order_relaxed); }
void note_pool_use() { uses_pool = true; }
void set_host_threads(int n) { host_threads.store(n, std::memory_order_relaxed); }

void parallel_for_impl(std::int64_t begin, std::int64_t end, std::int64_t grain, RangeFn fn, void* context) {
  if (grain < 1) grain = 1;
  const std::int64_t count = end - begin;
  std::int64_t team = in_region ? 1 : get_num_threads();
  if (team > (count + grain - 1) / grain) team = (count + grain - 1) / grain;
  if (team <= 1) {
    fn(context, begin, end);
    return;
  }
  uses_pool = true;
  FirstError first;
  const std::int64_t share = (count + team - 1) / team;
  auto slice = [&](std::int64_t i) {
    const std::int64_t b = begin + i * share;
    const std::int64_t e = b + share < end ? b + share : end;
    if (b < e) run_slice(b, e, fn, context, first);
  };
#ifdef ATHANOR_STD_THREAD_POOL
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(team - 1));
  for (std::int64_t i = 1; i < team; ++i) others.emplace_back([&slice, i] { slice(i); });
  slice(0);
  for (auto& t : others) t.join();
#else
  const int threads = region_threads(team);
#pragma omp parallel num_threads(threads)
  {
    // The runtime may grant fewer threads than asked for.
    const std::int64_t stride = omp_get_num_threads();
    for (std::int64_t i = omp_get_thread_num(); i < team; i += stride) slice(i);
  }
#endif
  if (first.error) std::rethrow_exception(first.error);
}

void parallel_team_impl(int most, MemberFn fn, void* context) {
  const int size = in_region ? 1 : std::max(1, std::min(most, get_num_threads()));
  if (size == 1) {
    Team alone(1);
    fn(context, alone, 0);
    return;
  }
  uses_pool = true;
  FirstError first;
  Team team(size);
#ifdef ATHANOR_STD_THREAD_POOL
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(size - 1));
  for (int i = 1; i < size; ++i) others.emplace_back([&, i] { run_member(team, i, fn, context, first); });
  run_member(team, 0, fn, context, first);
  for (auto& t : others) t.join();
#else
  const int threads = region_threads(size);
#pragma omp parallel num_threads(threads)
  {
#pragma omp single  // the runtime may grant fewer threads than asked for
    team.settle(std::min(size, omp_get_num_threads()));
    if (omp_get_thread_num() < size) run_member(team, omp_get_thread_num(), fn, context, first);
  }
#endif
  if (first.error) std::rethrow_exception(first.error);
}

}  // namespace detail

void Team::await_member(int member, std::int64_t point) const {
  // Pauses before others on this processor get a chance.
  static const int cpus = usable_cpus();
  const int patience = size_ > cpus ? 0 : 4000;
  for (int i = 0; marks_[member].point.load(std::memory_order_acquire) < point; ++i) {
    if (failed_.load(std::memory_order_relaxed)) throw detail::TeamFailed();
    if (i < patience)
      pause_processor();
    else
      std::this_thread::yield();
  }
}

}  // namespace athanor
