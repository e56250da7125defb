// What the wrapper promises beside equality: names in errors, gradients' places, hooks, synchronization on demand.
#include "athanor/parallel/ddp.h"
#include "parallel/world.h"

namespace athanor::nn::parallel::ddp_test {
namespace {

// A branch per layer, so that a step can leave any of them out.
struct BranchesImpl : Module {
  explicit BranchesImpl(int n = 3, std::int64_t width = 4) {
    for (int i = 0; i < n; ++i)
      branches.emplace_back(
          register_module(athanor::detail::str("branch", i), Linear(LinearOptions(width, width).bias(false))));
  }
  Tensor forward(const Tensor& x, const std::vector<int>& which) {
    Tensor y = zeros_like(x);
    for (const int i : which) y = y + branches[static_cast<std::size_t>(i)](x);
    return y;
  }
  std::vector<Linear> branches;
};
ATHANOR_MODULE(Branches);

DistributedDataParallelOptions with(const ProcessGroupPtr& group) {
  return DistributedDataParallelOptions().process_group(group);
}

Tensor filled(double value) { return full({2, 4}, value); }

TEST(DistributedDataParallel, GradientOfOneRankReachesTheOthersAndUnusedEverywhereStaysAsItWas) {
  run_world(3, [](const ProcessGroupPtr& group) {
    for (const bool overlap : {false, true}) {
      Branches net;
      DistributedDataParallel ddp(net, with(group).overlap(overlap).bucket_cap_mb(1e-5));
      const Tensor kept = full({4, 4}, 5.0);
      for (int step = 0; step < 4; ++step) {
        ddp->zero_grad();
        if (step == 2) net->branches[2]->weight.mutable_grad() = kept;
        // Branch 1 is rank 1's alone, branch 2 nobody's.
        ddp(filled(1), group->rank() == 1 ? std::vector<int>{0, 1} : std::vector<int>{0}).sum().backward();
        expect_close(net->branches[0]->weight.grad(), full({4, 4}, 2.0), 0, "branch 0");
        expect_close(net->branches[1]->weight.grad(), full({4, 4}, 2.0 / 3), 1e-7, "branch 1");
        const Tensor& last = net->branches[2]->weight.grad();
        ATHANOR_CHECK(last.defined() == (step == 2), "step ", step, ": branch 2 has gradient ", last);
        if (step == 2) ATHANOR_CHECK(last.impl() == kept.impl() && last.equal(full({4, 4}, 5.0)), "kept: ", last);
      }
    }
  });
}

TEST(DistributedDataParallel, UnusedParameterKeepsItsOldGradientBits) {
  run_world(3, [](const ProcessGroupPtr& group) {
    Branches net;
    DistributedDataParallel ddp(net, with(group));
    ddp(filled(0.1 * (group->rank() + 1)), std::vector<int>{0, 1}).sum().backward();
    const Tensor before = net->branches[1]->weight.grad().clone();
    ddp(filled(1), std::vector<int>{0}).sum().backward();
    ATHANOR_CHECK(net->branches[1]->weight.grad().equal(before), "changed to ", net->branches[1]->weight.grad());
  });
}

TEST(DistributedDataParallel, BackwardsWithoutSynchronizationAddUpHere) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Branches net;
    DistributedDataParallel ddp(net, with(group));
    const double mine = group->rank() + 1;
    {
      const auto alone = ddp->no_sync();
      ddp(filled(mine), std::vector<int>{0, 1}).sum().backward();
      expect_close(net->branches[0]->weight.grad(), full({4, 4}, 2 * mine), 0, "this rank's");
    }
    // Branch 1 counts though this backward does not use it.
    ddp(filled(mine), std::vector<int>{0}).sum().backward();
    expect_close(net->branches[0]->weight.grad(), full({4, 4}, 4 * 1.5), 0, "average of both backwards");
    expect_close(net->branches[1]->weight.grad(), full({4, 4}, 2 * 1.5), 0, "average of the first backward");
  });
}

