// Trains a network on MNIST: the program that shows what the pieces are for. `mnist --help` lists the flags. Started as
// one of several ranks (by a launcher, mpirun or srun, or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set) it
// trains with them; with --ranks it starts them itself.
#include <unistd.h>
#include <charconv>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "athanor/athanor.h"
#include "athanor/base/env.h"
#include "athanor/data/data_loader.h"
#include "athanor/data/distributed_sampler.h"
#include "athanor/data/mnist.h"
#include "athanor/data/synthetic_digits.h"
#include "athanor/distributed/collectives.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/spawn.h"
#include "athanor/io/checkpoint.h"
#include "athanor/io/file.h"
#include "athanor/io/progress.h"
#include "athanor/models/mnist.h"
#include "athanor/parallel/data_parallel.h"
#include "athanor/parallel/ddp.h"
#include "athanor/profiler/profiler.h"
#include "examples/mnist_flags.h"
#include "examples/output_check.h"

namespace {

using namespace athanor;
using examples::mnist::Flags;

volatile std::sig_atomic_t stop_signal = 0;
void on_signal(int signal) { stop_signal = signal; }
/// Until there is something to save. Process 1 of a container ignores signals that it does not handle.
void end_at_once(int signal) { ::_exit(128 + signal); }

/// Who this process is among those that train together.
struct World {
  int rank = 0, size = 1;
  bool leads() const { return rank == 0; }
  bool alone() const { return size == 1; }
};

/// Meets the other ranks, if the environment says that there are any.
World meet(const Flags& f) {
  if (distributed::launched_world_size().value_or(1) == 1) return {};
  // The ranks of a host share its cores, unless somebody has decided.
  if (f.threads == 0 && !std::getenv("OMP_NUM_THREADS"))
    set_num_threads(std::max(1, get_num_threads() / static_cast<int>(env::integer("LOCAL_WORLD_SIZE", 1).value_or(1))));
  distributed::init_process_group(f.backend);
  return {distributed::get_rank(), distributed::get_world_size()};
}

/// Lines for people and for collectors, on standard output and in --log-path.
class Log {
 public:
  Log(std::string path, const World& world) : print_(world.leads()) {
    if (path.empty()) return;
    if (!world.leads()) path += ".rank" + std::to_string(world.rank);
    file_ = std::fopen(path.c_str(), "a");
    ATHANOR_CHECK_TYPE(IoError, file_, "--log-path: cannot open ", path, " for appending");
  }
  ~Log() {
    if (file_) std::fclose(file_);
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  [[gnu::format(printf, 2, 3)]] void line(const char* format, ...) {
    va_list args;
    va_start(args, format);
    char text[512];
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (std::FILE* f : {print_ ? stdout : nullptr, file_}) {
      if (!f) continue;
      std::fprintf(f, "%s\n", text);
      std::fflush(f);
    }
  }

 private:
  const bool print_;
  std::FILE* file_ = nullptr;
};

using Batch = data::Example<>;
/// Bytes to float, normalized with MNIST's mean and deviation, for a whole batch.
struct ToNormalizedFloat : data::transforms::BatchTransform<Batch, Batch> {
  Batch apply_batch(Batch b) override {
    const NoGradGuard off;
    b.data = b.data.to(kFloat).sub_(0.1307 * 255).div_(0.3081 * 255);
    return b;
  }
};

std::int64_t limited(std::int64_t count, std::int64_t limit) { return limit > 0 ? std::min(limit, count) : count; }

/// One of `parts` consecutive parts of the images.
auto make_dataset(const data::MnistSplit& split, std::int64_t limit, int part = 0, int parts = 1) {
  const std::int64_t total = limited(split.count(), limit);
  const std::int64_t begin = total * part / parts, n = total * (part + 1) / parts - begin;
  Tensor images = empty({n, 1, 28, 28}, kByte), labels = empty({n}, kLong);
  std::copy_n(split.images.begin() + begin * 784, n * 784, images.data_ptr<std::uint8_t>());
  std::copy_n(split.labels.begin() + begin, n, labels.data_ptr<std::int64_t>());
  return data::datasets::TensorPairDataset(images, labels).map(data::transforms::Stack<>()).map(ToNormalizedFloat());
}

/// The devices of --device; of ranks, each takes the cuda device of its number.
std::vector<Device> devices_of(const Flags& f, const World& world) {
  if (!world.alone() && cuda::is_available())
    cuda::set_device(distributed::launched_local_rank().value_or(0) % static_cast<int>(cuda::device_count()));
  std::vector<Device> devices;
  std::istringstream list(f.device + ",");
  for (std::string name; std::getline(list, name, ',');) devices.push_back(resolve(Device(name)));
  ATHANOR_CHECK_VALUE(devices.size() == 1 || world.alone(), "--device ", f.device, ": a rank computes on one device");
  return devices;
}

/// Either network behind one call, wrapped where there are other ranks or devices.
struct Net {
  Net(const Flags& f, const World& world) {
    if (f.net == "conv")
      place(conv = models::ConvNet(), world, devices_of(f, world));
    else
      place(tutorial = models::TutorialNet(), world, devices_of(f, world));
  }
  template <class Holder>
  void place(Holder& net, const World& world, const std::vector<Device>& devices) {
    net->to(device = devices[0]);
    if (!world.alone())
      parallel = [ddp = nn::parallel::DistributedDataParallel(net)](const Tensor& x) mutable { return ddp(x); };
    else if (devices.size() > 1)
      parallel = [all = nn::parallel::DataParallel(net, nn::parallel::DataParallelOptions().device_ids(devices))](
                     const Tensor& x) mutable { return all(x); };
  }
  Tensor operator()(const Tensor& x) {
    return parallel && module().is_training() ? parallel(x) : conv.is_empty() ? tutorial(x) : conv(x);
  }
  nn::Module& module() {
    return conv.is_empty() ? static_cast<nn::Module&>(*tutorial) : static_cast<nn::Module&>(*conv);
  }
  models::ConvNet conv{nullptr};
  models::TutorialNet tutorial{nullptr};
  std::function<Tensor(const Tensor&)> parallel;
  Device device;
};

std::unique_ptr<optim::Optimizer> make_optimizer(const Flags& f, nn::Module& module) {
  if (f.optimizer == "adam") return std::make_unique<optim::Adam>(module.parameters(), optim::AdamOptions(f.lr));
  if (f.optimizer == "adadelta")
    return std::make_unique<optim::Adadelta>(module.parameters(), optim::AdadeltaOptions(f.lr));
  return std::make_unique<optim::SGD>(module.parameters(), optim::SGDOptions(f.lr).momentum(f.momentum));
}

struct Interrupted {};

/// Alone all images in random order, else this rank's share of them.
template <class Sampler>
Sampler make_sampler(const Flags& f, const World& world, std::size_t size) {
  if constexpr (std::is_same_v<Sampler, data::DistributedSampler>)
    return Sampler(size,
                   {static_cast<std::size_t>(world.size), static_cast<std::size_t>(world.rank), true, f.seed, false});
  else
    return Sampler(size);
}

/// 0.1 as "0.1", and as many digits as tell two values apart.
std::string short_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

/// The flags whose values come from the checkpoint where one is continued. Of several ranks the seed must be the same.
std::map<std::string, double> settled(const Flags& flags, const World& world) {
  std::map<std::string, double> all{{"--lr", flags.lr}};
  if (flags.optimizer == "sgd") all["--momentum"] = flags.momentum;
  if (world.alone()) all["--seed"] = static_cast<double>(flags.seed);
  return all;
}

template <class Sampler>
class Trainer {
 public:
  Trainer(const Flags& flags, const World& world, const data::MnistData& data)
      : flags_(flags),
        world_(world),
        log_(flags.log_path, world),
        net_(flags, world),
        optimizer_(make_optimizer(flags, net_.module())),
        scheduler_(*optimizer_, 1, flags.gamma),
        settled_(settled(flags, world)),
        images_(limited(data.train.count(), flags.limit)),
        digits_(flags.synthetic                               ? "generated of seed " + std::to_string(flags.seed)
                : data.source == data::MnistSource::Generator ? "generated"
                                                              : "MNIST"),
        train_(make_train_loader(data.train)),
        test_(data::make_data_loader<data::samplers::SequentialSampler>(
            make_dataset(data.test, flags.limit, world.rank, world.size), options(flags.test_batch_size))),
        progress_(progress_options()) {
    if (!flags.resume.empty()) restore(read_checkpoint());
  }

