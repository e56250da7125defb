// What clients that mean no good, or are slow, can do to the process that serves a TCPStore; and what a server that
// does not answer can do to its clients.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "athanor/distributed/error.h"
#include "athanor/distributed/flight_recorder.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/store/tcp_protocol.h"
#include "athanor/distributed/store/tcp_server.h"
#include "athanor/distributed/store/tcp_store.h"
#include "tests/thread_count.h"

namespace athanor::distributed::store_guests_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tcp_protocol::Query;

Socket connect_to(int port) { return Socket::connect(Endpoint{"127.0.0.1", port}, Deadline::after(seconds(20))); }

// Whether the server ends the connection, rather than the deadline.
bool is_ended(Socket& socket) {
  char byte = 0;
  while (wait_for(socket.fd(), POLLIN, Deadline::after(seconds(20))))
    if (::recv(socket.fd(), &byte, 1, 0) <= 0) return true;
  return false;
}

std::string hello() {
  const std::uint32_t magic = tcp_protocol::kMagic;
  return std::string(1, static_cast<char>(Query::Validate)) +
         std::string(reinterpret_cast<const char*>(&magic), sizeof magic);
}

TEST(TCPStoreGuests, WhoDoesNotProveTheSecretInTimeIsShownOut) {
  TCPStoreServer server(Listener::on_port(0), "secret", milliseconds(100));
  Socket silent = connect_to(server.port()), half = connect_to(server.port());
  const std::string valid = hello();
  half.send_all(valid.data(), valid.size(), Deadline::after(seconds(20)));
  EXPECT_TRUE(is_ended(silent));
  EXPECT_TRUE(is_ended(half));
}

TEST(TCPStoreGuests, WhoIsKnownStaysHoweverLongItIsSilent) {
  for (const char* secret : {"", "secret"}) {
    const TCPStoreServer server(Listener::on_port(0), secret, milliseconds(100));
    TCPStoreOptions options;
    options.port = server.port();
    options.secret = secret;
    TCPStore client("127.0.0.1", options);
    client.set("k", "v");
    Socket stranger = connect_to(server.port());
    EXPECT_TRUE(is_ended(stranger));  // so much time has passed
    EXPECT_EQ(client.get_text("k"), "v");
  }
}

std::size_t resident_bytes() {
  std::size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(TCPStoreGuests, AnswersThatNobodyReadsDoNotPileUp) {
  TCPStoreOptions options;
  options.port = 0;
  options.is_server = true;
  options.secret = "";
  TCPStore store("127.0.0.1", options);
  constexpr std::size_t kSize = std::size_t{1} << 20;
  constexpr int kGets = 200;
  store.set("big", Store::Value(kSize, 'x'));
  std::string requests = hello();
  const std::string key = "/big";
  const std::uint64_t length = key.size();
  for (int i = 0; i < kGets; ++i)
    requests += std::string(1, static_cast<char>(Query::Get)) +
                std::string(reinterpret_cast<const char*>(&length), sizeof length) + key;
  const Deadline deadline = Deadline::after(seconds(60));
  Socket greedy = connect_to(store.port());
  const std::size_t before = resident_bytes();
  greedy.send_all(requests.data(), requests.size(), deadline);
  // When others are answered, these requests have been seen.
  ASSERT_TRUE(wait_for(greedy.fd(), POLLIN, deadline));
  for (int i = 0; i < 20; ++i) store.set("other", "served");
  EXPECT_LT(resident_bytes(), before + 60 * kSize);
  // And they are answered when they are read.
  std::string value(kSize, '\0');
  for (int i = 0; i < kGets; ++i) {
    std::uint64_t size = 0;
    greedy.recv_all(&size, sizeof size, deadline);
    ASSERT_EQ(size, kSize) << i;
    greedy.recv_all(value.data(), size, deadline);
    ASSERT_EQ(value, std::string(kSize, 'x')) << i;
  }
}

// More files for this process, while it lives.
class ManyFiles {
 public:
  explicit ManyFiles(rlim_t wanted) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    struct rlimit now = before_;
    now.rlim_cur = std::max(now.rlim_cur, std::min(wanted, now.rlim_max));
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &now), 0);
    enough_ = now.rlim_cur >= wanted;
  }
  ~ManyFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  bool enough() const { return enough_; }

 private:
  struct rlimit before_ {};
  bool enough_;
};

