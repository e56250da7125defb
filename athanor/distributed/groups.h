#pragma once
/// The default process group and those made of its ranks: the counterparts of torch.distributed's functions. Ranks are
/// the world's. A null group means the default one. Thread-safe, but groups must be made in the same order on all
/// ranks.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "athanor/distributed/process_group.h"

namespace athanor::distributed {

/// What is used when init_process_group is not told a backend.
inline constexpr const char* kDefaultBackend = "cpu:tcp,cuda:nccl";

struct InitOptions {
  /// "tcp", "gloo", "mpi", a registered name, or one per device type: "cpu:gloo,cuda:nccl". Empty: kDefaultBackend.
  std::string backend = {};
  /// How the processes meet, see rendezvous.h; empty: env://.
  std::string init_method = {};
  int world_size = -1;  ///< -1: from the URL or the environment
  int rank = -1;
  /// Of meeting, and of every call of the group and of the groups made of it, unless they are told another.
  std::chrono::milliseconds timeout = kDefaultTimeout;
  /// Keeps jobs apart that meet at one address.
  std::string group_name = {};
  /// A store that all processes share, instead of init_method; then rank and world_size are needed.
  std::shared_ptr<Store> store = nullptr;
  /// See TCPStoreOptions::secret. Empty: ATHANOR_JOB_SECRET.
  std::string secret = {};
};

/// Meets the other processes and makes the default group. Throws ValueError for arguments that cannot work, Error if
/// there is a default group, DistError if the processes did not meet in time, naming the missing ranks.
void init_process_group(const InitOptions& options);
void init_process_group(const std::string& backend = "", const std::string& init_method = "", int world_size = -1,
                        int rank = -1, std::chrono::milliseconds timeout = kDefaultTimeout,
                        const std::string& group_name = "", std::shared_ptr<Store> store = nullptr);
/// Ends a group; without one, the default group and all others. Calls under way end first. Groups that the program
/// still holds throw from then on.
void destroy_process_group(const ProcessGroupPtr& group = nullptr);

bool is_available();
bool is_initialized();
bool is_tcp_available();
bool is_gloo_available();
bool is_mpi_available();
bool is_nccl_available();
/// True in a worker of torchrun or `athanor run`.
bool is_torchelastic_launched();

struct GroupOptions {
  std::optional<std::chrono::milliseconds> timeout;  ///< default: the default group's
  std::string backend = {};                          ///< default: the default group's
  std::string name = {};                             ///< default: a number
  /// Only the members call new_group, and only they wait for each other.
  bool use_local_synchronization = false;
};
/// A group of these ranks, in this order; without ranks, of all. All ranks of the world must call it, in the same
/// order, members or not (but see use_local_synchronization). A process that is no member gets a group whose calls
/// throw. Throws ValueError for ranks that are repeated or not in the world.
ProcessGroupPtr new_group(const std::vector<int>& ranks = {}, const GroupOptions& options = {});
ProcessGroupPtr new_group(const std::vector<int>& ranks, std::chrono::milliseconds timeout,
                          const std::string& backend = "");
/// A group of some of `parent`'s members, by its ranks; what new_group does for any parent.
ProcessGroupPtr split_group(const ProcessGroupPtr& parent, const std::vector<int>& ranks,
                            const GroupOptions& options = {});
/// Cuts the world into groups of `size` neighbours. Returns this rank's and all of them.
std::pair<ProcessGroupPtr, std::vector<ProcessGroupPtr>> new_subgroups(int size, const GroupOptions& options = {});

/// This rank in the group; -1 if it is no member.
int get_rank(const ProcessGroupPtr& group = nullptr);
int get_world_size(const ProcessGroupPtr& group = nullptr);
/// "tcp".
std::string get_backend(const ProcessGroupPtr& group = nullptr);
int get_group_rank(const ProcessGroupPtr& group, int global_rank);
int get_global_rank(const ProcessGroupPtr& group, int group_rank);
std::vector<int> get_process_group_ranks(const ProcessGroupPtr& group = nullptr);
/// launched_local_rank(), which knows torchrun's, MPI's and Slurm's variables; -1 without.
int get_node_local_rank();

/// Throws Error if init_process_group has not been called.
const ProcessGroupPtr& default_group();
/// `group`, or the default one if it is null.
inline const ProcessGroupPtr& group_or_default(const ProcessGroupPtr& given) { return given ? given : default_group(); }

/// `group::WORLD` is the default group.
namespace group {
struct World {
  operator ProcessGroupPtr() const { return default_group(); }
};
inline constexpr World WORLD;
}  // namespace group

/// For one thread of a process that holds several ranks, as tests do: in its scope `group` is the thread's default
/// group, and groups made of it belong to the thread.
class ThreadWorldGuard {
 public:
  explicit ThreadWorldGuard(ProcessGroupPtr group);
  ~ThreadWorldGuard();
  ThreadWorldGuard(const ThreadWorldGuard&) = delete;
  ThreadWorldGuard& operator=(const ThreadWorldGuard&) = delete;

 private:
  void* previous_;
};

namespace internals {
/// Says good-bye on all groups, as at the end of the process.
void leave_all_groups() noexcept;
}  // namespace internals

}  // namespace athanor::distributed