  void run() {
    for (; epoch_ <= flags_.epochs; ++epoch_) {
      train_epoch();
      test_epoch();
      scheduler_.step();
      if (!flags_.checkpoint.empty()) save(epoch_ + 1, nullptr);
      if (flags_.dry_run) break;
    }
    if (!flags_.save_model.empty() && world_.leads()) {
      io::save_module(flags_.save_model, net_.module());
      log_.line("Saved the model to %s", flags_.save_model.c_str());
    }
  }

  /// Called when a signal stopped run(): saves between two steps.
  void save_interrupted() {
    if (flags_.checkpoint.empty()) {
      log_.line("Interrupted; nothing was saved (give --checkpoint FILE to be able to continue)");
      return;
    }
    const auto state = train_->state();
    save(epoch_, &state);
    log_.line("Interrupted; continue with --resume %s", flags_.checkpoint.c_str());
    if (!world_.alone()) distributed::barrier();  // whoever starts the ranks ends the others when one is gone
  }

 private:
  using Dataset = decltype(make_dataset(std::declval<const data::MnistSplit&>(), 0));

  data::DataLoaderOptions options(std::int64_t batch) const {
    return data::DataLoaderOptions(static_cast<std::size_t>(batch)).workers(static_cast<std::size_t>(flags_.workers));
  }
  auto make_train_loader(const data::MnistSplit& split) const {
    auto dataset = make_dataset(split, flags_.limit);
    auto sampler = make_sampler<Sampler>(flags_, world_, dataset.size().value());
    return data::make_data_loader(std::move(dataset), std::move(sampler), options(flags_.batch_size));
  }
  io::ProgressOptions progress_options() const {
    io::ProgressOptions o;
    if (flags_.no_progress || !world_.leads()) o.enabled = false;
    o.unit = "images";
    return o;
  }

