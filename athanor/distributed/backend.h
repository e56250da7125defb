#pragma once
/// Backend: what moves bytes between the ranks of one group. The process group above it checks arguments, makes memory
/// contiguous, queues asynchronous calls and keeps the records; a backend only communicates. A backend from outside
/// the library derives from Backend and registers a factory.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "athanor/base/array_ref.h"
#include "athanor/base/deadline.h"
#include "athanor/distributed/call_site.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/reduce_op.h"
#include "athanor/distributed/store/store.h"

namespace athanor::distributed {

/// Contiguous elements in memory.
struct Span {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::Byte;

  std::size_t bytes() const { return static_cast<std::size_t>(count) * item_size(dtype); }
};
/// One per rank, each of any size.
using Parts = std::span<const Span>;

enum class OpType : std::uint8_t {
  Broadcast,
  AllReduce,
  Reduce,
  AllGather,
  Gather,
  Scatter,
  ReduceScatter,
  AllToAll,
  Barrier,
  Send,
  Recv,
};
/// "all_reduce".
const char* op_name(OpType op);

/// What a group knows of its ranks while one of them waits.
class GroupWatch {
 public:
  /// Throws DistBackendError if a rank is known to be gone, or has broken the group. From any thread.
  virtual void look() = 0;

 protected:
  ~GroupWatch() = default;
};

/// How the ranks of a group tell each other what they are doing without a store, which may have gone with its rank.
/// From any thread.
class StateTalk {
 public:
  virtual ~StateTalk() = default;
  /// Tells the others this rank's state.
  virtual void tell_state(const std::string& own) noexcept = 0;
  /// Tells it and asks for the others'. They answer when a thread of theirs waits in the group or calls hear().
  virtual void ask_states(const std::string& own) noexcept = 0;
  /// What the others have told in the last seconds, by rank, or since ask_states(); empty where nothing came. Waits for
  /// those that are there.
  virtual std::vector<std::string> told_states(Deadline deadline) = 0;
  /// Readable when there is something to hear.
  virtual int talk_fd() const = 0;
  /// Answers, if another rank has asked. Does not wait.
  virtual void hear() noexcept = 0;
};

/// One call of a collective, as its rank sees it. Ranks whose calls of one sequence number differ in what
/// `fingerprint` covers have called different things.
struct Call {
  OpType op{};
  DType dtype{};
  int root = -1;  ///< of broadcast, reduce, gather, scatter; the other side of send and recv; or -1
  ReduceOp::Kind reduce{};
  std::string_view user_operator;  ///< its name, if `reduce` is USER
  std::int64_t count = 0;          ///< elements, by which ranks must agree; of the whole call
  std::uint64_t sequence = 0;      ///< of the collectives of the group, from 1
  std::uint64_t fingerprint = 0;
  Deadline deadline{Deadline::Clock::time_point::max()};
  std::chrono::milliseconds timeout{0};  ///< what the deadline was made from, for messages
  std::span<const std::int64_t> shape;   ///< of the caller's tensor
  /// Of lists: the elements of each rank's part. Of all_to_all: of what each rank is sent, then of what comes from
  /// each.
  std::span<const std::int64_t> parts;
  GroupWatch* watch = nullptr;  ///< or null; lives as long as the group
  /// Runs on the group's own thread beside the program's, which its waits should leave the processor to.
  bool background = false;
  CallSite where;  ///< the line that called

