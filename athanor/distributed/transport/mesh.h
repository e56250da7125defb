#pragma once
/// Mesh: what connects one rank with the others of its group. Ranks of one host share a segment of memory and can wake
/// each other; ranks of different hosts have TCP connections. Every pair has a control connection besides, over which
/// the first error reaches everyone and whose end means that the other process is gone.

#include <poll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "athanor/base/cpus.h"
#include "athanor/distributed/backend.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/transport/segment.h"
#include "athanor/distributed/transport/setup_notes.h"

namespace athanor::distributed {

class Greeter;

/// Who sleeps and is woken: the thread in a collective, or one that waits for a message.
enum class Bell : std::uint8_t { Collective, Messages };
inline constexpr int kNumBells = 2;

class Mesh final : public StateTalk {
 public:
  /// Bytes of the segment that `local_ranks` ranks of a host share, of a group of `size`.
  using SegmentSize = std::size_t (*)(int local_ranks, int size);

  /// Connects; all ranks of the group make theirs. ATHANOR_TRANSPORT=auto|shm|tcp: `tcp` treats every rank as a host of
  /// its own, `shm` makes it an error if the ranks cannot share memory. Throws DistError by the deadline.
  Mesh(const BackendOptions& options, SegmentSize segment_size);
  ~Mesh() override;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Ranks on this rank's host, itself included, in order.
  const std::vector<int>& local_ranks() const { return local_ranks_; }
  bool is_local(int rank) const {
    return host_[static_cast<std::size_t>(rank)] == host_[static_cast<std::size_t>(rank_)];
  }
  /// Whether this host has more of the group's ranks than processors.
  bool crowded() const { return static_cast<int>(local_ranks_.size()) > processors_; }
  /// One rank per host, the lowest, in order.
  const std::vector<int>& leaders() const { return leaders_; }
  /// The lowest rank on that rank's host.
  int leader_of(int rank) const { return host_[static_cast<std::size_t>(rank)]; }
  /// Empty if this rank is alone on its host.
  const Segment& segment() const { return segment_; }
  /// To ranks of other hosts.
  std::span<Socket> streams(int peer) { return peers_[static_cast<std::size_t>(peer)].streams; }
  Socket& messages(int peer) { return peers_[static_cast<std::size_t>(peer)].messages; }
  /// "rank 3", with the global rank where it differs.
  std::string rank_text(int rank) const;

  /// Throws if the group is broken.
  void check() const {
    if (broken_.load(std::memory_order_acquire)) throw_broken();
  }
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  /// Breaks the group: every wait of every rank ends with this reason. The first reason counts. Waits a moment for
  /// ranks that do not listen, so that they can read the reason after this one's end.
  void abort(const std::string& reason) noexcept;
  /// The ranks whose control connection has ended; of a broken group, waits a tenth of a second for one.
  std::vector<int> lost_ranks();
  /// Whether that rank said good-bye.
  bool has_left(int rank) const { return peers_[static_cast<std::size_t>(rank)].left.load(std::memory_order_acquire); }
  /// "rank 3 has left the process group (destroy_process_group)", and after which error if one had happened to it.
  std::string left_text(int rank) const;
  /// An error that does not break the group, but may be why this rank leaves it. The first counts.
  void note_failure(const std::string& what) noexcept;
  /// Unless the group is broken, tells the others that this rank leaves. Waits for them as abort() does.
  void say_goodbye() noexcept;
  /// Tells everyone what this rank waits for, in vain so far. Those who wait themselves answer in the same way.
  void tell_wait(const std::string& what) noexcept;
  /// What other ranks have said they wait for in the last two seconds: "rank 0: …; rank 2: …".
  std::string told_waits() const;
  /// True if another rank has told of its wait since the last answer of this kind of call, and none was due within a
  /// second: answers are told to all, and would be answered in turn.
  bool owes_wait(Bell bell) noexcept;

  void tell_state(const std::string& own) noexcept override;
  void ask_states(const std::string& own) noexcept override;
  std::vector<std::string> told_states(Deadline deadline) override;
  int talk_fd() const override { return controls_.get(); }
  void hear() noexcept override;

  /// Sleeps until the bell rings, one of `extra` is ready, something happens on a control connection, or the deadline
  /// passes. Throws if the group is broken. May return early. False: nothing of that happened, but perhaps a signal.
  bool sleep(Bell bell, std::span<pollfd> extra, Deadline deadline);
  /// Looks at the control connections without waiting, and throws if the group is broken.
  void look();
  /// Wakes a rank of this host.
  void ring(int rank, Bell bell) noexcept;
  /// The lowest rank of a host hands a descriptor to another rank there, which takes it with take_descriptor(). That
  /// waits, and throws when the group is broken, too: who cannot hand over what others wait for aborts.
  void hand_descriptor(int rank, int fd, Deadline deadline);
  Descriptor take_descriptor(Deadline deadline);

