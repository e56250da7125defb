// `athanor env --backends`: what each backend of process groups does here, tried out.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "athanor/base/deadline.h"
#include "athanor/base/error.h"
#include "athanor/distributed/backend.h"
#include "athanor/distributed/plugin.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/store/hash_store.h"
#include "athanor/ops/tensor.h"
#include "cli/env.h"

namespace athanor::cli {

namespace {

using athanor::detail::str;
using distributed::ProcessGroup;
using distributed::ReduceOp;

struct Row {
  const char* name;
  std::function<void(ProcessGroup&, DType)> run;
};

std::vector<Tensor> parts(const ProcessGroup& g, DType d) {
  std::vector<Tensor> all;
  for (int r = 0; r < g.size(); ++r) all.push_back(ones({2}, d));
  return all;
}

void exchange(ProcessGroup& g, DType d, bool wait_later) {
  Tensor out = ones({2}, d), in = empty({2}, d);
  const int other = 1 - g.rank();
  if (wait_later) {
    const auto sent = g.isend(out, other), received = g.irecv(in, other);
    received->wait();
    sent->wait();
  } else if (g.rank() == 0) {
    g.send(out, other);
    g.recv(in, other);
  } else {
    g.recv(in, other);
    g.send(out, other);
  }
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"broadcast", [](ProcessGroup& g, DType d) { g.broadcast(ones({2}, d), 0); }},
      {"all_reduce", [](ProcessGroup& g, DType d) { g.all_reduce(ones({2}, d)); }},
      {"reduce", [](ProcessGroup& g, DType d) { g.reduce(ones({2}, d), 0); }},
      {"all_gather", [](ProcessGroup& g, DType d) { g.all_gather(parts(g, d), ones({2}, d)); }},
      {"all_gather_into_tensor",
       [](ProcessGroup& g, DType d) { g.all_gather_into_tensor(empty({2 * g.size()}, d), ones({2}, d)); }},
      {"gather",
       [](ProcessGroup& g, DType d) {
         const std::vector<Tensor> all = g.rank() == 0 ? parts(g, d) : std::vector<Tensor>();
         g.gather(all, ones({2}, d), 0);
       }},
      {"scatter",
       [](ProcessGroup& g, DType d) {
         const std::vector<Tensor> all = g.rank() == 0 ? parts(g, d) : std::vector<Tensor>();
         g.scatter(empty({2}, d), all, 0);
       }},
      {"reduce_scatter", [](ProcessGroup& g, DType d) { g.reduce_scatter(empty({2}, d), parts(g, d)); }},
      {"reduce_scatter_tensor",
       [](ProcessGroup& g, DType d) { g.reduce_scatter_tensor(empty({2}, d), ones({2 * g.size()}, d)); }},
      {"all_to_all", [](ProcessGroup& g, DType d) { g.all_to_all(parts(g, d), parts(g, d)); }},
      {"all_to_all_single",
       [](ProcessGroup& g, DType d) { g.all_to_all_single(empty({2 * g.size()}, d), ones({2 * g.size()}, d)); }},
      {"barrier", [](ProcessGroup& g, DType) { g.barrier(); }},
      {"send, recv", [](ProcessGroup& g, DType d) { exchange(g, d, false); }},
      {"isend, irecv", [](ProcessGroup& g, DType d) { exchange(g, d, true); }},
  };
  return all;
}

std::string operator_name(int kind) {
  return str("operator ", distributed::reduce_name(static_cast<ReduceOp::Kind>(kind)));
}

// "all", "none", or the dtypes for which it holds.
std::string dtypes_where(const std::function<bool(DType)>& holds) {
  std::string names;
  int count = 0;
  for (int d = 0; d < kNumDTypes; ++d)
    if (holds(static_cast<DType>(d))) {
      names += str(count++ > 0 ? ", " : "", dtype_name(static_cast<DType>(d)));
    }
  return count == kNumDTypes ? "all" : count == 0 ? "none" : names;
}

