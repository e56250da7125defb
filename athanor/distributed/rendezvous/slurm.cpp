#include "athanor/distributed/rendezvous/slurm.h"

#include "athanor/base/env.h"

namespace athanor::distributed::slurm {

std::string first_host() {
  const std::string list = env::text("SLURM_STEP_NODELIST").value_or(env::text("SLURM_JOB_NODELIST").value_or(""));
  const std::size_t open = list.find('[');
  if (open == std::string::npos || list.find(',') < open) return list.substr(0, list.find(','));
  const std::size_t end = list.find_first_of(",-]", open);
  return list.substr(0, open) + list.substr(open + 1, end - open - 1);
}

std::optional<std::int64_t> port() {
  const auto job = env::integer("SLURM_JOB_ID", 0);
  if (!job) return std::nullopt;
  return 20000 + *job % 20000;
}

}  // namespace athanor::distributed::slurm
