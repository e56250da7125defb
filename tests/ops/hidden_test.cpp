// Hidden layouts: results of convolutions that stay in blocks of channels until somebody looks.
#include "athanor/ops/hidden.h"

#include <unistd.h>

#include <cstdio>
#include <latch>
#include <thread>

#include "athanor/io/tensor_io.h"
#include "athanor/ops/kernels/conv.h"
#include "athanor/ops/kernels/hidden.h"
#include "athanor/ops/launch.h"
#include "athanor/tensor/dlpack.h"
#include "athanor/tensor/stream.h"
#include "hidden_switch.h"
#include "numeric.h"

namespace athanor {
namespace {

using test::error_of;
using test::expect_close;
using test::values;

bool is_hidden(const Tensor& t) { return t.storage()->is_hidden(); }

using Switch = test::HiddenSwitch;

/// `make()` without hidden layouts.
template <class F>
auto plainly(F&& make) {
  const Switch off(false);
  return make();
}

Tensor blocked(const Tensor& t, int block = 16) { return detail::to_blocks(t, block); }

/// A pointwise convolution of many channels, which oneDNN computes in blocks.
class HiddenConv : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_hidden(made())) GTEST_SKIP() << "no convolution leaves its result in blocks on this processor";
  }
  Tensor made() const { return conv2d(x, w); }

  Switch on{true};
  Tensor x = values({2, 64, 14, 14}, kFloat, 1), w = values({256, 64, 1, 1}, kFloat, 2);
  Tensor w2 = values({64, 256, 1, 1}, kFloat, 3);
};

}  // namespace

TEST_F(HiddenConv, IsSwitchedOff) {
  const Tensor plain = plainly([&] { return conv2d(x, w); });
  EXPECT_FALSE(is_hidden(plain));
  expect_close(conv2d(x, w), plain);
}

TEST_F(HiddenConv, ShowsThePlainGeometry) {
  const Tensor y = conv2d(x, w);
  EXPECT_EQ(y.strides().vec(), (std::vector<std::int64_t>{256 * 196, 196, 14, 1}));
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_EQ(y.storage()->nbytes(), y.nbytes());
  EXPECT_TRUE(is_hidden(y)) << "asking for the geometry restored the bytes";
}

TEST_F(HiddenConv, DataPtrRestoresAndKeepsStorageAndVersion) {
  const Tensor y = conv2d(x, w), expected = plainly([&] { return conv2d(x, w); });
  const Storage* storage = y.storage().get();
  const std::uint32_t version = y._version();
  const float* p = y.data_ptr<float>();
  EXPECT_FALSE(is_hidden(y));
  EXPECT_EQ(y.storage().get(), storage);
  EXPECT_EQ(y._version(), version);
  EXPECT_EQ(y.data_ptr<float>(), p);
  expect_close(tensor(std::vector<float>(p, p + y.numel())).reshape(y.sizes()), expected);
}

TEST_F(HiddenConv, GoesThroughAChainOfConsumers) {
  const Tensor weight = values({256}, kFloat, 4), bias = values({256}, kFloat, 5);
  const auto chain = [&](bool training, bool check) {
    Tensor mean = zeros({256}), var = ones({256});
    Tensor y = conv2d(x, w);
    Tensor z = batch_norm(y, weight, bias, mean, var, training, 0.1, 1e-5);
    Tensor r = relu(z);
    Tensor s = r + y;
    s.relu_();
    Tensor t = conv2d(s, w2);
    for (const Tensor& u : {y, z, r, s, t}) EXPECT_EQ(is_hidden(u), check);
    return std::vector<Tensor>{t, s, r, mean, var};
  };
  for (const bool training : {false, true}) {
    const auto hidden = chain(training, true), plain = plainly([&] { return chain(training, false); });
    for (std::size_t i = 0; i < hidden.size(); ++i) expect_close(hidden[i], plain[i], 1e-4, 1e-4);
  }
}

TEST_F(HiddenConv, InPlaceOpKeepsItAndCounts) {
  Tensor y = conv2d(x, w);
  const Tensor expected = plainly([&] { return relu(conv2d(x, w)); });
  const std::uint32_t version = y._version();
  y.relu_();
  EXPECT_TRUE(is_hidden(y));
  EXPECT_EQ(y._version(), version + 1);
  y.add_(values({2, 256, 14, 14}, kFloat, 9));
  EXPECT_TRUE(is_hidden(y)) << "a plain operand follows";
  EXPECT_EQ(y._version(), version + 2);
  expect_close(y, expected + values({2, 256, 14, 14}, kFloat, 9));
}

