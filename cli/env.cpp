// What a bug report needs to say about the machine and this build.
#include "cli/env.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "athanor/base/cpus.h"
#include "athanor/base/parallel.h"
#include "athanor/distributed/backend.h"

extern char** environ;

namespace athanor::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The value of the first line "key : value" of a file of /proc.
std::string proc_value(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "unknown";
}

/// Instruction sets that kernels are compiled for or dispatch on.
Json instruction_sets() {
  Json out = Json::array();
  const std::string flags = " " + proc_value("/proc/cpuinfo", "flags") + " ";
  for (const char* name : {"sse4_2", "avx2", "fma", "avx512f", "avx512bw", "avx512_bf16", "amx_bf16"})
    if (flags.find(" " + std::string(name) + " ") != std::string::npos) out.push_back(name);
  return out;
}

/// Files of the libraries that this process has loaded, of those that matter.
Json libraries() {
  std::set<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.rfind('/');
    if (slash == std::string::npos) continue;
    const std::string name = line.substr(slash + 1);
    for (const char* known : {"libathanor", "libdnnl", "libhwy", "libgomp", "libz.", "libcurl", "libstdc++", "libc.so"})
      if (name.starts_with(known)) found.insert(line.substr(line.find('/')));
  }
  return Json(found);
}

Json backends() {
  Json out = Json::object();
  std::set<std::string> names{"tcp", "gloo", "mpi"};
  for (const auto& name : distributed::backend_names()) names.insert(name);
  for (const auto& name : names) {
    bool usable = false;
    std::string why;
    try {
      usable = distributed::is_backend_available(name);
    } catch (const std::exception& error) {
      why = error.what();
    }
    out[name] = usable ? "usable" : why.empty() ? "not usable: its plug-in or what that needs is missing" : why;
  }
  return out;
}

/// Variables that change what a program does. Secrets are named and not shown.
Json variables() {
  Json out = Json::object();
  std::set<std::string> entries;
  for (char** e = environ; *e; ++e) entries.insert(*e);
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    bool ours = false;
    for (const char* prefix : {"ATHANOR_", "OMP_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_RANK"})
      ours = ours || name.starts_with(prefix);
    if (ours) out[name] = name.find("SECRET") == std::string::npos ? entry.substr(equals + 1) : "(set)";
  }
  return out;
}

Json report() {
  utsname system{};
  ::uname(&system);
  Json out;
  out["athanor"] = ATHANOR_VERSION;
  out["compiler"] = "C++ " + std::to_string(__cplusplus / 100 % 100) + ", " __VERSION__;
  out["system"] = std::string(system.sysname) + " " + system.release + " " + system.machine;
  out["processor"] = proc_value("/proc/cpuinfo", "model name");
  out["instruction sets"] = instruction_sets();
  out["processors"] = std::to_string(usable_cpus()) + " usable of " + std::to_string(::sysconf(_SC_NPROCESSORS_ONLN));
  out["threads"] = std::to_string(get_num_threads());
  out["memory"] =
      proc_value("/proc/meminfo", "MemTotal") + ", available " + proc_value("/proc/meminfo", "MemAvailable");
  out["devices"] = Json::array({"cpu"});
  out["backends"] = backends();
  out["libraries"] = libraries();
  out["variables"] = variables();
  return out;
}

void print(const Json& report) {
  for (const auto& [key, value] : report.items()) {
    if (value.is_string()) {
      std::printf("%-17s %s\n", key.c_str(), value.get<std::string>().c_str());
      continue;
    }
    std::printf("%s%s\n", key.c_str(), value.empty() ? ": none" : "");
    for (const auto& [name, entry] : value.items())
      if (value.is_array())
        std::printf("  %s\n", entry.get<std::string>().c_str());
      else
        std::printf("  %-15s %s\n", name.c_str(), entry.get<std::string>().c_str());
  }
}

}  // namespace

int env(int argc, const char* const* argv) {
  if (argc == 2 && std::strcmp(argv[1], "--backends") == 0) return env_backends();
  const bool json = argc == 2 && std::strcmp(argv[1], "--json") == 0;
  if (argc > 1 && !json) {
    const bool help = std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0;
    std::fputs(
        "Usage: athanor env [--json | --backends]\n\nTells what is built in, found and usable on this machine.\n"
        "--backends tries out what each backend of process groups does, and prints a table.\n",
        help ? stdout : stderr);
    return help ? 0 : 2;
  }
  const Json all = report();
  if (json)
    std::printf("%s\n", all.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  else
    print(all);
  return 0;
}

}  // namespace athanor::cli
