// Layers split over devices: results and gradients of the unsplit ones, in float64.
#include "athanor/parallel/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "athanor/autograd/autograd.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/algorithms.h"
#include "athanor/tensor/stream.h"

namespace athanor::nn::parallel::tensor_parallel_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Sizes = std::vector<std::int64_t>;

Device on(int i) { return Device(DeviceType::CPU, static_cast<DeviceIndex>(i)); }
std::vector<Device> first(int n) {
  std::vector<Device> devices;
  for (int i = 0; i < n; ++i) devices.push_back(on(i));
  return devices;
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

template <class M>
M in_double(M layer) {
  layer->to(kDouble);
  return layer;
}

void expect_same(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.sizes(), expected.sizes());
  EXPECT_TRUE(allclose(got.cpu(), expected.cpu(), 1e-10, 1e-12));
}

// The parts' gradients side by side.
Tensor joined_gradients(const std::vector<Tensor>& parts, std::int64_t dim) {
  std::vector<Tensor> all;
  for (const Tensor& p : parts) all.push_back(p.grad().cpu());
  return cat(all, dim);
}

class TensorParallel : public testing::Test {
 protected:
  void SetUp() override {
    athanor::detail::configure_cpu_queues(3);
    manual_seed(5);
  }
  void TearDown() override { athanor::detail::configure_cpu_queues(0); }

  // Both results from the same input, and its gradients.
  void compare(const std::function<Tensor(const Tensor&)>& split, const std::function<Tensor(const Tensor&)>& whole,
               const Tensor& x) {
    const Tensor a = x.clone().requires_grad_(), b = x.clone().requires_grad_();
    const Tensor got = split(a), expected = whole(b);
    expect_same(got, expected);
    const Tensor weight = randn(expected.sizes(), kDouble);
    (got * weight.to(got.device())).sum().backward();
    (expected * weight).sum().backward();
    expect_same(a.grad(), b.grad());
  }
};

TEST_F(TensorParallel, ColumnParallelLinearIsTheLinear) {
  for (const Sizes& sizes : {Sizes{}, {1, 5, 2}, {6, 1, 1}}) {
    Linear whole = in_double(Linear(5, 8));
    ColumnParallelLinear split(whole, SplitOptions().devices(first(3)).sizes(sizes));
    compare([&](const Tensor& x) { return split(x); }, [&](const Tensor& x) { return whole(x); },
            randn({4, 2, 5}, kDouble));
    expect_same(joined_gradients(split->weights, 0), whole->weight.grad());
    expect_same(joined_gradients(split->biases, 0), whole->bias.grad());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(split->weights[static_cast<std::size_t>(i)].device(), on(i));
  }
}

TEST_F(TensorParallel, RowParallelLinearIsTheLinear) {
  for (const bool bias : {true, false}) {
    Linear whole = in_double(Linear(LinearOptions(7, 4).bias(bias)));
    RowParallelLinear split(whole, SplitOptions().devices(first(3)).sizes({2, 4, 1}).output_device(on(2)));
    const Tensor x = randn({3, 7}, kDouble);
    compare([&](const Tensor& v) { return split(v); }, [&](const Tensor& v) { return whole(v); }, x);
    EXPECT_EQ(split(x).device(), on(2));
    expect_same(joined_gradients(split->weights, 1), whole->weight.grad());
    if (bias)
      expect_same(split->bias.grad(), whole->bias.grad());
    else
      EXPECT_EQ(split->parameters().size(), 3U);
  }
}

TEST_F(TensorParallel, ColumnsThenRowsNeedNoGatheringInBetween) {
  Linear up = in_double(Linear(5, 9)), down = in_double(Linear(9, 3));
  const auto options = SplitOptions().devices(first(2)).sizes({4, 5});
  ColumnParallelLinear split_up(up, options);
  RowParallelLinear split_down(down, options);
  compare(
      [&](const Tensor& x) {
        std::vector<Tensor> parts = split_up->forward_parts(x);
        for (std::size_t i = 0; i < parts.size(); ++i) {
          EXPECT_EQ(parts[i].device(), on(static_cast<int>(i)));
          parts[i] = gelu(parts[i]);
        }
        return split_down->forward_parts(parts);
      },
      [&](const Tensor& x) { return down(gelu(up(x))); }, randn({6, 5}, kDouble));
  expect_same(joined_gradients(split_up->weights, 0), up->weight.grad());
  expect_same(joined_gradients(split_down->weights, 1), down->weight.grad());
}

