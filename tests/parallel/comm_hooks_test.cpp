#include "athanor/parallel/comm_hooks.h"

#include "athanor/parallel/ddp.h"
#include "parallel/world.h"

namespace athanor::nn::parallel {
namespace {

DistributedDataParallelOptions with(const ProcessGroupPtr& group) {
  return DistributedDataParallelOptions().process_group(group);
}

// The gradients of both nets after a backward each on the rank's own inputs.
void backward_both(const ProcessGroupPtr& group, DistributedDataParallel<SequentialImpl>& a,
                   DistributedDataParallel<SequentialImpl>& b, int step) {
  manual_seed(static_cast<std::uint64_t>(100 * step + group->rank()));
  const Tensor x = randn({12, 8});
  for (auto* ddp : {&a, &b}) {
    (*ddp)->zero_grad();
    (*ddp)->forward(x).pow(2).mean().backward();
  }
}

Sequential net_of(std::int64_t width) {
  manual_seed(5);
  return Sequential(Linear(8, width), Tanh(), Linear(width, width), Tanh(), Linear(width, 3));
}

double worst_difference(Module& a, Module& b) {
  double worst = 0;
  const auto p = a.parameters(), q = b.parameters();
  for (std::size_t i = 0; i < p.size(); ++i)
    worst = std::max(worst, (p[i].grad() - q[i].grad()).abs().max().item<double>());
  return worst;
}

class CommHooks : public InEveryLayout {
 protected:
  using Install = std::function<void(DistributedDataParallel<SequentialImpl>&, const ProcessGroupPtr&)>;
  static void expect_hook_is_within(double tolerance, const Install& install, double at_least = -1);
};

void CommHooks::expect_hook_is_within(double tolerance, const Install& install, double at_least) {
  run_world(3, [&](const ProcessGroupPtr& group) {
    for (const bool overlap : {false, true}) {
      Sequential plain = net_of(24), hooked = net_of(24);
      DistributedDataParallel a(plain, with(group)), b(hooked, with(group).overlap(overlap).bucket_cap_mb(1e-3));
      install(b, group);
      double worst = 0;
      for (int step = 0; step < 4; ++step) {
        backward_both(group, a, b, step);
        worst = std::max(worst, worst_difference(*plain, *hooked));
        std::vector<Tensor> grads;
        for (const Tensor& p : hooked->parameters()) grads.push_back(p.grad());
        expect_same_on_all_ranks(*group, grads, "gradients");
      }
      ATHANOR_CHECK(worst <= tolerance && worst > at_least, "off by ", worst);
    }
  });
}

TEST_P(CommHooks, AllreduceHookGivesWhatNoHookGives) {
  expect_hook_is_within(
      0, [](auto& ddp, const ProcessGroupPtr& group) { ddp->register_comm_hook(group, comm_hooks::allreduce_hook); });
}

TEST_P(CommHooks, HalfPrecisionHooksRoundAndNoMore) {
  expect_hook_is_within(
      2e-3,
      [](auto& ddp, const ProcessGroupPtr& group) { ddp->register_comm_hook(group, comm_hooks::fp16_compress_hook); },
      1e-9);
  expect_hook_is_within(
      1.5e-2,
      [](auto& ddp, const ProcessGroupPtr& group) { ddp->register_comm_hook(group, comm_hooks::bf16_compress_hook); },
      1e-9);
  expect_hook_is_within(
      2e-3,
      [](auto& ddp, const ProcessGroupPtr& group) {
        ddp->register_comm_hook(group, comm_hooks::fp16_compress_wrapper(comm_hooks::allreduce_hook));
      },
      1e-9);
}

TEST_P(CommHooks, HookOfTheProgramSeesEveryParameterOnce) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Sequential net = net_of(16);
    DistributedDataParallel ddp(net, with(group).bucket_cap_mb(1e-3));
    std::vector<std::size_t> indices;
    std::size_t parameters = 0;
    int last = 0;
    ddp->register_comm_hook([&](GradBucket& bucket) {
      indices.push_back(bucket.index());
      last += bucket.is_last();
      parameters += bucket.parameters().size();
      const auto gradients = bucket.gradients();
      for (std::size_t i = 0; i < gradients.size(); ++i)
        ATHANOR_CHECK(gradients[i].sizes() == bucket.parameters()[i].sizes(), "gradient ", i);
      // Another tensor than the bucket's own.
      std::promise<Tensor> promise;
      promise.set_value(full({bucket.buffer().numel()}, 7.0));
      return promise.get_future();
    });
    ddp(ones({2, 8})).sum().backward();
    for (const Tensor& p : ddp->parameters()) expect_close(p.grad(), full(p.sizes(), 7.0), 0, "what the hook gave");
    ATHANOR_CHECK(last == 1 && parameters == 6 && indices.size() == ddp->reducer().buckets().size(), "calls");
    expect_contains(thrown_by([&] { ddp->register_comm_hook(group, comm_hooks::allreduce_hook); }),
                    "can only be called once");
  });
}

