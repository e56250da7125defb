// How ranks tell each other what they were doing when a group broke.
#include <algorithm>
#include <optional>

#include "athanor/distributed/flight_recorder.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// Who is told at about the same moment as another, by a launcher say, need not ask once more.
constexpr std::chrono::milliseconds kFresh{1000};

std::string state_key(int rank) { return str("flight/", rank); }

// What crosses the store: the number of the last completed collective, then the line to show.
std::string own_state(const FlightRecorder& recorder) {
  std::uint64_t completed = 0;
  for (const FlightRecord& record : recorder.records())
    if (record.state == CallState::Completed) completed = std::max(completed, record.sequence);
  return str(completed, " ", recorder.state_text());
}

// The same of a process: of its first group, which is the default one, and of those it is in a call of.
std::string process_state() {
  std::string out;
  internals::for_each_flight_recorder([&](const FlightRecorder& recorder) {
    if (out.empty())
      out = own_state(recorder);
    else if (recorder.current())
      out += str("; in group '", recorder.group(), "' ", recorder.state_text());
  });
  return out.empty() ? "0 in no group" : out;
}

struct RankState {
  bool known = false;
  long long completed = 0;
  std::string line;
};

std::string merge(const std::vector<RankState>& states, const std::vector<int>& gone,
                  std::chrono::milliseconds patience) {
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
    if (!s.known && std::find(gone.begin(), gone.end(), static_cast<int>(r)) != gone.end())
      out += "it is gone";
    else if (!s.known)
      out += str("left no record within ", patience.count(), " ms: it is gone, or busy outside the group's calls");
    else
      out += str(s.line, s.completed == least && least < most ? "  <- behind" : "");
  }
  return out;
}

// Nothing if the store did not take even this rank's own.
std::optional<std::vector<RankState>> exchange(Store& store, const std::string& own, int rank, int size,
                                               const std::vector<int>& gone, Deadline deadline) {
  std::vector<RankState> states(static_cast<std::size_t>(size));
  const auto take = [&states](int r, const std::string& text) {
    const std::size_t space = std::min(text.find(' '), text.size());
    states[static_cast<std::size_t>(r)] = {true, std::atoll(text.substr(0, space).c_str()),
                                           text.substr(std::min(space + 1, text.size()))};
  };
  take(rank, own);
  try {
    store.set(state_key(rank), own);
  } catch (const Error&) {
    return std::nullopt;
  }
  try {
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      const bool lost = std::find(gone.begin(), gone.end(), r) != gone.end();
      try {
        if (!lost)
          store.wait({state_key(r)}, deadline.remaining());
        else if (!store.check({state_key(r)}))
          continue;
      } catch (const Error&) {
        continue;  // not there in time; the next one may be
      }
      take(r, store.get_text(state_key(r)));
    }
  } catch (const Error&) {  // the store went with its rank: what is known by now is all there is
  }
  return states;
}

}  // namespace

void internals::leave_flight_record(Store& store, const FlightRecorder& recorder) {
  const StoreDeadline limit(Deadline::after(std::chrono::seconds(1)));
  store.set(state_key(recorder.rank()), own_state(recorder));
}

std::string internals::merged_flight_report(Store& store, const FlightRecorder& recorder, int size,
                                            const std::vector<int>& gone, std::chrono::milliseconds patience) {
  // A store whose server is gone may otherwise keep its callers for as long as its own timeout.
  const Deadline deadline = Deadline::after(patience);
  const StoreDeadline limit(Deadline(deadline.at() + std::chrono::milliseconds(500)));
  if (const auto states = exchange(store, own_state(recorder), recorder.rank(), size, gone, deadline))
    return merge(*states, gone, patience);
  return str("what this rank was doing (the store does not answer): ", recorder.state_text());
}

internals::FlightQuestions::FlightQuestions(std::shared_ptr<Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {}

std::string internals::FlightQuestions::key() const { return str("flight/question/", next_); }

PrefixStore internals::FlightQuestions::answers() const { return {str("flight/answers/", next_), store_}; }

void internals::FlightQuestions::answer_until(int stop) {
  while (store_->wait_unless({key()}, stop)) {
    asked_by_ = store_->get_text(key());
    answers().set(state_key(rank_), process_state());
    fresh_ = Deadline::after(kFresh);
    ++next_;
  }
}

std::string internals::FlightQuestions::ask(std::chrono::milliseconds patience) {
  const Deadline deadline = Deadline::after(patience);
  const StoreDeadline limit(Deadline(deadline.at() + std::chrono::milliseconds(500)));
  const std::string own = str("rank ", rank_);
  if (fresh_.expired()) {
    const auto holder = store_->compare_set(key(), {}, Store::Value(own.begin(), own.end()));
    asked_by_.assign(holder.begin(), holder.end());
    PrefixStore here = answers();
    ++next_;
    if (asked_by_ == own) {
      const auto states = exchange(here, process_state(), rank_, size_, {}, deadline);
      return states ? merge(*states, {}, patience) : "the store does not answer";
    }
    here.set(state_key(rank_), process_state());
    fresh_ = Deadline::after(kFresh);
  }
  return str("what all ranks are doing is told by ", asked_by_);
}

}  // namespace athanor::distributed
