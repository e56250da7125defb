// Checkpoints of a small training: whatever the bytes, loading succeeds or throws an Error, and what was loaded can be
// trained on.
#include <gtest/gtest.h>

#include <sstream>

#include "athanor/data/samplers.h"
#include "athanor/io/archive.h"
#include "athanor/nn/nn.h"
#include "athanor/optim/algorithms.h"
#include "athanor/optim/scheduler.h"
#include "fuzz.h"

namespace athanor::fuzz {

namespace {

struct Training {
  Training() : adam(net->parameters(), optim::AdamOptions(0.1)), schedule(adam, 2) {}
  void step() {
    adam.zero_grad();
    net(ones({1, 2})).sum().backward();
    adam.step();
    schedule.step();
  }
  nn::Linear net{2, 3};
  optim::Adam adam;
  optim::StepLR schedule;
};

std::vector<std::byte> saved() {
  Training training;
  training.step();
  io::Checkpoint c;
  c.set("epoch", std::int64_t{3});
  c.set_module("model", *training.net);
  c.set_optimizer("optimizer", training.adam);
  c.set_scheduler("schedule", training.schedule);
  c.set_generator("generator", default_generator());
  return c.bytes();
}

void fuzz_checkpoint(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> copy(data, data + size);
  try {
    const auto c = io::Checkpoint::parse(std::as_writable_bytes(std::span(copy)));
    Training training;
    Generator generator(1);
    c.integer("epoch");
    c.load_module("model", *training.net);
    c.load_optimizer("optimizer", training.adam);
    c.load_scheduler("schedule", training.schedule);
    c.load_generator("generator", generator);
    training.step();
  } catch (const Error&) {
  }
}

/// Of ten examples.
template <class Sampler>
void load_and_go_on(Sampler sampler, const std::string& content) {
  try {
    std::istringstream in(content);
    load(sampler, in);
  } catch (const Error&) {
  }
  std::size_t given = 0;
  while (const auto batch = sampler.next(4)) {
    for (const std::size_t i : *batch) EXPECT_LT(i, 10U);
    given += batch->size();
  }
  EXPECT_LE(given, 10U);
}

}  // namespace

TEST(Fuzz, CheckpointLoader) {
  FuzzOptions options;
  const auto bytes = saved();
  const auto* from = reinterpret_cast<const std::uint8_t*>(bytes.data());
  options.corpus = {Input(from, from + bytes.size())};
  options.words = {"\"model.weight\"",
                   "\"optimizer.state.0.exp_avg\"",
                   "\"optimizer.groups\":\"9\"",
                   "\"nan\"",
                   "\"inf\"",
                   "\"F64\"",
                   "\"I32\"",
                   "\"shape\":[]",
                   "-1",
                   "18446744073709551615",
                   "\"0x1p+1023\"",
                   ","};
  run_fuzzer(fuzz_checkpoint, options);
}

TEST(Fuzz, ArchiveOfTensors) {
  std::stringstream stream;
  save(std::vector<Tensor>{ones({3}), zeros({2, 2})}, stream);
  FuzzOptions options;
  options.corpus = {bytes_of(stream.str())};
  options.words = {"\"count\"", "\"0\"", "\"1\"", "\"-1\"", "\"9223372036854775807\"", "\"shape\":[9]"};
  run_fuzzer(
      [](const std::uint8_t* data, std::size_t size) {
        std::istringstream in(std::string(data, data + size));
        std::vector<Tensor> list;
        try {
          load(list, in);
          for (const Tensor& t : list) touch(t.numel() ? t.data_ptr() : nullptr, t.nbytes());
        } catch (const Error&) {
        }
      },
      options);
}

TEST(Fuzz, ArchiveOfSamplers) {
  using data::samplers::DistributedRandomSampler;
  using data::samplers::RandomSampler;
  FuzzOptions options;
  const auto add = [&](auto sampler) {
    sampler.next(3);
    std::stringstream stream;
    save(sampler, stream);
    options.corpus.push_back(bytes_of(stream.str()));
  };
  add(RandomSampler(10));
  add(DistributedRandomSampler(10, 2, 1));
  options.words = {"\"index\"", "\"epoch\"", "\"seed\"", "\"-1\"", "\"9223372036854775807\"", "\"1e300\""};
  run_fuzzer(
      [](const std::uint8_t* data, std::size_t size) {
        const std::string content(data, data + size);
        load_and_go_on(RandomSampler(10), content);
        load_and_go_on(DistributedRandomSampler(10, 2, 1), content);
      },
      options);
}

}  // namespace athanor::fuzz