// Whether all of `size` ranks, threads of this process, come through; what the first of them said if not.
bool works(const std::string& backend, int size, const std::function<void(ProcessGroup&)>& act) {
  const auto store = std::make_shared<distributed::HashStore>();
  std::vector<char> well(static_cast<std::size_t>(size), 0);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        distributed::ProcessGroupOptions options;
        options.backend = backend;
        options.rank = rank;
        options.size = size;
        options.name = "env";
        options.timeout = std::chrono::seconds(10);
        const auto group = std::make_shared<ProcessGroup>(store, options);
        act(*group);
        group->shutdown();
        well[static_cast<std::size_t>(rank)] = 1;
      } catch (const std::exception&) {
      }
    });
  for (std::thread& rank : ranks) rank.join();
  return std::count(well.begin(), well.end(), 1) == size;
}

// One line per row, then one with what the plug-in says of its library. Ranks of MPI are processes of an mpirun:
// without one there is a single rank, and no messages.
void write_column(const std::string& backend, int to) {
  const int size = backend == "mpi" ? 1 : 2;
  const auto say = [to](const std::string& text) {
    const std::string line = text + "\n";
    static_cast<void>(!::write(to, line.data(), line.size()));
  };
  for (const Row& row : rows()) {
    const bool messages = std::string_view(row.name).find("send") != std::string_view::npos;
    say(messages && size < 2 ? "needs mpirun" : dtypes_where([&](DType d) {
      return works(backend, size, [&](ProcessGroup& g) { row.run(g, d); });
    }));
  }
  for (int kind = 0; kind <= ReduceOp::USER; ++kind) {
    const auto k = static_cast<ReduceOp::Kind>(kind);
    const ReduceOp op = k == ReduceOp::PREMUL_SUM ? ReduceOp::premul_sum(2)
                        : k == ReduceOp::USER ? ReduceOp::user("env", [](void*, const void*, std::int64_t, DType) {})
                                              : ReduceOp(k);
    distributed::BackendOptions options;
    options.store = std::make_shared<distributed::HashStore>();
    options.group_name = "env operators";
    options.timeout = std::chrono::seconds(10);
    options.global_ranks = {0};
    const auto made = distributed::make_backend(backend, options);
    say(dtypes_where([&](DType d) { return made->supports(op, d); }));
    made->shutdown();
  }
  say(distributed::plugin_note(backend));
}

// In a process of its own: a plug-in that ends its process, or hangs, is an answer too.
std::vector<std::string> column(const std::string& backend, std::string& note) {
  const std::size_t count = rows().size() + ReduceOp::USER + 1;
  int ends[2];
  ATHANOR_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "env: no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGPIPE, SIG_DFL);
    try {
      write_column(backend, ends[1]);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", backend.c_str(), error.what());
    }
    // An mpirun takes it amiss when a process leaves without MPI_Finalize, which its plug-in calls at the end.
    if (backend == "mpi") std::exit(0);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  for (const Deadline deadline = Deadline::after(std::chrono::seconds(120)); true;) {
    pollfd wait{ends[0], POLLIN, 0};
    char buffer[4096];
    const ssize_t got = ::poll(&wait, 1, deadline.poll_milliseconds()) > 0 ? ::read(ends[0], buffer, sizeof buffer) : 0;
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  std::vector<std::string> lines;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(text.substr(at, end - at));
  if (lines.size() > count) note = lines[count];
  lines.resize(count, "fails");
  return lines;
}

}  // namespace

int env_backends() {
  std::vector<std::vector<std::string>> table(1, {"operation"});
  for (const Row& row : rows()) table.push_back({row.name});
  for (int kind = 0; kind <= ReduceOp::USER; ++kind) table.push_back({operator_name(kind)});
  std::string notes;
  // What docs/backends.md lists, before what plug-ins add.
  for (const char* name : {"tcp", "gloo", "mpi"}) {
    if (!distributed::is_backend_available(name)) continue;
    table[0].emplace_back(name);
    std::string note;
    const std::vector<std::string> entries = column(name, note);
    if (!note.empty()) notes += str(name, ": ", note, "\n");
    for (std::size_t r = 0; r < entries.size(); ++r) table[r + 1].push_back(entries[r]);
  }
  for (std::size_t r = 0; r < table.size(); ++r) {
    for (const std::string& entry : table[r]) std::printf("| %s ", entry.c_str());
    std::printf("|\n");
    if (r > 0) continue;
    for (std::size_t c = 0; c < table[0].size(); ++c) std::printf("|---");
    std::printf("|\n");
  }
  if (!notes.empty()) std::printf("\n%s", notes.c_str());
  return 0;
}

}  // namespace athanor::cli