TEST_F(HiddenConv, InPlaceOpThatDoesNotAcceptItRestores) {
  Tensor y = conv2d(x, w);
  const Tensor expected = plainly([&] { return conv2d(x, w); }).clone();
  const Storage* storage = y.storage().get();
  y.cumsum_(1);
  EXPECT_EQ(y.storage().get(), storage);
  expect_close(y, expected.cumsum(1), 1e-4, 1e-4);
}

TEST_F(HiddenConv, ViewsOfBothTimesSeeOneStorage) {
  Tensor y = conv2d(x, w);
  const Tensor expected = plainly([&] { return conv2d(x, w); });
  const Tensor before = y.select(1, 7), flat = y.view({2, 256 * 196});
  EXPECT_TRUE(is_hidden(y)) << "a view is no look at the bytes";
  y.relu_();
  EXPECT_TRUE(is_hidden(before));
  const Tensor after = y.transpose(1, 2);
  expect_close(before, relu(expected).select(1, 7));
  EXPECT_FALSE(is_hidden(y));
  expect_close(after, relu(expected).transpose(1, 2));
  expect_close(flat, relu(expected).view({2, 256 * 196}));
  before.zero_();
  EXPECT_EQ(y[1][7][3][4].item<float>(), 0.0F);
  EXPECT_EQ(y._version(), 2U);
}

TEST_F(HiddenConv, ViewWithOtherChannelsIsNotTakenForBlocks) {
  const Tensor y = conv2d(x, w), expected = plainly([&] { return conv2d(x, w); });
  // As many elements, another meaning: the blocks are not those of its channels.
  const Tensor other = y.view({8, 64, 14, 14});
  expect_close(relu(other), relu(expected.view({8, 64, 14, 14})));
  const Tensor again = conv2d(x, w).view({1, 512, 14, 14});
  const Tensor ones_ = ones({512}), zeros_ = zeros({512});
  expect_close(batch_norm(again, ones_, zeros_, {}, {}, true, 0.1, 1e-5),
               batch_norm(expected.view({1, 512, 14, 14}), ones_, zeros_, {}, {}, true, 0.1, 1e-5), 1e-4, 1e-4);
}

TEST_F(HiddenConv, OpsThatDoNotAcceptItGetPlainValues) {
  const Tensor expected = plainly([&] { return conv2d(x, w); });
  expect_close(conv2d(x, w).sum(1), expected.sum(1), 1e-4, 1e-4);
  expect_close(max_pool2d(conv2d(x, w), 2), max_pool2d(expected, 2));
  expect_close(cat({conv2d(x, w), x}, 1), cat({expected, x}, 1));
  expect_close(conv2d(x, w).clone(), expected);
  expect_close(conv2d(x, w) + values({256, 1, 1}, kFloat, 6), expected + values({256, 1, 1}, kFloat, 6));
  EXPECT_EQ(conv2d(x, w)[1][255][13][13].item<float>(), expected[1][255][13][13].item<float>());
  EXPECT_EQ((conv2d(x, w) > 0).sum().item<std::int64_t>(), (expected > 0).sum().item<std::int64_t>());
}

TEST_F(HiddenConv, OutFormWritesPlainOrStays) {
  Tensor y = conv2d(x, w);
  const Tensor a = values({2, 256, 14, 14}, kFloat, 7), kept = y.view({-1});
  add_out(y, a, a);
  expect_close(y, a + a);
  expect_close(kept, (a + a).view({-1}));
  Tensor z = empty({0});
  add_out(z, conv2d(x, w), a);
  expect_close(z, plainly([&] { return conv2d(x, w); }) + a);
}

TEST_F(HiddenConv, ExchangeFormatsSeePlainBytes) {
  const Tensor expected = plainly([&] { return conv2d(x, w); });
  const Tensor y = conv2d(x, w);
  const Tensor shared = from_dlpack(to_dlpack(y));
  expect_close(shared, expected);
  EXPECT_EQ(shared.data_ptr(), y.data_ptr());
  const std::string path = testing::TempDir() + "hidden_" + std::to_string(::getpid()) + ".safetensors";
  io::save_safetensors(path, {{"y", conv2d(x, w)}});
  expect_close(io::load_safetensors(path, io::Loading::Copied)[0].second, expected);
  std::remove(path.c_str());
}

