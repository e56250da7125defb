// env:// — the launcher says everything in environment variables.
#include <atomic>

#include "athanor/base/env.h"

#include <unistd.h>

#include <functional>
#include <span>
#include <string_view>

#include "athanor/base/log.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/rendezvous/job_port.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/rendezvous/slurm.h"
#include "athanor/distributed/store/tcp_store.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// torchrun's names first, then what MPI launchers and Slurm set. The pods of an Indexed Job of Kubernetes are told
// their number, not how many they are.
constexpr const char* kRankNames[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
                                      "JOB_COMPLETION_INDEX"};
constexpr const char* kSizeNames[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                      "SLURM_NTASKS"};

constexpr const char* kLocalRankNames[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                           "SLURM_LOCALID"};

int number(const RendezvousUrl& url, std::span<const char* const> names, int given, const char* what) {
  if (url.query.contains(what)) return given;  // the URL has the last word
  // The environment and an argument may both speak, as long as they say the same.
  for (const char* name : names)
    if (const auto value = env::integer(name, 0, INT32_MAX)) {
      ATHANOR_CHECK_VALUE(given < 0 || given == *value, "init_method 'env://': ", what, " is ", given,
                          " as an argument, but ", name, "=", *value);
      return static_cast<int>(*value);
    }
  ATHANOR_CHECK_VALUE(
      given >= 0, "init_method 'env://': environment variable ", names[0],
      " is not set. Start the program with a launcher (athanor run), or set RANK, WORLD_SIZE, MASTER_ADDR "
      "and MASTER_PORT");
  return given;
}

// Operators that expect a launcher in each pod count pods in RANK and all processes in WORLD_SIZE: without the
// launcher, ranks would be missing for ever.
void refuse_number_of_node(const RendezvousUrl& url, const RendezvousOptions& given) {
  if (given.rank >= 0 || url.query.contains("rank") || env::text("LOCAL_RANK") || !env::text("RANK")) return;
  const auto processes = parse_integer(env::text("PET_NPROC_PER_NODE").value_or(""));
  if (!processes || *processes < 2) return;
  ATHANOR_THROW(ValueError, "init_method 'env://': PET_NPROC_PER_NODE=", *processes,
                " without LOCAL_RANK: RANK=", *env::text("RANK"),
                " is the number of this node, and nothing has started its ", *processes,
                " processes. Start the program with `athanor run`, which does");
}

// What all processes of an mpirun share and others do not; empty if there is no mpirun, or some of them are elsewhere.
std::string mpi_job_on_one_host(int world_size) {
  for (const char* local : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (env::integer(local, 1, INT32_MAX).value_or(0) == world_size)
      for (const char* job : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "HYDI_CONTROL_FD", "PMI_JOBID"})
        if (const auto name = env::text(job)) return str(*name, "/", ::getppid());
  return "";
}

}  // namespace

std::optional<int> launched_world_size() {
  for (const std::string_view name : kSizeNames)
    // A batch script of Slurm has its job's number of tasks without being one of them.
    if (name != "SLURM_NTASKS")
      if (const auto value = env::integer(name.data(), 1, INT32_MAX)) return static_cast<int>(*value);
  return std::nullopt;
}

std::optional<int> launched_local_rank() {
  for (const std::string_view name : kLocalRankNames)
    // A batch script of Slurm has one as well, without being a task.
    if (name != "SLURM_LOCALID" || env::text("SLURM_STEP_NUM_TASKS"))
      if (const auto value = env::integer(name.data(), 0, INT32_MAX)) return static_cast<int>(*value);
  return std::nullopt;
}

RendezvousResult meeting::rendezvous_env(const RendezvousUrl& url, const RendezvousOptions& given) {
  ATHANOR_CHECK_VALUE(given.group_name.empty(), "init_method 'env://' takes no group_name, got '", given.group_name,
                      "': the launcher already keeps jobs apart");
  RendezvousOptions options = given;
  refuse_number_of_node(url, given);
  options.rank = number(url, kRankNames, given.rank, "rank");
  options.world_size = number(url, kSizeNames, given.world_size, "world_size");
  check_rank(url, options, false);
  const Deadline deadline = Deadline::after(options.timeout);
  std::string host = env::text("MASTER_ADDR").value_or(slurm::first_host());
  const std::string mpi_job = mpi_job_on_one_host(options.world_size);
  if (host.empty() && (options.rank == 0 || options.world_size == 1 || !mpi_job.empty())) host = "127.0.0.1";
  ATHANOR_CHECK_VALUE(!host.empty(), "init_method 'env://': environment variable MASTER_ADDR is not set on rank ",
                      options.rank, ": it names the host of rank 0");
  auto port = env::integer("MASTER_PORT", 1, 65535);
  if (!port) port = slurm::port();
  if (!port && !mpi_job.empty()) port = job_port(std::hash<std::string>()(mpi_job));
  ATHANOR_CHECK_VALUE(port, "init_method 'env://': environment variable MASTER_PORT is not set");

  // Under torchrun the agent serves a store at that address already; whoever would bind it finds it taken.
  const bool agent = env::flag("TORCHELASTIC_USE_AGENT_STORE", false);
  const auto restart = env::text("TORCHELASTIC_RESTART_COUNT").value_or("0");
  TCPStoreOptions store_options;
  store_options.port = static_cast<int>(*port);
  store_options.is_server = options.rank == 0 && !agent;
  store_options.multi_tenant = true;  // a group that somebody still holds may have left one here
  store_options.timeout = options.timeout;
  store_options.secret = options.secret;
  ATHANOR_LOG(Debug, "env://: ", store_options.is_server ? "serving" : "looking for", " the store at ",
              Endpoint{host, store_options.port}.text(), agent ? " (the launcher's)" : "");
  // A store that outlives a restarted set of workers must not show them their predecessors' keys, nor those of a group
  // that these processes have destroyed since.
  static std::atomic<int> meetings = 0;
  const int meeting_number = agent ? meetings.fetch_add(1) : 0;
  return meet_at(host, store_options, env_prefix(restart, meeting_number), options.rank, options.world_size, deadline,
                 "init_method 'env://'", !agent);
}

}  // namespace athanor::distributed
