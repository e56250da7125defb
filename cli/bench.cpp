// athanor bench collectives: time, bandwidth and correctness of every collective, size after size.
#include "cli/bench.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "athanor/base/env.h"
#include "athanor/base/parallel.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/store/tcp_store.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/tensor.h"
#include "cli/command_line.h"

namespace athanor::cli {
namespace {

using distributed::ProcessGroup;
using Clock = std::chrono::steady_clock;

struct Arguments {
  std::vector<std::string> ops = {"all_reduce",     "broadcast",  "reduce",    "all_gather",
                                  "reduce_scatter", "all_to_all", "send_recv", "barrier"};
  std::vector<std::string> sizes = {"8", "4K", "64K", "1M", "16M", "100M"};
  std::string dtype = "float32", backend = "tcp", json;
  int ranks = 2, rounds = 7;
  double seconds = 0.05;
  bool shared = false;
};

std::size_t parse_size(const std::string& text) {
  std::size_t end = 0;
  const double number = std::stod(text, &end);
  const std::string unit = text.substr(end);
  const double scale = unit.empty() || unit == "B" ? 1
                       : unit == "K"               ? 1 << 10
                       : unit == "M"               ? 1 << 20
                       : unit == "G"               ? 1 << 30
                                                   : 0;
  ATHANOR_CHECK_VALUE(scale > 0 && number >= 0, "size '", text,
                      "': expected a number, with K, M or G behind it if it is large");
  return static_cast<std::size_t>(number * scale);
}

// One collective at one size: what is timed, how it is checked, and its share of bus bandwidth.
struct Case {
  std::function<void()> run;
  /// Prepares known values, runs once, and counts what is wrong.
  std::function<std::int64_t()> check;
  double bus = 1, per_call = 1;
};

// A TCP connection between ranks 0 and 1 used as plainly as can be, by calls that block: the limit of what goes over
// the network.
class BareConnection {
 public:
  explicit BareConnection(ProcessGroup& group) {
    using namespace distributed;
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    Tensor port = zeros({1}, TensorOptions().dtype(kLong));
    Listener listener;
    if (group.rank() == 0) {
      listener = Listener::on_port(0);
      port.fill_(listener.port());
    }
    group.broadcast(port, 0);
    if (group.rank() > 1) return;
    socket_ = group.rank() == 0
                  ? listener.accept(deadline)
                  : Socket::connect({env::text("MASTER_ADDR").value_or("127.0.0.1"), port.item<int>()}, deadline);
    tune_tcp(socket_.fd());
    const int flags = ::fcntl(socket_.fd(), F_GETFL);
    const timeval patience{60, 0};
    ATHANOR_CHECK(::fcntl(socket_.fd(), F_SETFL, flags & ~O_NONBLOCK) == 0 &&
                      ::setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
                      ::setsockopt(socket_.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0,
                  "a connection that blocks: ", distributed::error_text(errno));
  }
  void send(const char* data, std::size_t size) {
    while (size > 0) move(::send(socket_.fd(), data, size, MSG_NOSIGNAL), data, size);
  }
  void recv(char* data, std::size_t size) {
    while (size > 0) move(::recv(socket_.fd(), data, size, 0), data, size);
  }

 private:
  template <typename Data>
  static void move(ssize_t moved, Data*& data, std::size_t& size) {
    ATHANOR_CHECK(moved > 0, "the bare connection: ", moved == 0 ? "closed" : distributed::error_text(errno));
    data += moved;
    size -= static_cast<std::size_t>(moved);
  }
  distributed::Socket socket_;
};

class Bench {
 public:
  Bench(const Arguments& arguments, ProcessGroup& group)
      : arguments_(arguments), group_(group), dtype_(dtype_from_name(arguments.dtype)) {}

