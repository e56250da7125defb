#include "athanor/distributed/algorithms/exchange.h"

#include <algorithm>
#include <cstring>

#include "athanor/base/interrupt.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {
// What is sent together with the greeting instead of after it.
constexpr std::size_t kLittle = 8192;
// Then it is another's turn: what fills the buffers of a fast connection would leave the caches before it is read.
constexpr std::size_t kMostAtOnce = std::size_t{128} << 10;
}  // namespace

Links::Links(Mesh& mesh, Arena* arena) : mesh_(mesh), arena_(arena), links_(static_cast<std::size_t>(mesh.size())) {
  for (int r = 0; r < mesh.size(); ++r) {
    if (r == mesh.rank()) continue;
    auto& link = links_[static_cast<std::size_t>(r)];
    if (!mesh.is_local(r)) {
      link = std::make_unique<Link>(SocketLink(mesh.streams(r)));
    } else if (mesh.leaders().size() > 1) {
      const auto& local = mesh.local_ranks();
      const auto place = std::find(local.begin(), local.end(), r) - local.begin();
      link = std::make_unique<Link>(arena->stream_link(static_cast<int>(place)));
    }
  }
}

Exchange::Exchange(Links& links, const Call& call) : links_(links), call_(call) { lanes_.reserve(8); }

Exchange::Lane& Exchange::lane(int rank) {
  for (Lane& lane : lanes_)
    if (lane.rank == rank) return lane;
  Lane& lane = lanes_.emplace_back();
  lane.rank = rank;
  lane.mine = {call_.sequence, call_.fingerprint, 0};
  return lane;
}

void Exchange::send(int to, const void* data, std::size_t bytes, const std::size_t* ready) {
  Lane& lane = this->lane(to);
  lane.mine.bytes += bytes;
  if (lane.out.empty()) {
    lane.first.resize(sizeof lane.mine);  // the greeting, once it is known
    if (ready == nullptr && bytes <= kLittle && bytes > 0) {
      lane.first.append(static_cast<const char*>(data), bytes);
      bytes = 0;
    }
    lane.out.push_back({nullptr, lane.first.size(), nullptr});  // lane.first, wherever it lies
  }
  if (bytes > 0) lane.out.push_back({static_cast<const char*>(data), bytes, ready});
}

void Exchange::recv(int from, void* data, std::size_t bytes, std::size_t* progress) {
  Lane& lane = this->lane(from);
  lane.expected += bytes;
  if (lane.in.empty()) lane.in.push_back({nullptr, sizeof(Greeting), nullptr, nullptr});
  if (bytes > 0) lane.in.push_back({static_cast<char*>(data), bytes, nullptr, progress});
}

void Exchange::recv(int from, Window& window) {
  Lane& lane = this->lane(from);
  lane.expected += window.total;
  if (lane.in.empty()) lane.in.push_back({nullptr, sizeof(Greeting), nullptr, nullptr});
  if (window.total > 0) lane.in.push_back({nullptr, window.total, &window, &window.received});
}

bool Exchange::pump() {
  bool moved = false;
  for (Lane& lane : lanes_) {
    try {
      const bool out = pump_out(lane), in = pump_in(lane);
      if ((out || in) && links_[lane.rank].peer_sleeps()) links_.mesh().ring(lane.rank, Bell::Collective);
      moved = moved || out || in;
    } catch (const DistNetworkError& error) {
      // The control connection says more about a rank that left or broke the group on purpose.
      links_.mesh().look();
      if (links_.mesh().has_left(lane.rank)) give_up(lane.rank);
      links_.mesh().abort(
          str(links_.mesh().rank_text(lane.rank), " is gone, or cannot be reached any more: ", error.what()));
      links_.mesh().check();
    }
  }
  return moved;
}

std::size_t Exchange::may_send(const Lane& lane) {
  if (lane.sending == lane.out.size()) return 0;
  const Outgoing& item = lane.out[lane.sending];
  return (item.ready ? std::min(*item.ready, item.bytes) : item.bytes) - lane.sent;
}

bool Exchange::pump_out(Lane& lane) {
  bool moved = false;
  std::size_t total = 0;
  while (const std::size_t size = std::min(kMostAtOnce - total, may_send(lane))) {
    const Outgoing& item = lane.out[lane.sending];
    const char* data = item.data ? item.data : lane.first.data();
    const std::size_t now = links_[lane.rank].write_some(data + lane.sent, size);
    if (now == 0) break;
    moved = true;
    lane.sent += now;
    if (lane.sent == item.bytes) {
      ++lane.sending;
      lane.sent = 0;
    }
    total += now;
    if (now < size) break;
  }
  return moved;
}

