// How the ranks of a meeting find out that all of them have come.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <thread>

#include "athanor/base/env.h"
#include "athanor/base/interrupt.h"
#include "athanor/base/log.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/net/forks.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/store/tcp_store.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// One store may serve one meeting after another; rank 0 counts them.
constexpr const char* kMeeting = "rendezvous/meeting";
std::string key_of(std::int64_t meeting, const char* what) {
  return meeting == 0 ? str("rendezvous/", what) : str("rendezvous/", meeting, "/", what);
}
std::string rank_key(std::int64_t meeting, int rank) { return key_of(meeting, "rank/") + std::to_string(rank); }
std::string verdict_key(std::int64_t meeting) { return key_of(meeting, "verdict"); }
std::string read_key(std::int64_t meeting) { return key_of(meeting, "read"); }
std::string ended_key(std::int64_t meeting) { return key_of(meeting, "ended"); }  // names, a line each

constexpr std::string_view kLeft = " has left", kGood = "ok ";

// How long what is asked after the deadline may take, to say why.
constexpr std::chrono::milliseconds kAfterthought{1000};

// Names this call among all processes and threads: host, process, and what tells apart processes of one number. In
// containers that is needed: a container's program is process 1 each time it is started.
struct Name {
  std::string host;
  std::int64_t pid = 0;
  std::string process, call;
  int world_size = 0;  // as that rank was told
  std::string text() const { return str(host, ":", pid, "/", process, "/", call, "/", world_size); }
  static Name own(int world_size) {
    static std::atomic<int> calls = 0;
    char host[256] = "?";
    ::gethostname(host, sizeof host - 1);
    return {host, ::getpid(), process_token(), std::to_string(calls.fetch_add(1)), world_size};
  }
  static Name parse(const std::string& text) {
    const std::size_t colon = text.rfind(':'), first = text.find('/', colon), second = text.find('/', first + 1);
    const std::size_t third = text.find('/', second + 1);
    if (colon == std::string::npos || third == std::string::npos) return {text, 0, "", ""};
    return {text.substr(0, colon), parse_integer(text.substr(colon + 1, first - colon - 1)).value_or(0),
            text.substr(first + 1, second - first - 1), text.substr(second + 1, third - second - 1),
            static_cast<int>(parse_integer(text.substr(third + 1)).value_or(0))};
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

// Once all have met, a store is of no use for a rank that comes.
bool is_over(Store& store, std::int64_t meeting) {
  const std::string verdict = verdict_key(meeting);
  return store.check({verdict}) && store.get_text(verdict).starts_with(kGood);
}

// Only the first to say "I am rank r" may be it; or its successor, if it died while ranks were still awaited. Nothing
// if the meeting is over for this rank.
std::optional<std::string> claim_rank(Store& store, std::int64_t meeting, int rank, int world_size,
                                      const std::string& how) {
  const Name me = Name::own(world_size);
  const std::string key = rank_key(meeting, rank);
  std::string expected;
  if (!store.check({key}) && is_over(store, meeting)) return std::nullopt;
  while (true) {
    const std::string owner = text_of(store.compare_set(key, value_of(expected), value_of(me.text())));
    if (owner == me.text()) return owner;
    if (owner.ends_with(kLeft)) return std::nullopt;
    const bool ended = has_ended(Name::parse(owner), me);
    if (ended && owner != expected && !store.check({verdict_key(meeting)})) {
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

// What to say of the ranks that are not here; empty if all are, or the store does not answer.
std::string who_is_missing(Store& store, std::int64_t meeting, int world_size, const std::string& how) {
  std::string missing;
  int come = 0;
  try {
    const StoreDeadline limit(Deadline::after(kAfterthought));
    for (int r = 0; r < world_size; ++r) {
      const bool here = store.check({rank_key(meeting, r)});
      come += here ? 1 : 0;
      if (!here) missing += str(missing.empty() ? "" : ", ", r);
    }
  } catch (const DistError&) {
    return {};
  }
  if (missing.empty()) return {};
  return str(how, ": ", come, " of ", world_size, " ranks came before the deadline; missing: rank ", missing,
             ". Were they started, and can they reach ", store.describe(), "?");
}

// Who holds a rank. One that has ended, and was told of another world, is of an earlier one: waits for its successor.
Name known_name(Store& store, const std::string& key, int world_size, Deadline deadline) {
  const Name me = Name::own(world_size);
  while (true) {
    Name name = Name::parse(store.get_text(key));
    if (name.world_size == world_size || !has_ended(name, me) || deadline.expired()) return name;
    check_interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Rank 0 waits for everyone and tells the others how it went.
std::string judge(Store& store, std::int64_t meeting, int world_size, Deadline deadline, const std::string& how) {
  std::string verdict;
  for (int r = 0; r < world_size && verdict.empty(); ++r) {
    try {
      store.wait({rank_key(meeting, r)}, deadline.remaining());
      const Name name = known_name(store, rank_key(meeting, r), world_size, deadline);
      ATHANOR_LOG(Debug, "rank ", r, " is here: ", name.text());
      // Found out now, not when the ranks that only one of them knows have not come by the deadline.
      if (name.world_size != 0 && name.world_size != world_size)
        verdict = str(how, ": the world has ", world_size, " ranks as rank 0 was told, but ", name.world_size,
                      " as rank ", r, " was: all need the same world_size (WORLD_SIZE)");
    } catch (const DistError& error) {
      verdict = who_is_missing(store, meeting, world_size, how);
      if (verdict.empty()) throw DistError(str(how, ": ", error.what()), ATHANOR_WHERE);
    }
  }
  std::string word = std::string(kGood) + Name::own(world_size).text();
  store.set(verdict_key(meeting), verdict.empty() ? word : verdict);
  if (verdict.empty()) return word;
  // The store goes with this process: let those who came read why.
  std::vector<std::string> others;
  for (int r = 1; r < world_size; ++r) others.push_back(rank_key(meeting, r));
  let_all_read(store, others, read_key(meeting));
  throw DistError(verdict, ATHANOR_WHERE);
}

// For RendezvousResult::ended, from what the store appends at the end of each rank's process.
std::function<std::vector<int>()> ended_ranks(const std::shared_ptr<Store>& store, const meeting::Place& place,
                                              int world_size) {
  return [store, place, world_size] {
    std::vector<int> found;
    const std::string key = ended_key(place.meeting);
    if (!store->check({key})) return found;
    const std::string names = "\n" + store->get_text(key);
    for (int r = 0; r < world_size; ++r) {
      const std::string name = store->get_text(rank_key(place.meeting, r));
      const bool left = name.ends_with(kLeft);
      // One that died while ranks were awaited may have a successor.
      if (left || names.find("\n" + name + "\n") != std::string::npos) found.push_back(r);
    }
    return found;
  };
}

}  // namespace

meeting::Place meeting::claim_place(Store& store, int rank, int world_size, Deadline deadline, const std::string& how) {
  while (true) {
    const std::int64_t current = store.add(kMeeting, 0);
    if (const auto name = claim_rank(store, current, rank, world_size, how)) return {current, *name};
    if (rank == 0) {
      store.compare_set(kMeeting, value_of(std::to_string(current)), value_of(std::to_string(current + 1)));
      continue;
    }
    if (deadline.expired())
      throw DistError(str(how, ": the ranks at ", store.describe(), " have met without this rank ", rank, " of ",
                          world_size, ", or it has left them, and rank 0 has not begun another meeting in time"),
                      ATHANOR_WHERE);
    check_interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string meeting::meet_all(Store& store, const Place& place, int rank, int world_size, Deadline deadline,
                              const std::string& how) {
  // Nothing here outlasts the deadline by more, though the store's own timeout may be longer.
  const StoreDeadline limit(Deadline::after(deadline.remaining() + 3 * kAfterthought));
  if (rank == 0) return judge(store, place.meeting, world_size, deadline, how);
  // Rank 0 may have come a little later than this process, and its verdict says more than ours could.
  constexpr std::chrono::milliseconds kGrace{1000};
  try {
    store.wait({verdict_key(place.meeting)}, deadline.remaining() + kGrace);
  } catch (const DistError& error) {
    const std::string missing = who_is_missing(store, place.meeting, world_size, how);
    throw DistError(missing.empty() ? str(how, ": rank 0 left before all had met (", error.what(), ")") : missing,
                    ATHANOR_WHERE);
  }
  std::string verdict = store.get_text(verdict_key(place.meeting));
  store.add(read_key(place.meeting), 1);
  if (!verdict.starts_with(kGood)) throw DistError(verdict, ATHANOR_WHERE);
  if (const std::string owner = store.get_text(rank_key(place.meeting, rank)); owner != place.name)
    throw DistError(str(how, ": process ", owner, " has taken rank ", rank, " from this one (", place.name,
                        "): each rank must be started once"),
                    ATHANOR_WHERE);
  return verdict;
}

std::function<void()> meeting::leaver(const std::shared_ptr<Store>& store, const Place& place, int rank) {
  return [store, place, rank] {
    store->compare_set(rank_key(place.meeting, rank), value_of(place.name), value_of(place.name + std::string(kLeft)));
  };
}

RendezvousResult meeting::meet_at(const std::string& host, const TCPStoreOptions& options, const std::string& prefix,
                                  int rank, int world_size, Deadline deadline, const std::string& how,
                                  bool our_server) {
  // Where this process has been before, a store that ends the conversation may be the one of then, about to go.
  static std::atomic<bool> met_before = false;
  std::shared_ptr<Store> store;
  Place place;
  while (true) {
    try {
      TCPStoreOptions now = options;
      now.timeout = std::max(deadline.remaining(), std::chrono::milliseconds(1));
      const auto served = std::make_shared<TCPStore>(host, now);
      served->set_timeout(options.timeout);
      store = std::make_shared<PrefixStore>(prefix, served);
      const StoreDeadline limit(Deadline::after(deadline.remaining() + kAfterthought));
      place = claim_place(*store, rank, world_size, deadline, how);
      if (our_server && rank != 0) store->append_at_end(ended_key(place.meeting), value_of(place.name + "\n"));
      break;
    } catch (const DistStoreError&) {
      if (options.is_server || !met_before || deadline.expired()) throw;
    }
    check_interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  auto leave = leaver(store, place, rank);
  met_before = true;
  try {
    const std::string word = meet_all(*store, place, rank, world_size, deadline, how);
    // What a slow rank still says to the store of a meeting that is over must not be taken for this one's.
    return {std::make_shared<PrefixStore>(word, store), rank, world_size, std::move(leave),
            our_server ? ended_ranks(store, place, world_size) : std::function<std::vector<int>()>()};
  } catch (...) {
    try {
      const StoreDeadline limit(Deadline::after(kAfterthought));
      leave();
    } catch (const DistError&) {  // the store is gone, and all that it knew
    }
    throw;
  }
}

std::shared_ptr<Store> meeting::store_of_env(const std::shared_ptr<Store>& served, int restart) {
  std::shared_ptr<Store> found;
  for (int number = 0;; ++number) {
    const auto store = std::make_shared<PrefixStore>(env_prefix(std::to_string(restart), number), served);
    const std::string verdict = verdict_key(0);
    if (!store->check({verdict})) return found;
    if (const std::string word = store->get_text(verdict); word.starts_with(kGood))
      found = std::make_shared<PrefixStore>(word, store);
  }
}

std::string meeting::env_prefix(const std::string& restart, int number) {
  return str("athanor/", restart, "/", number);
}

}  // namespace athanor::distributed
