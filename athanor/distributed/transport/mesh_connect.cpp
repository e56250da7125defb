// How the ranks of a group find and connect to each other.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "athanor/base/env.h"
#include "athanor/base/interrupt.h"
#include "athanor/base/log.h"
#include "athanor/distributed/net/interfaces.h"
#include "athanor/distributed/transport/greeter.h"
#include "athanor/distributed/transport/mesh.h"
#include "athanor/distributed/transport/stripes.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// What a connection over one of several networks may take; over all those to all ranks at once. At most a third of the
// time that is left: the other networks need some, too.
constexpr std::chrono::milliseconds kStripePatience{2000};
// Between questions for those that have ended.
constexpr std::chrono::milliseconds kEndedLook{200};

enum class Wanted : std::uint8_t { Auto, SharedMemory, Tcp };
Wanted wanted_transport() {
  const std::string text = env::text("ATHANOR_TRANSPORT").value_or("auto");
  if (text == "auto") return Wanted::Auto;
  if (text == "shm") return Wanted::SharedMemory;
  ATHANOR_CHECK_VALUE(text == "tcp", "ATHANOR_TRANSPORT='", text, "': expected auto, shm or tcp");
  return Wanted::Tcp;
}

// A socket closed with something unread takes back what was sent last.
void discard_input(const Socket& socket) {
  char waste[1024];
  while (socket && ::recv(socket.fd(), waste, sizeof waste, MSG_DONTWAIT) > 0) {
  }
}

Address loopback(int port) {
  std::string ignored;
  return resolve_host("127.0.0.1", port, Deadline::after(std::chrono::seconds(1)), ignored).at(0);
}

}  // namespace

// What a rank tells the others about itself.
struct Mesh::Card {
  std::string network, host, unix_name, token;
  int port = 0;
  StripeEnd end;

  std::string text() const {
    std::string all =
        str(network, " ", host, " ", unix_name, " ", token, " ", port, " ", end.streams, " ", end.spread ? 1 : 0);
    for (const InterfaceAddress& from : end.addresses)
      all += str(" ", from.address.text(), "/", from.prefix, "/", from.interface);
    return all;
  }
  // Where a rank with the other card finds this one.
  std::vector<Address> seen_from(const Card& other) const {
    std::vector<Address> found;
    if (network == other.network) found.push_back(loopback(port));
    for (const InterfaceAddress& mine : end.addresses) found.push_back(mine.address);
    return found;
  }
  // The higher rank is the one that calls.
  static Stripes stripes(const std::vector<Card>& cards, int a, int b) {
    StripeEnd caller = cards[static_cast<std::size_t>(std::max(a, b))].end;
    const Card& callee = cards[static_cast<std::size_t>(std::min(a, b))];
    caller.spread = caller.spread && callee.network != cards[static_cast<std::size_t>(std::max(a, b))].network;
    return stripes_between(caller, callee.end);
  }
  static Card parse(const std::string& text, int rank) {
    Card card;
    std::istringstream words(text);
    words >> card.network >> card.host >> card.unix_name >> card.token >> card.port >> card.end.streams >>
        card.end.spread;
    if (!words)
      throw DistError(str("rank ", rank, " left '", text, "' in the store, expected its addresses"), ATHANOR_WHERE);
    for (std::string word; words >> word;) {
      std::istringstream parts(word);
      std::string address;
      InterfaceAddress from;
      char slash = 0;
      std::getline(parts, address, '/');
      parts >> from.prefix >> slash >> from.interface;
      const Endpoint endpoint = Endpoint::parse(address, "address of a rank");
      std::string reason;
      for (const Address& resolved :
           resolve_host(endpoint.host, endpoint.port, Deadline::after(std::chrono::seconds(1)), reason)) {
        from.address = resolved;
        card.end.addresses.push_back(from);
      }
    }
    return card;
  }
};

Mesh::Mesh(const BackendOptions& options, SegmentSize segment_size)
    : rank_(options.rank),
      size_(options.size),
      global_ranks_(options.global_ranks),
      name_(options.group_name),
      host_(static_cast<std::size_t>(options.size), options.rank),
      peers_(static_cast<std::size_t>(options.size)),
      notes_(options.store, options.rank, options.size) {
  for (Descriptor& bell : bells_) bell = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  controls_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  for (const Descriptor* needed : {&bells_[0], &bells_[1], &controls_})
    if (!*needed) check_descriptors_left(errno, str("making process group '", name_, "'"));
  if (size_ == 1) {
    local_ranks_ = leaders_ = {0};
    return;
  }
  connect(options, segment_size);
}