TEST_F(HiddenConv, GradientsAgreeWithThePlainOnes) {
  const Tensor gamma = values({256}, kFloat, 4), beta = values({256}, kFloat, 5);
  const auto gradients = [&](bool relu_inside) {
    std::vector<Tensor> leaves;
    for (const Tensor& t : {x, w, gamma, beta, w2}) leaves.push_back(t.clone().requires_grad_());
    Tensor y = conv2d(leaves[0], leaves[1]);
    Tensor z = relu_inside ? batch_norm_relu(y, leaves[2], leaves[3], {}, {}, true, 0.1, 1e-5)
                           : relu(batch_norm(y, leaves[2], leaves[3], {}, {}, true, 0.1, 1e-5));
    z = z + y;  // two gradients meet
    Tensor r = conv2d(z, leaves[4]);
    (r * values(r.sizes(), kFloat, 8)).sum().backward();
    std::vector<Tensor> out;
    for (const Tensor& t : leaves) out.push_back(t.grad());
    return out;
  };
  for (const bool inside : {false, true}) {
    const auto hidden = gradients(inside), plain = plainly([&] { return gradients(inside); });
    for (std::size_t i = 0; i < hidden.size(); ++i) {
      const double scale = plain[i].abs().max().item<double>();
      expect_close(hidden[i], plain[i], 1e-4, 1e-4 * scale);
    }
  }
}

TEST_F(HiddenConv, SecondOrderGradientsAgreeWithThePlainOnes) {
  const auto second = [&] {
    Tensor a = x.clone().requires_grad_(), b = w.clone().requires_grad_();
    const Tensor y = relu(conv2d(a, b));
    const auto first = autograd::grad({(y * y).sum()}, {a, b}, {}, true, true);
    return autograd::grad({first[0].square().sum() + first[1].sum()}, {a, b});
  };
  const auto hidden = second(), plain = plainly(second);
  for (std::size_t i = 0; i < hidden.size(); ++i)
    expect_close(hidden[i], plain[i], 1e-3, 1e-4 * plain[i].abs().max().item<double>());
}

TEST_F(HiddenConv, StridedLayersReadBlocksAndPlanesAlike) {
  const auto gradients = [&] {
    std::vector<Tensor> leaves;
    for (const Tensor& t : {x, w, w2}) leaves.push_back(t.clone().requires_grad_());
    for (int pass = 0; pass < 2; ++pass) {  // the second adds to the gradients of the first
      const Tensor y = conv2d(leaves[0], leaves[1], {}, 2), z = conv2d(relu(y), leaves[2], {}, 2);
      (z * values(z.sizes(), kFloat, 8)).sum().backward();
      (conv2d(conv2d(leaves[0], leaves[1]), leaves[2], {}, 2) * 0.5).sum().backward();
    }
    std::vector<Tensor> out;
    for (const Tensor& t : leaves) out.push_back(t.grad());
    return out;
  };
  const auto hidden = gradients(), plain = plainly(gradients);
  for (std::size_t i = 0; i < hidden.size(); ++i)
    expect_close(hidden[i], plain[i], 1e-4, 1e-4 * plain[i].abs().max().item<double>());
}

TEST_F(HiddenConv, SavedTensorMayBeRestoredButNotChanged) {
  const Tensor a = x.clone().requires_grad_();
  const auto gradient = [&](bool look) {
    Tensor y = conv2d(a, w);
    const Tensor z = y.sigmoid();
    if (look) (void)z.data_ptr();
    return autograd::grad({z.sum()}, {a})[0];
  };
  expect_close(gradient(true), gradient(false));
  Tensor z = conv2d(a, w).sigmoid();
  const Tensor total = z.sum();
  {
    const NoGradGuard guard;
    z.relu_();
  }
  EXPECT_NE(error_of([&] { total.backward(); }).find("modified by an inplace operation"), std::string::npos);
}

TEST_F(HiddenConv, InferenceModeAndNoGradMakeIt) {
  const Tensor expected = plainly([&] { return relu(conv2d(x, w)); });
  {
    const NoGradGuard guard;
    const Tensor y = relu(conv2d(x, w));
    EXPECT_TRUE(is_hidden(y));
    expect_close(y, expected);
  }
  const InferenceMode guard;
  const Tensor y = relu(conv2d(x, w));
  EXPECT_TRUE(is_hidden(y));
  expect_close(y, expected);
}

