#include "athanor/ops/autocast.h"

#include <gtest/gtest.h>

#include <thread>

#include "athanor/autograd/autograd.h"
#include "athanor/autograd/function.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/algorithms.h"
#include "athanor/optim/grad_scaler.h"
#include "athanor/tensor/cuda.h"

namespace athanor {
namespace {

using autocast::AutocastGuard;

Tensor numbers(std::vector<std::int64_t> shape, double phase = 0) {
  std::int64_t n = 1;
  for (const auto s : shape) n *= s;
  return (arange(n, TensorOptions(kFloat)) * 0.37 + phase).sin().reshape(shape);
}

}  // namespace

TEST(Autocast, ProductsOfAllKindsComputeInTheHalfType) {
  const Tensor a = numbers({4, 6}), b = numbers({6, 5}, 1), v = numbers({6}, 2), batch = numbers({3, 4, 6}, 3);
  for (const DType half : {kBFloat16, kHalf}) {
    const auto low = [&](const Tensor& t) { return t.to(half); };
    const AutocastGuard guard(true, half);
    EXPECT_TRUE(equal(a.mm(b), low(a).mm(low(b))));
    EXPECT_EQ(a.matmul(b).dtype(), half);
    EXPECT_TRUE(equal(addmm(numbers({5}), a, b), addmm(low(numbers({5})), low(a), low(b))));
    EXPECT_EQ(a.matmul(v).dtype(), half) << "also with a vector";
    EXPECT_EQ(v.matmul(b).dtype(), half);
    EXPECT_TRUE(equal(prelu(a, v.slice(0, 0, 1)), prelu(low(a), low(v.slice(0, 0, 1)))));
    EXPECT_TRUE(equal(batch.bmm(b.expand({3, 6, 5})), low(batch).bmm(low(b).expand({3, 6, 5}))));
    EXPECT_EQ(batch.matmul(b).dtype(), half);
    EXPECT_TRUE(
        equal(linear(a, numbers({3, 6}), numbers({3})), linear(low(a), low(numbers({3, 6})), low(numbers({3})))));
    const Tensor x = numbers({2, 3, 7, 7}), w = numbers({4, 3, 3, 3}, 1);
    EXPECT_TRUE(equal(conv2d(x, w), conv2d(low(x), low(w))));
  }
}

TEST(Autocast, AttentionAndRecurrentLayersTakeTheHalfType) {
  const Tensor q = numbers({2, 3, 5, 4}), k = numbers({2, 3, 7, 4}, 1), v = numbers({2, 3, 7, 4}, 2);
  const Tensor mask = numbers({5, 7}, 3), x = numbers({6, 2, 3});
  nn::LSTM lstm(nn::LSTMOptions(3, 4).num_layers(2));
  nn::GRUCell cell(3, 4);
  nn::LSTM low_lstm = std::dynamic_pointer_cast<nn::LSTMImpl>(lstm->clone());
  nn::GRUCell low_cell = std::dynamic_pointer_cast<nn::GRUCellImpl>(cell->clone());
  low_lstm->to(kBFloat16);
  low_cell->to(kBFloat16);
  const auto low = [](const Tensor& t) { return t.to(kBFloat16); };
  const Tensor attended = scaled_dot_product_attention(low(q), low(k), low(v), low(mask));
  const Tensor sequence = std::get<0>(low_lstm(low(x))), state = low_cell(low(x)[0]);
  const AutocastGuard guard;
  EXPECT_TRUE(equal(scaled_dot_product_attention(q, k, low(v), mask), attended)) << "of mixed operands, too";
  EXPECT_TRUE(equal(matmul(q, low(q).transpose(-2, -1)), matmul(low(q), low(q).transpose(-2, -1))));
  EXPECT_TRUE(equal(std::get<0>(lstm(x)), sequence));
  EXPECT_TRUE(equal(std::get<0>(lstm(low(x))), sequence));
  EXPECT_TRUE(equal(cell(x[0]), state));
  EXPECT_TRUE(autocast::is_autocast_enabled()) << "the region goes on";
}

TEST(Autocast, RecurrentLayersAndAttentionTrainInARegion) {
  nn::GRU gru(3, 4);
  nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(4, 2));
  Tensor loss;
  {
    const AutocastGuard guard;
    const Tensor h = std::get<0>(gru(numbers({6, 2, 3})));
    loss = std::get<0>(attention(h, h, h)).to(kFloat).square().sum();
  }
  loss.backward();
  for (const auto& module :
       {std::static_pointer_cast<nn::Module>(gru.ptr()), std::static_pointer_cast<nn::Module>(attention.ptr())})
    for (const Tensor& p : module->parameters()) {
      EXPECT_EQ(p.grad().dtype(), kFloat);
      EXPECT_TRUE(p.grad().isfinite().all().item<bool>());
    }
}

