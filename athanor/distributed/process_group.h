#pragma once
/// ProcessGroup: the ranks that communicate with each other, and what they can do together. The functions in
/// collectives.h take one as an argument and otherwise use the default group; ranks here are ranks within the group.
///
/// Every member calls the same collectives in the same order. Calls from several threads of one rank run one after the
/// other. A call ends with what was asked or throws: Error and ValueError for arguments (the group is as before),
/// DistError when the communication failed or the ranks called different things; after that the group is broken and all
/// its calls throw. Every wait ends at the group's timeout.
///
/// Tensors may be of any dtype, shape and layout and on any device; those that are not contiguous host memory are
/// copied. What a call writes is outside the graph, as with Tensor::data(): distributed/differentiable.h has the
/// functions that gradients flow through.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "athanor/distributed/call_site.h"
#include "athanor/distributed/reduce_op.h"
#include "athanor/distributed/work.h"

namespace athanor::distributed {

class Backend;
class FlightRecorder;
class Store;
struct P2pOptions;

/// Of groups that are not told another: 30 minutes.
inline constexpr std::chrono::milliseconds kDefaultTimeout{30 * 60 * 1000};
inline constexpr int kAnySourceRank = -1;

struct ProcessGroupOptions {
  /// "tcp", "gloo" …; "cpu:tcp,cuda:nccl" names one per device type.
  std::string backend = "tcp";
  int rank = 0, size = 1;
  /// The world's rank of each member; empty: 0 … size - 1.
  std::vector<int> global_ranks;
  std::string name;
  std::chrono::milliseconds timeout = kDefaultTimeout;
  /// See TCPStoreOptions::secret.
  std::string secret;
  /// The world's ranks whose processes have ended, as far as is known before the members are connected. May be empty.
  std::function<std::vector<int>()> ended = {};
};

class StateTalk;

class ProcessGroup : public std::enable_shared_from_this<ProcessGroup> {
 public:
  using Where = CallSite;

  /// Makes the backend, which is a collective act. `store` is shared by the members; the group's keys start with its
  /// name. Throws ValueError, DistError.
  ProcessGroup(std::shared_ptr<Store> store, const ProcessGroupOptions& options);
  /// What a process that is not a member holds: it has a name and members, and every call throws.
  static std::shared_ptr<ProcessGroup> outsider(const ProcessGroupOptions& options);
  /// Waits for the calls under way.
  ~ProcessGroup();

