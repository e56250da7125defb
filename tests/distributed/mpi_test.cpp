// The conformance suite over MPI: this very program, started by mpirun. Another MPI's plug-in and launcher can be
// named: ATHANOR_PLUGIN_PATH=... ATHANOR_TEST_MPIRUN=mpiexec.hydra.
#include <gtest/gtest.h>
#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "athanor/base/env.h"
#include "athanor/distributed/backend.h"
#include "athanor/distributed/store/tcp_store.h"
#include "distributed/conformance.h"

namespace athanor::distributed {
namespace {

using athanor::detail::str;

TEST(MpiRank, RunsTheConformanceSuite) {
  const auto port = env::integer("ATHANOR_TEST_MPI_STORE", 1, 65535);
  if (!port) GTEST_SKIP() << "one rank of Mpi.AllCollectivesGiveWhatPlainLoopsGive, which starts it";
  ProcessGroupOptions options;
  options.backend = "mpi";
  const bool open_mpi = env::text("OMPI_COMM_WORLD_SIZE").has_value();
  options.rank = static_cast<int>(env::integer(open_mpi ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK").value());
  options.size = static_cast<int>(env::integer(open_mpi ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE").value());
  options.name = "mpi";
  options.timeout = std::chrono::seconds(60);
  TCPStoreOptions store;
  store.port = static_cast<int>(*port);
  ProcessGroup group(std::make_shared<TCPStore>("127.0.0.1", store), options);
  conformance::run_all(group);
  group.shutdown();
}

class Mpi : public testing::TestWithParam<int> {};

TEST_P(Mpi, AllCollectivesGiveWhatPlainLoopsGive) {
  const auto named = env::text("ATHANOR_TEST_MPIRUN");
  const std::string launcher = named.value_or("mpirun --allow-run-as-root --oversubscribe");
  if (!named && std::system("command -v mpirun >/dev/null 2>&1") != 0) GTEST_SKIP() << "no mpirun here";
  // Only asked for by name: loading the plug-in would start MPI in this process.
  char self[PATH_MAX] = "";
  ASSERT_GT(::readlink("/proc/self/exe", self, sizeof self - 1), 0);
  const std::string program = self, folder = program.substr(0, program.rfind("/bin/"));
  const std::string plugins = env::text("ATHANOR_PLUGIN_PATH").value_or(folder + "/lib");
  if (::access((plugins + "/libathanor_mpi.so").c_str(), R_OK) != 0) GTEST_SKIP() << "the plug-in mpi was not built";
  TCPStoreOptions options;
  options.port = 0;
  options.is_server = true;
  const TCPStore store("127.0.0.1", options);
  const std::string command = str("OMP_NUM_THREADS=1 ATHANOR_TEST_MPI_STORE=", store.port(), " timeout 300 ", launcher,
                                  " -np ", GetParam(), " ", program, " --gtest_filter=MpiRank.* --gtest_brief=1 2>&1");
  std::FILE* output = ::popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  std::string text;
  char buffer[4096];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, output)) text.append(buffer, got);
  EXPECT_EQ(::pclose(output), 0) << text;
  EXPECT_NE(text.find("1 test"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mpi, testing::Values(1, 2, 3, 4, 8),
                         [](const auto& info) { return str("ranks", info.param); });

}  // namespace
}  // namespace athanor::distributed
