// The barrier that names who did not come. It goes through the store, so it works where the backend is stuck.
#include "athanor/distributed/process_group_impl.h"

namespace athanor::distributed {

using athanor::detail::str;

void ProcessGroup::monitored_barrier(std::chrono::milliseconds given, bool wait_all_ranks, Where where) {
  ATHANOR_CHECK(rank_ >= 0, "monitored_barrier: this process is no member of process group '", name_, "'");
  const auto timeout = given < std::chrono::milliseconds(0) ? timeout_ : given;
  Call call = impl_->describe(OpType::Barrier, nullptr, 0, -1, ReduceOp(), where);
  // Not by compare(): that would wait for those whose absence is to be reported.
  impl_->monitored(call, timeout, wait_all_ranks);
}

void ProcessGroup::Impl::monitored(Call& call, std::chrono::milliseconds patience, bool wait_all_ranks) {
  check_usable(call);
  const Deadline deadline = Deadline::after(patience);
  const std::string key = str("monitored/", monitored_barriers.fetch_add(1) + 1, "/");
  const std::string verdict_key = key + "verdict";
  const std::string here_key = str(key, rank);
  if (rank != 0) store->set(here_key, "here");
  std::string verdict = "ok";
  if (rank == 0) {
    std::string missing;
    for (int r = 1; r < size && (missing.empty() || wait_all_ranks); ++r) {
      try {
        store->wait({str(key, r)}, deadline.remaining());
      } catch (const DistStoreError&) {
        missing += str(missing.empty() ? "" : ", ", r);
      }
    }
    if (!missing.empty())
      verdict =
          str("monitored_barrier of group '", name, "': rank ", missing, " did not come within ", patience.count(),
              " ms", wait_all_ranks ? "" : " (the first that is missing)", ", at ",
              std::string_view(call.where.file_name()).substr(std::string_view(call.where.file_name()).rfind('/') + 1),
              ":", call.where.line());
    if (size > 1) store->set(verdict_key, verdict);
  } else {
    // Rank 0's verdict comes a little after its own deadline.
    constexpr std::chrono::milliseconds kGrace{1000};
    try {
      const auto value = store->get(verdict_key, deadline.remaining() + kGrace);
      verdict.assign(value.begin(), value.end());
    } catch (const DistStoreError&) {
      verdict = str("monitored_barrier of group '", name, "': rank 0 did not come within ", patience.count(), " ms");
    }
  }
  if (verdict != "ok") throw DistError(verdict, ATHANOR_WHERE);
  if (rank != 0) forget_barrier(key, here_key);
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
