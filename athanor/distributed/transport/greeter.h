#pragma once
/// Greeter: the door at which the other ranks of a group knock while the group is being built. Every connection says
/// who it is and proves that it belongs to the group; whoever cannot is dropped, without holding up the others.

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "athanor/base/hash.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/net/socket.h"

namespace athanor::distributed {

/// How often a rank that waits for another while the group is built looks whether that still has a point; after so long
/// a wait it also lets the others know for whom.
inline constexpr std::chrono::milliseconds kLook{50};

/// Who is connected and does not prove within so long that it belongs to the group is a stranger.
inline constexpr std::chrono::seconds kGuestPatience{5};

/// What a connection between two ranks is for. Streams are numbered from `Stream` on.
enum class Line : std::uint32_t { Control, Messages, Descriptors, Stream };

/// Of a unix address, which ends with its process.
class NobodyListens : public DistNetworkError {
 public:
  using DistNetworkError::DistNetworkError;
};

/// One end of a connection that is to become one to rank `to`, for that purpose.
struct Visit {
  int to;
  Line line;
  int index;
  Socket socket;
  std::string failure{};
};

class Greeter {
 public:
  /// Listens: at any free TCP port, and at an abstract unix address.
  Greeter(int rank, int size, std::chrono::milliseconds patience = kGuestPatience);
  ~Greeter();

  int port() const { return tcp_.port(); }
  const std::string& unix_name() const { return unix_name_; }
  /// Begins to answer. `key` is known to the members of the group only. While something is waited for, `lost` is asked
  /// which of the ranks that were connected before are gone (empty if none), and `waiting` is told for which rank; when
  /// that is over, it is told -1.
  void open(std::string key, std::function<std::string()> lost, std::function<void(int)> waiting);
  /// The connection that rank `from` made for that purpose; waits for it. Throws DistNetworkError at the deadline, or
  /// when a rank is lost.
  Socket take(int from, Line line, int index, Deadline deadline);
  /// Connects to rank `to`, which listens at one of the addresses, and keeps trying until the deadline, or until a rank
  /// is lost. Throws NobodyListens if the one address is a unix one and nobody does.
  Socket call(const std::vector<Address>& addresses, int to, Line line, int index, Deadline deadline) const;
  /// One turn of that: an empty Socket if the rank was at none of the addresses; `tried` says what was.
  Socket try_call(std::vector<Address> addresses, int to, Line line, int index, Deadline deadline,
                  std::string& tried) const;
  /// Makes connections that are there already, all at once, ones to those ranks. Those whose other end is somebody
  /// else, breaks or does not answer in time are closed and say why, and so are the unanswered when a rank is lost.
  void introduce(std::span<Visit> visits, Deadline deadline) const;

 private:
  struct Hello;
  struct Guest;
  struct Silent;
  using Name = std::pair<int, std::uint32_t>;

  Hello hello_to(int to, Line line, int index) const;
  Sha256Digest proof(const char* side, std::uint32_t from, std::uint32_t to, std::uint32_t purpose) const;
  void serve();
  void welcome(Guest& guest);
  bool read_answer(Silent& silent, Deadline deadline) const;

  int rank_, size_;
  std::chrono::milliseconds patience_;  // with guests
  Listener tcp_, unix_;
  std::string unix_name_, key_;
  std::function<std::string()> lost_;
  std::function<void(int)> waiting_;
  Descriptor stop_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Name, Socket> taken_in_;
  std::string problem_;  // why nobody can be let in
  std::thread thread_;
};

}  // namespace athanor::distributed
