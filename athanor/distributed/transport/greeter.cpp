#include "athanor/distributed/transport/greeter.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <list>
#include <random>
#include <span>

#include "athanor/base/interrupt.h"
#include "athanor/base/log.h"
#include "athanor/distributed/error.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

constexpr std::uint64_t kMagic = 0x3252'4f4e'4148'5441;  // "ATHANOR2"
constexpr std::size_t kMostGuests = 1024;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

struct Greeter::Hello {
  std::uint64_t magic = kMagic;
  std::uint32_t from = 0, purpose = 0;
  Sha256Digest proof{};
};

struct Greeter::Guest {
  Socket socket;
  Deadline deadline;
  Hello hello;
  std::size_t received = 0;
  bool answered = false, over = false;
};

struct Greeter::Silent {
  Visit* visit;
  Hello answer{};
  std::size_t received = 0;
};

Greeter::Greeter(int rank, int size, std::chrono::milliseconds patience)
    : rank_(rank),
      size_(size),
      patience_(patience),
      tcp_(Listener::on_port(0)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_) check_descriptors_left(errno, "making a process group");
  std::random_device random;
  unix_name_ = str("athanor-", ::getpid(), "-", random(), "-", random());
  unix_ = Listener::on_address(Address::abstract_unix(unix_name_));
}

Greeter::~Greeter() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(stop_.get(), &one, sizeof one));
  if (thread_.joinable()) thread_.join();
}

void Greeter::open(std::string key, std::function<std::string()> lost, std::function<void(int)> waiting) {
  key_ = std::move(key);
  lost_ = std::move(lost);
  waiting_ = std::move(waiting);
  thread_ = std::thread([this] { serve(); });
}

Sha256Digest Greeter::proof(const char* side, std::uint32_t from, std::uint32_t to, std::uint32_t purpose) const {
  return hmac_sha256(bytes_of(key_), bytes_of(str("athanor ", side, " ", from, " ", to, " ", purpose)));
}

void Greeter::serve() {
  std::list<Guest> guests;
  bool full = false;
  while (true) {
    std::vector<pollfd> polls = {{stop_.get(), POLLIN, 0}};
    const short listen = guests.size() < kMostGuests && !full ? POLLIN : 0;
    polls.push_back({tcp_.fd(), listen, 0});
    polls.push_back({unix_.fd(), listen, 0});
    for (const Guest& guest : guests) polls.push_back({guest.socket.fd(), POLLIN, 0});
    int patience = -1;
    for (const Guest& guest : guests)
      if (!guest.answered) patience = std::min(patience < 0 ? INT_MAX : patience, guest.deadline.poll_milliseconds());
    ::poll(polls.data(), polls.size(), patience);
    if (polls[0].revents != 0) return;
    for (Listener* listener : {&tcp_, &unix_}) {
      if (polls[listener == &tcp_ ? 1 : 2].revents == 0) continue;
      try {
        guests.push_back({listener->accept(Deadline::after(std::chrono::milliseconds(0))),
                          Deadline::after(patience_),
                          {},
                          0,
                          false});
      } catch (const DistNetworkError& error) {
        ATHANOR_LOG(Debug, "a connection went away before it was accepted: ", error.what());
      } catch (const std::exception& error) {
        full = true;  // until a guest leaves, which strangers do
        const std::lock_guard lock(mutex_);
        if (guests.empty()) problem_ = error.what();
        arrived_.notify_all();
      }
    }
    for (Guest& guest : guests) welcome(guest);
    if (guests.remove_if([](const Guest& guest) { return guest.over; }) > 0) full = false;
  }
}

