#pragma once
/// What Messages is made of inside.

#include "athanor/distributed/backend/messages.h"

namespace athanor::distributed {

inline constexpr std::uint32_t kMessageMagic = 0x4d53'4733;

struct alignas(CacheLine) Messages::Header {
  std::uint32_t magic = kMessageMagic, tag = 0, dtype = 0;
  std::uint32_t offer = 0;  // 1 more than its place; 0: the data follows
  std::uint64_t count = 0, bytes = 0, address = 0;
};

struct Messages::Request {
  bool sends = false, done = false;
  int peer = kAnySource;   // of a receive: filled in by what came
  int asked = kAnySource;  // of a receive: what was asked for
  Header header;           // of a receive: what is expected
  char* data = nullptr;
  std::size_t moved = 0;
  std::vector<char> orphan;  // holds the rest of a message whose owner gave it up
  std::string error;
  std::string where;
};

struct Messages::Unexpected {
  int from = 0;
  Header header;
  CacheLines data;  // none while the message is only offered
  bool whole = false;
  RequestPtr claimed;
};

// A message that is being read from its sender's memory.
struct Messages::Pull {
  Header header;
  RequestPtr to;
  std::size_t got = 0;
};

struct Messages::Channel {
  Channel(int rank, Link link) : rank(rank), link(link) {}
  int rank;
  Link link;
  int place = -1;                                                // among the ranks of this host
  std::atomic<std::uint32_t>*mine = nullptr, *theirs = nullptr;  // states of offers to and from it
  RequestPtr offered[Arena::kOffers];
  std::deque<Pull> pulls;
  bool leaving = false;  // its rank has said good-bye: nothing can stay with it
  bool closed = false;
  std::deque<RequestPtr> out;
  std::size_t header_sent = 0;
  // What is being received.
  Header header;
  std::size_t header_got = 0, got = 0;
  RequestPtr to;
  Unexpected* aside = nullptr;
  bool begun = false;  // the header is whole and there is a place for the data
};

}  // namespace athanor::distributed
