#include "athanor/launch/coordinator.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "athanor/base/error.h"
#include "athanor/base/log.h"

namespace athanor::launch {

using athanor::detail::str;

Coordinator::Coordinator(const LaunchOptions& options, std::string host_id, Time now)
    : options_(options), host_id_(std::move(host_id)), forming_since_(now) {
  publish();
}

namespace {

Coordinator::Time later(Coordinator::Time from, Seconds seconds) {
  return from + std::chrono::duration_cast<Deadline::Clock::duration>(seconds);
}

template <class Members>
bool drop(Members& members, const std::string& id) {
  return std::erase_if(members, [&](const Member& m) { return m.id == id; }) > 0;
}

std::string name_of(const Member& member) {
  return member.node_rank >= 0 ? str("node ", member.node_rank, " (", member.host, ")") : "the node " + member.host;
}

}  // namespace

const Member* Coordinator::member(const std::string& id) const {
  for (const auto* list : {&state_.members, &spares_})
    for (const Member& m : *list)
      if (m.id == id) return &m;
  return nullptr;
}

std::vector<std::string> Coordinator::known() const {
  std::set<std::string> all(expected_.begin(), expected_.end());
  for (const auto* list : {&state_.members, &spares_})
    for (const Member& m : *list) all.insert(m.id);
  return {all.begin(), all.end()};
}

void Coordinator::on_request(const Request& request, Time now) {
  if (state_.phase == State::Closed) return;
  const bool current = state_.phase == State::Running && request.round == state_.round;
  switch (request.kind) {
    case Request::Join:
      join(request.member, now);
      break;
    case Request::Finished:
      if (!current || !member(request.id)) break;
      finished_.insert(request.id);
      if (finished_.size() == state_.members.size()) close(true, "");
      break;
    case Request::Failed:
      // Of several failures in one round the first is the one that counts.
      if (!current || !member(request.id)) break;
      failed(request, now);
      break;
    case Request::Leave:
      lost(request.id, request.message, now);
      break;
  }
}

// Workers that say of another one that it is gone fail long before the silence of its node is noticed. An elastic job
// goes on without a lost node: so it takes their word only if no better reason comes in that time.
void Coordinator::failed(const Request& request, Time now) {
  failed_.insert(request.id);
  constexpr Seconds kNoticing{1};  // silence is noticed that much later at most
  const bool consequence = request.failure && request.failure->likely_consequence() == 2;
  if (!consequence || !suspicion_) suspicion_ = request.failure;
  if (consequence && options_.elastic() && failed_.size() + finished_.size() < state_.members.size()) {
    if (!suspicion_until_)
      suspicion_until_ = later(now, options_.times.keep_alive * (options_.times.keep_alive_misses + 1) + kNoticing);
    return;
  }
  after_failure(now);
}

void Coordinator::after_failure(Time now) {
  state_.failure = suspicion_;
  state_.message.clear();
  if (state_.restarts >= options_.max_restarts) return close(false, "");
  form(now, true);
}

std::string Coordinator::refusal(const Member& m) const {
  if (m.run_id != options_.run_id)
    return str("the job at ", options_.endpoint.text(), " is '", options_.run_id, "', this node is of '", m.run_id,
               "' (--rdzv-id)");
  if (m.min_nodes != options_.min_nodes || m.max_nodes != options_.max_nodes)
    return str("--nnodes is ", m.min_nodes, ":", m.max_nodes, " here and ", options_.min_nodes, ":", options_.max_nodes,
               " on the node that serves the store");
  // Later it may be the successor of one that has died unnoticed.
  const Member* other = state_.round == 0 && state_.phase == State::Forming ? holder_of_place(m) : nullptr;
  if (other == nullptr) return {};
  return str("--node-rank=", m.node_rank, " is taken by the node ", other->host, ", so this one (", m.host,
             ") cannot be it");
}

const Member* Coordinator::holder_of_place(const Member& m) const {
  if (options_.backend == Backend::C10d) return nullptr;
  for (const Member& other : state_.members)
    if (other.node_rank == m.node_rank) return &other;
  return nullptr;
}

void Coordinator::join(const Member& m, Time now) {
  if (member(m.id) != nullptr) return;
  if (const std::string why = refusal(m); !why.empty()) {
    state_.refused[m.id] = why;
    publish();
    return;
  }
  const bool returns = expected_.erase(m.id) > 0;
  const auto max = static_cast<std::size_t>(options_.max_nodes);
  if (state_.phase == State::Running) {
    // A job that has begun to end does not start again for a newcomer.
    if (state_.members.size() >= max || !finished_.empty()) {
      return keep_spare(m, now);
    }
    state_.failure.reset();
    state_.message = str("the node ", m.host, " came");
    form(now, false);
  }
  // Those who were there before keep their places.
  if (!returns && (state_.members.size() + expected_.size() >= max || holder_of_place(m) != nullptr))
    return keep_spare(m, now);
  state_.members.push_back(m);
  if (!enough_since_ && state_.members.size() >= static_cast<std::size_t>(options_.min_nodes)) enough_since_ = now;
  start_if_complete(now);
}

void Coordinator::keep_spare(const Member& m, Time now) {
  spares_.push_back(m);
  spare_until_[m.id] = later(now, options_.times.join);
  ATHANOR_LOG(Info, name_of(m), " waits for a place");
}

void Coordinator::form(Time now, bool after_failure) {
  last_order_.clear();
  for (const Member& m : state_.members) {
    last_order_.push_back(m.id);
    expected_.insert(m.id);
  }
  state_.members.clear();
  state_.phase = State::Forming;
  ++state_.round;
  if (after_failure) ++state_.restarts;
  finished_.clear();
  forget_failures();
  forming_since_ = now;
  enough_since_.reset();
  publish();
}

void Coordinator::start_if_complete(Time now) {
  if (state_.phase != State::Forming) return;
  const std::size_t come = state_.members.size();
  const auto min = static_cast<std::size_t>(options_.min_nodes), max = static_cast<std::size_t>(options_.max_nodes);
  // Free places go to those who wait; those of the last round are waited for first.
  if (come + expected_.size() < max)
    for (auto spare = spares_.begin(); spare != spares_.end(); ++spare) {
      if (holder_of_place(*spare) != nullptr) continue;
      const Member newcomer = *spare;
      spares_.erase(spare);
      state_.members.push_back(newcomer);
      return start_if_complete(now);
    }
  // Nobody is called for the last time while others, who are still stopping their workers, are known to come.
  const bool all_back = !last_order_.empty();
  const bool waited = enough_since_ && now >= later(*enough_since_, options_.times.last_call);
  if (come == max || (come >= min && expected_.empty() && (all_back || waited))) run();
}

void Coordinator::run() {
  const auto place = [&](const Member& m) {
    if (options_.backend == Backend::Static) return m.node_rank;
    if (m.id == host_id_) return -1;  // the store's host is where people expect rank 0
    return static_cast<int>(std::find(last_order_.begin(), last_order_.end(), m.id) - last_order_.begin());
  };
  std::stable_sort(state_.members.begin(), state_.members.end(),
                   [&](const Member& a, const Member& b) { return place(a) < place(b); });
  state_.phase = State::Running;
  state_.failure.reset();
  state_.message.clear();
  expected_.clear();
  enough_since_.reset();
  publish();
}

void Coordinator::close(bool success, const std::string& message) {
  state_.phase = State::Closed;
  state_.success = success;
  state_.message = message;
  publish();
}

std::string Coordinator::who_came() const {
  std::string text = str(state_.members.size(), " of ", options_.min_nodes, " nodes came");
  std::string names;
  for (const Member& m : state_.members)
    names +=
        str(names.empty() ? ": " : ", ", m.host, options_.backend == Backend::Static ? str(" as ", m.node_rank) : "");
  text += names;
  if (options_.backend == Backend::C10d) return text;
  std::string missing;
  for (int rank = 0; rank < options_.max_nodes; ++rank)
    if (std::none_of(state_.members.begin(), state_.members.end(),
                     [&](const Member& m) { return m.node_rank == rank; }))
      missing += str(missing.empty() ? "; missing: node " : ", ", rank);
  return text + missing;
}

void Coordinator::on_silence(const std::string& id, Time now) {
  if (state_.phase == State::Closed) return;
  const auto patience =
      std::chrono::round<std::chrono::milliseconds>(options_.times.keep_alive * options_.times.keep_alive_misses);
  lost(id, str("gave no sign of life for ", static_cast<double>(patience.count()) / 1000, " s"), now);
}

void Coordinator::lost(const std::string& id, const std::string& what, Time now) {
  if (drop(spares_, id)) return;
  const Member* known = member(id);
  const std::string message = known != nullptr ? str(name_of(*known), " ", what) : str("a node ", what);
  const bool was_expected = expected_.erase(id) > 0;
  if (known == nullptr && !was_expected) return;
  if (id == host_id_) return close(false, message);
  // What it had to do is done.
  if (state_.phase == State::Running && finished_.count(id) > 0) return;
  const bool was_running = state_.phase == State::Running;
  state_.failure.reset();
  drop(state_.members, id);
  const bool others_may_go_on = options_.elastic() || state_.restarts < options_.max_restarts;
  if ((was_running || was_expected) && !others_may_go_on) return close(false, message);
  if (was_running) {
    state_.message = message;
    form(now, !options_.elastic());
  }
  start_if_complete(now);
}

void Coordinator::forget_failures() {
  failed_.clear();
  suspicion_.reset();
  suspicion_until_.reset();
}

void Coordinator::on_time(Time now) {
  // A little later than silence would be noticed.
  if (suspicion_until_ && now >= *suspicion_until_ && state_.phase == State::Running) return after_failure(now);
  for (const auto& [id, until] : spare_until_) {
    if (now < until || !drop(spares_, id)) continue;
    state_.refused[id] = str("all ", options_.max_nodes, " places of the job were taken for ",
                             options_.times.join.count(), " s (join_timeout)");
    publish();
  }
  std::erase_if(spare_until_, [&](const auto& entry) { return now >= entry.second; });
  if (state_.phase != State::Forming) return;
  start_if_complete(now);
  if (state_.phase == State::Forming && now >= later(forming_since_, options_.times.join))
    close(false, str(who_came(), " within ", options_.times.join.count(), " s"));
}

Coordinator::Time Coordinator::next_time() const {
  Time next = Time::max();
  for (const auto& entry : spare_until_) next = std::min(next, entry.second);
  if (suspicion_until_) next = std::min(next, *suspicion_until_);
  if (state_.phase != State::Forming) return next;
  next = std::min(next, later(forming_since_, options_.times.join));
  if (enough_since_) next = std::min(next, later(*enough_since_, options_.times.last_call));
  return next;
}

// ---- texts ----------------------------------------------------------------------------------------------------------

namespace {

using nlohmann::json;

std::string dump(const json& object) { return object.dump(-1, ' ', false, json::error_handler_t::replace); }

json to_json(const Member& m) {
  return {{"id", m.id},     {"node", m.node_rank}, {"workers", m.workers}, {"role", m.role},
          {"host", m.host}, {"run_id", m.run_id},  {"min", m.min_nodes},   {"max", m.max_nodes}};
}

Member member_of(const json& object) {
  Member m;
  m.id = object.at("id");
  m.node_rank = object.at("node");
  m.workers = object.at("workers");
  m.role = object.at("role");
  m.host = object.at("host");
  m.run_id = object.at("run_id");
  m.min_nodes = object.at("min");
  m.max_nodes = object.at("max");
  ATHANOR_CHECK(m.workers >= 1 && m.workers <= 65536, "a node of ", m.workers, " workers");
  return m;
}

std::string text_of(const std::optional<Failure>& failure) { return failure ? failure->json() : ""; }
std::optional<Failure> failure_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return Failure::from_json(text);
}

template <class F>
auto checked(const char* what, F&& read) {
  try {
    return read();
  } catch (const json::exception& error) {
    ATHANOR_THROW(Error, what, " that another agent sent is malformed: ", error.what());
  }
}

}  // namespace

