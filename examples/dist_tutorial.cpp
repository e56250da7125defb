// The programs of PyTorch's tutorial "Writing Distributed Applications", one subcommand each:
//
//     dist_tutorial [--ranks N] hello | send_recv | isend_irecv | all_reduce | sync_sgd | ring | chunked_ring |
//     bandwidth
//
// It starts its ranks itself unless a launcher has.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "athanor/athanor.h"
#include "athanor/data/partition.h"
#include "athanor/data/synthetic_digits.h"
#include "athanor/distributed/collectives.h"
#include "athanor/distributed/groups.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/spawn.h"
#include "athanor/models/mnist.h"
#include "athanor/parallel/average_gradients.h"

namespace dist = athanor::distributed;
using namespace athanor;  // NOLINT(google-build-using-namespace): an example

namespace {

void say(const std::string& text) {
  std::printf("rank %d of %d %s\n", dist::get_rank(), dist::get_world_size(), text.c_str());
  std::fflush(stdout);
}

void hello() { say("is here"); }

// Rank 0 sends its tensor to rank 1.
void send_recv() {
  Tensor tensor = zeros({1});
  if (dist::get_rank() == 0) dist::send(tensor += 1, 1);
  if (dist::get_rank() == 1) dist::recv(tensor, 0);
  say(detail::str("has ", tensor.item<float>()));
}

// The same without waiting at once: what is sent must not be written, nor what is received be read, before wait().
void isend_irecv() {
  Tensor tensor = zeros({1});
  dist::WorkPtr request;
  if (dist::get_rank() == 0) request = dist::isend(tensor += 1, 1);
  if (dist::get_rank() == 1) request = dist::irecv(tensor, 0);
  if (request) request->wait();
  say(detail::str("has ", tensor.item<float>()));
}

// A sum over a group of ranks.
void group_all_reduce() {
  const auto group = dist::new_group(dist::get_world_size() > 1 ? std::vector<int>{0, 1} : std::vector<int>{0});
  Tensor tensor = ones({1});
  if (dist::get_rank() < 2) dist::all_reduce(tensor, dist::ReduceOp::SUM, group);
  say(detail::str("has ", tensor.item<float>()));
}

Tensor from_bytes(const std::vector<std::uint8_t>& bytes) {
  return from_blob(const_cast<std::uint8_t*>(bytes.data()), {static_cast<std::int64_t>(bytes.size())},
                   TensorOptions(kByte));
}
Tensor images_of(const data::SyntheticDigits& digits) {
  return from_bytes(digits.images).view({-1, 1, data::kDigitSide, data::kDigitSide}).to(kFloat) / 255;
}
Tensor labels_of(const data::SyntheticDigits& digits) { return from_bytes(digits.labels).to(kLong); }

// Every rank trains on its part of the digits, with a batch of 128 / ranks, and all average their gradients.
void sync_sgd() {
  constexpr std::int64_t kDigits = 12800, kUnseen = 20000, kBatch = 128;
  const int size = dist::get_world_size();
  manual_seed(1234);
  const auto digits = data::synthetic_digits(kDigits, 1);
  const Tensor images = images_of(digits), labels = labels_of(digits);
  const auto part = data::partition_indices(kDigits, std::vector<double>(static_cast<std::size_t>(size), 1.0 / size))
                        .at(static_cast<std::size_t>(dist::get_rank()));
  const Tensor mine = tensor(std::vector<std::int64_t>(part.begin(), part.end()));
  models::TutorialNet net;
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.05).momentum(0.9));
  optim::StepLR scheduler(optimizer, 6, 0.1);
  const std::int64_t batch = kBatch / size;
  for (int epoch = 0; epoch < 8; ++epoch) {
    double epoch_loss = 0;
    const std::int64_t batches = mine.numel() / batch;
    for (std::int64_t b = 0; b < batches; ++b) {
      const Tensor rows = mine.narrow(0, b * batch, batch);
      optimizer.zero_grad();
      Tensor loss = nll_loss(net->forward(images.index_select(0, rows)), labels.index_select(0, rows));
      epoch_loss += loss.item<double>();
      loss.backward();
      nn::parallel::average_gradients(*net);
      optimizer.step();
    }
    scheduler.step();
    say(detail::str("epoch ", epoch, ": ", epoch_loss / static_cast<double>(batches)));
  }
  // All ranks have the same parameters: one of them tells what they are worth.
  if (dist::get_rank() != 0) return;
  const NoGradGuard off;
  net->eval();
  const auto unseen = data::synthetic_digits(kUnseen, 2);
  const Tensor right = net->forward(images_of(unseen)).argmax(1).eq(labels_of(unseen)).sum();
  std::printf("accuracy %.2f%%\n", 100.0 * static_cast<double>(right.item<std::int64_t>()) / kUnseen);
}

