#pragma once
/// Recurrent layers, attention and a GPT in C++, for Athanor; torch_peer.py has the same rows. Include after
/// cpp_rows.h.

#include <memory>
#include <string>
#include <vector>

#include "athanor/models/gpt.h"
#include "cpp_rows.h"

namespace bench {

inline void add_attention_rows(Program& program) {
  // Batch 4, 8 heads of 64, sequence 1024.
  for (const bool causal : {false, true}) {
    const std::string size = std::string("/b4h8s1024d64") + (causal ? "causal" : "");
    const double flop = 4.0 * 4 * 8 * 1024 * 1024 * 64 / (causal ? 2 : 1);
    const auto operand = [] { return torch::randn({4, 8, 1024, 64}); };
    program.add("attention.forward" + size, "FLOP", flop, [=] {
      return without_grad([=, q = operand(), k = operand(), v = operand()] {
        Tensor y = torch::scaled_dot_product_attention(q, k, v, {}, 0, causal);
      });
    });
    program.add("attention.step" + size, "FLOP", 3.5 * flop, [=] {
      std::vector<Tensor> in{operand(), operand(), operand()};
      for (Tensor& t : in) t.requires_grad_();
      return [=, gradient = operand()] {
        const Tensor y = torch::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, causal);
        torch::autograd::grad({y}, in, {gradient});
      };
    });
  }
}

inline void add_recurrent_rows(Program& program) {
  // Two layers of 256, sequence 64, batch 32.
  const double steps = 64 * 32;
  program.add("lstm.forward/l2h256s64b32", "step", steps, [] {
    torch::nn::LSTM net(torch::nn::LSTMOptions(256, 256).num_layers(2));
    return without_grad([net, x = torch::randn({64, 32, 256})]() mutable { auto y = net->forward(x); });
  });
  program.add("lstm.step/l2h256s64b32", "step", steps, [] {
    torch::nn::LSTM net(torch::nn::LSTMOptions(256, 256).num_layers(2));
    auto optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.01));
    return [=, x = torch::randn({64, 32, 256})]() mutable {
      optimizer->zero_grad();
      std::get<0>(net->forward(x)).pow(2).mean().backward();
      optimizer->step();
    };
  });
}

inline void add_gpt_rows(Program& program) {
  const auto make = [] {
    return athanor::models::GPT(
        athanor::models::GPTOptions(65).n_positions(128).n_embd(256).n_layer(4).n_head(4).dropout(0));
  };
  const auto tokens = [] { return torch::randint(0, 65, {8, 128}, torch::kLong); };
  program.add("gpt.forward/l4e256s128b8", "token", 8 * 128,
              [=] { return without_grad([net = make(), x = tokens()]() mutable { Tensor y = net(x); }); });
  for (const bool lower : {false, true}) {
    program.add(std::string("gpt.step") + (lower ? ".bf16" : "") + "/l4e256s128b8", "token", 8 * 128, [=] {
      auto net = make();
      auto optimizer = std::make_shared<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(3e-4));
      return [=, x = tokens(), y = tokens()]() mutable {
        optimizer->zero_grad();
        Tensor loss;
        {
          const athanor::autocast::AutocastGuard guard(lower);
          loss = net->loss(x, y);
        }
        loss.backward();
        optimizer->step();
      };
    });
  }
}

inline void add_sequence_rows(Program& program) {
  add_attention_rows(program);
  add_recurrent_rows(program);
  add_gpt_rows(program);
}

}  // namespace bench
