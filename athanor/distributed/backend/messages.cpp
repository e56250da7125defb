#include "athanor/distributed/backend/messages.h"
#include "athanor/distributed/backend/messages_state.h"

#include <algorithm>
#include <utility>

#include "athanor/base/interrupt.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// A message that nobody asked for yet stays with its sender if it is larger, until it is in another one's way.
constexpr std::uint64_t kEager = std::uint64_t{64} << 10;

}  // namespace

class Messages::Handle final : public P2pRequest {
 public:
  Handle(Messages& all, RequestPtr request) : all_(all), request_(std::move(request)) {}
  ~Handle() override { all_.give_up(*request_); }
  bool test() override { return all_.test(*request_); }
  void wait(Deadline deadline) override { all_.wait(*request_, deadline); }
  int source_rank() const override { return request_->peer; }

 private:
  Messages& all_;
  RequestPtr request_;
};

Messages::Messages(Mesh& mesh, Arena* arena, const PeerMemory* peers)
    : mesh_(mesh),
      arena_(arena),
      peers_(peers != nullptr && peers->usable() ? peers : nullptr),
      channels_(static_cast<std::size_t>(mesh.size())) {
  for (int r = 0; r < mesh.size(); ++r) {
    if (r == mesh.rank()) continue;
    const auto& local = mesh.local_ranks();
    const auto place = static_cast<int>(std::find(local.begin(), local.end(), r) - local.begin());
    const Link link = mesh.is_local(r) ? arena->messages_link(place) : Link(SocketLink({&mesh.messages(r), 1}));
    auto& channel = channels_[static_cast<std::size_t>(r)] = std::make_unique<Channel>(r, link);
    if (peers_ == nullptr || !mesh.is_local(r)) continue;
    channel->place = place;
    channel->mine = arena->offers(arena->me(), place);
    channel->theirs = arena->offers(place, arena->me());
  }
}

Messages::~Messages() = default;

std::string Messages::text(const Request& request) const {
  const std::string other = request.peer == kAnySource ? "any rank" : mesh_.rank_text(request.peer);
  return str(request.sends ? "send to " : "recv from ", other, ", tag ", request.header.tag, ", ", request.header.count,
             " × ", static_cast<DType>(request.header.dtype), request.where);
}

namespace {
std::string place_of(const Call& call) { return str(", at ", call.where.file_name(), ":", call.where.line()); }
}  // namespace

std::unique_ptr<P2pRequest> Messages::isend(const Call& call, Span data, int to, std::uint32_t tag) {
  mesh_.check();
  auto request = std::make_shared<Request>();
  request->sends = true;
  request->peer = to;
  request->header = {
      kMessageMagic, tag, static_cast<std::uint32_t>(data.dtype), 0, static_cast<std::uint64_t>(data.count),
      data.bytes(),  0};
  request->data = static_cast<char*>(data.data);
  request->where = place_of(call);
  const std::lock_guard lock(mutex_);
  Channel& channel = *channels_[static_cast<std::size_t>(to)];
  if (channel.closed) {
    fail_request(*request, to);
    return std::make_unique<Handle>(*this, std::move(request));
  }
  offer(channel, request);
  channel.out.push_back(request);
  pump();
  if (!request->done && led_) mesh_.ring(mesh_.rank(), Bell::Messages);
  return std::make_unique<Handle>(*this, std::move(request));
}

std::unique_ptr<P2pRequest> Messages::irecv(const Call& call, Span data, int from, std::uint32_t tag) {
  mesh_.check();
  auto request = std::make_shared<Request>();
  request->peer = request->asked = from;
  request->header = {
      kMessageMagic, tag, static_cast<std::uint32_t>(data.dtype), 0, static_cast<std::uint64_t>(data.count),
      data.bytes(),  0};
  request->data = static_cast<char*>(data.data);
  request->where = place_of(call);
  const std::lock_guard lock(mutex_);
  if (!take_unexpected(request)) {
    const bool gone = from == kAnySource ? all_closed() : channels_[static_cast<std::size_t>(from)]->closed;
    if (gone)
      fail_request(*request, from);
    else
      posted_.push_back(request);
  }
  pump();
  if (!request->done && led_) mesh_.ring(mesh_.rank(), Bell::Messages);
  return std::make_unique<Handle>(*this, std::move(request));
}

