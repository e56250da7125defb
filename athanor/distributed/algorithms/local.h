#pragma once
/// Collectives among the ranks of one host, through the memory they share. Ranks here are places in Arena.

#include <memory>
#include <vector>

#include "athanor/distributed/algorithms/reduction.h"
#include "athanor/distributed/transport/peer_memory.h"
#include "athanor/distributed/transport/stager.h"

namespace athanor::distributed {

class LocalCollectives {
 public:
  /// Collective: it waits for the other ranks of the host as `call` says.
  LocalCollectives(Mesh& mesh, const Call& call) : arena_(mesh), peers_(arena_, call) {}

  Arena& arena() { return arena_; }
  const PeerMemory& peers() const { return peers_; }

  void barrier(const Call& call);
  void broadcast(const Call& call, Span data, int root);
  void all_reduce(const Call& call, Span data, const Reduction& reduction);
  /// The others' data is left alone.
  void reduce(const Call& call, Span data, const Reduction& reduction, int root);
  void all_gather(const Call& call, Parts out, Span in);
  void gather(const Call& call, Parts out, Span in, int root);
  void scatter(const Call& call, Span out, Parts in, int root);
  void reduce_scatter(const Call& call, Span out, Parts in, const Reduction& reduction);
  void all_to_all(const Call& call, Parts out, Parts in);

  /// Memory in which all_reduce works in place. Collective.
  std::shared_ptr<void> allocate_shared(const Call& call, std::size_t bytes);

 private:
  struct Shared;
  // Where in which shared memory something lies; id 0 for nowhere.
  struct Place {
    std::uint64_t id, offset;
  };

  void tiny_all_reduce(const Call& call, Span data, const Reduction& reduction);
  void one_phase_all_reduce(const Call& call, Span data, const Reduction& reduction);
  void two_phase_all_reduce(const Call& call, Span data, const Reduction& reduction);
  struct WovenChunk;
  class Weaver;
  void woven_all_reduce(const Call& call, Span data, const Reduction& reduction);
  bool in_place_all_reduce(const Call& call, Span data, const Reduction& reduction);
  Place place_of(const Span& data) const;

  // What follows reads the others' own memory, in one copy. Every rank shows where its data lies and returns when all
  // who need it have read it. Who fails on the way says so before its memory can become something else.
  class Shown;
  bool direct(std::size_t bytes) const;
  std::size_t largest_of_all(const Call& call, Parts out, Parts in);
  void direct_broadcast(const Call& call, Span data, int root);
  void direct_all_reduce(const Call& call, Span data, const Reduction& reduction);
  void direct_all_gather(const Call& call, Parts out, Span in);
  void direct_gather(const Call& call, Parts out, Span in, int root);
  void direct_scatter(const Call& call, Span out, Parts in, int root);
  void direct_reduce_scatter(const Call& call, Span out, Parts in, const Reduction& reduction);
  void direct_all_to_all(const Call& call, Parts out, Parts in);
  void read(const Call& call, int place, void* to, std::uint64_t address, std::size_t bytes);
  Span part_for_me(const Call& call, int place, std::uint64_t list);
  void combine_from_all(const Call& call, char* out, const char* own, const std::vector<std::uint64_t>& addresses,
                        std::size_t bytes, const Reduction& reduction, bool stream);

  Arena arena_;
  PeerMemory peers_;
  Stager stager_;
  std::vector<char> scratch_;
  std::vector<std::weak_ptr<Shared>> shared_;
  std::uint64_t last_shared_ = 0;
};

}  // namespace athanor::distributed
