// GPT-2. Expected values were computed with PyTorch.
#include "athanor/models/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "athanor/autograd/autograd.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/algorithms.h"

namespace athanor::models {
namespace {

GPTOptions small() { return GPTOptions(11).n_positions(8).n_embd(8).n_layer(2).n_head(2).dropout(0); }

Tensor wave(IntArrayRef sizes, double phase) {
  std::int64_t n = 1;
  for (const auto s : sizes) n *= s;
  std::vector<double> v;
  for (std::int64_t i = 0; i < n; ++i) v.push_back(std::sin(static_cast<double>(i) * 0.7 + phase) * 0.4);
  return tensor(v, kDouble).reshape(sizes);
}

/// Values by names, as Hugging Face's files have them.
GPT filled() {
  GPT net(small());
  net->to(kDouble);
  std::map<std::string, Tensor> by_name;
  for (const auto& p : net->named_parameters()) by_name[p.key()] = p.value();
  const NoGradGuard guard;
  double phase = 0;
  for (auto& [name, p] : by_name) p.copy_(wave(p.sizes(), phase++));
  return net;
}

Tensor tokens(std::int64_t batch, std::int64_t length) {
  return (arange(batch * length, TensorOptions(kLong)) * 7 + 3).remainder(11).reshape({batch, length});
}

TEST(Gpt, AgreesWithPyTorch) {
  GPT net = filled();
  const Tensor logits = net(tokens(2, 6));
  EXPECT_EQ(logits.sizes().vec(), (std::vector<std::int64_t>{2, 6, 11}));
  const double expected[] = {-0.64853567771, -0.49353944074, -0.117009022164, 0.312043030603};
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_NEAR(logits[1][5][i].item<double>(), expected[i], 1e-8);
  const Tensor loss = net->loss(tokens(2, 6), tokens(2, 6));
  EXPECT_NEAR(loss.item<double>(), 2.47811951765, 1e-8);
  loss.backward();
  EXPECT_NEAR(net->wte->weight.grad().abs().sum().item<double>(), 1.14710150255, 1e-7);
}

TEST(Gpt, HasNamesAndShapesOfHuggingFace) {
  const GPT net(small());
  const auto state = net->state_dict();
  EXPECT_EQ(state.size(), 2U + 2 * 12 + 2);
  for (const char* name :
       {"wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.attn.c_attn.weight", "h.1.mlp.c_proj.bias", "ln_f.bias"})
    EXPECT_TRUE(state.contains(name)) << name;
  EXPECT_EQ(state["h.0.attn.c_attn.weight"].sizes().vec(), (std::vector<std::int64_t>{8, 24}));
}

TEST(Gpt, LoadsFilesOfHuggingFace) {
  GPT net = filled(), other(small());
  other->to(kDouble);
  nn::Module::StateDict file;
  for (const auto& item : net->state_dict()) file.insert("transformer." + item.key(), item.value());
  file.insert("transformer.h.0.attn.bias", ones({1, 1, 8, 8}));
  file.insert("lm_head.weight", net->wte->weight);
  other->load_gpt2(file);
  EXPECT_TRUE(other(tokens(1, 5)).equal(net(tokens(1, 5))));
  // A head of its own would be lost without a word.
  file["lm_head.weight"] = net->wte->weight.detach().to(kFloat).to(kDouble);
  try {
    other->load_gpt2(file);
    ADD_FAILURE() << "took a head of its own";
  } catch (const ValueError& e) {
    const std::string said = e.what();
    EXPECT_TRUE(said.find("lm_head.weight") != std::string::npos && said.find("wte.weight") != std::string::npos)
        << said;
  }
  file.erase("lm_head.weight");
  other->load_gpt2(file);
  file.erase("transformer.ln_f.bias");
  EXPECT_THROW(other->load_gpt2(file), Error);
}

TEST(Gpt, GeneratesWithItsCacheWhatItWouldWithoutOne) {
  GPT net = filled();
  net->eval();
  const Tensor made = net->generate(tokens(2, 3), 5, {0, 0});
  EXPECT_EQ(made.sizes().vec(), (std::vector<std::int64_t>{2, 8}));
  Tensor slow = tokens(2, 3);
  const NoGradGuard guard;
  for (int i = 0; i < 5; ++i) slow = cat({slow, net(slow).select(1, -1).argmax(-1, true)}, 1);
  EXPECT_TRUE(made.equal(slow));
  EXPECT_EQ(net->generate(tokens(1, 8), 30, {0, 0}).size(1), 38);
  EXPECT_EQ(net->generate(tokens(1, 20), 1, {0, 0}).size(1), 21);
  manual_seed(4);
  const Tensor drawn = net->generate(tokens(1, 2), 40, {1.0, 1});
  EXPECT_TRUE(drawn.equal(net->generate(tokens(1, 2), 40, {0, 0})));
}

TEST(Gpt, LearnsASequenceByHeart) {
  manual_seed(1);
  GPT net(small());
  optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(3e-2));
  const Tensor x = tokens(2, 7).narrow(1, 0, 6), y = tokens(2, 7).narrow(1, 1, 6);
  const double before = net->loss(x, y).item<double>();
  EXPECT_NEAR(before, std::log(11.0), 0.2);
  for (int i = 0; i < 60; ++i) {
    optimizer.zero_grad();
    net->loss(x, y).backward();
    optimizer.step();
  }
  EXPECT_LT(net->loss(x, y).item<double>(), 0.1);
}

TEST(Gpt, RefusesWhatDoesNotFit) {
  GPT net(small());
  EXPECT_THROW(net(tokens(1, 9)), Error);
  EXPECT_THROW(net(tokens(1, 4)[0]), Error);
  EXPECT_THROW(GPT(small().n_head(3)), ValueError);
  EXPECT_THROW(net->generate(tokens(1, 3), -1), ValueError);
}

}  // namespace
}  // namespace athanor::models
