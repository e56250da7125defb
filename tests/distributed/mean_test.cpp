// AVG where the values of a host are combined before they cross the network.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "athanor/distributed/process_group.h"
#include "athanor/ops/tensor.h"
#include "tests/distributed/processes.h"
#include "tests/distributed/served_store.h"
#include "tests/distributed/transports.h"

namespace athanor::distributed::mean_test {
namespace {

using athanor::detail::str;

constexpr int kRanks = 3;

void run_mixed(const std::function<void(ProcessGroup&)>& body) {
  const ServedStore store;
  const auto ends = run_processes(kRanks, [&](int rank) {
    set_transport(kMixed, rank);
    ProcessGroupOptions options;
    options.rank = rank;
    options.size = kRanks;
    options.name = "mean";
    options.timeout = std::chrono::seconds(20);
    ProcessGroup group(store.connect(), options);
    body(group);
    group.barrier();
  });
  for (std::size_t rank = 0; rank < ends.size(); ++rank)
    EXPECT_TRUE(ends[rank].good()) << "rank " << rank << ": " << ends[rank].error;
}

template <class T>
Tensor make(std::int64_t count, const std::function<float(std::int64_t)>& value) {
  Tensor t = empty({count}, dtype_of_v<T>);
  for (std::int64_t i = 0; i < count; ++i) t.data_ptr<T>()[i] = T(value(i));
  return t;
}

// The bits of `got` must be those of `wanted(i)`.
template <class T>
void expect_bits(const Tensor& got, const std::function<T(std::int64_t)>& wanted, const std::string& what) {
  using Bytes = std::array<std::byte, sizeof(T)>;
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    const T want = wanted(i), have = got.data_ptr<T>()[i];
    ATHANOR_CHECK(std::bit_cast<Bytes>(have) == std::bit_cast<Bytes>(want), what, " of ", got.dtype(), " ", got.numel(),
                  ": element ", i, " is ", static_cast<float>(have), ", expected ", static_cast<float>(want));
  }
}

// Means of value(rank, i) by every collective that has them; the root of reduce and the sizes of parts vary.
template <class T>
void check_means(ProcessGroup& g, std::int64_t count, const std::function<float(int, std::int64_t)>& value,
                 const std::function<T(std::int64_t)>& mean) {
  const auto own = [&](std::int64_t n, std::int64_t from) {
    return make<T>(n, [&](std::int64_t i) { return value(g.rank(), from + i); });
  };
  const Tensor all = own(count, 0);
  g.all_reduce(all, ReduceOp::AVG);
  expect_bits<T>(all, mean, "all_reduce");
  for (int root = 0; root < kRanks; ++root) {
    const Tensor t = own(count, 0), before = t.clone();
    g.reduce(t, root, ReduceOp::AVG);
    if (g.rank() == root)
      expect_bits<T>(t, mean, str("reduce to rank ", root));
    else
      ATHANOR_CHECK(t.equal(before), "reduce to rank ", root, " changed the values of rank ", g.rank());
  }
  std::vector<Tensor> parts;
  for (int r = 0; r < kRanks; ++r) parts.push_back(own(count + r, r));
  const Tensor part = empty({count + g.rank()}, dtype_of_v<T>);
  g.reduce_scatter(part, parts, ReduceOp::AVG);
  expect_bits<T>(
      part, [&](std::int64_t i) { return mean(g.rank() + i); }, "reduce_scatter");
}

TEST(MeanAcrossHosts, OfHalvesIsRightWhereTheSumOfAHostIsNoHalf) {
  run_mixed([](ProcessGroup& g) {
    for (const std::int64_t count : {1, 13, 70'001})
      check_means<Half>(
          g, count, [](int, std::int64_t i) { return i % 2 == 0 ? 40000.0F : -65504.0F; },
          [](std::int64_t i) { return Half(i % 2 == 0 ? 40000.0F : -65504.0F); });
  });
}

template <class T>
void check_division_comes_last(ProcessGroup& g) {
  const auto value = [](int rank, std::int64_t i) {
    return static_cast<float>(((rank + 3) * 7919 + i * 104'729) % 1000 - 500) / 7;
  };
  // Ranks 0 and 2 share a host.
  const auto mean = [&](std::int64_t i) {
    const auto of = [&](int rank) { return static_cast<float>(T(value(rank, i))); };
    const T host = T(of(0) + of(2));
    return T((static_cast<float>(host) + of(1)) / kRanks);
  };
  for (const std::int64_t count : {1, 13, 70'001}) check_means<T>(g, count, value, mean);
}

TEST(MeanAcrossHosts, HasTheBitsOfASumThatIsDividedAtTheEnd) {
  run_mixed([](ProcessGroup& g) {
    check_division_comes_last<float>(g);
    check_division_comes_last<BFloat16>(g);
    check_division_comes_last<Half>(g);
  });
}

// Each of the two hosts is off by half a unit at most, their sum then is divided by 3/2 and rounded once more.
TEST(MeanAcrossHosts, OfTheLeastHalvesIsOffByNoMoreThanTheRoundingOfEachHost) {
  run_mixed([](ProcessGroup& g) {
    constexpr double kUnit = 1.0 / (1 << 24), kOff = (2 * 0.5) / 1.5 + 0.5;
    const auto units = [](int rank, std::int64_t i) { return static_cast<int>((rank * 7919 + i * 389) % 2000) - 1000; };
    for (const std::int64_t count : {1, 13, 70'001}) {
      const auto check = [&](const Tensor& got, const char* what) {
        for (std::int64_t i = 0; i < count; ++i) {
          const double mean = (units(0, i) + units(1, i) + units(2, i)) / 3.0;
          const double have = static_cast<float>(got.data_ptr<Half>()[i]) / kUnit;
          ATHANOR_CHECK(std::abs(have - mean) <= kOff + 1e-9, what, " of ", count, ": element ", i, " is ", have,
                        " units, the mean is ", mean);
        }
      };
      const auto own = [&] {
        return make<Half>(count, [&](std::int64_t i) { return static_cast<float>(units(g.rank(), i) * kUnit); });
      };
      const Tensor everywhere = own(), at_root = own();
      g.all_reduce(everywhere, ReduceOp::AVG);
      check(everywhere, "all_reduce");
      g.reduce(at_root, 1, ReduceOp::AVG);
      if (g.rank() == 1) check(at_root, "reduce");
    }
  });
}

}  // namespace
}  // namespace athanor::distributed::mean_test
