#pragma once
/// PeerMemory: reading what another process of the same host has in its memory, in one copy made by the kernel
/// (process_vm_readv). Where the system forbids it, through a ptrace restriction, a sandbox or separate containers,
/// nobody on the host uses it. There is no writing: who has given up a collective may use its memory for other things,
/// and what is read from such a rank is never taken for a result.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "athanor/distributed/transport/arena.h"

namespace athanor::distributed {

class PeerMemory {
 public:
  /// Tries it out; all ranks of the host make theirs, and all come to the same result. Waits as `call` says.
  /// ATHANOR_SINGLE_COPY=0 does without. ATHANOR_STAGED_SUMS=0|1 says what staged_sums() is: true if a rank says so.
  PeerMemory(Arena& arena, const Call& call);

  bool usable() const { return usable_; }
  /// Whether large sums go through shared memory all the same: to read another's memory takes a call for every few
  /// pages, which costs more than staging where that is done well.
  bool staged_sums() const { return staged_sums_; }
  /// Copies from that rank's address. Throws DistNetworkError if there is nothing, or the process is gone.
  void read(int place, void* to, std::uint64_t address, std::size_t bytes) const;

 private:
  std::string problem_with(int place, std::uint64_t address, std::uint64_t secret) const;

  Arena& arena_;
  std::vector<pid_t> pids_;
  bool usable_ = false, staged_sums_ = false;
};

}  // namespace athanor::distributed
