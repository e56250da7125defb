// Strangers at the port where the ranks of a group connect with each other.
#include "athanor/distributed/transport/greeter.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <random>

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

Socket stranger(const Greeter& greeter, const std::string& says) {
  Socket socket = Socket::connect(door_of(greeter), Deadline::after(seconds(20)));
  socket.send_all(says.data(), says.size(), Deadline::after(seconds(20)));
  return socket;
}

TEST(Greeter, LetsRanksInBesideStrangersThatTalkNonsenseOrSayNothing) {
  Greeter host(0, 2), guest(1, 2);
  open(host, "key");
  open(guest, "key");
  std::mt19937 random(7);
  std::string noise(100'000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  const std::string magic = "ATHANOR1";
  std::vector<Socket> silent, loud;
  for (int i = 0; i < 100; ++i) silent.push_back(stranger(host, i % 2 == 0 ? "" : magic));
  loud.push_back(stranger(host, "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n"));
  loud.push_back(stranger(host, magic + std::string(200, '\xff')));       // a rank there is not
  loud.push_back(stranger(host, magic + "\1" + std::string(200, '\0')));  // rank 1, without the proof
  try {
    loud.push_back(stranger(host, noise));
  } catch (const DistNetworkError&) {  // shown out before it had said all
  }
  const Deadline deadline = Deadline::after(seconds(30));
  auto taken = std::async(std::launch::async, [&] { return host.take(1, Line::Stream, 3, deadline); });
  Socket called = guest.call(door_of(host), 0, Line::Stream, 3, deadline);
  Socket kept = taken.get();
  called.send_all("hello", 5, deadline);
  char heard[5];
  kept.recv_all(heard, 5, deadline);
  EXPECT_EQ(std::string(heard, 5), "hello");
  for (Socket& socket : loud) EXPECT_TRUE(is_ended(socket));
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