TEST_P(CommHooks, UnusedParametersAreFoundBesideAHook) {
  run_world(2, [](const ProcessGroupPtr& group) {
    struct Two : Module {
      Two() {
        a = register_module("a", Linear(2, 2));
        b = register_module("b", Linear(2, 2));
        c = register_module("c", Linear(2, 2));
      }
      Tensor forward(const Tensor& x, bool both) { return both ? a(x) + b(x) : a(x); }
      Linear a = nullptr, b = nullptr, c = nullptr;
    };
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, with(group));
    ddp->register_comm_hook(group, comm_hooks::allreduce_hook);
    ddp(ones({3, 2}), group->rank() == 1).sum().backward();
    expect_close(net->b->bias.grad(), full({2}, 1.5), 0, "used by rank 1");
    ATHANOR_CHECK(!net->c->bias.grad().defined(), "used by nobody");
  });
}

TEST_P(CommHooks, HookWithAWrongResultIsNamed) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Sequential net = net_of(4);
    DistributedDataParallel ddp(net, with(group));
    ddp->register_comm_hook([](GradBucket&) {
      std::promise<Tensor> promise;
      promise.set_value(ones({3}));
      return promise.get_future();
    });
    expect_contains(thrown_by([&] { ddp(ones({2, 8})).sum().backward(); }), "it should give as many elements");
  });
}

// A gradient of rank one is found exactly by one column.
TEST_P(CommHooks, PowerSGDIsExactWhereTheRankSuffices) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Linear plain(LinearOptions(40, 30).bias(true)), hooked(LinearOptions(40, 30).bias(true));
    hooked->load_state_dict(plain->state_dict());
    DistributedDataParallel a(plain, with(group)), b(hooked, with(group));
    comm_hooks::PowerSGDOptions options;
    options.start_powerSGD_iter = 2;
    const auto state = std::make_shared<comm_hooks::PowerSGDState>(group, options);
    b->register_comm_hook(state, comm_hooks::powerSGD_hook);
    for (int step = 0; step < 5; ++step) {
      manual_seed(static_cast<std::uint64_t>(step));  // one input on both ranks, of one row
      const Tensor x = randn({1, 40});
      for (auto* ddp : {&a, &b}) {
        (*ddp)->zero_grad();
        ((*ddp)->forward(x).sum() * (group->rank() + 1)).backward();
      }
      expect_close(hooked->weight.grad(), plain->weight.grad(), 1e-5, athanor::detail::str("weight, step ", step));
      expect_close(hooked->bias.grad(), plain->bias.grad(), 1e-6, "bias");
    }
    ATHANOR_CHECK(state->iter() == 5 && state->compression_rate() > 10, "rate ", state->compression_rate());
  });
}

TEST_P(CommHooks, PowerSGDLearnsWhatAveragingLearns) {
  run_world(2, [](const ProcessGroupPtr& group) {
    manual_seed(11);
    const Tensor x = randn({64, 20}), y = x.matmul(randn({20, 16}));
    double losses[2];
    for (const bool compress : {false, true}) {
      manual_seed(12);
      Linear net(20, 16);
      DistributedDataParallel ddp(net, with(group));
      comm_hooks::PowerSGDOptions options;
      options.matrix_approximation_rank = 2;
      options.start_powerSGD_iter = 3;
      options.min_compression_rate = 1;
      if (compress)
        ddp->register_comm_hook(std::make_shared<comm_hooks::PowerSGDState>(group, options), comm_hooks::powerSGD_hook);
      optim::SGD optimizer(ddp->parameters(), 0.5);
      double loss = 0;
      for (int step = 0; step < 300; ++step) {
        optimizer.zero_grad();
        const Tensor rows = x.slice(0, 32 * group->rank(), 32 * group->rank() + 32);
        const Tensor l = mse_loss(ddp(rows), y.slice(0, 32 * group->rank(), 32 * group->rank() + 32));
        l.backward();
        optimizer.step();
        loss = l.item<double>();
      }
      expect_same_on_all_ranks(*group, net->parameters(), "parameters");
      losses[compress] = loss;
    }
    ATHANOR_CHECK(losses[0] < 1e-2 && losses[1] < 0.1, "losses ", losses[0], " and ", losses[1]);
  });
  EXPECT_THROW(comm_hooks::PowerSGDState(nullptr, {.start_powerSGD_iter = 1}), ValueError);
}

INSTANTIATE_TEST_SUITE_P(Layouts, CommHooks, InEveryLayout::layouts(), InEveryLayout::name_of);

}  // namespace
}  // namespace athanor::nn::parallel
