#pragma once
/// What the native backend and the control channel beside other backends share.

#include <optional>
#include <vector>

#include "athanor/distributed/algorithms/local.h"
#include "athanor/distributed/algorithms/remote.h"
#include "athanor/distributed/backend.h"

namespace athanor::distributed {

/// A rank's connections to the others and the collectives over them: within the host in shared memory, where it has
/// one, and between hosts.
class Connections {
 public:
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

 protected:
  /// Connects; throws as Mesh does.
  explicit Connections(const BackendOptions& options);
  /// Leaves.
  ~Connections() { leave(); }

  /// Tells the others, once, that this rank's end is no fault.
  void leave() noexcept;
  bool one_host() const { return mesh_.leaders().size() == 1; }

  Mesh mesh_;
  std::optional<LocalCollectives> local_;
  std::optional<Links> links_;
  std::vector<int> everyone_;

 private:
  bool left_ = false;
};

}  // namespace athanor::distributed
