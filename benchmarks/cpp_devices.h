#pragma once
/// Several devices against the ways they are to beat, both Athanor's: the side "athanor" has a row's devices work
/// together, the side "athanor otherwise" computes the same in the way that the row's name ends with. Two virtual CPU
/// devices share the threads.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "athanor/models/mnist.h"
#include "athanor/models/resnet.h"
#include "athanor/parallel/data_parallel.h"
#include "athanor/parallel/pipeline.h"
#include "athanor/tensor/stream.h"
#include "cpp_models.h"

namespace bench {

/// Two virtual devices while it lives. Outlives what is on them.
struct TwoDevices {
  TwoDevices() { athanor::detail::configure_cpu_queues(2); }
  ~TwoDevices() { athanor::detail::configure_cpu_queues(0); }
  TwoDevices(const TwoDevices&) = delete;
  TwoDevices& operator=(const TwoDevices&) = delete;
  static athanor::Device get(int i) { return {athanor::DeviceType::CPU, static_cast<athanor::DeviceIndex>(i)}; }
  static void finish() {
    for (const int i : {0, 1}) athanor::synchronize(get(i));
  }
};

/// `threads` while it lives.
struct Threads {
  explicit Threads(int n) : before(athanor::get_num_threads()) { athanor::set_num_threads(n); }
  ~Threads() { athanor::set_num_threads(before); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  int before;
};

/// A body that needs something set up while what it holds is alive.
struct BodyWith {
  std::shared_ptr<void> setting;  // first: it goes last
  Body body;
  void operator()() const { body(); }
};

inline std::shared_ptr<torch::optim::SGD> momentum_sgd(const std::vector<Tensor>& parameters) {
  return std::make_shared<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.01).momentum(0.9));
}

inline Body data_parallel_step(std::int64_t batch) {
  auto devices = std::make_shared<TwoDevices>();
  athanor::models::ConvNet inner;
  inner->to(TwoDevices::get(0));
  auto optimizer = momentum_sgd(inner->parameters());
  auto net = std::make_shared<athanor::nn::parallel::DataParallel<athanor::models::ConvNetImpl>>(inner);
  const Tensor x = torch::randn({batch, 1, 28, 28}), t = torch::randint(0, 10, {batch}, torch::kLong);
  const Body body = [optimizer, net, x, t] {
    optimizer->zero_grad();
    const Tensor target = t.to(TwoDevices::get(0));  // before the work that it would wait for
    torch::nll_loss((*net)->forward(x), target).backward();
    optimizer->step();
    TwoDevices::finish();
  };
  return BodyWith{devices, body};
}

inline Body one_thread_step(std::int64_t batch) {
  auto one = std::make_shared<Threads>(1);
  athanor::models::ConvNet net;
  auto optimizer = momentum_sgd(net->parameters());
  const Tensor x = torch::randn({batch, 1, 28, 28}), t = torch::randint(0, 10, {batch}, torch::kLong);
  const Body body = [optimizer, net, x, t]() mutable {
    optimizer->zero_grad();
    torch::nll_loss(net(x), t).backward();
    optimizer->step();
  };
  return BodyWith{one, body};
}

/// What two devices could do at best: a training of its own on each half of the batch, by a thread each, at once.
inline Body independent_halves(std::int64_t batch) {
  auto one = std::make_shared<Threads>(1);
  return BodyWith{one, [first = one_thread_step(batch / 2), second = one_thread_step(batch / 2)] {
                    std::thread other(second);
                    first();
                    other.join();
                  }};
}

/// A step of ResNet-50 in two halves; with one micro-batch they take turns.
inline Body pipeline_step(std::int64_t batch, std::int64_t size, std::int64_t micro_batches) {
  auto devices = std::make_shared<TwoDevices>();
  using namespace athanor::nn::parallel;  // NOLINT(google-build-using-namespace)
  // Up to the first block of layer 3, and the rest: about as long in each.
  Pipeline pipe(athanor::models::as_sequential(athanor::models::resnet50()),
                PipelineOptions()
                    .devices({TwoDevices::get(0), TwoDevices::get(1)})
                    .balance({12, 11})
                    .chunks(micro_batches)
                    .schedule(PipelineSchedule::OneForwardOneBackward));
  auto optimizer = momentum_sgd(pipe->parameters());
  const Tensor x = torch::randn({batch, 3, size, size}), t = torch::randint(0, 1000, {batch}, torch::kLong);
  const Body body = [optimizer, pipe, x, t]() mutable {
    optimizer->zero_grad();
    pipe->train_step(x, t, [](const Tensor& y, const Tensor& target) { return torch::cross_entropy_loss(y, target); });
    optimizer->step();
    TwoDevices::finish();
  };
  return BodyWith{devices, body};
}

inline void add_device_rows(Program& program, int threads, bool otherwise) {
  if (threads != 2) return;  // one for each device
  const std::int64_t images = 512, photos = 32, size = 128;
  program.add("data_parallel.step/mnist.b512/one_thread", "image", images,
              [=] { return otherwise ? one_thread_step(images) : data_parallel_step(images); });
  program.add("data_parallel.step/mnist.b512/independent_halves", "image", images,
              [=] { return otherwise ? independent_halves(images) : data_parallel_step(images); });
  const std::string pipeline = "pipeline.step/resnet50.b32s128m8/";
  program.add(pipeline + "in_turns", "image", photos, [=] { return pipeline_step(photos, size, otherwise ? 1 : 8); });
  program.add(pipeline + "one_device", "image", photos, [=] {
    return otherwise ? resnet_step(athanor::models::resnet50(), photos, size) : pipeline_step(photos, size, 8);
  });
}

}  // namespace bench
