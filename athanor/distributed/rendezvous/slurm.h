#pragma once
/// What Slurm's environment says about where a job's processes can meet.

#include <cstdint>
#include <optional>
#include <string>

namespace athanor::distributed::slurm {

/// The first host of SLURM_STEP_NODELIST, else of SLURM_JOB_NODELIST ("gnode[10,20-23]-ib,other" gives "gnode10-ib");
/// empty outside a job.
std::string first_host();
/// How many tasks run on a node of the job, by its number: node 2 of "4(x2),1" has 1. Nothing if the list does not say.
std::optional<int> tasks_of_node(const std::string& tasks_per_node, int node);
/// A port that every process of the job derives alike from SLURM_JOB_ID.
std::optional<std::int64_t> port();

}  // namespace athanor::distributed::slurm
