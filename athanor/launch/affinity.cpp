#include "athanor/launch/affinity.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "athanor/base/error.h"
#include "athanor/distributed/net/socket.h"

namespace athanor::launch {

using athanor::detail::str;
namespace fs = std::filesystem;

namespace {

constexpr std::pair<const char*, NumaBinding> kNames[] = {{"node", NumaBinding::Node},
                                                          {"socket", NumaBinding::Socket},
                                                          {"exclusive", NumaBinding::Exclusive},
                                                          {"core-complex", NumaBinding::CoreComplex}};

using Groups = std::vector<std::vector<int>>;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "0-3,8"; what is no such list gives the part before that.
std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  for (const char* at = text.c_str(); *at != '\0';) {
    char* end = nullptr;
    const long first = std::strtol(at, &end, 10);
    if (end == at || first < 0) break;
    long last = first;
    if (*end == '-') last = std::strtol(end + 1, &end, 10);
    for (long cpu = first; cpu <= std::min<long>(last, CPU_SETSIZE); ++cpu) cpus.push_back(static_cast<int>(cpu));
    at = *end == ',' ? end + 1 : end;
  }
  return cpus;
}

// Groups of the CPUs for which a file says the same, in the order of their first CPU.
Groups by_file(const std::vector<int>& cpus, const std::string& system, const char* file, const char* what) {
  std::map<std::string, std::size_t> known;
  Groups groups;
  for (const int cpu : cpus) {
    const std::string says = first_line(fs::path(system) / "cpu" / str("cpu", cpu) / file);
    ATHANOR_CHECK_VALUE(!says.empty(), "--numa-binding: this system does not say ", what, " CPU ", cpu, " has (", file,
                        " is missing); leave the flag out");
    const auto [entry, is_new] = known.emplace(says, groups.size());
    if (is_new) groups.emplace_back();
    groups[entry->second].push_back(cpu);
  }
  return groups;
}

Groups numa_nodes(const std::vector<int>& allowed, const std::string& system) {
  std::map<int, std::vector<int>> nodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(system) / "node", error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node") || name.find_first_not_of("0123456789", 4) != std::string::npos) continue;
    std::vector<int> cpus = parse_cpu_list(first_line(entry.path() / "cpulist"));
    std::erase_if(cpus, [&](int cpu) { return !std::binary_search(allowed.begin(), allowed.end(), cpu); });
    if (!cpus.empty()) nodes[std::atoi(name.c_str() + 4)] = cpus;
  }
  Groups groups;
  for (auto& [number, cpus] : nodes) groups.push_back(std::move(cpus));
  ATHANOR_CHECK_VALUE(!groups.empty(), "--numa-binding: this system does not show its NUMA nodes (", system,
                      "/node is missing); leave the flag out");
  return groups;
}

Groups groups_for(NumaBinding binding, const std::vector<int>& allowed, const std::string& system) {
  if (binding == NumaBinding::Socket) return by_file(allowed, system, "topology/physical_package_id", "which socket");
  if (binding == NumaBinding::CoreComplex)
    return by_file(allowed, system, "cache/index3/shared_cpu_list", "which last-level cache");
  return numa_nodes(allowed, system);
}

// The cores of one node, cut into as many pieces as it has workers; threads of one core stay together.
std::vector<int> share_of(const std::vector<int>& node, std::size_t which, std::size_t workers,
                          const std::string& system) {
  const Groups cores = by_file(node, system, "topology/thread_siblings_list", "which core");
  ATHANOR_CHECK_VALUE(cores.size() >= workers, "--numa-binding=exclusive: ", workers, " workers on a NUMA node with ",
                      cores.size(), cores.size() == 1 ? " core" : " cores",
                      " that may be used: start fewer workers, or use --numa-binding=node");
  std::vector<int> cpus;
  for (std::size_t i = which * cores.size() / workers; i < (which + 1) * cores.size() / workers; ++i)
    cpus.insert(cpus.end(), cores[i].begin(), cores[i].end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

}  // namespace

std::optional<NumaBinding> numa_binding_of(const std::string& text) {
  for (const auto& [name, binding] : kNames)
    if (text == name) return binding;
  return std::nullopt;
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  ATHANOR_CHECK(::sched_getaffinity(0, sizeof set, &set) == 0, "sched_getaffinity: ", distributed::error_text(errno));
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

std::vector<std::vector<int>> cpus_of_workers(NumaBinding binding, int workers, const std::vector<int>& allowed,
                                              const std::string& system) {
  const auto count = static_cast<std::size_t>(workers);
  if (binding == NumaBinding::None) return std::vector<std::vector<int>>(count);
  const Groups groups = groups_for(binding, allowed, system);
  const auto group_of = [&](std::size_t worker) { return worker * groups.size() / count; };
  std::vector<std::vector<int>> all;
  for (std::size_t worker = 0; worker < count; ++worker) {
    const std::size_t group = group_of(worker);
    if (binding != NumaBinding::Exclusive) {
      all.push_back(groups[group]);
      continue;
    }
    std::size_t first = worker, last = worker;
    while (first > 0 && group_of(first - 1) == group) --first;
    while (last + 1 < count && group_of(last + 1) == group) ++last;
    all.push_back(share_of(groups[group], worker - first, last - first + 1, system));
  }
  return all;
}

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i;
    while (end + 1 < cpus.size() && cpus[end + 1] == cpus[end] + 1) ++end;
    text += str(text.empty() ? "" : ",", cpus[i], end > i ? str("-", cpus[end]) : std::string());
    i = end + 1;
  }
  return text;
}

}  // namespace athanor::launch
