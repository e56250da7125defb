// Strangers at the port where the ranks of a group connect with each other.
#include "athanor/distributed/transport/greeter.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <random>

#include "athanor/base/log.h"
#include "athanor/distributed/error.h"

namespace athanor::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

void open(Greeter& greeter, const std::string& key) {
  greeter.open(
      key, [] { return std::string(); }, [](int) {});
}

std::vector<Address> door_of(const Greeter& greeter) {
  std::string reason;
  return resolve_host("127.0.0.1", greeter.port(), Deadline::after(seconds(20)), reason);
}

// Whether the other side ends the connection, rather than the deadline.
bool is_ended(Socket& socket) {
  char byte = 0;
  while (wait_for(socket.fd(), POLLIN, Deadline::after(seconds(20))))
    if (::recv(socket.fd(), &byte, 1, 0) <= 0) return true;
  return false;
}

std::vector<Address> unix_door_of(const Greeter& greeter) { return {Address::abstract_unix(greeter.unix_name())}; }

Socket stranger(const std::vector<Address>& door, const std::string& says) {
  Socket socket = Socket::connect(door, Deadline::after(seconds(20)));
  socket.send_all(says.data(), says.size(), Deadline::after(seconds(20)));
  return socket;
}

void expect_to_let_in_beside_strangers(const std::function<std::vector<Address>(const Greeter&)>& door_of) {
  Greeter host(0, 2), guest(1, 2);
  open(host, "key");
  open(guest, "key");
  const std::vector<Address> door = door_of(host);
  std::mt19937 random(7);
  std::string noise(100'000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  const std::string magic = "ATHANOR2";
  std::vector<Socket> silent, loud;
  for (int i = 0; i < 100; ++i) silent.push_back(stranger(door, i % 2 == 0 ? "" : magic));
  loud.push_back(stranger(door, "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n"));
  loud.push_back(stranger(door, magic + std::string(200, '\xff')));       // a rank there is not
  loud.push_back(stranger(door, magic + "\1" + std::string(200, '\0')));  // rank 1, without the proof
  try {
    loud.push_back(stranger(door, noise));
  } catch (const DistNetworkError&) {  // shown out before it had said all
  }
  const Deadline deadline = Deadline::after(seconds(30));
  auto taken = std::async(std::launch::async, [&] { return host.take(1, Line::Stream, 3, deadline); });
  Socket called = guest.call(door, 0, Line::Stream, 3, deadline);
  Socket kept = taken.get();
  called.send_all("hello", 5, deadline);
  char heard[5];
  kept.recv_all(heard, 5, deadline);
  EXPECT_EQ(std::string(heard, 5), "hello");
  for (Socket& socket : loud) EXPECT_TRUE(is_ended(socket));
}

TEST(Greeter, LetsRanksInBesideStrangersThatTalkNonsenseOrSayNothing) { expect_to_let_in_beside_strangers(door_of); }

TEST(Greeter, LetsRanksOfItsHostInBesideStrangersAtTheUnixDoor) { expect_to_let_in_beside_strangers(unix_door_of); }

// Where somebody else listens now: it greets with a line of its own and keeps the connection open.
TEST(Greeter, MakesTheOtherConnectionsAtOnceWhereAStrangerBeginsToAnswer) {
  Greeter host(0, 2), guest(1, 2);
  open(host, "key");
  int looks = 0;
  guest.open(
      "key", [] { return std::string(); }, [&](int to) { looks += to == 0 ? 1 : 0; });
  Listener elsewhere = Listener::on_port(0, "127.0.0.1");
  std::vector<Visit> visits;
  for (int stream = 0; stream < 3; ++stream) {
    const bool real = stream == 1;
    Socket socket =
        Socket::connect(real ? door_of(host) : std::vector{elsewhere.address()}, Deadline::after(seconds(20)));
    visits.push_back({0, Line::Stream, stream, std::move(socket)});
  }
  std::vector<Socket> strangers;
  for (int i = 0; i < 2; ++i) {
    strangers.push_back(elsewhere.accept(Deadline::after(seconds(20))));
    strangers.back().send_all("SSH-2.0-Op", 10, Deadline::after(seconds(20)));
  }
  const Deadline deadline = Deadline::after(milliseconds(2000));
  auto taken = std::async(std::launch::async, [&] {
    const Socket kept = host.take(1, Line::Stream, 1, Deadline::after(seconds(20)));
    return deadline.expired();
  });
  guest.introduce(visits, deadline);
  EXPECT_TRUE(deadline.expired());
  EXPECT_FALSE(taken.get()) << "the real one had to wait for the strangers' deadline";
  EXPECT_TRUE(visits[1].socket) << visits[1].failure;
  for (const int stranger : {0, 2}) {
    const Visit& visit = visits[static_cast<std::size_t>(stranger)];
    EXPECT_FALSE(visit.socket);
    EXPECT_NE(visit.failure.find(elsewhere.address().text() + ": no answer"), std::string::npos) << visit.failure;
  }
  EXPECT_GT(looks, 1) << "nobody was told that rank 0 is waited for";
}

// For its scope the process can have no further file descriptor.
class NoDescriptorLeft {
 public:
  NoDescriptorLeft() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const Descriptor next(::dup(0));
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(next.get());
    ::setrlimit(RLIMIT_NOFILE, &now);
  }
  ~NoDescriptorLeft() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptorLeft(const NoDescriptorLeft&) = delete;
  NoDescriptorLeft& operator=(const NoDescriptorLeft&) = delete;

 private:
  rlimit before_{};
};

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const DistNetworkError& error) {
    return athanor::detail::str("the network's: ", error.what());
  } catch (const DistError& error) {
    return error.what();
  }
  return "none";
}

