#include "athanor/ops/kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "athanor/base/parallel.h"
#include "device_cpu/strided_array.h"

namespace athanor::norm_test {
namespace {

using testing::StridedArray;
using Shape = std::vector<std::int64_t>;
using Doubles = std::vector<double>;
const DType kFloating[] = {DType::Half, DType::Float, DType::Double, DType::BFloat16};

template <class K>
auto cpu(K& kernel) {
  return kernel.get(DeviceType::CPU);
}
DType statistic(DType t) { return t == DType::Double ? t : DType::Float; }
double tolerance(DType t) {
  switch (t) {
    case DType::Half:
      return 4e-3;
    case DType::BFloat16:
      return 3e-2;
    case DType::Float:
      return 1e-5;
    default:
      return 1e-11;
  }
}
void expect_near(double got, double want, double tol) { ASSERT_NEAR(got, want, tol * std::max(1.0, std::abs(want))); }

/// out = (x - mean) * rstd * w + b over a set of elements, and the gradients, by definition.
struct Set {
  Doubles x, g, w;
  bool centred = true;
  double mean = 0, rstd = 1;

  void statistics(double eps) {
    const auto n = static_cast<double>(x.size());
    double var = 0;
    mean = 0;
    if (centred)
      for (double v : x) mean += v / n;
    for (double v : x) var += (v - mean) * (v - mean) / n;
    rstd = 1 / std::sqrt(var + eps);
  }
  double hat(std::size_t i) const { return (x[i] - mean) * rstd; }
  Doubles dx() const {
    const auto n = static_cast<double>(x.size());
    double q = 0, qh = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      q += centred ? g[i] * w[i] / n : 0;
      qh += g[i] * w[i] * hat(i) / n;
    }
    Doubles out;
    for (std::size_t i = 0; i < x.size(); ++i) out.push_back(rstd * (g[i] * w[i] - q - hat(i) * qh));
    return out;
  }
};

void check_rows(DType t, std::int64_t rows, std::int64_t n, bool layer, bool affine, DType param_type) {
  StridedArray in(t, {rows, n}), out(t, {rows, n}), grad(t, {rows, n}), din(t, {rows, n});
  StridedArray mean(statistic(t), {rows}), rstd(statistic(t), {rows}), weight(param_type, {n}), bias(param_type, {n}),
      dweight(param_type, {n}), dbias(param_type, {n});
  in.fill(3, 3);
  grad.fill(4);
  weight.fill(5);
  bias.fill(6);
  const View none, w = affine ? weight.view() : none, b = affine && layer ? bias.view() : none;
  const View dw = affine ? dweight.view() : none, db = affine ? dbias.view() : none;
  if (layer) {
    cpu(layer_norm_kernel)(out.view(), mean.view(), rstd.view(), in.view(), w, b, rows, 1e-3);
    cpu(layer_norm_backward_kernel)(din.view(), dw, db, grad.view(), in.view(), mean.view(), rstd.view(), w, rows);
  } else {
    cpu(rms_norm_kernel)(out.view(), rstd.view(), in.view(), w, rows, 1e-3);
    cpu(rms_norm_backward_kernel)(din.view(), dw, grad.view(), in.view(), rstd.view(), w, rows);
  }
  Doubles want_dw(static_cast<std::size_t>(n)), want_db(static_cast<std::size_t>(n));
  for (std::int64_t r = 0; r < rows; ++r) {
    Set s;
    s.centred = layer;
    for (std::int64_t i = 0; i < n; ++i) {
      s.x.push_back(in.at({r, i}));
      s.g.push_back(grad.at({r, i}));
      s.w.push_back(affine ? weight.at({i}) : 1);
    }
    s.statistics(1e-3);
    if (layer) expect_near(mean.at({r}), s.mean, 1e-6);
    expect_near(rstd.at({r}), s.rstd, 1e-5);
    const auto dx = s.dx();
    for (std::int64_t i = 0; i < n; ++i) {
      const auto k = static_cast<std::size_t>(i);
      expect_near(out.at({r, i}), s.hat(k) * s.w[k] + (affine && layer ? bias.at({i}) : 0), tolerance(t));
      expect_near(din.at({r, i}), dx[k], tolerance(t));
      want_dw[k] += s.g[k] * s.hat(k);
      want_db[k] += s.g[k];
    }
  }
  for (std::int64_t i = 0; affine && i < n; ++i) {
    expect_near(dweight.at({i}), want_dw[static_cast<std::size_t>(i)], tolerance(t) * 4);
    if (layer) expect_near(dbias.at({i}), want_db[static_cast<std::size_t>(i)], tolerance(t) * 4);
  }
  EXPECT_TRUE(out.margins_intact());
  EXPECT_TRUE(din.margins_intact());
  EXPECT_TRUE(dweight.margins_intact());
}

TEST(LayerNorm, AgreesWithTheReferenceForwardAndBackward) {
  for (DType t : kFloating)
    for (bool affine : {false, true})
      for (const auto& [rows, n] :
           {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 10}, {7, 64}, {300, 33}, {2, 5000}, {5, 1024}})
        check_rows(t, rows, n, true, affine, t);
}

