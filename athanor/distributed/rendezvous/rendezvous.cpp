#include "athanor/distributed/rendezvous/rendezvous.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <thread>

#include "athanor/base/env.h"
#include "athanor/base/log.h"
#include "athanor/distributed/error.h"

namespace athanor::distributed {

using athanor::detail::str;

RendezvousUrl RendezvousUrl::parse(const std::string& text) {
  RendezvousUrl url;
  url.text = text;
  const std::size_t scheme_end = text.find("://");
  ATHANOR_CHECK_VALUE(scheme_end != std::string::npos && scheme_end > 0, "init_method '", text,
                      "': expected scheme://…, as env://, tcp://host:port or file:///path");
  url.scheme = text.substr(0, scheme_end);
  std::string rest = text.substr(scheme_end + 3);
  if (const std::size_t mark = rest.find('?'); mark != std::string::npos) {
    std::string query = rest.substr(mark + 1);
    rest.erase(mark);
    while (!query.empty()) {
      const std::size_t end = std::min(query.find('&'), query.size());
      const std::string part = query.substr(0, end);
      query.erase(0, std::min(end + 1, query.size()));
      const std::size_t equals = part.find('=');
      ATHANOR_CHECK_VALUE(equals != std::string::npos && equals > 0, "init_method '", text, "': '", part,
                          "' should be key=value");
      url.query[part.substr(0, equals)] = part.substr(equals + 1);
    }
  }
  const std::size_t slash = rest.find('/');
  url.location = rest.substr(0, slash);
  if (slash != std::string::npos) url.path = rest.substr(slash);
  return url;
}

namespace {

struct Handlers {
  std::mutex mutex;
  std::map<std::string, RendezvousHandler> by_scheme = {
      {"env", meeting::rendezvous_env}, {"tcp", meeting::rendezvous_tcp}, {"file", meeting::rendezvous_file}};
};
Handlers& handlers() {
  static Handlers table;
  return table;
}

// A number may come from the URL or as an argument, not both unless they agree.
void take(const RendezvousUrl& url, const char* key, int& value) {
  const auto found = url.query.find(key);
  if (found == url.query.end()) return;
  const auto number = parse_integer(found->second);
  ATHANOR_CHECK_VALUE(number && *number >= 0 && *number <= INT32_MAX, "init_method '", url.text, "': ", key, "='",
                      found->second, "' should be a number");
  ATHANOR_CHECK_VALUE(value < 0 || value == *number, "init_method '", url.text, "': ", key, "=", *number,
                      " in the URL, but ", value, " as an argument");
  value = static_cast<int>(*number);
}

}  // namespace

void register_rendezvous_handler(const std::string& scheme, RendezvousHandler handler) {
  Handlers& table = handlers();
  const std::lock_guard lock(table.mutex);
  ATHANOR_CHECK_VALUE(table.by_scheme.emplace(scheme, std::move(handler)).second, "rendezvous: the scheme '", scheme,
                      "' has a handler already");
}

RendezvousResult rendezvous(const std::string& text, const RendezvousOptions& given) {
  const RendezvousUrl url = RendezvousUrl::parse(text);
  RendezvousOptions options = given;
  take(url, "rank", options.rank);
  take(url, "world_size", options.world_size);
  RendezvousHandler handler;
  {
    Handlers& table = handlers();
    const std::lock_guard lock(table.mutex);
    const auto found = table.by_scheme.find(url.scheme);
    if (found == table.by_scheme.end()) {
      std::string known;
      for (const auto& [scheme, unused] : table.by_scheme) known += str(known.empty() ? "" : ", ", scheme, "://");
      ATHANOR_THROW(ValueError, "init_method '", text, "': unknown scheme '", url.scheme, "', expected one of ", known);
    }
    handler = found->second;
  }
  ATHANOR_LOG(Debug, "rendezvous at ", text, ", rank ", options.rank, " of ", options.world_size);
  RendezvousResult result = handler(url, options);
  ATHANOR_LOG(Debug, "rendezvous done: rank ", result.rank, " of ", result.world_size, ", ", result.store->describe());
  return result;
}

void meeting::check_rank(const RendezvousUrl& url, const RendezvousOptions& options, bool self_assigned) {
  ATHANOR_CHECK_VALUE(options.world_size > 0, "init_method '", url.text, "': world_size is missing: give it as an ",
                      "argument or in the URL (?world_size=2)");
  ATHANOR_CHECK_VALUE(self_assigned || options.rank >= 0, "init_method '", url.text,
                      "': rank is missing: give it as an argument or in the URL (?rank=0)");
  ATHANOR_CHECK_VALUE(options.rank < options.world_size, "init_method '", url.text, "': rank ", options.rank,
                      " in a world of ", options.world_size, ", expected 0 to ", options.world_size - 1);
}

namespace {

std::string rank_key(int rank) { return str("rendezvous/rank/", rank); }
constexpr const char* kVerdict = "rendezvous/verdict";
constexpr const char* kRead = "rendezvous/read";

// Names this call among all processes and threads: host, process, and what tells apart processes of one number. In
// containers that is needed: a container's program is process 1 each time it is started.
struct Name {
  std::string host;
  std::int64_t pid = 0;
  std::string process, call;
  std::string text() const { return str(host, ":", pid, "/", process, "/", call); }
  static Name own() {
    static std::atomic<int> calls = 0;
    char host[256] = "?";
    ::gethostname(host, sizeof host - 1);
    return {host, ::getpid(), process_token(), std::to_string(calls.fetch_add(1))};
  }
  static Name parse(const std::string& text) {
    const std::size_t colon = text.rfind(':'), first = text.find('/', colon), second = text.find('/', first + 1);
    if (colon == std::string::npos || second == std::string::npos) return {text, 0, "", ""};
    return {text.substr(0, colon), parse_integer(text.substr(colon + 1, first - colon - 1)).value_or(0),
            text.substr(first + 1, second - first - 1), text.substr(second + 1)};
  }

