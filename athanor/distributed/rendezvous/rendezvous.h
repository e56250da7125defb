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
};

/// Meets the other processes. Throws ValueError for a URL or options that cannot work (naming them), DistError when not
/// all came in time: the message says which ranks did not, and what was tried.
RendezvousResult rendezvous(const std::string& url, const RendezvousOptions& options = {});

/// How many processes the launcher has started this one with, by the variables of torchrun, operators, MPI launchers
/// and Slurm's steps; nothing without one. A program that trains alone or with others, as it is started, asks this.
std::optional<int> launched_world_size();

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
/// Waits until each rank has left its name in the store; throws DistError listing those that did not.
void meet_all(Store& store, int rank, int world_size, Deadline deadline, const std::string& how);
}  // namespace meeting

}  // namespace athanor::distributed
