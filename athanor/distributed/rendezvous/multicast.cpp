// tcp://[multicast address]:port — nobody needs to know anybody: each process announces itself until all have heard of
// all, ranks follow from the announcements, and rank 0's store does the rest.
#include "athanor/distributed/rendezvous/multicast.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "athanor/base/hash.h"
#include "athanor/base/log.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/net/interfaces.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/store/tcp_store.h"

namespace athanor::distributed {

using athanor::detail::str;

bool is_multicast(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return IN_MULTICAST(ntohl(v4.s_addr));
  return ::inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_MULTICAST(&v6);
}

namespace {

// What a process says of itself, in network order; `tag` keeps other groups, other jobs and noise out.
struct Announcement {
  std::uint32_t magic, world_size;
  std::int32_t rank;  // -1: any
  std::uint32_t port;
  std::uint8_t id[16];
  std::uint8_t tag[32];
};
constexpr std::uint32_t kMagic = 0x41544d31;  // "ATM1"
constexpr std::chrono::milliseconds kInterval{100};
/// A process silent for so long before all were there has died.
constexpr std::chrono::milliseconds kSilence{2000};

struct Member {
  std::int32_t rank = -1;
  int port = 0;
  std::string host;
  Deadline::Clock::time_point first_heard, heard;
};

// Whether all were alive at one time. A process that died and was started again announces itself twice, but its first
// life ended before the second began.
bool all_live(const std::map<std::string, Member>& members) {
  Deadline::Clock::time_point newest{};
  for (const auto& [id, member] : members) newest = std::max(newest, member.first_heard);
  return std::all_of(members.begin(), members.end(), [&](const auto& entry) { return entry.second.heard > newest; });
}

// A group of IPv4 (239.0.0.0/8, of local meaning) in the place of one of IPv6.
Address stand_in(const Address& v6) {
  const auto& from = reinterpret_cast<const sockaddr_in6&>(v6.storage);
  const Sha256Digest digest = hmac_sha256({}, std::as_bytes(std::span(from.sin6_addr.s6_addr)));
  Address address;
  auto& to = reinterpret_cast<sockaddr_in&>(address.storage);
  to.sin_family = AF_INET;
  to.sin_port = from.sin6_port;
  const auto byte = [&](int i) { return static_cast<std::uint32_t>(digest[static_cast<std::size_t>(i)]); };
  to.sin_addr.s_addr = htonl(239u << 24 | byte(0) << 16 | byte(1) << 8 | byte(2));
  address.length = sizeof to;
  return address;
}

class Meeting {
 public:
  Meeting(const RendezvousUrl& url, const RendezvousOptions& options, const Endpoint& group, int port);
  /// Until all are known. The members, by id.
  std::map<std::string, Member> collect(Deadline deadline);
  void announce();
  const std::string& id() const { return id_; }
  std::string interfaces() const;
  /// "rank 0 at 10.0.0.1, one without a rank at 10.0.0.2".
  static std::string listed(const std::map<std::string, Member>& members);

 private:
  void open();
  void join(const Interface& interface);
  bool leads_nowhere() const;
  Sha256Digest tag_of(Announcement announcement) const;
  /// True if somebody was heard for the first time.
  bool receive(std::map<std::string, Member>& members);
  std::string what() const { return str("init_method '", url_.text, "'"); }