// A message that has come, or been offered, for a receive that was not made yet.
bool Messages::take_unexpected(const RequestPtr& request) {
  for (const auto& message : unexpected_) {
    const bool from = request->asked == kAnySource || request->asked == message->from;
    if (message->claimed || message->header.tag != request->header.tag || !from) continue;
    request->peer = message->from;
    message->claimed = request;
    if (message->header.offer != 0)
      claim_offer(*message, request);
    else if (message->whole)
      finish_aside(*message);
    return true;
  }
  return false;
}

void Messages::complete(Request& request) {
  request.done = true;
  changed_.notify_all();
}

std::string Messages::mismatch(const Request& request, int from, const Header& got) const {
  return str(text(request), ": ", mesh_.rank_text(from), " sent ", got.count, " × ", static_cast<DType>(got.dtype),
             ". Both sides must agree");
}

// A message into the receive that waits for it. False, with an error for the receiver, if they differ.
bool Messages::deliver(Request& request, Unexpected& message) {
  const Header &got = message.header, &wanted = request.header;
  const bool fits = got.bytes == wanted.bytes && got.dtype == wanted.dtype;
  if (fits)
    std::copy_n(message.data.data(), got.bytes, request.data);
  else
    request.error = mismatch(request, message.from, got);
  complete(request);
  return fits;
}

Messages::RequestPtr Messages::match(int from, const Header& header) {
  for (auto i = posted_.begin(); i != posted_.end(); ++i) {
    if ((*i)->header.tag != header.tag || ((*i)->peer != kAnySource && (*i)->peer != from)) continue;
    RequestPtr request = *i;
    posted_.erase(i);
    request->peer = from;
    return request;
  }
  return nullptr;
}

bool Messages::pump() {
  bool moved = false;
  for (const auto& channel : channels_) {
    if (!channel || channel->closed) continue;
    try {
      const bool ended = end_offers(*channel), out = pump_out(*channel) || ended;
      const bool came = pump_in(*channel), in = pull(*channel) || came;
      if ((out || in) && channel->link.peer_sleeps()) mesh_.ring(channel->rank, Bell::Messages);
      moved = moved || out || in;
    } catch (const DistNetworkError& error) {
      fail_channel(*channel, error.what());
    }
  }
  return moved;
}

bool Messages::pump_out(Channel& channel) {
  bool moved = false;
  while (!channel.out.empty()) {
    Request& request = *channel.out.front();
    if (channel.header_sent < sizeof(Header)) {
      const char* header = reinterpret_cast<const char*>(&request.header) + channel.header_sent;
      const bool more = request.header.offer == 0 && request.header.bytes > 0;
      const std::size_t now = channel.link.write_some(header, sizeof(Header) - channel.header_sent, more);
      channel.header_sent += now;
      if (channel.header_sent < sizeof(Header)) return moved || now > 0;
      moved = true;
    }
    const bool offered = request.header.offer != 0;
    const std::size_t left = offered ? 0 : static_cast<std::size_t>(request.header.bytes) - request.moved;
    const std::size_t now = left > 0 ? channel.link.write_some(request.data + request.moved, left) : 0;
    request.moved += now;
    moved = moved || now > 0;
    if (now < left) return moved;
    channel.header_sent = 0;
    if (!offered) complete(request);
    channel.out.pop_front();
  }
  return moved;
}

// Finds a place for the message whose header has come; false while it has to stay with its sender.
bool Messages::begin(Channel& channel) {
  const Header& header = channel.header;
  channel.to = match(channel.rank, header);
  if (channel.to && channel.to->header.bytes == header.bytes && channel.to->header.dtype == header.dtype)
    return channel.begun = true;
  if (!channel.to && header.bytes > kEager && !channel.leaving) {
    const bool in_the_way = std::any_of(posted_.begin(), posted_.end(), [&](const RequestPtr& other) {
      return other->peer == kAnySource || other->peer == channel.rank;
    });
    if (!in_the_way) return false;
  }
  auto message = std::make_unique<Unexpected>();
  message->from = channel.rank;
  message->header = header;
  message->data = CacheLines(static_cast<std::size_t>(header.bytes));
  message->claimed = std::move(channel.to);
  channel.aside = message.get();
  unexpected_.push_back(std::move(message));
  return channel.begun = true;
}

