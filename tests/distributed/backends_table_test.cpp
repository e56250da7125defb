// docs/backends.md says what the conformance suite found, of host tensors and of a queued device's.
// ATHANOR_UPDATE_DOCS=1 writes it anew. A column whose plug-in is not built here stays as it is, which the test says by
// being skipped after the comparison of the others.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "athanor/base/env.h"
#include "athanor/distributed/store/tcp_store.h"
#include "distributed/conformance.h"
#include "distributed/device_checks.h"
#include "distributed/helpers.h"
#include "distributed/ranks.h"

namespace athanor::distributed {
namespace {

using athanor::detail::str;

constexpr const char* kBegin = "<!-- written by tests/distributed/backends_table_test.cpp -->\n";
constexpr const char* kEnd = "<!-- end -->\n";
constexpr const char* kBackends[] = {"tcp", "store", "gloo", "mpi"};
constexpr int kRanks = 2;

// The repository this program was built in.
std::filesystem::path document() {
  std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (; folder.has_relative_path(); folder = folder.parent_path())
    if (std::filesystem::exists(folder / "docs" / "backends.md")) return folder / "docs" / "backends.md";
  return {};
}

// Whether all ranks came through.
using Body = std::function<void(ProcessGroup&)>;
using Trial = std::function<bool(const Body&)>;
using CheckOfDtype = std::function<void(ProcessGroup&, DType)>;
using Column = std::vector<std::string>;

// "all", "none", or the dtypes for which the ranks came through the check.
std::string dtypes_that_work(const Trial& trial, const CheckOfDtype& check) {
  const auto all = [&](ProcessGroup& g) {
    for (int d = 0; d < kNumDTypes; ++d) check(g, static_cast<DType>(d));
  };
  if (trial(all)) return "all";
  std::string names;
  for (int d = 0; d < kNumDTypes; ++d)
    if (trial([&](ProcessGroup& g) { check(g, static_cast<DType>(d)); }))
      names += str(names.empty() ? "" : ", ", dtype_name(static_cast<DType>(d)));
  return names.empty() ? "none" : names;
}

// `self` is this process among those of an mpirun.
std::string operators_that_work(const char* backend, ReduceOp::Kind kind, int self) {
  const auto store = std::make_shared<HashStore>();
  BackendOptions options;
  options.store = store;
  options.group_name = "table";
  options.timeout = std::chrono::seconds(20);
  options.global_ranks = {self};
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

// The cells of a backend, in the order of row_names().
Column column_of(const char* backend, const Trial& trial, int self = 0) {
  Column cells;
  for (const conformance::Check& check : conformance::checks()) {
    cells.push_back(dtypes_that_work(trial, check.run));
    athanor::detail::configure_cpu_queues(kRanks);
    cells.push_back(dtypes_that_work(trial, [&](ProcessGroup& g, DType dtype) {
      device_checks::check(check.op, g, dtype, Device(DeviceType::CPU, static_cast<DeviceIndex>(g.rank())));
    }));
    athanor::detail::configure_cpu_queues(0);
  }
  for (int kind = 0; kind <= ReduceOp::USER; ++kind)
    cells.push_back(operators_that_work(backend, static_cast<ReduceOp::Kind>(kind), self));
  return cells;
}

Column row_names() {
  Column names;
  for (const conformance::Check& check : conformance::checks())
    for (const char* device : {"cpu", "cpu:k"}) names.push_back(str(check.op, " | `", device, "`"));
  for (int kind = 0; kind <= ReduceOp::USER; ++kind)
    names.push_back(str("operator ", reduce_name(static_cast<ReduceOp::Kind>(kind)), " | any"));
  return names;
}

bool trial_of_threads(const char* backend, const Body& body) {
  ProcessGroupOptions options;
  options.backend = backend;
  return errors_of_ranks(kRanks, body, options) == RankErrors(kRanks);
}

// ---- ranks of MPI, which are processes of an mpirun

// Run by every rank; rank 0 writes the cells into a file. What all ranks say goes through the store.
TEST(BackendsTableRank, WritesTheColumnOfMpi) {
  const auto port = env::integer("ATHANOR_TEST_TABLE_STORE", 1, 65535);
  if (!port) GTEST_SKIP() << "one rank of a test of BackendsTable, which starts it";
  const bool open_mpi = env::text("OMPI_COMM_WORLD_SIZE").has_value();
  const int rank = static_cast<int>(env::integer(open_mpi ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK").value());
  TCPStoreOptions client;
  client.port = static_cast<int>(*port);
  const auto store = std::make_shared<TCPStore>("127.0.0.1", client);
  int number = 0;
  const auto trial = [&](const Body& body) {
    const std::string name = str("table/", number++);
    bool well = true;
    try {
      ProcessGroupOptions options;
      options.backend = "mpi";
      options.rank = rank;
      options.size = kRanks;
      options.name = name;
      options.timeout = std::chrono::seconds(20);
      const auto group = std::make_shared<ProcessGroup>(store, options);
      body(*group);
      group->shutdown();
    } catch (const Error& error) {
      std::printf("%s: %s\n", name.c_str(), error.what());
      well = false;
    }
    store->set(str(name, "/well/", rank), well ? "1" : "0");
    for (int r = 0; r < kRanks; ++r) well = store->get_text(str(name, "/well/", r)) == "1" && well;
    return well;
  };
  const Column cells = column_of("mpi", trial, rank);
  if (rank != 0) return;
  std::ofstream file(env::text("ATHANOR_TEST_TABLE_FILE").value());
  for (const std::string& cell : cells) file << cell << "\n";
}

std::optional<Column> column_of_mpi() {
  const auto named = env::text("ATHANOR_TEST_MPIRUN");
  if (!named && std::system("command -v mpirun >/dev/null 2>&1") != 0) return std::nullopt;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string folder =
      env::text("ATHANOR_PLUGIN_PATH").value_or(program.substr(0, program.rfind("/bin/")) + "/lib");
  if (::access((folder + "/libathanor_mpi.so").c_str(), R_OK) != 0) return std::nullopt;
  TCPStoreOptions options;
  options.port = 0;
  options.is_server = true;
  const TCPStore store("127.0.0.1", options);
  const TemporaryFolder temporary;
  const std::string command =
      str("OMP_NUM_THREADS=1 ATHANOR_TEST_TABLE_STORE=", store.port(), " ATHANOR_TEST_TABLE_FILE=", temporary / "cells",
          " timeout 200 ", named.value_or("mpirun --allow-run-as-root --oversubscribe"), " -np ", kRanks, " ", program,
          " --gtest_filter=BackendsTableRank.* --gtest_brief=1");
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream file(temporary / "cells");
  Column cells;
  for (std::string line; std::getline(file, line);) cells.push_back(line);
  return cells;
}

// ---- the document

// Nothing where the backend is not built.
std::optional<Column> found_here(const char* backend) {
  if (std::string_view(backend) == "mpi") return column_of_mpi();
  if (!is_backend_available(backend)) return std::nullopt;
  return column_of(backend, [backend](const Body& body) { return trial_of_threads(backend, body); });
}

// backend -> row -> cell of a table as it stands in the document.
std::map<std::string, std::map<std::string, std::string>> parse(const std::string& text) {
  std::map<std::string, std::map<std::string, std::string>> cells;
  std::istringstream lines(text);
  Column head;
  for (std::string line; std::getline(lines, line);) {
    Column row;
    for (std::size_t at = line.find("| "), end = 0; at != std::string::npos; at = end) {
      end = line.find(" |", at + 1);
      if (end == std::string::npos) break;
      row.push_back(line.substr(at + 2, end - at - 2));
      ++end;
    }
    if (head.empty()) head = row;
    for (std::size_t i = 2; i < row.size() && i < head.size(); ++i) cells[head[i]][row[0] + " | " + row[1]] = row[i];
  }
  return cells;
}

// `not_here` becomes the names of the backends whose cells are those of before.
std::string table(const std::string& before, std::string& not_here) {
  const Column names = row_names();
  auto old = parse(before);
  std::string head = "| operation | device |", line = "|---|---|";
  std::vector<std::string> rows;
  for (const std::string& name : names) rows.push_back(str("| ", name, " |"));
  for (const char* backend : kBackends) {
    head += str(" ", backend, " |");
    line += "---|";
    const auto cells = found_here(backend);
    if (!cells) not_here += str(not_here.empty() ? "" : ", ", backend);
    for (std::size_t r = 0; r < rows.size(); ++r)
      rows[r] += str(" ", cells ? r < cells->size() ? (*cells)[r] : "fails" : old[backend][names[r]], " |");
  }
  std::string out = head + "\n" + line + "\n";
  for (const std::string& row : rows) out += row + "\n";
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
  std::string not_here;
  const std::string wanted = table(text.substr(from, end - from), not_here);
  if (env::flag("ATHANOR_UPDATE_DOCS", false)) {
    text.replace(from, end - from, wanted);
    std::ofstream(path) << text;
    return;
  }
  EXPECT_EQ(text.substr(from, end - from), wanted) << "run again with ATHANOR_UPDATE_DOCS=1";
  if (!not_here.empty()) GTEST_SKIP() << "not built here, so that their columns were not compared: " << not_here;
}

}  // namespace
}  // namespace athanor::distributed