 private:
  static std::string process_token() {
    static std::mutex mutex;
    static pid_t pid = 0;
    static std::string token;
    const std::lock_guard lock(mutex);
    if (pid != ::getpid()) {  // at first, and after a fork
      std::uint32_t number = 0;
      ATHANOR_CHECK(::getentropy(&number, sizeof number) == 0, "getentropy failed");
      pid = ::getpid();
      token = std::to_string(number);
    }
    return token;
  }
};

// Whether `owner` was a process of this host that is no more.
bool has_ended(const Name& owner, const Name& me) {
  if (owner.pid <= 0 || owner.host != me.host) return false;
  if (owner.pid == me.pid) return owner.process != me.process;
  return ::kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno == ESRCH;
}

std::string text_of(const Store::Value& value) { return {value.begin(), value.end()}; }
Store::Value value_of(const std::string& text) { return {text.begin(), text.end()}; }

// Only the first to say "I am rank r" may be it; or its successor, if it died while ranks were still awaited.
std::string claim_rank(Store& store, int rank, const std::string& how) {
  const Name me = Name::own();
  std::string expected;
  while (true) {
    const std::string owner = text_of(store.compare_set(rank_key(rank), value_of(expected), value_of(me.text())));
    if (owner == me.text()) return owner;
    const bool ended = has_ended(Name::parse(owner), me);
    if (ended && owner != expected && !store.check({kVerdict})) {
      expected = owner;
      continue;
    }
    throw DistError(str(how, ": rank ", rank, " is taken by process ", owner,
                        ended ? " that has ended since, and the others are at work already: they have to start again, "
                                "too, and this one ("
                              : ", so this one (",
                        me.text(), ") cannot be it", ended ? " now" : ": each rank must be started once"),
                    ATHANOR_WHERE);
  }
}

// What to say of the ranks that are not here; empty if all are.
std::string who_is_missing(Store& store, int world_size, const std::string& how) {
  std::string missing;
  int come = 0;
  for (int r = 0; r < world_size; ++r) {
    const bool here = store.check({rank_key(r)});
    come += here ? 1 : 0;
    if (!here) missing += str(missing.empty() ? "" : ", ", r);
  }
  if (missing.empty()) return {};
  return str(how, ": ", come, " of ", world_size, " ranks came before the deadline; missing: rank ", missing,
             ". Were they started, and can they reach ", store.describe(), "?");
}

// Rank 0 waits for everyone and tells the others how it went.
void judge(Store& store, int world_size, Deadline deadline, const std::string& how) {
  std::string verdict;
  for (int r = 0; r < world_size && verdict.empty(); ++r) {
    try {
      store.wait({rank_key(r)}, deadline.remaining());
      ATHANOR_LOG(Debug, "rank ", r, " is here: ", store.get_text(rank_key(r)));
    } catch (const DistError&) {
      verdict = who_is_missing(store, world_size, how);
    }
  }
  store.set(kVerdict, verdict.empty() ? "ok" : verdict);
  if (verdict.empty()) return;
  // The store goes with this process: let those who came read why.
  int come = 0;
  for (int r = 1; r < world_size; ++r) come += store.check({rank_key(r)}) ? 1 : 0;
  const Deadline grace = Deadline::after(std::chrono::seconds(1));
  while (store.add(kRead, 0) < come && !grace.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  throw DistError(verdict, ATHANOR_WHERE);
}

}  // namespace

void meeting::meet_all(Store& store, int rank, int world_size, Deadline deadline, const std::string& how) {
  const std::string me = claim_rank(store, rank, how);
  if (rank == 0) return judge(store, world_size, deadline, how);
  // Rank 0 may have come a little later than this process, and its verdict says more than ours could.
  constexpr std::chrono::milliseconds kGrace{1000};
  try {
    store.wait({kVerdict}, deadline.remaining() + kGrace);
  } catch (const DistError& error) {
    std::string missing;
    try {
      missing = who_is_missing(store, world_size, how);
    } catch (const DistError&) {  // the store is gone as well
    }
    throw DistError(missing.empty() ? str(how, ": rank 0 left before all had met (", error.what(), ")") : missing,
                    ATHANOR_WHERE);
  }
  const std::string verdict = store.get_text(kVerdict);
  store.add(kRead, 1);
  if (verdict != "ok") throw DistError(verdict, ATHANOR_WHERE);
  if (const std::string owner = store.get_text(rank_key(rank)); owner != me)
    throw DistError(str(how, ": process ", owner, " has taken rank ", rank, " from this one (", me,
                        "): each rank must be started once"),
                    ATHANOR_WHERE);
}

}  // namespace athanor::distributed