  void run() {
    if (group_.rank() == 0) {
      std::printf("# %d ranks, backend %s, %s%s; times of one call in microseconds, of the slowest rank\n",
                  group_.size(), group_.backend_name().c_str(), arguments_.dtype.c_str(),
                  arguments_.shared ? ", shared memory" : "");
      std::printf("%-15s %11s %11s %9s %9s %10s %10s %10s %7s\n", "op", "bytes", "time", "algbw", "busbw", "min", "p50",
                  "p99", "wrong");
    }
    for (const std::string& op : arguments_.ops)
      for (const std::string& size : arguments_.sizes) {
        measure(op, parse_size(size));
        if (op == "barrier") break;
      }
    if (group_.rank() == 0 && !arguments_.json.empty()) {
      std::FILE* file = std::fopen(arguments_.json.c_str(), "w");
      ATHANOR_CHECK_TYPE(IoError, file != nullptr, "cannot write '", arguments_.json, "'");
      std::fputs(results_.dump(1).c_str(), file);
      std::fclose(file);
    }
  }

 private:
  Tensor make(std::int64_t count, bool shared = false) {
    if (shared) {
      if (auto memory = group_.allocate_shared(static_cast<std::size_t>(count) * item_size(dtype_))) {
        Tensor tensor = from_blob(
            memory.get(), {count}, [memory](void*) {}, TensorOptions().dtype(dtype_));
        return tensor.zero_();
      }
    }
    return zeros({count}, TensorOptions().dtype(dtype_));
  }

  // Small integers that every dtype holds exactly.
  Tensor values(int rank, std::int64_t count) const {
    return remainder(arange(count, TensorOptions().dtype(kLong)) + 3 * rank, 5).to(dtype_);
  }
  Tensor sum(std::int64_t count) const {
    Tensor total = zeros({count}, TensorOptions().dtype(dtype_));
    for (int r = 0; r < group_.size(); ++r) total += values(r, count);
    return total;
  }
  static std::int64_t differences(const Tensor& got, const Tensor& wanted) {
    return got.ne(wanted).sum().item<std::int64_t>();
  }

  Case make_case(const std::string& op, std::size_t bytes) {
    const int n = group_.size(), me = group_.rank();
    const auto count = static_cast<std::int64_t>(bytes / item_size(dtype_));
    const double others = static_cast<double>(n - 1) / n;
    ProcessGroup* group = &group_;
    if (op == "barrier") return {[=] { group->barrier(); }, [] { return std::int64_t{0}; }, 0, 1};
    if (op == "copy") {
      // No communication: what all ranks at once reach with a plain copy, the limit of what moves through memory.
      Tensor x = make(count), y = make(count);
      return {[=]() mutable { y.copy_(x); }, [] { return std::int64_t{0}; }, 1, 1};
    }
    ATHANOR_CHECK_VALUE(n >= 2 || (op != "send_recv" && op != "connection"), op, " needs two ranks");
    if (op == "connection") {
      auto connection = std::make_shared<BareConnection>(group_);
      Tensor x = make(count);
      return there_and_back(
          x, [=] { connection->send(static_cast<const char*>(x.data_ptr()), x.nbytes()); },
          [=] { connection->recv(static_cast<char*>(x.data_ptr()), x.nbytes()); });
    }
    if (op == "all_reduce") {
      Tensor x = make(count, arguments_.shared);
      return {[=] { group->all_reduce(x); },
              [=, this] {
                x.copy_(values(me, count));
                group->all_reduce(x);
                return differences(x, sum(count));
              },
              2 * others, 1};
    }
    if (op == "broadcast") {
      Tensor x = make(count);
      return {[=] { group->broadcast(x, 0); },
              [=, this] {
                x.copy_(values(me, count));
                group->broadcast(x, 0);
                return differences(x, values(0, count));
              },
              1, 1};
    }
    if (op == "reduce") {
      Tensor x = make(count);
      return {[=] { group->reduce(x, 0); },
              [=, this] {
                x.copy_(values(me, count));
                group->reduce(x, 0);
                return differences(x, me == 0 ? sum(count) : values(me, count));
              },
              1, 1};
    }
    if (op == "all_gather") {
      Tensor x = make(count), y = make(count * n);
      return {[=] { group->all_gather_into_tensor(y, x); },
              [=, this] {
                x.copy_(values(me, count));
                group->all_gather_into_tensor(y, x);
                std::int64_t wrong = 0;
                for (int r = 0; r < n; ++r) wrong += differences(y.narrow(0, r * count, count), values(r, count));
                return wrong;
              },
              static_cast<double>(n - 1), 1};
    }
    if (op == "reduce_scatter") {
      const std::int64_t each = std::max<std::int64_t>(1, count / n);
      Tensor x = make(each * n), y = make(each);
      return {[=] { group->reduce_scatter_tensor(y, x); },
              [=, this] {
                x.copy_(values(me, each * n));
                group->reduce_scatter_tensor(y, x);
                return differences(y, sum(each * n).narrow(0, me * each, each));
              },
              others, 1};
    }
    if (op == "all_to_all") {
      const std::int64_t each = std::max<std::int64_t>(1, count / n);
      Tensor x = make(each * n), y = make(each * n);
      return {[=] { group->all_to_all_single(y, x); },
              [=, this] {
                x.copy_(values(me, each * n));
                group->all_to_all_single(y, x);
                std::int64_t wrong = 0;
                for (int r = 0; r < n; ++r)
                  wrong += differences(y.narrow(0, r * each, each), values(r, each * n).narrow(0, me * each, each));
                return wrong;
              },
              others, 1};
    }
    ATHANOR_CHECK_VALUE(op == "send_recv", "there is no collective '", op, "' to measure");
    Tensor x = make(count);
    return there_and_back(
        x, [=] { group->send(x, 1 - me); }, [=] { group->recv(x, 1 - me); });
  }