  const RendezvousUrl& url_;
  const RendezvousOptions& options_;
  Address group_;
  Descriptor socket_;
  std::vector<Interface> interfaces_;
  Announcement mine_{};
  std::string id_, secret_;
  std::string not_sent_;  // why the last announcement could not leave
};

Meeting::Meeting(const RendezvousUrl& url, const RendezvousOptions& options, const Endpoint& group, int port)
    : url_(url), options_(options) {
  std::string reason;
  group_ = resolve_host(group.host, group.port, Deadline::after(std::chrono::seconds(1)), reason).at(0);
  secret_ = job_secret(options.secret);
  mine_.magic = htonl(kMagic);
  mine_.world_size = htonl(static_cast<std::uint32_t>(options.world_size));
  mine_.rank = static_cast<std::int32_t>(htonl(static_cast<std::uint32_t>(options.rank)));
  mine_.port = htonl(static_cast<std::uint32_t>(port));
  ATHANOR_CHECK(::getentropy(mine_.id, sizeof mine_.id) == 0, "getentropy: ", error_text(errno));
  id_.assign(reinterpret_cast<const char*>(mine_.id), sizeof mine_.id);
  const Sha256Digest tag = tag_of(mine_);
  std::memcpy(mine_.tag, tag.data(), tag.size());
  open();
  if (leads_nowhere()) {
    group_ = stand_in(group_);
    ATHANOR_LOG(Debug, what(), ": IPv6 has no way to this group here, where there is only loopback; using ",
                group_.text(), " instead");
    open();
  }
}

void Meeting::open() {
  interfaces_.clear();
  socket_.reset(::socket(group_.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  ATHANOR_CHECK(socket_, what(), ": ", error_text(errno));
  const int on = 1;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // Bound to the group's own address, datagrams to other addresses of the port stay out; IPv6's need an interface for
  // that, so there the tag alone tells.
  Address own = group_;
  if (own.family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(own.storage).sin6_addr = in6addr_any;
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&own.storage), own.length) != 0)
    throw DistNetworkError(str(what(), ": cannot bind: ", error_text(errno)), ATHANOR_WHERE);
  const bool v6 = group_.family() == AF_INET6;
  const int hops = 1;
  ::setsockopt(socket_.get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MULTICAST_HOPS : IP_MULTICAST_TTL, &hops,
               sizeof hops);
  ::setsockopt(socket_.get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MULTICAST_LOOP : IP_MULTICAST_LOOP, &on,
               sizeof on);
  for (const Interface& interface : usable_interfaces())
    if (v6 ? interface.v6 : interface.v4) join(interface);
  if (interfaces_.empty())
    throw DistNetworkError(str(what(), ": no interface with an IPv", v6 ? 6 : 4, " address takes part in multicast"),
                           ATHANOR_WHERE);
}

// A machine with nothing but loopback often has no route for groups of IPv6. All processes that could come are on it
// then, and find the same.
bool Meeting::leads_nowhere() const {
  if (group_.family() != AF_INET6) return false;
  if (!std::all_of(interfaces_.begin(), interfaces_.end(), [](const Interface& i) { return i.loopback; })) return false;
  const Descriptor probe(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int index = static_cast<int>(interfaces_.front().index);
  ::setsockopt(probe.get(), IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof index);
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&group_.storage), group_.length) != 0 &&
         errno == ENETUNREACH;
}

void Meeting::join(const Interface& interface) {
  group_req request{};
  request.gr_interface = interface.index;
  std::memcpy(&request.gr_group, &group_.storage, group_.length);
  const int level = group_.family() == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
  if (::setsockopt(socket_.get(), level, MCAST_JOIN_GROUP, &request, sizeof request) == 0)
    interfaces_.push_back(interface);
  else
    ATHANOR_LOG(Debug, "cannot join ", group_.text(), " on ", interface.name, ": ", error_text(errno));
}

std::string Meeting::interfaces() const {
  std::string names;
  for (const Interface& interface : interfaces_) names += str(names.empty() ? "" : ", ", interface.name);
  return names;
}

Sha256Digest Meeting::tag_of(Announcement announcement) const {
  std::memset(announcement.tag, 0, sizeof announcement.tag);
  std::string message(reinterpret_cast<const char*>(&announcement), sizeof announcement);
  message += str("group ", options_.group_name);
  return hmac_sha256(std::as_bytes(std::span(secret_)), std::as_bytes(std::span(message)));
}

void Meeting::announce() {
  const bool v6 = group_.family() == AF_INET6;
  for (const Interface& interface : interfaces_) {
    if (v6) {
      const int index = static_cast<int>(interface.index);
      ::setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof index);
    } else {
      ip_mreqn request{};
      request.imr_ifindex = static_cast<int>(interface.index);
      ::setsockopt(socket_.get(), IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof request);
    }
    // A lost datagram is sent again; an interface that cannot send is made up for by the others.
    if (::sendto(socket_.get(), &mine_, sizeof mine_, MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&group_.storage),
                 group_.length) < 0)
      not_sent_ = str("sending on ", interface.name, " failed: ", error_text(errno));
  }
}