  void train_epoch() {
    net_.module().train();
    const auto total = static_cast<std::int64_t>(train_->dataset().size().value());
    if constexpr (std::is_same_v<Sampler, data::DistributedSampler>)
      train_->sampler().set_epoch(static_cast<std::size_t>(epoch_));
    progress_.begin("Epoch " + std::to_string(epoch_), total);
    auto it = resume_here_ ? train_->resume() : train_->begin();
    if (!std::exchange(resume_here_, false)) step_ = 0;
    progress_.update(step_ * flags_.batch_size * world_.size);
    for (; !(it == train_->end()); next(it)) {
      optimizer_->zero_grad();
      const Tensor loss = nll_loss(net_(it->data.to(net_.device)), it->target.to(net_.device));
      loss.backward();
      optimizer_->step();
      ++step_;
      progress_.update(it->data.size(0) * world_.size);
      if (step_ % flags_.log_interval == 0 || flags_.dry_run) report(loss.item<double>(), total);
      if (flags_.dry_run) break;
      if (stopped()) throw Interrupted{};
    }
    progress_.end();
  }

  /// Whether any rank got a signal; all of them stop after the same step.
  bool stopped() {
    if (world_.alone()) return stop_signal;
    Tensor flag = full({1}, static_cast<int>(stop_signal), kInt);
    distributed::all_reduce(flag, distributed::ReduceOp::MAX);
    // Not this rank's own, which may have changed since the others heard of it.
    const int agreed = flag.item<int>();
    if (agreed != 0) stop_signal = agreed;
    return agreed != 0;
  }

  template <class It>
  void next(It& it) {
    auto waiting = progress_.waiting();
    ++it;
  }

