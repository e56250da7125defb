#pragma once
/// Threads for kernels. One pool (OpenMP's, shared with oneDNN) serves the whole process. Every thread that starts
/// parallel work has its own team size: the main thread `get_num_threads()`, a worker thread of ours whatever it was
/// given by ThreadTeamGuard. Nested parallel calls run on one thread. In a forked child a thread that had run parallel
/// work before runs alone from then on, for its helpers are the parent's; threads started in the child get their own.

#include <atomic>
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

class TeamFailed {};  // thrown in members that wait when another has ended with an exception

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

/// Threads that run one body at the same time, so that they may wait for each other's progress.
class Team {
 public:
  explicit Team(int size) : size_(size), marks_(std::make_unique<Mark[]>(static_cast<std::size_t>(size))) {}
  int size() const { return size_; }
  /// Member `member` has come as far as `point`; points only grow, from 0 at the start. What it wrote before is there
  /// for those that await the point.
  void pass(int member, std::int64_t point) { marks_[member].point.store(point, std::memory_order_release); }
  /// Returns when all members have come as far as `point`, or leaves the body when one has ended with an exception.
  void await(std::int64_t point) const {
    for (int i = 0; i < size_; ++i)
      if (marks_[i].point.load(std::memory_order_acquire) < point) await_member(i, point);
  }
  /// Fewer members than hoped for, before any has begun.
  void settle(int size) { size_ = size; }
  /// Ends the waiting of the others.
  void fail() { failed_.store(true, std::memory_order_relaxed); }

 private:
  struct alignas(64) Mark {
    std::atomic<std::int64_t> point{0};
  };
  void await_member(int member, std::int64_t point) const;

  int size_;
  const std::unique_ptr<Mark[]> marks_;
  std::atomic<bool> failed_{false};
};

namespace detail {
using MemberFn = void (*)(void* context, Team& team, int member);
void parallel_team_impl(int most, MemberFn fn, void* context);
}  // namespace detail

/// Calls body(team, member) for each member of a team of at most `most` and at most get_num_threads() threads, all at
/// the same time; of one where parallel work is under way. The first exception of a body is rethrown after all have
/// ended.
template <class F>
void parallel_team(int most, F&& body) {
  using Body = std::remove_reference_t<F>;
  detail::parallel_team_impl(
      most, [](void* c, Team& team, int member) { (*static_cast<Body*>(c))(team, member); },
      const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

}  // namespace athanor