Mesh::~Mesh() = default;

void Mesh::connect(const BackendOptions& options, SegmentSize segment_size) {
  const Deadline deadline = Deadline::after(options.timeout);
  ended_ranks_ = options.ended;
  Greeter greeter(rank_, size_);
  std::vector<Card> cards(static_cast<std::size_t>(size_));
  try {
    read_cards(options, greeter, cards, deadline);
    connect_controls(greeter, cards, deadline);
    share_segment(options, segment_size, deadline);
    connect_streams(greeter, cards, deadline);
  } catch (DistError& error) {
    notes_.gave_up(error.what());
    const std::string notes = notes_.of_others();
    if (!notes.empty()) error.add_context(str("the others: ", notes));
    // Who is connected already, or even done, learns it from here.
    abort(error.what());
    for (const Peer& peer : peers_) discard_input(peer.control);
    if (rank_ == 0) notes_.let_all_give_up(ended_);
    throw;
  }
  ended_ranks_ = nullptr;
  const std::lock_guard lock(mutex_);
  for (int r = 0; r < size_; ++r)
    if (r != rank_) watch(r, EPOLL_CTL_ADD);
}

void Mesh::read_cards(const BackendOptions& options, Greeter& greeter, std::vector<Card>& cards, Deadline deadline) {
  const Wanted wanted = wanted_transport();
  Card mine;
  mine.network = network_key();
  mine.host = wanted == Wanted::Tcp ? str(mine.network, "/", rank_) : mine.network;
  mine.unix_name = greeter.unix_name();
  mine.token = random_name();
  mine.port = greeter.port();
  mine.end.streams = static_cast<int>(env::integer("ATHANOR_TCP_STREAMS", 1, kMaxStreams).value_or(0));
  mine.end.spread = several_interfaces_named();
  mine.end.addresses = reachable_addresses(greeter.port());
  options.store->set(str("mesh/", rank_), mine.text());
  const std::vector<Store::Value> texts = all_ranks_values(options, "mesh/", deadline);
  for (std::size_t r = 0; r < texts.size(); ++r)
    cards[r] = Card::parse({texts[r].begin(), texts[r].end()}, static_cast<int>(r));
  // The token reaches only who may read the store; with the secret it makes the key to this group's doors.
  greeter.open(
      options.secret + "/" + cards[0].token, [this] { return lost_ranks_text(); },
      [this](int r) { notes_.waits_for(r); });
}

// Asks now and then which members are known to have ended.
void Mesh::note_ended() {
  if (!ended_ranks_ || !ended_fresh_.expired()) return;
  ended_.clear();
  for (const int global : ended_ranks_())
    for (int r = 0; r < size_; ++r)
      if (global_ranks_[static_cast<std::size_t>(r)] == global) ended_.push_back(r);
  ended_fresh_ = Deadline::after(kEndedLook);
}

bool Mesh::has_ended(int rank) const { return std::count(ended_.begin(), ended_.end(), rank) != 0; }

// What every rank has left in the store under this name and its number.
std::vector<Store::Value> Mesh::all_ranks_values(const BackendOptions& options, const std::string& name,
                                                 Deadline deadline) {
  std::vector<std::string> keys;
  for (int r = 0; r < size_; ++r) keys.push_back(str(name, r));
  try {
    while (true) {
      const Deadline look = ended_ranks_ ? deadline.sooner(Deadline::after(kEndedLook)) : deadline;
      try {
        options.store->wait(keys, look.remaining());
        return options.store->multi_get(keys);
      } catch (const DistStoreError&) {
        if (deadline.expired() || !look.expired()) throw;
      }
      if (const std::string lost = lost_ranks_text(); !lost.empty())
        throw DistError(str("process group '", name_, "': ", lost, " while the group was being made"), ATHANOR_WHERE);
      check_interrupt();
    }
  } catch (const DistStoreError& error) {
    std::string missing;
    try {
      const StoreDeadline limit(Deadline::after(std::chrono::seconds(1)));
      for (int r = 0; r < size_; ++r)
        if (!options.store->check({keys[static_cast<std::size_t>(r)]}))
          missing += str(missing.empty() ? "" : ", ", rank_text(r));
    } catch (const DistStoreError&) {
      throw DistError(str("process group '", name_, "': the store in which its ranks meet is gone (", error.what(),
                          "). Did the rank that serves it die?"),
                      ATHANOR_WHERE);
    }
    if (missing.empty()) throw;
    throw DistError(str("process group '", name_, "': ", missing, " of ", size_, " ranks did not come within ",
                        options.timeout.count(), " ms. Did every rank make this group, or did one die before?"),
                    ATHANOR_WHERE);
  }
}

