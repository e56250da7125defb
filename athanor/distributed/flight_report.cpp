// How ranks tell each other what they were doing when a group broke.
#include <algorithm>
#include <functional>

#include "athanor/distributed/flight_recorder.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// Who is told at about the same moment as another, by a launcher say, need not ask once more.
constexpr std::chrono::milliseconds kFresh{1000};

std::string state_key(int rank) { return str("flight/", rank); }
std::string question_key(std::uint64_t number) { return str("flight/question/", number); }
std::string answers_prefix(std::uint64_t number) { return str("flight/answers/", number); }

// What crosses the store: the number of the last completed collective, then the line to show.
std::string own_state(const FlightRecorder& recorder) {
  std::uint64_t completed = 0;
  for (const FlightRecord& record : recorder.records())
    if (record.state == CallState::Completed) completed = std::max(completed, record.sequence);
  return str(completed, " ", recorder.state_text());
}

struct RankState {
  bool known = false;
  long long completed = 0;
  std::string line;
};

RankState state_of(const std::string& text) {
  const std::size_t space = std::min(text.find(' '), text.size());
  return {true, std::atoll(text.substr(0, space).c_str()), text.substr(std::min(space + 1, text.size()))};
}

bool contains(const std::vector<int>& ranks, std::size_t rank) {
  return std::find(ranks.begin(), ranks.end(), static_cast<int>(rank)) != ranks.end();
}

std::string merge(const std::vector<RankState>& states, const std::vector<int>& gone,
                  Deadline::Clock::time_point begin) {
  const auto waited = std::chrono::ceil<std::chrono::milliseconds>(Deadline::Clock::now() - begin);
  long long least = -1, most = -1;
  for (const RankState& s : states)
    if (s.known) {
      least = least < 0 ? s.completed : std::min(least, s.completed);
      most = std::max(most, s.completed);
    }
  std::string out = "what the ranks were doing:";
  for (std::size_t r = 0; r < states.size(); ++r) {
    const RankState& s = states[r];
    out += str("\n  rank ", r, ": ");
    if (!s.known && contains(gone, r))
      out += "it is gone";
    else if (!s.known)
      out += str("left no record within ", waited.count(), " ms: it is gone, or busy outside the group's calls");
    else
      out += str(s.line, s.completed == least && least < most ? "  <- behind" : "");
  }
  return out;
}

// False if the store does not take this rank's own.
bool leave(Store& store, const std::string& own, int rank) {
  try {
    store.set(state_key(rank), own);
  } catch (const Error&) {
    return false;
  }
  return true;
}

// Who is known to be gone, and until when the others are waited for: less long once somebody is.
struct Losses {
  std::function<std::vector<int>()> ask;
  std::vector<int> gone;
  Deadline deadline;

  void look(std::chrono::milliseconds patience) {
    if (!gone.empty() || !ask) return;
    gone = ask();
    if (!gone.empty()) deadline = deadline.sooner(Deadline::after(patience));
  }
};

constexpr std::chrono::milliseconds kGonePatience{300}, kAnswer{100};

// Whether the store has what the rank leaves, in time. Looks after the others now and then.
bool has_left(Store& store, std::size_t rank, Losses& losses) {
  const std::string key = state_key(static_cast<int>(rank));
  while (!contains(losses.gone, rank)) {
    const auto turn = std::clamp(losses.deadline.remaining(), std::chrono::milliseconds(1), kAnswer);
    const Deadline half = Deadline::after(turn / 2);
    try {
      store.wait({key}, turn);
      return true;
    } catch (const Error&) {
      if (losses.deadline.expired() || !half.expired()) return false;  // too late, or no matter of time
      losses.look(kAnswer);
    }
  }
  return store.check({key});
}

