// N ranks train as one process does on the whole batch.
#include "athanor/distributed/backend.h"
#include "athanor/parallel/ddp.h"
#include "parallel/world.h"

namespace athanor::nn::parallel::ddp_equality_test {
namespace {

struct Case {
  bool uneven = false, clip = false, accumulate = false, frozen = false, shared = false, unused = false;
  bool overlap = true;
  double bucket_mb = 25;
  bool adam = false;
  std::string text() const {
    std::string t = uneven ? "uneven" : "even";
    for (const auto& [on, name] : std::vector<std::pair<bool, const char*>>{{clip, "clip"},
                                                                            {accumulate, "accumulate"},
                                                                            {frozen, "frozen"},
                                                                            {shared, "shared"},
                                                                            {unused, "unused"},
                                                                            {overlap, "overlap"},
                                                                            {adam, "adam"}})
      if (on) t += std::string(" ") + name;
    return t + athanor::detail::str(" bucket ", bucket_mb);
  }
};

// Which parameters get gradients is the case's choice; `spare` is used by no step, `odd` by every third.
struct NetImpl : Module {
  explicit NetImpl(const Case& c) : c_(c) {
    first = register_module("first", Linear(6, 10));
    second = register_module("second", Linear(10, 10));
    third = register_module("third", Linear(10, 3));
    if (c.unused) {
      spare = register_module("spare", Linear(4, 4));
      odd = register_module("odd", Linear(10, 10));
    }
    if (c.shared) third->register_parameter("tied", second->weight);
    to(kDouble);
    if (c.frozen) first->bias.set_requires_grad(false);
  }
  Tensor forward(const Tensor& x, int step) {
    Tensor h = tanh(first(x));
    h = tanh(second(h));
    if (c_.shared) h = tanh(nn::functional::linear(h, second->weight));
    if (c_.unused && step % 3 == 2) h = h + odd(h);
    return third(h);
  }
  Case c_;
  Linear first = nullptr, second = nullptr, third = nullptr, spare = nullptr, odd = nullptr;
};
ATHANOR_MODULE(Net);

std::unique_ptr<optim::Optimizer> optimizer_of(const Case& c, Module& module) {
  if (c.adam) return std::make_unique<optim::Adam>(module.parameters(), optim::AdamOptions(0.01));
  return std::make_unique<optim::SGD>(module.parameters(), optim::SGDOptions(0.1).momentum(0.5));
}

// Rows [first, last) of the batch that belong to the rank.
std::pair<std::int64_t, std::int64_t> share(const Case& c, int rank, int ranks, std::int64_t rows) {
  const auto bound = [&](int r) {
    return c.uneven ? rows * r * (r + 1) / (static_cast<std::int64_t>(ranks) * (ranks + 1)) : rows * r / ranks;
  };
  return {bound(rank), bound(rank + 1)};
}

void clip(const Case& c, Module& module) {
  if (c.clip) utils::clip_grad_norm_(module.parameters(), 0.05);
}

void train_side_by_side(const ProcessGroupPtr& group, const Case& c) {
  constexpr std::int64_t kRows = 36;
  constexpr int kSteps = 50;
  manual_seed(7);
  const Tensor inputs = randn({kSteps, 2, kRows, 6}, kDouble), targets = randn({kSteps, 2, kRows, 3}, kDouble);
  Net whole(c), part(c);
  part->load_state_dict(whole->state_dict());
  if (group->rank() > 0)  // the wrapper makes them rank 0's
    for (Tensor p : part->parameters()) {
      const NoGradGuard off;
      p.add_(group->rank());
    }
  DistributedDataParallel ddp(
      part, DistributedDataParallelOptions().process_group(group).overlap(c.overlap).bucket_cap_mb(c.bucket_mb));
  const auto whole_optimizer = optimizer_of(c, *whole), part_optimizer = optimizer_of(c, *part);
  const auto [begin, end] = share(c, group->rank(), group->size(), kRows);
  const int micro = c.accumulate ? 2 : 1;
  for (int step = 0; step < kSteps; ++step) {
    whole_optimizer->zero_grad();
    part_optimizer->zero_grad();
    for (int k = 0; k < micro; ++k) {
      const Tensor x = inputs[step][k], t = targets[step][k];
      ((whole(x, step) - t).pow(2).sum() / (kRows * micro)).backward();
      const auto local = [&] {
        const Tensor y = ddp(x.slice(0, begin, end), step);
        ((y - t.slice(0, begin, end)).pow(2).sum() * group->size() / (kRows * micro)).backward();
      };
      if (k + 1 < micro) {
        const auto alone = ddp->no_sync();
        local();
      } else {
        local();
      }
    }
    clip(c, *whole);
    clip(c, *part);
    const std::string where = athanor::detail::str(c.text(), ", step ", step);
    const auto expected = whole->named_parameters();
    for (const auto& item : part->named_parameters()) {
      const Tensor& want = expected[item.key()].grad();
      ATHANOR_CHECK(item.value().grad().defined() == want.defined(), where, ": gradient of ", item.key(),
                    want.defined() ? " is missing" : " came from nowhere");
      if (want.defined()) expect_close(item.value().grad(), want, 1e-10, where + ": gradient of " + item.key());
    }
    whole_optimizer->step();
    part_optimizer->step();
    for (const auto& item : part->named_parameters())
      expect_close(item.value(), expected[item.key()], 1e-10, where + ": parameter " + item.key());
    expect_same_on_all_ranks(*group, part->parameters(), where);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const bool uneven : {false, true}) {
    Case c;
    c.uneven = uneven;
    all.push_back(c);
    for (bool Case::*flag :
         {&Case::clip, &Case::accumulate, &Case::frozen, &Case::shared, &Case::unused, &Case::adam}) {
      Case one = c;
      one.*flag = true;
      all.push_back(one);
      one.overlap = false;
      all.push_back(one);
    }
    c.clip = c.accumulate = c.frozen = c.shared = c.unused = true;
    c.bucket_mb = 1e-5;  // a bucket per parameter
    all.push_back(c);
  }
  return all;
}

class Equality : public testing::TestWithParam<int> {};

TEST_P(Equality, RanksTrainAsOneProcessOnTheWholeBatch) {
  run_world(GetParam(), [](const ProcessGroupPtr& group) {
    for (const Case& c : cases()) train_side_by_side(group, c);
  });
}
INSTANTIATE_TEST_SUITE_P(DistributedDataParallel, Equality, testing::Values(1, 2, 3, 4));

TEST(DistributedDataParallelOverGloo, RanksTrainAsOneProcessOnTheWholeBatch) {
  if (!distributed::is_backend_available("gloo")) GTEST_SKIP() << "backend gloo is not here";
  Case all;
  all.uneven = all.clip = all.accumulate = all.frozen = all.shared = all.unused = true;
  all.bucket_mb = 1e-5;  // a bucket per parameter
  run_world(
      2,
      [&](const ProcessGroupPtr& group) {
        for (const Case& c : {Case(), all}) train_side_by_side(group, c);
      },
      "auto", "gloo");
}

TEST(DistributedDataParallel, RanksWithoutSharedMemoryTrainAsOneProcess) {
  run_world(
      3,
      [](const ProcessGroupPtr& group) {
        Case c;
        c.uneven = c.accumulate = c.unused = true;
        c.bucket_mb = 1e-4;
        train_side_by_side(group, c);
      },
      "tcp");
}

}  // namespace
}  // namespace athanor::nn::parallel::ddp_equality_test