bool Exchange::pump_in(Lane& lane) {
  bool moved = false;
  while (lane.receiving < lane.in.size()) {
    const Incoming& item = lane.in[lane.receiving];
    char* to = nullptr;
    std::size_t size = item.bytes - lane.received;
    if (item.window != nullptr) {
      const std::size_t capacity = item.window->room.size(), at = lane.received % capacity;
      to = item.window->room.data() + at;
      size = std::min({size, capacity - at, *item.window->consumed + capacity - lane.received});
      if (size == 0) break;
    } else {
      to = (item.data ? item.data : reinterpret_cast<char*>(&lane.theirs)) + lane.received;
    }
    const std::size_t now = links_[lane.rank].read_some(to, size);
    if (now == 0) break;
    moved = true;
    lane.received += now;
    if (item.progress != nullptr) *item.progress = lane.received;
    const bool turn = item.progress != nullptr;
    if (lane.received == item.bytes) {
      if (lane.receiving == 0) check_greeting(lane);
      ++lane.receiving;
      lane.received = 0;
    }
    // Who uses what has come gets a turn while it is still in the cache.
    if (turn) break;
  }
  return moved;
}

void Exchange::check_greeting(const Lane& lane) {
  Mesh& mesh = links_.mesh();
  if (lane.theirs.fingerprint != call_.fingerprint) mesh.mismatch(lane.rank, call_);
  if (lane.theirs.bytes != lane.expected)
    mesh.sizes_differ(lane.rank, mesh.rank(), static_cast<std::int64_t>(lane.theirs.bytes),
                      static_cast<std::int64_t>(lane.expected), call_);
}

void Exchange::write_greetings() {
  for (Lane& lane : lanes_)
    if (!lane.out.empty()) std::memcpy(lane.first.data(), &lane.mine, sizeof lane.mine);
}

bool Exchange::done() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
    return lane.sending == lane.out.size() && lane.receiving == lane.in.size();
  });
}

Patience Exchange::fresh_patience() const { return Patience(links_.mesh().crowded(), call_.background); }

// The part of a window that its user has not consumed yet must not be overwritten.
bool Exchange::may_receive(const Lane& lane) {
  if (lane.receiving == lane.in.size()) return false;
  const Window* window = lane.in[lane.receiving].window;
  return window == nullptr || lane.received < *window->consumed + window->room.size();
}

void Exchange::sleep() {
  Mesh& mesh = links_.mesh();
  std::vector<pollfd> polls;
  std::atomic<std::uint32_t>* flag = nullptr;
  for (const Lane& lane : lanes_) {
    const Link& link = links_[lane.rank];
    link.add_polls(polls, may_send(lane) > 0, may_receive(lane));
    if (!link.is_socket()) flag = &links_.arena()->sleeping(links_.arena()->me(), Bell::Collective);
  }
  bool ready = false;
  if (flag != nullptr) {
    flag->store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (const Lane& lane : lanes_) ready = ready || links_[lane.rank].ready(may_send(lane) > 0, may_receive(lane));
  }
  const bool woken = ready || mesh.sleep(Bell::Collective, polls, call_.deadline);
  if (flag != nullptr) flag->store(0, std::memory_order_relaxed);
  // What a rank sent before it ended may tell more than its end: that its call was another one.
  if (mesh.broken()) pump();
  mesh.check();
  if (!woken) check_interrupt();
  mesh.answer_accusation(call_);
  if (mesh.owes_wait(Bell::Collective)) tell_wait();
  for (const Lane& lane : lanes_) {
    // A connection tells by its own end; a ring does not, but all that was written to it is there.
    if (!links_[lane.rank].is_socket() && may_receive(lane) && mesh.has_left(lane.rank) && !pump()) give_up(lane.rank);
  }
  if (call_.deadline.expired() && !pump()) time_out();
}

void Exchange::give_up(int rank) {
  Mesh& mesh = links_.mesh();
  mesh.abort(str(mesh.left_text(rank), ", while ", mesh.rank_text(mesh.rank()), " waits for it in ", call_.text()));
  mesh.check();
}

std::string Exchange::missing() const {
  std::string all;
  for (const Lane& lane : lanes_)
    if (lane.sending < lane.out.size() || lane.receiving < lane.in.size())
      all += str(all.empty() ? "" : ", ", links_.mesh().rank_text(lane.rank));
  return all;
}

void Exchange::tell_wait() const { links_.mesh().tell_wait(str("for ", missing(), " in ", call_.text())); }

void Exchange::time_out() {
  Mesh& mesh = links_.mesh();
  // The rank that was waited for may itself wait in vain for a third one, which is to blame: everyone is asked.
  if (mesh.size() > 2) {
    tell_wait();
    const Deadline grace = Deadline::after(std::chrono::milliseconds(200));
    while (!grace.expired() && !mesh.broken()) mesh.sleep(Bell::Collective, {}, grace);
    mesh.check();
  }
  const std::string others = mesh.told_waits();
  mesh.abort(str(mesh.rank_text(mesh.rank()), " waited ", call_.timeout.count(), " ms for ", missing(), " in ",
                 call_.text(),
                 ": it did not come, hangs, or cannot be reached. A longer timeout can be given to init_process_group "
                 "or new_group",
                 others.empty() ? "" : str(". Others wait too: ", others)));
  mesh.check();
}

}  // namespace athanor::distributed
