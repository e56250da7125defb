// Athanor's side of the comparison, driven by benchmarks/run.py; speaks the protocol of benchmarks/protocol.h. The rows
// shared with libtorch are the very same text.
//   athanor_bench THREADS [otherwise]
// "otherwise": has the rows of cpp_devices.h only, computed in the way that several devices are to beat.
#include <cstdlib>
#include <string_view>

#include "athanor/athanor.h"
#include "athanor/tensor/device_memory.h"

namespace torch = athanor;
namespace bench {
using athanor::InferenceMode;
}

#include "benchmarks/cpp_devices.h"
#include "benchmarks/cpp_models.h"
#include "benchmarks/cpp_resnet.h"
#include "benchmarks/cpp_rows.h"
#include "benchmarks/cpp_sequence.h"
#include "benchmarks/cpp_throughput.h"
#include "benchmarks/cpp_training.h"

namespace {

namespace data = athanor::data;

/// One epoch over a loader; what the batches hold is touched by making them.
template <class Loader>
bench::Body epoch(std::shared_ptr<Loader> loader) {
  return [loader] {
    std::int64_t seen = 0;
    for (auto& batch : *loader) seen += batch.data.size(0);
    ATHANOR_CHECK(seen == 60000, "an epoch had ", seen, " examples");
  };
}

void add_loader_rows(bench::Program& program) {
  for (const std::size_t workers : {0, 1, 2}) {
    const std::string suffix = "@workers" + std::to_string(workers);
    const auto options = data::DataLoaderOptions(64).workers(workers);
    program.add("loader.memory/60000x784" + suffix, "sample", 60000, [options] {
      auto dataset =
          data::datasets::tensor_dataset(athanor::randn({60000, 784}), athanor::randint(0, 10, {60000}, athanor::kLong))
              .map(data::transforms::Stack<>());
      auto loader = data::make_data_loader<data::samplers::RandomSampler>(std::move(dataset), options);
      return epoch(std::shared_ptr(std::move(loader)));
    });
    program.add("loader.mnist/60000" + suffix, "sample", 60000, [options] {
      using data::datasets::MNIST;
      data::MnistSplit digits{std::vector<std::uint8_t>(60000 * 784), std::vector<std::uint8_t>(60000)};
      for (std::size_t i = 0; i < digits.images.size(); ++i) digits.images[i] = static_cast<std::uint8_t>(i * 31 >> 3);
      for (std::size_t i = 0; i < digits.labels.size(); ++i) digits.labels[i] = static_cast<std::uint8_t>(i % 10);
      auto dataset = MNIST(digits, MNIST::Mode::kTrain)
                         .map(data::transforms::Normalize<>(0.1307, 0.3081))
                         .map(data::transforms::Stack<>());
      auto loader = data::make_data_loader<data::samplers::RandomSampler>(std::move(dataset), options);
      return epoch(std::shared_ptr(std::move(loader)));
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const bool otherwise = argc > 2 && std::string_view(argv[2]) == "otherwise";
  athanor::set_num_threads(threads);
  athanor::manual_seed(0);
  bench::Program program("athanor", "", athanor::get_num_threads());
  program.meter_memory([] { athanor::reset_peak_memory_stats(athanor::kCPU); },
                       [] { return static_cast<double>(athanor::max_memory_allocated(athanor::kCPU)); });
  bench::add_device_rows(program, threads, otherwise);
  if (otherwise) return program.serve();
  bench::add_overhead_rows(program);
  bench::add_training_rows(program);
  bench::add_resnet_rows(program);
  bench::add_model_rows(program);
  bench::add_throughput_rows(program);
  bench::add_sequence_rows(program);
  add_loader_rows(program);
  return program.serve();
}