  void report(double loss, std::int64_t total) {
    progress_.set("loss", loss);
    const std::int64_t done = std::min(step_ * flags_.batch_size * world_.size, total);
    log_.line("Train Epoch: %lld [%lld/%lld (%.0f%%)]\tloss=%.4f", static_cast<long long>(epoch_),
              static_cast<long long>(done), static_cast<long long>(total),
              100.0 * static_cast<double>(done) / static_cast<double>(total), loss);
  }

  void test_epoch() {
    const NoGradGuard off;
    net_.module().eval();
    double loss = 0;
    std::int64_t correct = 0, total = 0;
    for (auto it = test_->begin(); !(it == test_->end()); ++it) {
      const Tensor out = net_(it->data.to(net_.device)), target = it->target.to(net_.device);
      loss += nll_loss(out, target, {}, Reduction::Sum).item<double>();
      correct += out.argmax(1).eq(target).sum().item<std::int64_t>();
      total += it->data.size(0);
      if (flags_.dry_run) break;
      if (world_.alone() && stop_signal) throw Interrupted{};
    }
    if (!world_.alone()) {
      Tensor sums = tensor({loss, static_cast<double>(correct), static_cast<double>(total)}, TensorOptions(kDouble));
      distributed::all_reduce(sums);
      loss = sums[0].item<double>();
      correct = static_cast<std::int64_t>(sums[1].item<double>());
      total = static_cast<std::int64_t>(sums[2].item<double>());
      if (stopped()) throw Interrupted{};
    }
    const auto n = static_cast<double>(std::max<std::int64_t>(total, 1));
    log_.line("Test set: Average loss: %.4f, Accuracy: %lld/%lld (%.2f%%)", loss / n, static_cast<long long>(correct),
              static_cast<long long>(total), 100.0 * static_cast<double>(correct) / n);
    log_.line("{metricName: accuracy, metricValue: %.4f}", static_cast<double>(correct) / n);
  }

  void save(std::int64_t epoch, const data::samplers::SamplerState* inside) {
    if (!world_.leads()) return;
    io::Checkpoint c;
    c.set("ranks", std::int64_t{world_.size});
    if (!world_.alone()) c.set("seed", std::to_string(flags_.seed));  // alone, the generator has it
    for (const auto& [flag, value] : settled_) c.set("given" + flag, short_text(value));
    c.set("net", flags_.net);
    c.set("optimizer_name", flags_.optimizer);
    c.set("batch_size", flags_.batch_size);
    c.set("images", images_);
    c.set("digits", digits_);
    c.set("epoch", epoch);
    c.set("step", inside ? step_ : std::int64_t{0});
    c.set("inside_epoch", static_cast<std::int64_t>(inside != nullptr));
    if (inside) {
      c.set("sampler.seed", static_cast<std::int64_t>(inside->generator.seed));
      c.set("sampler.offset", static_cast<std::int64_t>(inside->generator.offset));
      c.set("sampler.position", static_cast<std::int64_t>(inside->position));
    }
    c.set_module("model", net_.module());
    c.set_optimizer("optimizer", *optimizer_);
    c.set_scheduler("scheduler", scheduler_);
    c.set_generator("generator", default_generator());
    c.save(flags_.checkpoint);
  }

  /// Rank 0 reads it for all: the others may be on machines that do not have the file. Empty if there is none.
  std::vector<std::byte> read_checkpoint() const {
    std::vector<std::byte> bytes;
    if (world_.leads() && (!flags_.resume_if_there || std::filesystem::exists(flags_.resume)))
      bytes = io::Checkpoint::load(flags_.resume).bytes();
    if (world_.alone()) return bytes;
    Tensor size = full({1}, static_cast<std::int64_t>(bytes.size()), kLong);
    distributed::broadcast(size, 0);
    bytes.resize(static_cast<std::size_t>(size.item<std::int64_t>()));
    if (bytes.empty()) return bytes;
    Tensor content = from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, TensorOptions(kByte));
    distributed::broadcast(content, 0);
    return bytes;
  }

