// The backend over MPI: this very program, started by mpirun. Another MPI's plug-in and launcher can be named:
// ATHANOR_PLUGIN_PATH=... ATHANOR_TEST_MPIRUN=mpiexec.hydra.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdlib>
#include <functional>

#include "athanor/base/env.h"
#include "athanor/distributed/backend.h"
#include "athanor/distributed/groups.h"
#include "athanor/distributed/store/tcp_store.h"
#include "athanor/ops/tensor.h"
#include "distributed/conformance.h"

namespace athanor::distributed {
namespace {

using athanor::detail::str;
using testing::HasSubstr;

// ---- what a rank does, when mpirun has started it

class MpiRank : public testing::Test {
 protected:
  void SetUp() override {
    port_ = env::integer("ATHANOR_TEST_MPI_STORE", 1, 65535).value_or(0);
    if (port_ == 0) GTEST_SKIP() << "one rank of a test of Mpi, which starts it";
    const bool open_mpi = env::text("OMPI_COMM_WORLD_SIZE").has_value();
    options_.backend = "mpi";
    options_.rank = static_cast<int>(env::integer(open_mpi ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK").value());
    options_.size = static_cast<int>(env::integer(open_mpi ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE").value());
    options_.timeout = std::chrono::seconds(60);
  }
  std::unique_ptr<ProcessGroup> group(const std::string& name = "all") {
    options_.name = str(testing::UnitTest::GetInstance()->current_test_info()->name(), " ", name);
    return std::make_unique<ProcessGroup>(store(), options_);
  }
  std::shared_ptr<TCPStore> store() const {
    TCPStoreOptions options;
    options.port = static_cast<int>(port_);
    return std::make_shared<TCPStore>("127.0.0.1", options);
  }
  // mpirun ends all ranks, with what they have to print, once one has left without MPI_Finalize. So each of the
  // `ranks` that have met an error counts itself in the store if all was as expected, and waits there for the others.
  void leave_together(int ranks) const {
    const auto shared = store();
    shared->add("as expected", testing::Test::HasFailure() ? 0 : 1);
    if (shared->add("leaving", 1) == ranks) shared->set("all leave", Store::Value());
    shared->wait({"all leave"}, std::chrono::seconds(60));
  }
  std::int64_t port_ = 0;
  ProcessGroupOptions options_;
};

template <class Combine>
ReduceOp user_op(const char* name, Combine combine) {
  return ReduceOp::user(name, [combine](void* inout, const void* in, std::int64_t count, DType) {
    auto* a = static_cast<float*>(inout);
    const auto* b = static_cast<const float*>(in);
    for (std::int64_t i = 0; i < count; ++i) a[i] = combine(a[i], b[i]);
  });
}
ReduceOp largest() {
  return user_op("largest", [](float a, float b) { return std::max(a, b); });
}
ReduceOp sum() {
  return user_op("sum", [](float a, float b) { return a + b; });
}

TEST_F(MpiRank, RunsTheConformanceSuite) {
  const auto all = group();
  conformance::run_all(*all);
  conformance::run_in_place(*all);
  all->shutdown();
}

// MPI runs an operator's function in whatever thread is in MPI at the time.
TEST_F(MpiRank, KeepsUserOperatorsOfCallsUnderWayApart) {
  const auto first = group("first"), second = group("second");
  const int n = first->size();
  for (int i = 0; i < 20; ++i) {
    Tensor a = full({200'000}, static_cast<double>(first->rank() + 1)), b = a.clone();
    const WorkPtr one = first->all_reduce(a, largest(), true), other = second->all_reduce(b, sum(), true);
    one->wait();
    other->wait();
    ASSERT_TRUE(a.equal(full_like(a, n))) << "round " << i;
    ASSERT_TRUE(b.equal(full_like(b, n * (n + 1) / 2))) << "round " << i;
  }
  second->shutdown();
  first->shutdown();
}

TEST_F(MpiRank, UserOperatorsWorkBesideAPendingReceive) {
  const auto all = group();
  const int n = all->size(), right = (all->rank() + 1) % n, left = (all->rank() + n - 1) % n;
  if (n == 1) return;
  Tensor late = zeros({1});
  const WorkPtr pending = all->irecv(late, left, 5);
  for (int i = 0; i < 20; ++i) {
    Tensor b = full({200'000}, static_cast<double>(all->rank() + 1));
    all->all_reduce(b, sum());
    ASSERT_TRUE(b.equal(full_like(b, n * (n + 1) / 2))) << "round " << i;
  }
  all->send(ones({1}), right, 5);
  pending->wait();
  EXPECT_EQ(late.item<float>(), 1);
  all->shutdown();
}

TEST_F(MpiRank, AnErrorOfAUserOperatorIsTheCallsError) {
  const auto all = group();
  if (all->size() == 1) return;
  Tensor t = ones({3});
  const auto bad = ReduceOp::user("bad", [](void*, const void*, std::int64_t, DType) { throw Error("no such sum"); });
  // Only who has run it knows; that one tells the others.
  try {
    all->all_reduce(t, bad);
    all->barrier();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no such sum"));
  }
  leave_together(options_.size);
}

TEST_F(MpiRank, AMismatchOfShapesOrRootsShowsBothRanks) {
  const auto error_of = [&](const std::string& name, const std::function<void(ProcessGroup&, bool first)>& call) {
    const auto all = group(name);
    try {
      all->barrier();
      call(*all, all->rank() == 0);
      all->barrier();  // a root that only sends may learn of it here
    } catch (const DistError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const auto both = [](const char* a, const char* b) {
    return testing::AllOf(HasSubstr("do not match"), HasSubstr(a), HasSubstr(b), HasSubstr("mpi_test.cpp:"));
  };
  EXPECT_THAT(error_of("shapes", [](auto& g, bool first) { g.all_reduce(ones({first ? 3 : 4})); }), both("[3]", "[4]"));
  EXPECT_THAT(error_of("forms",
                       [](auto& g, bool first) {
                         g.all_reduce(first ? ones({2, 3}) : ones({3, 2}));
                       }),
              both("[2, 3]", "[3, 2]"));
  EXPECT_THAT(error_of("broadcast", [](auto& g, bool first) { g.broadcast(ones({3}), first ? 0 : 1); }),
              both("broadcast with root 0", "broadcast with root 1"));
  EXPECT_THAT(error_of("reduce", [](auto& g, bool first) { g.reduce(ones({3}), first ? 0 : 1); }),
              both("with root 0", "with root 1"));
  EXPECT_THAT(error_of("gather",
                       [](auto& g, bool first) {
                         std::vector<Tensor> out;
                         for (int r = 0; first && r < g.size(); ++r) out.push_back(empty({2}));
                         g.gather(out, ones({first ? 2 : 3}), 0);
                       }),
              both("[2]", "[3]"));
  leave_together(options_.size);
}

// Of their own runs of mpirun, since they end MPI or begin it in another way.
using MpiRankAlone = MpiRank;

TEST_F(MpiRankAlone, NamesTheOneThatWasKilled) {
  const auto all = group();
  const auto before = std::chrono::steady_clock::now();
  std::string error;
  try {
    all->barrier();  // another rank may still be in it when one is killed
    if (all->rank() == 1) ::raise(SIGKILL);
    Tensor t = ones({3});
    all->all_reduce(t);
  } catch (const DistError& failure) {
    error = failure.what();
  }
  EXPECT_THAT(error, HasSubstr("rank 1 is gone"));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));  // of 60
  leave_together(options_.size - 1);
  ::_exit(testing::Test::HasFailure() ? 1 : 0);  // MPI_Finalize would wait for the dead
}

// As a program does that starts MPI itself, with less than several threads at once: 1 is FUNNELED, 2 SERIALIZED.
void start_mpi(int wanted) {
  const char* path = std::getenv("ATHANOR_TEST_MPI_PLUGIN");
  void* plugin = ::dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(plugin, nullptr) << ::dlerror();
  const auto init = reinterpret_cast<int (*)(int*, char***, int, int*)>(::dlsym(plugin, "MPI_Init_thread"));
  ASSERT_NE(init, nullptr);
  int provided = 0;
  ASSERT_EQ(init(nullptr, nullptr, wanted, &provided), 0);
  if (provided != wanted) GTEST_SKIP() << "this MPI gives thread level " << provided << " for " << wanted;
}

TEST_F(MpiRankAlone, TakesTurnsWhereMpiIsSerialized) {
  ASSERT_NO_FATAL_FAILURE(start_mpi(2));
  if (IsSkipped()) return;
  {
    const auto first = group("first"), second = group("second");
    for (int i = 0; i < 50; ++i) {
      Tensor a = ones({1000}), b = ones({1000});
      const WorkPtr one = first->all_reduce(a, largest(), true), other = second->all_reduce(b, sum(), true);
      one->wait();
      other->wait();
      ASSERT_EQ(b[999].item<float>(), second->size());
    }
    second->shutdown();
    first->shutdown();
  }
  const auto end = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "MPI_Finalize"));
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end(), 0);
}

TEST_F(MpiRankAlone, RefusesAnMpiForOneThread) {
  ASSERT_NO_FATAL_FAILURE(start_mpi(1));
  if (IsSkipped()) return;
  try {
    group();
    ADD_FAILURE() << "no error";
  } catch (const DistError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("MPI_THREAD_FUNNELED"), HasSubstr("MPI_THREAD_SERIALIZED")));
  }
  EXPECT_EQ(reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "MPI_Finalize"))(), 0);
}

// What the program says of rank and size does not count, in whatever form it names the backend.
TEST_F(MpiRankAlone, ArgumentsThatMpirunMakesSuperfluousAreIgnored) {
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  for (const char* backend : {"mpi", "cpu:mpi", "cpu:mpi,cuda:nccl"}) {
    InitOptions options;
    options.backend = backend;
    options.rank = 0;
    options.world_size = 1;
    options.timeout = std::chrono::seconds(60);
    init_process_group(options);
    EXPECT_EQ(get_rank(), options_.rank) << backend;
    EXPECT_EQ(get_world_size(), options_.size) << backend;
    Tensor t = ones({3});
    default_group()->all_reduce(t);
    EXPECT_EQ(t[2].item<float>(), options_.size);
    destroy_process_group();
  }
}

// ---- what starts the ranks

class Mpi : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    named_ = env::text("ATHANOR_TEST_MPIRUN");
    if (!named_ && std::system("command -v mpirun >/dev/null 2>&1") != 0) GTEST_SKIP() << "no mpirun here";
    // Only asked for by name: loading the plug-in would start MPI in this process.
    char self[PATH_MAX] = "";
    ASSERT_GT(::readlink("/proc/self/exe", self, sizeof self - 1), 0);
    program_ = self;
    plugin_ = env::text("ATHANOR_PLUGIN_PATH").value_or(program_.substr(0, program_.rfind("/bin/")) + "/lib") +
              "/libathanor_mpi.so";
    if (::access(plugin_.c_str(), R_OK) != 0) GTEST_SKIP() << "the plug-in mpi was not built";
  }
  // What comes of `ranks` ranks that run the tests of that name.
  struct Outcome {
    int status;
    std::string text;
    std::int64_t as_expected;  // how many ranks came to the end of leave_together having met what they should
  };
  Outcome run(int ranks, const std::string& tests, const char* flags = "") {
    TCPStoreOptions options;
    options.port = 0;
    options.is_server = true;
    TCPStore store("127.0.0.1", options);
    const std::string launcher = named_.value_or(str("mpirun --allow-run-as-root --oversubscribe ", flags));
    const std::string command = str("OMP_NUM_THREADS=1 ATHANOR_TEST_MPI_STORE=", store.port(),
                                    " ATHANOR_TEST_MPI_PLUGIN=", plugin_, " timeout 300 ", launcher, " -np ", ranks,
                                    " ", program_, " --gtest_filter='", tests, "' --gtest_brief=1 2>&1");
    std::FILE* output = ::popen(command.c_str(), "r");
    if (output == nullptr) throw Error("popen failed");
    std::string text;
    char buffer[4096];
    while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, output)) text.append(buffer, got);
    const int status = ::pclose(output);
    return {status, text, store.add("as expected", 0)};
  }
  std::optional<std::string> named_;
  std::string program_, plugin_;
};