void Greeter::welcome(Guest& guest) {
  // The hello, answered, and one byte in return: only then does the guest know that it has the right address.
  char confirmed = 0;
  char* at = guest.answered ? &confirmed : reinterpret_cast<char*>(&guest.hello) + guest.received;
  const ssize_t got = ::recv(guest.socket.fd(), at, guest.answered ? 1 : sizeof(Hello) - guest.received, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    // Who has proved itself takes the connection for made once it has the answer, and may have been stopped since.
    guest.over = !guest.answered && guest.deadline.expired();
    return;
  }
  const Hello& hello = guest.hello;
  if (got > 0 && guest.answered) {
    guest.over = true;
    const std::lock_guard lock(mutex_);
    taken_in_[{static_cast<int>(hello.from), hello.purpose}] = std::move(guest.socket);
    arrived_.notify_all();
    return;
  }
  if (guest.answered) {
    guest.over = true;
    ATHANOR_LOG(Debug, "rank ", hello.from, " gave up its connection before it had confirmed it");
    return;
  }
  guest.received += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  if (got > 0 && guest.received < sizeof(Hello)) return;
  guest.over = true;
  const auto me = static_cast<std::uint32_t>(rank_);
  if (got <= 0 || hello.magic != kMagic || hello.from >= static_cast<std::uint32_t>(size_) ||
      !same_digest(hello.proof, proof("hello", hello.from, me, hello.purpose))) {
    ATHANOR_LOG(Warning, "dropped a connection from ", guest.socket.peer_text(),
                ": it does not belong to this process group");
    return;
  }
  Hello answer;
  answer.from = me;
  answer.purpose = hello.purpose;
  answer.proof = proof("welcome", me, hello.from, hello.purpose);
  try {
    guest.socket.send_all(&answer, sizeof answer, Deadline::after(patience_));
    guest.answered = true;
    guest.over = false;
  } catch (const DistNetworkError& error) {
    ATHANOR_LOG(Debug, "rank ", hello.from, " gave up its connection: ", error.what());
  }
}

Socket Greeter::take(int from, Line line, int index, Deadline deadline) {
  const Name name{from, static_cast<std::uint32_t>(line) + static_cast<std::uint32_t>(index)};
  std::unique_lock lock(mutex_);
  const auto came = [&] { return taken_in_.contains(name) || !problem_.empty(); };
  while (!arrived_.wait_until(lock, deadline.sooner(Deadline::after(kLook)).at(), came)) {
    if (const std::string lost = lost_(); !lost.empty())
      throw DistNetworkError(str(lost, " while rank ", rank_, " waited for rank ", from, " to connect"), ATHANOR_WHERE);
    if (deadline.expired()) break;
    lock.unlock();
    waiting_(from);
    check_interrupt();
    lock.lock();
  }
  if (!came())
    throw DistNetworkError(str("rank ", rank_, ": rank ", from, " did not connect to port ", port(), " in time"),
                           ATHANOR_WHERE);
  if (!taken_in_.contains(name))
    throw DistError(str("rank ", rank_, " waited for rank ", from, ": ", problem_), ATHANOR_WHERE);
  Socket socket = std::move(taken_in_.at(name));
  taken_in_.erase(name);
  lock.unlock();
  waiting_(-1);
  return socket;
}

Greeter::Hello Greeter::hello_to(int to, Line line, int index) const {
  Hello hello;
  hello.from = static_cast<std::uint32_t>(rank_);
  hello.purpose = static_cast<std::uint32_t>(line) + static_cast<std::uint32_t>(index);
  hello.proof = proof("hello", hello.from, static_cast<std::uint32_t>(to), hello.purpose);
  return hello;
}

// Of the answer what is there; whether that was the last of it.
bool Greeter::read_answer(Silent& silent, Deadline deadline) const {
  Visit& visit = *silent.visit;
  Hello& answer = silent.answer;
  silent.received +=
      visit.socket.recv_some(reinterpret_cast<char*>(&answer) + silent.received, sizeof answer - silent.received);
  if (silent.received < sizeof answer) return false;
  const Hello hello = hello_to(visit.to, visit.line, visit.index);
  if (answer.magic == kMagic &&
      same_digest(answer.proof, proof("welcome", static_cast<std::uint32_t>(visit.to), hello.from, hello.purpose)))
    visit.socket.send_all("!", 1, deadline);
  else
    visit.failure = visit.socket.peer_text() + ": somebody else answers there";
  return true;
}

