#include "athanor/distributed/transport/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "athanor/base/env.h"
#include "athanor/base/log.h"
#include "athanor/distributed/transport/stager.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// What a rank shows of itself. A process id may mean another process where the ranks are in different containers:
// only who finds the secret at the address has found the right one.
struct Probe {
  std::int64_t pid = 0;
  std::uint64_t address = 0, secret = 0;
};
static_assert(sizeof(Probe) <= Arena::kPayload);

struct Verdict {
  bool usable = false, staged_sums = false;
};

std::uint64_t random_word() {
  std::random_device random;
  return static_cast<std::uint64_t>(random()) << 32 | random();
}

}  // namespace

PeerMemory::PeerMemory(Arena& arena, const Call& call) : arena_(arena), pids_(static_cast<std::size_t>(arena.ranks())) {
  const bool wanted = env::flag("ATHANOR_SINGLE_COPY", true);
  const std::uint64_t secret = random_word();
  const Probe mine{::getpid(), reinterpret_cast<std::uintptr_t>(&secret), secret};
  const std::uint64_t shown = arena.next_step();
  arena.publish(shown, call, &mine, sizeof mine);
  arena.await_all(shown, call);
  std::string problem = wanted ? "" : "ATHANOR_SINGLE_COPY=0";
  for (int place = 0; place < arena.ranks(); ++place) {
    Probe theirs;
    std::memcpy(&theirs, arena.payload(place, shown), sizeof theirs);
    pids_[static_cast<std::size_t>(place)] = static_cast<pid_t>(theirs.pid);
    if (place != arena.me() && problem.empty()) problem = problem_with(place, theirs.address, theirs.secret);
  }
  // `secret` is read until everyone has said what came of it.
  const std::uint64_t verdict = arena.next_step();
  const Verdict own{problem.empty(), env::flag("ATHANOR_STAGED_SUMS", Stager::bypassing_may_pay())};
  arena.publish(verdict, call, &own, sizeof own);
  arena.await_all(verdict, call);
  usable_ = true;
  for (int place = 0; place < arena.ranks(); ++place) {
    Verdict theirs;
    std::memcpy(&theirs, arena.payload(place, verdict), sizeof theirs);
    staged_sums_ = staged_sums_ || theirs.staged_sums;
    if (!theirs.usable && usable_)
      ATHANOR_LOG(Debug, "the ranks of this host copy through memory they share: ",
                  arena.mesh().rank_text(arena.group_rank(place)), " cannot read the others' own",
                  problem.empty() ? "" : ": ", problem);
    usable_ = usable_ && theirs.usable;
  }
}

std::string PeerMemory::problem_with(int place, std::uint64_t address, std::uint64_t secret) const {
  std::uint64_t found = 0;
  try {
    read(place, &found, address, sizeof found);
  } catch (const DistNetworkError& error) {
    return error.what();
  }
  if (found == secret) return "";
  return str("process ", pids_[static_cast<std::size_t>(place)], " is not ",
             arena_.mesh().rank_text(arena_.group_rank(place)));
}

void PeerMemory::read(int place, void* to, std::uint64_t address, std::size_t bytes) const {
  auto* local = static_cast<char*>(to);
  while (bytes > 0) {
    const iovec here{local, bytes}, there{reinterpret_cast<void*>(address), bytes};  // NOLINT: an address elsewhere
    const ssize_t got = ::process_vm_readv(pids_[static_cast<std::size_t>(place)], &here, 1, &there, 1, 0);
    if (got <= 0)
      throw DistNetworkError(str("reading the memory of ", arena_.mesh().rank_text(arena_.group_rank(place)), ": ",
                                 got == 0 ? "nothing there" : error_text(errno)),
                             ATHANOR_WHERE);
    local += got;
    address += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

}  // namespace athanor::distributed