// A sum by passing tensors round a ring: each rank adds what it gets and passes that on, size - 1 times. (As printed in
// the tutorial, two ranks return their own value: there the receive buffer of one turn is the send buffer of the next.)
void ring_all_reduce(const Tensor& send, Tensor& recv) {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  Tensor passed = send.clone(), incoming = empty_like(send);
  recv.copy_(send);
  for (int turn = 1; turn < size; ++turn) {
    const auto sent = dist::isend(passed, (rank + 1) % size);
    dist::recv(incoming, (rank + size - 1) % size);
    sent->wait();
    recv += incoming;
    std::swap(passed, incoming);
  }
}

// The tutorial's exercise: in chunks, so that each rank sends every value twice instead of size - 1 times.
void chunked_ring_all_reduce(Tensor& tensor) {
  const int rank = dist::get_rank(), size = dist::get_world_size(), right = (rank + 1) % size,
            left = (rank + size - 1) % size;
  const Tensor flat = tensor.view({-1});
  const std::int64_t each = (flat.numel() + size - 1) / size;
  const auto chunk = [&](int c) {
    const std::int64_t begin = std::min(flat.numel(), each * ((c % size + size) % size));
    return flat.narrow(0, begin, std::min(each, flat.numel() - begin));
  };
  const auto pass_on = [&](int out, int in, bool add) {
    Tensor target = chunk(in), incoming = add ? empty_like(target) : target;
    const auto sent = dist::isend(chunk(out), right);
    dist::recv(incoming, left);
    sent->wait();
    if (add) target += incoming;
  };
  for (int turn = 0; turn < size - 1; ++turn) pass_on(rank - turn, rank - turn - 1, true);   // every rank has one sum
  for (int turn = 0; turn < size - 1; ++turn) pass_on(rank + 1 - turn, rank - turn, false);  // and passes it round
}

void check_ring(const char* name, void (*reduce)(Tensor&)) {
  for (const std::int64_t n : {0, 1, 2, 7, 1000, 65537}) {
    Tensor mine = arange(n) + 10 * dist::get_rank(), expected = mine.clone();
    dist::all_reduce(expected);
    reduce(mine);
    ATHANOR_CHECK(mine.equal(expected), name, " of ", n, " elements differs from all_reduce");
  }
  say(detail::str(name, ": equal to all_reduce at every size"));
}

void naive(Tensor& tensor) {
  Tensor sum = empty_like(tensor);
  ring_all_reduce(tensor, sum);
  tensor.copy_(sum);
}
void ring() { check_ring("ring", naive); }
void chunked_ring() { check_ring("chunked_ring", chunked_ring_all_reduce); }

void bandwidth() {
  const std::map<std::string, std::function<void(Tensor&)>> ways = {
      {"naive ring", naive}, {"chunked ring", chunked_ring_all_reduce}, {"all_reduce", [](Tensor& t) {
                                                                           dist::all_reduce(t);
                                                                         }}};
  if (dist::get_rank() == 0)
    std::printf("%12s %14s %14s %14s   (GB/s)\n", "bytes", "all_reduce", "chunked ring", "naive ring");
  for (const std::int64_t bytes : {4096, 65536, 1 << 20, 16 << 20}) {
    if (dist::get_rank() == 0) std::printf("%12lld", static_cast<long long>(bytes));
    for (const auto& [name, reduce] : ways) {
      Tensor tensor = zeros({bytes / 4});
      reduce(tensor);
      dist::barrier();
      const auto begin = std::chrono::steady_clock::now();
      constexpr int kTimes = 10;
      for (int i = 0; i < kTimes; ++i) reduce(tensor);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kTimes;
      if (dist::get_rank() == 0) std::printf(" %14.3f", static_cast<double>(bytes) / seconds / 1e9);
    }
    if (dist::get_rank() == 0) std::printf("\n");
  }
}

const std::map<std::string, void (*)()> kPrograms = {
    {"hello", hello},       {"send_recv", send_recv}, {"isend_irecv", isend_irecv},   {"all_reduce", group_all_reduce},
    {"sync_sgd", sync_sgd}, {"ring", ring},           {"chunked_ring", chunked_ring}, {"bandwidth", bandwidth},
};

int usage() {
  std::fputs("usage: dist_tutorial [--ranks N] PROGRAM, one of:", stderr);
  for (const auto& [name, unused] : kPrograms) std::fprintf(stderr, " %s", name.c_str());
  std::fputs("\n", stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  int ranks = 2;
  std::string program;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--ranks" && i + 1 < argc)
      ranks = std::atoi(argv[++i]);
    else
      program = argument;
  }
  const auto chosen = kPrograms.find(program);
  if (chosen == kPrograms.end() || ranks < 1) return usage();
  const auto run = [&](int rank, int size) {
    set_num_threads(1);
    dist::init_process_group("tcp", "env://", size, rank);
    chosen->second();
    dist::destroy_process_group();
  };
  try {
    if (dist::launched_world_size())
      run(-1, -1);
    else
      dist::spawn([&](int rank) { run(rank, ranks); }, ranks);
  } catch (const Error& error) {
    std::fprintf(stderr, "dist_tutorial: %s\n", error.what());
    return 1;
  }
  return 0;
}
