// Who can read the store, but does not know the job's secret.
#include <gtest/gtest.h>

#include <future>
#include <sstream>

#include "athanor/distributed/error.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/store/file_store.h"
#include "athanor/distributed/transport/greeter.h"
#include "distributed/helpers.h"
#include "distributed/variables.h"

namespace athanor::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Knocks as rank 1 at the door of rank 0.
Socket knock(const std::string& key, const std::string& unix_name, Deadline deadline) {
  Greeter guest(1, 2);
  guest.open(
      key, [] { return std::string(); }, [](int) {});
  return guest.call({Address::abstract_unix(unix_name)}, 0, Line::Control, 0, deadline);
}

TEST(JobSecret, OfTheEnvironmentIsNeededBesideTheStoreToConnectWithARank) {
  const ScopedVariable secret("ATHANOR_JOB_SECRET", "a secret of the job");
  const TemporaryFolder folder;
  RendezvousOptions options;
  options.world_size = 2;
  options.timeout = seconds(40);
  const auto meet = [&](int rank) {
    RendezvousOptions own = options;
    own.rank = rank;
    return rendezvous("file://" + folder / "store", own).store;
  };
  auto other = std::async(std::launch::async, [&] { return meet(1); });
  std::string error;
  auto member = std::async(std::launch::async, [&] {
    ProcessGroupOptions wanted;
    wanted.rank = 0;
    wanted.size = 2;
    wanted.name = "group";
    wanted.timeout = options.timeout;
    try {
      const ProcessGroup group(meet(0), wanted);
    } catch (const DistError& failed) {
      error = failed.what();
    }
  });
  const std::shared_ptr<Store> store = other.get();
  const std::string card = store->get_text("group/backend/mesh/0");
  std::string network, host, unix_name, token;
  std::istringstream(card) >> network >> host >> unix_name >> token;
  store->set("group/backend/mesh/1", card);

  const Deadline soon = Deadline::after(milliseconds(500)), late = Deadline::after(options.timeout);
  EXPECT_THROW(knock("/" + token, unix_name, soon), DistNetworkError);
  EXPECT_TRUE(knock("a secret of the job/" + token, unix_name, late));  // and hangs up
  member.get();
  EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
}

}  // namespace
}  // namespace athanor::distributed
