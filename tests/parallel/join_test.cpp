#include "athanor/parallel/average_gradients.h"
#include "athanor/parallel/ddp.h"
#include "athanor/parallel/sync_batch_norm.h"
#include "parallel/world.h"

namespace athanor::nn::parallel::join_test {
namespace {

DistributedDataParallelOptions with(const ProcessGroupPtr& group) {
  return DistributedDataParallelOptions().process_group(group);
}

class Join : public InEveryLayout {};
INSTANTIATE_TEST_SUITE_P(Layouts, Join, InEveryLayout::layouts(), InEveryLayout::name_of);

// Ranks with 2, 5, 3 … batches; each step's gradient is the sum over those that have one, over `divisor`.
void train_uneven(const ProcessGroupPtr& group, bool by_all, bool overlap) {
  const std::vector<int> batches{2, 5, 3};
  manual_seed(1);
  const Tensor inputs = randn({3, 5, 4, 6}, kDouble);
  Linear reference(6, 2), net(6, 2);
  reference->to(kDouble);
  net->to(kDouble);
  net->load_state_dict(reference->state_dict());
  DistributedDataParallel ddp(net, with(group).overlap(overlap).bucket_cap_mb(1e-5));
  optim::SGD whole(reference->parameters(), 0.1), part(ddp->parameters(), 0.1);
  for (int step = 0; step < 5; ++step) {
    whole.zero_grad();
    int active = 0;
    for (const int n : batches) active += step < n;
    for (int r = 0; r < 3; ++r)
      if (step < batches[static_cast<std::size_t>(r)])
        (reference(inputs[r][step]).pow(2).sum() / (by_all ? 3 : active)).backward();
    whole.step();
  }
  JoinOptions options;
  options.divide_by_initial_world_size = by_all;
  ddp->join(
      [&] {
        for (int step = 0; step < batches[static_cast<std::size_t>(group->rank())]; ++step) {
          part.zero_grad();
          ddp(inputs[group->rank()][step]).pow(2).sum().backward();
          part.step();
        }
      },
      options);
  expect_same_on_all_ranks(*group, net->parameters(), "parameters after join");
  expect_close(net->weight, reference->weight, 1e-10, "weight");
  expect_close(net->bias, reference->bias, 1e-10, "bias");
  // Afterwards all is as before.
  ddp->zero_grad();
  ddp(full({1, 6}, 1.0 + group->rank(), kDouble)).sum().backward();
  expect_close(net->bias.grad(), ones({2}, kDouble), 1e-12, "plain step");
  expect_close(net->weight.grad(), full({2, 6}, 2.0, kDouble), 1e-12, "plain step");
}

TEST_P(Join, RanksWithoutInputsAnswerTheOthersUntilAllAreDone) {
  run_world(3, [](const ProcessGroupPtr& group) {
    for (const bool by_all : {true, false})
      for (const bool overlap : {true, false}) train_uneven(group, by_all, overlap);
  });
}

TEST_P(Join, RankWithoutAnyInputGetsWhatTheOthersLearned) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Sequential net(Linear(3, 4), BatchNorm1d(4));
    DistributedDataParallel ddp(net, with(group));
    optim::SGD optimizer(ddp->parameters(), 0.1);
    const Tensor before = net->parameters()[0].detach().clone();
    ddp->join([&] {
      for (int step = 0; step < (group->rank() == 1 ? 3 : 0); ++step) {
        optimizer.zero_grad();
        ddp(randn({8, 3})).pow(2).sum().backward();
        optimizer.step();
      }
    });
    ATHANOR_CHECK(!net->parameters()[0].equal(before), "nothing learned");
    auto state = net->parameters();
    for (const Tensor& b : net->buffers()) state.push_back(b);
    expect_same_on_all_ranks(*group, state, "parameters and buffers");
  });
}

TEST_P(Join, AccumulationWithoutSynchronizationNeedsNoAnswer) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Linear net(2, 1);
    DistributedDataParallel ddp(net, with(group));
    ddp->join([&] {
      for (int step = 0; step < (group->rank() == 0 ? 4 : 1); ++step) {
        ddp->zero_grad();
        {
          const auto alone = ddp->no_sync();
          ddp(ones({1, 2})).sum().backward();
        }
        ddp(ones({1, 2})).sum().backward();
        expect_close(net->bias.grad(), full({1}, step == 0 ? 2.0 : 1.0), 0, athanor::detail::str("step ", step));
      }
    });
  });
}

TEST_P(Join, ThrowsOnAllRanksWhenAskedTo) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Linear net(2, 1);
    DistributedDataParallel ddp(net, with(group));
    JoinOptions options;
    options.throw_on_early_termination = true;
    int steps = 0;
    expect_contains(thrown_by([&] {
                      ddp->join(
                          [&] {
                            for (; steps < 2 + group->rank(); ++steps) ddp(ones({1, 2})).sum().backward();
                          },
                          options);
                    }),
                    "rank 0 ran out of inputs before the others");
    ATHANOR_CHECK(steps == 2, steps, " steps");
    options.enable = false;
    ddp->join([&] { ddp(ones({1, 2})).sum().backward(); }, options);
  });
}