  /// Says which of this run's flags have no effect. What an older checkpoint does not tell stays unknown.
  void check_settled(const io::Checkpoint& c) {
    for (auto& [flag, value] : std::map(settled_)) {
      const std::string name = "given" + flag, text = c.has(name) ? c.text(name) : "";
      double there = 0;
      const auto end = std::from_chars(text.data(), text.data() + text.size(), there).ptr;
      if (text.empty() || end != text.data() + text.size()) {
        settled_.erase(flag);
        continue;
      }
      if (there != value)
        log_.line("%s %s has no effect: %s goes on with %s", flag.c_str(), short_text(value).c_str(),
                  flags_.resume.c_str(), short_text(there).c_str());
      settled_[flag] = there;
    }
  }

  void restore(std::vector<std::byte> bytes) {
    if (bytes.empty()) return;
    const auto c = io::Checkpoint::parse(bytes);
    auto expect = [&](const char* name, const std::string& have) {
      ATHANOR_CHECK_VALUE(c.text(name) == have, "--resume: ", flags_.resume, " was written with ", name, " ",
                          c.text(name), ", this run has ", have);
    };
    expect("net", flags_.net);
    expect("optimizer_name", flags_.optimizer);
    expect("batch_size", std::to_string(flags_.batch_size));
    // An epoch of other images, or of another number of them, does not go on where this one was left.
    expect("images", std::to_string(images_));
    expect("digits", digits_);
    if (c.has("seed") && !world_.alone()) expect("seed", std::to_string(flags_.seed));
    check_settled(c);
    c.load_module("model", net_.module());
    c.load_optimizer("optimizer", *optimizer_);
    c.load_scheduler("scheduler", scheduler_);
    c.load_generator("generator", default_generator());
    // Rank 0 wrote it; the others' random numbers differ from its by their seeds only.
    PhiloxState drawn = default_generator().state();
    drawn.seed += static_cast<std::uint64_t>(world_.rank);
    default_generator().set_state(drawn);
    const auto within = [&](const char* name, std::int64_t lowest, std::int64_t highest) {
      const std::int64_t value = c.integer(name);
      ATHANOR_CHECK_VALUE(value >= lowest && value <= highest, "--resume: ", flags_.resume, ": ", name, " is ", value,
                          ", expected ", lowest, " to ", highest);
      return value;
    };
    epoch_ = within("epoch", 1, std::numeric_limits<std::int32_t>::max());
    resume_here_ = within("inside_epoch", 0, 1) != 0;
    if (const std::int64_t ranks = c.integer("ranks"); ranks != world_.size) {
      // An elastic job after the loss of a node: steps of another number of ranks are not this one's.
      log_.line("The checkpoint is from %lld ranks, this run has %d%s", static_cast<long long>(ranks), world_.size,
                resume_here_ ? ": the epoch begins again" : "");
      resume_here_ = false;
    }
    if (resume_here_) step_ = within("step", 0, static_cast<std::int64_t>(train_->size().value()));
    if (resume_here_)
      train_->sampler().restore(
          {{static_cast<std::uint64_t>(c.integer("sampler.seed")),
            static_cast<std::uint64_t>(c.integer("sampler.offset"))},
           static_cast<std::size_t>(
               within("sampler.position", 0, static_cast<std::int64_t>(train_->dataset().size().value())))});
    log_.line("Resumed from %s at epoch %lld, step %lld", flags_.resume.c_str(), static_cast<long long>(epoch_),
              static_cast<long long>(step_));
  }

