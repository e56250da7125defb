// Messages that stay in their sender's memory until the receiver reads them there.
//
// An offer's state lies in the segment. The sender makes it Offered, and Free again once it is Taken; if the sender
// gives up first, it is Withdrawn, and the receiver makes it Free when it finds out. Since Taken comes after the
// reading, and either side's change fails if the other's came first, what was read of an offer that was withdrawn
// meanwhile is never taken for the message.
#include <algorithm>

#include "athanor/distributed/backend/messages_state.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

constexpr std::uint32_t kFree = 0, kOffered = 1, kTaken = 2, kWithdrawn = 3;
// So much is read in one turn, between looking after other messages.
constexpr std::size_t kTurn = std::size_t{1} << 20;

bool change(std::atomic<std::uint32_t>& state, std::uint32_t from, std::uint32_t to) {
  return state.compare_exchange_strong(from, to, std::memory_order_acq_rel);
}

}  // namespace

// Less is faster through the ring, where two processors copy. Without a free place larger ones go that way too.
void Messages::offer(Channel& channel, const RequestPtr& request) {
  constexpr std::uint64_t kLeast = std::uint64_t{8} << 20;
  if (channel.mine == nullptr || request->header.bytes < kLeast) return;
  for (int i = 0; i < Arena::kOffers; ++i) {
    if (channel.offered[i] || channel.mine[i].load(std::memory_order_acquire) != kFree) continue;
    channel.mine[i].store(kOffered, std::memory_order_release);
    channel.offered[i] = request;
    request->header.offer = static_cast<std::uint32_t>(i) + 1;
    request->header.address = reinterpret_cast<std::uintptr_t>(request->data);
    return;
  }
}

bool Messages::has_ended_offer(const Channel& channel) {
  for (int i = 0; channel.mine != nullptr && i < Arena::kOffers; ++i)
    if (channel.offered[i] && channel.mine[i].load(std::memory_order_acquire) == kTaken) return true;
  return false;
}

bool Messages::end_offers(Channel& channel) {
  bool ended = false;
  for (int i = 0; channel.mine != nullptr && i < Arena::kOffers; ++i) {
    if (!channel.offered[i] || !change(channel.mine[i], kTaken, kFree)) continue;
    complete(*channel.offered[i]);
    channel.offered[i] = nullptr;
    ended = true;
  }
  return ended;
}

// For a sender that gives up. False if the receiver does not know of the message yet.
bool Messages::withdraw(Channel& channel, Request& request) {
  const std::uint32_t at = request.header.offer - 1;
  const auto i = std::find_if(channel.out.begin(), channel.out.end(),
                              [&](const RequestPtr& other) { return other.get() == &request; });
  const bool unknown = i != channel.out.end() && (i != channel.out.begin() || channel.header_sent == 0);
  channel.offered[at] = nullptr;
  if (unknown || !change(channel.mine[at], kOffered, kWithdrawn))
    channel.mine[at].store(kFree, std::memory_order_release);
  return !unknown;
}

// The header of an offer has come.
void Messages::accept_offer(Channel& channel) {
  const Header& header = channel.header;
  if (channel.theirs == nullptr || header.offer > Arena::kOffers)
    throw DistNetworkError(str("what came from ", mesh_.rank_text(channel.rank), " is no message"), ATHANOR_WHERE);
  if (RequestPtr request = match(channel.rank, header)) {
    if (request->header.bytes == header.bytes && request->header.dtype == header.dtype) {
      channel.pulls.push_back({header, std::move(request)});
    } else {
      refuse(channel, header);
      request->error = mismatch(*request, channel.rank, header);
      complete(*request);
    }
    return;
  }
  auto message = std::make_unique<Unexpected>();
  message->from = channel.rank;
  message->header = header;
  unexpected_.push_back(std::move(message));
}

// A receive was made for what has been offered before.
void Messages::claim_offer(Unexpected& message, const RequestPtr& request) {
  Channel& channel = *channels_[static_cast<std::size_t>(message.from)];
  if (request->header.bytes == message.header.bytes && request->header.dtype == message.header.dtype) {
    channel.pulls.push_back({message.header, request});
  } else {
    refuse(channel, message.header);
    request->error = mismatch(*request, message.from, message.header);
    complete(*request);
  }
  unexpected_.remove_if([&](const auto& other) { return other.get() == &message; });
}

// Its sender is done with it all the same.
void Messages::refuse(Channel& channel, const Header& header) {
  std::atomic<std::uint32_t>& state = channel.theirs[header.offer - 1];
  if (!change(state, kOffered, kTaken)) state.store(kFree, std::memory_order_release);
  if (channel.link.peer_sleeps()) mesh_.ring(channel.rank, Bell::Messages);
}

bool Messages::pull(Channel& channel) {
  if (channel.pulls.empty()) return false;
  Pull& pull = channel.pulls.front();
  const std::size_t now = std::min(static_cast<std::size_t>(pull.header.bytes) - pull.got, kTurn);
  try {
    peers_->read(channel.place, pull.to->data + pull.got, pull.header.address + pull.got, now);
  } catch (const DistNetworkError&) {
    // Memory that is there no more may have been withdrawn in good order.
    if (channel.theirs[pull.header.offer - 1].load(std::memory_order_acquire) != kWithdrawn) throw;
    pull.got = static_cast<std::size_t>(pull.header.bytes) - now;
  }
  pull.got += now;
  if (pull.got == pull.header.bytes) finish_pull(channel);
  return true;
}

void Messages::finish_pull(Channel& channel) {
  const Pull pull = std::move(channel.pulls.front());
  channel.pulls.pop_front();
  std::atomic<std::uint32_t>& state = channel.theirs[pull.header.offer - 1];
  if (change(state, kOffered, kTaken)) return complete(*pull.to);
  // The message was never sent: its receive waits for the next one.
  state.store(kFree, std::memory_order_release);
  if (!pull.to->orphan.empty()) return;
  pull.to->peer = pull.to->asked;
  if (!take_unexpected(pull.to)) posted_.push_front(pull.to);
}

}  // namespace athanor::distributed
