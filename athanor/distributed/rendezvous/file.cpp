// file:///path — a file that all processes see.
#include "athanor/distributed/error.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/store/file_store.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// "2 of 4 processes came (rank 1 and 1 without a rank; not claimed: rank 0, 2, 3)".
std::string who_came(Store& store, int world_size) {
  const StoreDeadline limit(Deadline::after(std::chrono::seconds(1)));
  const auto here = static_cast<int>(store.add("rendezvous/here", 0));
  std::string came, missing;
  int given = 0;
  for (int r = 0; r < world_size; ++r) {
    const bool known = store.check({str("rendezvous/given/", r)});
    given += known ? 1 : 0;
    std::string& list = known ? came : missing;
    list += str(list.empty() ? "rank " : ", ", r);
  }
  std::string text = str(here, " of ", world_size, " processes came");
  if (given == 0) return text;
  if (here > given) came += str(" and ", here - given, " without a rank");
  return text + str(" (", came, "; ", here > given ? "not claimed: " : "missing: ", missing, ")");
}

}  // namespace

RendezvousResult meeting::rendezvous_file(const RendezvousUrl& url, const RendezvousOptions& options) {
  ATHANOR_CHECK_VALUE(!url.path.empty() && url.location.empty(), "init_method '", url.text,
                      "': expected file:///absolute/path");
  check_rank(url, options, true);
  const Deadline deadline = Deadline::after(options.timeout);
  std::shared_ptr<Store> store = std::make_shared<FileStore>(url.path, options.timeout);
  store = std::make_shared<PrefixStore>(str("athanor/", options.group_name), store);
  const std::string how = str("init_method '", url.text, "'");
  const std::int64_t number = store->add("rendezvous/come", 1);
  // Who comes after all have come belongs to the next meeting, if somebody has left this one; else it is one too many.
  const std::int64_t meeting = (number - 1) / options.world_size;
  if (meeting > 0 && !store->check({str("meeting/", meeting - 1, "/left")}))
    throw DistError(
        str(how, ": process number ", number - (meeting - 1) * options.world_size, " of a world of ",
            options.world_size, ": another job uses this file and group_name, or too many processes were started"),
        ATHANOR_WHERE);
  store = std::make_shared<PrefixStore>(str("meeting/", meeting), store);
  int rank = options.rank;
  // Given ranks are announced first, so that the others fill the gaps: everyone without a rank waits until the number
  // of those with one, and of those without, is the whole world.
  if (rank >= 0) store->add(str("rendezvous/given/", rank), 1);
  if (store->add("rendezvous/here", 1) == options.world_size) store->set("rendezvous/all", "1");
  try {
    store->wait({"rendezvous/all"}, deadline.remaining());
  } catch (const DistError&) {
    throw DistError(str(how, ": ", who_came(*store, options.world_size), " before the deadline"), ATHANOR_WHERE);
  }
  if (rank < 0) {
    // The n-th of those without a rank takes the n-th rank nobody asked for.
    std::int64_t place = store->add("rendezvous/unranked", 1);
    for (int r = 0; r < options.world_size && place > 0; ++r) {
      if (store->check({str("rendezvous/given/", r)})) continue;
      --place;
      rank = r;
    }
    if (place > 0)
      throw DistError(str(how, ": more processes than the ", options.world_size, " ranks of the world"), ATHANOR_WHERE);
  }
  const Place place = claim_place(*store, rank, options.world_size, deadline, how);
  meet_all(*store, place, rank, options.world_size, deadline, how);
  return {store, rank, options.world_size, [store] { store->set("left", "1"); }};
}

}  // namespace athanor::distributed
