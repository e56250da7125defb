// A program written against libtorch's c10d, to the letter: two processes, every collective, messages, training.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "athanor/distributed/error.h"
#include "tests/distributed/processes.h"

namespace {

using Tensors = std::vector<torch::Tensor>;

void expect(const torch::Tensor& got, const torch::Tensor& wanted) { TORCH_CHECK(torch::equal(got, wanted), got); }

void collectives(c10d::ProcessGroup& pg) {
  const int rank = pg.getRank();
  const auto mine = [&] { return torch::full({4}, rank + 1.0); };
  {
    Tensors x = {mine()};
    pg.allreduce(x)->wait();
    expect(x[0], torch::full({4}, 3.0));
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    Tensors y = {mine()};
    c10::intrusive_ptr<c10d::Work> work = pg.allreduce(y, options);
    TORCH_CHECK(work->wait());
    TORCH_CHECK(work->isCompleted() && work->isSuccess());
    expect(y[0], torch::full({4}, 2.0));
  }
  {
    c10d::BroadcastOptions options;
    options.rootRank = 1;
    Tensors x = {mine()};
    pg.broadcast(x, options)->wait();
    expect(x[0], torch::full({4}, 2.0));
  }
  {
    Tensors in = {mine()};
    std::vector<Tensors> out = {{torch::zeros({4}), torch::zeros({4})}};
    pg.allgather(out, in)->wait();
    expect(out[0][0], torch::full({4}, 1.0));
    expect(out[0][1], torch::full({4}, 2.0));
    torch::Tensor base = torch::zeros({8}), one = mine();
    pg._allgather_base(base, one)->wait();
    expect(base.narrow(0, 4, 4), torch::full({4}, 2.0));
  }
  {
    c10d::ReduceOptions options;
    options.rootRank = 1;
    Tensors x = {mine()};
    pg.reduce(x, options)->wait();
    if (rank == 1) expect(x[0], torch::full({4}, 3.0));
  }
  {
    // Only the root names outputs.
    c10d::GatherOptions to_first;
    to_first.rootRank = 0;
    Tensors in = {mine()};
    std::vector<Tensors> out;
    if (rank == 0) out = {{torch::zeros({4}), torch::zeros({4})}};
    pg.gather(out, in, to_first)->wait();
    if (rank == 0) expect(out[0][1], torch::full({4}, 2.0));
    c10d::ScatterOptions from_first;
    from_first.rootRank = 0;
    std::vector<Tensors> parts;
    if (rank == 0) parts = {{torch::full({4}, 7.0), torch::full({4}, 8.0)}};
    Tensors got = {torch::zeros({4})};
    pg.scatter(got, parts, from_first)->wait();
    expect(got[0], torch::full({4}, 7.0 + rank));
  }
  {
    Tensors out = {torch::zeros({2})};
    std::vector<Tensors> in = {{torch::ones({2}), torch::full({2}, 5.0)}};
    pg.reduce_scatter(out, in)->wait();
    expect(out[0], torch::full({2}, rank == 0 ? 2.0 : 10.0));
    torch::Tensor to = torch::zeros({4}), from = torch::arange(4, torch::kFloat) + 10 * rank;
    std::vector<int64_t> split;
    pg.alltoall_base(to, from, split, split)->wait();
    expect(to, torch::tensor({0.0F + 2 * rank, 1.0F + 2 * rank, 10.0F + 2 * rank, 11.0F + 2 * rank}));
  }
  {
    Tensors x = {mine()}, y = {torch::zeros({4})};
    auto sent = pg.send(x, 1 - rank, 3);
    auto received = rank == 0 ? pg.recv(y, 1, 3) : pg.recvAnysource(y, 3);
    received->wait();
    sent->wait();
    TORCH_CHECK(received->sourceRank() == 1 - rank);
    expect(y[0], torch::full({4}, 2.0 - rank));
  }
  pg.barrier()->wait();
}

// The gradient exchange of the C++ example that comes with PyTorch.
void train(c10d::ProcessGroup& pg) {
  torch::manual_seed(1);
  torch::nn::Linear model(8, 2);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  torch::manual_seed(10 + static_cast<std::uint64_t>(pg.getRank()));
  for (int step = 0; step < 5; ++step) {
    auto loss = torch::mse_loss(model(torch::randn({16, 8})), torch::zeros({16, 2}));
    optimizer.zero_grad();
    loss.backward();
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (auto& param : model->named_parameters()) {
      Tensors gradient = {param.value().grad()};
      works.push_back(pg.allreduce(gradient));
    }
    for (auto& work : works) work->wait();
    for (auto& param : model->named_parameters()) param.value().grad().div_(pg.getSize());
    optimizer.step();
  }
  Tensors weight = {model->weight.detach().clone()};
  std::vector<Tensors> all = {{torch::zeros_like(weight[0]), torch::zeros_like(weight[0])}};
  pg.allgather(all, weight)->wait();
  expect(all[0][0], all[0][1]);
}

TEST(C10d, ProgramOfLibtorchRunsAsItIs) {
  c10d::TCPStoreOptions server;
  server.port = 0;
  server.isServer = true;
  auto served = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", server);
  const auto ends = athanor::distributed::run_processes(2, [&](int rank) {
    c10d::TCPStoreOptions options;
    options.port = served->getPort();
    auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    auto gloo = c10d::ProcessGroupGloo::Options::create();
    gloo->timeout = std::chrono::seconds(30);
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    auto pg = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, 2, gloo);
    collectives(*pg);
    train(*pg);
  });
  for (const auto& end : ends) EXPECT_TRUE(end.good()) << end.status << ": " << end.error;
}

TEST(C10d, StoresHaveLibtorchsNames) {
  auto hash = c10::make_intrusive<c10d::HashStore>();
  c10d::PrefixStore store("mine", hash);
  store.set("a", std::vector<uint8_t>{1, 2});
  EXPECT_EQ(hash->get("mine/a"), (std::vector<uint8_t>{1, 2}));
  EXPECT_EQ(store.add("n", 2) + store.add("n", 3), 7);
  EXPECT_TRUE(store.check({"a", "n"}));
  EXPECT_EQ(store.compareSet("a", {1, 2}, {3}), std::vector<uint8_t>{3});
  EXPECT_TRUE(store.deleteKey("a"));
  EXPECT_EQ(hash->getNumKeys(), 1);
  store.wait({"n"}, std::chrono::milliseconds(10));
  EXPECT_THROW(store.wait({"none"}, std::chrono::milliseconds(10)), athanor::DistError);
}

TEST(C10d, ListsOfMoreThanOneTensorAreRefused) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  c10d::ProcessGroupGloo pg(store, 0, 1);
  Tensors two = {torch::ones({1}), torch::ones({1})};
  EXPECT_THROW(pg.allreduce(two), athanor::ValueError);
}

}  // namespace
