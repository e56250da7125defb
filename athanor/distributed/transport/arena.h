#pragma once
/// Arena: the memory that the ranks of one host share, and how they keep step in it.
///
/// Every collective is a series of steps, the same on all ranks and numbered through. A rank publishes a step when it
/// has written what the others need for it, and thereby also says that it has finished reading everything of the step
/// before. Each rank has two rooms for data, used in turn.

#include <atomic>
#include <cstring>

#include "athanor/distributed/transport/link.h"
#include "athanor/distributed/transport/mesh.h"
#include "athanor/distributed/transport/wait.h"

namespace athanor::distributed {

class Arena {
 public:
  /// Size of one of a rank's two rooms.
  static constexpr std::size_t kRoom = std::size_t{2} << 20;
  /// What fits beside a step's number, in the same cache line.
  static constexpr std::size_t kPayload = 48;
  static constexpr std::size_t kRing = std::size_t{512} << 10;

  static std::size_t bytes(int local_ranks, int size);
  explicit Arena(Mesh& mesh);

  Mesh& mesh() { return mesh_; }
  /// Ranks here and below are places among the ranks of this host.
  int ranks() const { return ranks_; }
  int me() const { return me_; }
  int group_rank(int place) const { return mesh_.local_ranks()[static_cast<std::size_t>(place)]; }
  char* room(int place, int which) const {
    return rooms_ + (static_cast<std::size_t>(place) * 2 + static_cast<std::size_t>(which)) * kRoom;
  }

  std::uint64_t next_step() { return ++step_; }
  /// `payload`, of at most kPayload bytes, goes with it.
  void publish(std::uint64_t step, const Call& call, const void* payload = nullptr, std::size_t size = 0) {
    keep_close(step, call);
    Slot& slot = slot_of(me_, step);
    slot.fingerprint = call.fingerprint;
    if (size > 0) std::memcpy(slot.payload, payload, size);
    slot.step.store(step, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    wake_sleepers();
  }
  /// Waits until that rank has published the step of this collective. Throws DistBackendError if it called something
  /// else, is gone, or does not come by the deadline; the group is broken then.
  void await(int place, std::uint64_t step, const Call& call) {
    const Slot& slot = slot_of(place, step);
    if (slot.step.load(std::memory_order_acquire) < step) wait_for_step(place, step, call);
    seen_[static_cast<std::size_t>(place)] = step;
    if (slot.fingerprint != call.fingerprint) mesh_.mismatch(group_rank(place), call);
  }
  void await_all(std::uint64_t step, const Call& call) {
    for (int place = 0; place < ranks_; ++place)
      if (place != me_) await(place, step, call);
  }
  const char* payload(int place, std::uint64_t step) const { return slot_of(place, step).payload; }

  /// The room whose turn it is, to read the others'.
  int next_room() { return turn_ ^= 1; }
  /// The same, to write to one's own: waits until all have read what was in it.
  int claim_room(const Call& call);
  /// The room last claimed is free again when all have published `step`.
  void free_room_at(std::uint64_t step) { free_at_[turn_] = step; }
  void free_other_room_at(std::uint64_t step) { free_at_[turn_ ^ 1] = step; }

  /// Rings between two ranks of this host, made by either end.
  Link messages_link(int place) const;
  Link stream_link(int place) const;

  /// Says that what this rank has shown of its own memory does not count any more, whoever may be reading it.
  void give_up() {
    states_[me_].given_up.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  /// Whether that rank had said so by now. If not, what was read from it before is good.
  bool has_given_up(int place) const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return states_[place].given_up.load(std::memory_order_relaxed) != 0;
  }

  /// States of what one rank offers another to read in its memory; what they mean is up to the users.
  static constexpr int kOffers = 8;
  std::atomic<std::uint32_t>* offers(int from, int to) const {
    return offers_ +
           (static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(to)) * kOffers;
  }

  /// Sleep flags, for the links.
  std::atomic<std::uint32_t>& sleeping(int place, Bell bell) const {
    return states_[place].sleeping[static_cast<int>(bell)];
  }

 private:
  static constexpr int kSlots = 8;
  // A rank that waits for nobody, as the root of a broadcast, may be so many steps ahead of the others.
  static constexpr std::uint64_t kMostAhead = 4;
  struct alignas(128) Slot {
    std::atomic<std::uint64_t> step;
    std::uint64_t fingerprint;
    char payload[kPayload];
  };
  struct alignas(128) State {
    std::atomic<std::uint32_t> sleeping[kNumBells];
    std::atomic<std::uint32_t> given_up;
  };

  Slot& slot_of(int place, std::uint64_t step) const {
    return slots_[static_cast<std::size_t>(place) * kSlots + step % kSlots];
  }
  bool reached(int place, std::uint64_t step) const {
    return slot_of(place, step).step.load(std::memory_order_acquire) >= step;
  }
  void keep_close(std::uint64_t step, const Call& call) {
    if (step <= kMostAhead) return;
    for (int place = 0; place < ranks_; ++place) {
      std::uint64_t& seen = seen_[static_cast<std::size_t>(place)];
      if (place == me_ || seen + kMostAhead >= step) continue;
      if (!reached(place, step - kMostAhead)) wait_for_step(place, step - kMostAhead, call);
      seen = step - kMostAhead;
    }
  }
  void wake_sleepers() {
    for (int place = 0; place < ranks_; ++place)
      if (place != me_ && sleeping(place, Bell::Collective).load(std::memory_order_relaxed) != 0)
        mesh_.ring(group_rank(place), Bell::Collective);
  }
  std::string furthest_behind() const;
  void wait_for_step(int place, std::uint64_t step, const Call& call);
  RingLink ring_link(char* base, int place) const;

  Mesh& mesh_;
  int ranks_, me_ = 0;
  Slot* slots_;
  State* states_;
  std::atomic<std::uint32_t>* offers_;
  char *rooms_, *message_rings_, *stream_rings_;
  std::uint64_t step_ = 0;
  std::vector<std::uint64_t> seen_;  // the latest step known of each rank
  std::uint64_t free_at_[2] = {0, 0};
  int turn_ = 0;
};

}  // namespace athanor::distributed
