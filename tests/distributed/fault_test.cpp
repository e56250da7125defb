// Ranks that die or hang at a random moment: the others end by themselves, say who it was, and leave nothing behind.
#include "tests/distributed/faults.h"

#include "athanor/distributed/backend.h"
#include "athanor/ops/tensor.h"

namespace athanor::distributed {
namespace {

// The same random calls on every rank, until something goes wrong or all is done.
void work(const ProcessGroupPtr& shared, unsigned seed) {
  ProcessGroup& group = *shared;
  std::mt19937 random(seed);
  const int n = group.size(), me = group.rank();
  for (int i = 0; i < 400; ++i) {
    // A few are so large that they are read from the other's memory.
    const auto count = static_cast<std::int64_t>(1) << (random() % 16 == 0 ? 22 : random() % 18);
    const int root = static_cast<int>(random() % static_cast<unsigned>(n));
    Tensor x = ones({count}), y = empty({count * n});
    switch (random() % 6) {
      case 0:
        group.all_reduce(x);
        break;
      case 1:
        group.broadcast(x, root);
        break;
      case 2:
        group.all_gather_into_tensor(y, x);
        break;
      case 3:
        group.reduce_scatter_tensor(x, y.zero_());
        break;
      case 4: {
        Tensor z = empty({count});
        const WorkPtr sent = group.isend(x, (me + 1) % n), received = group.irecv(z, (me + n - 1) % n);
        received->wait();
        sent->wait();
        break;
      }
      default:
        group.all_reduce(x, ReduceOp::MAX, true)->wait();
        break;
    }
  }
}

TEST(Faults, SurvivorsOfARandomFaultNameTheRankAndEnd) { faults::run_with_faults(16, work); }

// Rank 3 hangs on the stopped rank 1, and rank 2, which has all it needs of rank 1, waits for rank 3.
TEST(Faults, WhoeverWaitsForARankThatIsHeldUpNamesTheOneThatHoldsItUp) {
  TCPStoreOptions server;
  server.port = 0;
  server.is_server = true;
  const TCPStore store("127.0.0.1", server);
  constexpr int kRanks = 4, kStopped = 1, kLate = 3;
  const auto ends = run_processes(
      kRanks,
      [&](int rank) {
        ::setenv("ATHANOR_TRANSPORT", "tcp", 1);
        TCPStoreOptions client;
        client.port = store.port();
        BackendOptions options;
        options.store = std::make_shared<TCPStore>("127.0.0.1", client);
        options.rank = rank;
        options.size = kRanks;
        options.group_name = "held up";
        options.timeout = std::chrono::milliseconds(rank == kLate ? 30'000 : 10'000);
        if (rank == kStopped) options.store->set("pid", std::to_string(::getpid()));
        if (rank == kLate) {
          // The others only need to see some card of the last rank to go as far as they can without it.
          std::istringstream words(options.store->get_text("mesh/0"));
          std::string network, host, rest;
          words >> network >> host;
          std::getline(words, rest);
          options.store->set("mesh/3", faults::str(network, " ", network, "/", rank, rest));
          for (int r = 0; r < kLate; ++r)
            while (options.store->get_text(faults::str("setup/waits/", r)) != std::to_string(kLate)) ::usleep(5'000);
          ::kill(std::stoi(options.store->get_text("pid")), SIGSTOP);
        }
        make_backend("tcp", options);
      },
      std::chrono::seconds(40), {}, kStopped);
  for (const int rank : {0, 2, 3}) {
    EXPECT_FALSE(ends[static_cast<std::size_t>(rank)].good()) << "rank " << rank;
    EXPECT_NE(ends[static_cast<std::size_t>(rank)].error.find("rank 1"), std::string::npos)
        << "rank " << rank << ": " << ends[static_cast<std::size_t>(rank)].error;
  }
}

}  // namespace
}  // namespace athanor::distributed