bool Messages::pump_in(Channel& channel) {
  bool moved = false;
  while (true) {
    if (channel.header_got < sizeof(Header)) {
      char* header = reinterpret_cast<char*>(&channel.header) + channel.header_got;
      const std::size_t now = channel.link.read_some(header, sizeof(Header) - channel.header_got);
      channel.header_got += now;
      if (channel.header_got < sizeof(Header)) return moved || now > 0;
      moved = true;
    }
    if (channel.header.magic != kMessageMagic)
      throw DistNetworkError(str("what came from ", mesh_.rank_text(channel.rank), " is no message"), ATHANOR_WHERE);
    if (channel.header.offer != 0) {
      accept_offer(channel);
      channel.header_got = 0;
      continue;
    }
    if (!channel.begun && !begin(channel)) return moved;
    const std::size_t left = static_cast<std::size_t>(channel.header.bytes) - channel.got;
    char* to = channel.aside ? channel.aside->data.data() : channel.to->data;
    const std::size_t now = left > 0 ? channel.link.read_some(to + channel.got, left) : 0;
    channel.got += now;
    moved = moved || now > 0;
    if (now < left) return moved;
    finish_incoming(channel);
  }
}

// What is whole goes to the receive that has claimed it.
void Messages::finish_aside(Unexpected& message) {
  if (!message.claimed) return;
  deliver(*message.claimed, message);
  unexpected_.remove_if([&](const auto& other) { return other.get() == &message; });
}

void Messages::finish_incoming(Channel& channel) {
  if (channel.aside != nullptr) {
    channel.aside->whole = true;
    finish_aside(*channel.aside);
  } else {
    complete(*channel.to);
  }
  channel.to = nullptr;
  channel.aside = nullptr;
  channel.header_got = channel.got = 0;
  channel.begun = false;
}

// No message goes to or comes from that rank any more.
void Messages::fail_channel(Channel& channel, const std::string& reason) {
  mesh_.look();
  if (!mesh_.has_left(channel.rank)) {
    mesh_.abort(str(mesh_.rank_text(channel.rank), " is gone, or cannot be reached any more: ", reason));
    mesh_.check();
  }
  channel.leaving = true;
  try {
    pump_in(channel);  // what it sent before it left
  } catch (const DistNetworkError&) {
  }
  channel.closed = true;
  const auto fail = [&](Request& request) { fail_request(request, channel.rank); };
  for (const RequestPtr& request : channel.out) fail(*request);
  channel.out.clear();
  for (RequestPtr& request : channel.offered) {
    if (request && !request->done) fail(*request);
    request = nullptr;
  }
  if (channel.to) fail(*channel.to);
  channel.to = nullptr;
  channel.aside = nullptr;
  for (const Pull& pull : channel.pulls) fail(*pull.to);
  channel.pulls.clear();
  // What came whole can still be received.
  unexpected_.remove_if([&](const auto& message) {
    if (message->from != channel.rank || message->whole) return false;
    if (message->claimed) fail(*message->claimed);
    return true;
  });
  const bool last = all_closed();
  posted_.remove_if([&](const RequestPtr& request) {
    const bool its = request->peer == channel.rank || (last && request->peer == kAnySource);
    if (its) fail_request(*request, request->peer);
    return its;
  });
}

// For a message that can neither go to nor come from a rank, or from any rank, any more.
void Messages::fail_request(Request& request, int left) {
  request.error = str(text(request), ": ",
                      left == kAnySource ? "every other rank has left the process group" : mesh_.left_text(left));
  complete(request);
}

bool Messages::all_closed() const {
  return std::all_of(channels_.begin(), channels_.end(),
                     [](const auto& channel) { return !channel || channel->closed; });
}

// A ring does not tell that the other side is gone.
void Messages::check_departed() {
  for (const auto& channel : channels_) {
    if (!channel || channel->closed || channel->link.is_socket() || !mesh_.has_left(channel->rank)) continue;
    channel->leaving = true;
    pump();
    if (!channel->closed) fail_channel(*channel, "");
  }
}

void Messages::fail(const std::string& what) {
  mesh_.note_failure(what);
  throw DistBackendError(what, ATHANOR_WHERE);
}

bool Messages::test(Request& request) {
  const std::lock_guard lock(mutex_);
  if (!request.done) {
    pump();
    if (!request.done) {
      mesh_.hear();
      check();
      check_departed();
    }
  }
  if (request.done && !request.error.empty()) fail(request.error);
  return request.done;
}

