// Agents of several nodes: what they say to each other goes through keys of one store.
//
//   requests, request/<n>   what agents ask; the coordinator reads them in the order of their numbers
//   latest, state/<v>       what the coordinator decided
//   beat/<id>               a counter that each agent raises while it lives
//   bye/<id>                the agent has heard that the job is over
//
// All below kPrefix; the workers' keys, beside it, are forgotten when a new round starts.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "athanor/base/env.h"
#include "athanor/base/error.h"
#include "athanor/base/log.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/store/tcp_server.h"
#include "athanor/distributed/store/tcp_store.h"
#include "athanor/launch/coordinator.h"
#include "athanor/launch/meeting.h"

namespace athanor::launch {

using athanor::detail::str;
using distributed::DistError;
using distributed::Listener;
using distributed::TCPStore;
using distributed::TCPStoreServer;
using std::chrono::milliseconds;

namespace {

constexpr const char* kPrefix = "athanor/launch/";
// How long an agent that leaves lets others hear of it.
constexpr milliseconds kSettle{5000};

std::string key(const std::string& name) { return kPrefix + name; }
milliseconds in_milliseconds(Seconds seconds) {
  return std::chrono::ceil<milliseconds>(std::min(seconds, Seconds(1e8)));
}

std::string host_name() {
  char name[256] = "?";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string unique_id() {
  std::uint32_t number = 0;
  ATHANOR_CHECK(::getentropy(&number, sizeof number) == 0, "getentropy: ", distributed::error_text(errno));
  return str(host_name(), ":", ::getpid(), ":", number);
}

bool is_of_this_machine(const std::string& host) {
  if (host == "localhost" || host == host_name()) return true;
  try {
    return Listener::on_port(0, host).port() > 0;
  } catch (const DistError&) {
    return false;
  }
}

// The server, on the agent that should have it: of static jobs node 0, else whoever owns the endpoint's address and
// comes first.
std::unique_ptr<TCPStoreServer> serve(const LaunchOptions& options) {
  const std::string secret = env::text("ATHANOR_JOB_SECRET").value_or("");
  const auto listen = [&] {
    return std::make_unique<TCPStoreServer>(Listener::on_port(options.endpoint.port), secret);
  };
  if (options.backend == Backend::Static) return options.node_rank == 0 ? listen() : nullptr;
  if (options.times.is_host) return *options.times.is_host ? listen() : nullptr;
  if (!is_of_this_machine(options.endpoint.host)) return nullptr;
  try {
    return listen();
  } catch (const DistError&) {
    return nullptr;  // another agent of this machine was faster
  }
}

// What the threads of a node share. They may outlive the meeting, blocked in the network.
struct Link {
  explicit Link(const LaunchOptions& given) : options(given), id(unique_id()) {}
  const LaunchOptions options;
  const std::string id;
  std::unique_ptr<TCPStoreServer> server;
  std::shared_ptr<TCPStore> store;  // once connected; used by several threads
  Descriptor wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> requests;  // not sent yet
  std::deque<State> states;          // not seen by the agent yet
  std::string lost;                  // why the store cannot be reached any more
  bool sending = false, closed = false, said_bye = false, coordinator_done = false;

  void lose(const std::string& why) {
    const std::lock_guard lock(mutex);
    if (closed || !lost.empty()) return;
    lost = why;
    ::eventfd_write(wake.get(), 1);
    changed.notify_all();
  }
  milliseconds silence() const {
    return std::max(in_milliseconds(options.times.keep_alive * options.times.keep_alive_misses), milliseconds(1000));
  }
};

std::shared_ptr<TCPStore> connect(const Link& link, milliseconds timeout) {
  distributed::TCPStoreOptions options;
  options.port = link.options.endpoint.port;
  options.timeout = timeout;
  std::string host = link.options.endpoint.host;
  if (link.server) {
    host = link.server->local_endpoint().host;
    options.port = link.server->port();
  }
  auto store = std::make_shared<TCPStore>(host, options);
  // From now on whoever serves it has to answer as quickly as one has to show that it lives.
  store->set_timeout(link.silence());
  return store;
}

// Follows the coordinator's decisions.
void watch(const std::shared_ptr<Link>& link) {
  TCPStore& store = *link->store;
  try {
    const Deadline patience = Deadline::after(in_milliseconds(link->options.times.join) + milliseconds(5000));
    store.wait({key("latest")}, patience.remaining());
    for (long long version = std::stoll(store.get_text(key("latest")));; ++version) {
      const std::string name = key(str("state/", version));
      store.wait({name}, std::chrono::hours(24 * 365));
      State state = State::from_json(store.get_text(name));
      const bool last = state.phase == State::Closed;
      const std::lock_guard lock(link->mutex);
      link->states.push_back(std::move(state));
      link->closed = link->closed || last;
      ::eventfd_write(link->wake.get(), 1);
      link->changed.notify_all();
      if (last) return;
    }
  } catch (const std::exception& error) {
    link->lose(
        str("the node that serves the store at ", link->options.endpoint.text(), " is gone (", error.what(), ")"));
  }
}

void send_all(Link& link, const std::vector<std::string>& requests) {
  for (const std::string& request : requests)
    link.store->set(key(str("request/", link.store->add(key("requests"), 1))), request);
}

// Sends what the agent asks, and shows that it lives.
void speak(const std::shared_ptr<Link>& link) {
  const milliseconds interval = in_milliseconds(link->options.times.keep_alive);
  Deadline beat = Deadline::after(milliseconds(0));
  try {
    bool bye = false;
    while (!bye) {
      std::vector<std::string> requests;
      {
        std::unique_lock lock(link->mutex);
        link->sending = false;
        link->changed.notify_all();
        link->changed.wait_until(lock, beat.at(),
                                 [&] { return !link->requests.empty() || link->closed || !link->lost.empty(); });
        if (!link->lost.empty()) return;
        requests.assign(link->requests.begin(), link->requests.end());
        link->requests.clear();
        link->sending = true;
        bye = link->closed;
      }
      if (beat.expired()) {
        link->store->add(key("beat/" + link->id), 1);
        beat = Deadline::after(interval);
      }
      send_all(*link, requests);
      if (bye) link->store->set(key("bye/" + link->id), std::string_view("1"));
    }
  } catch (const std::exception& error) {
    link->lose(str("the node that serves the store at ", link->options.endpoint.text(), " does not answer (",
                   error.what(), ")"));
  }
  const std::lock_guard lock(link->mutex);
  link->sending = false;
  link->said_bye = link->closed;
  link->changed.notify_all();
}

// A node's first thread: connects, then becomes speak().
void begin(const std::shared_ptr<Link>& link) {
  try {
    auto store = connect(*link, in_milliseconds(link->options.times.join));
    const std::lock_guard lock(link->mutex);
    link->store = std::move(store);
  } catch (const std::exception& error) {
    return link->lose(str("cannot meet the other nodes: ", error.what()));
  }
  std::thread(watch, link).detach();
  speak(link);
}

// ---- the coordinator's side -----------------------------------------------------------------------------------------

// Notices agents whose counters stand still.
class Pulse {
 public:
  explicit Pulse(const Link& link)
      : link_(link), next_(Deadline::after(in_milliseconds(link.options.times.keep_alive))) {}
  Deadline next() const { return next_; }
  /// Those that have been silent for too long.
  std::vector<std::string> silent(TCPStore& store, const std::vector<std::string>& known) {
    std::vector<std::string> found;
    if (!next_.expired()) return found;
    next_ = Deadline::after(in_milliseconds(link_.options.times.keep_alive));
    const auto now = Deadline::Clock::now();
    for (const std::string& id : known) {
      const std::int64_t count = store.add(key("beat/" + id), 0);
      auto [entry, is_new] = seen_.try_emplace(id, Seen{count, now});
      if (!is_new && entry->second.count != count) entry->second = {count, now};
      if (now - entry->second.at >= link_.silence()) found.push_back(id);
    }
    return found;
  }

 private:
  struct Seen {
    std::int64_t count;
    Deadline::Clock::time_point at;
  };
  const Link& link_;
  Deadline next_;
  std::map<std::string, Seen> seen_;
};

void publish(Link& link, TCPStore& store, Coordinator& coordinator, int& version) {
  for (State& state : coordinator.take_news()) {
    if (state.phase == State::Running) {
      link.server->keep_only(kPrefix);
      if (!share_store()) state.master_port = Listener::on_port(0).port();
    }
    store.set(key(str("state/", ++version)), state.json());
    store.set(key("latest"), std::to_string(version));
  }
}

void let_others_hear(TCPStore& store, const Coordinator& coordinator) {
  std::vector<std::string> byes;
  for (const std::string& id : coordinator.known()) byes.push_back(key("bye/" + id));
  try {
    store.wait(byes, kSettle);
  } catch (const DistError&) {  // some died, others take too long
  }
}

void coordinate(const std::shared_ptr<Link>& link) {
  try {
    const auto store = connect(*link, milliseconds(10000));
    const auto now = [] { return Deadline::Clock::now(); };
    Coordinator coordinator(link->options, link->id, now());
    Pulse pulse(*link);
    int version = 0;
    publish(*link, *store, coordinator, version);
    for (long long next = 1; coordinator.state().phase != State::Closed;) {
      const std::string name = key(str("request/", next));
      const Deadline until = pulse.next().sooner(Deadline(coordinator.next_time()));
      try {
        store->wait({name}, std::max(until.remaining(), milliseconds(1)));
        ++next;
        coordinator.on_request(Request::from_json(store->get_text(name)), now());
        store->delete_key(name);
      } catch (const DistError&) {  // nothing came in that time
      } catch (const Error& error) {
        ATHANOR_LOG(Warning, error.what());
      }
      for (const std::string& id : pulse.silent(*store, coordinator.known())) coordinator.on_silence(id, now());
      coordinator.on_time(now());
      publish(*link, *store, coordinator, version);
    }
    let_others_hear(*store, coordinator);
  } catch (const std::exception& error) {
    link->lose(str("the coordinator failed: ", error.what()));
  }
  const std::lock_guard lock(link->mutex);
  link->coordinator_done = true;
  link->changed.notify_all();
}

// ---- the agent's side -----------------------------------------------------------------------------------------------

class Shared final : public Meeting {
 public:
  explicit Shared(const LaunchOptions& options) : link_(std::make_shared<Link>(options)) {
    link_->server = serve(options);
    if (link_->server) std::thread(coordinate, link_).detach();
    std::thread(begin, link_).detach();
  }
  int fd() const override { return link_->wake.get(); }
  std::optional<MeetingEvent> next() override {
    const std::lock_guard lock(link_->mutex);
    eventfd_t ignored = 0;
    ::eventfd_read(link_->wake.get(), &ignored);
    while (!link_->states.empty()) {
      const State state = std::move(link_->states.front());
      link_->states.pop_front();
      if (auto event = event_of(state)) return event;
    }
    if (link_->lost.empty() || told_lost_) return std::nullopt;
    told_lost_ = true;
    return failed(link_->lost);
  }
  void join() override {
    const LaunchOptions& options = link_->options;
    Request request;
    request.kind = Request::Join;
    request.member = {link_->id,
                      options.backend == Backend::Static ? options.node_rank : -1,
                      options.workers,
                      options.role,
                      options.local_address.empty() ? host_name() : options.local_address,
                      options.run_id,
                      options.min_nodes,
                      options.max_nodes};
    send(request);
  }
  void worker_failed(const Failure& failure) override {
    Request request;
    request.kind = Request::Failed;
    request.failure = failure;
    send(request);
  }
  void finished() override {
    Request request;
    request.kind = Request::Finished;
    send(request);
  }
  void leave(const std::string& why) override {
    Request request;
    request.kind = Request::Leave;
    request.message = str("was ", why);
    send(request);
  }
  void settle() override {
    std::unique_lock lock(link_->mutex);
    const bool connected = link_->store != nullptr;
    if (!connected) return;
    link_->changed.wait_for(lock, kSettle + milliseconds(1000), [&] {
      const bool told = link_->closed ? link_->said_bye : link_->requests.empty() && !link_->sending;
      return !link_->lost.empty() || (told && (!link_->server || link_->coordinator_done));
    });
  }

 private:
  void send(Request& request) {
    request.id = link_->id;
    request.round = round_;
    const std::lock_guard lock(link_->mutex);
    link_->requests.push_back(request.json());
    link_->changed.notify_all();
  }
  static MeetingEvent failed(const std::string& message) {
    MeetingEvent event;
    event.message = message;
    return event;
  }
  std::optional<MeetingEvent> event_of(const State& state) {
    MeetingEvent event;
    event.success = state.success;
    event.failure = state.failure;
    event.message = state.message;
    if (state.phase == State::Closed) return event;
    if (const auto refused = state.refused.find(link_->id); refused != state.refused.end())
      return failed(refused->second);
    if (state.phase == State::Forming) {
      if (!taking_part_) return std::nullopt;
      taking_part_ = false;
      event.kind = MeetingEvent::Restart;
      return event;
    }
    event.kind = MeetingEvent::Start;
    if (taking_part_ || !find_place(state, event.placement)) return std::nullopt;
    taking_part_ = true;
    round_ = state.round;
    return event;
  }
  bool find_place(const State& state, Placement& p) const {
    const auto& all = state.members;
    const auto me = std::find_if(all.begin(), all.end(), [&](const Member& m) { return m.id == link_->id; });
    if (me == all.end()) return false;
    p.round = state.round;
    p.restarts = state.restarts;
    p.group_rank = static_cast<int>(me - all.begin());
    p.group_size = static_cast<int>(all.size());
    p.world_size = p.role_size = 0;
    for (auto m = all.begin(); m != all.end(); ++m) {
      const bool same_role = m->role == me->role;
      if (m == me) p.first_rank = p.world_size, p.first_role_rank = p.role_size;
      p.world_size += m->workers;
      if (same_role) p.role_size += m->workers;
    }
    p.master_host = link_->options.endpoint.host;
    p.agent_store = state.master_port == 0;
    p.master_port = p.agent_store ? link_->options.endpoint.port : state.master_port;
    return true;
  }

  std::shared_ptr<Link> link_;
  bool taking_part_ = false, told_lost_ = false;
  int round_ = 0;
};

}  // namespace

std::unique_ptr<Meeting> meet_others(const LaunchOptions& options) { return std::make_unique<Shared>(options); }

}  // namespace athanor::launch
