#pragma once
/// What `athanor run` and `athanor launch` are told: by flags, then by PET_* variables, then by the scheduler they were
/// started under (Slurm, MPI launchers, Kubeflow), in that order. docs/launcher.md has the list.

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "athanor/distributed/net/socket.h"
#include "athanor/launch/affinity.h"

namespace athanor::launch {

using Seconds = std::chrono::duration<double>;

/// Which of a worker's streams: bit 0 is stdout, bit 1 stderr.
class StreamChoice {
 public:
  /// "0" to "3" for all workers, or "0:1,2:3" by local rank. Throws ValueError naming `flag` otherwise.
  static StreamChoice parse(const std::string& text, const std::string& flag);
  bool out(int local_rank) const { return (of(local_rank) & 1) != 0; }
  bool err(int local_rank) const { return (of(local_rank) & 2) != 0; }
  bool any() const;

 private:
  int of(int local_rank) const;
  int everyone_ = 0;
  std::map<int, int> some_;
};

struct RendezvousTimes {
  Seconds join{600}, last_call{30}, keep_alive{5}, read{60};
  int keep_alive_misses = 3;
  std::optional<bool> is_host;
};

/// A machine to start an agent on.
struct Host {
  std::string name;  ///< as ssh takes it: [user@]host
  int workers = 0;   ///< 0: as --nproc-per-node says
};

enum class Backend { Static, C10d };

struct LaunchOptions {
  std::string name = "athanor run";  ///< for messages
  int min_nodes = 1, max_nodes = 1;
  int workers = 1;  ///< per node
  int node_rank = 0;
  Backend backend = Backend::Static;
  /// Where agents meet, and where workers find the store. Port 0: a free one (jobs of one node only).
  distributed::Endpoint endpoint;
  std::string run_id = "none";
  RendezvousTimes times;
  std::string local_address;  ///< empty: find out
  int max_restarts = 0;
  std::string role = "default";
  StreamChoice redirects, tee;
  std::string log_dir;           ///< empty: none
  bool plain_log_names = false;  ///< as the old launcher's --logdir
  std::vector<int> shown_ranks;  ///< local ranks shown on the console; empty: all
  std::string line_prefix = "[${role_name}${local_rank}]:";
  /// As --duplicate-std*-filters says: lines of streams to tee that contain one of these go to a file of all workers.
  std::vector<std::string> out_filters, err_filters;
  /// Workers may set timers (TORCHELASTIC_ENABLE_FILE_TIMER), by a pipe at this path (empty: of its own).
  std::optional<std::string> timer_file;
  std::vector<int> signals;
  Seconds kill_grace{30};
  bool virtual_local_rank = false;
  NumaBinding numa_binding = NumaBinding::None;
  /// Of agents that a scheduler starts several times on one host: what the others' workers occupy.
  int first_local_rank = 0;
  std::optional<int> local_world_size;
  bool explain = false;
  /// Nodes to start agents on, over ssh; empty: this process is the agent of its own node.
  std::vector<Host> hosts;
  std::vector<std::string> flags;  ///< as given, without those that name hosts
  bool follow_stdin = false;       ///< see hosts.h
  std::vector<std::string> notes;  ///< said at the start on stderr, once

  bool module = false, no_python = false;
  bool append_local_rank = false;    ///< as the old launcher does
  std::vector<std::string> command;  ///< program and arguments as given
  bool elastic() const { return min_nodes != max_nodes; }
};

/// Reads flags and environment. Returns an exit status instead if there is nothing to run (--help, a wrong flag; what
/// there is to say has been printed). Throws ValueError for values that cannot work, naming the flag.
/// `old_launcher`: flags and defaults of torch.distributed.launch.
std::optional<int> parse_options(int argc, const char* const* argv, bool old_launcher, LaunchOptions& options);

/// What a scheduler's environment says; fields it says nothing about stay empty.
struct Scheduler {
  std::string name;
  std::optional<int> nodes, node_rank, first_local_rank, local_world_size;
  std::string master_host;
  std::optional<int> master_port;
  std::string note;
};
Scheduler read_scheduler();

/// NVIDIA devices this process may use (device nodes, narrowed by CUDA_VISIBLE_DEVICES).
int visible_gpus();

}  // namespace athanor::launch