TEST(HiddenStorage, ThreadsMayReadAtOnce) {
  const Tensor plain = values({2, 64, 14, 14}, kFloat, 1), expected = relu(plain);
  for (int round = 0; round < 50; ++round) {
    const Tensor y = blocked(plain);
    std::latch start(3);
    std::vector<Tensor> got(3);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        // One reads the blocks, the others want the plain bytes.
        got[static_cast<std::size_t>(i)] = i == 0 ? relu(y) : clamp_min(y.transpose(0, 1), 0).transpose(0, 1);
      });
    for (std::thread& t : threads) t.join();
    EXPECT_FALSE(is_hidden(y));
    for (const Tensor& t : got) ASSERT_TRUE(equal(t, expected)) << "round " << round;
  }
}

TEST_F(HiddenConv, QueuedDeviceRestoresInItsOrder) {
  detail::configure_cpu_queues(2);
  {
    const Tensor expected = plainly([&] { return relu(conv2d(x, w)); });
    const Device queue("cpu:1"), other("cpu:0");
    const Tensor a = x.to(queue), b = w.to(queue);
    synchronize(queue);
    Tensor y = conv2d(a, b);
    EXPECT_TRUE(is_hidden(y));
    y.relu_();
    EXPECT_TRUE(is_hidden(y));
    const Tensor last = y.select(1, 255), sum = y.sum();  // restored here, behind the convolution
    EXPECT_FALSE(is_hidden(y));
    expect_close(last.to(kCPU), expected.select(1, 255));
    expect_close(sum.to(kCPU), expected.sum(), 1e-4, 1e-4);
    // Another queue waits for the restore.
    expect_close(relu(conv2d(a, b)).to(other).to(kCPU), expected);
    EXPECT_EQ(relu(conv2d(a, b))[1][3].view({-1})[5].item<float>(), expected[1][3].view({-1})[5].item<float>());
    const Tensor z = relu(conv2d(a, b));
    const auto* p = z.data_ptr<float>();
    EXPECT_EQ(p[1000], expected.data_ptr<float>()[1000]);
  }
  detail::configure_cpu_queues(0);
}

TEST(HiddenKernels, RelayoutGoesBetweenAllOrders) {
  for (const DType t : {kFloat, kDouble, kBFloat16, kChar}) {
    for (const auto& size : {std::vector<std::int64_t>{2, 32, 5, 7}, {1, 16}, {3, 48, 1, 1}, {2, 16, 3, 2, 5}}) {
      const Tensor x = values(size, t, 3);
      for (const int block : {4, 16}) {
        const Tensor from_plain = blocked(x, block),
                     from_strided = blocked(x.transpose(0, -1).contiguous().transpose(0, -1), block);
        EXPECT_TRUE(is_hidden(from_plain));
        EXPECT_TRUE(is_hidden(blocked(from_plain, block)));
        EXPECT_TRUE(equal(blocked(from_plain, block), x));
        EXPECT_TRUE(equal(from_plain, x));
        EXPECT_TRUE(equal(from_strided, x));
      }
    }
  }
}

TEST(HiddenKernels, ConvolutionsTakeBlocksWhereNoFastKernelDoes) {
  struct Case {
    std::vector<std::int64_t> input, weight;
    std::int64_t stride, padding, dilation, groups;
    bool transposed;
  };
  const Case cases[] = {{{2, 16, 6, 5}, {32, 16, 3, 3}, 1, 1, 1, 1, false},
                        {{1, 16, 9, 8}, {16, 8, 3, 2}, 2, 1, 2, 2, false},
                        {{2, 64, 14, 14}, {256, 64, 1, 1}, 1, 0, 1, 1, false},
                        {{2, 256, 7, 7}, {256, 256, 3, 3}, 1, 1, 1, 1, false},
                        {{2, 16, 5, 4}, {16, 16, 3, 3}, 2, 1, 1, 1, true}};
  for (const Case& c : cases) {
    const Tensor x = values(c.input, kFloat, 1), w = values(c.weight, kFloat, 2);
    ConvParams p;
    p.stride = {c.stride, c.stride, 1}, p.padding = {c.padding, c.padding, 0}, p.dilation = {c.dilation, c.dilation, 1};
    p.groups = c.groups, p.transposed = c.transposed;
    const Tensor y =
        plainly([&] { return convolution(x, w, {}, c.stride, c.padding, c.dilation, c.transposed, 0, c.groups); });
    const Tensor bias = values({y.size(1)}, kFloat, 4), dy = values(y.sizes(), kFloat, 5);
    const Tensor with_bias = y + bias.view({-1, 1, 1});
    const auto [dw, db] = plainly([&] {
      return convolution_backward_weight(dy, x, w.sizes(), c.stride, c.padding, c.dilation, c.transposed, 0, c.groups,
                                         true);
    });
    const Tensor dx = plainly([&] {
      return convolution_backward_input(dy, w, x.sizes(), c.stride, c.padding, c.dilation, c.transposed, 0, c.groups);
    });
    using detail::Stored;
    for (const int block : {8, 16})
      for (const int mixed : {0, 1, 2}) {  // both operands, the first, the second in blocks
        const auto operand = [&](const Tensor& t, bool plain) { return plain ? t.clone() : blocked(t, block); };
        Tensor out = operand(zeros_like(y), mixed == 2);
        launch(conv_forward_kernel, Stored(out), Stored(operand(x, mixed == 1)), w, bias, p, Epilogue::None);
        expect_close(out, with_bias, 1e-4, 1e-4);
        out = operand(zeros_like(x), mixed == 2);
        launch(conv_backward_input_kernel, Stored(out), Stored(operand(dy, mixed == 1)), w, p);
        expect_close(out, dx, 1e-4, 1e-4);
        const Tensor gw = zeros_like(w), gb = zeros_like(bias);
        launch<2>(conv_backward_weight_kernel, gw, gb, Stored(operand(dy, mixed == 1)), Stored(operand(x, mixed == 2)),
                  p, Tensor());
        expect_close(gw, dw, 1e-4, 1e-3);
        expect_close(gb, db, 1e-4, 1e-3);
      }
  }
}

