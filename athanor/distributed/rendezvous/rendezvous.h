#pragma once
/// Rendezvous: how processes that know only a URL find a common store, their rank and their number.
///
///   env://                          RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (or what Slurm or MPI launchers set)
///   tcp://host:port                 rank 0 listens there; IPv4, IPv6 in brackets, or a name
///   tcp://[multicast address]:port  everyone announces itself to a multicast group; ranks may be left out
///   file:///path                    a file all processes see; ranks may be left out
///
/// `?rank=1&world_size=4` may stand behind any of them. Every wait in it ends at one overall deadline.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "athanor/distributed/store/store.h"

namespace athanor::distributed {

struct TCPStoreOptions;

struct RendezvousOptions {
  int rank = -1;        ///< -1: from the URL or the environment, or to be assigned
  int world_size = -1;  ///< -1: from the URL or the environment
  /// Jobs with different names do not meet at the same file or address. Not for env://.
  std::string group_name;
  std::chrono::milliseconds timeout{30 * 60 * 1000};
  /// See TCPStoreOptions::secret.
  std::string secret;
};

struct RendezvousResult {
  std::shared_ptr<Store> store;
  int rank = -1;
  int world_size = -1;
  /// To be called when this process leaves the group: it, or its successor, may then come to the same place again, even
  /// while others are still in this group. May be empty.
  std::function<void()> leave = {};
  /// The ranks whose processes have ended since they came here. May be empty: then nobody knows.
  std::function<std::vector<int>()> ended = {};
};

/// Meets the other processes. Throws ValueError for a URL or options that cannot work (naming them), DistError when not
/// all came in time: the message says which ranks did not, and what was tried.
RendezvousResult rendezvous(const std::string& url, const RendezvousOptions& options = {});

/// How many processes the launcher has started this one with, by the variables of torchrun, operators, MPI launchers
/// and Slurm's steps; nothing without one. A program that trains alone or with others, as it is started, asks this.
std::optional<int> launched_world_size();
/// This process' number among those the launcher has started on this host: LOCAL_RANK, or what MPI launchers and
/// Slurm's steps have in its place; nothing without. Throws ValueError naming a variable that is no such number.
std::optional<int> launched_local_rank();

/// The parts of "scheme://host/path?key=value&…".
struct RendezvousUrl {
  std::string text, scheme, location, path;
  std::map<std::string, std::string> query;
  static RendezvousUrl parse(const std::string& text);
};

using RendezvousHandler = std::function<RendezvousResult(const RendezvousUrl&, const RendezvousOptions&)>;
/// Adds a scheme. Throws ValueError if there is one of that name.
void register_rendezvous_handler(const std::string& scheme, RendezvousHandler handler);

namespace meeting {
RendezvousResult rendezvous_env(const RendezvousUrl& url, const RendezvousOptions& options);
RendezvousResult rendezvous_tcp(const RendezvousUrl& url, const RendezvousOptions& options);
RendezvousResult rendezvous_file(const RendezvousUrl& url, const RendezvousOptions& options);
RendezvousResult rendezvous_multicast(const RendezvousUrl& url, const RendezvousOptions& options);
/// Rank and size must be whole and fit each other. `self_assigned`: rank -1 is allowed.
void check_rank(const RendezvousUrl& url, const RendezvousOptions& options, bool self_assigned);
/// This rank's place in a meeting.
struct Place {
  std::int64_t meeting = 0;  ///< counts those that this store has served
  std::string name;          ///< what this rank is called there
};
/// Leaves this rank's name in the store. If this rank of an earlier meeting there has left, while others have not,
/// waits for the next meeting, which rank 0 begins, until the deadline.
Place claim_place(Store& store, int rank, int world_size, Deadline deadline, const std::string& how);
/// Waits until each rank has left its name; throws DistError listing those that did not. Returns a word that no other
/// meeting has.
std::string meet_all(Store& store, const Place& place, int rank, int world_size, Deadline deadline,
                     const std::string& how);
/// For RendezvousResult::leave.
std::function<void()> leaver(const std::shared_ptr<Store>& store, const Place& place, int rank);
/// Both of the above at a TCPStore, of which rank 0 is the server if `options` says so; `our_server`: it is of this
/// library. Waits for a new server while that of an earlier meeting is about to go.
RendezvousResult meet_at(const std::string& host, const TCPStoreOptions& options, const std::string& prefix, int rank,
                         int world_size, Deadline deadline, const std::string& how, bool our_server);
/// Where in a store the ranks of env:// meet, in that restart of the job, for the `number`th time (from 0).
std::string env_prefix(const std::string& restart, int number);
/// For a launcher that serves the store: what the ranks that met last there in that restart share; null if none have.
std::shared_ptr<Store> store_of_env(const std::shared_ptr<Store>& served, int restart);
}  // namespace meeting

}  // namespace athanor::distributed
