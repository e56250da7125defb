// Bytes that travel over several connections at once.
#include "athanor/distributed/transport/link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>

#include "athanor/distributed/error.h"

namespace athanor::distributed::link_test {
namespace {

using std::chrono::seconds;

// Two links with some connections between them, over TCP as between hosts.
struct Ends {
  explicit Ends(std::size_t count) {
    const Deadline deadline = Deadline::after(seconds(20));
    Listener listener = Listener::on_port(0, "127.0.0.1");
    for (std::size_t i = 0; i < count; ++i) {
      left.push_back(Socket::connect(listener.address(), deadline));
      right.push_back(listener.accept(deadline));
    }
  }
  // Room for little on that connection, so that turns end anywhere.
  void narrow(std::size_t connection) {
    const int bytes = 8192;
    for (const Socket* socket : {&left[connection], &right[connection]})
      ASSERT_EQ(::setsockopt(socket->fd(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
  }
  std::vector<Socket> left, right;
};

std::vector<char> noise(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<char> bytes(size);
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

void wait_for_one_of(std::vector<pollfd> polls) {
  ASSERT_FALSE(polls.empty());
  ASSERT_GT(::poll(polls.data(), polls.size(), 20'000), 0) << "nothing becomes ready";
}

// Each way, in pieces of any size.
void expect_order_kept(Ends& ends, std::size_t size) {
  SocketLink left(ends.left), right(ends.right);
  const std::vector<char> sent[2] = {noise(size, 1), noise(size, 2)};
  std::vector<char> got[2] = {std::vector<char>(size), std::vector<char>(size)};
  std::size_t wrote[2] = {}, read[2] = {};
  std::mt19937 random(3);
  const Deadline deadline = Deadline::after(seconds(60));
  while (read[0] < size || read[1] < size) {
    ASSERT_FALSE(deadline.expired()) << read[0] << " and " << read[1] << " bytes came";
    bool moved = false;
    for (int way = 0; way < 2; ++way) {
      SocketLink &from = way == 0 ? left : right, &to = way == 0 ? right : left;
      const std::size_t most = 1 + random() % 300'000;
      const std::size_t out = from.write_some(sent[way].data() + wrote[way], std::min(most, size - wrote[way]));
      const std::size_t in = to.read_some(got[way].data() + read[way], std::min(1 + most / 2, size - read[way]));
      wrote[way] += out;
      read[way] += in;
      moved = moved || out > 0 || in > 0;
    }
    if (moved) continue;
    std::vector<pollfd> polls;
    left.add_polls(polls, wrote[0] < size, read[1] < size);
    right.add_polls(polls, wrote[1] < size, read[0] < size);
    wait_for_one_of(polls);
  }
  EXPECT_TRUE(got[0] == sent[0] && got[1] == sent[1]);
}

TEST(SocketLink, KeepsTheOrderOfBytesOverAnyNumberOfConnections) {
  for (const std::size_t count : {1, 2, 3, 16}) {
    SCOPED_TRACE(count);
    Ends ends(count);
    expect_order_kept(ends, 5'000'000);
  }
}

TEST(SocketLink, KeepsTheOrderOfBytesWhereConnectionsHaveRoomForDifferentAmounts) {
  Ends ends(3);
  ends.narrow(0);
  ends.narrow(2);
  expect_order_kept(ends, 3'000'000);
}

// With what is never read.
void fill(const Socket& socket) {
  const std::vector<char> waste(100'000);
  while (::send(socket.fd(), waste.data(), waste.size(), MSG_DONTWAIT) > 0) {
  }
}

void drain(const Socket& socket) {
  std::vector<char> drained(1 << 20);
  while (::recv(socket.fd(), drained.data(), drained.size(), MSG_DONTWAIT) > 0) {
  }
}

TEST(SocketLink, LeavesOutAConnectionThatTakesNothing) {
  Ends ends(2);
  fill(ends.left[1]);
  SocketLink left(ends.left);
  const std::vector<char> sent = noise(2'000'000, 4);
  std::size_t wrote = 0;
  const Deadline deadline = Deadline::after(seconds(20));
  while (wrote < sent.size() && !deadline.expired()) {
    wrote += left.write_some(sent.data() + wrote, sent.size() - wrote);
    drain(ends.right[0]);
  }
  EXPECT_EQ(wrote, sent.size());
}

// Its end is an error for who sends, even if the kernel has told who reads already.
TEST(SocketLink, NoticesTheEndOfAConnectionThatItLeavesOut) {
  for (const bool told : {false, true}) {
    SCOPED_TRACE(told ? "a reader was told" : "nobody was told");
    Ends ends(2);
    fill(ends.left[1]);
    SocketLink left(ends.left);
    const std::string peer = ends.left[1].peer_text();
    const linger at_once{1, 0};
    ASSERT_EQ(::setsockopt(ends.right[1].fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    ends.right[1].close();
    const Deadline deadline = Deadline::after(seconds(10));
    ASSERT_TRUE(wait_for(ends.left[1].fd(), POLLIN, deadline));
    if (told) {
      const std::uint32_t turn[sizeof(CacheLine) / 4 + 1] = {1};  // its number in a line, and four bytes
      ends.right[0].send_all(turn, sizeof turn, deadline);
      ASSERT_TRUE(wait_for(ends.left[0].fd(), POLLIN, deadline));
      char byte = 1;
      ASSERT_EQ(left.read_some(&byte, 1), 1U);
    }
    const std::vector<char> sent(1'000'000);
    try {
      while (!deadline.expired()) {
        left.write_some(sent.data(), sent.size());
        drain(ends.right[0]);
      }
      ADD_FAILURE() << "no error";
    } catch (const DistNetworkError& error) {
      EXPECT_NE(std::string(error.what()).find("sending to " + peer), std::string::npos) << error.what();
    }
  }
}

TEST(SocketLink, ReadsAllThatCameBeforeTheOtherSideClosed) {
  Ends ends(3);
  const std::vector<char> sent = noise(700'000, 5);
  std::vector<char> got(sent.size());
  SocketLink right(ends.right);
  std::size_t wrote = 0, read = 0;
  SocketLink left(ends.left);
  const Deadline deadline = Deadline::after(seconds(20));
  while (wrote < sent.size() && !deadline.expired()) {
    wrote += left.write_some(sent.data() + wrote, sent.size() - wrote);
    if (wrote < sent.size()) read += right.read_some(got.data() + read, got.size() - read);
  }
  ASSERT_EQ(wrote, sent.size());
  for (Socket& socket : ends.left) socket.close();
  while (read < got.size() && !deadline.expired()) {
    const std::size_t now = right.read_some(got.data() + read, got.size() - read);
    std::vector<pollfd> polls;
    right.add_polls(polls, false, true);
    if (now == 0) wait_for_one_of(polls);
    read += now;
  }
  ASSERT_EQ(read, got.size());
  EXPECT_EQ(got, sent);
  char more = 0;
  try {
    while (!deadline.expired()) ASSERT_EQ(right.read_some(&more, 1), 0U);
    ADD_FAILURE() << "no error";
  } catch (const DistNetworkError& error) {
    EXPECT_NE(std::string(error.what()).find("the other side closed the connection"), std::string::npos);
  }
}

// Between turns, one that has ended is not waited for: poll() would return at once, again and again.
TEST(SocketLink, WaitsForTheConnectionsThatAreLeft) {
  Ends ends(2);
  SocketLink right(ends.right);
  ends.left[0].close();
  char byte = 0;
  std::vector<pollfd> polls;
  const Deadline deadline = Deadline::after(seconds(20));
  do {
    EXPECT_EQ(right.read_some(&byte, 1), 0U);
    polls.clear();
    right.add_polls(polls, false, true);
  } while (polls.size() > 1 && !deadline.expired());
  ASSERT_EQ(polls.size(), 1U);
  EXPECT_EQ(polls[0].fd, ends.right[1].fd());
}

}  // namespace
}  // namespace athanor::distributed::link_test
