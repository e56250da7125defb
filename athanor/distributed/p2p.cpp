// Messages between two ranks.
#include "athanor/distributed/early_use.h"
#include "athanor/distributed/process_group_impl.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// How long the group lets the program take care of its requests before it does so itself, and the length of its turns.
constexpr std::chrono::milliseconds kProgressPause{2}, kProgressTurn{10};
// Turns without a request after which the thread sleeps until it is woken.
constexpr int kIdleTurns = 100;

std::uint64_t checksum(const Tensor& tensor) {
  const EarlyUse::Own own;
  const Staged staged(tensor, Staged::In);
  const Span span = staged.span();
  const auto* bytes = static_cast<const unsigned char*>(span.data);
  std::uint64_t h = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < span.bytes(); ++i) h = (h ^ bytes[i]) * 0x100000001b3u;
  return h;
}

}  // namespace

/// A send or receive under way. While it is watched its group advances it.
class P2pWork final : public Work {
 public:
  /// `returned`: the program will get it, and has to wait for it before it touches the tensor.
  P2pWork(ProcessGroup::Impl& group, const Call& call, int tag, const Tensor& tensor, Staged::Use use, bool returned)
      : group_(&group), call_(call), tag_(tag), tensor_(tensor), staged_(tensor_, use) {
    call_.shape = {tensor_.sizes().data(), tensor_.sizes().size()};
    if (call.op == OpType::Send && group.debug) checksum_ = checksum(tensor);
    if (call.op == OpType::Recv && group.debug && returned) early_use_.emplace(tensor_);
  }
  /// Hands it to the backend.
  void start() {
    call_.timeout = group_->timeout;
    call_.deadline = Deadline::after(group_->timeout);
    ticket_ = group_->recorder.note(call_, CallState::Started);
    try {
      group_->check_usable(call_);
      const auto tag = static_cast<std::uint32_t>(tag_);
      request_ = call_.op == OpType::Send ? group_->backend->isend(call_, staged_.span(), call_.root, tag)
                                          : group_->backend->irecv(call_, staged_.span(), call_.root, tag);
    } catch (Error& error) {
      group_->recorder.ended(ticket_, false);
      error.add_context(context());
      throw;
    }
  }

  bool is_completed() override {
    const bool ended = poll();
    if (ended && early_use_) note_early_use();
    return ended;
  }
  /// The same, of the group's thread: the program has not been told.
  bool poll() {
    if (ended_.load(std::memory_order_acquire)) return true;
    // Somebody waits for it: no news.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    return lock.owns_lock() && poll_locked();
  }
  std::exception_ptr exception() override { return is_completed() ? error_ : nullptr; }
  bool wait(std::chrono::milliseconds timeout) override {
    {
      const std::lock_guard lock(mutex_);
      const bool ended_before = ended_;  // then the group may be gone by now
      if (timeout == kNoTimeout)
        wait_locked();
      else
        wait_at_most(timeout);
      if (!ended_before) group_->unwatch(this);
    }
    if (early_use_) note_early_use();
    if (error_) std::rethrow_exception(error_);
    if (!used_by_.empty())
      throw DistError(str(context(), ": the tensor was used by ", used_by_, " before wait(). What that got is ",
                          "undefined; wait for the receive first"),
                      ATHANOR_WHERE);
    if (checksum_ && !std::exchange(unchanged_checked_, true) && checksum(tensor_) != *checksum_)
      throw DistError(str(context(), ": the tensor was changed before wait(). What the receiver got is undefined; ",
                          "wait for the send first, or send a copy"),
                      ATHANOR_WHERE);
    return true;
  }
  std::vector<Tensor> result() override {
    wait(kNoTimeout);
    return {tensor_};
  }
  int source_rank() override {
    ATHANOR_CHECK(call_.op == OpType::Recv, "source_rank: only a receive has one; this is ", context());
    ATHANOR_CHECK(is_completed() && !error_, "source_rank: the receive has not ended well yet");
    return source_;
  }

  /// Of the group's thread. False while somebody waits for it.
  bool being_waited_for() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    return !lock.owns_lock();
  }
  /// The group ends: gives the request up.
  void give_up(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (!ended_) finish(std::make_exception_ptr(DistError(str(context(), " was given up: ", reason), ATHANOR_WHERE)));
    group_ = nullptr;
  }

 private:
  std::string context() const { return str(call_.text(), ", tag ", tag_); }
  void note_early_use() {
    const std::lock_guard lock(mutex_);
    const std::string by = early_use_->end();
    if (!by.empty()) used_by_ = by;
  }
  void finish(std::exception_ptr error) {
    try {
      if (!error) {
        source_ = request_->source_rank();
        const EarlyUse::Own own;
        staged_.write_back();
      }
    } catch (...) {
      error = std::current_exception();
    }
    error_ = std::move(error);
    request_.reset();
    group_->recorder.ended(ticket_, !error_);
    ended_.store(true, std::memory_order_release);
  }
  template <class Act>
  void attempt(Act&& act) {
    try {
      if (act()) finish(nullptr);
    } catch (Error& error) {
      error.add_context(str("in ", context(), ", on rank ", group_->rank, " of ", group_->size));
      finish(std::current_exception());
    } catch (...) {
      finish(std::current_exception());
    }
  }
  bool poll_locked() {
    if (!ended_) attempt([this] { return request_->test(); });
    return ended_;
  }
  void wait_locked() {
    if (!ended_)
      attempt([this] {
        request_->wait(call_.deadline);
        return true;
      });
  }
  // The request goes on if the time is too short, so the backend's own wait is not for this.
  void wait_at_most(std::chrono::milliseconds timeout) {
    const Deadline deadline = Deadline::after(timeout);
    while (!poll_locked()) {
      if (deadline.expired())
        throw DistError(str("wait: ", timeout.count(), " ms passed and the message is still under way: ", context()),
                        ATHANOR_WHERE);
      group_->backend->progress(std::min(deadline.remaining(), kProgressTurn));
    }
  }

  ProcessGroup::Impl* group_;  // null when the group has ended
  Call call_;
  int tag_;
  Tensor tensor_;
  Staged staged_;
  std::optional<std::uint64_t> checksum_;
  bool unchanged_checked_ = false;
  std::optional<EarlyUse> early_use_;
  std::string used_by_;
  std::uint64_t ticket_ = 0;

  std::mutex mutex_;
  std::unique_ptr<P2pRequest> request_;
  std::atomic<bool> ended_{false};
  std::exception_ptr error_;
  int source_ = -1;
};