  /// Breaks the group because this rank and another have called different things. Each tells the other what it called,
  /// so that the error of both names both.
  [[noreturn]] void mismatch(int rank, const Call& call);
  /// Breaks the group because `from` sends `to` another number of bytes than that one expects.
  [[noreturn]] void sizes_differ(int from, int to, std::int64_t sent, std::int64_t expected, const Call& call);
  /// The same for the first such pair, if there is one. `rows`, by rank: the bytes it sends to each, then the bytes it
  /// expects from each.
  void check_pairs(std::span<const std::int64_t* const> rows, const Call& call);
  /// For those who wait in `call`: joins in if another rank has found out first.
  void answer_accusation(const Call& call) {
    if (const int rank = accuser_.load(std::memory_order_acquire); rank >= 0 && !broken()) mismatch(rank, call);
  }

 private:
  struct Peer {
    Socket control, messages, descriptors;
    std::vector<Socket> streams;
    Descriptor bells[kNumBells];
    std::string unread, unsent, note, last_words, waits_for, state;
    Deadline waits_for_fresh = Deadline::after(std::chrono::milliseconds(0));
    Deadline state_fresh = Deadline::after(std::chrono::milliseconds(0));
    std::atomic<bool> left{false}, closed{false};
    bool waits_to_send = false;
  };
  struct Card;
  struct StripeCall;

  void read_cards(const BackendOptions& options, Greeter& greeter, std::vector<Card>& cards, Deadline deadline);
  void connect_controls(Greeter& greeter, const std::vector<Card>& cards, Deadline deadline);
  void share_segment(const BackendOptions& options, SegmentSize segment_size, Deadline deadline);
  std::string exchange_segment(SegmentSize segment_size, Deadline deadline);
  Socket call_neighbour(Greeter& greeter, const Card& card, int rank, Deadline deadline);
  bool is_neighbour(int rank) const;
  void note_hosts();
  void try_stripes(const Greeter& greeter, std::vector<StripeCall>& calls, Deadline deadline);
  void warn_of_dead(const std::vector<StripeCall>& calls) const;
  void call_stripes(const Greeter& greeter, const std::vector<Card>& cards, Deadline deadline);
  void connect_streams(Greeter& greeter, const std::vector<Card>& cards, Deadline deadline);
  std::vector<Store::Value> all_ranks_values(const BackendOptions& options, const std::string& name, Deadline deadline);
  void note_ended();
  bool has_ended(int rank) const;
  void connect(const BackendOptions& options, SegmentSize segment_size);
  std::string lost_ranks_text();
  void wait_for_word(int rank, Deadline deadline);
  void with_peer(int rank, const std::function<void(Peer&)>& act);
  void watch_controls();
  void listen_to(int rank);
  void heed_last_words(Peer& peer, std::uint32_t kind, const std::string& text);
  bool break_group(const std::string& reason);
  void flush(Deadline deadline) noexcept;
  void understand(int rank, std::uint32_t kind, const std::string& text);
  std::string note_of(int rank);
  enum class Post : std::uint8_t { IfTaken, Always };  // the latter for what is said once
  void post(int rank, const std::string& bytes, Post kind = Post::IfTaken) noexcept;
  void send_unsent(int rank) noexcept;
  void watch(int rank, int operation) noexcept;
  void tell_all(std::uint32_t kind, const std::string& text) noexcept;
  [[noreturn]] void throw_broken() const;

  int rank_, size_;
  int processors_ = usable_cpus();
  std::vector<int> global_ranks_;
  std::string name_;
  std::vector<int> host_;  // of each rank: the lowest rank there
  std::vector<int> local_ranks_, leaders_;
  std::vector<Peer> peers_;
  SetupNotes notes_;
  // While the group is being made.
  std::function<std::vector<int>()> ended_ranks_;
  std::vector<int> ended_;
  Deadline ended_fresh_ = Deadline::after(std::chrono::milliseconds(0));
  Descriptor bells_[kNumBells];
  Descriptor controls_;  // epoll
  Segment segment_;
  std::atomic<bool> broken_{false};
  std::atomic<bool> told_[kNumBells] = {};              ///< of a wait, and not answered yet
  std::atomic<std::int64_t> answered_[kNumBells] = {};  ///< when last, in milliseconds
  std::atomic<int> accuser_{-1};                        // a rank that says its call differs from ours
  mutable std::mutex mutex_;  // of what follows, and of the control connections once they are watched
  std::string reason_, failure_;
  std::string finding_;  // what is known of a mismatch whose other side has not answered yet
};

}  // namespace athanor::distributed