TEST(LayerNorm, TakesFloatParametersForHalves) {
  check_rows(DType::BFloat16, 9, 70, true, true, DType::Float);
  check_rows(DType::Half, 9, 70, false, true, DType::Float);
}

TEST(LayerNorm, LargeMeanLosesNothing) {
  StridedArray in(DType::Float, {2, 6000}), out(DType::Float, {2, 6000}), mean(DType::Float, {2}),
      rstd(DType::Float, {2});
  in.each_index([&](const Shape& i) { in.put(i, 4096 + static_cast<double>(i[1] % 4)); });
  cpu(layer_norm_kernel)(out.view(), mean.view(), rstd.view(), in.view(), View{}, View{}, 2, 0);
  EXPECT_NEAR(rstd.at({1}), 1 / std::sqrt(1.25), 1e-5);
  EXPECT_NEAR(out.at({1, 4}), -1.5 / std::sqrt(1.25), 1e-3);
}

TEST(LayerNorm, WorksWithoutStatisticsAndOnNothing) {
  StridedArray in(DType::Float, {4, 50}), out(DType::Float, {4, 50}), kept(DType::Float, {4, 50}),
      mean(DType::Float, {4}), rstd(DType::Float, {4});
  in.fill(2);
  cpu(layer_norm_kernel)(kept.view(), mean.view(), rstd.view(), in.view(), View{}, View{}, 4, 1e-5);
  cpu(layer_norm_kernel)(out.view(), View{}, View{}, in.view(), View{}, View{}, 4, 1e-5);
  EXPECT_EQ(out.values(), kept.values());
  cpu(layer_norm_kernel)(in.view(), View{}, View{}, in.view(), View{}, View{}, 4, 1e-5);
  EXPECT_EQ(in.values(), kept.values());
  StridedArray none(DType::Float, {0, 5}), dweight(DType::Float, {5}), weight(DType::Float, {5}),
      nothing(DType::Float, {0});
  dweight.fill(3);
  cpu(layer_norm_backward_kernel)(none.view(), dweight.view(), View{}, none.view(), none.view(), nothing.view(),
                                  nothing.view(), weight.view(), 0);
  EXPECT_EQ(dweight.values(), Doubles(5, 0.0));
}

TEST(RmsNorm, AgreesWithTheReferenceForwardAndBackward) {
  for (DType t : kFloating)
    for (bool affine : {false, true})
      for (const auto& [rows, n] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 64}, {300, 33}, {2, 5000}})
        check_rows(t, rows, n, false, affine, t);
}

TEST(LayerNorm, GivesTheSameBitsOnAnyNumberOfThreads) {
  const int before = get_num_threads();
  std::vector<std::vector<char>> bytes;
  for (int threads : {1, 2, 7}) {
    set_num_threads(threads);
    StridedArray in(DType::Float, {1000, 100}), grad(DType::Float, {1000, 100}), out(DType::Float, {1000, 100}),
        mean(DType::Float, {1000}), rstd(DType::Float, {1000}), weight(DType::Float, {100}),
        dweight(DType::Float, {100}), dbias(DType::Float, {100});
    in.fill(3, 3);
    grad.fill(9);
    weight.fill(5);
    cpu(layer_norm_kernel)(out.view(), mean.view(), rstd.view(), in.view(), weight.view(), weight.view(), 1000, 1e-5);
    cpu(layer_norm_backward_kernel)(out.view(), dweight.view(), dbias.view(), grad.view(), in.view(), mean.view(),
                                    rstd.view(), weight.view(), 1000);
    bytes.push_back(out.bytes());
    bytes.back().insert(bytes.back().end(), dweight.bytes().begin(), dweight.bytes().end());
  }
  set_num_threads(before);
  EXPECT_EQ(bytes[0], bytes[1]);
  EXPECT_EQ(bytes[0], bytes[2]);
}

// ---- batch norm

