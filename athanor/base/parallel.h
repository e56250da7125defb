#pragma once
/// Threads for kernels. One pool (OpenMP's, shared with oneDNN) serves the whole process. Every thread that starts
/// parallel work has its own team size: the main thread `get_num_threads()`, a worker thread of ours whatever it was
/// given by ThreadTeamGuard. Nested parallel calls run on one thread. In a forked child a thread that had run parallel
/// work before runs alone from then on, for its helpers are the parent's; threads started in the child get their own.

#include <cstdint>
#include <memory>
#include <type_traits>

namespace athanor {

/// Team size of the calling thread. At start: the affinity mask and the cgroup's CPU quota, whichever is smaller,
/// unless ATHANOR_NUM_THREADS or OMP_NUM_THREADS says otherwise.
int get_num_threads();
/// Sets it for threads that have no guard. Throws ValueError unless n >= 1.
void set_num_threads(int n);
/// True inside a parallel_for body.
bool in_parallel_region();

/// Gives the calling thread a team size of its own for its scope.
class ThreadTeamGuard {
 public:
  explicit ThreadTeamGuard(int threads);
  ~ThreadTeamGuard();
  ThreadTeamGuard(const ThreadTeamGuard&) = delete;
  ThreadTeamGuard& operator=(const ThreadTeamGuard&) = delete;

 private:
  int previous_;
};

namespace detail {
/// The team size that set_num_threads or the environment gave, which virtual devices share among them.
int configured_threads();
/// Overrides it for threads without a guard; 0 lifts that. For virtual devices.
void set_host_threads(int n);
/// The calling thread is about to run a parallel region that is none of ours (oneDNN's).
void note_pool_use();

using RangeFn = void (*)(void* context, std::int64_t begin, std::int64_t end);
void parallel_for_impl(std::int64_t begin, std::int64_t end, std::int64_t grain, RangeFn fn, void* context);
}  // namespace detail

/// Calls body(b, e) on disjoint ranges that cover [begin, end), each of at least `grain` items but the last, on at most
/// get_num_threads() threads; inline when one range suffices. The first exception of a body is rethrown after all
/// have ended. How the range is cut depends on the thread count: a reduction must cut by size instead.
template <class F>
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, F&& body) {
  if (end <= begin) return;
  if (end - begin <= grain) {
    body(begin, end);
    return;
  }
  using Body = std::remove_reference_t<F>;
  detail::parallel_for_impl(
      begin, end, grain, [](void* c, std::int64_t b, std::int64_t e) { (*static_cast<Body*>(c))(b, e); },
      const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

}  // namespace athanor