void Greeter::introduce(std::span<Visit> visits, Deadline deadline) const {
  std::vector<Silent> silent;
  const auto act = [](Visit& visit, const auto& action) {
    try {
      action();
    } catch (const DistNetworkError& error) {
      visit.failure = error.what();
    }
    if (!visit.failure.empty()) visit.socket.close();
  };
  for (Visit& visit : visits) {
    const Hello hello = hello_to(visit.to, visit.line, visit.index);
    act(visit, [&] { visit.socket.send_all(&hello, sizeof hello, deadline); });
    if (visit.socket) silent.push_back({&visit});
  }
  Deadline look = Deadline::after(kLook);
  while (!silent.empty()) {
    std::vector<pollfd> polls;
    for (const Silent& one : silent) polls.push_back({one.visit->socket.fd(), POLLIN, 0});
    ::poll(polls.data(), polls.size(), deadline.sooner(look).poll_milliseconds());
    // Also while a stranger talks all the time.
    const bool looks = look.expired(), lost = looks && !lost_().empty();
    if (looks) {
      waiting_(silent.front().visit->to);
      check_interrupt();
      look = Deadline::after(kLook);
    }
    for (std::size_t i = silent.size(); i-- > 0;) {
      Visit& visit = *silent[i].visit;
      bool over = false;
      if (polls[i].revents != 0) act(visit, [&] { over = read_answer(silent[i], deadline); });
      if (!over && visit.socket && (lost || deadline.expired()))
        act(visit, [&] { visit.failure = str(visit.socket.peer_text(), ": no answer", lost ? " yet" : ""); });
      if (over || !visit.socket) silent.erase(silent.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (std::all_of(visits.begin(), visits.end(), [](const Visit& visit) { return visit.failure.empty(); })) waiting_(-1);
}

Socket Greeter::try_call(std::vector<Address> addresses, int to, Line line, int index, Deadline deadline,
                         std::string& tried) const {
  tried.clear();
  const auto note = [&](const std::string& what) { tried += str(tried.empty() ? "" : "; ", what); };
  // Who answers at an address may be another machine that has it too: then the next address gets its turn.
  while (!addresses.empty()) {
    Visit visit{to, line, index, {}};
    try {
      visit.socket = Socket::connect(addresses, deadline.sooner(Deadline::after(std::chrono::seconds(5))));
    } catch (const DistNetworkError& error) {
      note(error.what());
      break;
    }
    const std::string peer = visit.socket.peer_text();
    introduce({&visit, 1}, addresses.size() == 1 ? deadline : deadline.sooner(Deadline::after(kGuestPatience)));
    if (visit.socket) return std::move(visit.socket);
    note(visit.failure);
    if (std::erase_if(addresses, [&](const Address& address) { return address.text() == peer; }) == 0) break;
  }
  return {};
}

Socket Greeter::call(const std::vector<Address>& addresses, int to, Line line, int index, Deadline deadline) const {
  std::string tried;
  for (std::chrono::milliseconds pause{5};; pause = std::min(pause * 2, std::chrono::milliseconds(200))) {
    if (Socket socket = try_call(addresses, to, line, index, deadline, tried)) return socket;
    if (deadline.expired()) break;
    if (const std::string lost = lost_(); !lost.empty())
      throw DistNetworkError(str(lost, " while rank ", rank_, " tried to reach rank ", to, ": ", tried), ATHANOR_WHERE);
    // An abstract address ends with its process.
    const bool refused = tried.find(error_text(ECONNREFUSED)) != std::string::npos;
    if (refused && addresses.size() == 1 && addresses[0].family() == AF_UNIX)
      throw NobodyListens(str("rank ", to, " is gone: nobody listens where rank ", rank_, " was to find it"),
                          ATHANOR_WHERE);
    waiting_(to);
    check_interrupt();
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
  }
  throw DistNetworkError(str("rank ", rank_, " could not reach rank ", to, ": ",
                             addresses.empty() ? "it has no address that another host can reach" : tried),
                         ATHANOR_WHERE);
}

}  // namespace athanor::distributed