  // A message from rank 0 to rank 1, and one back.
  Case there_and_back(const Tensor& x, std::function<void()> send, std::function<void()> recv) {
    const int me = group_.rank();
    const auto run = [=] {
      if (me == 0) {
        send();
        recv();
      } else if (me == 1) {
        recv();
        send();
      }
    };
    return {run,
            [=, this]() mutable {
              x.copy_(values(me, x.numel()));
              run();
              return me < 2 ? differences(x, values(0, x.numel())) : 0;
            },
            1, 2};
  }

  double slowest(double seconds) {
    Tensor t = full({1}, seconds, TensorOptions().dtype(kDouble));
    group_.all_reduce(t, distributed::ReduceOp::MAX);
    return t.item<double>();
  }

  void measure(const std::string& op, std::size_t bytes) {
    Case c = make_case(op, bytes);
    Tensor wrong = full({1}, c.check(), TensorOptions().dtype(kLong));
    group_.all_reduce(wrong);
    // As many calls as fill the time; all ranks take the same number.
    const auto start = Clock::now();
    for (int i = 0; i < 3; ++i) c.run();
    const double once = slowest(std::chrono::duration<double>(Clock::now() - start).count() / 3);
    const int calls = std::clamp(static_cast<int>(arguments_.seconds / std::max(once, 1e-9)), 1, 20000);
    std::vector<double> means, single;
    for (int round = 0; round < arguments_.rounds; ++round) {
      group_.barrier();
      const auto begin = Clock::now();
      for (int i = 0; i < calls; ++i) c.run();
      means.push_back(slowest(std::chrono::duration<double>(Clock::now() - begin).count() / calls / c.per_call));
    }
    group_.barrier();
    for (int i = 0; i < std::max(calls, 10); ++i) {
      const auto begin = Clock::now();
      c.run();
      single.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / c.per_call);
    }
    std::sort(means.begin(), means.end());
    std::sort(single.begin(), single.end());
    report(op, bytes, means[means.size() / 2], c.bus, single, wrong.item<std::int64_t>());
  }

