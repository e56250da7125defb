#pragma once
/// SetupNotes: what the ranks of a group leave for each other in the store while the group is being built. A rank that
/// is held up holds up others; with the notes the error of each of them names who began it, not only the next in line.

#include <memory>
#include <string>
#include <vector>

#include "athanor/distributed/store/store.h"

namespace athanor::distributed {

/// Used by one thread. A store that does not answer is left alone: nothing here throws, or waits longer than a second.
class SetupNotes {
 public:
  SetupNotes(std::shared_ptr<Store> store, int rank, int size);

  /// This rank has been waiting for `rank` for a while; -1: no longer. To be repeated as long as it lasts.
  void waits_for(int rank) noexcept;
  void gave_up(const std::string& reason) noexcept;
  /// Whether that rank has said so.
  bool has_given_up(int rank) noexcept;
  /// The store goes with this process: lets all but the ranks in `gone` find out by themselves, for a second.
  void let_all_give_up(const std::vector<int>& gone) noexcept;
  /// "rank 3 waits for rank 1; rank 0 gave up: …"; empty if nobody has left a note.
  std::string of_others() noexcept;

 private:
  template <class F>
  void ask(F&& request) noexcept;
  std::string left(const std::string& key);

  std::shared_ptr<Store> store_;
  int rank_, size_, told_ = -1;
};

}  // namespace athanor::distributed
