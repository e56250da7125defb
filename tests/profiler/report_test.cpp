// Tables and traces of recorded events.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "athanor/io/file.h"
#include "athanor/ops/factory.h"
#include "athanor/profiler/profiler.h"

namespace athanor::profiler {
namespace {

using testing::HasSubstr;

struct Folder {
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "athanor_profile_XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

/// A square of a sum and its gradient, in two scopes of one name, one inside the other.
void work() {
  const RecordFunction outer("twice");  // around all: nothing takes longer, however busy the machine is
  const Tensor x = full({3, 2}, 2.0).requires_grad_();
  const RecordFunction inner("twice");
  for (int i = 0; i < 3; ++i) (x * x).sum().backward();
}

const EventAverage& row(const KeyAverages& averages, std::string_view name) {
  for (const EventAverage& a : averages)
    if (a.name == name) return a;
  throw std::runtime_error("no row " + std::string(name));
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

}  // namespace

TEST(KeyAverages, CountEveryCallAndTheTimeOfNestedOnesOnce) {
  Profile profile;
  work();
  profile.stop();
  const KeyAverages averages = profile.key_averages();
  EXPECT_EQ(row(averages, "mul").count, 3 + 2 * 3) << "one product forward, two backward";
  const EventAverage& twice = row(averages, "twice");
  std::int64_t outer = 0, self = 0, whole = 0;
  for (const Event& e : profile.events()) {
    if (e.name == "twice" && e.parent < 0) outer = e.duration;
    if (e.name == "twice") self += e.self;
    whole += e.self;
  }
  EXPECT_EQ(twice.count, 2);
  EXPECT_EQ(twice.total, outer);
  EXPECT_EQ(twice.self, self);
  EXPECT_EQ(twice.average(), static_cast<double>(outer) / 2);
  std::int64_t sum = 0;
  for (const EventAverage& a : averages) sum += a.self;
  EXPECT_EQ(sum, whole);
}

TEST(KeyAverages, GroupByShapesIfAsked) {
  Profile profile({.record_shapes = true});
  for (const std::int64_t n : {2, 2, 5}) Tensor y = ones({n}) + ones({n, n});
  profile.stop();
  const KeyAverages averages = profile.key_averages(true);
  std::map<std::string, std::int64_t> counts;
  for (const EventAverage& a : averages)
    if (a.name == "add") counts[a.shapes] = a.count;
  EXPECT_EQ(counts, (std::map<std::string, std::int64_t>{{"[[2], [2, 2]]", 2}, {"[[5], [5, 5]]", 1}}));
  EXPECT_THAT(averages.table(), HasSubstr("Input Shapes"));
  EXPECT_EQ(row(profile.key_averages(), "add").count, 3);
}

TEST(KeyAverages, TableSortsAndLimitsItsRows) {
  Profile profile({.profile_memory = true});
  work();
  profile.stop();
  const KeyAverages averages = profile.key_averages();
  const auto table = lines(averages.table("count", 2));
  ASSERT_EQ(table.size(), 3U + 2 + 2) << averages.table("count", 2);
  EXPECT_THAT(table[1], testing::MatchesRegex(" +Name +Self CPU % +Self CPU +CPU total % +CPU total +CPU time avg +CPU "
                                              "Mem +Self CPU Mem +# of Calls +"));
  EXPECT_THAT(table[3], testing::MatchesRegex(" +mul .*% .*[mu]s .*% .*[mu]s .*[mu]s .* K?B .* K?B +9 +"));
  EXPECT_THAT(table[6], HasSubstr("Self CPU time total: "));
  for (const char* key :
       {"self_cpu_time_total", "cpu_time_total", "cpu_time", "cpu_memory_usage", "self_cpu_memory_usage", "count"}) {
    const auto all = lines(averages.table(key, -1));
    EXPECT_EQ(all.size(), 5 + averages.size()) << key;
  }
  EXPECT_THAT(lines(averages.table("cpu_time_total"))[3], HasSubstr(" twice ")) << "the outermost scope";
  try {
    averages.table("cuda_time");
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("'cuda_time'"), HasSubstr("self_cpu_time_total")));
  }
}

TEST(KeyAverages, OfNothingIsAnEmptyTable) {
  Profile profile;
  profile.stop();
  EXPECT_EQ(lines(profile.key_averages().table()).size(), 5U);
}

TEST(ChromeTrace, HasOneEventPerCallNamedThreadsAndArrowsToBackward) {
  const Folder folder;
  Profile profile({.record_shapes = true, .profile_memory = true});
  {
    const RecordFunction scope("a \"quoted\" \\ name\nof\ttwo lines");
    work();
  }
  profile.stop();
  profile.export_chrome_trace(folder / "trace.json");
  const auto trace = nlohmann::json::parse(io::read_text(folder / "trace.json"));
  std::multiset<std::string> names, expected;
  std::map<std::uint64_t, int> starts, ends;
  std::map<std::int64_t, std::string> threads;
  for (const auto& e : trace.at("traceEvents")) {
    const std::string phase = e.at("ph");
    if (phase == "M" && e.at("name") == "thread_name") threads[e.at("tid")] = e.at("args").at("name");
    if (phase == "s") ++starts[e.at("id")];
    if (phase == "f") ++ends[e.at("id")];
    if (phase != "X") continue;
    names.insert(e.at("name").get<std::string>());
    EXPECT_TRUE(threads.contains(e.at("tid")));
    EXPECT_GE(e.at("ts").get<double>(), 0);
    EXPECT_GE(e.at("dur").get<double>(), 0);
    EXPECT_TRUE(e.at("args").at("Bytes").is_number_integer());
    if (e.at("name") == "mul" && e.at("args").contains("Sequence number")) {
      EXPECT_EQ(e.at("args").at("Input Dims"), nlohmann::json::parse("[[3, 2], [3, 2]]"));
    }
  }
  for (const Event& e : profile.events()) expected.insert(e.name);
  EXPECT_EQ(names, expected);
  ASSERT_EQ(threads.size(), 1U);
  EXPECT_EQ(threads.begin()->second, "main");
  EXPECT_EQ(starts, ends);
  EXPECT_EQ(starts.size(), 6U) << "a product and a sum in each of three passes";
}

TEST(ChromeTrace, ThatCannotBeWrittenSaysWhere) {
  Profile profile;
  profile.stop();
  try {
    profile.export_chrome_trace("/no/such/folder/trace.json");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr("/no/such/folder"));
  }
}

TEST(RecordProfile, WritesTheTraceOfItsScope) {
  const Folder folder;
  {
    const RecordProfile guard(folder / "trace.json");
    work();
  }
  EXPECT_THAT(io::read_text(folder / "trace.json"), HasSubstr("MulBackward0"));
  EXPECT_NO_THROW(RecordProfile("/no/such/folder/trace.json"));
}

}  // namespace athanor::profiler
