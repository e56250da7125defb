// The barrier that names who did not come. It goes through the store, so it works where the backend is stuck.
#include <algorithm>
#include <optional>
#include <thread>

#include "athanor/base/interrupt.h"
#include "athanor/distributed/process_group_impl.h"

namespace athanor::distributed {

using athanor::detail::str;

enum class ProcessGroup::Impl::Came : std::uint8_t { Yes, No, Gone };

void ProcessGroup::monitored_barrier(std::chrono::milliseconds given, bool wait_all_ranks, Where where) {
  ATHANOR_CHECK(rank_ >= 0, "monitored_barrier: this process is no member of process group '", name_, "'");
  const auto timeout = given < std::chrono::milliseconds(0) ? timeout_ : given;
  Call call = impl_->describe(OpType::Barrier, nullptr, 0, -1, ReduceOp(), where);
  // Not by compare(): that would wait for those whose absence is to be reported.
  impl_->monitored(call, timeout, wait_all_ranks);
}

namespace {
constexpr std::chrono::milliseconds kLook{100};  // how long the store is asked before the ranks are looked at
}

// Rank 0 may be gone, and the store with it: a client would try to reach it until the deadline. A slow server gets more
// time at every attempt.
void ProcessGroup::Impl::announce(const std::string& key, Deadline deadline) {
  for (auto patience = kLook;; patience *= 2) {
    try {
      const StoreDeadline limit(deadline.sooner(Deadline::after(patience)));
      return store->set(key, "here");
    } catch (const DistStoreError&) {
    }
    check_interrupt();
    const std::vector<int> lost = lost_ranks();
    if (std::count(lost.begin(), lost.end(), 0) != 0 || deadline.expired()) return;  // this rank will be missed
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// What a rank says in the store; it says nothing more once it is gone.
ProcessGroup::Impl::Came ProcessGroup::Impl::await(const std::string& key, int from, Deadline deadline) {
  const auto look_for = [&](std::chrono::milliseconds time) {
    try {
      store->wait({key}, time);
      return true;
    } catch (const DistStoreError&) {
      return false;
    }
  };
  std::optional<Deadline> grace;  // where the store itself is gone, most likely with rank 0
  while (true) {
    const Deadline look = deadline.sooner(Deadline::after(kLook));
    if (look_for(look.remaining())) return Came::Yes;
    check_interrupt();
    const std::vector<int> lost = lost_ranks();
    // It may have said it just before.
    if (std::count(lost.begin(), lost.end(), from) != 0)
      return look_for(std::chrono::milliseconds(1)) ? Came::Yes : Came::Gone;
    if (!look.expired()) {
      if (!grace) grace = Deadline::after(5 * kLook);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (deadline.expired() || (grace && grace->expired())) return Came::No;
  }
}

void ProcessGroup::Impl::monitored(Call& call, std::chrono::milliseconds patience, bool wait_all_ranks) {
  check_usable(call);
  const Deadline deadline = Deadline::after(patience);
  const std::string key = str("monitored/", monitored_barriers.fetch_add(1) + 1, "/");
  const std::string verdict_key = key + "verdict";
  const std::string here_key = str(key, rank);
  if (rank != 0) announce(here_key, deadline);
  std::string verdict = "ok";
  bool told = true;  // by the store
  if (rank == 0) {
    std::string missing, gone;
    for (int r = 1; r < size && ((missing.empty() && gone.empty()) || wait_all_ranks); ++r) {
      const Came came = await(str(key, r), r, deadline);
      if (came == Came::Yes) continue;
      std::string& list = came == Came::Gone ? gone : missing;
      list += str(list.empty() ? "" : ", ", r);
    }
    std::string what =
        gone.empty() ? "" : str("rank ", gone, gone.find(',') == std::string::npos ? " is" : " are", " gone");
    if (!missing.empty())
      what += str(what.empty() ? "" : "; ", "rank ", missing, " did not come within ", patience.count(), " ms");
    if (!what.empty())
      verdict =
          str("monitored_barrier of group '", name, "': ", what, wait_all_ranks ? "" : " (the first that was missed)",
              ", at ",
              std::string_view(call.where.file_name()).substr(std::string_view(call.where.file_name()).rfind('/') + 1),
              ":", call.where.line());
    if (size > 1) store->set(verdict_key, verdict);
  } else {
    // Rank 0's verdict comes a little after its own deadline.
    constexpr std::chrono::milliseconds kGrace{1000};
    const Came came = await(verdict_key, 0, Deadline::after(deadline.remaining() + kGrace));
    told = came == Came::Yes;
    if (told)
      verdict = store->get_text(verdict_key);
    else
      verdict = str("monitored_barrier of group '", name, "': rank 0 ",
                    came == Came::Gone ? "is gone" : str("did not come within ", patience.count(), " ms"));
  }
  if (verdict != "ok") {
    if (told) tell_that_read(key);
    throw DistError(verdict, ATHANOR_WHERE);
  }
  if (rank != 0) forget_barrier(key, here_key);
}

// The store may go with rank 0: those who came first read why.
void ProcessGroup::Impl::tell_that_read(const std::string& key) noexcept {
  try {
    if (rank != 0) {
      const StoreDeadline limit(Deadline::after(std::chrono::seconds(1)));
      store->add(key + "read", 1);
      return;
    }
    std::vector<std::string> others;
    for (int r = 1; r < size; ++r) others.push_back(str(key, r));
    let_all_read(*store, others, key + "read");
  } catch (const std::exception&) {  // it is gone already
  }
}

// After a barrier that failed everything stays: who comes late must find out.
void ProcessGroup::Impl::forget_barrier(const std::string& key, const std::string& here_key) noexcept {
  try {
    const StoreDeadline limit(Deadline::after(std::chrono::seconds(1)));
    store->delete_key(here_key);
    if (store->add(key + "read", 1) < size - 1) return;
    store->delete_key(key + "verdict");
    store->delete_key(key + "read");
  } catch (const std::exception&) {  // rank 0 may have served the store and be gone, which ends its growth
  }
}

}  // namespace athanor::distributed