TEST(Autocast, DevicesHaveListsOfTheirOwnAsInPyTorch) {
  detail::configure_cuda_queues(1);
  {
    const Tensor a = numbers({4, 6}), v = numbers({6}, 1), x = a.to(kBFloat16);
    const Tensor there = a.to(kCUDA), vector = v.to(kCUDA), half = x.to(kCUDA);
    const AutocastGuard guard;
    EXPECT_EQ(a.mv(v).dtype(), kFloat);
    EXPECT_EQ(addmv(numbers({4}), a, v).dtype(), kFloat);
    EXPECT_EQ(v.dot(v).dtype(), kFloat);
    EXPECT_EQ(inner(v, v).dtype(), kFloat);
    EXPECT_EQ(softmax(x, 1).dtype(), kBFloat16);
    EXPECT_EQ(log_softmax(x, 1).dtype(), kBFloat16);
    EXPECT_EQ(there.mv(vector).dtype(), kBFloat16);
    EXPECT_EQ(vector.dot(vector).dtype(), kFloat);
    EXPECT_EQ(softmax(half, 1).dtype(), kFloat);
    EXPECT_EQ(log_softmax(half, 1).dtype(), kFloat);
  }
  detail::configure_cuda_queues(0);
}

TEST(Autocast, WhatRoundsTooMuchComputesInFloat32) {
  const Tensor x = numbers({1, 2, 4, 4, 4}).to(kBFloat16), wide = x.to(kFloat);
  const Tensor m = (numbers({4, 4}) + 3 * eye(4)).to(kBFloat16), wide_m = m.to(kFloat);
  const Tensor classes = tensor({0, 3, 2, 1}), places = zeros({2, 2, 2}, TensorOptions(kLong));
  const AutocastGuard guard;
  EXPECT_TRUE(equal(m.prod(), wide_m.prod()));
  EXPECT_TRUE(equal(m.prod(0), wide_m.prod(0)));
  EXPECT_TRUE(equal(m.trace(), wide_m.trace()));
  EXPECT_TRUE(equal(m.inverse(), wide_m.inverse()));
  EXPECT_TRUE(equal(linalg_solve(m, m), linalg_solve(wide_m, wide_m)));
  EXPECT_TRUE(equal(pdist(m), pdist(wide_m)));
  EXPECT_TRUE(equal(max_pool3d(x, 2), max_pool3d(wide, 2)));
  EXPECT_TRUE(equal(avg_pool3d(x, 2), avg_pool3d(wide, 2)));
  EXPECT_TRUE(equal(adaptive_avg_pool3d(x, 2), adaptive_avg_pool3d(wide, 2)));
  EXPECT_EQ(std::get<0>(adaptive_max_pool3d(x, 2)).dtype(), kFloat);
  EXPECT_EQ(max_pool2d(x[0], 2).dtype(), kBFloat16) << "images are not on the list";
  EXPECT_EQ(max_unpool2d(x[0].slice(2, 0, 2).slice(3, 0, 2).select(1, 0), places, {4, 4}).dtype(), kFloat);
  EXPECT_EQ(pad(x[0], {1, 1}, "reflect").dtype(), kFloat);
  EXPECT_EQ(pad(x[0], {1, 1}, "replicate").dtype(), kFloat);
  EXPECT_EQ(pad(x[0], {1, 1}, "circular").dtype(), kBFloat16);
  EXPECT_EQ(pad(x[0], {1, 1}).dtype(), kBFloat16);
  EXPECT_TRUE(equal(multi_margin_loss(m, classes), multi_margin_loss(wide_m, classes)));
  EXPECT_TRUE(
      equal(multilabel_margin_loss(m, classes.expand({4, 4})), multilabel_margin_loss(wide_m, classes.expand({4, 4}))));
  EXPECT_TRUE(equal(triplet_margin_loss(m, m.t(), m), triplet_margin_loss(wide_m, wide_m.t(), wide_m)));
  EXPECT_TRUE(equal(cosine_embedding_loss(m, m.t(), ones({4})), cosine_embedding_loss(wide_m, wide_m.t(), ones({4}))));
  EXPECT_EQ(index_copy(m, 0, classes, wide_m).dtype(), kFloat) << "the wider of the two";
  EXPECT_EQ(index_copy(wide_m, 0, classes, m).dtype(), kFloat);
}

