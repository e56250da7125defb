// Slurm, MPI launchers and Kubernetes: who starts several agents tells each which one it is.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>

#include "athanor/base/env.h"
#include "athanor/base/error.h"
#include "athanor/base/hash.h"
#include "athanor/distributed/rendezvous/job_port.h"
#include "athanor/distributed/rendezvous/slurm.h"
#include "athanor/launch/options.h"

namespace athanor::launch {

using athanor::detail::str;

namespace {

std::optional<int> number(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto value = env::integer(name, 0, INT32_MAX)) return static_cast<int>(*value);
  return std::nullopt;
}

// One agent per task: a node's share of the workers is what its tasks run together.
void agents_are_tasks(Scheduler& found, std::optional<int> local_rank, std::optional<int> local_size) {
  found.first_local_rank = local_rank;
  found.local_world_size = local_size;
}

Scheduler slurm() {
  Scheduler found;
  const auto nodes = number({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"});
  const auto node = number({"SLURM_NODEID"});
  if (!nodes || !node) return found;
  // In a batch script these variables describe the allocation, while only one agent runs.
  const bool in_step = env::text("SLURM_STEP_NUM_NODES") || env::text("SLURM_STEP_ID") || env::text("SLURM_STEPID") ||
                       env::text("SLURM_STEP_NODELIST") || *node > 0;
  if (!in_step) {
    if (*nodes > 1)
      found.note = str("the Slurm job has ", *nodes,
                       " nodes, but this agent was not started by srun, so it runs on this one alone");
    return found;
  }
  found.name = "Slurm";
  found.nodes = nodes;
  found.node_rank = node;
  const auto tasks = number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  if (tasks && *tasks > *nodes) {
    found.nodes = tasks;
    found.node_rank = number({"SLURM_PROCID"});
    const std::string per_node =
        env::text("SLURM_STEP_TASKS_PER_NODE").value_or(env::text("SLURM_TASKS_PER_NODE").value_or(""));
    agents_are_tasks(found, number({"SLURM_LOCALID"}), distributed::slurm::tasks_of_node(per_node, *node));
  }
  found.master_host = distributed::slurm::first_host();
  if (const auto port = distributed::slurm::port()) found.master_port = static_cast<int>(*port);
  return found;
}

// Every process of one MPI job derives the same port from the job's name.
int port_of_job(const std::string& job) {
  const Sha256Digest digest = sha256_digest(std::as_bytes(std::span(job)));
  return distributed::job_port(digest[0] * 256U + digest[1]);
}

Scheduler mpi() {
  Scheduler found;
  const auto size = number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  const auto rank = number({"OMPI_COMM_WORLD_RANK", "PMI_RANK"});
  if (!size || !rank) return found;
  found.name = "MPI";
  found.nodes = size;
  found.node_rank = rank;
  const auto local_size = number({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  agents_are_tasks(found, number({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}), local_size);
  const bool one_host = local_size == size;
  if (one_host) found.master_host = "127.0.0.1";
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "PMI_PORT", "HYDI_CONTROL_FD"})
    if (const auto job = env::text(name); job && !found.master_port)
      // The names of some launchers are the same in every job; on one host the launcher's process is not.
      found.master_port = port_of_job(one_host ? str(*job, "/", ::getppid()) : *job);
  return found;
}

// Operators that know no launcher give each pod RANK and WORLD_SIZE; with a launcher in the pod they count nodes. Pods
// of an Indexed Job of Kubernetes have JOB_COMPLETION_INDEX, and how many they are is for --nnodes or WORLD_SIZE to
// say.
Scheduler plain() {
  Scheduler found;
  if (env::text("LOCAL_RANK")) return found;
  const bool told_where = env::text("MASTER_ADDR") && env::text("MASTER_PORT");
  if (told_where) found.nodes = number({"WORLD_SIZE"});
  found.node_rank = number({"RANK", "JOB_COMPLETION_INDEX"});
  const bool indexed = !env::text("RANK") && env::text("JOB_COMPLETION_INDEX");
  if (!found.node_rank || (!found.nodes && !indexed)) return Scheduler();
  found.name = indexed ? "Kubernetes" : "RANK and WORLD_SIZE";
  return found;
}

Scheduler first_that_speaks() {
  // An MPI launcher in a Slurm job starts its own helpers with srun, whose numbers are not the agents'. The other way
  // round, srun may set PMI's variables; they agree with Slurm's then.
  const auto steps = number({"SLURM_STEP_NUM_TASKS"}), pmi = number({"PMI_SIZE"});
  if (env::text("OMPI_COMM_WORLD_SIZE") || (steps && pmi && pmi != steps)) return mpi();
  for (const auto& read : {slurm, mpi, plain})
    if (Scheduler found = read(); !found.name.empty() || !found.note.empty()) return found;
  return {};
}

}  // namespace

Scheduler read_scheduler() {
  Scheduler found = first_that_speaks();
  if (found.name.empty()) return found;
  if (const auto host = env::text("MASTER_ADDR")) found.master_host = *host;
  if (const auto port = env::integer("MASTER_PORT", 1, 65535)) found.master_port = static_cast<int>(*port);
  return found;
}

int visible_gpus() {
  int present = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/dev"), ::closedir);
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const char* name = entry->d_name;
    if (std::strncmp(name, "nvidia", 6) == 0 && name[6] != '\0' &&
        std::all_of(name + 6, name + std::strlen(name), [](unsigned char c) { return std::isdigit(c) != 0; }))
      ++present;
  }
  // The workers' cuda devices, if virtual ones serve them.
  if (const auto served = env::integer("ATHANOR_CUDA_ON_CPU", 0, 64)) present = static_cast<int>(*served);
  const char* narrowed = std::getenv("CUDA_VISIBLE_DEVICES");
  if (narrowed == nullptr) return present;
  const std::string list = narrowed;
  if (list.empty() || list[0] == '-') return 0;
  const auto named = 1 + std::count(list.begin(), list.end(), ',');
  return std::min(present, static_cast<int>(named));
}

}  // namespace athanor::launch