TEST_F(TensorParallel, ParallelEmbeddingIsTheEmbedding) {
  for (const auto& padding : {std::optional<std::int64_t>(), std::optional<std::int64_t>(4)}) {
    Embedding whole = in_double(Embedding(EmbeddingOptions(10, 3).padding_idx(padding)));
    ParallelEmbedding split(whole, SplitOptions().devices(first(3)).sizes({4, 1, 5}));
    const Tensor tokens = tensor({0, 3, 4, 5, 9, 4, 0, 1}, kLong).view({2, 4});
    const Tensor got = split(tokens), expected = whole(tokens);
    expect_same(got, expected);
    const Tensor weight = randn(expected.sizes(), kDouble);
    (got * weight.to(got.device())).sum().backward();
    (expected * weight).sum().backward();
    expect_same(joined_gradients(split->weights, 0), whole->weight.grad());
    for (const std::int64_t wrong : {-1, 10}) {
      EXPECT_NE(error_of([&] { split(full({1}, wrong, kLong)).cpu(); }), "") << wrong;
      for (int i = 0; i < 3; ++i) error_of([&] { synchronize(on(i)); });  // each device reports its failure once
    }
  }
}

TEST_F(TensorParallel, ParallelMultiheadAttentionIsTheAttention) {
  const std::int64_t length = 4, batch = 2, embed = 12;
  for (const bool batch_first : {false, true})
    for (const bool other_features : {false, true}) {
      MultiheadAttentionOptions o(embed, 6);
      o.batch_first(batch_first);
      if (other_features) o.kdim(5).vdim(7);
      MultiheadAttention whole = in_double(MultiheadAttention(o));
      ParallelMultiheadAttention split(whole, SplitOptions().devices(first(3)).sizes({1, 3, 2}));
      const auto input = [&](std::int64_t rows, std::int64_t features) {
        return batch_first ? randn({batch, rows, features}, kDouble) : randn({rows, batch, features}, kDouble);
      };
      const Tensor key = input(5, other_features ? 5 : embed), value = input(5, other_features ? 7 : embed);
      const Tensor closed = rand({length, 5}, kDouble) < 0.3, added = randn({length, 5}, kDouble);
      Tensor ignored = zeros({batch, 5}, kBool);
      ignored.select(0, 1).select(0, 4).fill_(true);
      closed.select(1, 0).fill_(false);
      for (const Tensor& mask : {Tensor(), closed, added})
        for (const Tensor& padding : {Tensor(), ignored}) {
          whole->zero_grad();
          split->zero_grad();
          compare([&](const Tensor& q) { return split->forward(q, key, value, mask, false, padding); },
                  [&](const Tensor& q) {
                    // One kind of mask: the padding joins a floating one as minus infinity.
                    const Tensor p = padding.defined() && mask.defined() && mask.is_floating_point()
                                         ? zeros({batch, 5}, kDouble).masked_fill(padding, -INFINITY)
                                         : padding;
                    return std::get<0>(whole->forward(q, key, value, p, false, mask));
                  },
                  input(length, embed));
          std::vector<Tensor> out, v;
          for (const auto& part : split->heads) {
            out.push_back(part.out);
            v.push_back(part.v);
          }
          expect_same(joined_gradients(out, 1), whole->out_proj->weight.grad());
          expect_same(joined_gradients(v, 0), other_features
                                                  ? whole->v_proj_weight.grad()
                                                  : whole->in_proj_weight.grad().narrow(0, 2 * embed, embed));
          expect_same(split->out_bias.grad(), whole->out_proj->bias.grad());
        }
    }
}

TEST_F(TensorParallel, CausalAttentionNeedsNoMask) {
  MultiheadAttention whole = in_double(MultiheadAttention(8, 2));
  ParallelMultiheadAttention split(whole, SplitOptions().devices(first(2)));
  const Tensor x = randn({5, 2, 8}, kDouble), later = ones({5, 5}, kBool).triu(1);
  expect_same(split->forward(x, x, x, {}, true), std::get<0>(whole->forward(x, x, x, {}, false, later)));
  EXPECT_THAT(error_of([&] { split->forward(x, x, x, later, true); }), HasSubstr("either it or masks"));
}

TEST_F(TensorParallel, TrainsAsTheUnsplitLayers) {
  Linear up = in_double(Linear(4, 6)), down = in_double(Linear(6, 2));
  const auto options = SplitOptions().devices(first(2));
  ColumnParallelLinear split_up(up, options);
  RowParallelLinear split_down(down, options);
  std::vector<Tensor> ours = split_up->parameters(), theirs = up->parameters();
  for (const Tensor& p : split_down->parameters()) ours.push_back(p);
  for (const Tensor& p : down->parameters()) theirs.push_back(p);
  optim::Adam our_optimizer(ours, optim::AdamOptions(0.01)), their_optimizer(theirs, optim::AdamOptions(0.01));
  for (int step = 0; step < 4; ++step) {
    const Tensor x = randn({5, 4}, kDouble), t = randn({5, 2}, kDouble);
    our_optimizer.zero_grad();
    their_optimizer.zero_grad();
    mse_loss(split_down(split_up(x).relu()).cpu(), t).backward();
    mse_loss(down(up(x).relu()), t).backward();
    // The norm is that of all parameters, wherever they are.
    const double a = utils::clip_grad_norm_(ours, 0.1), b = utils::clip_grad_norm_(theirs, 0.1);
    EXPECT_NEAR(a, b, 1e-10);
    our_optimizer.step();
    their_optimizer.step();
  }
  expect_same(cat({split_up->weights[0].detach().cpu(), split_up->weights[1].detach().cpu()}, 0), up->weight.detach());
  expect_same(cat({split_down->weights[0].detach().cpu(), split_down->weights[1].detach().cpu()}, 1),
              down->weight.detach());
}