TEST(Autocast, LossesComputeInFloat32) {
  const Tensor x = numbers({4, 6}).to(kBFloat16), y = numbers({4, 6}, 1).to(kBFloat16);
  const Tensor wide_x = x.to(kFloat), wide_y = y.to(kFloat);
  const Tensor classes = tensor({0, 3, 5, 1});
  const AutocastGuard guard;
  EXPECT_TRUE(equal(nn::functional::cross_entropy(x, classes), nn::functional::cross_entropy(wide_x, classes)));
  EXPECT_TRUE(equal(nn::functional::cross_entropy(x, y), nn::functional::cross_entropy(wide_x, wide_y)));
  EXPECT_TRUE(equal(mse_loss(x, y), mse_loss(wide_x, wide_y)));
  EXPECT_TRUE(equal(l1_loss(x, y), l1_loss(wide_x, wide_y)));
  EXPECT_TRUE(equal(huber_loss(x, y), huber_loss(wide_x, wide_y)));
  EXPECT_TRUE(equal(binary_cross_entropy_with_logits(x, y), binary_cross_entropy_with_logits(wide_x, wide_y)));
  EXPECT_TRUE(equal(binary_cross_entropy(x.sigmoid(), y.sigmoid()),
                    binary_cross_entropy(x.sigmoid().to(kFloat), y.sigmoid().to(kFloat))));
}

TEST(Autocast, EverythingElseComputesInWhatItIsGiven) {
  const Tensor x = numbers({4, 6}), d = numbers({6, 6}).to(kDouble);
  const AutocastGuard guard;
  EXPECT_EQ((x + x).dtype(), kFloat);
  EXPECT_EQ(x.relu().dtype(), kFloat);
  EXPECT_EQ(d.mm(d).dtype(), kDouble) << "float64 is asked for on purpose";
  EXPECT_EQ(cat({x, x.to(kBFloat16)}).dtype(), kFloat) << "the wider of the two";
  EXPECT_EQ(tensor({{1, 2}, {3, 4}}).mm(tensor({{1, 0}, {0, 1}})).dtype(), kLong);
  const Tensor norm = layer_norm(x.to(kBFloat16), {6}, ones({6}), zeros({6}));
  EXPECT_EQ(norm.dtype(), kBFloat16);
}

TEST(Autocast, OperandsOfTwoDtypesAreCastAlike) {
  const Tensor x = numbers({4, 4}).to(kBFloat16), y = numbers({4, 4}, 1), image = numbers({1, 1, 4, 4});
  const Tensor low = y.to(kBFloat16), wide = x.to(kFloat), grid = x.view({1, 2, 4, 2});
  const AutocastGuard guard;
  EXPECT_TRUE(equal(einsum("ij,jk->ik", {x, y}), x.mm(low)));
  EXPECT_TRUE(equal(einsum("ij,ij->i", {y, x}), einsum("ij,ij->i", {low, x})));
  EXPECT_TRUE(equal(addbmm(y, x.unsqueeze(0), y.unsqueeze(0)), addbmm(low, x.unsqueeze(0), low.unsqueeze(0))));
  EXPECT_TRUE(equal(cdist(x, y), cdist(wide, y)));
  EXPECT_TRUE(equal(grid_sampler(image, grid, 0, 0, false), grid_sampler(image, grid.to(kFloat), 0, 0, false)));
  EXPECT_THROW(einsum("ij,jk->ik", {x, y.to(kDouble)}), Error) << "float64 is asked for on purpose";
}