// ---- SyncBatchNorm

// A layer has the name already.
class SyncBatchNormAcross : public InEveryLayout {};
INSTANTIATE_TEST_SUITE_P(Layouts, SyncBatchNormAcross, InEveryLayout::layouts(), InEveryLayout::name_of);

TEST_P(SyncBatchNormAcross, EqualsBatchNormOnTheWholeBatch) {
  run_world(3, [](const ProcessGroupPtr& group) {
    const std::vector<std::int64_t> bounds{0, 1, 4, 9};  // uneven: 1, 3 and 5 rows
    for (const bool module : {true, false}) {
      manual_seed(2);
      const Tensor x = randn({9, 4, 3, 2}, kDouble) * 3 + 1, weights = randn({9, 4, 3, 2}, kDouble);
      BatchNorm2d whole(4), local(4);
      SyncBatchNorm sync(4, group);
      for (Module* m : {static_cast<Module*>(&*whole), static_cast<Module*>(&*local), static_cast<Module*>(&*sync)})
        m->to(kDouble);
      {
        const NoGradGuard off;
        whole->weight.copy_(arange(4).to(kDouble) + 1);
        whole->bias.copy_(arange(4).to(kDouble) - 2);
      }
      local->load_state_dict(whole->state_dict());
      sync->load_state_dict(whole->state_dict());
      ATHANOR_CHECK(
          convert_sync_batchnorm(*local, group) == 1 && has_sync_batchnorm(*local) && !has_sync_batchnorm(*whole),
          "conversion");
      const std::int64_t begin = bounds[static_cast<std::size_t>(group->rank())],
                         end = bounds[static_cast<std::size_t>(group->rank()) + 1];
      for (int step = 0; step < 3; ++step) {
        const Tensor all = x.clone().requires_grad_(), mine = x.slice(0, begin, end).clone().requires_grad_();
        const Tensor y = whole(all), z = module ? local(mine) : sync(mine);
        expect_close(z, y.slice(0, begin, end), 1e-12, "output");
        whole->zero_grad();
        local->zero_grad();
        sync->zero_grad();
        (y * weights).sum().backward();
        (z * weights.slice(0, begin, end)).sum().backward();
        expect_close(mine.grad(), all.grad().slice(0, begin, end), 1e-11, "gradient of the input");
        Module& own = module ? static_cast<Module&>(*local) : static_cast<Module&>(*sync);
        for (const char* name : {"weight", "bias"}) {
          Tensor sum = own.named_parameters()[name].grad().clone();
          group->all_reduce(sum);
          expect_close(sum, whole->named_parameters()[name].grad(), 1e-11, name);
        }
        for (const char* name : {"running_mean", "running_var", "num_batches_tracked"})
          expect_close(own.named_buffers()[name], whole->named_buffers()[name], 1e-12, name);
      }
      whole->eval();
      local->eval();
      sync->eval();
      const Tensor rows = x.slice(0, begin, end);
      expect_close(module ? local(rows) : sync(rows), whole(rows), 1e-12, "evaluation");
    }
  });
}

TEST_P(SyncBatchNormAcross, RefusesWhatItCannotDo) {
  run_world(2, [](const ProcessGroupPtr& group) {
    SyncBatchNorm norm(3, group);
    expect_contains(thrown_by([&] { norm(ones({4})); }), "at least 2D");
    expect_contains(thrown_by([&] { norm(ones({2, 4})); }), "3 features for an input of shape [2, 4]");
    Sequential net(Linear(2, 3), BatchNorm1d(3));
    convert_sync_batchnorm(*net, group);
    DistributedDataParallel ddp(net, with(group));
    expect_contains(thrown_by([&] { ddp->join([&] {
                                      ddp(ones({2, 2})).sum().backward();
                                    }); }),
                    "SyncBatchNorm communicates in forward");
  });
}

// ---- by hand

TEST(AverageGradients, AveragesWhatThereIsAndLeavesWhatNobodyHas) {
  run_world(3, [](const ProcessGroupPtr& group) {
    Linear one(2, 2), two(2, 2), three(2, 2);
    Sequential net(one, two, three);
    one(ones({1, 2}) * (group->rank() + 1)).sum().backward();
    if (group->rank() == 2) two(ones({1, 2})).sum().backward();
    average_gradients(*net, group);
    expect_close(one->weight.grad(), full({2, 2}, 2.0), 1e-7, "of all");
    expect_close(two->bias.grad(), full({2}, 1.0 / 3), 1e-7, "of one rank");
    ATHANOR_CHECK(!three->bias.grad().defined(), "of nobody");
  });
}

}  // namespace
}  // namespace athanor::nn::parallel::join_test