  /// "all_reduce(SUM) of float32 [3, 4], number 17 of the group, at train.cpp:42".
  std::string text() const;
  /// For backends to call now and then while they wait by means of their own.
  void look() const {
    if (watch != nullptr) watch->look();
  }
};

/// A send or receive under way. Destroying it before it is done gives it up: the memory is not touched afterwards.
class P2pRequest {
 public:
  virtual ~P2pRequest() = default;
  /// True once done; then the memory is free (send) or filled (recv). Throws what went wrong.
  virtual bool test() = 0;
  /// Waits; throws DistError at the deadline, naming the other rank and the tag.
  virtual void wait(Deadline deadline) = 0;
  /// The rank the message came from, once done.
  virtual int source_rank() const { return -1; }
};

inline constexpr int kAnySource = -1;

/// All members but abort() are called by one thread at a time for the collectives, and by any thread for isend and
/// irecv. They end with what was asked or throw; after a throw the group is broken and throws ever after.
class Backend {
 public:
  Backend(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual std::string name() const = 0;
  /// Whether the backend itself reports calls that do not match and ranks that are gone. Otherwise the process group
  /// keeps a control channel beside it, over which all ranks compare their calls before they enter the backend.
  virtual bool compares_fingerprints() const { return false; }
  /// By default all but user-defined operators where they have a meaning.
  virtual bool supports(const ReduceOp& op, DType dtype) const;

  virtual void barrier(const Call& call) = 0;
  virtual void broadcast(const Call& call, Span data, int root) = 0;
  /// In place.
  virtual void all_reduce(const Call& call, Span data, const ReduceOp& op) = 0;
  /// In place at the root; the others' data is left alone.
  virtual void reduce(const Call& call, Span data, const ReduceOp& op, int root) = 0;
  /// `out[r]` becomes what rank r has in `in`. `in` may lie in `out[rank()]`.
  virtual void all_gather(const Call& call, Parts out, Span in) = 0;
  /// `out` counts at the root only.
  virtual void gather(const Call& call, Parts out, Span in, int root) = 0;
  virtual void scatter(const Call& call, Span out, Parts in, int root) = 0;
  /// `out` becomes the combination of all ranks' `in[rank()]`. `out` may be `in[rank()]`.
  virtual void reduce_scatter(const Call& call, Span out, Parts in, const ReduceOp& op) = 0;
  /// `out[r]` becomes rank r's `in[rank()]`. No overlap.
  virtual void all_to_all(const Call& call, Parts out, Parts in) = 0;

  /// Messages between two ranks with one tag arrive in the order they were sent in. The memory must live until the
  /// request is done or destroyed.
  virtual std::unique_ptr<P2pRequest> isend(const Call& call, Span data, int to, std::uint32_t tag) = 0;
  /// `from` may be kAnySource.
  virtual std::unique_ptr<P2pRequest> irecv(const Call& call, Span data, int from, std::uint32_t tag) = 0;
  /// Lets requests advance that nobody waits for; called again and again, by one thread, while there are any. Returns
  /// after `patience` at the latest.
  virtual void progress(std::chrono::milliseconds patience) = 0;

  /// Memory that all ranks may reach. An all_reduce whose data lies at the same place in the same shared memory on all
  /// ranks needs no copies. Collective; nothing where there is no such memory.
  virtual std::shared_ptr<void> allocate_shared(const Call& call, std::size_t bytes);

  /// From any thread: every wait, here and on the other ranks, ends with an error that carries the reason.
  virtual void abort(const std::string& reason) noexcept = 0;
  /// Says good-bye, so that the others know this rank did not die. No call follows.
  virtual void shutdown() noexcept {}
  /// From any thread: the ranks that are known to be gone, or to have left. Waits for a moment at most.
  virtual std::vector<int> lost_ranks() { return {}; }
  /// Null where ranks cannot tell. Lives as long as the backend.
  virtual StateTalk* talk() { return nullptr; }

 private:
  int rank_, size_;
};

struct BackendOptions {
  std::shared_ptr<Store> store;  ///< the group's own: no other group sees its keys
  int rank = 0, size = 1;
  std::vector<int> global_ranks;  ///< of the members, for messages
  std::string group_name;
  std::chrono::milliseconds timeout{0};
  std::string secret;  ///< of the job, from wherever it came; empty if it has none
  /// The global ranks whose processes have ended, as far as the place knows where they met. May be empty.
  std::function<std::vector<int>()> ended = {};
};
using BackendFactory = std::function<std::unique_ptr<Backend>(const BackendOptions&)>;

/// Makes a backend known by name. Throws ValueError if there is one already, or the name is not made of lower-case
/// letters, digits and underscores.
void register_backend(const std::string& name, BackendFactory factory);
/// Throws ValueError listing the known names, or DistError telling which package a plug-in is missing.
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options);
/// Why make_backend would not find it, plug-ins included: "not here", or what is wrong with the plug-in; empty if it
/// would.
std::string backend_problem(const std::string& name);
bool is_backend_available(const std::string& name);
std::vector<std::string> backend_names();

}  // namespace athanor::distributed
