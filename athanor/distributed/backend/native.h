#pragma once
/// The native backend, "tcp": shared memory between the ranks of a host, TCP between hosts.

#include <memory>

#include "athanor/distributed/backend.h"

namespace athanor::distributed {

/// Connects to the other ranks; see Mesh. ATHANOR_TRANSPORT=auto|shm|tcp.
std::unique_ptr<Backend> make_native_backend(const BackendOptions& options);

/// What the ranks of a group tell each other beside a backend that cannot compare calls or notice a rank's end.
class ControlChannel : public GroupWatch {
 public:
  virtual ~ControlChannel() = default;
  /// All ranks show each other what they are about to do. Throws DistBackendError if that differs, if a rank is gone
  /// or broke the group, and if one does not come by the call's deadline. One thread at a time.
  virtual void compare(const Call& call) = 0;
  /// The same as look() as soon as there is a reason to throw, at most `patience` later.
  virtual void look_for(std::chrono::milliseconds patience) = 0;
  /// See Backend::lost_ranks.
  virtual std::vector<int> lost_ranks() = 0;
  /// From any thread: every rank's wait ends with this reason.
  virtual void abort(const std::string& reason) noexcept = 0;
  virtual void shutdown() noexcept = 0;
  /// See Backend::talk.
  virtual StateTalk* talk() = 0;
};
/// Connects to the other ranks, as the native backend does.
std::unique_ptr<ControlChannel> make_control_channel(const BackendOptions& options);

}  // namespace athanor::distributed
