// Calls whose tensors share memory: the documented forms in place are right over every backend, all others are refused.
#include "athanor/distributed/overlap.h"

#include <gmock/gmock.h>

#include "athanor/distributed/collectives.h"
#include "distributed/conformance.h"
#include "distributed/ranks.h"
#include "distributed/variables.h"

namespace athanor::distributed::overlap_test {
namespace {

using athanor::detail::str;
using testing::AllOf;
using testing::HasSubstr;

struct Setting {
  const char* name;
  const char* backend;
  const char* transport = "auto";
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

class Overlap : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    store_backend::register_once();
    if (!is_backend_available(GetParam().backend)) GTEST_SKIP() << "backend " << GetParam().backend << " is not here";
  }
  static ProcessGroupOptions options() {
    ProcessGroupOptions chosen;
    chosen.backend = GetParam().backend;
    return chosen;
  }
  const ScopedVariable transport_{"ATHANOR_TRANSPORT", GetParam().transport};
};

INSTANTIATE_TEST_SUITE_P(Backends, Overlap,
                         testing::Values(Setting{"tcp", "tcp"}, Setting{"sockets", "tcp", "tcp"},
                                         Setting{"store", "store"}, Setting{"gloo", "gloo"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Overlap, OfARanksOwnPartIsInPlaceAndRight) {
  for (const int ranks : {1, 2, 3}) run_ranks(ranks, conformance::run_in_place, options());
}

// The error, which has to be a ValueError.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ValueError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return str("another error: ", error.what());
  }
  return "no error";
}

void expect_refusals(ProcessGroup& g, std::int64_t n) {
  const int me = g.rank(), other = 1 - me;
  const Tensor big = ones({2 * n}), t = ones({n}), u = ones({n}), crossing = ones({2 * n - 1});
  const auto slot = [&](int r) { return big.narrow(0, r * n, n); };
  const std::vector<Tensor> list = {ones({n}), ones({n})}, apart = {t, u}, slots = {slot(0), slot(1)};
  const std::vector<Tensor> overlapping = {crossing.narrow(0, 0, n), crossing.narrow(0, n - 1, n)};
  const auto refused = [&](const char* op, const std::string& what, const std::function<void()>& call) {
    EXPECT_THAT(refusal(call), AllOf(HasSubstr(str(op, ": on rank ", me)), HasSubstr(what), HasSubstr("clone()")));
  };
  const std::string outputs = "output[0] and output[1] share memory", own = str("[", me, "]"),
                    others = str("[", other, "]");
  refused("all_gather", outputs, [&] { g.all_gather(overlapping, t); });
  refused("all_gather", outputs, [&] { g.all_gather({t, t}, u, true); });
  refused("all_gather", str("output", others, " and the input share"), [&] { g.all_gather(list, list[other]); });
  refused("all_gather", "without being the same elements", [&] {
    std::vector<Tensor> to = {ones({n}), ones({n})};
    to[static_cast<std::size_t>(me)] = overlapping[0];
    g.all_gather(to, overlapping[1]);
  });
  refused("all_gather_into_tensor", "the output and the input", [&] { g.all_gather_into_tensor(big, slot(other)); });
  refused("all_gather_into_tensor", "the output and the input",
          [&] { g.all_gather_into_tensor(big, big.narrow(0, n / 2, n)); });
  refused("reduce_scatter_tensor", "the output", [&] { g.reduce_scatter_tensor(slot(other), big); });
  refused("reduce_scatter", str("the output and input", others), [&] { g.reduce_scatter(list[other], list); });
  refused("reduce_scatter", "the output and input[0] share memory", [&] {
    g.reduce_scatter(crossing.narrow(0, n / 2, n), {crossing.narrow(0, 0, n), u});
  });
  refused("gather", outputs, [&] { g.gather(overlapping, t, me); });
  refused("gather", str("output", others), [&] { g.gather(slots, slot(other), me); });
  refused("scatter", str("the output and input", others, " share"), [&] { g.scatter(list[other], list, me); });
  refused("all_to_all", " share memory. An output", [&] { g.all_to_all(apart, apart); });
  refused("all_to_all", "output[0] and input[1] share memory", [&] { g.all_to_all(apart, {u.clone(), t}); });
  refused("all_to_all", outputs, [&] { g.all_to_all(overlapping, list); });
  refused("all_to_all_single", "the output and the input share", [&] { g.all_to_all_single(big, big); });
}

TEST_P(Overlap, OfAnythingElseIsRefusedBeforeAnythingMoves) {
  run_ranks(
      2,
      [](ProcessGroup& g) {
        for (const std::int64_t n : {4, 100'000}) expect_refusals(g, n);
        const Tensor t = ones({3});
        g.all_reduce(t);
        EXPECT_EQ(t[2].item<float>(), 2) << "the group is usable";
      },
      options());
}

TEST_P(Overlap, OnOneRankDoesNotKeepTheOthersWaiting) {
  const auto before = std::chrono::steady_clock::now();
  ProcessGroupOptions chosen = options();
  chosen.timeout = std::chrono::seconds(100);
  const RankErrors errors = errors_of_ranks(
      2,
      [](ProcessGroup& g) {
        const Tensor big = ones({8});
        g.reduce_scatter_tensor(big.narrow(0, 0, 4), big);  // rank 1's part is the other half
      },
      chosen);
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));
  EXPECT_THAT(errors[1], HasSubstr("reduce_scatter_tensor: on rank 1, the input and the output share memory"));
  EXPECT_THAT(errors[1], HasSubstr("elements 4 to 7"));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(50));
}

