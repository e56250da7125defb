// athanor bench dp_ddp: the same training by DataParallel, in one process, and by DistributedDataParallel.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "athanor/base/parallel.h"
#include "athanor/distributed/collectives.h"
#include "athanor/distributed/groups.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/store/tcp_store.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/algorithms.h"
#include "athanor/parallel/data_parallel.h"
#include "athanor/parallel/ddp.h"
#include "athanor/tensor/allocator.h"
#include "athanor/tensor/stream.h"
#include "cli/bench.h"

namespace athanor::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Forward = std::function<Tensor(const Tensor&)>;

struct Arguments {
  int replicas = 2, rounds = 7, steps = 5;
  std::int64_t batch = 128;
  std::string json;
};

// What one way of training measured.
struct Figures {
  double seconds = 0;    // of a step, the median
  double megabytes = 0;  // of tensors at once in a process
  double loss = 0;       // after the last step, which all ways share
};

// PyTorch's MNIST example without dropout, so that all ways compute the same.
struct NetImpl : nn::Cloneable<NetImpl> {
  NetImpl() { NetImpl::reset(); }
  void reset() override {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 32, 3)));
    conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(32, 64, 3)));
    fc1 = register_module("fc1", nn::Linear(9216, 128));
    fc2 = register_module("fc2", nn::Linear(128, 10));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = max_pool2d(relu(conv2(relu(conv1(x)))), 2).flatten(1);
    return log_softmax(fc2(relu(fc1(y))), 1);
  }
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::Linear fc1{nullptr}, fc2{nullptr};
};
ATHANOR_MODULE(Net);

Net network() {
  manual_seed(1);
  return Net();
}

struct Data {
  Tensor x, target;
  // Examples [begin, begin + count) of a batch that is the same in every process.
  Data(std::int64_t batch, std::int64_t begin, std::int64_t count) {
    manual_seed(2);
    x = randn({batch, 1, 28, 28}).narrow(0, begin, count).clone();
    target = randint(10, {batch}, kLong).narrow(0, begin, count).clone();
  }
};

Figures measure(const Arguments& a, const Net& net, const Forward& forward, const Data& data,
                const std::function<void()>& together) {
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.01).momentum(0.5));
  Tensor loss;
  const auto step = [&] {
    optimizer.zero_grad();
    const Tensor y = forward(data.x);
    loss = nll_loss(y, data.target.to(y.device()));
    loss.backward();
    optimizer.step();
  };
  const auto finish = [&] {
    for (int i = 0; i < cpu_device_count(); ++i) synchronize(Device(DeviceType::CPU, static_cast<DeviceIndex>(i)));
    together();
  };
  for (int i = 0; i < 2; ++i) step();
  finish();
  host_allocator().reset_peak();
  std::vector<double> seconds;
  for (int round = 0; round < a.rounds; ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < a.steps; ++i) step();
    finish();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / a.steps);
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], static_cast<double>(host_allocator().stats().peak_allocated) / 1e6,
          loss.item<double>()};
}

Figures single(const Arguments& a) {
  set_num_threads(1);
  Net net = network();
  return measure(
      a, net, [net](const Tensor& x) mutable { return net(x); }, Data(a.batch, 0, a.batch), [] {});
}

Figures data_parallel(const Arguments& a) {
  athanor::detail::configure_cpu_queues(a.replicas);
  Net net = network();
  net->to(nn::parallel::all_devices()[0]);
  nn::parallel::DataParallel wrapped(net);
  return measure(
      a, net, [wrapped](const Tensor& x) mutable { return wrapped(x); }, Data(a.batch, 0, a.batch), [] {});
}

Figures distributed_rank(const Arguments& a, const std::shared_ptr<athanor::distributed::Store>& store, int rank) {
  set_num_threads(1);
  athanor::distributed::InitOptions options;
  options.backend = "tcp";
  options.store = store;
  options.world_size = a.replicas;
  options.rank = rank;
  athanor::distributed::init_process_group(options);
  Net net = network();
  nn::parallel::DistributedDataParallel wrapped(net);
  const std::int64_t each = a.batch / a.replicas;
  Figures figures = measure(
      a, net, [wrapped](const Tensor& x) mutable { return wrapped(x); }, Data(a.batch, rank * each, each),
      [] { athanor::distributed::barrier(); });
  Tensor mean = full({1}, figures.loss, TensorOptions(kDouble));
  athanor::distributed::all_reduce(mean);
  figures.loss = mean.item<double>() / a.replicas;
  athanor::distributed::destroy_process_group();
  return figures;
}

