// ResNet-50 on one device, cut in two halves on two devices, and with the halves working at once on parts of the batch
// (a pipeline). Without a GPU the two devices are virtual CPU devices, each with its share of the processors.
//
//     model_parallel_bench [--batch 120 --size 128 --batches 3 --repeats 10 --classes 1000 --split 20]
//                          [--splits 1,3,5,8,10,12,20,40,60] [--lr 0.001] [--seed 1] [--devices cpu:0,cpu:1]
//                          [--out DIR] [--trace FILE]
//
// The charts are labelled as the tutorial's: "Single GPU" is the network in one piece with all threads. Prints mean and
// deviation of the time for `batches` training steps, and writes mp_and_rn.svg, mp_and_rn_and_pp.svg,
// split_size_tradeoff.svg and model_parallel_bench.json. With --trace, also what each device did when in a training of
// the pipelined model, for chrome://tracing or Perfetto.
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>

#include "athanor/athanor.h"
#include "athanor/models/resnet.h"
#include "athanor/parallel/data_parallel.h"
#include "athanor/parallel/pipeline.h"
#include "athanor/profiler/profiler.h"
#include "cli/command_line.h"
#include "examples/svg_chart.h"

using namespace athanor;  // NOLINT(google-build-using-namespace): an example

namespace {

struct Flags {
  std::int64_t batch = 120, size = 128, batches = 3, repeats = 10, classes = 1000, split = 20;
  std::vector<std::int64_t> splits;
  double lr = 0.001;
  std::uint64_t seed = 1;
  std::vector<std::string> devices{"cpu:0", "cpu:1"};
  Device first, second;  // of `devices`
  std::string out = ".", layers = "3,4,6,3", trace;
  int threads = 0;
  bool pipeline_class = false;
};

models::ResNetOptions network(const Flags& f) {
  models::ResNetOptions::Layers layers{};
  std::istringstream text(f.layers);
  for (std::int64_t& n : layers) {
    text >> n;
    text.ignore(1);
  }
  return models::ResNetOptions(models::ResNetOptions::Block::Bottleneck, layers).num_classes(f.classes);
}

// The network's layers in two sequences, each on its device.
class ModelParallelResNet50 : public models::ResNetImpl {
 public:
  explicit ModelParallelResNet50(const Flags& f) : ResNetImpl(network(f)), second_(f.second) {
    seq1 = register_module("seq1", nn::Sequential(conv1, bn1, relu, maxpool, layer1, layer2));
    seq2 = register_module("seq2", nn::Sequential(layer3, layer4, avgpool));
    seq1->to(f.first);
    seq2->to(second_);
    fc->to(second_);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = seq2->forward(seq1->forward(x).to(second_));
    return fc(y.view({y.size(0), -1}));
  }

 protected:
  const Device second_;
  nn::Sequential seq1{nullptr}, seq2{nullptr};
};

// While the second half works on one part of the batch, the first works on the next.
class PipelineParallelResNet50 : public ModelParallelResNet50 {
 public:
  PipelineParallelResNet50(const Flags& f, std::int64_t split_size)
      : ModelParallelResNet50(f), split_size_(split_size) {}
  Tensor forward(const Tensor& x) override {
    const std::vector<Tensor> splits = x.split(split_size_);
    Tensor previous = seq1->forward(splits[0]).to(second_);
    std::vector<Tensor> results;
    for (std::size_t i = 1; i < splits.size(); ++i) {
      previous = seq2->forward(previous);  // on the second device, while the first goes on
      results.push_back(fc(previous.view({previous.size(0), -1})));
      previous = seq1->forward(splits[i]).to(second_);
    }
    previous = seq2->forward(previous);
    results.push_back(fc(previous.view({previous.size(0), -1})));
    return cat(results);
  }