// While the group is being made, a rank that hangs up without a word of good-bye is gone or has given up. One that gave
// up in order has left a note.
std::string Mesh::lost_ranks_text() {
  note_ended();
  const auto hung_up = [this](int r) {
    const Socket& control = peers_[static_cast<std::size_t>(r)].control;
    pollfd poll{control ? control.fd() : -1, POLLRDHUP, 0};
    if (!control || ::poll(&poll, 1, 0) != 1 || (poll.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0) return false;
    char word = 0;
    return ::recv(control.fd(), &word, 1, MSG_PEEK | MSG_DONTWAIT) <= 0 || notes_.has_given_up(r);
  };
  std::string lost;
  int count = 0;
  for (int r = 0; r < size_; ++r) {
    if (!has_ended(r) && !hung_up(r)) continue;
    lost += str(count++ > 0 ? ", " : "", rank_text(r));
  }
  return count == 0 ? lost : str(lost, count == 1 ? " is" : " are", " gone, or gave up,");
}

// To a rank that says to be of this host. Machines started from one snapshot share what tells machines apart: unlike a
// rank that has ended, one of another machine can be called at its other addresses. Any process may listen there, so
// that it answers is not enough.
Socket Mesh::call_neighbour(Greeter& greeter, const Card& card, int rank, Deadline deadline) {
  constexpr std::chrono::seconds kPatience{20};
  try {
    return greeter.call({Address::abstract_unix(card.unix_name)}, rank, Line::Control, 0, deadline);
  } catch (const NobodyListens&) {
    std::string tried;
    Socket control = greeter.try_call(card.seen_from(card), rank, Line::Control, 0,
                                      deadline.sooner(Deadline::after(kPatience)), tried);
    if (!control) throw;
    return control;
  }
}

void Mesh::connect_controls(Greeter& greeter, const std::vector<Card>& cards, Deadline deadline) {
  const Card& mine = cards[static_cast<std::size_t>(rank_)];
  for (int r = 0; r < rank_; ++r) {
    const Card& card = cards[static_cast<std::size_t>(r)];
    Socket& control = peers_[static_cast<std::size_t>(r)].control;
    control = card.host == mine.host ? call_neighbour(greeter, card, r, deadline)
                                     : greeter.call(card.seen_from(mine), r, Line::Control, 0, deadline);
    ATHANOR_LOG(Debug, "group '", name_, "': connected to ", rank_text(r), " at ", control.peer_text());
  }
  for (int r = rank_ + 1; r < size_; ++r)
    peers_[static_cast<std::size_t>(r)].control = greeter.take(r, Line::Control, 0, deadline);
  for (int r = 0; r < size_; ++r) {
    int& host = host_[static_cast<std::size_t>(r)];
    host = 0;
    while (cards[static_cast<std::size_t>(host)].host != cards[static_cast<std::size_t>(r)].host) ++host;
  }
  note_hosts();
}

// The lowest rank of a host makes the segment and hands it to the others; every pair exchanges its bells. Sharing
// memory can be forbidden (by a sandbox, or a limit): then all ranks learn, through the store, that those of that host
// do without.
void Mesh::share_segment(const BackendOptions& options, SegmentSize segment_size, Deadline deadline) {
  const std::string problem = local_ranks_.size() > 1 ? exchange_segment(segment_size, deadline) : "";
  if (leaders_.size() == static_cast<std::size_t>(size_)) return;
  options.store->set(str("shared/", rank_), problem);
  const std::vector<Store::Value> problems = all_ranks_values(options, "shared/", deadline);
  const std::vector<int> hosts = host_;
  for (int r = 0; r < size_; ++r) {
    const Store::Value& value = problems[static_cast<std::size_t>(r)];
    if (value.empty()) continue;
    const std::string text(value.begin(), value.end());
    ATHANOR_CHECK_TYPE(DistError, wanted_transport() != Wanted::SharedMemory, "ATHANOR_TRANSPORT=shm, but ",
                       rank_text(r), " cannot share memory: ", text);
    ATHANOR_LOG(Warning, rank_text(r), " cannot share memory with its host's ranks (", text, "); they use TCP instead");
    const int host = hosts[static_cast<std::size_t>(r)];
    for (std::size_t other = 0; other < hosts.size(); ++other)
      if (hosts[other] == host) host_[other] = static_cast<int>(other);
  }
  note_hosts();
  if (local_ranks_.size() == 1) segment_ = Segment();
}

// Whether what was taken for a rank of this host is one.
bool Mesh::is_neighbour(int rank) const {
  return peers_[static_cast<std::size_t>(rank)].control.local_address().family() == AF_UNIX;
}

std::string Mesh::exchange_segment(SegmentSize segment_size, Deadline deadline) {
  const int leader = local_ranks_.front();
  const std::size_t bytes = segment_size(static_cast<int>(local_ranks_.size()), size_);
  std::string problem;
  try {
    if (rank_ == leader) segment_ = Segment::create(bytes);
  } catch (const DistError& error) {
    problem = error.what();
  }
  const int nothing = bells_[0].get();
  const auto with_others = [&](const std::function<void(int, Peer&)>& act) {
    for (const int r : local_ranks_)
      if (r != rank_ && is_neighbour(r)) with_peer(r, [&](Peer& peer) { act(r, peer); });
  };
  for (const int r : local_ranks_)
    if (r != rank_ && !is_neighbour(r))
      problem = str(rank_text(r), " is of another machine that is a copy of this one");
  with_others([&](int, Peer& peer) {
    if (rank_ == leader) peer.control.send_descriptor(segment_ ? segment_.fd() : nothing, deadline);
    for (const Descriptor& bell : bells_) peer.control.send_descriptor(bell.get(), deadline);
  });
  with_others([&](int r, Peer& peer) {
    wait_for_word(r, deadline);
    if (r == leader) {
      Descriptor fd = peer.control.recv_descriptor(deadline);
      try {
        segment_ = Segment::map(std::move(fd), bytes);
      } catch (const DistError& error) {
        problem = error.what();
      }
    }
    for (Descriptor& bell : peer.bells) bell = peer.control.recv_descriptor(deadline);
  });
  return problem;
}

// What follows may block until the deadline.
void Mesh::wait_for_word(int rank, Deadline deadline) {
  const int fd = peers_[static_cast<std::size_t>(rank)].control.fd();
  while (!wait_for(fd, POLLIN, deadline.sooner(Deadline::after(kLook))) && !deadline.expired()) notes_.waits_for(rank);
  notes_.waits_for(-1);
}

void Mesh::note_hosts() {
  local_ranks_.clear();
  leaders_.clear();
  for (int r = 0; r < size_; ++r) {
    if (is_local(r)) local_ranks_.push_back(r);
    if (leader_of(r) == r) leaders_.push_back(r);
  }
}

// A stream that is to run over a network of its own, and how the attempt ended.
struct Mesh::StripeCall {
  int rank, stream;
  Route route;
  std::string failure{};
};

// One attempt at each, all at once. A network that is dead costs no more than kStripePatience; a process that is
// stopped for a while still has its networks.
void Mesh::try_stripes(const Greeter& greeter, std::vector<StripeCall>& calls, Deadline deadline) {
  constexpr std::chrono::seconds kStopped{20};
  std::vector<Route> routes;
  std::vector<std::string> failures;
  for (const StripeCall& call : calls) routes.push_back(call.route);
  const Deadline patience = Deadline::after(std::min(kStripePatience, deadline.remaining() / 3));
  std::vector<Socket> sockets = Socket::connect_each(routes, patience, failures);
  std::vector<Visit> visits;
  std::vector<StripeCall*> connected;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i].failure = failures[i];
    if (!sockets[i]) continue;
    connected.push_back(&calls[i]);
    visits.push_back({calls[i].rank, Line::Stream, calls[i].stream, std::move(sockets[i])});
  }
  greeter.introduce(visits, deadline.sooner(Deadline::after(kStopped)));
  for (std::size_t i = 0; i < visits.size(); ++i) {
    StripeCall& call = *connected[i];
    call.failure = visits[i].failure;
    peers_[static_cast<std::size_t>(call.rank)].streams[static_cast<std::size_t>(call.stream)] =
        std::move(visits[i].socket);
  }
}

