// docs/backends.md says what the conformance suite found. ATHANOR_UPDATE_DOCS=1 writes it anew.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "athanor/base/env.h"
#include "distributed/conformance.h"
#include "distributed/ranks.h"

namespace athanor::distributed {
namespace {

constexpr const char* kBegin = "<!-- written by tests/distributed/backends_table_test.cpp -->\n";
constexpr const char* kEnd = "<!-- end -->\n";
constexpr const char* kBackends[] = {"tcp", "store"};

// The repository this program was built in.
std::filesystem::path document() {
  std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (; folder.has_relative_path(); folder = folder.parent_path())
    if (std::filesystem::exists(folder / "docs" / "backends.md")) return folder / "docs" / "backends.md";
  return {};
}

// "all", or the dtypes for which two ranks came through the check.
std::string dtypes_that_work(const char* backend, const conformance::Check& check) {
  ProcessGroupOptions options;
  options.backend = backend;
  std::string names;
  int working = 0;
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto errors = errors_of_ranks(
        2, [&](ProcessGroup& g) { check.run(g, static_cast<DType>(d)); }, options);
    if (errors != RankErrors(2)) continue;
    ++working;
    names += athanor::detail::str(names.empty() ? "" : ", ", dtype_name(static_cast<DType>(d)));
  }
  return working == kNumDTypes ? "all" : working == 0 ? "none" : names;
}

std::string operators_that_work(const char* backend, ReduceOp::Kind kind) {
  const auto store = std::make_shared<HashStore>();
  BackendOptions options;
  options.store = store;
  options.group_name = "table";
  options.timeout = std::chrono::seconds(20);
  options.global_ranks = {0};
  const auto made = make_backend(backend, options);
  const ReduceOp op = kind == ReduceOp::PREMUL_SUM ? ReduceOp::premul_sum(2)
                      : kind == ReduceOp::USER ? ReduceOp::user("table", [](void*, const void*, std::int64_t, DType) {})
                                               : ReduceOp(kind);
  int floating = 0, integral = 0;
  for (int d = 0; d < kNumDTypes; ++d)
    if (made->supports(op, static_cast<DType>(d))) (is_floating_point(static_cast<DType>(d)) ? floating : integral)++;
  made->shutdown();
  if (floating == 4 && integral == 6) return "all";
  if (floating == 4 && integral == 0) return "floating";
  if (floating == 0 && integral == 6) return "integers, bool";
  return floating + integral == 0 ? "none" : "some";
}

std::string table() {
  std::string out = "| operation |", line = "|---|";
  for (const char* backend : kBackends) out += athanor::detail::str(" ", backend, " |"), line += "---|";
  out += "\n" + line + "\n";
  for (const conformance::Check& check : conformance::checks()) {
    out += athanor::detail::str("| ", check.op, " |");
    for (const char* backend : kBackends) out += " " + dtypes_that_work(backend, check) + " |";
    out += "\n";
  }
  for (int kind = 0; kind <= ReduceOp::USER; ++kind) {
    out += athanor::detail::str("| operator ", reduce_name(static_cast<ReduceOp::Kind>(kind)), " |");
    for (const char* backend : kBackends)
      out += " " + operators_that_work(backend, static_cast<ReduceOp::Kind>(kind)) + " |";
    out += "\n";
  }
  return out;
}

TEST(BackendsTable, IsWhatTheConformanceSuiteFinds) {
  store_backend::register_once();
  const auto path = document();
  if (path.empty()) GTEST_SKIP() << "docs/backends.md is not above the folder of this program";
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  std::string text = content.str();
  const std::size_t begin = text.find(kBegin), end = text.find(kEnd);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos && begin < end) << "marks are missing in " << path;
  const std::size_t from = begin + std::string(kBegin).size();
  const std::string wanted = table();
  if (env::flag("ATHANOR_UPDATE_DOCS", false)) {
    text.replace(from, end - from, wanted);
    std::ofstream(path) << text;
    return;
  }
  EXPECT_EQ(text.substr(from, end - from), wanted) << "run again with ATHANOR_UPDATE_DOCS=1";
}

}  // namespace
}  // namespace athanor::distributed