// What the store has, by the deadline, of the ranks that are not known yet.
void take_left(Store& store, std::vector<RankState>& states, Losses& losses) {
  for (std::size_t r = 0; r < states.size(); ++r) {
    try {
      if (!states[r].known && has_left(store, r, losses))
        states[r] = state_of(store.get_text(state_key(static_cast<int>(r))));
    } catch (const Error&) {
      return;  // the store went with its rank: what is known by now is all there is
    }
  }
}

// Adds what ranks have told each other.
void add_told(std::vector<RankState>& states, const std::vector<std::string>& told) {
  for (std::size_t r = 0; r < states.size(); ++r)
    if (!states[r].known && !told[r].empty()) states[r] = state_of(told[r]);
}

// Whether process_flight_state() says the same: another rank's answer to it then is of this group too. Not so where
// several ranks of the group are threads of one process.
bool speaks_for_its_process(const FlightRecorder& recorder) {
  const FlightRecorder* first = nullptr;
  int members = 0;
  internals::for_each_flight_recorder([&](const FlightRecorder& other) {
    if (first == nullptr) first = &other;
    members += other.group() == recorder.group() ? 1 : 0;
  });
  return first == &recorder && members == 1;
}

}  // namespace

// Of its first group, which is the default one, and of those it is in a call of.
std::string internals::process_flight_state() {
  std::string out;
  internals::for_each_flight_recorder([&](const FlightRecorder& recorder) {
    if (out.empty())
      out = own_state(recorder);
    else if (recorder.current())
      out += str("; in group '", recorder.group(), "' ", recorder.state_text());
  });
  return out.empty() ? "0 in no group" : out;
}

void internals::leave_flight_record(Store& store, const FlightRecorder& recorder) {
  const StoreDeadline limit(Deadline::after(std::chrono::seconds(1)));
  store.set(state_key(recorder.rank()), own_state(recorder));
}

std::string internals::merged_flight_report(Store& store, const FlightRecorder& recorder, int size,
                                            const std::function<std::vector<int>()>& lost,
                                            std::chrono::milliseconds patience, StateTalk* talk) {
  constexpr std::chrono::milliseconds kTalk{300}, kNow{0};
  const auto begin = Deadline::Clock::now();
  Losses losses{lost, {}, Deadline::after(patience)};
  losses.look(kGonePatience);
  const bool loss = !losses.gone.empty();
  const std::string own = own_state(recorder);
  // A store whose server is gone may otherwise keep its callers for as long as its own timeout.
  const StoreDeadline limit(Deadline(losses.deadline.at() + std::chrono::milliseconds(loss ? 100 : 500)));
  std::vector<RankState> states(static_cast<std::size_t>(size));
  states[static_cast<std::size_t>(recorder.rank())] = state_of(own);
  const auto unknown = [&] {
    bool any = false;
    for (std::size_t r = 0; r < states.size(); ++r) any = any || (!states[r].known && !contains(losses.gone, r));
    return any;
  };
  const auto take_told = [&](Deadline until) { add_told(states, talk->told_states(until)); };
  // At once: another rank's store may go any moment, and so may this rank.
  const bool asks = talk && loss && speaks_for_its_process(recorder);
  if (asks) {
    take_told(Deadline::after(kNow));
    talk->ask_states(own);
  } else if (talk) {
    talk->tell_state(own);
  }
  const bool answered = leave(store, own, recorder.rank());
  if (asks) take_told(unknown() ? losses.deadline.sooner(Deadline::after(kAnswer)) : Deadline::after(kNow));
  if (answered) take_left(store, states, losses);
  // Whoever had the whole time has told by now; what was told is here even if its rank has gone since.
  if (talk) {
    const Deadline longer(std::max(losses.deadline.at(), Deadline::after(kTalk).at()));
    take_told(!unknown() ? Deadline::after(kNow) : losses.gone.empty() ? longer : losses.deadline);
  }
  // It went with a rank, whose connections a busy system may have closed by now only.
  if (!answered && unknown()) losses.look(kNow);
  const auto known = std::count_if(states.begin(), states.end(), [](const RankState& s) { return s.known; });
  if (!answered && known == 1)
    return str("what this rank was doing (the store does not answer): ", recorder.state_text());
  return merge(states, losses.gone, begin);
}

