#pragma once
/// Collectives among ranks that are joined by links: those of different hosts. Every rank talks to every other
/// directly, so that a sum is formed from the ranks' own values, in their order, wherever it is formed.

#include <span>
#include <vector>

#include "athanor/distributed/algorithms/exchange.h"
#include "athanor/distributed/algorithms/reduction.h"

namespace athanor::distributed {

class RemoteCollectives {
 public:
  /// `members`: the ranks that take part, in order; this one is among them. Roots and parts are places in that list.
  RemoteCollectives(Links& links, std::span<const int> members);

  void barrier(const Call& call);
  void broadcast(const Call& call, Span data, int root);
  void all_reduce(const Call& call, Span data, const Reduction& reduction);
  void reduce(const Call& call, Span data, const Reduction& reduction, int root);
  void all_gather(const Call& call, Parts out, Span in);
  void gather(const Call& call, Parts out, Span in, int root);
  void scatter(const Call& call, Span out, Parts in, int root);
  void reduce_scatter(const Call& call, Span out, Parts in, const Reduction& reduction);
  void all_to_all(const Call& call, Parts out, Parts in);

 private:
  class Sum;
  int size() const { return static_cast<int>(members_.size()); }
  int rank_at(int place) const { return members_[static_cast<std::size_t>(place)]; }
  void small_all_reduce(const Call& call, Span data, const Reduction& reduction);

  Links& links_;
  std::span<const int> members_;
  int me_ = 0;
};

}  // namespace athanor::distributed
