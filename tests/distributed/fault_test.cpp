// Ranks that die or hang at a random moment: the others end by themselves, say who it was, and leave nothing behind.
#include "tests/distributed/faults.h"

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

}  // namespace
}  // namespace athanor::distributed