void ProcessGroup::Impl::watch(const std::shared_ptr<P2pWork>& work) {
  const std::lock_guard lock(p2p_mutex);
  p2p_watched.push_back(work);
  if (!p2p_thread.joinable()) p2p_thread = std::thread([this] { make_progress(); });
  if (p2p_idle) p2p_signal.notify_one();
}

void ProcessGroup::Impl::unwatch(const P2pWork* work) {
  std::shared_ptr<P2pWork> last;  // its end must not happen under the lock
  const std::lock_guard lock(p2p_mutex);
  for (auto& watched : p2p_watched)
    if (watched.get() == work) {
      last = std::move(watched);
      watched = std::move(p2p_watched.back());
      p2p_watched.pop_back();
      return;
    }
}

void ProcessGroup::Impl::make_progress() {
  const NoGradGuard no_grad;
  std::unique_lock lock(p2p_mutex);
  int idle_turns = 0;
  while (!p2p_stop) {
    if (p2p_watched.empty() && ++idle_turns > kIdleTurns) {
      p2p_idle = true;
      p2p_signal.wait(lock, [this] { return p2p_stop || !p2p_watched.empty(); });
      p2p_idle = false;
    }
    p2p_signal.wait_for(lock, kProgressPause, [this] { return p2p_stop; });
    if (p2p_stop || p2p_watched.empty()) continue;
    idle_turns = 0;
    const std::vector<std::shared_ptr<P2pWork>> watched = p2p_watched;
    lock.unlock();
    bool alone = false;
    for (const auto& work : watched) {
      if (work->poll())
        unwatch(work.get());
      else
        alone = alone || !work->being_waited_for();
    }
    try {
      if (alone) backend->progress(kProgressTurn);
    } catch (const std::exception&) {  // the requests tell their waiters
    }
    lock.lock();
  }
}

void ProcessGroup::Impl::give_up_messages(const std::string& reason) {
  std::vector<std::shared_ptr<P2pWork>> watched;
  {
    const std::lock_guard lock(p2p_mutex);
    p2p_stop = true;
    p2p_signal.notify_all();
    watched.swap(p2p_watched);
  }
  if (p2p_thread.joinable()) p2p_thread.join();
  for (const auto& work : watched) work->give_up(reason);
}

namespace {

void check_message(const ProcessGroup& group, const char* op, const Tensor& tensor, int other, int tag, bool any) {
  ATHANOR_CHECK(group.rank() >= 0, op, ": this process is no member of process group '", group.name(), "'");
  ATHANOR_CHECK(tensor.defined(), op, ": the tensor is undefined");
  ATHANOR_CHECK_VALUE((any && other == kAnySource) || (other >= 0 && other < group.size()), op, ": rank ", other,
                      " in a group of ", group.size(), ", expected 0 to ", group.size() - 1,
                      any ? ", or kAnySourceRank" : "");
  ATHANOR_CHECK_VALUE(other != group.rank(), op, ": rank ", other, " is this rank itself");
  ATHANOR_CHECK_VALUE(tag >= 0, op, ": the tag should not be negative, got ", tag);
}

}  // namespace

namespace internals {
std::shared_ptr<P2pWork> start_message(ProcessGroup::Impl& group, OpType op, const Tensor& tensor, int other, int tag,
                                       const ProcessGroup::Where& where, bool returned) {
  const Call call = group.describe(op, &tensor, tensor.numel(), other, ReduceOp(), where);
  const auto use = op == OpType::Send ? Staged::In : Staged::Out;
  auto work = std::make_shared<P2pWork>(group, call, tag, tensor, use, returned);
  work->start();
  return work;
}
}  // namespace internals

void ProcessGroup::send(const Tensor& tensor, int to, int tag, Where where) {
  check_message(*this, "send", tensor, to, tag, false);
  internals::start_message(*impl_, OpType::Send, tensor, to, tag, where, false)->wait(Work::kNoTimeout);
}

int ProcessGroup::recv(const Tensor& tensor, int from, int tag, Where where) {
  check_message(*this, "recv", tensor, from, tag, true);
  const auto work = internals::start_message(*impl_, OpType::Recv, tensor, from, tag, where, false);
  work->wait(Work::kNoTimeout);
  return work->source_rank();
}

WorkPtr ProcessGroup::isend(const Tensor& tensor, int to, int tag, Where where) {
  check_message(*this, "isend", tensor, to, tag, false);
  auto work = internals::start_message(*impl_, OpType::Send, tensor, to, tag, where, true);
  if (!work->poll()) impl_->watch(work);
  return work;
}

WorkPtr ProcessGroup::irecv(const Tensor& tensor, int from, int tag, Where where) {
  check_message(*this, "irecv", tensor, from, tag, true);
  auto work = internals::start_message(*impl_, OpType::Recv, tensor, from, tag, where, true);
  if (!work->poll()) impl_->watch(work);
  return work;
}

}  // namespace athanor::distributed
