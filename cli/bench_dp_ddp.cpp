// athanor bench dp_ddp: the same training by DataParallel, in one process, and by DistributedDataParallel.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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
#include "athanor/tensor/device_memory.h"
#include "athanor/tensor/stream.h"
#include "cli/bench.h"
#include "cli/command_line.h"
#include "examples/svg_chart.h"

namespace athanor::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Forward = std::function<Tensor(const Tensor&)>;

struct TrainingArguments {
  int replicas = 2, rounds = 7, steps = 5;
  std::int64_t batch = 128;
  std::string json, charts;
};

constexpr int kMost = 64;  // replicas

// What one way of training measured. Goes through a pipe as it is.
struct Figures {
  double seconds = 0, deviation = 0;         // of a step: the median of the rounds, their standard deviation
  double loss = 0;                           // after the last step, which all ways share
  int devices = 0;                           // or ranks
  int threads = 0;                           // of each of them
  std::array<double, kMost> megabytes = {};  // of tensors at once on each
  std::vector<double> memory() const { return {megabytes.begin(), megabytes.begin() + devices}; }
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

Figures measure(const TrainingArguments& a, const std::vector<Device>& devices, const Net& net, const Forward& forward,
                const Data& data, const std::function<void()>& together) {
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
    for (const Device device : devices) synchronize(device);
    together();
  };
  for (int i = 0; i < 2; ++i) step();
  finish();
  for (const Device device : devices) reset_peak_memory_stats(device);
  std::vector<double> seconds;
  for (int round = 0; round < a.rounds; ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < a.steps; ++i) step();
    finish();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / a.steps);
  }
  Figures figures;
  std::sort(seconds.begin(), seconds.end());
  figures.seconds = seconds[seconds.size() / 2];
  double mean = 0, square = 0;
  for (const double s : seconds) mean += s / a.rounds;
  for (const double s : seconds) square += (s - mean) * (s - mean) / a.rounds;
  figures.deviation = std::sqrt(square);
  for (const Device device : devices)
    figures.megabytes[static_cast<std::size_t>(figures.devices++)] =
        static_cast<double>(max_memory_allocated(device)) / 1e6;
  figures.loss = loss.item<double>();
  figures.threads = get_num_threads();
  return figures;
}

Figures single(const TrainingArguments& a) {
  set_num_threads(1);
  Net net = network();
  return measure(
      a, {Device()}, net, [net](const Tensor& x) mutable { return net(x); }, Data(a.batch, 0, a.batch), [] {});
}

Figures data_parallel(const TrainingArguments& a) {
  set_num_threads(a.replicas);  // one for each queue, as each rank of the other way has
  athanor::detail::configure_cpu_queues(a.replicas);
  std::vector<Device> devices;
  for (int i = 0; i < a.replicas; ++i) devices.emplace_back(DeviceType::CPU, static_cast<DeviceIndex>(i));
  Net net = network();
  net->to(devices[0]);
  nn::parallel::DataParallel wrapped(net, nn::parallel::DataParallelOptions().device_ids(devices));
  Figures figures = measure(
      a, devices, net, [wrapped](const Tensor& x) mutable { return wrapped(x); }, Data(a.batch, 0, a.batch), [] {});
  figures.threads = athanor::detail::queue_of(devices.back())->threads();
  return figures;
}

Figures distributed_rank(const TrainingArguments& a, const std::shared_ptr<athanor::distributed::Store>& store,
                         int rank) {
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
      a, {Device()}, net, [wrapped](const Tensor& x) mutable { return wrapped(x); }, Data(a.batch, rank * each, each),
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

// The slowest rank's time, every rank's memory.
Figures distributed_all(const TrainingArguments& a) {
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
    if (f.seconds > all.seconds) all.seconds = f.seconds, all.deviation = f.deviation;
    all.megabytes[static_cast<std::size_t>(all.devices++)] = f.megabytes[0];
    all.loss = f.loss;
    all.threads = std::max(all.threads, f.threads);
  }
  return all;
}

struct Line {
  const char* name;
  Figures figures;
  double moved;
};

void write_charts(const std::string& folder, const std::vector<Line>& lines) {
  std::vector<examples::ChartValue> times, memory;
  for (const Line& line : lines) {
    times.push_back({line.name, 0, line.figures.seconds * 1e3, line.figures.deviation * 1e3});
    const std::vector<double> all = line.figures.memory();
    const double most = *std::max_element(all.begin(), all.end());
    memory.push_back({line.name, 0, most, 0});
  }
  std::filesystem::create_directories(folder);
  using examples::SvgChart;
  examples::write_file(folder + "/dp_ddp_time.svg", SvgChart("", "", "Time of a step (ms)").bars(times));
  examples::write_file(folder + "/dp_ddp_memory.svg",
                       SvgChart("", "", "Memory of the fullest device (MB)").bars(memory));
}

std::string text_of(const std::vector<double>& megabytes) {
  std::string text;
  char number[32];
  for (const double mb : megabytes) {
    std::snprintf(number, sizeof number, " %.1f", mb);
    text += number;
  }
  return text;
}

void run(const TrainingArguments& a) {
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
  // Not counted but computed from the sizes. DataParallel: inputs out, parameters out, gradients back. DDP: every rank
  // sends and gets (n - 1) / n of the gradients twice.
  const std::vector<Line> lines = {{"one thread", one, 0},
                                   {"DataParallel", dp, inputs + 2 * others * parameters},
                                   {"DistributedDataParallel", ddp, 2 * others * parameters}};
  std::printf(
      "# PyTorch's MNIST example, batch %lld, %d replicas of one thread; bytes moved in a step are computed from "
      "sizes\n",
      static_cast<long long>(a.batch), a.replicas);
  std::printf("%-24s %10s %8s %18s %10s  %s\n", "", "step, ms", "speed-up", "moved, computed MB", "loss",
              "memory of each device or rank, MB");
  nlohmann::json results = nlohmann::json::array();
  for (const Line& line : lines) {
    std::printf("%-24s %10.2f %8.2f %18.1f %10.5f %s\n", line.name, line.figures.seconds * 1e3,
                one.seconds / line.figures.seconds, line.moved, line.figures.loss,
                text_of(line.figures.memory()).c_str());
    results.push_back({{"way", line.name},
                       {"seconds", line.figures.seconds},
                       {"deviation", line.figures.deviation},
                       {"speed_up", one.seconds / line.figures.seconds},
                       {"moved_mb_computed", line.moved},
                       {"memory_mb", line.figures.memory()},
                       {"threads_each", line.figures.threads},
                       {"loss", line.figures.loss}});
  }
  if (!a.json.empty()) examples::write_file(a.json, results.dump(1) + "\n");
  if (!a.charts.empty()) write_charts(a.charts, lines);
}

}  // namespace

void add_dp_ddp(CommandLine& app) {
  auto arguments = std::make_shared<TrainingArguments>();
  CommandLine command = app.command("dp_ddp", "DataParallel beside DistributedDataParallel");
  command.add("--replicas", arguments->replicas, "devices, or ranks").show_default().range(2, kMost);
  command.add("--batch", arguments->batch, "examples of all replicas together").show_default().positive();
  command.add("--rounds", arguments->rounds, "timings, of which the median counts").show_default().range(1, 1000);
  command.add("--steps", arguments->steps, "steps of a timing").show_default().range(1, 1000);
  command.add("--json", arguments->json, "also write the results to this file");
  command.add("--charts", arguments->charts, "also draw dp_ddp_time.svg and dp_ddp_memory.svg in this folder");
  command.on_parse([arguments] { run(*arguments); });
}

}  // namespace athanor::cli