struct BatchCase {
  Shape sizes;
  std::vector<int> order;
};
const BatchCase kBatches[] = {{{6, 5}, {}},
                              {{300, 3}, {}},
                              {{4, 3, 7}, {}},
                              {{4, 3, 7}, {0, 2, 1}},
                              {{3, 17, 5, 6}, {}},
                              {{3, 17, 5, 6}, {0, 2, 3, 1}},
                              {{2, 300, 3, 3}, {0, 2, 3, 1}},
                              {{40, 2, 50, 50}, {}},
                              {{40, 2, 50, 50}, {0, 2, 3, 1}},
                              {{2, 3, 2, 3, 4}, {}},
                              {{2, 3, 2, 3, 4}, {0, 2, 3, 4, 1}},
                              {{1, 4, 3, 3}, {}}};

/// The elements of each channel (or, by `key`, of each set).
std::vector<std::vector<Shape>> sets_by(const StridedArray& a, std::int64_t count,
                                        const std::function<std::int64_t(const Shape&)>& key) {
  std::vector<std::vector<Shape>> sets(static_cast<std::size_t>(count));
  a.each_index([&](const Shape& i) { sets[static_cast<std::size_t>(key(i))].push_back(i); });
  return sets;
}

void check_batch_norm(DType t, const BatchCase& c, bool relu, bool training) {
  const std::int64_t channels = c.sizes[1];
  const DType s = statistic(t);
  StridedArray in(t, c.sizes, c.order), out(t, c.sizes, c.order), grad(t, c.sizes, c.order), din(t, c.sizes, c.order);
  StridedArray mean(s, {channels}), invstd(s, {channels}), running_mean(s, {channels}), running_var(s, {channels}),
      weight(t, {channels}), bias(t, {channels}), dweight(t, {channels}), dbias(t, {channels});
  in.fill(7, 2);
  grad.fill(8);
  weight.fill(2);
  bias.fill(3);
  running_mean.fill(4);
  running_var.fill_with(2);
  const auto old_mean = running_mean.values();
  const View y = relu ? out.view() : View{};
  if (training) {
    cpu(batch_norm_kernel)(out.view(), mean.view(), invstd.view(), running_mean.view(), running_var.view(), in.view(),
                           weight.view(), bias.view(), 0.1, 1e-3, relu, View{});
  } else {
    cpu(batch_norm_eval_kernel)(out.view(), in.view(), weight.view(), bias.view(), running_mean.view(),
                                running_var.view(), 1e-3, relu, View{});
    mean.each_index([&](const Shape& i) {
      mean.put(i, running_mean.at(i));
      invstd.put(i, 1 / std::sqrt(running_var.at(i) + 1e-3));
    });
  }
  cpu(batch_norm_backward_kernel)(din.view(), dweight.view(), dbias.view(), grad.view(), in.view(), y, mean.view(),
                                  invstd.view(), weight.view(), training);
  const auto sets = sets_by(in, channels, [](const Shape& i) { return i[1]; });
  for (std::int64_t ch = 0; ch < channels; ++ch) {
    const auto& places = sets[static_cast<std::size_t>(ch)];
    Set set;
    double dw = 0, db = 0;
    for (const auto& i : places) {
      set.x.push_back(in.at(i));
      set.g.push_back(relu && out.at(i) <= 0 ? 0 : grad.at(i));
      set.w.push_back(weight.at({ch}));
    }
    const auto n = static_cast<double>(places.size());
    if (training) {
      set.statistics(1e-3);
      expect_near(mean.at({ch}), set.mean, 1e-5);
      expect_near(invstd.at({ch}), set.rstd, 1e-5);
      const double var = (1 / (set.rstd * set.rstd) - 1e-3) * n / (n - 1);
      expect_near(running_mean.at({ch}), old_mean[static_cast<std::size_t>(ch)] * 0.9 + 0.1 * set.mean, 1e-5);
      expect_near(running_var.at({ch}), 2 * 0.9 + 0.1 * var, 1e-4);
    } else {
      set.mean = mean.at({ch});
      set.rstd = invstd.at({ch});
    }
    const auto dx = set.dx();
    for (std::size_t k = 0; k < places.size(); ++k) {
      const double value = set.hat(k) * weight.at({ch}) + bias.at({ch});
      expect_near(out.at(places[k]), relu ? std::max(0.0, value) : value, tolerance(t));
      expect_near(din.at(places[k]), training ? dx[k] : set.g[k] * set.w[k] * set.rstd, tolerance(t) * 2);
      dw += set.g[k] * set.hat(k);
      db += set.g[k];
    }
    expect_near(dweight.at({ch}), dw, tolerance(t) * 4);
    expect_near(dbias.at({ch}), db, tolerance(t) * 4);
  }
  EXPECT_TRUE(out.margins_intact());
  EXPECT_TRUE(din.margins_intact());
}