TEST(HiddenKernels, PointwiseGradientsAgreeWithDoubleOnes) {
  const Tensor x = values({2, 64, 14, 14}, kFloat, 1), w = values({256, 64, 1, 1}, kFloat, 2);
  const auto gradients = [&](DType t) {
    const Tensor a = x.to(t).requires_grad_(), b = w.to(t).requires_grad_();
    const Tensor y = conv2d(a, b);
    return autograd::grad({y}, {a, b}, {values(y.sizes(), kFloat, 3).to(t)});
  };
  const auto single = gradients(kFloat), exact = gradients(kDouble);
  for (std::size_t i = 0; i < 2; ++i) expect_close(single[i], exact[i], 1e-4, 1e-4);
}

TEST(HiddenKernels, BatchNormOfBlocksEqualsThatOfPlanes) {
  for (const DType t : {kFloat, kDouble, kBFloat16, kHalf}) {
    const double tolerance = t == kDouble ? 1e-10 : t == kFloat ? 1e-5 : 1e-2;
    for (const auto& size : {std::vector<std::int64_t>{3, 32, 5, 7}, {4, 16}, {2, 48, 9, 30}, {2, 8, 40, 40}}) {
      const Tensor x = values(size, t, 1) * 3 + 5, dy = values(size, t, 2);
      const auto channels = size[1];
      const auto run = [&](const std::function<Tensor(const Tensor&)>& layout, bool training, int fused) {
        const Tensor gamma = values({channels}, t, 3).requires_grad_(),
                     beta = values({channels}, t, 4).requires_grad_();
        Tensor mean = zeros({channels}, t), var = ones({channels}, t);
        const Tensor in = layout(x).requires_grad_();
        const Tensor more = layout(dy).requires_grad_();
        const Tensor y = fused == 2   ? batch_norm_add_relu(in, more, gamma, beta, mean, var, training, 0.1, 1e-5)
                         : fused == 1 ? batch_norm_relu(in, gamma, beta, mean, var, training, 0.1, 1e-5)
                                      : batch_norm(in, gamma, beta, mean, var, training, 0.1, 1e-5);
        const auto g = autograd::grad({y}, {in, gamma, beta, more}, {layout(dy)}, std::nullopt, false, true);
        return std::vector<Tensor>{y.detach(), mean, var, g[0], g[1], g[2], fused == 2 ? g[3] : g[2]};
      };
      for (const int block : {4, 8})
        for (const bool training : {false, true})
          for (const int fused : {0, 1, 2}) {
            const auto hidden = run([&](const Tensor& v) { return blocked(v, block); }, training, fused);
            const auto plain = run([&](const Tensor& v) { return v.clone(); }, training, fused);
            EXPECT_TRUE(is_hidden(hidden[0]));
            EXPECT_TRUE(is_hidden(hidden[3]));
            for (std::size_t i = 0; i < plain.size(); ++i)
              expect_close(hidden[i], plain[i], tolerance,
                           tolerance * std::max(1.0, plain[i].abs().max().item<double>()));
          }
    }
  }
}

}  // namespace athanor
