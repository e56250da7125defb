#pragma once
/// What Slurm's environment says about where a job's processes can meet.

#include <cstdint>
#include <optional>
#include <string>

namespace athanor::distributed::slurm {

/// The first host of SLURM_STEP_NODELIST, else of SLURM_JOB_NODELIST ("gnode[10,20-23],other" gives "gnode10"); empty
/// outside a job.
std::string first_host();
/// A port that every process of the job derives alike from SLURM_JOB_ID.
std::optional<std::int64_t> port();

}  // namespace athanor::distributed::slurm