// Runs `body` in a process of its own, whose threads and memory are nobody else's; `result` is read when it has ended.
class Child {
 public:
  explicit Child(const std::function<Figures()>& body) {
    int ends[2];
    ATHANOR_CHECK(::pipe(ends) == 0, "pipe: ", athanor::distributed::error_text(errno));
    child_ = ::fork();
    ATHANOR_CHECK(child_ >= 0, "fork: ", athanor::distributed::error_text(errno));
    if (child_ > 0) {
      ::close(ends[1]);
      from_ = ends[0];
      return;
    }
    int status = 1;
    try {
      const Figures figures = body();
      status = ::write(ends[1], &figures, sizeof figures) == static_cast<ssize_t>(sizeof figures) ? 0 : 1;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "athanor bench: %s\n", error.what());
    }
    std::fflush(nullptr);
    ::_exit(status);
  }
  Figures result() const {
    Figures figures;
    const ssize_t got = ::read(from_, &figures, sizeof figures);
    ::close(from_);
    int status = 0;
    ::waitpid(child_, &status, 0);
    ATHANOR_CHECK(got == static_cast<ssize_t>(sizeof figures) && WIFEXITED(status) && WEXITSTATUS(status) == 0,
                  "a process of the measurement failed");
    return figures;
  }

 private:
  pid_t child_ = 0;
  int from_ = -1;
};

// The slowest rank's time, the greatest rank's memory.
Figures distributed_all(const Arguments& a) {
  using namespace athanor::distributed;
  Listener listener = Listener::on_port(0, "127.0.0.1");
  const int port = listener.port();
  Descriptor listening(listener.release());  // a Listener would keep it from the children
  std::vector<Child> ranks;
  for (int rank = 0; rank < a.replicas; ++rank)
    ranks.emplace_back([&, rank] {
      TCPStoreOptions options;
      options.port = port;
      options.is_server = rank == 0;
      if (rank == 0) options.master_listen_fd = listening.release();
      return distributed_rank(a, std::make_shared<TCPStore>("127.0.0.1", options), rank);
    });
  listening.reset();
  Figures all;
  for (const Child& rank : ranks) {
    const Figures f = rank.result();
    all = {std::max(all.seconds, f.seconds), std::max(all.megabytes, f.megabytes), f.loss};
  }
  return all;
}

void run(const Arguments& a) {
  ATHANOR_CHECK_VALUE(a.batch % a.replicas == 0, "dp_ddp: a batch of ", a.batch, " cannot be shared equally by ",
                      a.replicas, " replicas");
  const Figures one = Child([&] { return single(a); }).result();
  const Figures dp = Child([&] { return data_parallel(a); }).result();
  const Figures ddp = distributed_all(a);
  // Not before: a child of a process with threads at work would wait for them.
  double parameters = 0;
  for (const Tensor& p : network()->parameters()) parameters += static_cast<double>(p.nbytes()) / 1e6;
  const double others = a.replicas - 1;
  const double inputs = static_cast<double>(a.batch) * 784 * 4 / 1e6 * others / a.replicas;
  struct Line {
    const char* name;
    Figures figures;
    double moved;
  };
  // DataParallel: inputs out, parameters out, gradients back. DDP: every rank sends and gets (n - 1) / n of the
  // gradients twice.
  const Line lines[] = {{"one thread", one, 0},
                        {"DataParallel", dp, inputs + 2 * others * parameters},
                        {"DistributedDataParallel", ddp, 2 * others * parameters}};
  std::printf("# PyTorch's MNIST example, batch %lld, %d replicas of one thread\n", static_cast<long long>(a.batch),
              a.replicas);
  std::printf("%-24s %10s %8s %14s %18s %10s\n", "", "step, ms", "speed-up", "moved, MB/step", "memory, MB/process",
              "loss");
  nlohmann::json results = nlohmann::json::array();
  for (const Line& line : lines) {
    std::printf("%-24s %10.2f %8.2f %14.1f %18.1f %10.5f\n", line.name, line.figures.seconds * 1e3,
                one.seconds / line.figures.seconds, line.moved, line.figures.megabytes, line.figures.loss);
    results.push_back({{"way", line.name},
                       {"seconds", line.figures.seconds},
                       {"speed_up", one.seconds / line.figures.seconds},
                       {"moved_mb", line.moved},
                       {"memory_mb", line.figures.megabytes},
                       {"loss", line.figures.loss}});
  }
  if (a.json.empty()) return;
  std::FILE* file = std::fopen(a.json.c_str(), "w");
  ATHANOR_CHECK_TYPE(IoError, file != nullptr, "cannot write '", a.json, "'");
  std::fputs(results.dump(1).c_str(), file);
  std::fclose(file);
}

}  // namespace

void add_dp_ddp(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("dp_ddp", "DataParallel beside DistributedDataParallel");
  command->add_option("--replicas", arguments->replicas, "devices, or ranks")
      ->capture_default_str()
      ->check(CLI::Range(2, 64));
  command->add_option("--batch", arguments->batch, "examples of all replicas together")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--rounds", arguments->rounds, "timings, of which the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--steps", arguments->steps, "steps of a timing")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--json", arguments->json, "also write the results to this file");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace athanor::cli
