#include "athanor/distributed/transport/mesh.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>

#include "athanor/base/interrupt.h"
#include "athanor/base/log.h"
#include "athanor/distributed/flight_recorder.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

constexpr std::uint32_t kAbort = 1, kGoodbye = 2, kNote = 3, kWait = 4, kState = 5, kAsk = 6;
// A state that was told so long ago belongs to another question.
constexpr std::chrono::seconds kStateFresh{5};
constexpr std::size_t kLongestReason = 4096;
constexpr std::size_t kMostUnsent = 4 * kLongestReason;
// For others that do not listen at once to take the last frames.
constexpr std::chrono::milliseconds kLastWords{200};
constexpr const char* kNoMatch = "the ranks' calls do not match: ";

std::string frame(std::uint32_t kind, std::string text) {
  text.resize(std::min(text.size(), kLongestReason));
  const std::uint32_t head[2] = {kind, static_cast<std::uint32_t>(text.size())};
  return std::string(reinterpret_cast<const char*>(head), sizeof head) + text;
}

}  // namespace

std::string Mesh::rank_text(int rank) const {
  const int global = global_ranks_.empty() ? rank : global_ranks_[static_cast<std::size_t>(rank)];
  return global == rank ? str("rank ", rank) : str("rank ", rank, " (global rank ", global, ")");
}

// Control frames are small and rare: what the other side does not take is not worth waiting for. But a frame that has
// been begun is finished before the next.
void Mesh::post(int rank, const std::string& bytes, Post kind) noexcept {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer.control || peer.closed.load(std::memory_order_relaxed)) return;
  if (kind == Post::IfTaken && peer.unsent.size() > kMostUnsent) return;
  try {
    peer.unsent += bytes;
  } catch (const std::exception&) {  // no memory for it
    return;
  }
  send_unsent(rank);
}

void Mesh::send_unsent(int rank) noexcept {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const bool waited = peer.waits_to_send;
  while (!peer.unsent.empty()) {
    const ssize_t sent = ::send(peer.control.fd(), peer.unsent.data(), peer.unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) peer.unsent.clear();
    if (sent < 0) break;
    peer.unsent.erase(0, static_cast<std::size_t>(sent));
  }
  peer.waits_to_send = !peer.unsent.empty();
  if (waited != peer.waits_to_send) watch(rank, EPOLL_CTL_MOD);
}

void Mesh::watch(int rank, int operation) noexcept {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | (peer.waits_to_send ? EPOLLOUT : 0U);
  event.data.u32 = static_cast<std::uint32_t>(rank);
  ::epoll_ctl(controls_.get(), operation, peer.control.fd(), &event);
}

void Mesh::throw_broken() const {
  const std::lock_guard lock(mutex_);
  throw DistBackendError(reason_, ATHANOR_WHERE);
}

// What is said last must not stay here when the sockets close.
void Mesh::flush(Deadline deadline) noexcept {
  try {
    while (true) {
      std::vector<pollfd> full;
      {
        const std::lock_guard lock(mutex_);
        for (int r = 0; r < size_; ++r) {
          Peer& peer = peers_[static_cast<std::size_t>(r)];
          if (!peer.control || peer.closed.load(std::memory_order_relaxed)) continue;
          send_unsent(r);
          if (!peer.unsent.empty()) full.push_back({peer.control.fd(), POLLOUT, 0});
        }
      }
      if (full.empty() || deadline.expired()) return;
      static_cast<void>(::poll(full.data(), full.size(), deadline.poll_milliseconds()));
    }
  } catch (const std::exception&) {  // no memory for the list
  }
}

bool Mesh::break_group(const std::string& reason) {
  if (broken_.load(std::memory_order_relaxed)) return false;
  reason_ = reason;
  broken_.store(true, std::memory_order_release);
  ATHANOR_LOG(Debug, "process group '", name_, "' is broken: ", reason);
  const std::string bytes = frame(kAbort, reason);
  for (int r = 0; r < size_; ++r) post(r, bytes, Post::Always);
  return true;
}

void Mesh::abort(const std::string& reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!break_group(reason)) return;
  }
  ring(rank_, Bell::Collective);
  ring(rank_, Bell::Messages);
  flush(Deadline::after(kLastWords));
}

