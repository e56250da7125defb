#pragma once

namespace athanor {

/// CPUs this process may use: its affinity mask or the cgroup's quota, whichever is smaller; at least 1.
int usable_cpus();

}  // namespace athanor
