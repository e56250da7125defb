#pragma once
/// Rows in C++ that both sides share to the letter: overhead of small operations, written with
/// libtorch's names. The file that includes this has included libtorch, or Athanor with `namespace torch = athanor`,
/// and has declared `InferenceMode` in namespace bench. What follows '@' in a row's name is another way to get the same
/// result; a side's best counts.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "protocol.h"

namespace bench {

using torch::Tensor;

inline Body without_grad(Body body) {
  return [body = std::move(body)] {
    const torch::NoGradGuard guard;
    body();
  };
}

inline void add_overhead_rows(Program& program) {
  for (const int n : {1, 64}) {
    const std::string size = "/" + std::to_string(n);
    const auto pair = [n] { return std::make_pair(torch::randn({n}), torch::randn({n})); };
    // Many calls inside one guard: what is measured is the operation, not the guard.
    const auto add_guarded = [&](const std::string& name, const auto& make_guard, int calls) {
      program.add(name, "call", calls, [=] {
        auto [x, y] = pair();
        return [=, x = x, y = y] {
          const auto guard = make_guard();
          for (int i = 0; i < calls; ++i) Tensor z = x.add(y);
        };
      });
    };
    add_guarded(
        "overhead.add.no_grad" + size, [] { return std::make_unique<torch::NoGradGuard>(); }, 100);
    program.add("overhead.add.no_grad" + size + "@inference_mode", "call", 100, [=] {
      const InferenceMode outer;
      auto [x, y] = pair();
      return [x = x, y = y] {
        const InferenceMode guard;
        for (int i = 0; i < 100; ++i) Tensor z = x.add(y);
      };
    });
    program.add("overhead.add_.no_grad" + size, "call", 100, [=] {
      auto [x, y] = pair();
      return without_grad([x = x, y = y]() mutable {
        for (int i = 0; i < 100; ++i) x.add_(y);
      });
    });
    program.add("overhead.add.grad_unused" + size, "call", 1, [=] {
      auto [x, y] = pair();
      return [x = x, y = y] { Tensor z = x.add(y); };
    });
    program.add("overhead.add.grad" + size, "call", 1, [=] {
      auto [x, y] = pair();
      x.requires_grad_();
      return [x = x, y = y] { Tensor z = x.add(y); };
    });
    program.add("overhead.add_sum_backward" + size, "call", 1, [=] {
      auto [x, y] = pair();
      x.requires_grad_();
      return [x = x, y = y]() mutable {
        x.mutable_grad() = Tensor();
        x.add(y).sum().backward();
      };
    });
    program.add("overhead.chain10.no_grad" + size, "call", 1, [=] {
      auto [x, y] = pair();
      return without_grad([x = x, y = y] {
        Tensor z = x;
        for (int i = 0; i < 5; ++i) z = z.mul(y).add(x);
      });
    });
  }
  const auto add_no_grad = [&](const std::string& name, const auto& make) {
    program.add(name, "call", 1, [=] { return without_grad(make()); });
  };
  add_no_grad("overhead.mm/64", [] {
    return [a = torch::randn({64, 64}), b = torch::randn({64, 64})] { Tensor c = a.mm(b); };
  });
  add_no_grad("overhead.view", [] { return [x = torch::randn({1000})] { Tensor y = x.view({10, 100}); }; });
  add_no_grad("overhead.select", [] { return [x = torch::randn({10, 100})] { Tensor y = x.select(0, 3); }; });
  add_no_grad("overhead.empty/64", [] { return [] { Tensor y = torch::empty({64}); }; });
  add_no_grad("overhead.zeros/64", [] { return [] { Tensor y = torch::zeros({64}); }; });
  add_no_grad("overhead.sum/64", [] { return [x = torch::randn({64})] { Tensor y = x.sum(); }; });
  add_no_grad("overhead.item", [] { return [x = torch::randn({1})] { (void)x.item<float>(); }; });
}

}  // namespace bench