bool Meeting::receive(std::map<std::string, Member>& members) {
  bool somebody_new = false;
  while (true) {
    Announcement heard{};
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    const ssize_t got =
        ::recvfrom(socket_.get(), &heard, sizeof heard, MSG_TRUNC, reinterpret_cast<sockaddr*>(&from), &length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return somebody_new;
    if (got != sizeof heard || ntohl(heard.magic) != kMagic) continue;
    Sha256Digest tag;
    std::memcpy(tag.data(), heard.tag, tag.size());
    if (!same_digest(tag, tag_of(heard))) continue;
    const auto world = ntohl(heard.world_size);
    if (static_cast<int>(world) != options_.world_size)
      throw DistError(
          str(what(), ": a process of this group says world_size is ", world, ", here it is ", options_.world_size),
          ATHANOR_WHERE);
    char host[NI_MAXHOST] = "";
    ::getnameinfo(reinterpret_cast<const sockaddr*>(&from), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    const std::string id(reinterpret_cast<const char*>(heard.id), sizeof heard.id);
    Member& member = members[id];
    const auto now = Deadline::Clock::now();
    if (member.host.empty()) {
      ATHANOR_LOG(Debug, "multicast: heard a process at ", host, ", ", members.size(), " known");
      member.first_heard = now;
      somebody_new = true;
    }
    member.rank = static_cast<std::int32_t>(ntohl(static_cast<std::uint32_t>(heard.rank)));
    member.port = static_cast<int>(ntohl(heard.port));
    if (member.host.empty()) member.host = host;
    member.heard = now;
  }
}

std::string Meeting::listed(const std::map<std::string, Member>& members) {
  std::string text;
  for (const auto& [id, member] : members)
    text += str(text.empty() ? "" : ", ", member.rank < 0 ? "one without a rank" : str("rank ", member.rank), " at ",
                member.host);
  return text.empty() ? "not even this one was heard" : text;
}

std::map<std::string, Member> Meeting::collect(Deadline deadline) {
  std::map<std::string, Member> members;
  const auto world = static_cast<std::size_t>(options_.world_size);
  Deadline next = Deadline::after(std::chrono::milliseconds(0));
  while (true) {
    if (next.expired()) {
      announce();
      next = Deadline::after(kInterval);
    }
    static_cast<void>(wait_for(socket_.get(), POLLIN, deadline.sooner(next)));
    // Who has just come need not wait for us.
    if (receive(members)) next = Deadline::after(std::chrono::milliseconds(0));
    const bool settled = all_live(members);
    if (settled && members.size() == world) return members;
    if (settled && members.size() > world)
      throw DistError(str(what(), ": ", members.size(), " processes announce themselves for a world of ", world,
                          ": too many were started, or another job uses this address with the same group_name"),
                      ATHANOR_WHERE);
    if (deadline.expired())
      throw DistError(str(what(), ": ", members.size(), " of ", world, " processes announced themselves within ",
                          options_.timeout.count(), " ms: ", listed(members), " (listening on ", interfaces(),
                          not_sent_.empty() ? "" : "; ", not_sent_,
                          "). Does the network carry multicast? If not, use tcp://host:port with ranks"),
                      ATHANOR_WHERE);
    std::erase_if(members, [](const auto& entry) { return Deadline::Clock::now() - entry.second.heard > kSilence; });
  }
}

// Ranks asked for are given; the others follow in the order of their random ids.
std::vector<std::string> order(const std::map<std::string, Member>& members, const std::string& what) {
  std::vector<std::string> by_rank(members.size());
  for (const auto& [id, member] : members) {
    if (member.rank < 0) continue;
    const auto rank = static_cast<std::size_t>(member.rank);
    if (rank >= by_rank.size() || !by_rank[rank].empty())
      throw DistError(str(what, ": rank ", member.rank,
                          rank < by_rank.size() ? " was given to two processes" : " is outside the world"),
                      ATHANOR_WHERE);
    by_rank[rank] = id;
  }
  std::size_t next = 0;
  for (const auto& [id, member] : members) {
    if (member.rank >= 0) continue;
    while (!by_rank[next].empty()) ++next;
    by_rank[next] = id;
  }
  return by_rank;
}

}  // namespace

RendezvousResult meeting::rendezvous_multicast(const RendezvousUrl& url, const RendezvousOptions& options) {
  check_rank(url, options, true);
  const std::string what = str("init_method '", url.text, "'");
  const Deadline deadline = Deadline::after(options.timeout);
  // Any of them may become rank 0: each has a port ready.
  Listener listener = Listener::on_port(0);
  Meeting meeting(url, options, Endpoint::parse(url.location, what), listener.port());
  std::map<std::string, Member> members;
  std::vector<std::string> by_rank;
  try {
    members = meeting.collect(deadline);
    by_rank = order(members, what);
  } catch (const DistError&) {
    // What is wrong with this process is wrong with the others, too: they must hear of it to find that out.
    const Deadline enough = deadline.sooner(Deadline::after(5 * kInterval));
    while (!enough.expired()) {
      meeting.announce();
      std::this_thread::sleep_for(kInterval / 4);
    }
    throw;
  }
  const int rank = static_cast<int>(std::find(by_rank.begin(), by_rank.end(), meeting.id()) - by_rank.begin());
  // The others may not have heard everyone yet: keep saying it until all have met in the store.
  std::atomic<bool> met = false;
  std::thread announcer([&] {
    while (!met.load()) {
      meeting.announce();
      std::this_thread::sleep_for(kInterval / 4);
    }
  });
  RendezvousResult result{nullptr, rank, options.world_size};
  try {
    const Member& master = members.at(by_rank[0]);
    TCPStoreOptions store_options;
    store_options.port = master.port;
    store_options.is_server = rank == 0;
    if (rank == 0) store_options.master_listen_fd = listener.release();
    store_options.timeout = options.timeout;
    store_options.secret = options.secret;
    auto store = std::make_shared<TCPStore>(rank == 0 ? "localhost" : master.host, store_options);
    result.store = std::make_shared<PrefixStore>(str("athanor/", options.group_name), store);
    const Place place = claim_place(*result.store, rank, options.world_size, deadline, what);
    meet_all(*result.store, place, rank, options.world_size, deadline, what);
  } catch (...) {
    met = true;
    announcer.join();
    throw;
  }
  met = true;
  announcer.join();
  return result;
}

}  // namespace athanor::distributed