TEST(DistributedDataParallel, GraphAveragesAfterItsWrapperIsGone) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Branches net;
    const std::vector<int> first{0};
    const auto forward = [&](double value) {
      return DistributedDataParallel(net, with(group))(filled(value * (group->rank() + 1)), first).sum();
    };
    Tensor loss = forward(1);
    // Another wrapper would leave this one's backward to each rank.
    std::string refusal;
    try {
      forward(1);
    } catch (const Error& e) {
      refusal = e.what();
    }
    ATHANOR_CHECK(refusal.find("let go of it first") != std::string::npos, "refusal: ", refusal);
    loss.backward();
    expect_close(net->branches[0]->weight.grad(), full({4, 4}, 3.0), 0, "one forward");
    // Its graph is still there, and has done what it should.
    Tensor again = forward(2);
    net->zero_grad();
    again.backward();
    expect_close(net->branches[0]->weight.grad(), full({4, 4}, 6.0), 0, "another wrapper");
    loss = again = {};
    forward(1);
    net->zero_grad();
    forward(3).backward();
    expect_close(net->branches[0]->weight.grad(), full({4, 4}, 9.0), 0, "after a graph without backward");
    // Nothing is left of any of them.
    net->zero_grad();
    net(filled(group->rank() + 1), first).sum().backward();
    expect_close(net->branches[0]->weight.grad(), full({4, 4}, 2.0 * (group->rank() + 1)), 0, "plain");
  });
}

TEST(DistributedDataParallel, GradientsOfTwoBackwardsAfterTwoForwardsAreBothAveraged) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Branches net;
    DistributedDataParallel ddp(net, with(group));
    const double mine = group->rank() + 1;
    const Tensor a = ddp(filled(mine), std::vector<int>{0, 1, 2}).sum(),
                 b = ddp(filled(mine), std::vector<int>{0}).sum();
    a.backward();
    b.backward();
    expect_close(net->branches[0]->weight.grad(), full({4, 4}, 2 * 2 * 1.5), 0, "both");
    expect_close(net->branches[1]->weight.grad(), full({4, 4}, 2 * 1.5), 0, "first");
  });
}

TEST(DistributedDataParallel, AssignedGradientIsAddedToThenReplacedByTheOneInTheBucket) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Branches net;
    DistributedDataParallel ddp(net, with(group));
    ddp(filled(1), std::vector<int>{0, 1, 2}).sum().backward();
    const Tensor home = net->branches[0]->weight.grad();
    const Tensor own = full({4, 4}, 1.0 + group->rank());
    net->branches[0]->weight.mutable_grad() = own;
    ddp(filled(1), std::vector<int>{0, 1, 2}).sum().backward();
    ATHANOR_CHECK(net->branches[0]->weight.grad().impl() == home.impl(), "the gradient left its bucket");
    expect_close(home, full({4, 4}, 1.5 + 2), 0, "average with what was assigned");
    ddp->zero_grad(false);
    expect_close(home, zeros({4, 4}), 0, "zeroed in place");
    ddp->zero_grad();
    ATHANOR_CHECK(!net->branches[0]->weight.grad().defined(), "set to none");
    // Garbage that the bucket keeps from the step before must not come back.
    ddp(filled(1), std::vector<int>{1}).sum().backward();
    ATHANOR_CHECK(!net->branches[0]->weight.grad().defined(), "came back: ", net->branches[0]->weight.grad());
  });
}

TEST(DistributedDataParallel, HooksOfTheProgramSeeGradientsBeforeTheyLeave) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Branches net(1);
    DistributedDataParallel ddp(net, with(group).overlap(true));
    const Tensor weight = net->branches[0]->weight;
    // Registered after the wrapper's own.
    weight.register_post_accumulate_grad_hook([&](const Tensor& t) {
      const NoGradGuard off;
      t.mutable_grad().mul_(10);
    });
    ddp(filled(group->rank() + 1), std::vector<int>{0}).sum().backward();
    expect_close(weight.grad(), full({4, 4}, 10 * 2 * 1.5), 0, "scaled before averaging");
  });
}

TEST(DistributedDataParallel, BucketsFollowTheOrderInWhichRankZeroGotGradients) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Branches net(4);
    DistributedDataParallel ddp(net, with(group).overlap(true).bucket_cap_mb(1e-5));
    using Names = std::vector<std::vector<std::string>>;
    ATHANOR_CHECK((ddp->reducer().buckets() ==
                   Names{{"branch3.weight"}, {"branch2.weight"}, {"branch1.weight"}, {"branch0.weight"}}),
                  "before the first backward");
    // The last used comes first; rank 1 has another order.
    const std::vector<int> order = group->rank() == 0 ? std::vector<int>{1, 3, 0} : std::vector<int>{0, 1, 2, 3};
    for (int step = 0; step < 3; ++step) {
      ddp->zero_grad();
      ddp(filled(group->rank() + 1), order).sum().backward();
      expect_close(net->branches[0]->weight.grad(), full({4, 4}, 2 * 1.5), 0, "after the buckets moved");
      expect_close(net->branches[2]->weight.grad(), full({4, 4}, 2.0), 0, "of rank 1 only");
      ATHANOR_CHECK((ddp->reducer().buckets() ==
                     Names{{"branch0.weight"}, {"branch3.weight"}, {"branch1.weight"}, {"branch2.weight"}}),
                    "after step ", step);
    }
  });
}

