// Messages between two ranks: time-outs, requests nobody waits for, the debug mode, the flight recorder, the end of the
// process.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <thread>

#include "athanor/distributed/flight_recorder.h"
#include "athanor/distributed/groups.h"
#include "athanor/distributed/spawn.h"
#include "distributed/ranks.h"
#include "tests/fork_guard.h"

namespace athanor::distributed::messages_test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

template <class F>
std::string error_of(F&& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

ProcessGroupOptions with(const char* backend, milliseconds timeout = std::chrono::seconds(20)) {
  ProcessGroupOptions options;
  options.backend = backend;
  options.timeout = timeout;
  return options;
}

class Messages : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, Messages, testing::Values("store", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Messages, NobodyAnswersEndsAtTheDeadlineNamingRankAndTag) {
  const RankErrors errors = errors_of_ranks(
      2,
      [](ProcessGroup& g) {
        if (g.rank() == 0) g.recv(ones({3}), 1, 42);
        g.recv(ones({3}), 0, 43);
      },
      with(GetParam(), milliseconds(100)));
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1"), HasSubstr("tag 42"), HasSubstr("messages_test.cpp:")));
  EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 0"), HasSubstr("tag 43")));
}

// Rank 2 waits for rank 1, which waits for rank 0, which sends nothing.
TEST(NativeMessages, WaitsInARowNameTheRankAtTheirEnd) {
  const RankErrors errors = errors_of_ranks(
      3,
      [](ProcessGroup& g) {
        const std::string key = "over";
        if (g.rank() > 0) {
          try {
            g.recv(ones({3}), g.rank() - 1, 40 + g.rank());
          } catch (const DistError&) {
            g.store()->add(key, 1);
            throw;
          }
        }
        const Deadline deadline = Deadline::after(std::chrono::seconds(20));
        while (g.rank() == 0 && g.store()->add(key, 0) < 2 && !deadline.expired()) std::this_thread::yield();
      },
      with("tcp", milliseconds(300)));
  EXPECT_THAT(errors[1], AllOf(HasSubstr("recv from rank 0"), HasSubstr("tag 41")));
  EXPECT_THAT(errors[2], AllOf(HasSubstr("recv from rank 1"), HasSubstr("rank 1: recv from rank 0, tag 41")));
}

TEST_P(Messages, ThatNobodyWaitsForArriveAllTheSame) {
  run_ranks(
      2,
      [](ProcessGroup& g) {
        // Larger than any buffer, so that both sides have to work on it.
        Tensor out = full({3'000'000}, 5.0), in = zeros({3'000'000});
        if (g.rank() == 0) {
          g.isend(out, 1);  // the handle is dropped
          g.recv(in, 1, 1);
        } else {
          const WorkPtr work = g.irecv(in, 0);
          const Deadline deadline = Deadline::after(std::chrono::seconds(20));
          while (!work->is_completed() && !deadline.expired()) std::this_thread::yield();
          ATHANOR_CHECK(work->is_success() && in[2'999'999].item<float>() == 5, "it did not arrive");
          EXPECT_EQ(work->source_rank(), 0);
          g.send(in, 0, 1);
        }
      },
      with(GetParam()));
}

TEST_P(Messages, AShortWaitGivesUpAndTheMessageGoesOn) {
  run_ranks(
      2,
      [](ProcessGroup& g) {
        Tensor t = full({4}, g.rank() * 1.0);
        if (g.rank() == 0) {
          const WorkPtr work = g.irecv(t, 1, 3);
          EXPECT_THAT(error_of([&] { work->wait(milliseconds(10)); }), AllOf(HasSubstr("10 ms"), HasSubstr("tag 3")));
          EXPECT_THAT(error_of([&] { work->source_rank(); }), HasSubstr("not ended"));
          g.send(ones({1}), 1, 4);
          EXPECT_TRUE(work->wait());
          EXPECT_EQ(t[3].item<float>(), 1);
        } else {
          Tensor go = ones({1});
          g.recv(go, 0, 4);
          g.send(t, 0, 3);
        }
      },
      with(GetParam()));
}

TEST_P(Messages, OutliveTheirGroupAsErrors) {
  WorkPtr held;
  run_ranks(
      2,
      [&](ProcessGroup& g) {
        if (g.rank() == 0) held = g.irecv(ones({1}), 1, 5);
        g.barrier();
      },
      with(GetParam()));
  EXPECT_TRUE(held->is_completed());
  EXPECT_THAT(error_of([&] { held->wait(); }), HasSubstr("process group was destroyed"));
}

TEST(MessagesDebugMode, ReportsAWriteBeforeTheWait) {
  EXPECT_EQ(error_of([] {
              spawn(
                  [](int rank) {
                    ::setenv("ATHANOR_DISTRIBUTED_DEBUG", "1", 1);
                    init_process_group("", "", 2, rank, std::chrono::seconds(20));
                    const ProcessGroupPtr& g = default_group();
                    Tensor t = ones({10});
                    if (rank == 0) {
                      g->isend(t, 1)->wait();  // nothing was written
                      const WorkPtr work = g->isend(t, 1);
                      t[3].fill_(7);
                      const std::string error = error_of([&] { work->wait(); });
                      ATHANOR_CHECK(error.find("changed before wait()") != std::string::npos &&
                                        error.find("send to rank 1") != std::string::npos,
                                    "got: ", error);
                    } else {
                      g->recv(t, 0);
                      g->recv(t, 0);
                    }
                    destroy_process_group();
                  },
                  2);
            }),
            "");
}

// Rank 0 receives 10 numbers into `tensor`, does something with them before it waits, and returns what wait() throws.
std::string early_use(const std::function<void(const Tensor&, Work&)>& use, const Tensor& memory = zeros({10})) {
  return error_of([&] {
    spawn(
        [&](int rank) {
          ::setenv("ATHANOR_DISTRIBUTED_DEBUG", "1", 1);
          init_process_group("", "", 2, rank, std::chrono::seconds(20));
          const ProcessGroupPtr& g = default_group();
          std::string error;
          if (rank == 0) {
            const WorkPtr work = g->irecv(memory, 1);
            use(memory, *work);
            g->send(ones({1}), 1, 1);
            error = error_of([&] { work->wait(); });
            // Once it is said, the tensor may be used.
            ATHANOR_CHECK(memory.sum().item<float>() == 30, "it did not arrive");
          } else {
            g->recv(ones({1}), 0, 1);
            g->send(full({10}, 3.0).to(memory.scalar_type()), 0);
          }
          destroy_process_group();
          if (!error.empty()) throw DistError(error, ATHANOR_WHERE);
        },
        2);
  });
}

TEST(MessagesDebugMode, ReportsAUseBeforeTheWaitOfAReceive) {
  EXPECT_THAT(early_use([](const Tensor& t, Work&) { t.slice(0, 2, 4) + 1; }),
              AllOf(HasSubstr("recv from rank 1"), HasSubstr("was used by add before wait()")));
  EXPECT_THAT(early_use([](const Tensor& t, Work&) { t.fill_(1); }), HasSubstr("was used by fill_ before"));
  EXPECT_THAT(early_use([](const Tensor& t, Work&) { t[3].item(); }), HasSubstr("was used by item before"));
  EXPECT_THAT(early_use([](const Tensor& t, Work&) { default_group()->isend(t, 1, 7); }),
              HasSubstr("was used by send before"));
  EXPECT_THAT(early_use([](const Tensor& t, Work&) { std::thread([&] { t.sum(); }).join(); }),
              HasSubstr("was used by sum before"));
}

TEST(MessagesDebugMode, LeavesOtherUsesAlone) {
  // Views look at nothing; neighbours in the same memory are others' elements.
  const Tensor both = zeros({10, 2});
  EXPECT_EQ(early_use(
                [&](const Tensor& t, Work&) {
                  t.view({5, 2}).transpose(0, 1).unsqueeze(0);
                  t.size(0);
                  both.select(1, 1) + 1;
                },
                both.select(1, 0)),
            "");
  EXPECT_THAT(early_use([&](const Tensor&, Work&) { both + 1; }, both.select(1, 0)), HasSubstr("was used by add"));
  EXPECT_EQ(early_use([](const Tensor&, Work&) {}), "");
}

TEST(MessagesDebugMode, FillsWhatIsReceivedIntoWithValuesThatShow) {
  EXPECT_EQ(early_use([](const Tensor& t, Work&) {
              ATHANOR_CHECK(std::isnan(t.data_ptr<float>()[9]), "not filled: ", t.data_ptr<float>()[9]);
            }),
            "");
}

TEST(FlightRecorder, KeepsTheLastCallsWithWhereAndHow) {
  run_ranks(2, [](ProcessGroup& g) {
    for (int i = 0; i < 1500; ++i) g.all_reduce(ones({2, 3}, kInt), ReduceOp::MAX);
    const auto records = g.flight_recorder().records();
    ASSERT_EQ(records.size(), FlightRecorder::kCapacity);
    EXPECT_EQ(records.back().sequence, 1500u);
    EXPECT_EQ(records.front().sequence, 1500u - FlightRecorder::kCapacity + 1);
    EXPECT_EQ(records.back().state, CallState::Completed);
    EXPECT_GE(records.back().ended_ns, records.back().started_ns);
    const std::string text = g.flight_recorder().text(1);
    EXPECT_THAT(text, AllOf(HasSubstr("group 'test', rank"),
                            HasSubstr("#1500 all_reduce(MAX) of int32 [2, 3] at "
                                      "messages_test.cpp:"),
                            HasSubstr("completed in"), Not(HasSubstr("#1499"))));
    g.send(ones({1}), 1 - g.rank(), 2);
    EXPECT_EQ(g.recv(ones({1}), 1 - g.rank(), 2), 1 - g.rank());
    EXPECT_THAT(g.flight_recorder().text(2), AllOf(HasSubstr("send to rank"), HasSubstr("recv from rank")));
  });
}

TEST(FlightRecorder, SaysWhoIsBehind) {
  // Rank 1 makes one call less, and then another one.
  const RankErrors errors = errors_of_ranks(
      3,
      [](ProcessGroup& g) {
        g.barrier();
        if (g.rank() != 1) g.send(ones({1}), 1);
        if (g.rank() == 1) {
          g.recv(ones({1}), 0);
          g.recv(ones({1}), 2);
        }
        g.rank() == 1 ? g.broadcast(ones({1}), 0) : g.all_reduce(ones({1}));
      },
      over_store());
  for (const std::string& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("rank 0: completed up to number 1; then #2 all_reduce"),
                             HasSubstr("rank 1: completed up to number 1; then #2 broadcast")));
}

