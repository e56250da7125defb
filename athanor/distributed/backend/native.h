#pragma once
/// The native backend, "tcp": shared memory between the ranks of a host, TCP between hosts.

#include <memory>

#include "athanor/distributed/backend.h"

namespace athanor::distributed {

/// Connects to the other ranks; see Mesh. ATHANOR_TRANSPORT=auto|shm|tcp.
std::unique_ptr<Backend> make_native_backend(const BackendOptions& options);

}  // namespace athanor::distributed