TEST_P(Mpi, AllCollectivesGiveWhatPlainLoopsGive) {
  const auto [status, text, met] = run(GetParam(), "MpiRank.*-MpiRank.AnError*:MpiRank.AMismatch*");
  EXPECT_EQ(status, 0) << text;
  EXPECT_THAT(text, HasSubstr("3 tests")) << text;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mpi, testing::Values(1, 2, 3, 4, 8),
                         [](const auto& info) { return str("ranks", info.param); });

using MpiFailure = Mpi;

TEST_P(MpiFailure, OfRanksThatCallDifferentThingsShowsBoth) {
  for (const int ranks : {2, 3}) {
    // mpirun's own status is that of ranks that do not finalize MPI after an error.
    const auto [status, text, as_expected] = run(ranks, "MpiRank.AMismatch*");
    EXPECT_EQ(as_expected, ranks) << text;
    EXPECT_THAT(text, testing::Not(HasSubstr("FAILED"))) << text;
  }
}

TEST_P(MpiFailure, OfOneRankIsEverybodysError) {
  const auto [operators, said, met] = run(2, "MpiRank.AnError*");
  EXPECT_EQ(met, 2) << said;
  if (named_) return;
  // mpirun itself would end all ranks before they can say anything.
  const auto [status, text, survivors] = run(3, "MpiRankAlone.NamesTheOneThatWasKilled", "--enable-recovery");
  EXPECT_EQ(survivors, 2) << text;
  EXPECT_THAT(text, testing::Not(HasSubstr("Failure"))) << text;
}

TEST_P(MpiFailure, IsNotThatAProgramNamesRankAndSizeItself) {
  const auto [status, text, met] = run(2, "MpiRankAlone.Arguments*");
  EXPECT_EQ(status, 0) << text;
  EXPECT_THAT(text, HasSubstr("1 test")) << text;
}

TEST_P(MpiFailure, OrATurnIsWhatAnMpiWithoutSeveralThreadsGives) {
  for (const char* test : {"TakesTurnsWhereMpiIsSerialized", "RefusesAnMpiForOneThread"}) {
    const auto [status, text, met] = run(2, str("MpiRankAlone.", test));
    EXPECT_EQ(status, 0) << text;
    EXPECT_THAT(text, HasSubstr("1 test")) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(OneLauncher, MpiFailure, testing::Values(0), [](const auto&) { return "each"; });

}  // namespace
}  // namespace athanor::distributed