// One of those who wait moves everything; the others sleep until something is complete or it goes.
void Messages::lead(Patience& patience, Deadline deadline, std::unique_lock<std::mutex>& lock) {
  led_ = true;
  std::vector<pollfd> polls;
  bool ready = false;
  std::atomic<std::uint32_t>* flag = nullptr;
  const bool sleeps = !patience.endure();
  if (sleeps) {
    if (arena_ != nullptr) {
      flag = &arena_->sleeping(arena_->me(), Bell::Messages);
      flag->store(1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    for (const auto& channel : channels_) {
      if (!channel || channel->closed) continue;
      const bool writes = !channel->out.empty(), reads = channel->header_got < sizeof(Header) || channel->begun;
      ready = ready || channel->link.ready(writes, reads) || !channel->pulls.empty() || has_ended_offer(*channel);
      channel->link.add_polls(polls, writes, reads);
    }
  }
  lock.unlock();
  const bool woken = !sleeps || ready || mesh_.sleep(Bell::Messages, polls, deadline);
  if (flag != nullptr) flag->store(0, std::memory_order_relaxed);
  lock.lock();
  led_ = false;
  woken_ = woken;
  if (sleeps) check_departed();
}

void Messages::wait(Request& request, Deadline deadline) {
  Patience patience(mesh_.crowded(), false);
  std::unique_lock lock(mutex_);
  while (!request.done) {
    if (led_) {
      woken_ = changed_.wait_until(lock, deadline.sooner(Deadline::after(std::chrono::seconds(1))).at()) ==
               std::cv_status::no_timeout;
    } else if (!pump()) {
      lead(patience, deadline, lock);
    }
    if (request.done) break;
    check();
    if (!std::exchange(woken_, true)) {
      lock.unlock();
      check_interrupt();
      lock.lock();
    }
    if (mesh_.owes_wait(Bell::Messages)) mesh_.tell_wait(text(request));
    if (deadline.expired()) {
      lock.unlock();
      time_out(request);
    }
  }
  lock.unlock();
  changed_.notify_all();
  if (!request.error.empty()) fail(request.error);
}

// A rank whose wait was in vain may have ended because of that: what it waited for is the reason.
void Messages::check() {
  try {
    mesh_.check();
  } catch (Error& error) {
    const std::string others = mesh_.told_waits();
    if (!others.empty()) error.add_context(str("before that, ranks waited: ", others));
    throw;
  }
}

// The rank that was waited for may itself wait in vain for another one, which is to blame: everyone is asked.
void Messages::time_out(const Request& request) {
  mesh_.tell_wait(text(request));
  const Deadline grace = Deadline::after(std::chrono::milliseconds(200));
  while (!grace.expired() && !mesh_.broken()) mesh_.sleep(Bell::Messages, {}, grace);
  check();
  const std::string others = mesh_.told_waits();
  fail(str(mesh_.rank_text(mesh_.rank()), ": ", text(request), ": ",
           request.sends ? "it was not received" : "no such message came", " in time",
           others.empty() ? "" : str(". Others wait too: ", others)));
}

void Messages::progress(std::chrono::milliseconds patience) {
  Patience none(true, true);
  const Deadline deadline = Deadline::after(patience);
  std::unique_lock lock(mutex_);
  if (led_) {
    changed_.wait_until(lock, deadline.at());
    return;
  }
  while (!pump() && !deadline.expired() && !mesh_.broken() && !led_) lead(none, deadline, lock);
  lock.unlock();
  changed_.notify_all();
}

// The owner's memory must not be touched any more, but what was begun must be brought to its end.
void Messages::give_up(Request& request) {
  const std::lock_guard lock(mutex_);
  if (request.done) return;
  if (request.sends) {
    Channel& channel = *channels_[static_cast<std::size_t>(request.peer)];
    if (request.header.offer != 0 && withdraw(channel, request)) return;
    const bool begun =
        !channel.out.empty() && channel.out.front().get() == &request && (channel.header_sent > 0 || request.moved > 0);
    if (!begun) {
      std::erase_if(channel.out, [&](const RequestPtr& other) { return other.get() == &request; });
      return;
    }
    request.orphan.assign(request.data, request.data + request.header.bytes);
    request.data = request.orphan.data();
    return;
  }
  posted_.remove_if([&](const RequestPtr& other) { return other.get() == &request; });
  for (const auto& message : unexpected_) {
    if (message->claimed.get() != &request) continue;
    auto nobody = std::make_shared<Request>();
    nobody->header = message->header;
    nobody->orphan.resize(static_cast<std::size_t>(message->header.bytes));
    nobody->data = nobody->orphan.data();
    message->claimed = std::move(nobody);
  }
  for (const auto& channel : channels_) {
    if (!channel) continue;
    const bool pulled = std::any_of(channel->pulls.begin(), channel->pulls.end(),
                                    [&](const Pull& pull) { return pull.to.get() == &request; });
    if (!pulled && channel->to.get() != &request) continue;
    request.orphan.resize(static_cast<std::size_t>(request.header.bytes));
    request.data = request.orphan.data();
  }
}

}  // namespace athanor::distributed
