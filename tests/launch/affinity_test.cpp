// --numa-binding on systems that this machine is not, described by folders of their files.
#include "athanor/launch/affinity.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "athanor/base/error.h"

namespace athanor::launch {
namespace {

namespace fs = std::filesystem;
using Cpus = std::vector<std::vector<int>>;

// Two sockets of two NUMA nodes each, a node with four cores of two threads: core c of node n has the CPUs 4n + c and
// 16 + 4n + c. Two cores share a cache.
class NumaBindings : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "athanor_numa_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (int node = 0; node < 4; ++node) {
      const int first = 4 * node;
      write(detail::str("node/node", node, "/cpulist"),
            detail::str(first, "-", first + 3, ",", 16 + first, "-", 16 + first + 3));
      for (int core = first; core < first + 4; ++core)
        for (const int cpu : {core, 16 + core}) {
          const std::string at = detail::str("cpu/cpu", cpu, "/");
          write(at + "topology/physical_package_id", std::to_string(node / 2));
          write(at + "topology/thread_siblings_list", detail::str(core, ",", 16 + core));
          write(at + "cache/index3/shared_cpu_list", std::to_string(core / 2));
        }
    }
    write("node/nodelist", "0-3");
    all_.resize(32);
    std::iota(all_.begin(), all_.end(), 0);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text << "\n";
  }
  Cpus bound(NumaBinding binding, int workers) { return cpus_of_workers(binding, workers, all_, folder_.string()); }
  std::string error_of(NumaBinding binding, int workers) {
    try {
      bound(binding, workers);
      return "no error";
    } catch (const ValueError& error) {
      return error.what();
    }
  }
  fs::path folder_;
  std::vector<int> all_;
};

TEST_F(NumaBindings, NodeSpreadsWorkersOverTheNodesInOrder) {
  const Cpus eight = bound(NumaBinding::Node, 8);
  EXPECT_EQ(cpu_list_text(eight[0]), "0-3,16-19");
  EXPECT_EQ(eight[0], eight[1]);
  EXPECT_EQ(cpu_list_text(eight[7]), "12-15,28-31");
  const Cpus two = bound(NumaBinding::Node, 2);
  EXPECT_EQ(cpu_list_text(two[1]), "8-11,24-27");
  EXPECT_EQ(bound(NumaBinding::Node, 1)[0], eight[0]);
}

TEST_F(NumaBindings, SocketGivesAllNodesOfTheSocket) {
  const Cpus cpus = bound(NumaBinding::Socket, 4);
  EXPECT_EQ(cpu_list_text(cpus[1]), "0-7,16-23");
  EXPECT_EQ(cpu_list_text(cpus[2]), "8-15,24-31");
}

TEST_F(NumaBindings, ExclusiveCutsANodesCoresWithoutPartingTheirThreads) {
  const Cpus cpus = bound(NumaBinding::Exclusive, 12);
  EXPECT_EQ(cpu_list_text(cpus[0]), "0,16");
  EXPECT_EQ(cpu_list_text(cpus[1]), "1,17");
  EXPECT_EQ(cpu_list_text(cpus[2]), "2-3,18-19");
  EXPECT_EQ(cpu_list_text(cpus[3]), "4,20");
  std::vector<int> seen;
  for (const auto& some : cpus) seen.insert(seen.end(), some.begin(), some.end());
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, all_);
}

TEST_F(NumaBindings, CoreComplexGivesWhatSharesACache) {
  const Cpus cpus = bound(NumaBinding::CoreComplex, 8);
  EXPECT_EQ(cpu_list_text(cpus[0]), "0-1,16-17");
  EXPECT_EQ(cpu_list_text(cpus[7]), "14-15,30-31");
}

TEST_F(NumaBindings, CpusThatMayNotBeUsedAreLeftOut) {
  all_ = {1, 4, 5, 20, 21};
  const Cpus cpus = bound(NumaBinding::Node, 2);
  EXPECT_EQ(cpus, (Cpus{{1}, {4, 5, 20, 21}}));
  EXPECT_EQ(bound(NumaBinding::Exclusive, 2), cpus);
}

TEST_F(NumaBindings, WhatTheSystemLacksIsNamed) {
  EXPECT_THAT(error_of(NumaBinding::Exclusive, 17),
              testing::AllOf(testing::HasSubstr("5 workers"), testing::HasSubstr("4 cores")));
  fs::remove_all(folder_ / "node");
  EXPECT_THAT(error_of(NumaBinding::Node, 2), testing::HasSubstr("does not show its NUMA nodes"));
  fs::remove_all(folder_ / "cpu/cpu3");
  EXPECT_THAT(error_of(NumaBinding::Socket, 2),
              testing::AllOf(testing::HasSubstr("CPU 3"), testing::HasSubstr("physical_package_id")));
}

TEST_F(NumaBindings, ListsOfOtherFormsEndWhereTheyAreNotUnderstood) {
  write("node/node0/cpulist", "0-1,-9223372036854775808-5");
  EXPECT_EQ(bound(NumaBinding::Node, 4)[0], (std::vector<int>{0, 1}));
}

TEST_F(NumaBindings, NamesAreTorchruns) {
  EXPECT_EQ(numa_binding_of("core-complex"), NumaBinding::CoreComplex);
  EXPECT_EQ(numa_binding_of("exclusive"), NumaBinding::Exclusive);
  EXPECT_EQ(numa_binding_of("cores"), std::nullopt);
}

}  // namespace
}  // namespace athanor::launch
