// Values that a failed call left unmade stay unreadable until all of them are written: what changes some of them, or
// computes with what is there, does not make them. The op table tries every in-place form besides.
#include "athanor/nn/averaged_model.h"
#include "athanor/nn/nn.h"
#include "athanor/nn/utils.h"
#include "athanor/optim/algorithms.h"
#include "device_queue/queued_device.h"

namespace athanor {
namespace {

/// A float tensor of that shape whose call failed.
Tensor unmade(IntArrayRef shape) {
  Tensor t = ones(shape, options_on(1));
  launch(failing_kernel, t);
  EXPECT_THROW(synchronize(on(1)), ValueError);
  return t;
}

Tensor positions(std::initializer_list<std::int64_t> list) {
  return tensor(std::vector<std::int64_t>(list), kLong).to(on(1));
}

bool is_readable(const Tensor& t) {
  try {
    t.detach().cpu();
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

TEST_F(QueuedDevice, WhatUpdatesUnmadeValuesDoesNotMakeThem) {
  const Tensor one = ones({1, 3}, options_on(1)), at = positions({0});
  const Tensor mask = one > 0, places = zeros({1, 3}, options_on(1).dtype(kLong));
  const std::pair<const char*, std::function<void(Tensor)>> updates[] = {
      {"add_", [](Tensor x) { x.add_(1); }},
      {"index_fill_", [&](Tensor x) { x.index_fill_(0, at, 7); }},
      {"index_add_", [&](Tensor x) { x.index_add_(0, at, one); }},
      {"index_copy_", [&](Tensor x) { x.index_copy_(0, at, one); }},
      {"index_reduce_", [&](Tensor x) { x.index_reduce_(0, at, one, "amax"); }},
      {"index_put_", [&](Tensor x) { x.index_put_({at}, one); }},
      {"scatter_", [&](Tensor x) { x.scatter_(0, places, 7); }},
      {"scatter_ of a tensor", [&](Tensor x) { x.scatter_(0, places, one); }},
      {"scatter_add_", [&](Tensor x) { x.scatter_add_(0, places, one); }},
      {"put_", [&](Tensor x) { x.put_(at, one.select(1, 0)); }},
      {"masked_scatter_",
       [&](Tensor x) {
         x.masked_scatter_(mask, ones({4, 3}, options_on(1)));
       }},
      {"masked_fill_", [&](Tensor x) { x.masked_fill_(mask, 7); }},
      {"embedding_renorm_", [&](Tensor x) { embedding_renorm_(x, at, 0.5, 2); }},
      {"a part filled", [](Tensor x) { x.slice(0, 0, 3).fill_(1); }},
      {"a row assigned", [&](Tensor x) { x.index_put_({indexing::TensorIndex(0)}, one.squeeze(0)); }},
      {"index_fill", [&](Tensor x) { x = x.index_fill(0, at, 7); }},
  };
  for (const auto& [name, update] : updates) {
    const Tensor x = unmade({4, 3});
    update(x);
    EXPECT_FALSE(is_readable(x)) << name;
    EXPECT_FALSE(is_readable(x.index_fill(0, at, 7))) << name;
    synchronize(on(1));  // what was skipped is no failure of its own
  }
}

TEST_F(QueuedDevice, UnmadeValuesAreMadeByWritingAllOfThem) {
  const std::pair<const char*, std::function<void(Tensor)>> writes[] = {
      {"fill_", [](Tensor x) { x.fill_(2); }},
      {"zero_", [](Tensor x) { x.zero_(); }},
      {"copy_",
       [](Tensor x) {
         x.copy_(ones({4, 3}, options_on(1)));
       }},
      {"copy_ from the host",
       [](Tensor x) {
         x.copy_(ones({4, 3}));
       }},
      {"uniform_", [](Tensor x) { x.uniform_(); }},
      {"out=",
       [](Tensor x) {
         add_out(x, ones({4, 3}, options_on(1)), ones({4, 3}, options_on(1)));
       }},
      {"filled, then updated", [](Tensor x) { x.fill_(1).index_fill_(0, positions({0}), 7); }},
  };
  for (const auto& [name, write] : writes) {
    const Tensor x = unmade({4, 3});
    write(x);
    EXPECT_TRUE(is_readable(x)) << name;
  }
}

TEST_F(QueuedDevice, AnOptimizersStepDoesNotMakeParametersOfBadGradients) {
  Tensor w = ones({3}, options_on(1)).requires_grad_();
  optim::SGD sgd({w}, optim::SGDOptions(0.1));
  w.mutable_grad() = unmade({3});
  sgd.step();
  EXPECT_FALSE(is_readable(w));
  w.mutable_grad() = ones({3}, options_on(1));
  sgd.step();  // with a good one: the parameter itself was never made
  EXPECT_FALSE(is_readable(w));
  {
    const NoGradGuard off;
    w.fill_(1);
  }
  sgd.step();
  EXPECT_TRUE(allclose(w.detach().cpu(), full({3}, 0.9)));
}

TEST_F(QueuedDevice, ScalingAveragingAndStatisticsDoNotMakeWhatTheyUpdate) {
  const Tensor g = unmade({3});
  nn::utils::scale_all_({g}, 0.5);
  EXPECT_FALSE(is_readable(g));

  nn::Linear net(3, 2);
  net->to(on(1));
  nn::AveragedModel average(*net, {.ema_decay = 0.9});
  average.update_parameters(*net);  // copies
  const Tensor weight = average.module()->named_parameters()["weight"];
  launch(failing_kernel, weight.detach());
  EXPECT_THROW(synchronize(on(1)), ValueError);
  average.update_parameters(*net);
  EXPECT_FALSE(is_readable(weight));

  nn::BatchNorm1d norm(3);
  norm->to(on(1));
  launch(failing_kernel, norm->running_mean);
  EXPECT_THROW(synchronize(on(1)), ValueError);
  norm(ones({4, 3}, options_on(1)));
  EXPECT_FALSE(is_readable(norm->running_mean));
}

}  // namespace athanor