TEST(Autocast, DistancesByAProductStayInFloat32) {
  const Tensor a = numbers({40, 64}), b = a.add(0.05);
  const Tensor plain = cdist(a, b);
  const AutocastGuard guard;
  EXPECT_TRUE(equal(cdist(a, b), plain));
}

TEST(Autocast, PseudoInversesStayInFloat32) {
  const Tensor a = numbers({5, 3}), b = numbers({5, 2}, 1);
  const Tensor inverse = linalg_pinv(a), solution = std::get<0>(linalg_lstsq(a, b));
  const AutocastGuard guard;
  EXPECT_TRUE(equal(linalg_pinv(a), inverse));
  EXPECT_TRUE(equal(std::get<0>(linalg_lstsq(a, b)), solution));
}

TEST(Autocast, InPlaceFormsKeepTheirDtype) {
  const Tensor a = numbers({4, 6}), b = numbers({6, 5}, 1);
  Tensor c = zeros({4, 5}), out = empty({4, 5});
  const AutocastGuard guard;
  c.addmm_(a, b);
  mm_out(out, a, b);
  EXPECT_EQ(c.dtype(), kFloat);
  EXPECT_TRUE(equal(out, a.mm(b).to(kFloat)));
  EXPECT_TRUE(allclose(c, out));
}

TEST(Autocast, RegionsNestAndEndWithTheirScope) {
  const Tensor a = numbers({4, 4});
  {
    const AutocastGuard outer;
    {
      const AutocastGuard off(false);
      EXPECT_EQ(a.mm(a).dtype(), kFloat);
      const AutocastGuard fp16(true, kHalf);
      EXPECT_EQ(a.mm(a).dtype(), kHalf);
    }
    EXPECT_EQ(a.mm(a).dtype(), kBFloat16);
    EXPECT_THROW(AutocastGuard(true, kFloat), ValueError);
    EXPECT_EQ(a.mm(a).dtype(), kBFloat16);
    DType elsewhere = kByte;
    std::thread([&] { elsewhere = a.mm(a).dtype(); }).join();
    EXPECT_EQ(elsewhere, kFloat) << "the region belongs to its thread";
  }
  EXPECT_EQ(a.mm(a).dtype(), kFloat);
  autocast::set_autocast_enabled(DeviceType::CPU, true);
  EXPECT_TRUE(autocast::is_autocast_enabled(DeviceType::CPU));
  EXPECT_EQ(a.mm(a).dtype(), kBFloat16);
  autocast::set_autocast_enabled(DeviceType::CPU, false);
  EXPECT_EQ(a.mm(a).dtype(), kFloat);
}

TEST(Autocast, WeightsGetFloat32GradientsOfTheHalfProducts) {
  Tensor x = numbers({4, 6}), w = numbers({5, 6}, 1).requires_grad_(), b = numbers({5}, 2).requires_grad_();
  Tensor by_hand_w = w.detach().clone().requires_grad_(), by_hand_b = b.detach().clone().requires_grad_();
  Tensor loss;
  {
    const AutocastGuard guard;
    loss = mse_loss(linear(linear(x, w, b).t().t(), w.slice(1, 0, 5)), zeros({4, 5}));
  }
  loss.backward();
  EXPECT_EQ(w.grad().dtype(), kFloat);
  const Tensor lw = by_hand_w.to(kBFloat16), lb = by_hand_b.to(kBFloat16);
  mse_loss(linear(linear(x.to(kBFloat16), lw, lb), by_hand_w.slice(1, 0, 5).to(kBFloat16)).to(kFloat), zeros({4, 5}))
      .backward();
  EXPECT_TRUE(equal(w.grad(), by_hand_w.grad()));
  EXPECT_TRUE(equal(b.grad(), by_hand_b.grad()));
}

