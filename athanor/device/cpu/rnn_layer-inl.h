// What both passes of recurrent layers with packed weights share: the layer, its groups of units, and how the threads
// of a team divide the work and wait for each other. Compiled once per SIMD target; included by kernel files after
// hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_RNN_LAYER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_RNN_LAYER_INL_H_
#undef ATHANOR_DEVICE_CPU_RNN_LAYER_INL_H_
#else
#define ATHANOR_DEVICE_CPU_RNN_LAYER_INL_H_
#endif
// clang-format on

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/rnn_cell-inl.h"
#include "athanor/device/cpu/rnn_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {  // each kernel file has its own

/// What both passes share.
template <class T>
class PackedLayer {
 protected:
  explicit PackedLayer(const cpu::RnnLayer& l)
      : mode_(l.mode),
        steps_(*l.steps),
        gates_(rnn_gates(l.mode)),
        inputs_(l.inputs),
        hidden_(l.hidden),
        padded_(padded_columns<T>(l.hidden)),
        groups_((l.hidden + kCols - 1) / kCols),
        input_(static_cast<const T*>(l.input)),
        w_ih_(static_cast<const T*>(l.w_ih)),
        w_hh_(static_cast<const T*>(l.w_hh)) {}

  static constexpr std::int64_t kCols = kTileCols<T>;

  /// Units [u, u + n) of a group; its panels are w wide.
  struct Group {
    std::int64_t u, n;
    int w;
  };
  Group group(std::int64_t i) const {
    const std::int64_t u = i * kCols;
    const int w = panel_width<T>(hidden_, u);
    return {u, std::min<std::int64_t>(w, hidden_ - u), w};
  }
  /// Threads that pay where a group is `work` multiply-adds for each row of a step, at most ours.
  int team_for(std::int64_t work) const {
    const std::int64_t grain = rnn_grain(steps_.batch * work), threads = in_parallel_region() ? 1 : get_num_threads();
    return static_cast<int>(std::min((groups_ + grain - 1) / grain, threads));
  }
  /// Groups [first, second) that a member of a team takes in every step.
  std::pair<std::int64_t, std::int64_t> share(const Team& team, int member) const {
    const std::int64_t each = (groups_ + team.size() - 1) / team.size();
    return {std::min(member * each, groups_), std::min((member + 1) * each, groups_)};
  }
  /// fn(begin, end): a member's groups; for a team of one ranges of all groups, of at least `grain`, on any threads.
  template <class F>
  void each_group(const Team& team, int member, std::int64_t grain, const F& fn) const {
    const auto [begin, end] = share(team, member);
    parallel_for(begin, end, team.size() == 1 ? grain : groups_, fn);
  }
  /// The same for `count` items that no thread owns.
  template <class F>
  static void each_of(const Team& team, int member, std::int64_t count, std::int64_t grain, const F& fn) {
    parallel_for(count * member / team.size(), count * (member + 1) / team.size(), team.size() == 1 ? grain : count,
                 fn);
  }
  /// Where a step of some rows waits for the rest of its team: part by part if the step before had the same rows, so
  /// that the others may be behind by all parts but one.
  class Progress {
   public:
    Progress(Team& team, int member, std::size_t step, std::int64_t rows, std::int64_t rows_before)
        : team_(team),
          member_(member),
          start_(static_cast<std::int64_t>(step) * kParts),
          tiles_(RowTiles(rows).count),
          apart_(team.size() > 1 && rows == rows_before),
          each_(apart_ ? (tiles_ + kParts - 1) / kParts : tiles_) {}
    const Team& team() const { return team_; }
    int member() const { return member_; }
    /// Awaits what the part that begins with tile t needs, and returns its end.
    std::int64_t next(std::int64_t t) const {
      team_.await(apart_ ? start_ - kParts + t / each_ + 1 : start_);
      return std::min(t + each_, tiles_);
    }
    /// The part that ends before tile t is done.
    void done(std::int64_t t) const { team_.pass(member_, start_ + (t < tiles_ ? t / each_ : kParts)); }
    /// In place of a step: returns when all have come here.
    void meet() const {
      team_.pass(member_, start_ + kParts);
      team_.await(start_ + kParts);
    }

   private:
    static constexpr std::int64_t kParts = 4;
    Team& team_;
    const int member_;
    const std::int64_t start_, tiles_;
    const bool apart_;
    const std::int64_t each_;
  };
  /// Units of the group after i, of those below `end`.
  std::int64_t units_after(std::int64_t i, std::int64_t end) const { return i + 1 < end ? group(i + 1).n : 0; }
  /// What backward needs of the rows from `first` on of a group: (row, gates, units) without gaps, group after group.
  template <class P>
  GateRows<P> work_rows(P* work, const Group& g, std::int64_t first) const {
    if (!work) return {};
    const std::int64_t slots = rnn_work_columns(mode_, 1, 0);
    return {work + g.u * slots * steps_.total + first * slots * g.n, slots * g.n, g.n};
  }
  /// The states before, (row, unit), which follow.
  template <class P>
  P* work_states(P* work) const {
    return work + rnn_work_columns(mode_, hidden_, 0) * steps_.total;
  }

  const RnnMode mode_;
  const cpu::RnnSteps& steps_;
  const std::int64_t gates_, inputs_, hidden_, padded_, groups_;
  const T *input_, *w_ih_, *w_hh_;
};

}  // namespace
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
