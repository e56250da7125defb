#include "athanor/distributed/rendezvous/slurm.h"

#include <algorithm>

#include "athanor/base/env.h"
#include "athanor/distributed/rendezvous/job_port.h"

namespace athanor::distributed::slurm {

std::string first_host() {
  const std::string list = env::text("SLURM_STEP_NODELIST").value_or(env::text("SLURM_JOB_NODELIST").value_or(""));
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    const std::size_t close = std::min(list.find(']', at), list.size());
    host += list.substr(at + 1, std::min(list.find_first_of(",-]", at), close) - at - 1);
    at = std::min(close + 1, list.size());
  }
  return host;
}

std::optional<int> tasks_of_node(const std::string& tasks_per_node, int node) {
  std::size_t at = 0;
  for (std::int64_t first = 0; at < tasks_per_node.size();) {
    const std::size_t end = std::min(tasks_per_node.find(',', at), tasks_per_node.size());
    const std::string entry = tasks_per_node.substr(at, end - at);
    const std::size_t times = entry.find("(x");
    const auto tasks = parse_integer(entry.substr(0, times));
    std::optional<std::int64_t> nodes = 1;
    if (times != std::string::npos)
      nodes = entry.back() == ')' ? parse_integer(entry.substr(times + 2, entry.size() - times - 3)) : std::nullopt;
    if (!tasks || !nodes || *tasks < 1 || *tasks > INT32_MAX || *nodes < 1) return std::nullopt;
    first += *nodes;
    if (node < first) return static_cast<int>(*tasks);
    at = end + 1;
  }
  return std::nullopt;
}

std::optional<std::int64_t> port() {
  const auto job = env::integer("SLURM_JOB_ID", 0);
  if (!job) return std::nullopt;
  return job_port(static_cast<std::uint64_t>(*job));
}

}  // namespace athanor::distributed::slurm
