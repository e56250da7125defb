#pragma once
/// Reducer: gathers the gradients of parameters in buckets during backward and averages them over the ranks. What is
/// behind DistributedDataParallel; see "How gradients meet" in docs/design.md.
///
/// Every parameter's gradient has its home in a bucket: a stretch of flat memory, shared with the ranks of the same
/// host where the group has such memory. Buckets are reduced one after the other, in the same order on all ranks, as
/// soon as all their gradients and all buckets before them are complete; what is missing at the end of backward counts
/// as zero.

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "athanor/distributed/process_group.h"
#include "athanor/parallel/comm_hook.h"

namespace athanor::nn::parallel {

struct ReducerOptions {
  std::size_t bucket_bytes = std::size_t{25} << 20, first_bucket_bytes = std::size_t{1} << 20;
  /// Every backward uses the same parameters as often and in the same order; checked.
  bool static_graph = false;
  /// Buckets are reduced by the group's thread while backward goes on; otherwise at its end, in its thread. The same on
  /// all ranks. Without a value: at the end if all ranks share memory and keep all processors busy themselves, or if
  /// there is little to reduce.
  std::optional<bool> overlap;
};

/// For one thread at a time. Held by shared_ptr: a backward under way keeps it alive.
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  using Parameter = std::pair<std::string, Tensor>;

  /// A collective act. The parameters are the same on all ranks, which is not checked here. Throws Error for one that
  /// belongs to another reducer, unless that one is abandoned and averaged all it should.
  Reducer(std::vector<Parameter> parameters, distributed::ProcessGroupPtr group, const ReducerOptions& options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Whether backward reduces. It does not before the first call.
  void set_synchronizing(bool on) {
    synchronizing_ = on;
    due_ = due_ || on;
  }
  /// After a forward: what it recorded keeps the reducer alive, so that its backward averages whatever becomes of the
  /// owner.
  void live_with_graph();
  /// Its owner is gone; graphs may be left.
  void abandon();
  void set_hook(CommHook hook) { hook_ = std::move(hook); }
  bool has_hook() const { return static_cast<bool>(hook_); }
  /// By how many the sums are divided; 0 for the group's size. Hooks do not see it.
  void set_divisor(int ranks) { divisor_ = ranks; }
  /// Takes part in the others' backward with zeros.
  void join_in();

  bool overlaps() const { return overlap_; }
  /// Whether the buckets lie in memory that other ranks reach.
  bool in_shared_memory() const { return shared_; }
  /// Names of the parameters, by bucket, in the order of reduction.
  std::vector<std::vector<std::string>> buckets() const;

 private:
  struct Slot {
    std::string name;
    Tensor parameter, home;
    std::size_t bucket = 0, place = 0;
    std::int64_t offset = 0;  ///< in the bucket, in elements
    bool used = false;        ///< got a gradient since the last reduction
    int fired = 0;            ///< times it got one in this backward
    int expected = 1;         ///< that many, if the graph is static
    Tensor spared;            ///< what .grad was, if no gradient came
  };
  struct Bucket {
    std::vector<std::size_t> members;
    Tensor flat;  ///< gradients, then a mark per member that tells whether this rank has one
    Tensor gradients, marks;
    std::size_t missing = 0;
    std::optional<distributed::CallSite> purpose;
    distributed::WorkPtr work;
    std::future<Tensor> result;
  };
  using Order = std::vector<std::vector<std::size_t>>;

  bool want_overlap() const;
  Order cut(const std::vector<std::size_t>& order) const;
  void lay_out(const Order& order);
  void completed(std::size_t index);
  void move_in(Slot& slot);
  void begin();
  void mark_ready(std::size_t index);
  void launch();
  void start(std::size_t bucket);
  std::string purpose_of(std::size_t bucket) const;
  void finish(bool joining);
  void fill_in(Slot& slot, bool joining);
  std::vector<bool> collect_results();
  void settle(const std::vector<bool>& used_somewhere);
  void check_static() const;
  void agree_on_order();
  void end_of_pass() noexcept;
  void dropped() noexcept;
  void replace_abandoned() const;

  distributed::ProcessGroupPtr group_;
  ReducerOptions options_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  CommHook hook_;
  int divisor_ = 0;
  bool shared_ = false, overlap_ = true, synchronizing_ = false, running_ = false;
  bool settled_ = false;  ///< buckets follow the order of the first backward
  bool due_ = false;      ///< a forward was made whose backward averages and has not ended
  std::uint64_t graph_hook_ = 0;
  std::size_t launched_ = 0;
  std::vector<std::size_t> arrivals_;
  std::string broken_;
};

}  // namespace athanor::nn::parallel