  /// -1 for an outsider.
  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  /// The backend for host tensors: "tcp".
  const std::string& backend_name() const { return backend_name_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  const std::vector<int>& global_ranks() const { return global_ranks_; }
  /// Throws ValueError if the world's rank is no member.
  int group_rank_of(int global_rank) const;
  const std::shared_ptr<Store>& store() const { return store_; }
  const std::string& secret() const { return secret_; }

  // Collectives. Those with `async_op` return at once with a Work, else null. A tensor that a call reads or fills must
  // not be touched until then.

  WorkPtr broadcast(const Tensor& tensor, int root, bool async_op = false, Where where = Where::current());
  WorkPtr all_reduce(const Tensor& tensor, const ReduceOp& op = ReduceOp::SUM, bool async_op = false,
                     Where where = Where::current());
  /// Only the root's tensor changes.
  WorkPtr reduce(const Tensor& tensor, int root, const ReduceOp& op = ReduceOp::SUM, bool async_op = false,
                 Where where = Where::current());
  /// `output[r]` becomes rank r's input; its shape may differ between ranks r.
  WorkPtr all_gather(TensorList output, const Tensor& input, bool async_op = false, Where where = Where::current());
  /// `output` is empty but at the root.
  WorkPtr gather(TensorList output, const Tensor& input, int root, bool async_op = false,
                 Where where = Where::current());
  /// `input` is empty but at the root.
  WorkPtr scatter(const Tensor& output, TensorList input, int root, bool async_op = false,
                  Where where = Where::current());
  /// `output` becomes the combination of all ranks' `input[rank()]`.
  WorkPtr reduce_scatter(const Tensor& output, TensorList input, const ReduceOp& op = ReduceOp::SUM,
                         bool async_op = false, Where where = Where::current());
  /// `output[r]` becomes rank r's `input[rank()]`.
  WorkPtr all_to_all(TensorList output, TensorList input, bool async_op = false, Where where = Where::current());
  WorkPtr barrier(bool async_op = false, Where where = Where::current());
  /// Stacked along a new or the first dimension: size() times the elements of `input`.
  WorkPtr all_gather_into_tensor(const Tensor& output, const Tensor& input, bool async_op = false,
                                 Where where = Where::current());
  WorkPtr reduce_scatter_tensor(const Tensor& output, const Tensor& input, const ReduceOp& op = ReduceOp::SUM,
                                bool async_op = false, Where where = Where::current());
  /// Splits along the first dimension; without split sizes, evenly.
  WorkPtr all_to_all_single(const Tensor& output, const Tensor& input, IntArrayRef output_split_sizes = {},
                            IntArrayRef input_split_sizes = {}, bool async_op = false, Where where = Where::current());
  /// A barrier that says who did not come: rank 0 throws DistError with the first missing rank (or all of them) when
  /// `timeout` (the group's if negative) passes, and so do those that came.
  void monitored_barrier(std::chrono::milliseconds timeout = Work::kNoTimeout, bool wait_all_ranks = false,
                         Where where = Where::current());

  // Messages between two ranks. With one tag they arrive in the order they were sent in.

  void send(const Tensor& tensor, int to, int tag = 0, Where where = Where::current());
  /// Returns the rank the message came from. `from` may be kAnySourceRank.
  int recv(const Tensor& tensor, int from = kAnySourceRank, int tag = 0, Where where = Where::current());
  /// The tensor must not be written before the Work has ended. With ATHANOR_DISTRIBUTED_DEBUG=1 a write in between
  /// makes wait() throw.
  WorkPtr isend(const Tensor& tensor, int to, int tag = 0, Where where = Where::current());
  /// The tensor must not be used before wait() has returned, or is_completed() said true. With
  /// ATHANOR_DISTRIBUTED_DEBUG=1 an op, item() or a call of a group that uses it earlier makes wait() throw; what looks
  /// through data_ptr() finds NaN, -1 or true there until the message comes.
  WorkPtr irecv(const Tensor& tensor, int from = kAnySourceRank, int tag = 0, Where where = Where::current());

  /// From any thread: ends every wait of the group, on all ranks, with an error that carries the reason.
  void abort(const std::string& reason) noexcept;
  /// Waits for the calls under way, says good-bye to the others and gives up connections and threads. Every later call
  /// throws.
  void shutdown();

  /// How the members tell each other what they are doing without the store; null for outsiders and where the backend
  /// has no connections for it.
  StateTalk* talk() const;

  /// False for outsiders, and once a call has failed or the group was aborted or shut down.
  bool usable() const;
  /// The ranks of this group that are known to be gone, or to have left it. Waits for a moment at most.
  std::vector<int> lost_ranks() const;
  const FlightRecorder& flight_recorder() const;
  /// Memory that all ranks of a host may reach, or null: see Backend::allocate_shared.
  std::shared_ptr<void> allocate_shared(std::size_t bytes, Where where = Where::current());

  struct Impl;  ///< of process_group_impl.h

 private:
  struct OutsiderTag {};
  ProcessGroup(OutsiderTag, const ProcessGroupOptions& options);

  int rank_, size_;
  std::string name_, backend_name_, secret_;
  std::chrono::milliseconds timeout_;
  std::vector<int> global_ranks_;
  std::shared_ptr<Store> store_;
  std::unique_ptr<Impl> impl_;
};
using ProcessGroupPtr = std::shared_ptr<ProcessGroup>;

}  // namespace athanor::distributed
