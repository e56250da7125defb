#include "athanor/distributed/transport/setup_notes.h"

#include <algorithm>
#include <thread>

#include "athanor/base/log.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// As many notes as an error message quotes.
constexpr int kMostNotes = 8;

std::string waits_key(int rank) { return str("setup/waits/", rank); }
std::string gave_up_key(int rank) { return str("setup/gave_up/", rank); }

}  // namespace

SetupNotes::SetupNotes(std::shared_ptr<Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {}

template <class F>
void SetupNotes::ask(F&& request) noexcept {
  if (!store_) return;
  try {
    const StoreDeadline limit(Deadline::after(std::chrono::seconds(1)));
    request();
  } catch (const std::exception& error) {
    ATHANOR_LOG(Debug, "no more notes about the making of the group: ", error.what());
    store_ = nullptr;
  }
}

std::string SetupNotes::left(const std::string& key) { return store_->check({key}) ? store_->get_text(key) : ""; }

void SetupNotes::waits_for(int rank) noexcept {
  if (rank == told_) return;
  told_ = rank;
  ask([&] { store_->set(waits_key(rank_), rank < 0 ? "" : std::to_string(rank)); });
}

void SetupNotes::gave_up(const std::string& reason) noexcept {
  ask([&] { store_->set(gave_up_key(rank_), reason); });
}

bool SetupNotes::has_given_up(int rank) noexcept {
  bool found = false;
  ask([&] { found = store_->check({gave_up_key(rank)}); });
  return found;
}

void SetupNotes::let_all_give_up(const std::vector<int>& gone) noexcept {
  const Deadline grace = Deadline::after(std::chrono::seconds(1));
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || std::count(gone.begin(), gone.end(), r) != 0) continue;
    while (store_ && !has_given_up(r) && !grace.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::string SetupNotes::of_others() noexcept {
  std::string all;
  int count = 0;
  ask([&] {
    for (int r = 0; r < size_ && count < kMostNotes; ++r) {
      if (r == rank_) continue;
      const std::string reason = left(gave_up_key(r)), whom = reason.empty() ? left(waits_key(r)) : "";
      if (reason.empty() && whom.empty()) continue;
      all += str(count++ > 0 ? "; " : "", "rank ", r,
                 reason.empty() ? " waits for rank " : " gave up: ", reason.empty() ? whom : reason);
    }
  });
  return all;
}

}  // namespace athanor::distributed
