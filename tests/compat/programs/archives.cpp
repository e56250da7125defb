// Saving and loading: tensors, modules, optimizers, archives inside archives; training goes on where it stopped.
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "values.h"

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl(int64_t in, int64_t hidden)
      : fc1(register_module("fc1", torch::nn::Linear(in, hidden))),
        norm(register_module("norm", torch::nn::BatchNorm1d(hidden))),
        fc2(register_module("fc2", torch::nn::Linear(hidden, 1))) {
    steps = register_buffer("steps", torch::zeros({1}, torch::kLong));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    steps += 1;
    return fc2(torch::relu(norm(fc1(x))));
  }
  torch::nn::Linear fc1;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear fc2;
  torch::Tensor steps;
};
TORCH_MODULE(Net);

double train(Net& net, torch::optim::Optimizer& optimizer, int steps) {
  double last = 0;
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    auto loss = torch::mse_loss(net(wave({8, 5}, 1)), wave({8, 1}, 2));
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
  }
  return last;
}

}  // namespace

int main() {
  std::string folder = (std::filesystem::temp_directory_path() / "compat_archives_XXXXXX").string();
  if (!mkdtemp(folder.data())) return 1;

  Net net(5, 7);
  fill(*net);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.05).weight_decay(0.01));
  show("before", train(net, optimizer, 5));
  torch::save(net, folder + "/net.pt");
  torch::save(optimizer, folder + "/optimizer.pt");
  const double straight = train(net, optimizer, 5);
  show("straight", straight);

  Net again(5, 7);
  torch::optim::Adam again_optimizer(again->parameters(), torch::optim::AdamOptions(0.05).weight_decay(0.01));
  torch::load(again, folder + "/net.pt");
  torch::load(again_optimizer, folder + "/optimizer.pt");
  std::printf("steps %lld\n", static_cast<long long>(again->steps.item<int64_t>()));
  const double continued = train(again, again_optimizer, 5);
  std::printf("continues exactly: %d\n", continued == straight);

  std::vector<torch::Tensor> tensors = {wave({2, 3}), torch::arange(4), torch::zeros({0, 2})};
  torch::save(tensors, folder + "/tensors.pt");
  std::vector<torch::Tensor> loaded;
  torch::load(loaded, folder + "/tensors.pt");
  bool same = loaded.size() == tensors.size();
  for (size_t i = 0; i < loaded.size(); ++i)
    same = same && torch::equal(loaded[i], tensors[i]) && loaded[i].dtype() == tensors[i].dtype();
  std::printf("tensors are the same: %d\n", same);

  std::stringstream stream;
  torch::save(wave({3}, 4), stream);
  torch::Tensor from_stream;
  torch::load(from_stream, stream);
  show("stream", from_stream);

  {
    torch::serialize::OutputArchive archive, inner;
    inner.write("bias", wave({2}, 5));
    archive.write("weight", wave({2, 2}, 6));
    archive.write("inner", inner);
    archive.save_to(folder + "/archive.pt");
  }
  torch::serialize::InputArchive archive, inner;
  archive.load_from(folder + "/archive.pt");
  torch::Tensor weight, bias, nothing;
  archive.read("weight", weight);
  archive.read("inner", inner);
  inner.read("bias", bias);
  show("weight", weight);
  show("bias", bias);
  std::printf("absent: %d\n", archive.try_read("absent", nothing));

  std::filesystem::remove_all(folder);
}
