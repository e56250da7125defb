#include "athanor/base/parallel.h"
#include "athanor/ops/factory.h"
#include "athanor/tensor/allocator.h"
#include "numeric.h"

namespace athanor {
namespace {

using test::expect_close;
using test::values;

Tensor by_loops(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, const Tensor& mask = {}) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  Tensor s = matmul(q.to(kDouble), k.to(kDouble).transpose(-2, -1)) * scale;
  if (causal) s = s.masked_fill(ones({q.size(-2), k.size(-2)}, kBool).tril().logical_not(), -INFINITY);
  if (mask.defined()) s = s + mask.to(kDouble);
  return matmul(softmax(s, -1), v.to(kDouble));
}

TEST(Attention, AgreesOverManySizes) {
  for (const DType t : {kFloat, kDouble})
    for (const bool causal : {false, true})
      for (const std::int64_t rows : {1, 130})
        for (const std::int64_t columns : {1, 64, 290})
          for (const std::int64_t depth : {8, 80}) {
            Tensor q = values({2, 2, rows, depth}, t, 1), k = values({2, 2, columns, depth}, t, 2),
                   v = values({2, 2, columns, depth - 3}, t, 3);
            for (Tensor* x : {&q, &k, &v}) x->requires_grad_();
            const Tensor out = scaled_dot_product_attention(q, k, v, {}, 0, causal),
                         expected = by_loops(q, k, v, causal);
            const double tolerance = t == kFloat ? 1e-5 : 1e-12;
            expect_close(out, expected, tolerance, tolerance);
            const Tensor w = values(out.sizes(), t, 4);
            const auto g = autograd::grad({(out * w).sum()}, {q, k, v});
            const auto e = autograd::grad({(expected * w.to(kDouble)).sum()}, {q, k, v});
            for (std::size_t i = 0; i < 3; ++i) {
              const double greatest = e[i].abs().max().item<double>();
              ASSERT_LE((g[i].to(kDouble) - e[i].to(kDouble)).abs().max().item<double>(), tolerance * (10 + greatest))
                  << "input " << i << ", " << rows << " x " << columns << ", depth " << depth;
            }
          }
}

/// The result and all gradients against loops in double, relative to the greatest of each.
void expect_right(Tensor q, Tensor k, Tensor v, bool causal, const Tensor& mask, double tolerance) {
  for (Tensor* x : {&q, &k, &v}) x->requires_grad_();
  const Tensor out = scaled_dot_product_attention(q, k, v, mask, 0, causal), expected = by_loops(q, k, v, causal, mask);
  const Tensor w = values(out.sizes(), q.dtype(), 4);
  const auto g = autograd::grad({(out * w).sum()}, {q, k, v}),
             e = autograd::grad({(expected * w.to(kDouble)).sum()}, {q, k, v});
  const auto apart = [](const Tensor& a, const Tensor& b) {
    return (a.to(kDouble) - b.to(kDouble)).abs().max().item<double>() / b.abs().max().item<double>();
  };
  EXPECT_LE(apart(out, expected), tolerance);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LE(apart(g[i], e[i]), tolerance) << "input " << i;
}

TEST(Attention, CausalRowsEndWhereverTheyMeetBlocksAndTiles) {
  for (const DType t : {kFloat, kDouble})
    for (const std::int64_t rows : {5, 48, 49, 97, 620})
      for (const std::int64_t columns : {7, 48, 511, 530, 1100}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
        expect_right(values({1, 2, rows, 12}, t, 1), values({1, 2, columns, 12}, t, 2),
                     values({1, 2, columns, 20}, t, 3), true, {}, t == kFloat ? 1e-5 : 1e-12);
      }
}

TEST(Attention, ScoresMayBeSmallOrLargeAndRiseOrFallAlongARow) {
  const Tensor k = values({1, 2, 1300, 16}, kFloat, 2), v = values({1, 2, 1300, 16}, kFloat, 3);
  const Tensor rise = linspace(0, 1, 1300, kFloat).unsqueeze(1);
  // Some heads and some tasks of rows have scores that are known to be small, others have not.
  Tensor q = values({1, 2, 150, 16}, kFloat, 1);
  q[0][1].mul_(30);
  q[0][0].slice(0, 60, 75).mul_(40);
  for (const bool causal : {false, true}) {
    expect_right(q, k, v, causal, {}, 3e-5);
    expect_right(q.abs(), k.abs() * rise * 4, v, causal, {}, 3e-5);
    expect_right(q.abs(), k.abs() * (1 - rise) * 4, v, causal, {}, 3e-5);
  }
  const Tensor none = zeros({1, 2, 5, 16}, kFloat);
  expect_close(scaled_dot_product_attention(none, k, v), v.mean({2}, true).expand({1, 2, 5, 16}), 1e-6, 1e-6);
}

TEST(Attention, GreatKeysMayMeetAGreatScale) {
  // Keys times the scale would be infinite, scores are not.
  for (const double unit : {1e37, 3e38})
    for (const double scale : {1.0, -4.0, 1e-3}) {
      SCOPED_TRACE(std::to_string(unit) + " times " + std::to_string(scale));
      Tensor q = values({1, 4, 60, 16}, kFloat, 1) / (unit * std::abs(scale)),
             k = values({1, 2, 600, 16}, kFloat, 2).clamp(-1, 1) * unit, v = values({1, 2, 600, 16}, kFloat, 3);
      for (Tensor* x : {&k, &v}) x->requires_grad_();
      const Tensor out = scaled_dot_product_attention(q, k, v, {}, 0, false, scale, true);
      const Tensor keys = repeat_interleave(k.to(kDouble), 2, 1), rows = repeat_interleave(v.to(kDouble), 2, 1);
      const Tensor expected = matmul(softmax(matmul(q.to(kDouble) * scale, keys.transpose(-2, -1)), -1), rows);
      expect_close(out, expected, 2e-5, 2e-5);
      const Tensor w = values(out.sizes(), kFloat, 4);
      const auto g = autograd::grad({(out * w).sum()}, {k, v}),
                 e = autograd::grad({(expected * w.to(kDouble)).sum()}, {k, v});
      for (std::size_t i = 0; i < 2; ++i) {
        const Tensor at = e[i].to(kDouble);
        EXPECT_LE((g[i].to(kDouble) - at).abs().max().item<double>(), 1e-4 * at.abs().max().item<double>()) << i;
      }
    }
}

TEST(Attention, AMaskMayLiftScoresOrLeaveNothing) {
  const Tensor q = values({1, 1, 70, 8}, kFloat, 1), k = values({1, 1, 600, 8}, kFloat, 2),
               v = values({1, 1, 600, 8}, kFloat, 3);
  Tensor mask = values({1, 1, 70, 600}, kFloat, 5);
  mask.slice(3, 40, 44).add_(300);
  mask[0][0][3].slice(0, 500, 600).fill_(-INFINITY);
  expect_right(q, k, v, false, mask, 3e-5);
  Tensor seen = mask.gt(0);
  seen[0][0][9].fill_(false);
  const Tensor out = scaled_dot_product_attention(q, k, v, seen);
  EXPECT_EQ(out[0][0][9].abs().max().item<double>(), 0);
  const Tensor added = zeros({1, 1, 70, 600}, kFloat).masked_fill(seen.logical_not(), -INFINITY);
  expect_close(out[0][0].slice(0, 10, 70), by_loops(q, k, v, false, added)[0][0].slice(0, 10, 70), 1e-5, 1e-5);
}

TEST(Attention, ARowOfHugeFiniteMasksIsSharedOutAsAnyOther) {
  for (const DType t : {kFloat, kDouble})
    for (const std::int64_t columns : {60, 1100}) {
      const double lowest = std::numeric_limits<float>::lowest();
      Tensor mask = zeros({1, 2, 9, columns}, t);
      const auto row = [&](std::int64_t i) { return mask.select(2, i); };
      row(0).fill_(lowest);
      row(1).fill_(lowest);
      row(1).slice(2, 0, columns - 7).fill_(-INFINITY);
      row(2).slice(2, 3, columns).fill_(lowest);
      row(3).fill_(lowest);
      row(3).slice(2, 5, 8).fill_(-3e38);
      row(4).fill_(-2.5e38);
      row(4).slice(2, 50, 53).fill_(-2.2e38);
      row(5).slice(2, 40, 44).fill_(-lowest);
      row(6).fill_(2.4e38);
      row(6).slice(2, 10, 30).fill_(3e38);
      row(7).fill_(-1e38);
      const Tensor q = values({1, 2, 9, 16}, t, 1), k = values({1, 2, columns, 16}, t, 2),
                   v = values({1, 2, columns, 16}, t, 3);
      expect_close(scaled_dot_product_attention(q, k, v, mask), by_loops(q, k, v, false, mask), 1e-5, 1e-6);
    }
}

TEST(Attention, GradientsAreRightHoweverFarAMaskMovesARow) {
  for (const DType t : {kFloat, kDouble})
    for (const bool causal : {false, true})
      for (const double by : {-1e3, -1e4, -1e7, -1076640000.0, -2.539e9, -1e30, -3.4e38, 1e6, 3e9, 3.4e38}) {
        SCOPED_TRACE((causal ? "causal, " : "") + std::to_string(by));
        // Scores differ by less than a row that was moved can tell: all are about 0.3 / log2(e).
        Tensor q = zeros({1, 1, 70, 8}, t), k = values({1, 1, 1500, 8}, t, 2), v = values({1, 1, 1500, 8}, t, 3);
        q.select(3, 0).fill_(0.3 / 1.4426950408889634 * std::sqrt(8.0));
        k.select(3, 0).fill_(1);
        Tensor mask;
        if (causal) {
          q.select(3, 0).slice(2, 30, 50).fill_(by * 0.9);
        } else {
          mask = zeros({1, 1, 70, 1500}, t);
          mask.slice(2, 30, 50).fill_(by);
        }
        expect_right(q, k, v, causal, mask, std::abs(by) == 1e3 && t == kFloat ? 2e-4 : 1e-5);
      }
}

TEST(Attention, ARowThatSeesNothingHasNoGradient) {
  for (const DType t : {kFloat, kDouble})
    for (const bool bool_mask : {false, true}) {
      Tensor q = values({1, 1, 20, 8}, t, 1), k = values({1, 1, 600, 8}, t, 2), v = values({1, 1, 600, 8}, t, 3);
      for (Tensor* x : {&q, &k, &v}) x->requires_grad_();
      Tensor seen = ones({1, 1, 20, 600}, kBool);
      seen.select(2, 9).fill_(false);
      const Tensor added = zeros({1, 1, 20, 600}, t).masked_fill(seen.logical_not(), -INFINITY),
                   w = values({20, 8}, t, 4);
      const Tensor out = scaled_dot_product_attention(q, k, v, bool_mask ? seen : added)[0][0];
      const auto g = autograd::grad({(out * w).sum()}, {q, k, v});
      EXPECT_EQ(g[0][0][0][9].abs().max().item<double>(), 0);
      // The others' are as if it were not there.
      const auto others = [](const Tensor& x, int dim) { return cat({x.slice(dim, 0, 9), x.slice(dim, 10, 20)}, dim); };
      const auto e =
          autograd::grad({(by_loops(others(q, 2), k, v, false)[0][0] * others(w, 0).to(kDouble)).sum()}, {q, k, v});
      for (std::size_t i = 0; i < 3; ++i) expect_close(g[i], e[i], 1e-5, t == kFloat ? 1e-5 : 1e-12);
    }
}

TEST(Attention, ReadsAnyStridesAndKeepsTheOrderOfHeads) {
  const Tensor packed = values({2, 70, 3, 4, 16}, kFloat);  // batch, places, q k v, heads, depth
  const auto part = [&](std::int64_t i) { return packed.select(2, i).transpose(1, 2); };
  const Tensor out = scaled_dot_product_attention(part(0), part(1), part(2), {}, 0, true);
  expect_close(out, by_loops(part(0), part(1), part(2), true));
  EXPECT_TRUE(out.transpose(1, 2).is_contiguous());
  const Tensor q = values({3, 1, 16, 5}, kDouble).transpose(2, 3), k = values({1, 2, 16, 7}, kDouble).transpose(2, 3);
  const Tensor wide = k.expand({3, 2, 7, 16});
  expect_close(scaled_dot_product_attention(q, k, k), by_loops(q.expand({3, 2, 5, 16}), wide, wide, false));
}

TEST(Attention, BatchDimsMayBeFewOrMany) {
  const Tensor q = values({2, 3, 1, 5, 4}), k = values({2, 3, 1, 6, 4}, kDouble, 2);
  const Tensor out = scaled_dot_product_attention(q, k, k);
  EXPECT_EQ(out.sizes().vec(), (std::vector<std::int64_t>{2, 3, 1, 5, 4}));
  expect_close(out, by_loops(q, k, k, false));
  expect_close(scaled_dot_product_attention(q[1][2][0], k[1][2][0], k[1][2][0]), out[1][2][0]);
  expect_close(scaled_dot_product_attention(q[1][2], k[1][2], k[1][2]), out[1][2]);
}

TEST(Attention, BiasThatIsLearnedGetsItsGradient) {
  const Tensor q = values({1, 2, 3, 4}), bias = values({1, 2, 1, 3}, kDouble, 5).requires_grad_();
  const test::Function f = [&](const std::vector<Tensor>& in) { return scaled_dot_product_attention(q, q, q, in[0]); };
  test::gradcheck(f, {bias});
}

TEST(Attention, DropsTheSamePlacesBothWays) {
  const Tensor q = values({1, 2, 6, 4}, kDouble, 1).requires_grad_(),
               k = values({1, 2, 7, 4}, kDouble, 2).requires_grad_(),
               v = values({1, 2, 7, 3}, kDouble, 3).requires_grad_();
  const test::Function f = [](const std::vector<Tensor>& in) {
    manual_seed(11);
    return scaled_dot_product_attention(in[0], in[1], in[2], {}, 0.4);
  };
  test::gradcheck(f, {q, k, v});
  test::gradgradcheck(f, {q, k, v});
  EXPECT_FALSE(scaled_dot_product_attention(q, k, v, {}, 0.4).equal(scaled_dot_product_attention(q, k, v, {}, 0.4)));
  const Tensor all = scaled_dot_product_attention(q, k, v, {}, 1.0);
  EXPECT_EQ(all.abs().max().item<double>(), 0);
}

TEST(Attention, DropsTheShareAskedFor) {
  manual_seed(2);
  const Tensor q = zeros({1, 1, 300, 8}), v = ones({1, 1, 500, 1});
  const Tensor sums = scaled_dot_product_attention(q, zeros({1, 1, 500, 8}), v, {}, 0.25);
  EXPECT_NEAR(sums.mean().item<double>(), 1, 0.005);
  EXPECT_NEAR(sums.std().item<double>(), std::sqrt(0.25 / 0.75 / 500), 0.003);
}

TEST(Attention, InfinitiesAndNotANumbersStayWhereTheyBelong) {
  Tensor q = values({1, 1, 4, 8}, kFloat);
  const Tensor k = values({1, 1, 5, 8}, kFloat, 2), v = values({1, 1, 5, 8}, kFloat, 3);
  const Tensor clean = scaled_dot_product_attention(q, k, v);
  q[0][0][2][1] = NAN;
  const Tensor out = scaled_dot_product_attention(q, k, v);
  EXPECT_TRUE(out[0][0][2].isnan().all().item<bool>());
  EXPECT_TRUE(out[0][0][1].equal(clean[0][0][1]));
  EXPECT_TRUE(out[0][0][3].equal(clean[0][0][3]));
  const Tensor huge = scaled_dot_product_attention(k * 1e18F, k * 1e18F, v);
  EXPECT_FALSE(huge.isnan().any().item<bool>());
}

TEST(Attention, ManyHeadsArePackedByTheThreadsThatComeToThem) {
  const int before = get_num_threads();
  for (const std::int64_t groups : {8, 4})  // (batch · groups): enough for each of two threads to pack its own
    for (const DType t : {kFloat, kDouble}) {
      Tensor q = values({2, 8, 130, 12}, t, 1), k = values({2, groups, 90, 12}, t, 2),
             v = values({2, groups, 90, 10}, t, 3);
      const Tensor wide_k = repeat_interleave(k, 8 / groups, 1), wide_v = repeat_interleave(v, 8 / groups, 1);
      const Tensor expected = by_loops(q, wide_k, wide_v, true);
      for (Tensor* x : {&q, &k, &v}) x->requires_grad_();
      std::vector<Tensor> first;
      for (const int threads : {1, 2, 7}) {
        set_num_threads(threads);
        const Tensor out = scaled_dot_product_attention(q, k, v, {}, 0, true, std::nullopt, groups != 8);
        expect_close(out, expected, t == kFloat ? 1e-5 : 1e-12, t == kFloat ? 1e-6 : 1e-13);
        auto now = autograd::grad({out}, {q, k, v}, {out.detach()});
        now.push_back(out);
        if (first.empty()) first = now;
        for (std::size_t i = 0; i < now.size(); ++i)
          EXPECT_TRUE(now[i].equal(first[i])) << i << ", threads " << threads << ", groups " << groups;
      }
    }
  set_num_threads(before);
}

TEST(Attention, GivesTheSameBitsOnAnyNumberOfThreads) {
  Tensor q = values({1, 2, 300, 32}, kFloat, 1), k = values({1, 2, 2500, 32}, kFloat, 2);
  q.requires_grad_();
  k.requires_grad_();
  const auto run = [&](int threads) {
    const int before = get_num_threads();
    set_num_threads(threads);
    const Tensor out = scaled_dot_product_attention(q, k, k);
    auto g = autograd::grad({out}, {q, k}, {out.detach()});
    set_num_threads(before);
    g.push_back(out);
    return g;
  };
  const auto one = run(1);
  for (const int threads : {2, 7}) {
    const auto many = run(threads);
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(many[i])) << i << ", threads " << threads;
  }
}