std::string Mesh::left_text(int rank) const {
  const std::lock_guard lock(mutex_);
  const std::string& words = peers_[static_cast<std::size_t>(rank)].last_words;
  return str(rank_text(rank), " has left the process group (destroy_process_group)",
             words.empty() ? "" : str(" after an error there: ", words));
}

void Mesh::note_failure(const std::string& what) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = what;
}

void Mesh::say_goodbye() noexcept {
  {
    const std::lock_guard lock(mutex_);
    const std::string bytes = frame(kGoodbye, failure_);
    for (int r = 0; r < size_ && !broken_.load(std::memory_order_relaxed); ++r) post(r, bytes, Post::Always);
  }
  flush(Deadline::after(kLastWords));
}

void Mesh::tell_all(std::uint32_t kind, const std::string& text) noexcept {
  const std::lock_guard lock(mutex_);
  const std::string bytes = frame(kind, text);
  for (int r = 0; r < size_; ++r) post(r, bytes);
}

void Mesh::tell_wait(const std::string& what) noexcept { tell_all(kWait, what); }

bool Mesh::owes_wait(Bell bell) noexcept {
  const auto kind = static_cast<std::size_t>(bell);
  if (!told_[kind].load(std::memory_order_acquire)) return false;
  constexpr std::int64_t kSecond = 1000;
  using std::chrono::milliseconds;
  const auto now = std::chrono::duration_cast<milliseconds>(Deadline::Clock::now().time_since_epoch()).count();
  std::int64_t last = answered_[kind].load(std::memory_order_relaxed);
  if (last != 0 && now - last < kSecond) return false;
  if (!answered_[kind].compare_exchange_strong(last, now, std::memory_order_relaxed)) return false;
  told_[kind].store(false, std::memory_order_relaxed);
  return true;
}

void Mesh::tell_state(const std::string& own) noexcept { tell_all(kState, own); }

void Mesh::ask_states(const std::string& own) noexcept {
  {
    const std::lock_guard lock(mutex_);
    for (Peer& peer : peers_) peer.state.clear();
  }
  tell_all(kAsk, own);
}

std::vector<std::string> Mesh::told_states(Deadline deadline) {
  std::vector<std::string> told(static_cast<std::size_t>(size_));
  while (true) {
    hear();
    bool more = false;
    for (std::size_t r = 0; r < told.size(); ++r) {
      const Peer& peer = peers_[r];
      const std::lock_guard lock(mutex_);
      told[r] = peer.state_fresh.expired() ? std::string() : peer.state;
      more = more || (told[r].empty() && peer.control && !peer.closed.load(std::memory_order_relaxed));
    }
    if (!more || deadline.expired()) return told;
    // Another thread may hear it first.
    constexpr std::chrono::milliseconds kLook{20};
    pollfd controls{controls_.get(), POLLIN, 0};
    static_cast<void>(::poll(&controls, 1, deadline.sooner(Deadline::after(kLook)).poll_milliseconds()));
  }
}

void Mesh::hear() noexcept {
  try {
    watch_controls();
  } catch (const std::exception& error) {
    ATHANOR_LOG(Debug, "process group '", name_, "': ", error.what());
  }
}

std::string Mesh::told_waits() const {
  const std::lock_guard lock(mutex_);
  std::string all;
  for (int r = 0; r < size_; ++r) {
    const Peer& peer = peers_[static_cast<std::size_t>(r)];
    if (!peer.waits_for_fresh.expired()) all += str(all.empty() ? "" : "; ", rank_text(r), ": ", peer.waits_for);
  }
  return all;
}

void Mesh::ring(int rank, Bell bell) noexcept {
  const std::uint64_t one = 1;
  const Descriptor& fd = rank == rank_ ? bells_[static_cast<int>(bell)]
                                       : peers_[static_cast<std::size_t>(rank)].bells[static_cast<int>(bell)];
  if (fd) static_cast<void>(!::write(fd.get(), &one, sizeof one));
}