 private:
  std::int64_t split_size_;
};

Tensor one_hot_labels(const Flags& f) {
  return zeros({f.batch, f.classes}).scatter_(1, randint(f.classes, {f.batch, 1}, kLong), 1);
}

// Seconds of one training of `batches` steps.
double train(const Flags& f, models::ResNetImpl& model, Device input_device) {
  const auto begin = std::chrono::steady_clock::now();
  optim::SGD optimizer(model.parameters(), optim::SGDOptions(f.lr));
  Tensor loss;
  for (std::int64_t i = 0; i < f.batches; ++i) {
    const Tensor inputs = randn({f.batch, 3, f.size, f.size}), labels = one_hot_labels(f);
    optimizer.zero_grad();
    const Tensor outputs = model.forward(inputs.to(input_device));
    loss = mse_loss(outputs, labels.to(outputs.device()));
    loss.backward();
    optimizer.step();
  }
  static_cast<void>(loss.item<float>());
  if (!input_device.is_host())
    for (const Device device : {f.first, f.second}) synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double pipeline_class(const Flags& f, nn::parallel::Pipeline& pipe) {
  const auto begin = std::chrono::steady_clock::now();
  optim::SGD optimizer(pipe->parameters(), optim::SGDOptions(f.lr));
  for (std::int64_t i = 0; i < f.batches; ++i) {
    const Tensor inputs = randn({f.batch, 3, f.size, f.size}), labels = one_hot_labels(f);
    optimizer.zero_grad();
    pipe->train_step(inputs, labels, [](const Tensor& y, const Tensor& t) { return mse_loss(y, t); });
    optimizer.step();
  }
  for (const Device device : {f.first, f.second}) synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

examples::ChartValue measured(const Flags& f, const std::string& label, double x, const std::function<double()>& once) {
  std::vector<double> times;
  for (std::int64_t i = 0; i < f.repeats; ++i) times.push_back(once());
  double mean = 0, square = 0;
  for (const double t : times) mean += t / static_cast<double>(times.size());
  for (const double t : times) square += (t - mean) * (t - mean) / static_cast<double>(times.size());
  examples::ChartValue value{label, x, mean, std::sqrt(square)};
  std::printf("%-28s %8.3f s +- %.3f\n", label.c_str(), value.mean, value.deviation);
  std::fflush(stdout);
  return value;
}

// With queues on, operations of the host have one thread: the single device is measured without them.
examples::ChartValue single_device(const Flags& f) {
  const int cuda = athanor::detail::cuda_queue_count();
  athanor::detail::configure_cpu_queues(0);
  athanor::detail::configure_cuda_queues(0);
  models::ResNetImpl model(network(f));
  auto value = measured(f, "Single GPU", 0, [&] { return train(f, model, Device()); });
  athanor::detail::configure_cuda_queues(cuda);
  return value;
}

// Starts the two devices, as many queues as their numbers ask for.
void start_devices(Flags& f) {
  int cpus = 0;
  for (const std::string& name : f.devices)
    if (const Device device(name); device.type() == DeviceType::CPU) cpus = std::max({2, cpus, device.index() + 1});
  athanor::detail::configure_cpu_queues(cpus);
  const auto places = nn::parallel::distinct_devices({Device(f.devices[0]), Device(f.devices[1])}, "--devices");
  f.first = places[0];
  f.second = places[1];
}

// One training with the profiler on: the trace, and for how much of the time each device computed.
void write_timeline(const Flags& f, models::ResNetImpl& model) {
  profiler::Profile profile;
  train(f, model, f.first);
  profile.stop();
  profile.export_chrome_trace(f.trace);
  std::map<std::string, double> busy;
  std::int64_t begin = INT64_MAX, end = 0;
  for (const profiler::Event& e : profile.events()) {
    if (e.kind != profiler::EventKind::Kernel) continue;
    busy[e.device] += static_cast<double>(e.self);
    begin = std::min(begin, e.start);
    end = std::max(end, e.start + e.duration);
  }
  for (const auto& [device, ns] : busy)
    std::printf("%s computed for %.0f %% of the time\n", device.c_str(), 100 * ns / static_cast<double>(end - begin));
}

void run(Flags f) {
  std::filesystem::create_directories(f.out);
  manual_seed(f.seed);
  if (f.threads > 0) set_num_threads(f.threads);
  std::vector<examples::ChartValue> bars, sweep;
  start_devices(f);  // says what is wrong with them before anything is measured
  const examples::ChartValue single = single_device(f);
  start_devices(f);
  {
    ModelParallelResNet50 model(f);
    bars.push_back(measured(f, "Model Parallel", 0, [&] { return train(f, model, f.first); }));
  }
  bars.push_back(single);
  {
    PipelineParallelResNet50 model(f, f.split);
    bars.push_back(measured(f, "Pipelining Model Parallel", 0, [&] { return train(f, model, f.first); }));
    if (!f.trace.empty()) write_timeline(f, model);
  }
  for (const std::int64_t split : f.splits) {
    PipelineParallelResNet50 model(f, split);
    sweep.push_back(
        measured(f, std::to_string(split), static_cast<double>(split), [&] { return train(f, model, f.first); }));
  }
  std::vector<examples::ChartValue> all = bars;
  if (f.pipeline_class) {
    nn::parallel::PipelineOptions options;
    options.devices({f.first, f.second})
        .split_size(f.split)
        .schedule(nn::parallel::PipelineSchedule::OneForwardOneBackward);
    const nn::Sequential layers = models::as_sequential(models::ResNet(network(f)));
    options.balance(nn::parallel::balance_by_time(layers, randn({f.split, 3, f.size, f.size}), 2));
    nn::parallel::Pipeline pipe(layers, options);
    all.push_back(measured(f, "Pipeline (1F1B, balanced)", 0, [&] { return pipeline_class(f, pipe); }));
  }
  const std::string what = "ResNet50 Execution Time (Second)";
  using examples::SvgChart;
  examples::write_file(f.out + "/mp_and_rn.svg", SvgChart("", "", what).bars({bars[0], bars[1]}));
  examples::write_file(f.out + "/mp_and_rn_and_pp.svg", SvgChart("", "", what).bars(bars));
  if (!sweep.empty())
    examples::write_file(f.out + "/split_size_tradeoff.svg", SvgChart("", "Pipeline Split Size", what).line(sweep));
  nlohmann::json json;
  for (const auto* values : {&all, &sweep})
    for (const auto& v : *values)
      json[values == &all ? "comparison" : "sweep"].push_back(
          {{"label", v.label}, {"mean_s", v.mean}, {"deviation_s", v.deviation}});
  examples::write_file(f.out + "/model_parallel_bench.json", json.dump(2) + "\n");
  std::printf("pipelined: %.2f times as fast as model parallel, %.2f as a single device\n", bars[0].mean / bars[2].mean,
              bars[1].mean / bars[2].mean);
}

}  // namespace

int main(int argc, char** argv) {
  Flags f;
  f.splits = {1, 3, 5, 8, 10, 12, 20, 40, 60};
  cli::CommandLine app{"ResNet-50 on one device, on two, and pipelined"};
  app.add("--batch", f.batch, "images in a batch").positive().show_default();
  app.add("--size", f.size, "height and width of an image").range(32, 4096).show_default();
  app.add("--batches", f.batches, "steps of a training").positive().show_default();
  app.add("--repeats", f.repeats, "trainings").positive().show_default();
  app.add("--classes", f.classes, "outputs").positive().show_default();
  app.add("--split", f.split, "images in a part").positive().show_default();
  app.add("--splits", f.splits, "parts for the sweep; 0 for no sweep").separated_by(',');
  app.add("--layers", f.layers, "blocks of each stage").show_default();
  app.add("--lr", f.lr, "learning rate").non_negative().show_default();
  app.add("--seed", f.seed, "of weights and inputs").show_default();
  app.add("--devices", f.devices, "of the two halves").separated_by(',').values(2, 2).show_default();
  app.add("--threads", f.threads, "of the single device");
  app.add("--out", f.out, "folder for the charts").show_default();
  app.add("--trace", f.trace, "file for a timeline of the pipelined model");
  app.add_flag("--pipeline-class", f.pipeline_class, "nn::parallel::Pipeline with 1F1B and a measured cut besides");
  if (const auto status = app.parse(argc, argv)) return *status;
  std::erase_if(f.splits, [&](std::int64_t split) { return split <= 0 || split > f.batch; });
  try {
    ATHANOR_CHECK_VALUE(f.split <= f.batch, "--split ", f.split, " is beyond the batch of ", f.batch);
    run(f);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "model_parallel_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
