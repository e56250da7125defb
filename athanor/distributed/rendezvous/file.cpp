// file:///path — a file that all processes see.
#include "athanor/distributed/error.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/store/file_store.h"

namespace athanor::distributed {

using athanor::detail::str;

RendezvousResult meeting::rendezvous_file(const RendezvousUrl& url, const RendezvousOptions& options) {
  ATHANOR_CHECK_VALUE(!url.path.empty() && url.location.empty(), "init_method '", url.text,
                      "': expected file:///absolute/path");
  check_rank(url, options, true);
  const Deadline deadline = Deadline::after(options.timeout);
  std::shared_ptr<Store> store = std::make_shared<FileStore>(url.path, options.timeout);
  store = std::make_shared<PrefixStore>(str("athanor/", options.group_name), store);
  int rank = options.rank;
  // Given ranks are announced first, so that the others fill the gaps: everyone without a rank waits until the number
  // of those with one, and of those without, is the whole world.
  const std::string how = str("init_method '", url.text, "'");
  if (rank >= 0) {
    store->add(str("rendezvous/given/", rank), 1);
  }
  const std::int64_t come = store->add("rendezvous/come", 1);
  if (come > options.world_size)
    throw DistError(str(how, ": process number ", come, " of a world of ", options.world_size,
                        ": another job uses this file and group_name, or too many processes were started"),
                    ATHANOR_WHERE);
  if (come == options.world_size) store->set("rendezvous/all", "1");
  try {
    store->wait({"rendezvous/all"}, deadline.remaining());
  } catch (const DistError&) {
    throw DistError(str(how, ": ", store->add("rendezvous/come", 0), " of ", options.world_size,
                        " processes came before the deadline"),
                    ATHANOR_WHERE);
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
  meet_all(*store, rank, options.world_size, deadline, how);
  return {store, rank, options.world_size};
}

}  // namespace athanor::distributed