TEST(DistributedDataParallel, ManyBackwardsLeaveOverlappedAndDeferredReductionTheSameBits) {
  run_world(3, [](const ProcessGroupPtr& group) {
    manual_seed(3);
    Sequential one(Linear(8, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 2));
    Sequential two(Linear(8, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 2));
    two->load_state_dict(one->state_dict());
    DistributedDataParallel a(one, with(group).overlap(true).bucket_cap_mb(0.01)),
        b(two, with(group).overlap(false).bucket_cap_mb(0.01));
    ATHANOR_CHECK(a->reducer().overlaps() && !b->reducer().overlaps() && a->reducer().in_shared_memory(), "set-up");
    manual_seed(static_cast<std::uint64_t>(group->rank()));
    for (int step = 0; step < 20; ++step) {
      const Tensor x = randn({16, 8});
      for (auto* ddp : {&a, &b}) {
        (*ddp)->zero_grad();
        (*ddp)->forward(x).pow(2).sum().backward();
      }
      const auto p = a->parameters(), q = b->parameters();
      for (std::size_t i = 0; i < p.size(); ++i)
        ATHANOR_CHECK(p[i].grad().equal(q[i].grad()), "step ", step, ", parameter ", i);
    }
  });
}

TEST(DistributedDataParallel, NamesParameterAndRanksWhenModulesDiffer) {
  run_world(3, [](const ProcessGroupPtr& group) {
    Sequential shapes(Linear(4, 5), Linear(5, group->rank() == 2 ? 7 : 6));
    const std::string text = thrown_by([&] { DistributedDataParallel ddp(shapes, with(group)); });
    expect_contains(text, "parameter that requires grad '1.weight' differs between the ranks");
    expect_contains(text, "ranks 0, 1: float32 [6, 5]; rank 2: float32 [7, 5]");
    Branches more(group->rank() == 1 ? 4 : 3);
    expect_contains(thrown_by([&] { DistributedDataParallel ddp(more, with(group)); }),
                    "The number of parameter that requires grads: ranks 0, 2: 3; rank 1: 4");
    Sequential types(Linear(4, 5));
    if (group->rank() == 0) types->to(kDouble);
    expect_contains(thrown_by([&] { DistributedDataParallel ddp(types, with(group)); }), "rank 0: float64 [5, 4]");
  });
}

TEST(DistributedDataParallel, RefusesWhatCannotWork) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Linear net(3, 3);
    expect_contains(thrown_by([&] { DistributedDataParallel ddp(net, with(group).device_ids({Device()})); }),
                    "device_ids and output_device are for modules on one device that is not the host");
    expect_contains(thrown_by([&] { DistributedDataParallel ddp(net, with(group).bucket_cap_mb(0)); }),
                    "bucket_cap_mb is 0");
    DistributedDataParallel ddp(net, with(group));
    expect_contains(thrown_by([&] { DistributedDataParallel again(net, with(group)); }), "'weight' belongs to another");
    expect_contains(thrown_by([&] { ddp->to(kDouble); }), "before wrapping");
    ddp->to(kFloat);
    expect_contains(thrown_by([&] { ddp(ones({2, 3})).pow(2).sum().backward({}, {}, true); }), "create_graph");
    // Differentiating twice goes by autograd::grad.
    const Tensor y = ddp(ones({2, 3})).pow(2).sum();
    const Tensor g = autograd::grad({y}, {net->weight}, {}, true, true)[0];
    g.pow(2).sum().backward();
    ATHANOR_CHECK(net->weight.grad().defined(), "no gradient of the gradient");
    Linear frozen(3, 3);
    frozen->requires_grad_(false);
    expect_contains(thrown_by([&] { DistributedDataParallel none(frozen, with(group)); }),
                    "is not needed when a module doesn't have any parameters that require a gradient");
  });
}

