// The native backend by itself, ranks being processes: every collective, over shared memory, over TCP, and mixed.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "athanor/distributed/backend/native.h"
#include "athanor/distributed/store/tcp_store.h"
#include "tests/distributed/native_ranks.h"

namespace athanor::distributed {
namespace {

std::vector<std::int64_t> sizes() { return {0, 1, 7, 12, 13, 1000, 4099, 70'001, 300'000, 1'500'003}; }

// Small integers, so that float sums are exact; different everywhere.
template <class T>
T value(int rank, std::int64_t i) {
  return static_cast<T>((rank * 7 + i * 3) % 11);
}
template <class T>
std::vector<T> values(int rank, std::int64_t n, std::int64_t from = 0) {
  std::vector<T> v(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) v[static_cast<std::size_t>(i)] = value<T>(rank, from + i);
  return v;
}
template <class T>
Span span_of(std::vector<T>& v) {
  return {v.data(), static_cast<std::int64_t>(v.size()), dtype_of_v<T>};
}
template <class T>
void expect_equal(const std::vector<T>& got, const std::vector<T>& wanted, const std::string& what) {
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ATHANOR_CHECK(got[i] == wanted[i], what, ": element ", i, " of ", wanted.size(), " is ",
                  static_cast<double>(got[i]), ", expected ", static_cast<double>(wanted[i]));
}
template <class T>
std::vector<T> sum_of_all(int ranks, std::int64_t n, std::int64_t from = 0) {
  std::vector<T> sum(static_cast<std::size_t>(n));
  for (int r = 0; r < ranks; ++r)
    for (std::int64_t i = 0; i < n; ++i)
      sum[static_cast<std::size_t>(i)] = static_cast<T>(sum[static_cast<std::size_t>(i)] + value<T>(r, from + i));
  return sum;
}

TEST_P(NativeBackend, AllReduceSumsEverySize) {
  run([](Rank& me) {
    for (const std::int64_t n : sizes()) {
      auto floats = values<float>(me.me(), n);
      me.backend->all_reduce(me.call(OpType::AllReduce, n, kFloat), span_of(floats), ReduceOp::SUM);
      expect_equal(floats, sum_of_all<float>(me.size(), n), str("float sum of ", n));
      auto longs = values<std::int64_t>(me.me(), n);
      me.backend->all_reduce(me.call(OpType::AllReduce, n, kLong), span_of(longs), ReduceOp::SUM);
      expect_equal(longs, sum_of_all<std::int64_t>(me.size(), n), str("long sum of ", n));
    }
  });
}

// Of many chunks, the last one short, at different alignments, with others that use the same memory in between.
TEST_P(NativeBackend, LongSumsMayStartAnywhereAndFollowEachOther) {
  run([](Rank& me) {
    constexpr std::int64_t kMany = 2'300'011;
    for (int round = 0; round < 3; ++round) {
      const std::int64_t skip = (me.me() + round) % 3, n = kMany + 131'072 * round;
      auto floats = values<float>(me.me() + round, n + skip, -skip);
      const Span part{floats.data() + skip, n, kFloat};
      me.backend->all_reduce(me.call(OpType::AllReduce, n, kFloat), part, round == 2 ? ReduceOp::AVG : ReduceOp::SUM);
      std::vector<float> wanted(static_cast<std::size_t>(n));
      for (std::int64_t i = 0; i < n; ++i) {
        for (int r = 0; r < me.size(); ++r) wanted[static_cast<std::size_t>(i)] += value<float>(r + round, i);
        if (round == 2) wanted[static_cast<std::size_t>(i)] /= static_cast<float>(me.size());
      }
      for (std::int64_t i = 0; i < skip; ++i)
        ATHANOR_CHECK(floats[static_cast<std::size_t>(i)] == value<float>(me.me() + round, i - skip),
                      "before the data");
      floats.erase(floats.begin(), floats.begin() + skip);
      expect_equal(floats, wanted, str("round ", round));
      for (const std::int64_t few : {3, 50'000, 600'000}) {
        auto longs = values<std::int64_t>(me.me(), few);
        me.backend->all_reduce(me.call(OpType::AllReduce, few, kLong), span_of(longs), ReduceOp::SUM);
        expect_equal(longs, sum_of_all<std::int64_t>(me.size(), few), str("sum of ", few, " after a long one"));
      }
    }
  });
}

TEST_P(NativeBackend, BroadcastFromEveryRoot) {
  run([](Rank& me) {
    for (const std::int64_t n : sizes())
      for (int root = 0; root < me.size(); ++root) {
        auto data = values<std::int32_t>(me.me(), n);
        me.backend->broadcast(me.call(OpType::Broadcast, n, kInt, root), span_of(data), root);
        expect_equal(data, values<std::int32_t>(root, n), str("broadcast of ", n, " from ", root));
      }
  });
}

TEST_P(NativeBackend, ReduceLeavesTheOthersDataAlone) {
  run([](Rank& me) {
    for (const std::int64_t n : sizes())
      for (int root = 0; root < me.size(); ++root) {
        auto data = values<double>(me.me(), n);
        me.backend->reduce(me.call(OpType::Reduce, n, kDouble, root), span_of(data), ReduceOp::SUM, root);
        expect_equal(data, me.me() == root ? sum_of_all<double>(me.size(), n) : values<double>(me.me(), n),
                     str("reduce of ", n, " to ", root));
      }
  });
}

TEST_P(NativeBackend, GathersAndScatters) {
  run([](Rank& me) {
    const int ranks = me.size();
    for (const std::int64_t n : sizes()) {
      auto in = values<std::int16_t>(me.me(), n);
      std::vector<std::vector<std::int16_t>> out(static_cast<std::size_t>(ranks), std::vector<std::int16_t>(in.size()));
      std::vector<Span> parts;
      for (auto& part : out) parts.push_back(span_of(part));
      me.backend->all_gather(me.call(OpType::AllGather, n, kShort), parts, span_of(in));
      for (int r = 0; r < ranks; ++r)
        expect_equal(out[static_cast<std::size_t>(r)], values<std::int16_t>(r, n), str("all_gather of ", n));
      for (int root = 0; root < ranks; ++root) {
        for (auto& part : out) std::fill(part.begin(), part.end(), std::int16_t{-1});
        me.backend->gather(me.call(OpType::Gather, n, kShort, root), parts, span_of(in), root);
        for (int r = 0; me.me() == root && r < ranks; ++r)
          expect_equal(out[static_cast<std::size_t>(r)], values<std::int16_t>(r, n), str("gather of ", n));
        for (int r = 0; r < ranks; ++r) {
          const auto part = values<std::int16_t>(root * 10 + r, n);
          std::copy(part.begin(), part.end(), out[static_cast<std::size_t>(r)].begin());
        }
        std::vector<std::int16_t> mine(in.size());
        me.backend->scatter(me.call(OpType::Scatter, n, kShort, root), span_of(mine), parts, root);
        expect_equal(mine, values<std::int16_t>(root * 10 + me.me(), n), str("scatter of ", n, " from ", root));
      }
    }
  });
}

TEST_P(NativeBackend, ReduceScatterAndAllToAll) {
  run([](Rank& me) {
    const int ranks = me.size();
    for (const std::int64_t n : sizes()) {
      // Parts of different sizes: rank r gets n + r.
      std::vector<std::vector<float>> in;
      std::vector<Span> parts;
      for (int r = 0; r < ranks; ++r) in.push_back(values<float>(me.me(), n + r, 1000 * r));
      for (auto& part : in) parts.push_back(span_of(part));
      std::vector<float> out(static_cast<std::size_t>(n + me.me()));
      me.backend->reduce_scatter(me.call(OpType::ReduceScatter, n, kFloat), span_of(out), parts, ReduceOp::SUM);
      expect_equal(out, sum_of_all<float>(ranks, n + me.me(), 1000 * me.me()), str("reduce_scatter of ", n));

      // Rank a sends n + a + 2 b elements to rank b.
      std::vector<std::vector<float>> to, from;
      std::vector<Span> to_parts, from_parts;
      for (int r = 0; r < ranks; ++r) {
        to.push_back(values<float>(me.me() * 100 + r, n + me.me() + 2 * r));
        from.emplace_back(static_cast<std::size_t>(n + r + 2 * me.me()));
      }
      for (auto& part : to) to_parts.push_back(span_of(part));
      for (auto& part : from) from_parts.push_back(span_of(part));
      me.backend->all_to_all(me.call(OpType::AllToAll, n, kFloat), from_parts, to_parts);
      for (int r = 0; r < ranks; ++r)
        expect_equal(from[static_cast<std::size_t>(r)], values<float>(r * 100 + me.me(), n + r + 2 * me.me()),
                     str("all_to_all of ", n));
    }
  });
}

TEST_P(NativeBackend, AllReduceKnowsEveryOperator) {
  run([](Rank& me) {
    const int ranks = me.size();
    for (const std::int64_t n : {5, 5000, 400'000}) {
      auto low = values<float>(me.me(), n), high = low, average = low, scaled = low, user = low;
      me.backend->all_reduce(me.call(OpType::AllReduce, n, kFloat), span_of(low), ReduceOp::MIN);
      me.backend->all_reduce(me.call(OpType::AllReduce, n, kFloat), span_of(high), ReduceOp::MAX);
      me.backend->all_reduce(me.call(OpType::AllReduce, n, kFloat), span_of(average), ReduceOp::AVG);
      me.backend->all_reduce(me.call(OpType::AllReduce, n, kFloat), span_of(scaled), ReduceOp::premul_sum(me.me() + 1));
      const auto larger = ReduceOp::user("larger", [](void* inout, const void* in, std::int64_t count, DType) {
        for (std::int64_t i = 0; i < count; ++i)
          static_cast<float*>(inout)[i] = std::max(static_cast<float*>(inout)[i], static_cast<const float*>(in)[i]);
      });
      me.backend->all_reduce(me.call(OpType::AllReduce, n, kFloat), span_of(user), larger);
      for (std::int64_t i = 0; i < n; ++i) {
        float least = 1e9F, most = -1e9F, sum = 0, weighted = 0;
        for (int r = 0; r < ranks; ++r) {
          const float v = value<float>(r, i);
          least = std::min(least, v);
          most = std::max(most, v);
          sum += v;
          weighted += v * static_cast<float>(r + 1);
        }
        const auto at = static_cast<std::size_t>(i);
        ATHANOR_CHECK(low[at] == least && high[at] == most && average[at] == sum / static_cast<float>(ranks) &&
                          scaled[at] == weighted && user[at] == most,
                      "element ", i, " of ", n, ": ", low[at], " ", high[at], " ", average[at], " ", scaled[at], " ",
                      user[at], ", expected ", least, " ", most, " ", sum / static_cast<float>(ranks), " ", weighted,
                      " ", most);
      }
    }
  });
}

TEST_P(NativeBackend, SharedMemoryIsReducedInPlace) {
  run([](Rank& me) {
    const std::int64_t n = 300'003;
    auto call = me.call(OpType::Barrier, 0, kFloat);
    const std::shared_ptr<void> memory = me.backend->allocate_shared(call, static_cast<std::size_t>(n) * 4);
    std::vector<float> own(static_cast<std::size_t>(n));
    float* data = memory ? static_cast<float*>(memory.get()) : own.data();
    for (int round = 0; round < 3; ++round) {
      const auto mine = values<float>(me.me() + round, n);
      std::copy(mine.begin(), mine.end(), data);
      // The last round at an offset that differs between ranks, which cannot be done in place.
      const std::int64_t skip = round == 2 ? me.me() : 0, count = n - me.size();
      me.backend->all_reduce(me.call(OpType::AllReduce, count, kFloat), {data + skip, count, kFloat}, ReduceOp::SUM);
      for (std::int64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (int r = 0; r < me.size(); ++r) sum += value<float>(r + round, i + (round == 2 ? r : 0));
        ATHANOR_CHECK(data[skip + i] == sum, "round ", round, ", element ", i, ": ", data[skip + i], ", expected ",
                      sum);
      }
    }
  });
}

TEST_P(NativeBackend, MessagesArriveInOrderWhateverTheirTag) {
  run([](Rank& me) {
    const int ranks = me.size(), to = (me.me() + 1) % ranks, from = (me.me() + ranks - 1) % ranks;
    if (ranks == 1) return;
    for (const std::int64_t n : {std::int64_t{0}, std::int64_t{3}, std::int64_t{5000}, std::int64_t{2'500'000}}) {
      auto a = values<float>(me.me(), n), b = values<float>(me.me() + 50, n);
      std::vector<float> got_a(a.size()), got_b(b.size());
      const auto call = me.call(OpType::Send, n, kFloat);
      auto first = me.backend->isend(call, span_of(a), to, 1);
      auto second = me.backend->isend(call, span_of(b), to, 2);
      // Asked for in the other order.
      auto take_b = me.backend->irecv(call, span_of(got_b), from, 2);
      auto take_a = me.backend->irecv(call, span_of(got_a), n == 3 ? kAnySource : from, 1);
      take_b->wait(call.deadline);
      take_a->wait(call.deadline);
      first->wait(call.deadline);
      second->wait(call.deadline);
      expect_equal(got_a, values<float>(from, n), "tag 1");
      expect_equal(got_b, values<float>(from + 50, n), "tag 2");
      ATHANOR_CHECK(take_a->source_rank() == from, "it came from ", take_a->source_rank());
      me.backend->barrier(me.call(OpType::Barrier, 0, kFloat));
    }
  });
}

// Too large to be taken before it is asked for, small enough for its sender to finish.
TEST_P(NativeBackend, AMessageOutlivesTheStayOfItsSender) {
  if (GetParam().ranks == 1) GTEST_SKIP() << "one rank has nobody to send to";
  run([](Rank& me) {
    const std::int64_t n = 20'000, huge = 20'000'000;
    const Call call = me.call(OpType::Send, n, kFloat);
    const int last = me.size() - 1;
    auto sent = values<float>(last, n);
    if (me.me() == last) me.backend->isend(call, span_of(sent), 0, 1)->wait(call.deadline);
    if (me.me() != 0) return me.backend->shutdown();

    const auto error_of = [&](P2pRequest& request) {
      try {
        request.wait(call.deadline);
      } catch (const DistError& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    const auto expect_left = [&](const std::string& error) {
      ATHANOR_CHECK(error.find(str("rank ", last, " has left the process group")) != std::string::npos, error);
    };
    // It ends when the other has left.
    std::vector<float> unwanted(huge), got(sent.size());
    expect_left(error_of(*me.backend->isend(call, span_of(unwanted), last, 2)));
    me.backend->irecv(call, span_of(got), last, 1)->wait(call.deadline);
    expect_equal(got, sent, "what it sent before");
    expect_left(error_of(*me.backend->irecv(call, span_of(got), last, 1)));
    expect_left(error_of(*me.backend->isend(call, span_of(got), last, 1)));
    const std::string nobody = error_of(*me.backend->irecv(call, span_of(got), kAnySource, 1));
    ATHANOR_CHECK(nobody.find("every other rank has left") != std::string::npos, nobody);
  });
}

TEST_P(NativeBackend, CallsThatDoNotMatchNameBothSides) {
  if (GetParam().ranks == 1) GTEST_SKIP() << "one rank agrees with itself";
  const Layout& layout = GetParam();
  const Job job;
  const auto ends = run_processes(layout.ranks, [&](int rank) {
    layout.place(rank);
    Rank me = job.join(rank, layout.ranks);
    std::vector<float> data(1000);
    const std::int64_t shape[] = {rank == 0 ? 1000 : 500};
    Call call = me.call(OpType::AllReduce, shape[0], kFloat);
    call.shape = shape;
    me.backend->all_reduce(call, {data.data(), shape[0], kFloat}, ReduceOp::SUM);
  });
  for (const RankEnd& end : ends) {
    EXPECT_FALSE(end.good());
    EXPECT_NE(end.error.find("do not match"), std::string::npos) << end.error;
    EXPECT_NE(end.error.find("[1000]"), std::string::npos) << end.error;
    EXPECT_NE(end.error.find("[500]"), std::string::npos) << end.error;
  }
}

TEST_P(NativeBackend, DeadlineNamesWhoDidNotCome) {
  if (GetParam().ranks == 1) GTEST_SKIP() << "one rank waits for nobody";
  const int last = GetParam().ranks - 1;
  const Layout& layout = GetParam();
  const Job job;
  auto* stopped = static_cast<std::atomic<pid_t>*>(
      ::mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const auto ends = run_processes(layout.ranks, [&](int rank) {
    layout.place(rank);
    Rank me = job.join(rank, layout.ranks);
    if (rank == last) {
      stopped->store(::getpid());
      ::raise(SIGSTOP);
    }
    me.timeout = milliseconds(500);
    std::vector<float> data(100'000);
    try {
      me.backend->all_reduce(me.call(OpType::AllReduce, 100'000, kFloat), span_of(data), ReduceOp::SUM);
    } catch (const DistError&) {
      if (rank == 0) ::kill(stopped->load(), SIGKILL);
      throw;
    }
  });
  ::munmap(stopped, sizeof *stopped);
  for (int rank = 0; rank < last; ++rank) {
    const std::string& error = ends[static_cast<std::size_t>(rank)].error;
    EXPECT_NE(error.find(str("rank ", last)), std::string::npos) << error;
    EXPECT_NE(error.find("all_reduce"), std::string::npos) << error;
  }
}

TEST_P(NativeBackend, DeathOfARankEndsTheOthersWaitsAtOnce) {
  if (GetParam().ranks == 1) GTEST_SKIP() << "one rank waits for nobody";
  const int last = GetParam().ranks - 1;
  const auto start = std::chrono::steady_clock::now();
  const Layout& layout = GetParam();
  const Job job;
  const auto ends = run_processes(layout.ranks, [&](int rank) {
    layout.place(rank);
    Rank me = job.join(rank, layout.ranks, seconds(60));
    std::vector<float> data(100'000);
    for (int i = 0; i < 20; ++i) {
      if (rank == last && i == 7) ::raise(SIGKILL);
      me.backend->all_reduce(me.call(OpType::AllReduce, 100'000, kFloat), span_of(data), ReduceOp::SUM);
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(20));
  for (int rank = 0; rank < last; ++rank) {
    const std::string& error = ends[static_cast<std::size_t>(rank)].error;
    EXPECT_NE(error.find(str("rank ", last)), std::string::npos) << error;
    EXPECT_NE(error.find("gone"), std::string::npos) << error;
  }
}

// The root has shown where its data lies, and then gave up: what its memory became is not the result.
TEST(NativeBackendFailure, MemoryOfARankThatGaveUpIsNotTakenForAResult) {
  const Job job;
  constexpr std::int64_t kCount = 300'000;
  auto* given_up = static_cast<std::atomic<int>*>(
      ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const auto ends = run_processes(2, [&](int rank) {
    Layout{"", 2, {}}.place(rank);
    Rank me = job.join(rank, 2);
    std::vector<float> data(kCount, 1.0F);
    if (rank == 0) {
      me.timeout = milliseconds(200);
      EXPECT_THROW(me.backend->broadcast(me.call(OpType::Broadcast, kCount, kFloat, 0), span_of(data), 0), DistError);
      std::fill(data.begin(), data.end(), 2.0F);
      given_up->store(1);
      // The memory stays until the other has looked.
      while (given_up->load() == 1) std::this_thread::yield();
      return;
    }
    while (given_up->load() == 0) std::this_thread::yield();
    try {
      me.backend->broadcast(me.call(OpType::Broadcast, kCount, kFloat, 0), span_of(data), 0);
    } catch (const DistError&) {
      given_up->store(2);
      throw;
    }
    given_up->store(2);
  });
  ::munmap(given_up, sizeof *given_up);
  EXPECT_TRUE(ends[0].good()) << ends[0].error;
  EXPECT_NE(ends[1].error.find("waited 200 ms"), std::string::npos) << "it took " << ends[1].status << ends[1].error;
}

// Runs body on two ranks that read each other's memory.
void run_pair(const std::function<void(Rank&)>& body) {
  const Job job;
  const auto ends = run_processes(2, [&](int rank) {
    Layout{"", 2, {}}.place(rank);
    Rank me = job.join(rank, 2);
    body(me);
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.good()) << end.status << ": " << end.error;
}

// Each call costs something whatever it is about.
TEST(NativeBackendReductions, GiveAnOperatorOfTheProgramsOwnManyElementsAtATime) {
  const Layout layout{"SumsStaged2", 2, {}, {}, 1, "1"};
  const Job job;
  const auto ends = run_processes(layout.ranks, [&](int rank) {
    layout.place(rank);
    Rank me = job.join(rank, layout.ranks);
    constexpr std::int64_t n = 3'000'000;
    std::atomic<std::int64_t> calls{0};
    const auto add = ReduceOp::user("add", [&](void* inout, const void* in, std::int64_t count, DType) {
      ++calls;
      for (std::int64_t i = 0; i < count; ++i) static_cast<float*>(inout)[i] += static_cast<const float*>(in)[i];
    });
    auto floats = values<float>(rank, n);
    me.backend->all_reduce(me.call(OpType::AllReduce, n, kFloat), span_of(floats), add);
    expect_equal(floats, sum_of_all<float>(me.size(), n), "sum");
    ATHANOR_CHECK(calls < n / 2 / 1024, calls.load(), " calls for half of ", n, " elements");
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.good()) << end.status << ": " << end.error;
}

TEST(NativeBackendMessages, LargeOneThatItsSenderGaveUpMakesWayForTheNext) {
  run_pair([](Rank& me) {
    const std::int64_t n = 3'000'000;
    for (const bool asked : {false, true}) {
      const Call call = me.call(OpType::Send, n, kFloat);
      std::vector<float> data(static_cast<std::size_t>(n));
      std::unique_ptr<P2pRequest> request;
      if (me.me() == 1 && asked) request = me.backend->irecv(call, span_of(data), 0, 5);
      if (me.me() == 0) {
        auto lost = std::make_unique<std::vector<float>>(static_cast<std::size_t>(n), 1.0F);
        me.backend->isend(call, span_of(*lost), 1, 5).reset();
        lost.reset();
        data = values<float>(7, n);
        request = me.backend->isend(call, span_of(data), 1, 5);
      }
      if (!asked) me.backend->barrier(me.call(OpType::Barrier, 0, kFloat));
      if (me.me() == 1 && !asked) request = me.backend->irecv(call, span_of(data), 0, 5);
      request->wait(call.deadline);
      if (me.me() == 1 && asked && data[0] == 1) {  // it was read in time, and whole
        expect_equal(data, std::vector<float>(data.size(), 1.0F), "what was given up");
        me.backend->irecv(call, span_of(data), 0, 5)->wait(call.deadline);
      }
      expect_equal(data, values<float>(7, n), str("message of ", n));
      me.backend->barrier(me.call(OpType::Barrier, 0, kFloat));
    }
  });
}

TEST(NativeBackendMessages, BothMaySendBeforeTheyReceive) {
  run_pair([](Rank& me) {
    const std::int64_t n = 100'000;
    const Call call = me.call(OpType::Send, n, kFloat);
    auto out = values<float>(me.me(), n);
    std::vector<float> in(out.size());
    me.backend->isend(call, span_of(out), 1 - me.me(), 1)->wait(call.deadline);
    me.backend->irecv(call, span_of(in), 1 - me.me(), 1)->wait(call.deadline);
    expect_equal(in, values<float>(1 - me.me(), n), "what the other sent");
  });
}

TEST(NativeBackendMessages, ManyLargeOnesAreUnderWayAtOnce) {
  run_pair([](Rank& me) {
    // More than there are places for offers; received in the other order.
    constexpr int kMany = 12;
    const std::int64_t n = 2'200'000;
    const Call call = me.call(OpType::Send, n, kFloat);
    std::vector<std::vector<float>> data;
    std::vector<std::unique_ptr<P2pRequest>> requests;
    for (int i = 0; i < kMany; ++i) data.push_back(me.me() == 0 ? values<float>(i, n) : std::vector<float>(n));
    for (int k = 0; k < kMany; ++k) {
      const int i = me.me() == 0 ? k : kMany - 1 - k;
      const auto tag = static_cast<std::uint32_t>(i);
      auto& place = data[static_cast<std::size_t>(i)];
      requests.push_back(me.me() == 0 ? me.backend->isend(call, span_of(place), 1, tag)
                                      : me.backend->irecv(call, span_of(place), 0, tag));
    }
    for (auto& request : requests) request->wait(call.deadline);
    for (int i = 0; me.me() == 1 && i < kMany; ++i)
      expect_equal(data[static_cast<std::size_t>(i)], values<float>(i, n), str("message ", i));
  });
}

TEST(NativeBackendMessages, LargeOnesThatDoNotFitAreRefusedAndTheirSenderGoesOn) {
  run_pair([](Rank& me) {
    for (const std::int64_t n : {3'000'000, 100'000}) {
      const Call call = me.call(OpType::Send, n, kFloat);
      std::vector<float> data(static_cast<std::size_t>(n));
      if (me.me() == 0) {
        me.backend->isend(call, span_of(data), 1, 1)->wait(call.deadline);
      } else {
        const auto request = me.backend->irecv(call, {data.data(), n - 1, kFloat}, 0, 1);
        try {
          request->wait(call.deadline);
          ATHANOR_CHECK(false, "it fitted");
        } catch (const DistBackendError& error) {
          ATHANOR_CHECK(std::string(error.what()).find(str("rank 0 sent ", n)) != std::string::npos, error.what());
        }
      }
      me.backend->barrier(me.call(OpType::Barrier, 0, kFloat));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, NativeBackend, testing::ValuesIn(layouts()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace athanor::distributed