bool Mesh::sleep(Bell bell, std::span<pollfd> extra, Deadline deadline) {
  constexpr std::size_t kFew = 16;
  pollfd few[kFew];
  std::vector<pollfd> many;
  pollfd* polls = few;
  if (extra.size() + 2 > kFew) {
    many.resize(extra.size() + 2);
    polls = many.data();
  }
  polls[0] = {bells_[static_cast<int>(bell)].get(), POLLIN, 0};
  polls[1] = {controls_.get(), POLLIN, 0};
  std::copy(extra.begin(), extra.end(), polls + 2);
  // A wake-up that went astray costs no more than this.
  constexpr int kLongestSleep = 1000;
  const int ready = ::poll(polls, extra.size() + 2, std::min(deadline.poll_milliseconds(), kLongestSleep));
  std::copy(polls + 2, polls + 2 + extra.size(), extra.begin());
  std::uint64_t rung = 0;
  if (polls[0].revents != 0) static_cast<void>(!::read(polls[0].fd, &rung, sizeof rung));
  if (polls[1].revents != 0) watch_controls();
  return ready > 0;
}

std::vector<int> Mesh::lost_ranks() {
  // The group may have broken by what another rank says, or on another connection, just before a control connection
  // shows which rank is gone.
  constexpr std::chrono::milliseconds kGrace{100};
  const Deadline deadline = Deadline::after(broken() ? kGrace : std::chrono::milliseconds(0));
  std::vector<int> lost;
  do {
    watch_controls();
    for (int r = 0; r < size_; ++r)
      if (peers_[static_cast<std::size_t>(r)].closed.load(std::memory_order_relaxed)) lost.push_back(r);
    pollfd controls{controls_.get(), POLLIN, 0};
    if (lost.empty()) static_cast<void>(::poll(&controls, 1, deadline.poll_milliseconds()));
  } while (lost.empty() && !deadline.expired());
  return lost;
}

void Mesh::look() {
  watch_controls();
  check();
}

void Mesh::watch_controls() {
  constexpr int kAtOnce = 16;
  epoll_event events[kAtOnce];
  const int ready = ::epoll_wait(controls_.get(), events, kAtOnce, 0);
  for (int i = 0; i < ready; ++i) listen_to(static_cast<int>(events[i].data.u32));
}

void Mesh::listen_to(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  std::vector<std::pair<std::uint32_t, std::string>> frames;
  std::string finding;
  bool over = false;
  {
    const std::lock_guard lock(mutex_);
    if (peer.closed.load(std::memory_order_relaxed)) return;
    send_unsent(rank);
    char buffer[1024];
    ssize_t got = 0;
    while ((got = ::recv(peer.control.fd(), buffer, sizeof buffer, MSG_DONTWAIT)) > 0)
      peer.unread.append(buffer, static_cast<std::size_t>(got));
    over = got == 0 || (errno != EAGAIN && errno != EINTR);
    std::uint32_t head[2];
    while (peer.unread.size() >= sizeof head) {
      std::memcpy(head, peer.unread.data(), sizeof head);
      if (head[1] > kLongestReason) over = true;
      if (head[1] > kLongestReason || peer.unread.size() < sizeof head + head[1]) break;
      frames.emplace_back(head[0], peer.unread.substr(sizeof head, head[1]));
      heed_last_words(peer, frames.back().first, frames.back().second);
      peer.unread.erase(0, sizeof head + head[1]);
    }
    if (over) {
      finding = finding_;
      peer.closed.store(true, std::memory_order_relaxed);
      ::epoll_ctl(controls_.get(), EPOLL_CTL_DEL, peer.control.fd(), nullptr);
    }
  }
  for (const auto& [kind, text] : frames) understand(rank, kind, text);
  if (over && !peer.left.load(std::memory_order_relaxed))
    abort(str(rank_text(rank), " is gone: its process ended, or was killed, without leaving the process group '", name_,
              "'", finding.empty() ? "" : ". Before that, ", finding));
  if (over) {
    ring(rank_, Bell::Collective);
    ring(rank_, Bell::Messages);
  }
}

// Under the lock that the frame was read under: another thread may read the connection's end right after.
void Mesh::heed_last_words(Peer& peer, std::uint32_t kind, const std::string& text) {
  if (kind == kAbort) break_group(text);
  if (kind == kGoodbye) {
    peer.last_words = text;
    peer.left.store(true, std::memory_order_release);
  }
}

