// Backends in shared objects of their own.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include "athanor/distributed/plugin.h"
#include "distributed/helpers.h"
#include "distributed/ranks.h"

namespace athanor::distributed {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string error_of_making(const char* name) {
  try {
    BackendOptions options;
    options.store = std::make_shared<HashStore>();
    make_backend(name, options);
  } catch (const DistError& error) {
    return error.what();
  }
  return "";
}

// Puts folders into ATHANOR_PLUGIN_PATH for a scope.
class PluginPath {
 public:
  explicit PluginPath(const std::string& folders) { ::setenv("ATHANOR_PLUGIN_PATH", folders.c_str(), 1); }
  ~PluginPath() { ::unsetenv("ATHANOR_PLUGIN_PATH"); }
};

std::string plugin_folder() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "plugins").string();
}

TEST(Plugin, IsFoundByItsNameLoadedOnceAndUsed) {
  EXPECT_FALSE(is_backend_available("shelf"));
  const PluginPath path("/no/such/folder:" + plugin_folder());
  EXPECT_TRUE(is_backend_available("shelf"));
  ProcessGroupOptions options;
  options.backend = "shelf";
  run_ranks(
      2,
      [](ProcessGroup& group) {
        Tensor t = ones({3});
        group.all_reduce(t);
        EXPECT_TRUE(t.equal(full({3}, 2.0)));
      },
      options);
}

TEST(Plugin, ThatIsMissingIsNamedWithItsPackagesAndWithTheOnesFound) {
  const TemporaryFolder folder;
  std::ofstream(folder / "libathanor_broken.so") << "not a shared object";
  const PluginPath path(plugin_folder() + ":" + folder.operator/(""));
  EXPECT_THAT(found_plugins(), testing::IsSupersetOf({"outdated", "shelf"}));
  EXPECT_THAT(found_plugins(), testing::Not(testing::Contains("broken")));
  EXPECT_THAT(error_of_making("nccl"),
              AllOf(HasSubstr("libnccl-dev"), HasSubstr("cuda-toolkit"), HasSubstr("tcp"), HasSubstr("outdated")));
  EXPECT_THAT(error_of_making("nccl"), testing::Not(HasSubstr("broken")));
}

TEST(Plugin, OfSomeRanksOnlyIsRefused) {
  const PluginPath path(plugin_folder());
  const auto store = std::make_shared<HashStore>();
  const auto error_of_rank = [&](int rank, const char* backend, std::chrono::milliseconds timeout) -> std::string {
    ProcessGroupOptions options;
    options.backend = backend;
    options.rank = rank;
    options.size = 2;
    options.name = "torn";
    options.timeout = timeout;
    try {
      const ProcessGroup group(store, options);
    } catch (const DistError& error) {
      return error.what();
    }
    return "";
  };
  auto first = std::async(std::launch::async, error_of_rank, 0, "tcp", std::chrono::milliseconds(500));
  store->wait({"torn/backend chosen"}, std::chrono::seconds(20));
  EXPECT_THAT(error_of_rank(1, "shelf", std::chrono::seconds(20)),
              HasSubstr("backend 'shelf' of rank 1, but backend 'tcp' of rank 0: all ranks need the same one"));
  EXPECT_THAT(first.get(), HasSubstr("rank 1"));
}

TEST(Plugin, OfAnotherVersionOrThatIsNoneIsRefused) {
  const TemporaryFolder folder;
  std::ofstream(folder / "libathanor_gloo.so") << "not a shared object";
  const PluginPath path(plugin_folder() + ":" + folder.operator/(""));
  EXPECT_THAT(error_of_making("outdated"), AllOf(HasSubstr("libathanor_outdated.so"), HasSubstr("version 0")));
  EXPECT_THAT(error_of_making("gloo"), AllOf(HasSubstr("libathanor_gloo.so"), HasSubstr("cannot be loaded")));
  EXPECT_FALSE(is_backend_available("gloo"));
  EXPECT_THAT(backend_problem("gloo"), HasSubstr("cannot be loaded"));
  EXPECT_EQ(backend_problem("tcp"), "");
  EXPECT_EQ(backend_problem("carrier_pigeon"), "not here");
}

}  // namespace
}  // namespace athanor::distributed