std::string Request::json() const {
  return dump({{"kind", static_cast<int>(kind)},
               {"id", id},
               {"round", round},
               {"member", to_json(member)},
               {"failure", text_of(failure)},
               {"message", message}});
}

Request Request::from_json(const std::string& text) {
  return checked("a request", [&] {
    const auto object = nlohmann::json::parse(text);
    Request r;
    const int kind = object.at("kind");
    ATHANOR_CHECK(kind >= Join && kind <= Leave, "a request of kind ", kind);
    r.kind = static_cast<Kind>(kind);
    r.id = object.at("id");
    r.round = object.at("round");
    r.member = member_of(object.at("member"));
    r.failure = failure_of(object.at("failure"));
    r.message = object.at("message");
    return r;
  });
}

std::string State::json() const {
  nlohmann::json list = nlohmann::json::array();
  for (const Member& m : members) list.push_back(to_json(m));
  return dump({{"phase", static_cast<int>(phase)},
               {"round", round},
               {"restarts", restarts},
               {"members", list},
               {"refused", refused},
               {"port", master_port},
               {"success", success},
               {"failure", text_of(failure)},
               {"message", message}});
}

State State::from_json(const std::string& text) {
  return checked("a state", [&] {
    const auto object = nlohmann::json::parse(text);
    State s;
    const int phase = object.at("phase");
    ATHANOR_CHECK(phase >= Forming && phase <= Closed, "a state in phase ", phase);
    s.phase = static_cast<Phase>(phase);
    s.round = object.at("round");
    s.restarts = object.at("restarts");
    for (const auto& item : object.at("members")) s.members.push_back(member_of(item));
    s.refused = object.at("refused").get<std::map<std::string, std::string>>();
    s.master_port = object.at("port");
    s.success = object.at("success");
    s.failure = failure_of(object.at("failure"));
    s.message = object.at("message");
    return s;
  });
}

}  // namespace athanor::launch