  void report(const std::string& op, std::size_t bytes, double time, double bus, const std::vector<double>& single,
              std::int64_t wrong) {
    if (group_.rank() != 0) return;
    const double bandwidth = op == "barrier" ? 0 : static_cast<double>(bytes) / time / 1e9;
    const double p50 = single[single.size() / 2], p99 = single[single.size() * 99 / 100];
    std::printf("%-15s %11zu %11.2f %9.2f %9.2f %10.2f %10.2f %10.2f %7lld\n", op.c_str(), op == "barrier" ? 0 : bytes,
                time * 1e6, bandwidth, bandwidth * bus, single[0] * 1e6, p50 * 1e6, p99 * 1e6,
                static_cast<long long>(wrong));
    std::fflush(stdout);
    results_.push_back({{"op", op},
                        {"bytes", bytes},
                        {"seconds", time},
                        {"algbw", bandwidth},
                        {"busbw", bandwidth * bus},
                        {"min", single[0]},
                        {"p50", p50},
                        {"p99", p99},
                        {"wrong", wrong}});
    if (wrong != 0) ATHANOR_THROW(Error, op, " of ", bytes, " bytes: ", wrong, " wrong elements");
  }

  const Arguments& arguments_;
  ProcessGroup& group_;
  DType dtype_;
  nlohmann::json results_ = nlohmann::json::array();
};

void run_rank(const Arguments& arguments, const std::shared_ptr<distributed::Store>& store, int rank, int size) {
  set_num_threads(1);
  distributed::ProcessGroupOptions options;
  options.backend = arguments.backend;
  options.rank = rank;
  options.size = size;
  options.name = "bench";
  options.timeout = std::chrono::minutes(5);
  ProcessGroup group(store, options);
  Bench(arguments, group).run();
  group.shutdown();
}

// Without a launcher the ranks are processes of this one.
int run_here(const Arguments& arguments) {
  using namespace distributed;
  Listener listener = Listener::on_port(0, "127.0.0.1");
  const int port = listener.port();
  Descriptor listening(listener.release());  // a Listener would keep it from the children
  std::vector<pid_t> children;
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    const pid_t child = ::fork();
    ATHANOR_CHECK(child >= 0, "fork: ", error_text(errno));
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    int status = 0;
    try {
      TCPStoreOptions options;
      options.port = port;
      options.is_server = rank == 0;
      if (rank == 0) options.master_listen_fd = listening.release();
      const auto store = std::make_shared<TCPStore>("127.0.0.1", options);
      run_rank(arguments, store, rank, arguments.ranks);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "athanor bench: rank %d: %s\n", rank, error.what());
      status = 1;
    }
    std::fflush(nullptr);
    ::_exit(status);
  }
  listening.reset();
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) worst = 1;
  }
  return worst;
}

}  // namespace

int bench(int argc, const char* const* argv) {
  CommandLine app("Measures what is between processes and devices.", "athanor bench");
  Arguments arguments;
  CommandLine collectives = app.command("collectives", "time and bandwidth of every collective");
  add_dp_ddp(app);
  collectives
      .add("--ops", arguments.ops,
           "which, separated by commas; 'copy' is the memory's limit, 'connection' the network's")
      .separated_by(',');
  collectives.add("--sizes", arguments.sizes, "bytes per rank, separated by commas, with K, M or G").separated_by(',');
  collectives.add("--dtype", arguments.dtype, "of the elements").show_default();
  collectives.add("--backend", arguments.backend, "of the process group").show_default();
  collectives.add("--ranks", arguments.ranks, "processes to start, if no launcher did").show_default().range(1, 1024);
  collectives.add("--rounds", arguments.rounds, "timings, of which the median counts").show_default().range(1, 10000);
  collectives.add("--seconds", arguments.seconds, "least length of a timing").show_default();
  collectives.add_flag("--shared", arguments.shared, "all_reduce in memory that the ranks share");
  collectives.add("--json", arguments.json, "also write the results to this file");
  try {
    if (const auto status = app.parse(argc, argv)) return *status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "athanor bench: %s\n", error.what());
    return 1;
  }
  if (!collectives.given()) return 0;
  try {
    for (const std::string& size : arguments.sizes) parse_size(size);
    if (!env::text("RANK")) return run_here(arguments);
    const auto met = distributed::rendezvous("env://");
    run_rank(arguments, met.store, met.rank, met.world_size);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "athanor bench: %s\n", error.what());
    return 1;
  }
}

}  // namespace athanor::cli