void Mesh::warn_of_dead(const std::vector<StripeCall>& calls) const {
  constexpr int kMostNamed = 4;
  std::string dead;
  int count = 0;
  for (const StripeCall& call : calls) {
    if (call.failure.empty() || ++count > kMostNamed) continue;
    std::string from = call.route.from.text();
    from.resize(from.rfind(':'));  // the port is another connection's
    dead += str(count > 1 ? "; " : "", "from ", from, " to ", rank_text(call.rank), " at ", call.route.to.text(), ": ",
                call.failure);
  }
  if (count > kMostNamed) dead += str("; and ", count - kMostNamed, " more");
  if (count > 0)
    ATHANOR_LOG(Warning, "group '", name_, "': not all of the interfaces that are named can be used (", dead,
                "); the others carry the data");
}

// The streams of the ranks that this one calls, as far as they can be spread over several networks. First one over
// each, then the rest over those that work.
void Mesh::call_stripes(const Greeter& greeter, const std::vector<Card>& cards, Deadline deadline) {
  std::vector<StripeCall> first, rest;
  for (int r = 0; r < rank_; ++r) {
    if (is_local(r)) continue;
    const Stripes stripes = Card::stripes(cards, r, rank_);
    for (int i = 0; i < std::min(stripes.streams, static_cast<int>(stripes.routes.size())); ++i)
      first.push_back({r, i, stripes.routes[static_cast<std::size_t>(i)]});
  }
  if (first.empty()) return;
  try_stripes(greeter, first, deadline);
  warn_of_dead(first);
  for (int r = 0; r < rank_; ++r) {
    std::vector<Route> alive;
    for (const StripeCall& call : first)
      if (call.rank == r && call.failure.empty()) alive.push_back(call.route);
    if (alive.empty()) continue;
    const std::vector<Socket>& streams = peers_[static_cast<std::size_t>(r)].streams;
    std::size_t next = 0;
    for (std::size_t i = 0; i < streams.size(); ++i)
      if (!streams[i]) rest.push_back({r, static_cast<int>(i), alive[next++ % alive.size()]});
  }
  try_stripes(greeter, rest, deadline);
}

