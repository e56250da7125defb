// Gradients through collectives, against finite differences of the sum of all ranks' losses.
#include <gmock/gmock.h>

#include "athanor/autograd/autograd.h"
#include "athanor/distributed/differentiable.h"
#include "distributed/ranks.h"

namespace athanor::distributed {
namespace {

// A rank's results, of which its loss is made, from all ranks' inputs; every rank computes it alike.
using Collective = std::function<std::vector<Tensor>(const std::vector<Tensor>&, const ProcessGroupPtr&)>;

// Fixed values that differ between ranks and places.
Tensor weights_for(const Tensor& t, int rank, int which) {
  return (arange(t.numel()).to(kDouble) * 0.7 + (rank + 1.3 * which)).cos().view(t.sizes());
}

std::string thrown_by(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Nonlinear in the results, so that the second derivative is not zero.
Tensor loss_of(const std::vector<Tensor>& results, int rank) {
  Tensor loss = zeros({}, kDouble);
  for (std::size_t i = 0; i < results.size(); ++i)
    loss = loss + (results[i] * weights_for(results[i], rank, static_cast<int>(i))).sum() +
           (results[i] * results[i]).sum() * 0.25;
  return loss;
}

double total_loss(const Collective& f, const std::vector<Tensor>& inputs, const ProcessGroupPtr& g) {
  const NoGradGuard no_grad;
  Tensor loss = loss_of(f(inputs, g), g->rank());
  g->all_reduce(loss);
  return loss.item<double>();
}

// `inputs` of every rank are changed in turn, by all ranks together.
template <class F>
void compare_with_differences(const std::vector<Tensor>& inputs, const std::vector<Tensor>& grads,
                              const ProcessGroupPtr& g, F&& total, const char* what) {
  constexpr double kStep = 1e-5;
  for (int who = 0; who < g->size(); ++who)
    for (std::size_t k = 0; k < inputs.size(); ++k)
      for (std::int64_t i = 0; i < inputs[k].numel(); ++i) {
        const auto moved = [&](double by) {
          if (g->rank() == who) inputs[k].data_ptr<double>()[i] += by;
        };
        moved(kStep);
        const double above = total();
        moved(-2 * kStep);
        const double below = total();
        moved(kStep);
        if (g->rank() != who) continue;
        const double wanted = (above - below) / (2 * kStep), got = grads[k].view({-1})[i].item<double>();
        ATHANOR_CHECK(std::abs(got - wanted) < 1e-6 + 1e-4 * std::abs(wanted), what, ": gradient of input ", k,
                      ", element ", i, " on rank ", who, " is ", got, ", expected ", wanted);
      }
}

void check(const Collective& f, int inputs_per_rank = 1, std::vector<std::int64_t> shape = {2, 3}) {
  run_ranks(3, [&](ProcessGroup& group) {
    const ProcessGroupPtr g = group.shared_from_this();
    const ThreadWorldGuard world(g);
    std::vector<Tensor> inputs;
    for (int k = 0; k < inputs_per_rank; ++k) {
      Tensor t = weights_for(empty(shape, kDouble), g->rank() * 2, k + 5).contiguous().clone();
      inputs.push_back(t.requires_grad_());
    }
    const auto first = [&] { return autograd::grad({loss_of(f(inputs, g), g->rank())}, inputs, {}, true, true, true); };
    std::vector<Tensor> grads;
    for (const Tensor& grad : first()) grads.push_back(grad.defined() ? grad.detach() : zeros(shape, kDouble));
    compare_with_differences(
        inputs, grads, g, [&] { return total_loss(f, inputs, g); }, "first");
    // A function of the gradients, differentiated again.
    const auto of_grads = [&] {
      Tensor sum = zeros({}, kDouble);
      int k = 0;
      for (const Tensor& grad : first())
        if (grad.defined()) sum = sum + (grad * weights_for(grad, g->rank(), 30 + k++)).sum();
      return sum;
    };
    std::vector<Tensor> second;
    for (const Tensor& grad : autograd::grad({of_grads()}, inputs, {}, std::nullopt, false, true))
      second.push_back(grad.defined() ? grad : zeros(shape, kDouble));
    compare_with_differences(
        inputs, second, g,
        [&] {
          Tensor sum = of_grads().detach();
          g->all_reduce(sum);
          return sum.item<double>();
        },
        "second");
  });
}

TEST(DifferentiableCollectives, AllReduceOfEveryOperator) {
  for (const ReduceOp& op : {ReduceOp(ReduceOp::SUM), ReduceOp(ReduceOp::AVG), ReduceOp(ReduceOp::PRODUCT),
                             ReduceOp(ReduceOp::MAX), ReduceOp(ReduceOp::MIN), ReduceOp::premul_sum(1.5)})
    check([&](const std::vector<Tensor>& in, const ProcessGroupPtr& g) -> std::vector<Tensor> {
      return {nn::functional::all_reduce(in[0], op, g)};
    });
}

TEST(DifferentiableCollectives, ReduceToAnyRank) {
  for (const ReduceOp& op : {ReduceOp(ReduceOp::SUM), ReduceOp(ReduceOp::PRODUCT), ReduceOp(ReduceOp::MAX)})
    check([&](const std::vector<Tensor>& in, const ProcessGroupPtr& g) -> std::vector<Tensor> {
      const Tensor out = nn::functional::reduce(in[0], 1, op, g);
      return {g->rank() == 1 ? out : out * 0};
    });
}

TEST(DifferentiableCollectives, BroadcastGatherScatter) {
  check([](const std::vector<Tensor>& in, const ProcessGroupPtr& g) -> std::vector<Tensor> {
    return {nn::functional::broadcast(in[0], 2, g)};
  });
  check([](const std::vector<Tensor>& in, const ProcessGroupPtr& g) { return nn::functional::all_gather(in[0], g); });
  check([](const std::vector<Tensor>& in, const ProcessGroupPtr& g) { return nn::functional::gather(in[0], 1, g); });
  check([](const std::vector<Tensor>& in,
           const ProcessGroupPtr& g) -> std::vector<Tensor> { return {nn::functional::scatter(in, 1, g)}; },
        3);
}

TEST(DifferentiableCollectives, ReduceScatterAndAllToAll) {
  for (const auto kind : {ReduceOp::SUM, ReduceOp::AVG, ReduceOp::PRODUCT, ReduceOp::MIN, ReduceOp::MAX})
    check(
        [&](const std::vector<Tensor>& in, const ProcessGroupPtr& g) -> std::vector<Tensor> {
          return {nn::functional::reduce_scatter(in, kind, g)};
        },
        3);
  check(
      [](const std::vector<Tensor>& in, const ProcessGroupPtr& g) {
        return nn::functional::all_to_all({in[0], in[1], in[2]}, in, g);
      },
      3);
  check(
      [](const std::vector<Tensor>& in, const ProcessGroupPtr& g) -> std::vector<Tensor> {
        return {nn::functional::all_to_all_single(empty({6, 1}, kDouble), in[0], {}, {}, g)};
      },
      1, {6, 1});
}

TEST(DifferentiableCollectives, EqualMaximaShareTheGradientAndZerosHaveTheirProduct) {
  run_ranks(3, [](ProcessGroup& group) {
    const ProcessGroupPtr g = group.shared_from_this();
    Tensor x = full({2}, g->rank() == 0 ? 1.0 : 4.0).requires_grad_();
    nn::functional::all_reduce(x, ReduceOp::MAX, g).sum().backward();  // every rank's loss counts: 3
    EXPECT_DOUBLE_EQ(x.grad()[0].item<double>(), g->rank() == 0 ? 0 : 1.5);
    Tensor y = full({1}, g->rank() == 1 ? 0.0 : 2.0).requires_grad_();
    nn::functional::all_reduce(y, ReduceOp::PRODUCT, g).sum().backward();
    EXPECT_DOUBLE_EQ(y.grad()[0].item<double>(), g->rank() == 1 ? 3 * 4 : 0);
  });
}

TEST(DifferentiableCollectives, ReduceScatterSharesTheGradientOfEqualMaximaOverUnevenParts) {
  run_ranks(3, [](ProcessGroup& group) {
    const ProcessGroupPtr g = group.shared_from_this();
    std::vector<Tensor> in;
    for (int r = 0; r < 3; ++r) in.push_back(full({r + 1}, g->rank() == 0 ? 1.0 : 4.0).requires_grad_());
    const Tensor out = nn::functional::reduce_scatter(in, ReduceOp::MAX, g);
    EXPECT_EQ(out.numel(), g->rank() + 1);
    (out * (g->rank() + 1.0)).sum().backward();
    for (int r = 0; r < 3; ++r)
      EXPECT_TRUE(in[static_cast<std::size_t>(r)].grad().equal(full({r + 1}, g->rank() == 0 ? 0.0 : (r + 1) / 2.0)));
  });
}

// The derivative of a sum needs no values; those of the others are no longer known after an in-place change.
TEST(DifferentiableCollectives, WhatChangedInPlaceBeforeBackwardIsSaid) {
  run_ranks(2, [](ProcessGroup& group) {
    const ProcessGroupPtr g = group.shared_from_this();
    const auto forward = [&](const ReduceOp& op, int which, const Tensor& x) {
      if (which == 0) return nn::functional::all_reduce(x, op, g);
      if (which == 1) return nn::functional::reduce(x, 0, op, g);
      return nn::functional::reduce_scatter({x, x}, op, g);
    };
    for (const int which : {0, 1, 2}) {
      for (const auto kind : {ReduceOp::PRODUCT, ReduceOp::MIN, ReduceOp::MAX}) {
        const Tensor leaf = full({2}, 2.0 + g->rank()).requires_grad_();
        Tensor x = leaf * 1.0;
        const Tensor y = forward(kind, which, x);
        x.add_(1);
        // Before any rank calls anything of the other's.
        EXPECT_THAT(thrown_by([&] { y.sum().backward(); }), testing::HasSubstr("modified by an inplace operation"));
      }
      const Tensor leaf = full({2}, 2.0 + g->rank()).requires_grad_();
      Tensor x = leaf * 1.0;
      const Tensor y = forward(ReduceOp::SUM, which, x);
      x.add_(1);
      EXPECT_EQ(thrown_by([&] { y.sum().backward(); }), "");
    }
  });
}

TEST(DifferentiableCollectives, RefuseOperatorsWithoutGradient) {
  run_ranks(1, [](ProcessGroup& group) {
    EXPECT_ANY_THROW(nn::functional::all_reduce(ones({1}, kInt), ReduceOp::BAND, group.shared_from_this()));
    EXPECT_ANY_THROW(nn::functional::reduce_scatter({ones({1}, kInt)}, ReduceOp::BOR, group.shared_from_this()));
    EXPECT_ANY_THROW(nn::functional::scatter({}, 0, group.shared_from_this()));
  });
}

}  // namespace
}  // namespace athanor::distributed
