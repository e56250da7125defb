// Processes that run functions of this program.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "athanor/base/parallel.h"
#include "athanor/distributed/groups.h"
#include "athanor/distributed/spawn.h"

namespace athanor::distributed::spawn_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class F>
std::string error_of(F&& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Memory that the children share with the test.
struct Shared {
  std::atomic<int> numbers[8];
};
Shared& shared() {
  static auto* memory =
      static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (auto& number : memory->numbers) number = 0;
  return *memory;
}

TEST(Spawn, RunsTheFunctionOncePerRank) {
  Shared& s = shared();
  spawn([&](int rank) { s.numbers[rank] += rank + 1; }, 3);
  EXPECT_EQ(s.numbers[0] + s.numbers[1] + s.numbers[2], 6);
  EXPECT_EQ(s.numbers[2], 3);
  spawn([&s](int rank, int add, const std::string& text) { s.numbers[rank] += add + static_cast<int>(text.size()); }, 2,
        std::make_tuple(10, std::string("abc")));
  EXPECT_EQ(s.numbers[1], 15);
}

TEST(Spawn, RaisesTheFailingChildsErrorAndEndsTheOthers) {
  const std::string error = error_of([] {
    spawn(
        [](int rank) {
          ATHANOR_CHECK(rank != 1, "the dog of rank ", rank, " ate it");
          ::pause();
        },
        3);
  });
  EXPECT_THAT(error, AllOf(HasSubstr("process 1 of 3"), HasSubstr("the dog of rank 1 ate it")));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

TEST(Spawn, TellsSignalsAndStatus) {
  EXPECT_THAT(error_of([] { spawn([](int) { ::kill(::getpid(), SIGKILL); }, 1); }),
              AllOf(HasSubstr("signal 9"), HasSubstr("Killed")));
  EXPECT_THAT(error_of([] { spawn([](int) { ::_exit(7); }, 1); }), HasSubstr("status 7"));
  EXPECT_THAT(error_of([] { spawn([](int) {}, 0); }), HasSubstr("positive number"));
  const std::string large(300'000, 'x');
  EXPECT_THAT(error_of([&] { spawn([&](int) { throw std::runtime_error(large); }, 1); }), HasSubstr(large));
}

TEST(Spawn, ChildrenPrintWhereNobodyReads) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::close(STDIN_FILENO);
        ::close(STDOUT_FILENO);
        Process child([] {
          const std::string text(200'000, 'x');  // more than a pipe holds
          for (std::size_t i = 0; i < text.size() && ::write(STDOUT_FILENO, text.data(), 1000) > 0;) i += 1000;
        });
        child.start();
        std::_Exit(child.join(std::chrono::seconds(30)) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Spawn, GivesTheChildrenAnAddressToMeetAt) {
  ::unsetenv("MASTER_ADDR");
  ::unsetenv("MASTER_PORT");
  Shared& s = shared();
  spawn(
      [&](int rank) {
        ATHANOR_CHECK(std::string(std::getenv("MASTER_ADDR")) == "127.0.0.1", "MASTER_ADDR");
        s.numbers[rank] = std::atoi(std::getenv("MASTER_PORT"));
      },
      2);
  EXPECT_GT(s.numbers[0], 0);
  EXPECT_EQ(s.numbers[0], s.numbers[1]);
  EXPECT_EQ(std::getenv("MASTER_PORT"), nullptr);
  ::setenv("MASTER_PORT", "4711", 1);
  spawn([&](int rank) { s.numbers[rank] = std::atoi(std::getenv("MASTER_PORT")); }, 1);
  EXPECT_EQ(s.numbers[0], 4711);
  ::unsetenv("MASTER_PORT");
}

TEST(Spawn, WorksAfterKernelsHaveRunInSeveralThreads) {
  const int before = get_num_threads();
  set_num_threads(2);
  const Tensor a = randn({300, 300});
  const double wanted = mm(a, a).to(kDouble).sum().item<double>();
  spawn(
      [&](int) {
        for (const int threads : {1, 2}) {
          set_num_threads(threads);
          const double got = mm(a, a).to(kDouble).sum().item<double>();
          ATHANOR_CHECK(std::abs(got - wanted) < 1e-3 * std::abs(wanted) + 1e-2, "got ", got, ", expected ", wanted);
          ATHANOR_CHECK(randn({100000}).exp().sum().item<double>() > 0, "exp");
        }
      },
      2);
  set_num_threads(before);
}

TEST(Spawn, WithoutJoinReturnsAtOnceAndJoinCanBeBounded) {
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  auto context = spawn_async(
      [&](int) {
        char go = 0;
        [[maybe_unused]] const auto n = ::read(gate[0], &go, 1);
      },
      2);
  EXPECT_EQ(context.pids().size(), 2u);
  EXPECT_FALSE(context.join(std::chrono::milliseconds(20)));
  ASSERT_EQ(::write(gate[1], "xx", 2), 2);
  EXPECT_TRUE(context.join());
}

TEST(Process, HasPythonsMembers) {
  Shared& s = shared();
  auto process = Process::of([&s](int a, int b) { s.numbers[0] = a * b; }, 6, 7);
  EXPECT_FALSE(process.is_alive());
  process.start();
  EXPECT_THAT(error_of([&] { process.start(); }), HasSubstr("called before"));
  EXPECT_TRUE(process.join());
  EXPECT_EQ(process.exitcode(), 0);
  EXPECT_EQ(s.numbers[0], 42);
  Process sleeper([] { ::pause(); });
  sleeper.start();
  EXPECT_TRUE(sleeper.is_alive());
  EXPECT_FALSE(sleeper.exitcode().has_value());
  sleeper.terminate();
  EXPECT_TRUE(sleeper.join());
  EXPECT_EQ(sleeper.exitcode(), -SIGTERM);
}

TEST(Process, EndsWhenItsParentIsKilled) {
  // The middle process starts one of its own and tells its number; killed, it cannot clean up.
  int tell[2];
  ASSERT_EQ(::pipe(tell), 0);
  Process middle([&] {
    Process inner([] { ::pause(); });
    inner.start();
    const pid_t pid = inner.pid();
    [[maybe_unused]] const auto n = ::write(tell[1], &pid, sizeof pid);
    ::pause();
  });
  middle.start();
  pid_t inner = 0;
  ASSERT_EQ(::read(tell[0], &inner, sizeof inner), static_cast<ssize_t>(sizeof inner));
  middle.kill();
  middle.join();
  // Unless something reaps orphans here, a zombie is left; it counts as gone.
  std::string state;
  for (int i = 0; i < 5000; ++i) {
    std::ifstream file(athanor::detail::str("/proc/", inner, "/stat"));
    std::string line;
    state = std::getline(file, line) ? line.substr(line.rfind(')') + 2, 1) : "gone";
    if (state == "gone" || state == "Z") break;
    ::usleep(1000);
  }
  EXPECT_TRUE(state == "gone" || state == "Z") << state;
}

}  // namespace
}  // namespace athanor::distributed::spawn_test