TEST(BatchNorm, AgreesWithTheReferenceInBothLayouts) {
  for (DType t : kFloating)
    for (const auto& c : kBatches)
      for (bool relu : {false, true})
        for (bool training : {false, true})
          if (t == DType::Float || c.sizes[0] < 40) check_batch_norm(t, c, relu, training);
}

TEST(RmsNorm, GivesTheSameBitsOnAnyNumberOfThreads) {
  const int before = get_num_threads();
  for (const auto& [rows, n] : {std::pair<std::int64_t, std::int64_t>{1000, 100}, {37, 5000}}) {
    std::vector<std::vector<char>> bytes;
    for (int threads : {1, 2, 7}) {
      set_num_threads(threads);
      StridedArray in(DType::Float, {rows, n}), grad(DType::Float, {rows, n}), out(DType::Float, {rows, n}),
          din(DType::Float, {rows, n}), rstd(DType::Float, {rows}), weight(DType::Float, {n}),
          dweight(DType::Float, {n});
      in.fill(3, 3);
      grad.fill(9);
      weight.fill(5);
      cpu(rms_norm_kernel)(out.view(), rstd.view(), in.view(), weight.view(), rows, 1e-5);
      cpu(rms_norm_backward_kernel)(din.view(), dweight.view(), grad.view(), in.view(), rstd.view(), weight.view(),
                                    rows);
      bytes.push_back(out.bytes());
      for (const StridedArray* a : {&din, &dweight})
        bytes.back().insert(bytes.back().end(), a->bytes().begin(), a->bytes().end());
    }
    EXPECT_EQ(bytes[0], bytes[1]) << rows;
    EXPECT_EQ(bytes[0], bytes[2]) << rows;
  }
  set_num_threads(before);
}

TEST(GroupNorm, GivesTheSameBitsOnAnyNumberOfThreads) {
  const int before = get_num_threads();
  for (const Shape& sizes : {Shape{33, 12, 20, 19}, Shape{2, 12, 100, 90}, Shape{700, 12}}) {
    std::vector<std::vector<char>> bytes;
    for (int threads : {1, 2, 7}) {
      set_num_threads(threads);
      const std::int64_t n = sizes[0], groups = 3;
      StridedArray in(DType::Float, sizes), grad(DType::Float, sizes), out(DType::Float, sizes),
          din(DType::Float, sizes), mean(DType::Float, {n * groups}), rstd(DType::Float, {n * groups}),
          weight(DType::Float, {12}), dweight(DType::Float, {12}), dbias(DType::Float, {12});
      in.fill(3, 3);
      grad.fill(9);
      weight.fill(5);
      cpu(group_norm_kernel)(out.view(), mean.view(), rstd.view(), in.view(), weight.view(), weight.view(), groups,
                             1e-5);
      cpu(group_norm_backward_kernel)(din.view(), dweight.view(), dbias.view(), grad.view(), in.view(), mean.view(),
                                      rstd.view(), weight.view(), groups);
      bytes.push_back(out.bytes());
      for (const StridedArray* a : {&din, &dweight, &dbias})
        bytes.back().insert(bytes.back().end(), a->bytes().begin(), a->bytes().end());
    }
    EXPECT_EQ(bytes[0], bytes[1]) << sizes[0];
    EXPECT_EQ(bytes[0], bytes[2]) << sizes[0];
  }
  set_num_threads(before);
}

TEST(BatchNorm, NeedsMoreThanOneValueToTrain) {
  StridedArray in(DType::Float, {1, 3}), out(DType::Float, {1, 3}), m(DType::Float, {3}), s(DType::Float, {3});
  const View none;
  EXPECT_THROW(
      cpu(batch_norm_kernel)(out.view(), m.view(), s.view(), none, none, in.view(), none, none, 0.1, 1e-5, false, none),
      ValueError);
}

TEST(BatchNorm, RefusesOtherLayouts) {
  StridedArray in(DType::Float, {4, 3, 5}, {1, 0, 2}), out(DType::Float, {4, 3, 5}, {1, 0, 2}), m(DType::Float, {3}),
      s(DType::Float, {3});
  const View none;
  EXPECT_THROW(
      cpu(batch_norm_kernel)(out.view(), m.view(), s.view(), none, none, in.view(), none, none, 0.1, 1e-5, false, none),
      NotImplementedError);
}