std::string stderr_of(const std::function<void()>& body) {
  testing::internal::CaptureStderr();
  Process process([&] { body(); });
  process.start();
  process.join(std::chrono::seconds(20));
  std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(process.exitcode(), 0) << process.error() << text;
  return text;
}

std::atomic<int> own_handler_calls = 0;

TEST(FlightRecorder, IsPrintedOnSigusr1AndLeavesTheProgramsHandler) {
  const std::string text = stderr_of([] {
    ::signal(SIGUSR1, [](int) { ++own_handler_calls; });
    InitOptions options;
    options.store = std::make_shared<HashStore>();
    options.rank = 0, options.world_size = 1;
    init_process_group(options);
    default_group()->all_reduce(ones({7}));
    int saved = ::dup(STDERR_FILENO), ends[2];
    ATHANOR_CHECK(::pipe(ends) == 0, "pipe");
    ::dup2(ends[1], STDERR_FILENO);
    ::raise(SIGUSR1);  // kill() may pick another thread, whose handlers may still run when it returns
    char buffer[4096];
    const ssize_t n = ::read(ends[0], buffer, sizeof buffer);  // printed by another thread
    ::dup2(saved, STDERR_FILENO);
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, buffer, static_cast<std::size_t>(n));
    ATHANOR_CHECK(own_handler_calls == 1, "the program's handler was not called");
    destroy_process_group();
    struct sigaction now {};
    ::sigaction(SIGUSR1, nullptr, &now);
    ::raise(SIGUSR1);
    ATHANOR_CHECK(!(now.sa_flags & SA_SIGINFO), "the program's handler was not put back");
  });
  EXPECT_THAT(text,
              AllOf(HasSubstr("group 'default_pg', rank 0 of 1"), HasSubstr("#1 all_reduce(SUM) of float32 [7]")));
}

