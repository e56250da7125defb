#include "athanor/distributed/transport/arena.h"

#include <algorithm>

#include "athanor/base/interrupt.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
constexpr std::size_t offers_bytes(std::size_t n) {
  return whole_pages(n * n * Arena::kOffers * sizeof(std::atomic<std::uint32_t>));
}

}  // namespace

std::size_t Arena::bytes(int local_ranks, int size) {
  const auto n = static_cast<std::size_t>(local_ranks);
  const std::size_t rings = n * n * (sizeof(RingState) + kRing);
  return whole_pages(n * kSlots * sizeof(Slot)) + whole_pages(n * sizeof(State)) + offers_bytes(n) + n * 2 * kRoom +
         whole_pages(rings) * (size > local_ranks ? 2 : 1);
}

Arena::Arena(Mesh& mesh)
    : mesh_(mesh), ranks_(static_cast<int>(mesh.local_ranks().size())), seen_(mesh.local_ranks().size()) {
  while (group_rank(me_) != mesh.rank()) ++me_;
  const auto n = static_cast<std::size_t>(ranks_);
  char* at = mesh.segment().data();
  // The memory was zero when it was made, and zero is what all of this starts from.
  slots_ = reinterpret_cast<Slot*>(at);
  at += whole_pages(n * kSlots * sizeof(Slot));
  states_ = reinterpret_cast<State*>(at);
  at += whole_pages(n * sizeof(State));
  offers_ = reinterpret_cast<std::atomic<std::uint32_t>*>(at);
  at += offers_bytes(n);
  rooms_ = at;
  at += n * 2 * kRoom;
  message_rings_ = at;
  at += whole_pages(n * n * (sizeof(RingState) + kRing));
  stream_rings_ = mesh.size() > ranks_ ? at : nullptr;
}

RingLink Arena::ring_link(char* base, int place) const {
  const auto n = static_cast<std::size_t>(ranks_);
  const auto index = [&](int from, int to) {
    return static_cast<std::size_t>(from) * n + static_cast<std::size_t>(to);
  };
  auto* states = reinterpret_cast<RingState*>(base);
  char* data = base + n * n * sizeof(RingState);
  return {states + index(me_, place), data + index(me_, place) * kRing, states + index(place, me_),
          data + index(place, me_) * kRing, kRing};
}

Link Arena::messages_link(int place) const {
  return Link(ring_link(message_rings_, place), &sleeping(place, Bell::Messages));
}

Link Arena::stream_link(int place) const {
  return Link(ring_link(stream_rings_, place), &sleeping(place, Bell::Collective));
}

int Arena::claim_room(const Call& call) {
  const std::uint64_t step = free_at_[next_room()];
  for (int place = 0; place < ranks_; ++place)
    if (place != me_ && !reached(place, step)) wait_for_step(place, step, call);
  return turn_;
}

// Who we wait for may itself wait for another: those who are furthest behind are to blame.
std::string Arena::furthest_behind() const {
  std::vector<std::uint64_t> latest(static_cast<std::size_t>(ranks_));
  for (int place = 0; place < ranks_; ++place)
    for (std::uint64_t slot = 0; slot < kSlots; ++slot) {
      std::uint64_t& most = latest[static_cast<std::size_t>(place)];
      most = std::max(most, slot_of(place, slot).step.load(std::memory_order_relaxed));
    }
  const std::uint64_t least = *std::min_element(latest.begin(), latest.end());
  std::string names;
  for (int place = 0; place < ranks_; ++place)
    if (latest[static_cast<std::size_t>(place)] == least)
      names += str(names.empty() ? "" : ", ", mesh_.rank_text(group_rank(place)));
  return names;
}

void Arena::wait_for_step(int place, std::uint64_t step, const Call& call) {
  Patience patience(mesh_.crowded(), call.background);
  while (!reached(place, step)) {
    if (patience.endure()) continue;
    std::atomic<std::uint32_t>& flag = sleeping(me_, Bell::Collective);
    flag.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool woken = reached(place, step) || mesh_.sleep(Bell::Collective, {}, call.deadline);
    flag.store(0, std::memory_order_relaxed);
    if (reached(place, step)) return;
    mesh_.check();
    if (!woken) check_interrupt();
    mesh_.answer_accusation(call);
    if (mesh_.has_left(group_rank(place)) && !reached(place, step))
      mesh_.abort(str(mesh_.left_text(group_rank(place)), ", while ", mesh_.rank_text(mesh_.rank()),
                      " waits for it in ", call.text()));
    else if (call.deadline.expired())
      mesh_.abort(str(mesh_.rank_text(mesh_.rank()), " waited ", call.timeout.count(), " ms for ", furthest_behind(),
                      " in ", call.text(),
                      ": it did not come, or hangs. A longer timeout can be given to init_process_group or new_group"));
    mesh_.check();
  }
}

}  // namespace athanor::distributed
