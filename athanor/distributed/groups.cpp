#include "athanor/distributed/groups.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

#include "athanor/base/env.h"
#include "athanor/base/interrupt.h"
#include "athanor/base/log.h"
#include "athanor/distributed/backend.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/flight_recorder.h"
#include "athanor/distributed/process_group_impl.h"
#include "athanor/distributed/rendezvous/rendezvous.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// A default group and what was made of it.
struct World {
  std::mutex mutex;
  ProcessGroupPtr main;
  std::function<void()> leave;  // of the place where main's ranks met
  std::vector<ProcessGroupPtr> others;
  std::map<std::string, int> groups_made;  // per parent, and per set of ranks
  unsigned generation = 0;
  int inits = 0;

  // What a parent made before a fork is not ours; it is forgotten without being touched.
  void forget_parents_groups() {
    if (generation == fork_generation()) return;
    generation = fork_generation();
    // Destructors would wait for threads that are not here.
    if (!others.empty()) new std::vector<ProcessGroupPtr>(std::move(others));  // NOLINT
    if (main) new ProcessGroupPtr(std::move(main));                            // NOLINT
    if (leave) new std::function<void()>(std::move(leave));                    // NOLINT
    others.clear();
    main = nullptr;
    leave = nullptr;
    groups_made.clear();
  }
};

thread_local World* thread_world = nullptr;

World& world() {
  static auto* process_world = new World;  // groups may be used until the very end of the process
  return thread_world ? *thread_world : *process_world;
}

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += str(text.empty() ? "" : ",", rank);
  return text;
}

// "2 of 3 members of 'group/1', ranks [0,1,2], called it; rank 1 did not".
std::string who_came(Store& store, const ProcessGroupOptions& options, const std::string& key) {
  std::vector<int> missing;
  try {
    const StoreDeadline limit(Deadline::after(std::chrono::seconds(1)));
    for (const int rank : options.global_ranks)
      if (!store.check({str(key, "came/", rank)})) missing.push_back(rank);
  } catch (const DistError& error) {
    return str("the store does not answer: ", error.what());
  }
  return str(options.global_ranks.size() - missing.size(), " of ", options.size, " members of '", options.name,
             "', ranks [", joined(options.global_ranks), "], called it; rank ", joined(missing), " did not");
}

// The first to see that a member is lost says so for all; unless the last has come after all.
std::string agreed_loss(const ProcessGroup& parent, const ProcessGroupOptions& options, const std::string& key,
                        const std::vector<int>& lost) {
  std::string own =
      str("new_group: rank ", joined(lost), lost.size() == 1 ? " is" : " are", " gone, or left process group '",
          parent.name(), "': ", who_came(*parent.store(), options, key));
  try {
    const StoreDeadline limit(Deadline::after(std::chrono::seconds(1)));
    const auto held = parent.store()->compare_set(key + "verdict", {}, Store::Value(own.begin(), own.end()));
    return {held.begin(), held.end()};
  } catch (const DistError&) {
    return own;
  }
}

// Waits for the last of them to come, and looks after those that will not.
std::string verdict_or_why(const ProcessGroup& parent, const ProcessGroupOptions& options, const std::string& key) {
  constexpr std::chrono::milliseconds kLook{100};
  Store& store = *parent.store();
  const Deadline deadline = Deadline::after(options.timeout);
  while (true) {
    try {
      const auto value = store.get(key + "verdict", std::min(kLook, deadline.remaining()));
      return {value.begin(), value.end()};
    } catch (const DistError&) {
      check_interrupt();
      if (deadline.expired())
        return str("new_group: within ", options.timeout.count(), " ms, ", who_came(store, options, key));
      std::vector<int> lost;
      for (const int rank : parent.lost_ranks()) {
        const int global = parent.global_ranks()[static_cast<std::size_t>(rank)];
        if (std::count(options.global_ranks.begin(), options.global_ranks.end(), global) != 0) lost.push_back(global);
      }
      if (!lost.empty()) return agreed_loss(parent, options, key, lost);
    }
  }
}

// When all have read that they agree, only the list stays, for a rank that comes late with another one.
void forget_agreement(Store& store, const std::string& key, int me, int size) noexcept {
  try {
    const StoreDeadline limit(Deadline::after(std::chrono::seconds(1)));
    store.delete_key(str(key, "came/", me));
    if (store.add(key + "read", 1) < size) return;
    for (const char* name : {"came", "verdict", "read"}) store.delete_key(key + name);
  } catch (const std::exception&) {  // making the group will tell what is wrong with the store
  }
}

