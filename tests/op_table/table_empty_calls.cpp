// Calls with tensors without elements of ops whose rows have no such sample.
#include <cmath>

#include "op_table/table_further.h"

namespace athanor::op_table {

namespace {

using EmptyCallList = std::vector<EmptyCall>;
constexpr std::int64_t kSumOfLosses = 2;

Tensor renormed(Tensor table, const Tensor& indices) {
  embedding_renorm_(table, indices, 1, 2);
  return table;
}

#define EMPTY(op, shape, value, ...) list.push_back({op, [] { return __VA_ARGS__; }, shape, value})

void add_first_empty_calls(EmptyCallList& list) {
  EMPTY("bitwise_left_shift", Shape({2, 0}), 0, bitwise_left_shift(zeros({2, 0}, kLong), zeros({0}, kLong)));
  EMPTY("bitwise_right_shift", Shape({2, 0}), 0, bitwise_right_shift(zeros({2, 0}, kLong), zeros({0}, kLong)));
  EMPTY("cross", Shape({0, 3}), 0, cross(zeros({0, 3}), zeros({0, 3}), 1));
  EMPTY("convolution", Shape({0, 3, 4}), 0,
        convolution(zeros({0, 2, 5}), ones({3, 2, 2}), {}, {1}, {0}, {1}, false, {0}, 1));
  EMPTY("conv_transpose1d", Shape({0, 3, 6}), 0, conv_transpose1d(zeros({0, 2, 5}), ones({2, 3, 2})));
  EMPTY("conv_transpose2d", Shape({0, 3, 6, 5}), 0, conv_transpose2d(zeros({0, 2, 5, 4}), ones({2, 3, 2, 2})));
  EMPTY("conv_transpose3d", Shape({0, 3, 6, 5, 4}), 0, conv_transpose3d(zeros({0, 2, 5, 4, 3}), ones({2, 3, 2, 2, 2})));
  EMPTY("convolution_backward_input", Shape({0, 2, 5}), 0,
        convolution_backward_input(zeros({0, 3, 4}), ones({3, 2, 2}), {0, 2, 5}, {1}, {0}, {1}, false, {0}, 1));
  EMPTY("convolution_backward_weight", Shape({3, 2, 2}), 0,
        std::get<0>(convolution_backward_weight(zeros({0, 3, 4}), zeros({0, 2, 5}), {3, 2, 2}, {1}, {0}, {1}, false,
                                                {0}, 1, false)));
  EMPTY("zeros", Shape({2, 0}), 0, zeros({2, 0}));
  EMPTY("ones", Shape({2, 0}), 0, ones({2, 0}));
  EMPTY("empty", Shape({2, 0}), 0, empty({2, 0}));
  EMPTY("full", Shape({2, 0}), 0, full({2, 0}, 3));
  EMPTY("empty_strided", Shape({2, 0}), 0, empty_strided({2, 0}, {1, 1}));
  EMPTY("zeros_like", Shape({2, 0}), 0, zeros_like(zeros({2, 0})));
  EMPTY("ones_like", Shape({2, 0}), 0, ones_like(zeros({2, 0})));
  EMPTY("empty_like", Shape({2, 0}), 0, empty_like(zeros({2, 0})));
  EMPTY("full_like", Shape({2, 0}), 0, full_like(zeros({2, 0}), 3));
  EMPTY("new_empty", Shape({2, 0}), 0, ones({2}).new_empty({2, 0}));
  EMPTY("new_zeros", Shape({2, 0}), 0, ones({2}).new_zeros({2, 0}));
  EMPTY("new_ones", Shape({2, 0}), 0, ones({2}).new_ones({2, 0}));
  EMPTY("new_full", Shape({2, 0}), 0, ones({2}).new_full({2, 0}, 3));
  EMPTY("to", Shape({2, 0}), 0, zeros({2, 0}).to(TensorOptions(kDouble)));
  EMPTY("diag_embed", Shape({2, 1, 1}), 0, diag_embed(zeros({2, 0}), 1));
  EMPTY("diagonal_scatter", Shape({0, 3}), 0, diagonal_scatter(zeros({0, 3}), zeros({0})));
  EMPTY("cosine_similarity", Shape({2}), 0, cosine_similarity(zeros({2, 0}), zeros({2, 0})));
  EMPTY("hann_window", Shape({0}), 0, hann_window(0));
  EMPTY("hamming_window", Shape({0}), 0, hamming_window(0));
  EMPTY("blackman_window", Shape({0}), 0, blackman_window(0));
  EMPTY("bartlett_window", Shape({0}), 0, bartlett_window(0));
  EMPTY("kaiser_window", Shape({0}), 0, kaiser_window(0));
  EMPTY("take_along_dim", Shape({2, 0}), 0, take_along_dim(ones({2, 3}), zeros({2, 0}, kLong), 1));
  EMPTY("masked_scatter", Shape({2, 0}), 0, masked_scatter(zeros({2, 0}), zeros({2, 0}, kBool), zeros({0})));
  EMPTY("index_put_with", Shape({2, 0}), 0, index_put_with(zeros({2, 0}), TensorList{zeros({0}, kLong)}, zeros({0})));
  EMPTY("embedding_renorm_", Shape({3, 2}), 1, renormed(ones({3, 2}), zeros({0}, kLong)));
  EMPTY("one_hot", Shape({2, 0, 3}), 0, one_hot(zeros({2, 0}, kLong), 3));
  EMPTY("hstack", Shape({2, 0}), 0, hstack({zeros({2, 0}), zeros({2, 0})}));
  EMPTY("vstack", Shape({5, 0}), 0, vstack({zeros({2, 0}), zeros({3, 0})}));
  EMPTY("dstack", Shape({2, 0, 2}), 0, dstack({zeros({2, 0}), zeros({2, 0})}));
  EMPTY("nll_loss_forward", Shape({}), 0,
        std::get<0>(nll_loss_forward(zeros({0, 3}), zeros({0}, kLong), {}, kSumOfLosses, -100)));
  EMPTY("binary_cross_entropy", Shape({}), 0, binary_cross_entropy(zeros({0}), zeros({0}), {}, kSumOfLosses));
  EMPTY("binary_cross_entropy_with_logits", Shape({}), 0,
        binary_cross_entropy_with_logits(zeros({0}), zeros({0}), {}, {}, kSumOfLosses));
  EMPTY("margin_ranking_loss", Shape({}), 0, margin_ranking_loss(zeros({0}), zeros({0}), zeros({0}), 1, kSumOfLosses));
  EMPTY("cosine_embedding_loss", Shape({}), 0,
        cosine_embedding_loss(zeros({0, 3}), zeros({0, 3}), zeros({0}), 0, kSumOfLosses));
  EMPTY("triplet_margin_loss", Shape({}), 0,
        triplet_margin_loss(zeros({0, 3}), zeros({0, 3}), zeros({0, 3}), 1, 2, 1e-6, false, kSumOfLosses));
  EMPTY("multi_margin_loss", Shape({}), 0, multi_margin_loss(zeros({0, 3}), zeros({0}, kLong), 1, 1, {}, kSumOfLosses));
  EMPTY("multilabel_margin_loss", Shape({}), 0,
        multilabel_margin_loss(zeros({0, 3}), zeros({0, 3}, kLong), kSumOfLosses));
  EMPTY("multilabel_soft_margin_loss", Shape({}), 0,
        multilabel_soft_margin_loss(zeros({0, 3}), zeros({0, 3}), {}, kSumOfLosses));
  EMPTY("gaussian_nll_loss", Shape({}), 0,
        gaussian_nll_loss(zeros({0, 3}), zeros({0, 3}), zeros({0, 3}), false, 1e-6, kSumOfLosses));
  EMPTY("ctc_loss.IntList", Shape({}), 0,
        ctc_loss(zeros({4, 0, 3}), zeros({0, 2}, kLong), IntArrayRef(), IntArrayRef(), 0, kSumOfLosses));
  EMPTY("ctc_loss.Tensor", Shape({}), 0,
        ctc_loss(zeros({4, 0, 3}), zeros({0, 2}, kLong), zeros({0}, kLong), zeros({0}, kLong), 0, kSumOfLosses));
  EMPTY("embedding_bag", Shape({2, 2}), 0,
        std::get<0>(embedding_bag(ones({3, 2}), zeros({0}, kLong), zeros({2}, kLong))));
  EMPTY("native_layer_norm", Shape({0, 3}), 0, std::get<0>(native_layer_norm(zeros({0, 3}), {3}, {}, {}, 1e-5)));
  EMPTY("instance_norm", Shape({0, 3, 4}), 0, instance_norm(zeros({0, 3, 4}), {}, {}, {}, {}, true, 0.1, 1e-5));
  EMPTY("batch_norm", Shape({0, 3, 4}), 0,
        batch_norm(zeros({0, 3, 4}), {}, {}, zeros({3}), ones({3}), false, 0.1, 1e-5));
  EMPTY("batch_norm_relu", Shape({0, 3, 4}), 0,
        batch_norm_relu(zeros({0, 3, 4}), {}, {}, zeros({3}), ones({3}), false, 0.1, 1e-5));
  EMPTY("batch_norm_add_relu", Shape({0, 3, 4}), 0,
        batch_norm_add_relu(zeros({0, 3, 4}), zeros({0, 3, 4}), {}, {}, zeros({3}), ones({3}), false, 0.1, 1e-5));
  EMPTY("median", Shape({}), NAN, median(zeros({0})));
  EMPTY("nanmedian", Shape({}), NAN, nanmedian(zeros({0})));
  EMPTY("max_pool_gather", Shape({0, 1, 2}), 0,
        max_pool_gather(zeros({0, 1, 4}), zeros({0, 1, 2}, kLong), {2}, {2}, {0}, {1}));
}

/// Three steps of no sequence, through a layer from 5 to 4 features.
using RecurrentLayer = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, TensorList, bool, std::int64_t,
                                                      double, bool, bool, bool);
Tensor without_sequences(RecurrentLayer layer, std::int64_t gates) {
  return std::get<0>(layer(zeros({3, 0, 5}), zeros({1, 0, 4}), {ones({4 * gates, 5}), ones({4 * gates, 4})}, false, 1,
                           0.0, false, false, false));
}
Tensor lstm_without_sequences() {
  const Tensors states{zeros({1, 0, 4}), zeros({1, 0, 4})}, weights{ones({16, 5}), ones({16, 4})};
  return std::get<0>(lstm(zeros({3, 0, 5}), states, weights, false, 1, 0.0, false, false, false));
}

void add_second_empty_calls(EmptyCallList& list) {
  EMPTY("lstm.input", Shape({3, 0, 4}), 0, lstm_without_sequences());
  EMPTY("gru.input", Shape({3, 0, 4}), 0, without_sequences(&gru, 3));
  EMPTY("rnn_tanh.input", Shape({3, 0, 4}), 0, without_sequences(&rnn_tanh, 1));
  EMPTY("rnn_relu.input", Shape({3, 0, 4}), 0, without_sequences(&rnn_relu, 1));
  EMPTY("multinomial", Shape({0, 2}), 0, multinomial(zeros({0, 3}), 2, true));
  EMPTY("arange", Shape({0}), 0, arange(0));
  EMPTY("arange.start", Shape({0}), 0, arange(2, 2));
  EMPTY("arange.start_step", Shape({0}), 0, arange(2, 2, -3));
  EMPTY("linspace", Shape({0}), 0, linspace(1, 2, 0));
  EMPTY("logspace", Shape({0}), 0, logspace(1, 2, 0));
  EMPTY("eye", Shape({0, 0}), 0, eye(0));
  EMPTY("eye.m", Shape({2, 0}), 0, eye(2, 0));
  EMPTY("tril_indices", Shape({2, 0}), 0, tril_indices(0, 3));
  EMPTY("triu_indices", Shape({2, 0}), 0, triu_indices(2, 0));
  EMPTY("empty_permuted", Shape({2, 0}), 0, empty_permuted({2, 0}, {1, 0}));
  EMPTY("new_empty_strided", Shape({2, 0}), 0, ones({2}).new_empty_strided({2, 0}, {1, 1}));
  EMPTY("cartesian_prod", Shape({0, 2}), 0, cartesian_prod({zeros({2}), zeros({0})}));
  EMPTY("norm", Shape({}), 0, norm(zeros({0})));
  EMPTY("norm.ScalarOpt_dtype", Shape({}), 0, norm(zeros({0}), 1, kDouble));
  EMPTY("dist", Shape({}), 0, dist(zeros({0}), zeros({0}), 2));
  EMPTY("amax", Shape({2, 0}), 0, amax(zeros({2, 0, 3}), 2));
  EMPTY("amin", Shape({2, 0}), 0, amin(zeros({2, 0, 3}), 2));
  EMPTY("aminmax", Shape({2, 0}), 0, std::get<1>(aminmax(zeros({2, 0, 3}), 2)));
  EMPTY("var", Shape({}), NAN, var(zeros({0}), true));
  EMPTY("var_mean", Shape({}), NAN, std::get<0>(var_mean(zeros({0}), true)));
  EMPTY("std", Shape({}), NAN, std(zeros({0}), true));
  EMPTY("std_mean", Shape({}), NAN, std::get<0>(std_mean(zeros({0}), true)));
  EMPTY("sum_to_size", Shape({3}), 0, zeros({0, 3}).sum_to_size({3}));
  EMPTY("reshape_as", Shape({0, 5}), 0, zeros({2, 0}).reshape_as(zeros({0, 5})));
  EMPTY("atleast_1d", Shape({0}), 0, atleast_1d(zeros({0})));
  EMPTY("atleast_1d.Sequence", Shape({0}), 0, atleast_1d(TensorList{zeros({0})})[0]);
  EMPTY("atleast_2d", Shape({1, 0}), 0, atleast_2d(zeros({0})));
  EMPTY("atleast_2d.Sequence", Shape({1, 0}), 0, atleast_2d(TensorList{zeros({0})})[0]);
  EMPTY("atleast_3d", Shape({1, 0, 1}), 0, atleast_3d(zeros({0})));
  EMPTY("atleast_3d.Sequence", Shape({1, 0, 1}), 0, atleast_3d(TensorList{zeros({0})})[0]);
  EMPTY("squeeze.dims", Shape({0, 1}), 0, squeeze(zeros({1, 0, 1}), {0, 1}));
  EMPTY("broadcast_to", Shape({3, 0}), 0, broadcast_to(zeros({1, 0}), {3, 0}));
  EMPTY("broadcast_tensors", Shape({3, 0}), 0, broadcast_tensors({ones({3, 1}), zeros({0})})[0]);
  EMPTY("movedim.int", Shape({0, 3, 2}), 0, movedim(zeros({2, 0, 3}), 0, 2));
  EMPTY("mT", Shape({2, 3, 0}), 0, zeros({2, 0, 3}).mT());
  EMPTY("adjoint", Shape({2, 3, 0}), 0, adjoint(zeros({2, 0, 3})));
  EMPTY("narrow.Tensor", Shape({1, 0}), 0, narrow(zeros({2, 0}), 0, scalar_tensor(1, kLong), 1));
  EMPTY("select_scatter", Shape({2, 0}), 0, select_scatter(zeros({2, 0}), zeros({0}), 0, 1));
  EMPTY("slice_scatter", Shape({2, 3}), 0, slice_scatter(zeros({2, 3}), zeros({0, 3}), 0, 1, 1));
  EMPTY("as_strided_scatter", Shape({2, 3}), 0, as_strided_scatter(zeros({2, 3}), zeros({0}), {0}, {1}));
  EMPTY("searchsorted.Scalar", Shape({}), 0, searchsorted(zeros({0}), 3));
  EMPTY("bucketize.Scalar", Shape({}), 0, bucketize(3, zeros({0})));
  EMPTY("tensor_split.indices", Shape({2, 0}), 0, tensor_split(zeros({2, 0}), IntArrayRef({1}), 1)[1]);
  EMPTY("tensor_split.tensor_indices_or_sections", Shape({2, 0}), 0,
        tensor_split(zeros({2, 0}), scalar_tensor(3, kLong), 1)[2]);
  EMPTY("hsplit", Shape({2, 0}), 0, hsplit(zeros({2, 0}), 3)[2]);
  EMPTY("hsplit.array", Shape({2, 0}), 0, hsplit(zeros({2, 0}), IntArrayRef({1}))[1]);
  EMPTY("vsplit", Shape({0, 2}), 0, vsplit(zeros({0, 2}), 3)[2]);
  EMPTY("vsplit.array", Shape({0, 2}), 0, vsplit(zeros({0, 2}), IntArrayRef({1}))[1]);
  EMPTY("dsplit", Shape({2, 2, 0}), 0, dsplit(zeros({2, 2, 0}), 3)[2]);
  EMPTY("dsplit.array", Shape({2, 2, 0}), 0, dsplit(zeros({2, 2, 0}), IntArrayRef({1}))[1]);
  EMPTY("where.Scalar", Shape({2, 0}), 0, where(zeros({2, 0}, kBool), 1, 2));
  EMPTY("expand", Shape({3, 0}), 0, expand(zeros({1, 0}), {3, 0}));
  EMPTY("expand_as", Shape({2, 0}), 0, ones({1}).expand_as(zeros({2, 0})));
  EMPTY("as_strided", Shape({2, 0}), 0, as_strided(ones({4}), {2, 0}, {1, 1}));
  EMPTY("pixel_unshuffle", Shape({0, 4, 2, 2}), 0, pixel_unshuffle(zeros({0, 1, 4, 4}), 2));
  EMPTY("affine_grid_generator", Shape({0, 4, 5, 2}), 0, affine_grid_generator(zeros({0, 2, 3}), {0, 1, 4, 5}, false));
  EMPTY("max_unpool2d", Shape({0, 1, 4, 4}), 0, max_unpool2d(zeros({0, 1, 2, 2}), zeros({0, 1, 2, 2}, kLong), {4, 4}));
  EMPTY("max_unpool3d", Shape({0, 1, 4, 4, 4}), 0,
        max_unpool3d(zeros({0, 1, 2, 2, 2}), zeros({0, 1, 2, 2, 2}, kLong), {4, 4, 4}, {2}, {0}));
  EMPTY("fractional_max_pool2d", Shape({0, 1, 2, 2}), 0,
        std::get<0>(fractional_max_pool2d(zeros({0, 1, 4, 4}), {2, 2}, {2, 2}, zeros({0, 1, 2}))));
  EMPTY("fractional_max_pool3d", Shape({0, 1, 2, 2, 2}), 0,
        std::get<0>(fractional_max_pool3d(zeros({0, 1, 4, 4, 4}), {2}, {2}, zeros({0, 1, 3}))));
}

#undef EMPTY

}  // namespace

const std::vector<EmptyCall>& empty_calls() {
  static const EmptyCallList all = [] {
    EmptyCallList list;
    add_first_empty_calls(list);
    add_second_empty_calls(list);
    return list;
  }();
  return all;
}

}  // namespace athanor::op_table