void Mesh::connect_streams(Greeter& greeter, const std::vector<Card>& cards, Deadline deadline) {
  const Card& mine = cards[static_cast<std::size_t>(rank_)];
  const int leader = local_ranks_.front();
  for (int r = 0; r < size_; ++r)
    if (!is_local(r))
      peers_[static_cast<std::size_t>(r)].streams.resize(
          static_cast<std::size_t>(Card::stripes(cards, r, rank_).streams));
  call_stripes(greeter, cards, deadline);
  for (int r = 0; r < size_; ++r) {
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    if (r != rank_ && is_local(r) && leader == rank_)
      peer.descriptors = greeter.take(r, Line::Descriptors, 0, deadline);
    if (r != rank_ && r == leader) {
      const Address address = Address::abstract_unix(cards[static_cast<std::size_t>(r)].unix_name);
      peer.descriptors = greeter.call({address}, r, Line::Descriptors, 0, deadline);
    }
    if (is_local(r)) continue;
    // What the control connection found to work comes first.
    std::vector<Address> addresses = cards[static_cast<std::size_t>(r)].seen_from(mine);
    std::stable_partition(addresses.begin(), addresses.end(),
                          [&](const Address& address) { return address.text() == peer.control.peer_text(); });
    const auto line = [&](Line kind, int index) {
      return r < rank_ ? greeter.call(addresses, r, kind, index, deadline) : greeter.take(r, kind, index, deadline);
    };
    peer.messages = line(Line::Messages, 0);
    for (std::size_t i = 0; i < peer.streams.size(); ++i) {
      if (!peer.streams[i]) peer.streams[i] = line(Line::Stream, static_cast<int>(i));
      ATHANOR_LOG(Debug, "group '", name_, "': data to and from ", rank_text(r), ", connection ", i, ": ",
                  peer.streams[i].local_text(), " to ", peer.streams[i].peer_text());
    }
  }
}

}  // namespace athanor::distributed