// Two members with different ideas of a group would wait for ranks that never come: each shows its list, and all learn
// whether the lists agree.
void agree_on_ranks(const ProcessGroup& parent, const ProcessGroupOptions& options) {
  Store& store = *parent.store();
  const int me = parent.global_ranks()[static_cast<std::size_t>(parent.rank())];
  const std::string key = str("groups/", options.name, "/"), own = joined(options.global_ranks);
  const auto text = [](const Store::Value& value) { return std::string(value.begin(), value.end()); };
  const std::string first = text(store.compare_set(key + "ranks", {}, Store::Value(own.begin(), own.end())));
  std::string verdict = "ok";
  if (first != own) {
    verdict = str("new_group: rank ", me, " makes '", options.name, "' of ranks [", own, "], another rank of [", first,
                  "]. All ranks must call new_group in the same order with the same ranks");
    store.set(key + "verdict", verdict);
  } else {
    store.set(str(key, "came/", me), "");
    if (store.add(key + "came", 1) == options.size)
      store.set(key + "verdict", verdict);
    else
      verdict = verdict_or_why(parent, options, key);
  }
  if (verdict != "ok") throw DistError(verdict, ATHANOR_WHERE);
  forget_agreement(store, key, me, options.size);
}

ProcessGroupPtr make_member(const ProcessGroupPtr& parent, const ProcessGroupOptions& options) {
  agree_on_ranks(*parent, options);
  return std::make_shared<ProcessGroup>(parent->store(), options);
}

// mpirun has numbered the ranks then.
bool over_mpi(const InitOptions& options) {
  return host_backend(options.backend.empty() ? kDefaultBackend : options.backend) == "mpi";
}

void warn_superfluous_ranks(const InitOptions& options) {
  if (over_mpi(options) && (options.rank >= 0 || options.world_size >= 0))
    ATHANOR_LOG(Warning,
                "init_process_group: with backend 'mpi' ranks and their number come from mpirun; the arguments ",
                "rank and world_size are ignored");
}

RendezvousResult meet(const InitOptions& options, int number) {
  if (options.store) {
    ATHANOR_CHECK_VALUE(options.init_method.empty(), "init_process_group: got both a store and init_method '",
                        options.init_method, "', expected one of them");
    ATHANOR_CHECK_VALUE(options.world_size > 0 && options.rank >= 0 && options.rank < options.world_size,
                        "init_process_group: a store needs rank and world_size, got rank ", options.rank, " of ",
                        options.world_size);
    // The same store may serve one group after another.
    return {std::make_shared<PrefixStore>(str("init/", number), options.store), options.rank, options.world_size};
  }
  RendezvousOptions wanted;
  if (!over_mpi(options)) {
    wanted.rank = options.rank;
    wanted.world_size = options.world_size;
  }
  wanted.group_name = options.group_name;
  wanted.timeout = options.timeout;
  wanted.secret = options.secret;
  return rendezvous(options.init_method.empty() ? "env://" : options.init_method, wanted);
}

// For one that could not join the others: it may try again.
void take_leave(const std::function<void()>& leave) noexcept {
  try {
    const StoreDeadline limit(Deadline::after(std::chrono::milliseconds(500)));
    if (leave) leave();
  } catch (const std::exception&) {  // the store is gone, and all that it knew
  }
}

// The store usually lives in rank 0's process and goes with it: that rank lets the others finish what they do with it.
void leave_together(ProcessGroup& group, const std::function<void()>& leave) {
  constexpr std::chrono::milliseconds kPatience{1000}, kPatienceIfBroken{500};
  try {
    const bool well = group.usable();
    const StoreDeadline limit(Deadline::after(well ? kPatience : kPatienceIfBroken));
    // First, since the store may go as soon as all are counted.
    if (leave) leave();
    if (!well) return;
    Store& store = *group.store();
    if (store.add("left", 1) == group.size())
      store.set("all left", "");
    else if (group.rank() == 0)
      store.wait({"all left"}, kPatience);
  } catch (const Error&) {  // the others take longer, or are gone: they are not this rank's business any more
  }
}

}  // namespace