TEST(TCPStoreGuests, WaitByTheThousandForOneThread) {
  constexpr int kClients = 2000;
  const ManyFiles files(2 * kClients + 200);
  if (!files.enough()) GTEST_SKIP() << "needs " << 2 * kClients + 200 << " open files";
  TCPStoreOptions options;
  options.port = 0;
  options.is_server = true;
  options.secret = "";
  TCPStore store("127.0.0.1", options);
  const auto threads = number_of_threads();
  std::string request = hello();
  const auto put = [&](auto value) { request.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto put_key = [&](const std::string& name) {
    put(std::uint64_t{name.size()});
    request += name;
  };
  put(Query::Add);
  put_key("/clients");
  put(std::int64_t{1});
  put(Query::Wait);
  put(std::uint64_t{1});
  put_key("/go");
  const Deadline deadline = Deadline::after(seconds(60));
  std::vector<Socket> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(connect_to(store.port()));
    clients.back().send_all(request.data(), request.size(), deadline);
  }
  std::vector<bool> seen(kClients);
  for (Socket& client : clients) {
    std::int64_t place = 0;
    client.recv_all(&place, sizeof place, deadline);
    ASSERT_TRUE(place >= 1 && place <= kClients && !seen[static_cast<std::size_t>(place - 1)]) << place;
    seen[static_cast<std::size_t>(place - 1)] = true;
  }
  EXPECT_FALSE(wait_for(clients.front().fd(), POLLIN, Deadline::after(milliseconds(0))));
  store.set("go", "");
  for (Socket& client : clients) {
    std::uint8_t told = 0xff;
    client.recv_all(&told, 1, deadline);
    ASSERT_EQ(told, tcp_protocol::kStopWaiting);
  }
  EXPECT_EQ(number_of_threads(), threads);
}

// A server that is stopped: its port connects, nobody answers.
class StoppedServer : public testing::Test {
 public:
  StoppedServer() {
    int ports[2];
    EXPECT_EQ(::pipe(ports), 0);
    server_ = ::fork();
    if (server_ == 0) {
      TCPStoreOptions options;
      options.port = 0;
      options.is_server = true;
      const TCPStore store("127.0.0.1", options);
      const int port = store.port();
      static_cast<void>(!::write(ports[1], &port, sizeof port));
      while (true) ::pause();
    }
    TCPStoreOptions options;  // its own timeout is five minutes
    EXPECT_EQ(::read(ports[0], &options.port, sizeof options.port), ssize_t{sizeof options.port});
    ::close(ports[0]);
    ::close(ports[1]);
    store_ = std::make_unique<TCPStore>("127.0.0.1", options);
  }
  ~StoppedServer() override {
    ::kill(server_, SIGKILL);
    ::waitpid(server_, nullptr, 0);
  }

 protected:
  void stop() const {
    ::kill(server_, SIGSTOP);
    ::waitpid(server_, nullptr, WUNTRACED);
  }
  pid_t server_ = -1;
  std::unique_ptr<TCPStore> store_;
};

TEST_F(StoppedServer, HoldsNoMeetingBeyondItsDeadline) {
  const Deadline deadline = Deadline::after(milliseconds(200));
  const meeting::Place place = meeting::claim_place(*store_, 1, 3, deadline, "test");
  stop();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(meeting::meet_all(*store_, place, 1, 3, deadline, "test"), DistError);
  EXPECT_THROW(meeting::meet_all(*store_, place, 0, 3, deadline, "test"), DistError);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(30));
}

TEST_F(StoppedServer, HoldsUpNoAbort) {
  const FlightRecorder recorder("group", 0, 2);
  stop();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(internals::leave_flight_record(*store_, recorder), DistError);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(30));
}

}  // namespace
}  // namespace athanor::distributed::store_guests_test
