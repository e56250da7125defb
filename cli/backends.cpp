// `athanor env --backends`: what each backend of process groups does here, tried out.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
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
#include "athanor/tensor/cuda.h"
#include "athanor/tensor/stream.h"
#include "cli/env.h"

namespace athanor::cli {

namespace {

using athanor::detail::str;
using distributed::ProcessGroup;
using distributed::ReduceOp;

struct Row {
  const char* name;
  std::function<void(ProcessGroup&, const TensorOptions&)> run;
};

// What a rank brings, as often as it is wanted.
Tensor values(int rank, const TensorOptions& o, std::int64_t count = 2) { return full({count}, rank + 1, o); }

std::vector<Tensor> parts(const ProcessGroup& g, const TensorOptions& o, int rank) {
  std::vector<Tensor> all;
  for (int r = 0; r < g.size(); ++r) all.push_back(values(rank, o));
  return all;
}

void expect(const Tensor& got, int value, const TensorOptions& o) {
  ATHANOR_CHECK(equal(got, full({2}, value, o)), "got ", got, ", expected ", value);
}

void expect_sum(const ProcessGroup& g, const Tensor& got, const TensorOptions& o) {
  expect(got, g.size() * (g.size() + 1) / 2, o);
}

// One part of every rank, each what that rank brings.
void expect_of_all(const ProcessGroup& g, const Tensor& got, const TensorOptions& o) {
  for (int r = 0; r < g.size(); ++r) expect(got.narrow(0, std::int64_t{2} * r, 2), r + 1, o);
}

void exchange(ProcessGroup& g, const TensorOptions& o, bool wait_later) {
  const Tensor out = values(g.rank(), o), in = zeros({2}, o);
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
  expect(in, other + 1, o);
}

// A call of `act` on what this rank brings and a result that begins with zeros.
template <class Act, class Expect>
Row row(const char* name, Act act, Expect expected) {
  return {name, [=](ProcessGroup& g, const TensorOptions& o) {
            const Tensor whole = zeros({std::int64_t{2} * g.size()}, o);
            std::vector<Tensor> out;
            for (int r = 0; r < g.size(); ++r) out.push_back(whole.narrow(0, std::int64_t{2} * r, 2));
            act(g, o, out, whole);
            expected(g, o, whole);
          }};
}

const std::vector<Row>& rows() {
  using Out = const std::vector<Tensor>&;
  using Options = const TensorOptions&;
  const auto of_all = [](ProcessGroup& g, Options o, const Tensor& got) { expect_of_all(g, got, o); };
  const auto at_root = [](ProcessGroup& g, Options o, const Tensor& got) {
    if (g.rank() == 0) expect_of_all(g, got, o);
  };
  const auto sum = [](ProcessGroup& g, Options o, const Tensor& got) { expect_sum(g, got.narrow(0, 0, 2), o); };
  const auto own = [](ProcessGroup& g, Options o, const Tensor& got) { expect(got.narrow(0, 0, 2), g.rank() + 1, o); };
  static const std::vector<Row> all = {
      {"broadcast",
       [](ProcessGroup& g, Options o) {
         const Tensor t = values(g.rank(), o);
         g.broadcast(t, 0);
         expect(t, 1, o);
       }},
      {"all_reduce",
       [](ProcessGroup& g, Options o) {
         const Tensor t = values(g.rank(), o);
         g.all_reduce(t);
         expect_sum(g, t, o);
       }},
      {"reduce",
       [](ProcessGroup& g, Options o) {
         const Tensor t = values(g.rank(), o);
         g.reduce(t, 0);
         if (g.rank() == 0) expect_sum(g, t, o);
       }},
      row(
          "all_gather",
          [](ProcessGroup& g, Options o, Out out, const Tensor&) { g.all_gather(out, values(g.rank(), o)); }, of_all),
      row(
          "all_gather_into_tensor",
          [](ProcessGroup& g, Options o, Out, const Tensor& whole) {
            g.all_gather_into_tensor(whole, values(g.rank(), o));
          },
          of_all),
      row(
          "gather",
          [](ProcessGroup& g, Options o, Out out, const Tensor&) {
            g.gather(g.rank() == 0 ? out : std::vector<Tensor>(), values(g.rank(), o), 0);
          },
          at_root),
      row(
          "scatter",
          [](ProcessGroup& g, Options o, Out out, const Tensor&) {
            std::vector<Tensor> in;
            for (int r = 0; g.rank() == 0 && r < g.size(); ++r) in.push_back(values(r, o));
            g.scatter(out[0], in, 0);
          },
          own),
      row(
          "reduce_scatter",
          [](ProcessGroup& g, Options o, Out out, const Tensor&) { g.reduce_scatter(out[0], parts(g, o, g.rank())); },
          sum),
      row(
          "reduce_scatter_tensor",
          [](ProcessGroup& g, Options o, Out out, const Tensor&) {
            g.reduce_scatter_tensor(out[0], values(g.rank(), o, std::int64_t{2} * g.size()));
          },
          sum),
      row(
          "all_to_all",
          [](ProcessGroup& g, Options o, Out out, const Tensor&) { g.all_to_all(out, parts(g, o, g.rank())); }, of_all),
      row(
          "all_to_all_single",
          [](ProcessGroup& g, Options o, Out, const Tensor& whole) {
            g.all_to_all_single(whole, values(g.rank(), o, std::int64_t{2} * g.size()));
          },
          of_all),
      {"barrier", [](ProcessGroup& g, Options) { g.barrier(); }},
      {"send, recv", [](ProcessGroup& g, Options o) { exchange(g, o, false); }},
      {"isend, irecv", [](ProcessGroup& g, Options o) { exchange(g, o, true); }},
  };
  return all;
}

// A host tensor's and a queued device's, of which each rank has its own.
constexpr const char* kDevices[] = {"cpu", "cpu:k"};

TensorOptions options_of(std::size_t device, int rank, DType dtype) {
  return TensorOptions(device == 0 ? Device(DeviceType::CPU) : Device(DeviceType::CPU, static_cast<DeviceIndex>(rank)))
      .dtype(dtype);
}

std::string operator_name(int kind) {
  return str("operator ", distributed::reduce_name(static_cast<ReduceOp::Kind>(kind)));
}

// "all", "none", or the dtypes for which it holds, tried together first.
std::string dtypes_where(const std::function<bool(const std::vector<DType>&)>& holds) {
  std::vector<DType> all;
  for (int d = 0; d < kNumDTypes; ++d) all.push_back(static_cast<DType>(d));
  if (holds(all)) return "all";
  std::string names;
  for (const DType d : all)
    if (holds({d})) names += str(names.empty() ? "" : ", ", dtype_name(d));
  return names.empty() ? "none" : names;
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
  athanor::detail::configure_cpu_queues(size);
  for (const Row& row : rows()) {
    const bool messages = std::string_view(row.name).find("send") != std::string_view::npos;
    for (std::size_t device = 0; device < std::size(kDevices); ++device)
      say(messages && size < 2 ? "needs mpirun" : dtypes_where([&](const std::vector<DType>& dtypes) {
        return works(backend, size, [&](ProcessGroup& g) {
          for (const DType d : dtypes) row.run(g, options_of(device, g.rank(), d));
        });
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
    say(dtypes_where([&](const std::vector<DType>& dtypes) {
      return std::all_of(dtypes.begin(), dtypes.end(), [&](DType d) { return made->supports(op, d); });
    }));
    made->shutdown();
  }
  say(distributed::plugin_note(backend));
}

// In a process of its own: a plug-in that ends its process, or hangs, is an answer too.
std::vector<std::string> column(const std::string& backend, std::string& note) {
  const std::size_t count = rows().size() * std::size(kDevices) + ReduceOp::USER + 1;
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
  std::vector<std::vector<std::string>> table(1, {"operation", "device"});
  for (const Row& row : rows())
    for (const char* device : kDevices) table.push_back({row.name, device});
  for (int kind = 0; kind <= ReduceOp::USER; ++kind) table.push_back({operator_name(kind), "any"});
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
  const std::string no_cuda = cuda::is_available() ? "" : "cuda:k: no such device here\n";
  if (!(notes + no_cuda).empty()) std::printf("\n%s%s", notes.c_str(), no_cuda.c_str());
  return 0;
}

}  // namespace athanor::cli