void Mesh::understand(int rank, std::uint32_t kind, const std::string& text) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (kind == kWait) {
    const std::lock_guard lock(mutex_);
    peer.waits_for = text;
    peer.waits_for_fresh = Deadline::after(std::chrono::seconds(2));
    for (std::atomic<bool>& told : told_) told.store(true, std::memory_order_release);
  }
  if (kind == kState || kind == kAsk) {
    const std::string own = kind == kAsk ? frame(kState, internals::process_flight_state()) : std::string();
    const std::lock_guard lock(mutex_);
    peer.state = text;
    peer.state_fresh = Deadline::after(kStateFresh);
    if (!own.empty()) post(rank, own);
  }
  if (kind == kNote) {
    const std::lock_guard lock(mutex_);
    peer.note = text;
    accuser_.store(rank, std::memory_order_release);
  }
  // The thread that it concerns need not be the one that heard it.
  if (kind == kAbort || kind == kWait || kind == kNote) {
    ring(rank_, Bell::Collective);
    ring(rank_, Bell::Messages);
  }
}

std::string Mesh::note_of(int rank) {
  const std::lock_guard lock(mutex_);
  return peers_[static_cast<std::size_t>(rank)].note;
}

void Mesh::mismatch(int rank, const Call& call) {
  const std::string mine = call.text();
  const auto text = [&](const std::string& theirs) {
    return str(kNoMatch, rank_text(rank_), " called ", mine, "; ", rank_text(rank), " called ",
               theirs.empty() ? "something else" : theirs,
               ". All ranks of a group must make the same calls in the same order");
  };
  {
    const std::lock_guard lock(mutex_);
    finding_ = text({});
    post(rank, frame(kNote, mine));
  }
  // The other rank has, or will have, the same problem, unless it only sends.
  const Deadline deadline = call.deadline.sooner(Deadline::after(std::chrono::seconds(1)));
  while (note_of(rank).empty() && !broken() && !deadline.expired()) sleep(Bell::Collective, {}, deadline);
  const std::string finding = text(note_of(rank));
  {
    const std::lock_guard lock(mutex_);
    finding_.clear();
    // The end of that rank may have been seen before its call was.
    if (broken_.load(std::memory_order_relaxed) && reason_.find(kNoMatch) == std::string::npos)
      reason_ += str(". Before that, ", finding);
  }
  abort(finding);
  throw_broken();
}

void Mesh::sizes_differ(int from, int to, std::int64_t sent, std::int64_t expected, const Call& call) {
  const auto item = static_cast<std::int64_t>(item_size(call.dtype));
  abort(str(kNoMatch, rank_text(from), " sends ", rank_text(to), " ", sent / item, " elements (", sent, " bytes), but ",
            rank_text(to), " expects ", expected / item, " (", expected, " bytes) from it, in ", call.text()));
  throw_broken();
}

void Mesh::check_pairs(std::span<const std::int64_t* const> rows, const Call& call) {
  const std::size_t n = rows.size();
  for (std::size_t from = 0; from < n; ++from)
    for (std::size_t to = 0; to < n; ++to)
      if (rows[from][to] != rows[to][n + from])
        sizes_differ(static_cast<int>(from), static_cast<int>(to), rows[from][to], rows[to][n + from], call);
}

// An error of the connection says which rank it was.
void Mesh::with_peer(int rank, const std::function<void(Peer&)>& act) {
  try {
    act(peers_[static_cast<std::size_t>(rank)]);
  } catch (const DistNetworkError& error) {
    throw DistNetworkError(
        str(rank_text(rank), " is gone, or does not answer, in process group '", name_, "': ", error.what()),
        ATHANOR_WHERE);
  }
}

void Mesh::hand_descriptor(int rank, int fd, Deadline deadline) {
  with_peer(rank, [&](Peer& peer) { peer.descriptors.send_descriptor(fd, deadline); });
}

Descriptor Mesh::take_descriptor(Deadline deadline) {
  const int leader = local_ranks_.front();
  pollfd arrival{peers_[static_cast<std::size_t>(leader)].descriptors.fd(), POLLIN, 0};
  while (::poll(&arrival, 1, 0) <= 0 && !deadline.expired()) {
    const bool woken = sleep(Bell::Collective, {&arrival, 1}, deadline);
    if (arrival.revents != 0) break;
    check();
    if (!woken) check_interrupt();
  }
  Descriptor fd;
  with_peer(leader, [&](Peer& peer) { fd = peer.descriptors.recv_descriptor(deadline); });
  return fd;
}

}  // namespace athanor::distributed
