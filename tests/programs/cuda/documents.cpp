// The parts of the documents that need GPUs, in C++. Run with ATHANOR_CUDA_ON_CPU by ../cuda_test.py.
//     cuda_documents devices | model_parallel | data_parallel | ddp RANKS | visible
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "athanor/distributed/distributed.h"
#include "athanor/distributed/spawn.h"
#include "athanor/parallel/data_parallel.h"
#include "athanor/parallel/ddp.h"
#include "athanor/torch.h"

namespace {

namespace dist = torch::distributed;

void devices() {
  if (torch::cuda::is_available()) {
    std::cout << "Number of GPUs available: " << int(torch::cuda::device_count()) << "\n";
    for (int i = 0; i < torch::cuda::device_count(); ++i)
      std::cout << "GPU " << i << ": " << torch::cuda::get_device_name(i) << "\n";
  } else {
    std::cout << "No GPU available.\n";
  }
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  std::cout << torch::ones({2, 3}, device) << "\n";
  if (!torch::cuda::is_available()) return;
  const int last = torch::cuda::device_count() - 1;
  {
    const c10::cuda::CUDAGuard guard(last);
    std::cout << "current " << torch::cuda::current_device() << ", new "
              << torch::zeros({1}, torch::kCUDA).device().str();
  }
  torch::cuda::set_device(0);
  std::cout << ", then " << torch::zeros({1}).cuda().device().str() << ", by number "
            << torch::zeros({1}).cuda(last).device().str() << "\n";
}

struct MainModel : torch::nn::Module {
  MainModel() {
    net1 = register_module("net1", torch::nn::Linear(10, 10));
    net1->to("cuda:0");
    relu = register_module("relu", torch::nn::ReLU());
    net2 = register_module("net2", torch::nn::Linear(10, 5));
    net2->to("cuda:1");
  }
  torch::Tensor forward(torch::Tensor x) {
    x = relu(net1(x.to(torch::Device("cuda:0"))));
    return net2(x.to(torch::Device("cuda:1")));
  }
  torch::nn::Linear net1{nullptr}, net2{nullptr};
  torch::nn::ReLU relu{nullptr};
};

void model_parallel() {
  MainModel model;
  torch::nn::MSELoss loss_fn;
  torch::optim::SGD optimizer(model.parameters(), 0.001);
  optimizer.zero_grad();
  const auto outputs = model.forward(torch::randn({20, 10}));
  const auto labels = torch::randn({20, 5}).to(torch::Device("cuda:1"));
  loss_fn(outputs, labels).backward();
  optimizer.step();
  std::cout << outputs.device().str() << " " << model.net1->weight.grad().device().str() << "\n";
  try {
    model.net2(torch::randn({20, 10}).to(torch::Device("cuda:0")));
  } catch (const std::exception& e) {
    std::cout << std::string(e.what()).substr(0, 140) << "\n";
  }
}

void data_parallel() {
  torch::manual_seed(1);
  torch::nn::Linear plain(10, 10);
  auto copy = std::dynamic_pointer_cast<torch::nn::LinearImpl>(plain->clone());
  torch::nn::parallel::DataParallel<torch::nn::LinearImpl> model(copy);
  model->cuda();
  torch::nn::MSELoss criterion;
  torch::optim::SGD optimizer(model->parameters(), 0.001);
  const auto inputs = torch::randn({32, 10}), targets = torch::randn({32, 10});
  const auto outputs = model(inputs.cuda());
  const auto loss = criterion(outputs, targets.cuda());
  loss.backward();
  optimizer.step();
  std::cout << outputs.device().str() << " "
            << (outputs.cpu() - plain(inputs)).abs().max().item<float>() / outputs.abs().max().item<float>() << "\n";
}

void demo_ddp(int rank, int world_size) {
  dist::init_process_group("nccl", "", world_size, rank);
  torch::nn::Linear model(10, 10);
  model->to(rank);
  torch::nn::parallel::DistributedDataParallel ddp_model(
      model, torch::nn::parallel::DistributedDataParallelOptions().device_ids({rank}));
  torch::nn::MSELoss criterion;
  torch::optim::SGD optimizer(ddp_model->parameters(), 0.001);
  const auto inputs = torch::randn({32, 10}).cuda(rank), targets = torch::randn({32, 10}).cuda(rank);
  const auto outputs = ddp_model(inputs);
  criterion(outputs, targets).backward();
  optimizer.step();
  auto sum = torch::ones({1}, torch::Device(rank)) * rank;
  dist::all_reduce(sum);
  if (rank == 0) std::cout << dist::get_backend() << " " << sum.device().str() << " " << sum.item<float>() << std::endl;
  dist::destroy_process_group();
}

void visible() {
  std::cout << int(torch::cuda::device_count()) << "\n";
  ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  std::cout << int(torch::cuda::device_count()) << "\n";
  const int index = torch::cuda::device_count();
  try {
    torch::zeros({1}, torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(index)));
  } catch (const std::exception& e) {
    std::cout << e.what() << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "devices") devices();
  if (what == "model_parallel") model_parallel();
  if (what == "data_parallel") data_parallel();
  if (what == "visible") visible();
  if (what == "ddp") {
    const int ranks = std::atoi(argv[2]);
    dist::spawn([ranks](int rank) { demo_ddp(rank, ranks); }, ranks);
  }
}