void init_process_group(const InitOptions& options) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  w.forget_parents_groups();
  ATHANOR_CHECK_VALUE(!w.main,
                      "init_process_group: trying to initialize the default process group twice; call "
                      "destroy_process_group first");
  ATHANOR_CHECK_VALUE(options.timeout.count() > 0, "init_process_group: the timeout should be positive, got ",
                      options.timeout.count(), " ms");
  warn_superfluous_ranks(options);
  const RendezvousResult met = meet(options, ++w.inits);
  ProcessGroupOptions made;
  made.backend = options.backend.empty() ? kDefaultBackend : options.backend;
  made.rank = met.rank;
  made.size = met.world_size;
  made.name = "default_pg";
  made.timeout = options.timeout;
  made.secret = options.secret;
  made.ended = met.ended;
  if (!thread_world) set_log_rank(met.rank);
  try {
    w.main = std::make_shared<ProcessGroup>(met.store, made);
  } catch (...) {
    take_leave(met.leave);
    throw;
  }
  w.leave = met.leave;
  w.groups_made.clear();
  if (thread_world) return;
  internals::start_flight_signal(met.store, met.rank, met.world_size, w.main);
  static const int registered = std::atexit([] { internals::leave_all_groups(); });
  (void)registered;
}

void init_process_group(const std::string& backend, const std::string& init_method, int world_size, int rank,
                        std::chrono::milliseconds timeout, const std::string& group_name,
                        std::shared_ptr<Store> store) {
  InitOptions options;
  options.backend = backend;
  options.init_method = init_method;
  options.world_size = world_size;
  options.rank = rank;
  options.timeout = timeout;
  options.group_name = group_name;
  options.store = std::move(store);
  init_process_group(options);
}

void destroy_process_group(const ProcessGroupPtr& given) {
  World& w = world();
  std::vector<ProcessGroupPtr> ending;
  std::function<void()> leave;
  bool all = false;
  {
    const std::lock_guard lock(w.mutex);
    w.forget_parents_groups();
    ATHANOR_CHECK(w.main, "destroy_process_group: there is no process group; call init_process_group first");
    all = !given || given == w.main;
    if (all) {
      ending = std::move(w.others);
      ending.push_back(std::move(w.main));
      w.others.clear();
      w.main = nullptr;
      leave = std::exchange(w.leave, nullptr);
      w.groups_made.clear();
    } else {
      const auto found = std::find(w.others.begin(), w.others.end(), given);
      ATHANOR_CHECK_VALUE(found != w.others.end(), "destroy_process_group: group '", given->name(),
                          "' was destroyed before, or was not made by new_group");
      ending.push_back(std::move(*found));
      w.others.erase(found);
    }
  }
  if (all) leave_together(*ending.back(), leave);
  leave = nullptr;
  for (const ProcessGroupPtr& group : ending) group->shutdown();
  if (all && !is_initialized() && !thread_world) internals::stop_flight_signal();
}

bool is_available() { return true; }

bool is_initialized() {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  return w.main != nullptr && w.generation == fork_generation();
}

bool is_tcp_available() { return is_backend_available("tcp"); }
bool is_gloo_available() { return is_backend_available("gloo"); }
bool is_mpi_available() { return is_backend_available("mpi"); }
bool is_nccl_available() { return is_backend_available("nccl"); }
bool is_torchelastic_launched() { return env::text("TORCHELASTIC_RUN_ID").has_value(); }

const ProcessGroupPtr& default_group() {
  World& w = world();
  if (__builtin_expect(!w.main || w.generation != fork_generation(), 0))
    ATHANOR_THROW(ValueError,
                  "the default process group has not been initialized, please make sure to call "
                  "init_process_group");
  return w.main;
}

