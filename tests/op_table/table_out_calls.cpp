// Calls of out= forms of ops whose rows have none.
#include "athanor/ops/factory.h"
#include "op_table/rows.h"
#include "op_table/table_further.h"

namespace athanor::op_table {

namespace {

std::function<void(Tensor&)>& seer() {
  static std::function<void(Tensor&)> see;
  return see;
}
Tensor seen(Tensor t) {
  if (seer()) seer()(t);
  return t;
}

Tensor some(const Shape& shape, double low = -2, double high = 2, unsigned seed = 1) {
  return seen(to_tensor(uniform(shape, low, high, seed), kFloat));
}
Tensor longs(std::initializer_list<std::int64_t> values) {
  return seen(tensor(std::vector<std::int64_t>(values), kLong));
}
Tensor longs(std::initializer_list<std::int64_t> values, const Shape& shape) {
  return seen(tensor(std::vector<std::int64_t>(values), kLong).view(shape));
}

template <class Pair>
Tensors both(Pair&& p) {
  return {std::get<0>(p), std::get<1>(p)};
}

/// Well away from having no inverse.
Tensor regular() { return some({3, 3}) + 4 * eye(3); }

#define OUT(row, name, ...)                                                       \
  list.push_back({row, [] { return manual_seed(3), Tensors{name(__VA_ARGS__)}; }, \
                  [](Tensors& o) { manual_seed(3), name##_out(o[0], __VA_ARGS__); }})
/// Of a result of dtype `type`, which options say to the plain call.
#define MADE(row, name, type, ...)                                                                     \
  list.push_back({row, [] { return manual_seed(3), Tensors{name(__VA_ARGS__, TensorOptions(type))}; }, \
                  [](Tensors& o) { manual_seed(3), name##_out(o[0], __VA_ARGS__); }, true})
#define OUTS(row, name, ...) \
  list.push_back({row, [] { return both(name(__VA_ARGS__)); }, [](Tensors& o) { name##_out(o[0], o[1], __VA_ARGS__); }})

using Calls = std::vector<OutCall>;

void add_creation(Calls& list) {
  MADE("arange", arange, kFloat, 5);
  MADE("arange", arange, kLong, 5);
  MADE("arange.start", arange, kShort, 2, 9);
  MADE("arange.start_step", arange, kDouble, 1, 2, 0.25);
  MADE("eye", eye, kInt, 3);
  MADE("eye.m", eye, kFloat, 2, 3);
  list.push_back({"empty",
                  [] {
                    return Tensors{ones({2, 3})};
                  },
                  [](Tensors& o) {
                    empty_out(o[0], {2, 3}).fill_(1);
                  },
                  true});
  MADE("full", full, kByte, {2, 3}, 7);
  MADE("ones", ones, kBool, {2, 3});
  MADE("zeros", zeros, kHalf, {2, 3});
  MADE("linspace", linspace, kDouble, 0, 1, 7);
  MADE("logspace", logspace, kDouble, 0, 2, 5, 2);
  MADE("rand", rand, kDouble, {2, 3});
  MADE("rand.generator", rand, kFloat, {2, 3}, default_generator());
  MADE("randn", randn, kFloat, {2, 3});
  MADE("randn.generator", randn, kFloat, {2, 3}, default_generator());
  MADE("randint", randint, kLong, 9, {2, 3});
  MADE("randint.generator", randint, kInt, 9, {2, 3}, default_generator());
  MADE("randint.low", randint, kFloat, -5, 9, {2, 3});
  MADE("randint.low_generator", randint, kLong, -5, 9, {2, 3}, default_generator());
  MADE("randperm", randperm, kLong, 7);
  MADE("randperm.generator", randperm, kInt, 7, default_generator());
  OUT("normal.Tensor_float", normal, some({3}), 2.0);
  OUT("normal.float_Tensor", normal, 2.0, some({3}, 1, 2));
  OUT("normal.Tensor_Tensor", normal, some({3}), some({3}, 1, 2));
  OUT("normal.float_float", normal, 2.0, 3.0, {2, 3});
  list.back().typed = true;
  OUT("bernoulli", bernoulli, some({2, 3}, 0, 1));
  OUT("multinomial", multinomial, some({2, 5}, 0, 1), 3);
}

void add_pointwise(Calls& list) {
  OUT("polygamma", polygamma, 2, some({2, 3}, 1, 3));
  OUT("float_power", float_power, some({2, 3}, 1, 3), some({3}));
  OUT("float_power.Scalar", float_power, some({2, 3}, 1, 3), 2);
  OUT("copysign.Scalar", copysign, some({2, 3}), -1);
  OUT("div.Scalar_mode", div, some({2, 3}), 0.5, "floor");
  OUT("xlogy.Scalar_Self", xlogy, 2, some({3}, 1, 2));
  OUT("xlogy.Scalar_Other", xlogy, some({3}), 2);
  OUT("isin.Scalar_Tensor", isin, 3, longs({1, 3}));
  OUT("searchsorted.Scalar", searchsorted, tensor({1.0, 2.0, 4.0}), 3);
  OUT("gelu", gelu, some({2, 3}), "tanh");
  OUT("elu", elu, some({2, 3}), 2);
  OUT("glu", glu, some({2, 4}), 1);
  OUT("hardtanh", hardtanh, some({2, 3}), -0.5, 0.5);
  OUT("leaky_relu", leaky_relu, some({2, 3}), 0.25);
  OUT("threshold", threshold, some({2, 3}), 0.5, 3);
  OUT("renorm", renorm, some({3, 4}), 2, 0, 1);
}

void add_reductions_and_indices(Calls& list) {
  OUT("all", all, some({2, 3}) > -3);
  OUT("any", any, some({2, 3}) > 3);
  OUT("max", max, some({2, 3}));
  OUT("min", min, some({2, 3}));
  OUT("mean", mean, some({2, 3}));
  OUT("norm.ScalarOpt_dim_dtype", norm, some({2, 3}), 2, {1}, true, kDouble);
  OUT("argsort.stable", argsort, some({2, 3}), true, 1, true);
  OUT("nonzero", nonzero, some({2, 3}) > 0);
  OUT("take_along_dim", take_along_dim, some({2, 3}), longs({2, 0}, {2, 1}), 1);
  OUT("scatter.value", scatter, some({2, 3}), 1, longs({2, 0}, {2, 1}), 7);
  OUT("scatter.value", scatter, longs({4, 5, 6}), 0, longs({2, 0, 1}), 7);
  OUT("scatter", scatter, some({2, 2}), 0, longs({1, 0, 0, 1}, {2, 2}), some({2, 2}, -1, 1, 2));
  OUT("scatter_add", scatter_add, some({2, 2}), 0, longs({1, 1, 0, 1}, {2, 2}), some({2, 2}, -1, 1, 2));
  OUT("scatter_reduce.two", scatter_reduce, some({3, 2}), 0, longs({2, 0}, {1, 2}), some({1, 2}), "amax");
  OUT("scatter_reduce.two", scatter_reduce, some({2, 2}), 0, longs({1, 0, 0, 1}, {2, 2}), some({2, 2}, -1, 1, 2),
      "sum");
  OUT("index_add", index_add, some({2, 2}), 0, longs({1, 0}), some({2, 2}, -1, 1, 2), 2);
  OUT("index_copy", index_copy, some({3, 2}), 0, longs({2, 0}), some({2, 2}));
  OUT("index_copy", index_copy, some({2, 2}), 0, longs({1, 0}), some({2, 2}, -1, 1, 2));
  OUT("index_copy", index_copy, longs({5, 6}), 0, longs({1, 0}), longs({8, 9}));
  OUT("index_reduce", index_reduce, some({3, 2}), 0, longs({2, 0}), some({2, 2}), "prod");
  OUT("index_reduce", index_reduce, some({2, 2}), 0, longs({1, 0}), some({2, 2}, -1, 1, 2), "mean");
  OUT("index_select", index_select, some({2, 3}), 0, longs({1, 0}));
  OUT("gather", gather, some({2, 2}), 0, longs({1, 0, 1, 1}, {2, 2}));
  OUT("gather", gather, longs({1, 0, 1, 0}, {2, 2}), 0, longs({1, 0, 1, 1}, {2, 2}));
  OUT("take", take, longs({2, 0, 1}), longs({1, 2, 0}));
  OUT("concat", concat, TensorList{some({2, 3}), some({1, 3})}, 0);
  OUT("hstack", hstack, TensorList{some({2, 3}), some({2, 1})});
  OUT("vstack", vstack, TensorList{some({2, 3}), some({3})});
  OUT("vstack", row_stack, TensorList{some({2, 3}), some({3})});
  OUT("dstack", dstack, TensorList{some({2, 3}), some({2, 3})});
}

void add_products(Calls& list) {
  OUT("linear", linear, some({2, 3}), some({4, 3}), some({4}));
  OUT("linear", linear, some({2, 3}), some({4, 3}));
  OUT("linear", linear, some({2, 3, 2}), some({4, 2}), some({4}));
  OUT("linear", linear, some({2, 3, 4}), some({4, 4}), some({4}, -1, 1, 2));
  OUT("linear", linear, some({2, 2, 3, 2}), some({5, 2}));
  OUT("linear", linear, some({3, 3}, -2, 2, 2), some({3, 3}));
  OUT("inner", inner, some({2, 3}), some({4, 3}));
  OUT("kron", kron, some({2, 3}), some({3, 2}));
  OUT("cross", cross, some({2, 3}), some({2, 3}), 1);
  OUT("chain_matmul", chain_matmul, TensorList{some({2, 3}), some({3, 4}), some({4, 2})});
  OUT("tensordot", tensordot, some({2, 3}), some({3, 4}), {1}, {0});
  OUT("matrix_power", matrix_power, regular(), 3);
  OUT("inverse", inverse, regular());
  OUT("linalg_cholesky", linalg_cholesky, regular().matmul(regular().t()), true);
  OUT("cholesky_solve", cholesky_solve, some({3, 2}), regular());
  OUT("linalg_solve_triangular", linalg_solve_triangular, regular(), some({3, 2}), true);
  OUTS("linalg_qr", linalg_qr, some({4, 3}));
  OUTS("linalg_eigh", linalg_eigh, regular());
  OUT("linalg_eigvalsh", linalg_eigvalsh, regular(), "U");
  OUT("linalg_svdvals", linalg_svdvals, some({4, 3}));
  OUT("linalg_pinv", linalg_pinv, some({4, 3}));
  OUT("linalg_pinv.rcond", linalg_pinv, some({4, 3}), 1e-3);
  OUT("linalg_matrix_rank", linalg_matrix_rank, some({4, 3}));
  OUT("linalg_matrix_rank.tol", linalg_matrix_rank, some({4, 3}), 1e-3);
  OUT("linalg_cond", linalg_cond, some({4, 3}));
  OUT("linalg_cond.p_str", linalg_cond, regular(), "nuc");
  for (const bool old : {false, true})
    list.push_back({old ? "svd" : "linalg_svd",
                    [=] {
                      const auto [u, s, v] = old ? svd(some({4, 3})) : linalg_svd(some({4, 3}));
                      return Tensors{u, s, v};
                    },
                    [=](Tensors& o) {
                      old ? svd_out(o[0], o[1], o[2], some({4, 3})) : linalg_svd_out(o[0], o[1], o[2], some({4, 3}));
                    }});
  list.push_back({"linalg_lstsq",
                  [] {
                    const auto [x, residuals, rank, values] = linalg_lstsq(some({4, 3}), some({4, 2}), {}, "gelsd");
                    return Tensors{x, residuals, rank, values};
                  },
                  [](Tensors& o) {
                    linalg_lstsq_out(o[0], o[1], o[2], o[3], some({4, 3}), some({4, 2}), {}, "gelsd");
                  }});
  OUT("linalg_cross", linalg_cross, some({2, 3}), some({2, 3}));
  OUT("linalg_det", linalg_det, regular());
  OUT("linalg_inv", linalg_inv, regular());
  OUT("linalg_solve", linalg_solve, regular(), some({3, 2}));
  OUT("linalg_matrix_power", linalg_matrix_power, regular(), -2);
  OUT("linalg_multi_dot", linalg_multi_dot, TensorList{some({2, 3}), some({3, 4}), some({4, 2})});
}

void add_losses(Calls& list) {
  OUT("binary_cross_entropy", binary_cross_entropy, some({2, 3}, 0.1, 0.9), some({2, 3}, 0, 1));
  OUT("mse_loss", mse_loss, some({2, 3}), some({2, 3}, 0, 1), 0);
  OUT("smooth_l1_loss", smooth_l1_loss, some({2, 3}), some({2, 3}, 0, 1), 2, 0.5);
  OUT("huber_loss", huber_loss, some({2, 3}), some({2, 3}, 0, 1), 1, 0.5);
  OUT("soft_margin_loss", soft_margin_loss, some({2, 3}), some({2, 3}).sign());
  OUT("multi_margin_loss", multi_margin_loss, some({2, 3}), longs({2, 0}));
  OUT("multilabel_margin_loss", multilabel_margin_loss, some({2, 3}), longs({2, -1, 0, 1, 0, -1}, {2, 3}));
  OUT("nll_loss", nll_loss, some({2, 3}), longs({2, 0}));
  OUT("nll_loss2d", nll_loss2d, some({1, 3, 1, 2}), longs({2, 0}, {1, 1, 2}));
  OUTS("nll_loss_forward", nll_loss_forward, some({2, 3}), longs({2, 0}), Tensor(), 1, -100);
}

void add_windows(Calls& list) {
  OUT("avg_pool2d", avg_pool2d, some({1, 2, 5, 4}), {2});
  OUT("avg_pool3d", avg_pool3d, some({1, 2, 3, 4, 4}), {2});
  OUT("adaptive_avg_pool2d", adaptive_avg_pool2d, some({1, 2, 5, 4}), {2, 3});
  OUT("adaptive_avg_pool3d", adaptive_avg_pool3d, some({1, 2, 3, 4, 4}), {2, 2, 3});
  OUTS("adaptive_max_pool2d", adaptive_max_pool2d, some({1, 2, 5, 4}), {2, 3});
  OUTS("adaptive_max_pool3d", adaptive_max_pool3d, some({1, 2, 3, 4, 4}), {2, 2, 3});
  OUTS("max_pool2d_with_indices", max_pool2d_with_indices, some({1, 2, 5, 4}), {2});
  OUTS("max_pool3d_with_indices", max_pool3d_with_indices, some({1, 2, 3, 4, 4}), {2});
  OUTS("fractional_max_pool2d", fractional_max_pool2d, some({1, 2, 5, 4}), {2, 2}, {2, 2}, some({1, 2, 2}, 0, 1));
  OUTS("fractional_max_pool3d", fractional_max_pool3d, some({1, 1, 4, 4, 4}), {2}, {2}, some({1, 1, 3}, 0, 1));
  OUT("max_unpool2d", max_unpool2d, some({1, 1, 1, 2}), longs({5, 0}, {1, 1, 1, 2}), {2, 3});
  OUT("max_unpool3d", max_unpool3d, some({1, 1, 1, 1, 2}), longs({5, 0}, {1, 1, 1, 1, 2}), {2, 2, 4}, {2}, {0});
  OUT("im2col", im2col, some({1, 2, 4, 4}), {2, 2}, {1, 1}, {0, 0}, {1, 1});
  OUT("col2im", col2im, some({1, 8, 9}), {4, 4}, {2, 2}, {1, 1}, {0, 0}, {1, 1});
  OUT("upsample_nearest1d", upsample_nearest1d, some({1, 2, 4}), {7});
  OUT("upsample_nearest2d", upsample_nearest2d, some({1, 2, 4, 3}), {7, 5});
  OUT("upsample_nearest3d", upsample_nearest3d, some({1, 1, 2, 4, 3}), {3, 7, 5});
  OUT("upsample_linear1d", upsample_linear1d, some({1, 2, 4}), {7}, false);
  OUT("upsample_bilinear2d", upsample_bilinear2d, some({1, 2, 4, 3}), {7, 5}, true);
  OUT("upsample_bicubic2d", upsample_bicubic2d, some({1, 2, 4, 3}), {7, 5}, false);
  OUT("upsample_trilinear3d", upsample_trilinear3d, some({1, 1, 2, 4, 3}), {3, 7, 5}, false);
}

#undef OUT
#undef MADE
#undef OUTS

}  // namespace

SeeInputs::SeeInputs(std::function<void(Tensor&)> see) { seer() = std::move(see); }
SeeInputs::~SeeInputs() { seer() = nullptr; }

const std::vector<OutCall>& out_calls() {
  static const Calls all = [] {
    Calls list;
    add_creation(list);
    add_pointwise(list);
    add_reductions_and_indices(list);
    add_products(list);
    add_losses(list);
    add_windows(list);
    return list;
  }();
  return all;
}

}  // namespace athanor::op_table
