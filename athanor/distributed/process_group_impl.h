#pragma once
/// What a ProcessGroup is made of. Not part of the interface.

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "athanor/distributed/backend/native.h"
#include "athanor/distributed/call_queue.h"
#include "athanor/distributed/call_tensors.h"
#include "athanor/distributed/flight_recorder.h"
#include "athanor/distributed/net/forks.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/staging.h"
#include "athanor/profiler/record.h"

namespace athanor::distributed {

class P2pWork;

/// `timeout` from now, up to some milliseconds more: by a clock that costs next to nothing to read.
Deadline deadline_soon(std::chrono::milliseconds timeout);

/// "gloo" of "cpu:gloo,cuda:nccl"; a name alone is meant for every device, and one for cuda alone if virtual devices
/// serve that. Throws ValueError for a text that names none, or is not of that form.
std::string host_backend(const std::string& text);

struct ProcessGroup::Impl {
  Impl(ProcessGroup& group, std::shared_ptr<Store> store, std::unique_ptr<Backend> backend,
       std::unique_ptr<ControlChannel> control);
  ~Impl();

  // ---- collectives

  /// The description of a call, its fingerprint still without the call's number.
  Call describe(OpType op, const Tensor* tensor, std::int64_t count, int root, const ReduceOp& reduce,
                const Where& where) const;
  /// Makes a shape part of what the ranks must agree on.
  static void agree_on(Call& call, IntArrayRef shape) {
    call.fingerprint = mix(call.fingerprint, shape.size());
    for (const std::int64_t size : shape) call.fingerprint = mix(call.fingerprint, static_cast<std::uint64_t>(size));
  }
  /// Carries the call out by `run(backend, call)`: here and now if it blocks and nothing is under way, else by the
  /// queue. `results` is what Work::result() returns.
  template <class Run>
  WorkPtr submit(Call& call, CallOrder& order, bool async_op, TensorList results, Run run) {
    check_usable(call);
    order.submit();
    return submit(call, async_op, results, std::move(run));
  }
  /// The same where the call has no tensors.
  template <class Run>
  WorkPtr submit(Call& call, bool async_op, TensorList results, Run run) {
    check_usable(call);
    if (!async_op && queue.try_enter(call.sequence)) {
      struct Leave {
        CallQueue& queue;
        ~Leave() { queue.leave(); }
      } leave{queue};
      carry_out(call, 0, run);
      return nullptr;
    }
    WorkPtr work = enqueue(call, results, std::move(run));
    if (async_op) return work;
    work->wait();
    return nullptr;
  }
  template <class Run>
  WorkPtr enqueue(const Call& call, TensorList results, Run run);
  template <class Run>
  void carry_out(Call& call, std::uint64_t ticket, Run& run) {
    call.timeout = timeout;
    call.deadline = deadline_soon(timeout);
    call.fingerprint = mix(call.fingerprint, call.sequence);
    if (ticket == 0)
      ticket = recorder.note(call, CallState::Started);
    else
      recorder.started(ticket);
    const profiler::detail::Scope scope({.fixed_name = op_name(call.op), .kind = profiler::EventKind::Collective});
    try {
      check_usable(call);
      if (control) control->compare(call);
      run(*backend, static_cast<const Call&>(call));
    } catch (...) {
      call_failed(call, ticket);
    }
    recorder.ended(ticket, true);
  }
  /// Throws if the group is broken, shut down or was made before a fork.
  void check_usable(const Call& call) const {
    if (__builtin_expect(unusable.load(std::memory_order_acquire) || generation != fork_generation(), 0))
      throw_unusable(call);
  }
  [[noreturn]] void throw_unusable(const Call& call) const;
  /// In a handler: breaks the group and rethrows with the call and what all ranks were doing.
  [[noreturn]] void call_failed(const Call& call, std::uint64_t ticket);
  StateTalk* talk() { return control ? control->talk() : backend->talk(); }
  std::vector<int> lost_ranks() { return control ? control->lost_ranks() : backend->lost_ranks(); }
  /// In a handler: what the control channel knows of why the backend failed; nothing if there is none.
  std::string why_failed() const;
  enum class Came : std::uint8_t;
  void announce(const std::string& key, Deadline deadline);
  Came await(const std::string& key, int from, Deadline deadline);
  void monitored(Call& call, std::chrono::milliseconds patience, bool wait_all_ranks);
  void tell_that_read(const std::string& key) noexcept;
  void forget_barrier(const std::string& key, const std::string& here_key) noexcept;
  void abort(const std::string& reason) noexcept;
  static std::uint64_t mix(std::uint64_t h, std::uint64_t value) {
    h = (h ^ value) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
  }

  // ---- messages

  /// The group advances the request while nobody waits for it.
  void watch(const std::shared_ptr<P2pWork>& work);
  void unwatch(const P2pWork* work);
  void make_progress();
  void give_up_messages(const std::string& reason);

  void shutdown();

  const int rank, size;
  const std::string name;
  const std::chrono::milliseconds timeout;
  std::shared_ptr<Store> store;  ///< the group's own
  std::unique_ptr<Backend> backend;
  std::unique_ptr<ControlChannel> control;  ///< beside a backend that does not compare calls itself, or null
  GroupWatch* const watcher;                ///< the channel, or a backend that watches its ranks itself, or null
  bool debug;                               ///< ATHANOR_DISTRIBUTED_DEBUG
  unsigned generation;
  FlightRecorder recorder;

  std::atomic<bool> unusable{false};
  mutable std::mutex failure_mutex;
  std::string failure;  ///< why it is unusable

  CallQueue queue;
  std::atomic<std::uint64_t> monitored_barriers{0};

  std::mutex p2p_mutex;
  std::condition_variable p2p_signal;
  std::vector<std::shared_ptr<P2pWork>> p2p_watched;
  bool p2p_idle = false, p2p_stop = false;
  std::thread p2p_thread;
};

namespace internals {

template <class Run>
class QueuedCollective final : public QueuedCall {
 public:
  QueuedCollective(ProcessGroup::Impl& group, const Call& call, TensorList results, Run&& run)
      : QueuedCall(results.vec()), group_(group), call_(call), run_(std::move(run)) {
    call_.background = true;
    ticket_ = group.recorder.note(call_, CallState::Scheduled);
  }

 private:
  void run() override {
    struct Release {  // what the call holds on to goes when it has ended, not with the last handle on it
      std::optional<Run>& run;
      ~Release() { run.reset(); }
    } release{run_};
    group_.carry_out(call_, ticket_, *run_);
  }
  std::string text() const override {
    return athanor::detail::str(op_name(call_.op), ", number ", call_.sequence, " of the group");
  }

  ProcessGroup::Impl& group_;
  Call call_;
  std::optional<Run> run_;
  std::uint64_t ticket_;
};

}  // namespace internals

template <class Run>
WorkPtr ProcessGroup::Impl::enqueue(const Call& call, TensorList results, Run run) {
  return queue.enqueue([&](std::uint64_t number) {
    Call numbered = call;
    numbered.sequence = number;
    return std::make_shared<internals::QueuedCollective<Run>>(*this, numbered, results, std::move(run));
  });
}

}  // namespace athanor::distributed