ProcessGroupPtr split_group(const ProcessGroupPtr& given, const std::vector<int>& wanted, const GroupOptions& options) {
  const ProcessGroupPtr parent = group_or_default(given);
  ATHANOR_CHECK(parent->rank() >= 0, "new_group: this process is no member of process group '", parent->name(), "'");
  World& w = world();
  std::vector<int> ranks = wanted;
  if (ranks.empty())
    for (int r = 0; r < parent->size(); ++r) ranks.push_back(r);
  ProcessGroupOptions made;
  made.rank = -1;
  made.size = static_cast<int>(ranks.size());
  for (const int r : ranks) {
    ATHANOR_CHECK_VALUE(r >= 0 && r < parent->size(), "new_group: rank ", r, " in a world of ", parent->size(),
                        ", expected 0 to ", parent->size() - 1);
    ATHANOR_CHECK_VALUE(std::count(ranks.begin(), ranks.end(), r) == 1, "new_group: rank ", r, " is given twice");
    if (r == parent->rank()) made.rank = static_cast<int>(made.global_ranks.size());
    made.global_ranks.push_back(parent->global_ranks()[static_cast<std::size_t>(r)]);
  }
  made.backend = options.backend.empty() ? parent->backend_name() : options.backend;
  made.timeout = options.timeout.value_or(parent->timeout());
  made.ended = [parent] {
    std::vector<int> lost;
    for (const int r : parent->lost_ranks()) lost.push_back(parent->global_ranks()[static_cast<std::size_t>(r)]);
    return lost;
  };
  made.secret = parent->secret();
  {
    const std::lock_guard lock(w.mutex);
    // Whoever has to call counts alike: all members of the parent, or those of the new group.
    const std::string kind = options.use_local_synchronization ? str("ranks ", joined(ranks)) : "group";
    made.name = str(kind, "/", ++w.groups_made[str(parent->name(), "/", kind)]);
    if (!options.name.empty()) made.name += str(" ", options.name);
  }
  auto group = made.rank < 0 ? ProcessGroup::outsider(made) : make_member(parent, made);
  const std::lock_guard lock(w.mutex);
  w.others.push_back(group);
  return group;
}

ProcessGroupPtr new_group(const std::vector<int>& ranks, const GroupOptions& options) {
  return split_group(nullptr, ranks, options);
}

ProcessGroupPtr new_group(const std::vector<int>& ranks, std::chrono::milliseconds timeout,
                          const std::string& backend) {
  GroupOptions options;
  options.timeout = timeout;
  options.backend = backend;
  return split_group(nullptr, ranks, options);
}

std::pair<ProcessGroupPtr, std::vector<ProcessGroupPtr>> new_subgroups(int size, const GroupOptions& options) {
  const ProcessGroupPtr all = default_group()->shared_from_this();
  ATHANOR_CHECK_VALUE(size > 0 && all->size() % size == 0, "new_subgroups: groups of ", size, " in a world of ",
                      all->size(), ", expected a divisor of it");
  std::pair<ProcessGroupPtr, std::vector<ProcessGroupPtr>> result;
  for (int first = 0; first < all->size(); first += size) {
    std::vector<int> ranks;
    for (int r = first; r < first + size; ++r) ranks.push_back(r);
    result.second.push_back(new_group(ranks, options));
    if (result.second.back()->rank() >= 0) result.first = result.second.back();
  }
  return result;
}

int get_rank(const ProcessGroupPtr& group) { return group_or_default(group)->rank(); }
int get_world_size(const ProcessGroupPtr& group) { return group_or_default(group)->size(); }
std::string get_backend(const ProcessGroupPtr& group) { return group_or_default(group)->backend_name(); }
int get_group_rank(const ProcessGroupPtr& group, int global_rank) {
  return group_or_default(group)->group_rank_of(global_rank);
}
int get_global_rank(const ProcessGroupPtr& group, int group_rank) {
  const auto& ranks = group_or_default(group)->global_ranks();
  ATHANOR_CHECK_VALUE(group_rank >= 0 && static_cast<std::size_t>(group_rank) < ranks.size(), "get_global_rank: rank ",
                      group_rank, " in a group of ", ranks.size());
  return ranks[static_cast<std::size_t>(group_rank)];
}
std::vector<int> get_process_group_ranks(const ProcessGroupPtr& group) {
  return group_or_default(group)->global_ranks();
}
int get_node_local_rank() { return launched_local_rank().value_or(-1); }

ThreadWorldGuard::ThreadWorldGuard(ProcessGroupPtr group) : previous_(thread_world) {
  auto* own = new World;
  own->generation = fork_generation();
  own->main = std::move(group);
  thread_world = own;
}

ThreadWorldGuard::~ThreadWorldGuard() {
  delete thread_world;
  thread_world = static_cast<World*>(previous_);
}

void internals::leave_all_groups() noexcept {
  try {
    if (!is_initialized()) return;
    // Whoever still waits for others when the process ends would wait for ever.
    destroy_process_group();
  } catch (const std::exception& error) {
    ATHANOR_LOG(Warning, "at the end of the process: ", error.what());
  }
}

}  // namespace athanor::distributed