std::string internals::merged_flight_report(StateTalk& talk, int rank, int size, const std::vector<int>& gone,
                                            std::chrono::milliseconds patience) {
  const auto begin = Deadline::Clock::now();
  const std::string own = process_flight_state();
  talk.ask_states(own);
  std::vector<RankState> states(static_cast<std::size_t>(size));
  states[static_cast<std::size_t>(rank)] = state_of(own);
  add_told(states, talk.told_states(Deadline::after(patience)));
  return merge(states, gone, begin);
}

internals::FlightQuestions::FlightQuestions(std::shared_ptr<Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {}

std::string internals::FlightQuestions::key() const { return question_key(next_); }

PrefixStore internals::FlightQuestions::answers() const { return {answers_prefix(next_), store_}; }

void internals::FlightQuestions::answer_until(int stop) {
  while (store_->wait_unless({key()}, stop)) {
    asked_by_ = store_->get_text(key());
    answers().set(state_key(rank_), process_flight_state());
    fresh_ = Deadline::after(kFresh);
    ++next_;
  }
}

std::string internals::FlightQuestions::ask(std::chrono::milliseconds patience) {
  const auto begin = Deadline::Clock::now();
  const Deadline deadline = Deadline::after(patience);
  const StoreDeadline limit(Deadline(deadline.at() + std::chrono::milliseconds(500)));
  const std::string own = str("rank ", rank_);
  if (fresh_.expired()) {
    const auto holder = store_->compare_set(key(), {}, Store::Value(own.begin(), own.end()));
    asked_by_.assign(holder.begin(), holder.end());
    PrefixStore here = answers();
    ++next_;
    if (asked_by_ == own) {
      const std::string state = process_flight_state();
      if (!leave(here, state, rank_)) throw DistStoreError("the store does not answer", ATHANOR_WHERE);
      std::vector<RankState> states(static_cast<std::size_t>(size_));
      states[static_cast<std::size_t>(rank_)] = state_of(state);
      Losses none{{}, {}, deadline};
      take_left(here, states, none);
      return merge(states, {}, begin);
    }
    here.set(state_key(rank_), process_flight_state());
    fresh_ = Deadline::after(kFresh);
  }
  return str("what all ranks are doing is told by ", asked_by_);
}

std::string internals::ask_ranks_from_outside(const std::shared_ptr<Store>& store, int size,
                                              const std::vector<int>& gone, const std::string& name,
                                              std::chrono::milliseconds patience) {
  const auto begin = Deadline::Clock::now();
  const Deadline deadline = Deadline::after(patience);
  const StoreDeadline limit(Deadline(deadline.at() + std::chrono::milliseconds(100)));
  // The first question that nobody has asked yet.
  std::uint64_t number = 1;
  while (true) {
    const auto holder = store->compare_set(question_key(number), {}, Store::Value(name.begin(), name.end()));
    if (std::string(holder.begin(), holder.end()) == name) break;
    ++number;
  }
  PrefixStore here(answers_prefix(number), store);
  std::vector<RankState> states(static_cast<std::size_t>(size));
  bool any = false;
  for (int r = 0; r < size; ++r) {
    try {
      const bool lost = std::find(gone.begin(), gone.end(), r) != gone.end();
      if (!lost) here.wait({state_key(r)}, std::max(deadline.remaining(), std::chrono::milliseconds(1)));
      if (lost && !here.check({state_key(r)})) continue;
      states[static_cast<std::size_t>(r)] = state_of(here.get_text(state_key(r)));
      any = true;
    } catch (const DistError&) {  // not there in time; the next one may be
    }
  }
  return any ? merge(states, gone, begin) : std::string();
}

}  // namespace athanor::distributed