  const Flags& flags_;
  const World world_;
  Log log_;
  Net net_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::StepLR scheduler_;
  std::map<std::string, double> settled_;
  std::int64_t images_;  // of the training set, on all ranks
  std::string digits_;
  std::unique_ptr<data::DataLoader<Dataset, Sampler>> train_;
  std::unique_ptr<data::DataLoader<Dataset, data::samplers::SequentialSampler>> test_;
  io::Progress progress_;
  std::int64_t epoch_ = 1, step_ = 0;
  bool resume_here_ = false;
};

data::MnistData load_data(const Flags& f, const World& world) {
  data::MnistOptions o;
  if (!world.leads()) o.log = [](const std::string&) {};
  o.root = f.data;
  if (!f.synthetic) return data::load_mnist(o);
  // Generated digits to train on; the real test set if it is at hand, else generated ones of another series.
  data::MnistData d;
  auto generated = data::synthetic_digits(f.limit > 0 ? std::min<std::int64_t>(f.limit, 60000) : 60000, f.seed);
  d.train = {std::move(generated.images), std::move(generated.labels)};
  o.generated_train = 1;
  d.test = data::load_mnist(o).test;
  d.source = data::MnistSource::Generator;
  return d;
}

/// --profile: of everything from here to finish().
class Profiling {
 public:
  Profiling(const Flags& flags, const World& world) : world_(world), path_(flags.profile) {
    if (path_.empty()) return;
    if (!world.leads()) path_ += ".rank" + std::to_string(world.rank);
    profile_.emplace();
  }
  void finish() {
    if (!profile_) return;
    profile_->stop();
    profile_->export_chrome_trace(path_);
    if (!world_.leads()) return;
    std::fputs(profile_->key_averages().table("self_cpu_time_total", 10).c_str(), stdout);
    if (profile_->dropped() > 0)
      std::printf("%lld events of the profile's end were left out\n", static_cast<long long>(profile_->dropped()));
    std::printf("Wrote the profile to %s\n", path_.c_str());
  }

 private:
  const World world_;
  std::string path_;
  std::optional<profiler::Profile> profile_;
};

template <class Sampler>
int train(const Flags& flags, const World& world, const data::MnistData& data) {
  Trainer<Sampler> trainer(flags, world, data);
  try {
    trainer.run();
  } catch (const Interrupted&) {
    trainer.save_interrupted();
    return 128 + static_cast<int>(stop_signal);
  }
  return 0;
}

int run(const Flags& flags) {
  std::signal(SIGINT, end_at_once);
  std::signal(SIGTERM, end_at_once);
  if (flags.threads > 0) set_num_threads(static_cast<int>(flags.threads));
  for (const auto& [flag, path] : {std::pair{"--save-model", flags.save_model},
                                   {"--checkpoint", flags.checkpoint},
                                   {"--log-path", flags.log_path},
                                   {"--profile", flags.profile}})
    examples::check_output(flag, path);
  const World world = meet(flags);
  manual_seed(flags.seed + static_cast<std::uint64_t>(world.rank));
  const auto data = load_data(flags, world);
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  Profiling profiling(flags, world);
  const int code = world.alone() ? train<data::samplers::RandomSampler>(flags, world, data)
                                 : train<data::DistributedSampler>(flags, world, data);
  profiling.finish();
  if (!world.alone()) distributed::destroy_process_group();
  return code;
}

/// --ranks: processes of this host, each a rank.
int run_ranks(const Flags& flags) {
  ATHANOR_CHECK_VALUE(
      distributed::launched_world_size().value_or(1) == 1, "--ranks ", flags.ranks,
      " starts ranks, but WORLD_SIZE, or what MPI and Slurm have in its place, says that this process is "
      "one already; leave out one of them");
  const std::string size = std::to_string(flags.ranks);
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  auto children = distributed::spawn_async(
      [&](int rank) {
        setenv("WORLD_SIZE", size.c_str(), 1);
        setenv("RANK", std::to_string(rank).c_str(), 1);
        setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
        const int code = run(flags);
        std::fflush(nullptr);
        if (code != 0) ::_exit(code);
      },
      static_cast<int>(flags.ranks));
  try {
    bool passed_on = false;
    while (!children.join(std::chrono::milliseconds(100))) {
      if (!stop_signal || passed_on) continue;
      passed_on = true;
      for (const pid_t pid : children.pids()) ::kill(pid, static_cast<int>(stop_signal));
    }
  } catch (const distributed::ProcessExitedError&) {
    if (!stop_signal) throw;
  }
  return stop_signal ? 128 + static_cast<int>(stop_signal) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  if (const int code = examples::mnist::parse(argc, argv, flags); code >= 0) return code;
  try {
    return flags.ranks > 1 ? run_ranks(flags) : run(flags);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mnist: %s\n", e.what());
    return 1;
  }
}
