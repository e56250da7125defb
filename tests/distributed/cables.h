#pragma once
/// Two network namespaces joined by cables, each a network of its own. Needs root and iproute2.

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "athanor/base/error.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/store/tcp_store.h"

namespace athanor::distributed {

inline bool sh(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

class Cables {
 public:
  static constexpr const char* kNeeds = "needs root and iproute2 for network namespaces";

  explicit Cables(int count = 1, bool v6 = false) : id_(detail::str(::getpid())), count_(count), v6_(v6) {
    good_ = sh("ip netns add " + name(0)) && sh("ip netns add " + name(1));
    for (int i = 0; good_ && i < count; ++i)
      good_ = sh("ip link add " + end(0, i) + " netns " + name(0) + " type veth peer name " + end(1, i) + " netns " +
                 name(1));
    for (int side = 0; good_ && side < 2; ++side) {
      good_ = at(side, "ip link set lo up");
      for (int i = 0; good_ && i < count; ++i)
        good_ = at(side, "ip addr add " + address(side, i) + (v6 ? "/64 nodad" : "/24") + " dev " + end(side, i)) &&
                at(side, "ip link set " + end(side, i) + " up");
    }
  }
  ~Cables() {
    for (int side = 0; side < 2; ++side) sh("ip netns del " + name(side));
  }
  Cables(const Cables&) = delete;
  Cables& operator=(const Cables&) = delete;

  bool good() const { return good_; }
  std::string address(int side, int cable = 0) const {
    return detail::str(v6_ ? "fd00:253:" : "10.253.", cable + 9, v6_ ? "::" : ".", side + 1);
  }
  /// Of the interface that a cable ends in.
  std::string end(int side, int cable = 0) const {
    return detail::str("ac", id_, static_cast<char>('a' + side), cable);
  }
  /// Of all of that side, separated by commas.
  std::string ends(int side) const {
    std::string all;
    for (int i = 0; i < count_; ++i) all += (i > 0 ? "," : "") + end(side, i);
    return all;
  }
  /// Runs a command at that side.
  bool at(int side, const std::string& command) const { return sh(inside(side) + command); }
  /// The calling process (or thread) changes over to that side.
  void enter(int side) const {
    const int fd = ::open(("/var/run/netns/" + name(side)).c_str(), O_RDONLY | O_CLOEXEC);
    ATHANOR_CHECK(fd >= 0 && ::setns(fd, CLONE_NEWNET) == 0, "setns");
    ::close(fd);
  }
  /// Packets vanish; nobody is told.
  bool cut(int cable = 0) const { return at(0, "ip link set " + end(0, cable) + " down"); }
  /// Packets of that side go to a machine there is not. Its interface looks as good as ever.
  bool lead_astray(int side, int cable) const {
    return at(side, "ip neigh replace " + address(1 - side, cable) + " lladdr 02:00:00:00:00:99 dev " +
                        end(side, cable) + " nud permanent");
  }
  /// `rate` as tc writes it: "200mbit".
  bool limit(int cable, const std::string& rate) const {
    const std::string bucket = " root tbf rate " + rate + " burst 128kb latency 50ms";
    return at(0, "tc qdisc replace dev " + end(0, cable) + bucket) &&
           at(1, "tc qdisc replace dev " + end(1, cable) + bucket);
  }
  /// What has been sent from that side so far.
  long long sent_bytes(int side, int cable) const {
    const std::string command =
        inside(side) + "cat /sys/class/net/" + end(side, cable) + "/statistics/tx_bytes 2>/dev/null";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
    long long bytes = -1;
    ATHANOR_CHECK(pipe && ::fscanf(pipe.get(), "%lld", &bytes) == 1, "no counter of ", end(side, cable));
    return bytes;
  }

 private:
  std::string name(int side) const { return "athanor-cut" + id_ + (side == 0 ? "a" : "b"); }
  std::string inside(int side) const { return "ip netns exec " + name(side) + " "; }

  std::string id_;
  int count_;
  bool v6_, good_ = false;
};

/// Of a rank that has entered its side; rank 0 serves it.
inline std::shared_ptr<Store> store_over(const Cables& cables, int rank, std::chrono::milliseconds timeout) {
  TCPStoreOptions options;
  options.port = 29'400;  // nobody else is in the namespace
  options.is_server = rank == 0;
  options.timeout = timeout;
  return std::make_shared<TCPStore>(cables.address(0), options);
}

/// Of two ranks.
inline std::shared_ptr<ProcessGroup> group_of_two(std::shared_ptr<Store> store, int rank, const std::string& name,
                                                  std::chrono::milliseconds timeout) {
  ProcessGroupOptions options;
  options.rank = rank;
  options.size = 2;
  options.name = name;
  options.timeout = timeout;
  return std::make_shared<ProcessGroup>(std::move(store), options);
}

}  // namespace athanor::distributed