// Nobody else is to blame for that, and no patience mends it.
TEST(Descriptors, ThatRunOutAreSaidAtOnceByWhoeverNeedsOne) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer of undefined behaviour needs a pipe to see whether an exception is an object";
#endif
  const Deadline deadline = Deadline::after(seconds(60));
  const Listener listener = Listener::on_port(0, "127.0.0.1");
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  Socket giver{Descriptor(ends[0])}, taker{Descriptor(ends[1])};
  giver.send_descriptor(0, deadline);
  Greeter host(0, 2);
  const Socket guest = Socket::connect(door_of(host), deadline);  // waits to be accepted
  std::string connecting, taking, letting_in, listening;
  {
    const NoDescriptorLeft limit;
    connecting = error_of([&] { Socket::connect(Endpoint{"127.0.0.1", listener.port()}, deadline); });
    taking = error_of([&] { taker.recv_descriptor(deadline); });
    open(host, "key");
    letting_in = error_of([&] { host.take(1, Line::Control, 0, deadline); });
    listening = error_of([&] { Listener::on_port(0); });
  }
  EXPECT_FALSE(deadline.expired());
  const std::string end = ": no file descriptor is left, this process may have ";
  EXPECT_EQ(connecting.find("connecting to 127.0.0.1:" + std::to_string(listener.port()) + end), 0u) << connecting;
  EXPECT_EQ(taking.find("taking a descriptor from"), 0u) << taking;
  EXPECT_EQ(letting_in.find("rank 0 waited for rank 1: accepting a connection on"), 0u) << letting_in;
  EXPECT_EQ(listening.find("listening on any free port" + end), 0u) << listening;
  for (const std::string& error : {connecting, taking, letting_in, listening})
    EXPECT_NE(error.find("ulimit -n"), std::string::npos) << error;
}

// Stands between a caller and a rank's door; what they say of each other passes when it is let.
class Between {
 public:
  explicit Between(const Greeter& host) : door_(door_of(host)) {}
  std::vector<Address> door() const { return {listener_.address()}; }
  /// Lets the caller's words reach the rank and waits for its answer, which stays here.
  void ask() {
    caller_ = listener_.accept(deadline_);
    rank_ = Socket::connect(door_, deadline_);
    pass(caller_, rank_, kHello);
    rank_.recv_all(answer_, kHello, deadline_);
  }
  void answer() { caller_.send_all(answer_, kHello, deadline_); }
  void confirm() { pass(caller_, rank_, 1); }
  void leave() { rank_.close(); }

 private:
  static constexpr std::size_t kHello = 48;
  void pass(Socket& from, Socket& to, std::size_t size) const {
    char bytes[kHello];
    from.recv_all(bytes, size, deadline_);
    to.send_all(bytes, size, deadline_);
  }

  std::vector<Address> door_;
  Deadline deadline_ = Deadline::after(seconds(20));
  Listener listener_ = Listener::on_port(0, "127.0.0.1");
  Socket caller_, rank_;
  char answer_[kHello] = {};
};

// It was stopped, say, when it had been let in and had not heard of that yet.
TEST(Greeter, WaitsForARankThatHasProvedItselfLongerThanForStrangers) {
  Greeter host(0, 2, milliseconds(100)), guest(1, 2);
  open(host, "key");
  open(guest, "key");
  Between between(host);
  auto calling = std::async(
      std::launch::async, [&] { return guest.call(between.door(), 0, Line::Stream, 3, Deadline::after(seconds(20))); });
  between.ask();
  Socket later = stranger(door_of(host), "");
  EXPECT_TRUE(is_ended(later));  // so the patience with who came before is over, too
  between.answer();
  EXPECT_TRUE(calling.get());
  between.confirm();
  EXPECT_TRUE(host.take(1, Line::Stream, 3, Deadline::after(seconds(10))));
}

TEST(Greeter, CallsARankThatProvedItselfAndLeftNoStranger) {
  set_log_level(LogLevel::Debug);
  testing::internal::CaptureStderr();
  {
    Greeter host(0, 2), guest(1, 2);
    open(host, "key");
    open(guest, "key");
    Between between(host);
    auto calling = std::async(std::launch::async, [&] {
      return error_of([&] { guest.call(between.door(), 0, Line::Stream, 3, Deadline::after(milliseconds(300))); });
    });
    between.ask();
    between.leave();
    // Who comes after it is let in after it has been noticed.
    const Socket called = guest.call(door_of(host), 0, Line::Stream, 4, Deadline::after(seconds(20)));
    EXPECT_TRUE(host.take(1, Line::Stream, 4, Deadline::after(seconds(20))));
    calling.get();
  }
  const std::string text = testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::Warning);
  EXPECT_NE(text.find("rank 1 gave up its connection"), std::string::npos) << text;
  EXPECT_EQ(text.find("does not belong"), std::string::npos) << text;
}

TEST(Greeter, RefusesARankOfAnotherGroup) {
  Greeter host(0, 2), other(1, 2);
  open(host, "key");
  open(other, "another key");
  EXPECT_THROW(other.call(door_of(host), 0, Line::Control, 0, Deadline::after(milliseconds(300))), DistNetworkError);
  EXPECT_THROW(host.take(1, Line::Control, 0, Deadline::after(milliseconds(100))), DistNetworkError);
}

}  // namespace
}  // namespace athanor::distributed