TEST_P(Overlap, IsNotSeenInColumnsOfOneMatrix) {
  run_ranks(
      2,
      [](ProcessGroup& g) {
        const Tensor m = zeros({5, 4});
        g.all_gather({m.narrow(1, 0, 2), m.narrow(1, 2, 2)}, full({5, 2}, g.rank() + 1.0));
        EXPECT_EQ(m.sum().item<float>(), 30);
        EXPECT_EQ(m[4][3].item<float>(), 2);
        const Tensor halves = arange(8).to(kFloat);
        g.all_to_all_single(halves.narrow(0, 4, 4), halves.narrow(0, 0, 4));
        EXPECT_EQ(halves[4].item<float>(), 2.0f * g.rank());
        EXPECT_EQ(halves[6].item<float>(), 2.0f * g.rank());
      },
      options());
}

TEST(MayShareMemory, AgreesWithMarkingEveryElement) {
  const Tensor base = arange(120).to(kInt);
  std::vector<Tensor> views;
  for (const std::int64_t offset : {0, 1, 2, 3, 7, 12, 30, 60})
    for (const std::int64_t step : {1, 2, 3, 4, 12})
      for (const std::int64_t count : {0, 1, 2, 5})
        for (const std::int64_t width : {1, 2, 3}) views.push_back(base.as_strided({count, width}, {step, 1}, offset));
  views.push_back(base.view({10, 12}).t().narrow(0, 3, 2));
  views.push_back(base.view({2, 5, 12}).select(1, 2));
  views.push_back(base.view({10, 12}).diagonal(2));
  std::size_t spared = 0, doubtful = 0;
  for (const Tensor& a : views)
    for (const Tensor& b : views) {
      std::vector<bool> marked(120);
      bool meet = false;
      const Tensor x = a.contiguous(), y = b.contiguous();
      for (std::int64_t i = 0; i < x.numel(); ++i) marked[static_cast<std::size_t>(x.data_ptr<int>()[i])] = true;
      for (std::int64_t i = 0; i < y.numel(); ++i)
        meet = meet || marked[static_cast<std::size_t>(y.data_ptr<int>()[i])];
      if (meet) {
        ASSERT_TRUE(may_share_memory(a, b)) << a << " and " << b;
      }
      if (!meet && !may_share_memory(a, b)) ++spared;
      if (!meet && may_share_memory(a, b)) ++doubtful;
    }
  EXPECT_GT(spared, 10 * doubtful);
  EXPECT_FALSE(may_share_memory(ones({4}), ones({4})));
}

TEST(OverlapOfCoalesced, OutputsIsRefusedAndInputsAreCopiedBefore) {
  run_ranks(2, [](ProcessGroup& g) {
    const ProcessGroupPtr group(ProcessGroupPtr(), &g);
    const Tensor t = ones({4}), u = ones({4}), big = full({8}, g.rank() + 1.0);
    EXPECT_THAT(refusal([&] {
                  all_gather_coalesced({{t, u}, {u, ones({4})}}, {t, t}, group);
                }),
                HasSubstr("output[0][1] and output[1][0] share memory"));
    EXPECT_THAT(refusal([&] {
                  all_gather_into_tensor_coalesced({big, big}, {t, u}, group);
                }),
                HasSubstr("output[0] and output[1] share memory"));
    EXPECT_THAT(refusal([&] {
                  reduce_scatter_tensor_coalesced({t, t}, {big, big}, ReduceOp::SUM, group);
                }),
                HasSubstr("output[0] and output[1] share memory"));
    all_gather_into_tensor_coalesced({big}, {big.narrow(0, 2, 4)}, group);
    EXPECT_EQ(big[0].item<float>(), 1);
    EXPECT_EQ(big[7].item<float>(), 2);
  });
}

}  // namespace
}  // namespace athanor::distributed::overlap_test
