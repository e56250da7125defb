#pragma once
/// --numa-binding: which CPUs each worker of a node may use.

#include <optional>
#include <string>
#include <vector>

namespace athanor::launch {

/// As torchrun calls them: all CPUs of a NUMA node, all CPUs of a socket, a share of a NUMA node's cores that no other
/// worker has, the CPUs that share a last-level cache.
enum class NumaBinding { None, Node, Socket, Exclusive, CoreComplex };

/// "node", "socket", "exclusive", "core-complex"; nothing for any other text.
std::optional<NumaBinding> numa_binding_of(const std::string& text);

/// The CPUs this process may use, ascending. Throws Error with what the system said.
std::vector<int> allowed_cpus();

/// The CPUs of each of `workers` workers of this machine, by local rank, ascending; none of them is outside `allowed`.
/// Workers are spread over the nodes, sockets or caches in their order: the first half of the workers on the first of
/// two. `system` is the folder in which the system describes itself. Throws ValueError that names --numa-binding and
/// what is missing: a system that does not say, or fewer cores than workers that want some of their own.
std::vector<std::vector<int>> cpus_of_workers(NumaBinding binding, int workers, const std::vector<int>& allowed,
                                              const std::string& system = "/sys/devices/system");

/// "0-3,8".
std::string cpu_list_text(const std::vector<int>& cpus);

}  // namespace athanor::launch
