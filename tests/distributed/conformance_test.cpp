// The conformance suite over the backends and numbers of ranks.
#include "distributed/conformance.h"

#include <gmock/gmock.h>

#include "distributed/ranks.h"
#include "distributed/variables.h"

namespace athanor::distributed {
namespace {

struct Setting {
  const char* backend;
  int ranks;
  const char* transport = "auto";
};

class Conformance : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    store_backend::register_once();
    if (!is_backend_available(GetParam().backend)) GTEST_SKIP() << "backend " << GetParam().backend << " is not here";
  }
  static void run(void (*checks)(ProcessGroup&)) {
    const ScopedVariable transport("ATHANOR_TRANSPORT", GetParam().transport);
    ProcessGroupOptions options;
    options.backend = GetParam().backend;
    run_ranks(GetParam().ranks, checks, options);
  }
};
using ConformanceOfLarge = Conformance;

TEST_P(Conformance, AllCollectivesGiveWhatPlainLoopsGive) { run(conformance::run_all); }

TEST_P(ConformanceOfLarge, ReductionsInSeveralChunksGiveWhatPlainLoopsGive) { run(conformance::run_large); }

INSTANTIATE_TEST_SUITE_P(Store, Conformance,
                         testing::Values(Setting{"store", 1}, Setting{"store", 2}, Setting{"store", 3},
                                         Setting{"store", 4}),
                         [](const auto& info) { return athanor::detail::str("ranks", info.param.ranks); });

INSTANTIATE_TEST_SUITE_P(Tcp, Conformance,
                         testing::Values(Setting{"tcp", 1}, Setting{"tcp", 2}, Setting{"tcp", 3}, Setting{"tcp", 4},
                                         Setting{"tcp", 8}),
                         [](const auto& info) { return athanor::detail::str("ranks", info.param.ranks); });

INSTANTIATE_TEST_SUITE_P(TcpSockets, Conformance,
                         testing::Values(Setting{"tcp", 1, "tcp"}, Setting{"tcp", 2, "tcp"}, Setting{"tcp", 3, "tcp"},
                                         Setting{"tcp", 4, "tcp"}, Setting{"tcp", 8, "tcp"}),
                         [](const auto& info) { return athanor::detail::str("ranks", info.param.ranks); });

INSTANTIATE_TEST_SUITE_P(Gloo, Conformance,
                         testing::Values(Setting{"gloo", 1}, Setting{"gloo", 2}, Setting{"gloo", 3}, Setting{"gloo", 4},
                                         Setting{"gloo", 8}),
                         [](const auto& info) { return athanor::detail::str("ranks", info.param.ranks); });

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfLarge,
                         testing::Values(Setting{"tcp", 2}, Setting{"tcp", 3}, Setting{"tcp", 2, "tcp"},
                                         Setting{"tcp", 3, "tcp"}, Setting{"gloo", 2}, Setting{"gloo", 3}),
                         [](const auto& info) {
                           const Setting& s = info.param;
                           const bool sockets = s.transport == std::string("tcp");
                           return athanor::detail::str(s.backend, sockets ? "_sockets" : "", s.ranks);
                         });

// A backend that adds 1 to one element of one rank's result.
class WrongBackend final : public store_backend::StoreBackend {
 public:
  using StoreBackend::StoreBackend;
  void all_reduce(const Call& call, Span data, const ReduceOp& op) override {
    StoreBackend::all_reduce(call, data, op);
    if (rank() == 1 && data.dtype == kInt && data.count == 17) static_cast<int*>(data.data)[16] += 1;
  }
};

TEST(ConformanceSuite, FindsOneWrongElement) {
  register_backend("wrong", [](const BackendOptions& options) { return std::make_unique<WrongBackend>(options); });
  ProcessGroupOptions options;
  options.backend = "wrong";
  const RankErrors errors = errors_of_ranks(
      2, [](ProcessGroup& group) { conformance::checks()[1].run(group, kInt); }, options);
  EXPECT_THAT(errors[1], testing::HasSubstr("all_reduce(SUM) of 17 int32: element 16 is"));
}

}  // namespace
}  // namespace athanor::distributed