TEST(BatchNorm, EmptyBatchesGiveZeroGradients) {
  for (const Shape& sizes : {Shape{0, 3, 4}, Shape{0, 3}, Shape{2, 3, 0}}) {
    StridedArray in(DType::Float, sizes), m(DType::Float, {3}), s(DType::Float, {3}), dw(DType::Float, {3}),
        db(DType::Float, {3});
    dw.fill(2);
    cpu(batch_norm_backward_kernel)(in.view(), dw.view(), db.view(), in.view(), in.view(), View{}, m.view(), s.view(),
                                    View{}, true);
    EXPECT_EQ(dw.values(), Doubles(3, 0.0));
  }
}

TEST(BatchNorm, GivesTheSameBitsOnAnyNumberOfThreads) {
  const int before = get_num_threads();
  for (const auto& c : {kBatches[7], kBatches[8]}) {
    std::vector<std::vector<char>> bytes;
    for (int threads : {1, 2, 7}) {
      set_num_threads(threads);
      StridedArray in(DType::Float, c.sizes, c.order), grad(DType::Float, c.sizes, c.order),
          out(DType::Float, c.sizes, c.order), m(DType::Float, {2}), s(DType::Float, {2}), dw(DType::Float, {2}),
          db(DType::Float, {2});
      in.fill(3);
      grad.fill(4);
      const View none;
      cpu(batch_norm_kernel)(out.view(), m.view(), s.view(), none, none, in.view(), none, none, 0.1, 1e-5, false, none);
      cpu(batch_norm_backward_kernel)(out.view(), dw.view(), db.view(), grad.view(), in.view(), none, m.view(),
                                      s.view(), none, true);
      bytes.push_back(out.bytes());
      bytes.back().insert(bytes.back().end(), dw.bytes().begin(), dw.bytes().end());
    }
    EXPECT_EQ(bytes[0], bytes[1]);
    EXPECT_EQ(bytes[0], bytes[2]);
  }
  set_num_threads(before);
}

TEST(GroupNorm, AgreesWithTheReferenceForwardAndBackward) {
  for (DType t : kFloating)
    for (const Shape& sizes : {Shape{3, 6}, Shape{2, 6, 5}, Shape{2, 6, 7, 9}, Shape{2, 4, 50, 60}})
      for (std::int64_t groups : {std::int64_t{1}, std::int64_t{2}, sizes[1]}) {
        const std::int64_t per = sizes[1] / groups;
        StridedArray in(t, sizes), out(t, sizes), grad(t, sizes), din(t, sizes),
            mean(statistic(t), {sizes[0] * groups}), rstd(statistic(t), {sizes[0] * groups}), weight(t, {sizes[1]}),
            bias(t, {sizes[1]}), dweight(t, {sizes[1]}), dbias(t, {sizes[1]});
        in.fill(5, 2);
        grad.fill(6);
        weight.fill(7);
        bias.fill(8);
        cpu(group_norm_kernel)(out.view(), mean.view(), rstd.view(), in.view(), weight.view(), bias.view(), groups,
                               1e-2);
        cpu(group_norm_backward_kernel)(din.view(), dweight.view(), dbias.view(), grad.view(), in.view(), mean.view(),
                                        rstd.view(), weight.view(), groups);
        Doubles dw(static_cast<std::size_t>(sizes[1])), db(dw);
        const auto sets = sets_by(in, sizes[0] * groups, [&](const Shape& i) { return i[0] * groups + i[1] / per; });
        for (const auto& places : sets) {
          Set set;
          for (const auto& i : places) {
            set.x.push_back(in.at(i));
            set.g.push_back(grad.at(i));
            set.w.push_back(weight.at({i[1]}));
          }
          set.statistics(1e-2);
          const auto dx = set.dx();
          for (std::size_t k = 0; k < places.size(); ++k) {
            const auto c = static_cast<std::size_t>(places[k][1]);
            expect_near(out.at(places[k]), set.hat(k) * set.w[k] + bias.at({places[k][1]}), tolerance(t));
            expect_near(din.at(places[k]), dx[k], tolerance(t) * 4);
            dw[c] += set.g[k] * set.hat(k);
            db[c] += set.g[k];
          }
        }
        for (std::int64_t c = 0; c < sizes[1]; ++c) {
          expect_near(dweight.at({c}), dw[static_cast<std::size_t>(c)], tolerance(t) * 4);
          expect_near(dbias.at({c}), db[static_cast<std::size_t>(c)], tolerance(t) * 4);
        }
      }
}

}  // namespace
}  // namespace athanor::norm_test