struct Projection {
  Tensor x = values({2, 5, 24}, kDouble, 1).requires_grad_();
  std::vector<Tensor> parts = x.chunk(3, -1);
  Tensor result(bool apart) const {
    std::vector<Tensor> h;
    for (const Tensor& t : parts) h.push_back((apart ? t.clone() : t).view({2, 5, 4, 2}).transpose(1, 2));
    return scaled_dot_product_attention(h[0], h[1], h[2], {}, 0, true);
  }
};

TEST(Attention, OfThePartsOfOneProjectionGivesItsGradientInOnePiece) {
  const Projection p;
  const Tensor w = values({2, 4, 5, 2}, kDouble, 2);
  const Tensor expected = autograd::grad({(p.result(true) * w).sum()}, {p.x})[0];
  const void* arrived = nullptr;
  p.x.register_hook([&](const Tensor& g) { arrived = g.data_ptr(); });
  (p.result(false) * w).sum().backward();
  EXPECT_EQ(p.x.grad().data_ptr(), arrived);
  EXPECT_TRUE(p.x.grad().is_contiguous());
  EXPECT_FALSE(p.x.grad().is_view());
  expect_close(p.x.grad(), expected, 1e-12, 1e-12);
}

TEST(Attention, GradientsOfPartsThatSomebodyKeepsStayApart) {
  const Projection p;
  p.parts[1].retain_grad();
  p.result(false).pow(2).sum().backward();
  const Tensor kept = p.parts[1].grad().clone();
  EXPECT_TRUE(kept.equal(p.x.grad().chunk(3, -1)[1]));
  p.x.grad().zero_();
  EXPECT_TRUE(p.parts[1].grad().equal(kept));
}

