#pragma once
/// Exchange: bytes to and from several ranks at once, over the links between them.

#include <memory>
#include <vector>

#include "athanor/distributed/transport/arena.h"

namespace athanor::distributed {

/// The links of one rank to all others, for collectives.
class Links {
 public:
  /// `arena` may be null if no other rank is on this host.
  Links(Mesh& mesh, Arena* arena);
  Mesh& mesh() { return mesh_; }
  Arena* arena() { return arena_; }
  Link& operator[](int rank) { return *links_[static_cast<std::size_t>(rank)]; }

 private:
  Mesh& mesh_;
  Arena* arena_;
  std::vector<std::unique_ptr<Link>> links_;
};

/// A stream of bytes that is received into a small room again and again.
struct Window {
  CacheLines room;
  std::size_t total = 0, received = 0;
  const std::size_t* consumed = nullptr;  ///< how far what was received may be overwritten
};

/// One collective's traffic. Every rank that receives from another finds out first whether that one called the same,
/// and sends as much as is expected. All is queued before run().
class Exchange {
 public:
  Exchange(Links& links, const Call& call);

  /// What is queued for one rank arrives in the order of the calls. With `ready`, only so many bytes may be sent yet.
  void send(int to, const void* data, std::size_t bytes, const std::size_t* ready = nullptr);
  /// `progress`, if given, follows how much has come.
  void recv(int from, void* data, std::size_t bytes, std::size_t* progress = nullptr);
  void recv(int from, Window& window);
  /// Until everything is sent and received. `work`, called after each turn, uses what has come; true if it did.
  template <class Work>
  void run(Work&& work) {
    Patience patience = fresh_patience();
    write_greetings();
    while (true) {
      bool moved = pump();
      moved = work() || moved;
      if (done()) return;
      if (moved)
        patience = fresh_patience();
      else if (!patience.endure())
        sleep();
    }
  }
  void run() {
    run([] { return false; });
  }

 private:
  struct alignas(CacheLine) Greeting {
    std::uint64_t sequence, fingerprint, bytes;  // what follows it
  };
  struct Outgoing {
    const char* data;
    std::size_t bytes;
    const std::size_t* ready;
  };
  struct Incoming {
    char* data;
    std::size_t bytes;
    Window* window;
    std::size_t* progress;
  };
  struct Lane {
    int rank;
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    std::size_t sending = 0, sent = 0, receiving = 0, received = 0;
    Greeting mine{}, theirs{};
    std::uint64_t expected = 0;  // bytes, after the greeting
    std::string first;           // the greeting and little more, in one piece
  };

  Lane& lane(int rank);
  bool pump();
  bool pump_out(Lane& lane);
  bool pump_in(Lane& lane);
  void write_greetings();
  void check_greeting(const Lane& lane);
  bool done() const;
  static std::size_t may_send(const Lane& lane);
  static bool may_receive(const Lane& lane);
  void give_up(int rank);
  void time_out();
  std::string missing() const;  ///< the ranks that are waited for
  void tell_wait() const;       ///< tells all others of them
  void sleep();
  Patience fresh_patience() const;

  Links& links_;
  const Call& call_;
  std::vector<Lane> lanes_;
};

}  // namespace athanor::distributed
