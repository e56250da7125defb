#pragma once
/// Collectives among the ranks of one host, through the memory they share. Ranks here are places in Arena.

#include <memory>
#include <vector>

#include "athanor/distributed/algorithms/reduction.h"
#include "athanor/distributed/transport/arena.h"

namespace athanor::distributed {

class LocalCollectives {
 public:
  explicit LocalCollectives(Mesh& mesh) : arena_(mesh) {}

  Arena& arena() { return arena_; }

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
  bool in_place_all_reduce(const Call& call, Span data, const Reduction& reduction);
  Place place_of(const Span& data) const;

  Arena arena_;
  std::vector<std::weak_ptr<Shared>> shared_;
  std::uint64_t last_shared_ = 0;
};

}  // namespace athanor::distributed