TEST(EndOfProcess, WithoutDestroyIsQuietAndQuick) {
  // std::exit runs exit handlers and static destructors, with a communication thread alive and works under way.
  int status = 0;
  const auto start = Deadline::Clock::now();
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::thread([] {
      InitOptions options;
      options.store = std::make_shared<HashStore>();
      options.rank = 0, options.world_size = 1;
      init_process_group(options);
      static std::vector<WorkPtr> works;
      static const Tensor t = ones({100'000});
      for (int i = 0; i < 50; ++i) works.push_back(default_group()->all_reduce(t, ReduceOp::SUM, true));
      std::exit(5);
    }).join();
  }
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 5) << status;
  EXPECT_LT(Deadline::Clock::now() - start, std::chrono::seconds(10));
}

TEST(Fork, LeavesTheParentsGroupsToTheParent) {
  ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN();
  InitOptions options;
  options.store = std::make_shared<HashStore>();
  options.rank = 0, options.world_size = 1;
  init_process_group(options);
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): held when the child lets go of it
  const ProcessGroupPtr held = default_group();
  held->all_reduce(ones({1}), ReduceOp::SUM, true)->wait();
  EXPECT_EQ(error_of([&] {
              spawn([&](int) {
                const std::string error = error_of([&] { held->barrier(); });
                ATHANOR_CHECK(error.find("belongs to the parent") != std::string::npos, "got: ", error);
                ATHANOR_CHECK(!is_initialized(), "the parent's group is the child's");
                InitOptions own;
                own.store = std::make_shared<HashStore>();
                own.rank = 0, own.world_size = 1;
                init_process_group(own);
                default_group()->all_reduce(ones({1}), ReduceOp::SUM, true)->wait();
                destroy_process_group();
              });
            }),
            "");
  held->barrier();
  destroy_process_group();
}

}  // namespace
}  // namespace athanor::distributed::messages_test