TEST(DistributedDataParallel, ParametersAreFreeAgainWhenTheWrapperIsGone) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Linear net(3, 3);
    Tensor kept;
    {
      DistributedDataParallel ddp(net, with(group));
      ddp(ones({2, 3})).sum().backward();
      kept = net->weight.grad();
    }
    expect_close(kept, full({3, 3}, 2.0), 0, "memory outlives the wrapper");
    net->zero_grad();
    net(ones({2, 3}) * (group->rank() + 1)).sum().backward();
    expect_close(net->weight.grad(), full({3, 3}, 2.0 * (group->rank() + 1)), 0, "no averaging");
    DistributedDataParallel again(net, with(group));
    ATHANOR_CHECK(again->module() == net.ptr(), "wrapped again");
  });
}

TEST(DistributedDataParallel, IsAModuleWhoseStateIsNamedAfterTheWrapped) {
  run_world(1, [](const ProcessGroupPtr& group) {
    Sequential net(Linear(3, 4), BatchNorm1d(4));
    DistributedDataParallel ddp(net, with(group));
    const auto state = ddp->state_dict();
    ATHANOR_CHECK(state.contains("module.0.weight") && state.contains("module.1.running_mean"), "names");
    ATHANOR_CHECK(ddp->named_parameters().contains("module.1.bias"), "named_parameters");
    ddp->eval();
    ATHANOR_CHECK(!net->is_training(), "eval");
    Sequential other(Linear(3, 4), BatchNorm1d(4));
    DistributedDataParallel second(other, with(group));
    second->load_state_dict(state);
    ATHANOR_CHECK(other->parameters()[0].equal(net->parameters()[0]), "loaded");
    Sequential outer(ddp, ReLU());
    ATHANOR_CHECK(outer->forward(ones({2, 3})).sizes() == IntArrayRef({2, 4}), "inside another module");
  });
}

TEST(DistributedDataParallel, BuffersAreRankZerosBeforeForwardsThatCount) {
  run_world(2, [](const ProcessGroupPtr& group) {
    for (const bool on : {true, false}) {
      Sequential net(Linear(3, 4), BatchNorm1d(4));
      DistributedDataParallel ddp(net, with(group).broadcast_buffers(on));
      const Tensor mean = net->named_buffers()["1.running_mean"];
      manual_seed(static_cast<std::uint64_t>(group->rank()));
      ddp(randn({8, 3})).sum().backward();
      const NoGradGuard off;
      ddp->eval();
      ddp(randn({8, 3}));
      std::vector<Tensor> all{empty({4}), empty({4})};
      group->all_gather(all, mean);
      ATHANOR_CHECK(all[0].equal(all[1]) == on, "running means ", all[0], " and ", all[1]);
    }
  });
}

TEST(DistributedDataParallel, BackwardThatFailedBeforeAnythingWasSentCanBeRepeated) {
  run_world(2, [](const ProcessGroupPtr& group) {
    Branches net;
    DistributedDataParallel ddp(net, with(group).overlap(false));
    const Tensor x = filled(1).requires_grad_();
    x.register_hook([](const Tensor&) -> Tensor { throw Error("out of luck"); });
    expect_contains(thrown_by([&] { ddp(x, std::vector<int>{0, 1, 2}).sum().backward(); }), "out of luck");
    ddp->zero_grad();
    ddp(filled(1), std::vector<int>{0, 1, 2}).sum().backward();
    expect_close(net->branches[0]->weight.grad(), full({4, 4}, 2.0), 0, "second try");
  });
}

TEST(DistributedDataParallel, BackwardThatFailedHalfWayIsNamedInTheNext) {
  const auto ends = ends_of_world(2, [](const ProcessGroupPtr& group) {
    Branches net;
    DistributedDataParallel ddp(net, with(group).overlap(true).bucket_cap_mb(1e-5));
    const Tensor x = filled(1).requires_grad_();
    x.register_hook([](const Tensor&) -> Tensor { throw Error("out of luck"); });
    expect_contains(thrown_by([&] { ddp(x, std::vector<int>{0, 1, 2}).sum().backward(); }), "out of luck");
    expect_contains(thrown_by([&] {
                      ddp(filled(1), std::vector<int>{0, 1, 2}).sum().backward();
                    }),
                    "an earlier backward failed on this rank when 3 of 3 buckets");
  });
  for (const auto& end : ends) EXPECT_TRUE(end.good()) << end.error;
}