TEST(Attention, GradientsOfPartsThatTheCallerGetsAreTensorsOfTheirOwn) {
  const Projection p;
  const auto g = autograd::grad({p.result(false).pow(2).sum()}, p.parts);
  const auto before = g[1]._version();
  g[0].zero_();
  EXPECT_EQ(g[1]._version(), before);
  for (const Tensor& t : g) EXPECT_EQ(t.storage().nbytes(), 80 * sizeof(double));
}

TEST(Attention, AHookOfAPartGetsADenseGradient) {
  const Projection p;
  int seen = 0;
  for (const Tensor& t : p.parts) t.register_hook([&](const Tensor& g) { seen += g.is_contiguous() ? 1 : 0; });
  p.result(false).pow(2).sum().backward();
  EXPECT_EQ(seen, 3);
}

TEST(Attention, OfTwoPartsOfOneProjectionGivesZerosForTheThird) {
  const Projection p;
  const auto head = [&](std::size_t i) { return p.parts[i].view({2, 5, 4, 2}).transpose(1, 2); };
  scaled_dot_product_attention(head(0), head(1), head(1), {}, 0, true).sum().backward();
  EXPECT_EQ(p.x.grad().chunk(3, -1)[2].abs().max().item<double>(), 0);
}

TEST(Attention, MemoryGrowsWithTheLengthNotWithItsSquare) {
  const auto peak = [](std::int64_t length) {
    Tensor x = values({1, 1, length, 16}, kFloat);
    x.requires_grad_();
    host_allocator().reset_peak();
    const auto before = host_allocator().stats().allocated;
    const Tensor out = scaled_dot_product_attention(x, x, x, {}, 0, true);
    autograd::grad({out.sum()}, {x});
    return static_cast<double>(host_allocator().stats().peak_allocated - before);
  };
  peak(512);
  const double small = peak(2048), large = peak(8192);
  EXPECT_LT(large, 6 * small) << small << " and " << large << " bytes";
  EXPECT_LT(large, 0.1 * 8192 * 8192 * 4);
}

}  // namespace
}  // namespace athanor