TEST_F(TensorParallel, FollowsItsParametersToAnotherDevice) {
  Linear whole = in_double(Linear(4, 6));
  ColumnParallelLinear split(whole, SplitOptions().devices(first(2)));
  split->to(on(1));
  const Tensor x = randn({3, 4}, kDouble);
  expect_same(split(x), whole(x));
}

TEST_F(TensorParallel, RefusesSplitsThatDoNotFit) {
  const auto column = [](SplitOptions o) { ColumnParallelLinear(Linear(4, 6), o); };
  EXPECT_THAT(error_of([&] {
                column(SplitOptions().devices(first(3)).sizes({3, 3}));
              }),
              AllOf(HasSubstr("[3, 3]"), HasSubstr("2 parts, there are 3 devices")));
  EXPECT_THAT(error_of([&] {
                column(SplitOptions().devices(first(2)).sizes({6, 0}));
              }),
              AllOf(HasSubstr("ColumnParallelLinear"), HasSubstr("every device needs a part")));
  EXPECT_THAT(error_of([&] {
                column(SplitOptions().devices(first(2)).sizes({3, 4}));
              }),
              HasSubstr("do not add up to the 6 output features"));
  EXPECT_THAT(error_of([&] { column(SplitOptions().devices({on(1), on(1)})); }), HasSubstr("listed twice"));
  EXPECT_NE(error_of([&] { column(SplitOptions().devices({on(0), on(7)})); }), "");
  EXPECT_THAT(error_of([&] { ParallelMultiheadAttention(MultiheadAttention(8, 2), SplitOptions().devices(first(3))); }),
              HasSubstr("2 heads on 3 devices"));
  EXPECT_THAT(error_of([&] { RowParallelLinear(Linear(2, 6), SplitOptions().devices(first(3))); }),
              HasSubstr("2 input features on 3 devices"));
  EXPECT_THAT(error_of([&] {
                ParallelEmbedding(Embedding(EmbeddingOptions(4, 2).max_norm(1.)), SplitOptions().devices(first(2)));
              }),
              HasSubstr("max_norm"));
  EXPECT_THAT(error_of([&] {
                ParallelMultiheadAttention(MultiheadAttention(MultiheadAttentionOptions(8, 2).add_zero_attn(true)),
                                           SplitOptions().devices(first(2)));
              }),
              HasSubstr("add_zero_attn"));
}

TEST_F(TensorParallel, RefusesInputsThatDoNotFit) {
  ColumnParallelLinear column(Linear(4, 6), SplitOptions().devices(first(2)));
  RowParallelLinear row(Linear(6, 3), SplitOptions().devices(first(2)).sizes({2, 4}));
  EXPECT_THAT(error_of([&] { column(ones({2, 5})); }), AllOf(HasSubstr("last dimension is 4"), HasSubstr("[2, 5]")));
  EXPECT_THAT(error_of([&] { column(Tensor()); }), HasSubstr("no tensor"));
  EXPECT_THAT(error_of([&] { row(ones({2, 5})); }), HasSubstr("last dimension is 6"));
  EXPECT_THAT(error_of([&] {
                row->forward_parts(column->forward_parts(ones({2, 4})));
              }),
              AllOf(HasSubstr("part 0"), HasSubstr("2 features"), HasSubstr("same sizes")));
  EXPECT_THAT(error_of([&] { row->forward_parts({ones({2, 6})}); }), HasSubstr("1 parts of an input for 2 devices"));
  ParallelMultiheadAttention attention(MultiheadAttention(8, 2), SplitOptions().devices(first(2)));
  EXPECT_THAT(error_of([&] { attention->forward(ones({2, 8}), ones({2, 8}), ones({2, 8})); }), HasSubstr("3-D"));
}

TEST(TensorParallelOnTheHost, IsTheLayerItself) {
  manual_seed(1);
  Linear whole(4, 3);
  ColumnParallelLinear split(whole);
  const Tensor x = randn({2, 4});
  EXPECT_TRUE(allclose(split(x), whole(x)));
  std::ostringstream text;
  split->pretty_print(text);
  EXPECT_EQ(text.str(), "ColumnParallelLinear(in_features=4, out_features=3 on cpu)");
}

}  // namespace
}  // namespace athanor::nn::parallel::tensor_parallel_test