TEST(DistributedDataParallel, StaticGraphAllowsSeveralGradientsOfAParameterInOneBackward) {
  run_world(2, [](const ProcessGroupPtr& group) {
    for (const bool overlap : {false, true}) {
      Branches net;
      DistributedDataParallel ddp(net, with(group).static_graph(true).overlap(overlap).bucket_cap_mb(1e-5));
      for (int step = 0; step < 3; ++step) {
        ddp->zero_grad();
        // Branch 0 takes part in two checkpointed pieces: two backwards inside the backward.
        Tensor y = ddp(filled(1).requires_grad_(), std::vector<int>{1});
        for (int k = 0; k < 2; ++k)
          y = autograd::checkpoint(
              [&](const autograd::variable_list& in) {
                return autograd::variable_list{in[0] + net->branches[0](filled(group->rank() + 1))};
              },
              {y})[0];
        y.sum().backward();
        expect_close(net->branches[0]->weight.grad(), full({4, 4}, 2 * 2 * 1.5), 0, "twice");
        ATHANOR_CHECK(!net->branches[2]->weight.grad().defined(), "unused");
      }
    }
  });
}

TEST(DistributedDataParallel, StaticGraphThatChangesIsAnErrorThatNamesTheParameter) {
  const auto ends = ends_of_world(2, [](const ProcessGroupPtr& group) {
    Branches net;
    DistributedDataParallel ddp(net, with(group).static_graph(true));
    ddp(filled(1), std::vector<int>{0, 1}).sum().backward();
    expect_contains(thrown_by([&] { ddp(filled(1), std::vector<int>{0}).sum().backward(); }),
                    "fewer gradients in this backward than in the first: 'branch1.weight' (0 instead of 1 times)");
    expect_contains(thrown_by([&] {
                      ddp(filled(1), std::vector<int>{0, 1, 2}).sum().backward();
                    }),
                    "parameter 'branch2.weight' got a gradient 1 times in this backward and 0 times in the first");
  });
  for (const auto& end : ends) EXPECT_TRUE(end.good()) << end.error;
}

TEST(DistributedDataParallel, SecondGradientAfterTheBucketLeftNamesTheParameter) {
  const auto ends = ends_of_world(2, [](const ProcessGroupPtr& group) {
    Branches net;
    DistributedDataParallel ddp(net, with(group).overlap(true).bucket_cap_mb(1e-5));
    ddp(filled(1), std::vector<int>{0, 1, 2}).sum().backward();
    const auto twice = [&] {
      Tensor y = ddp(filled(1).requires_grad_(), std::vector<int>{1, 2});
      for (int k = 0; k < 2; ++k)
        y = autograd::checkpoint(
            [&](const autograd::variable_list& in) {
              return autograd::variable_list{in[0] + net->branches[2](filled(1))};
            },
            {y})[0];
      y.sum().backward();
    };
    expect_contains(thrown_by(twice), "parameter 'branch2.weight' got a gradient again");
  });
  for (const auto& end : ends) EXPECT_TRUE(end.good()) << end.error;
}

TEST(DistributedDataParallel, HalfPrecisionAndMixedDtypesAreAveragedInTheirOwnBuckets) {
  run_world(2, [](const ProcessGroupPtr& group) {
    struct Mixed : Module {
      Mixed() {
        a = register_parameter("a", ones({3}, kFloat));
        b = register_parameter("b", ones({3}, kDouble));
        c = register_parameter("c", ones({5}, kBFloat16));
        empty_one = register_parameter("empty", zeros({0}));
        scalar = register_parameter("scalar", ones({}));
      }
      Tensor forward(double s) {
        return (a.to(kDouble) * s).sum() + (b * s).sum() + (c.to(kDouble) * s).sum() + empty_one.sum() + scalar * s;
      }
      Tensor a, b, c, empty_one, scalar;
    };
    const auto net = std::make_shared<Mixed>();
    DistributedDataParallel ddp(net, with(group));
    ATHANOR_CHECK(ddp->reducer().buckets().size() == 3, "a bucket per dtype");
    for (int step = 0; step < 2; ++step) {
      ddp->zero_grad();
      ddp(1.0 + 2 * group->rank()).backward();
      expect_close(net->a.grad(), full({3}, 2.0), 0, "float32");
      expect_close(net->b.grad(), full({3}, 2.0), 0, "float64");
      expect_close(net->c.grad(), full({5}, 2.0), 0, "bfloat16");
      expect_close(net->scalar.grad(), full({}, 2.0), 0, "a number");
      ATHANOR_CHECK(net->empty_one.grad().defined() && net->empty_one.grad().numel() == 0, "an empty one");
    }
  });
}

}  // namespace
}  // namespace athanor::nn::parallel::ddp_test