TEST(Autocast, WeightIsCastOncePerRegionUnlessItChanges) {
  Tensor x = numbers({4, 4}), w = numbers({4, 4}, 1).requires_grad_();
  {
    const AutocastGuard guard;
    const Tensor first = x.mm(w), second = x.mm(w);
    EXPECT_EQ(autocast::cache_size(), 1U) << "the input is no weight";
    EXPECT_TRUE(first.grad_fn()->edge(1).node == second.grad_fn()->edge(1).node) << "one cast feeds both products";
    {
      const NoGradGuard off;
      w.mul_(2);
      EXPECT_TRUE(equal(x.mm(w), first * 2));
    }
    const Tensor third = x.mm(w);
    EXPECT_TRUE(third.requires_grad()) << "what no-grad mode kept is of no use here";
    EXPECT_TRUE(equal(third, first * 2));
    { const AutocastGuard inner; }
    EXPECT_EQ(autocast::cache_size(), 1U) << "kept until the outermost region ends";
  }
  EXPECT_EQ(autocast::cache_size(), 0U);
  const AutocastGuard guard(true, kBFloat16, false);
  x.mm(w);
  EXPECT_EQ(autocast::cache_size(), 0U);
}

// What a region keeps is freed by the thread's end where the region never ended, with graphs of several nodes.
TEST(Autocast, AThreadMayEndInsideARegion) {
  const Tensor w = numbers({4, 4}).requires_grad_();
  for (int i = 0; i < 3; ++i) {
    std::thread([&] {
      autocast::set_autocast_enabled(DeviceType::CPU, true);
      autocast::set_autocast_dtype(DeviceType::CPU, kBFloat16);
      const Tensor leaf = w.detach().clone().requires_grad_(), x = numbers({4, 4});
      for (int k = 0; k < 3; ++k) (x.mm(leaf) + x.mm(w)).relu();
      EXPECT_EQ(autocast::cache_size(), 2U);
    }).join();
  }
  EXPECT_EQ(autocast::cache_size(), 0U);
}

TEST(Autocast, SecondDerivativesGoThroughTheCasts) {
  Tensor x = numbers({3, 3}).requires_grad_(), y = x.detach().clone().requires_grad_();
  Tensor value;
  {
    const AutocastGuard guard;
    value = x.mm(x).to(kFloat).square().sum();
  }
  const Tensor first = autograd::grad({value}, {x}, {}, true, true)[0];
  const Tensor second = autograd::grad({first.square().sum()}, {x})[0];
  const Tensor low = y.to(kBFloat16), by_hand = low.mm(low).to(kFloat).square().sum();
  const Tensor first_by_hand = autograd::grad({by_hand}, {y}, {}, true, true)[0];
  const Tensor second_by_hand = autograd::grad({first_by_hand.square().sum()}, {y})[0];
  EXPECT_TRUE(allclose(first, first_by_hand, 0.02, 0.02));
  EXPECT_TRUE(allclose(second, second_by_hand, 0.05, 0.5));
  EXPECT_GT(second.abs().max().item<float>(), 1.0F);
}

TEST(Autocast, CheckpointRecomputesInThePrecisionOfItsForward) {
  const auto gradient = [](bool checkpointed) {
    Tensor x = numbers({4, 4}).requires_grad_(), w = numbers({4, 4}, 1).requires_grad_();
    std::vector<DType> seen;
    const auto block = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const Tensor y = in[0].mm(w).relu();
      seen.push_back(y.dtype());
      return {y.mm(w)};
    };
    Tensor y;
    {
      const AutocastGuard guard;
      y = checkpointed ? autograd::checkpoint(block, {x})[0] : block({x})[0];
    }
    y.to(kFloat).square().sum().backward();  // outside the region
    EXPECT_EQ(seen, std::vector<DType>(checkpointed ? 2 : 1, kBFloat16));
    return cat({x.grad(), w.grad()});
  };
  EXPECT_TRUE(allclose(gradient(true), gradient(false), 1e-2, 1e-2));
}

TEST(Autocast, TrainingInFloat16WithScalerLowersTheLoss) {
  manual_seed(3);
  nn::Sequential net(nn::Linear(6, 16), nn::Tanh(), nn::Linear(16, 1));
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.05).momentum(0.9));
  amp::GradScaler scaler;
  const Tensor x = numbers({32, 6}), y = x.sum(1, true).sin();
  float first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    sgd.zero_grad();
    Tensor loss;
    {
      const AutocastGuard guard(true, kHalf);
      loss = mse_loss(net->forward(x), y);
    }
    scaler.scale(loss).backward();
    scaler.step(sgd);
    scaler.update();
    last = loss.item<float>();
    if (i == 0) first = last;
  }
  EXPECT_LT(last, 0.2F * first);
}

}  // namespace athanor
