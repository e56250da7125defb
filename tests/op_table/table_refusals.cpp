// Refusals of ops whose rows have none.
#include "op_table/table_further.h"

namespace athanor::op_table {

namespace {

using RefusalList = std::vector<FurtherRefusal>;

#define REFUSE(op, what, message, ...) list.push_back({op, {what, [] { __VA_ARGS__; }, message}})
#define BROADCASTS(op) \
  REFUSE(#op, "shapes that do not broadcast", "must match the size of tensor b", op(ones({2}), ones({3})))
#define NEEDS_TENSOR(op, message) REFUSE(#op, "an undefined tensor", message, op(Tensor()))

void add_shape_refusals(RefusalList& list) {
  BROADCASTS(mul);
  BROADCASTS(div);
  BROADCASTS(remainder);
  BROADCASTS(fmod);
  BROADCASTS(eq);
  BROADCASTS(ne);
  BROADCASTS(lt);
  BROADCASTS(le);
  BROADCASTS(gt);
  BROADCASTS(ge);
  BROADCASTS(logical_and);
  BROADCASTS(logical_or);
  BROADCASTS(logical_xor);
  BROADCASTS(maximum);
  BROADCASTS(minimum);
  BROADCASTS(fmax);
  BROADCASTS(fmin);
  BROADCASTS(float_power);
  BROADCASTS(ldexp);
  BROADCASTS(atan2);
  BROADCASTS(hypot);
  BROADCASTS(copysign);
  BROADCASTS(nextafter);
  BROADCASTS(xlogy);
  BROADCASTS(logaddexp);
  BROADCASTS(logaddexp2);
  BROADCASTS(heaviside);
}

void add_undefined_refusals(RefusalList& list) {
  NEEDS_TENSOR(zeros_like, "an undefined one");
  NEEDS_TENSOR(ones_like, "an undefined one");
  NEEDS_TENSOR(empty_like, "an undefined one");
  NEEDS_TENSOR(rand_like, "an undefined one");
  NEEDS_TENSOR(randn_like, "an undefined one");
  NEEDS_TENSOR(nonzero, "an undefined one");
  NEEDS_TENSOR(argwhere, "an undefined one");
  NEEDS_TENSOR(nonzero_numpy, "an undefined one");
  NEEDS_TENSOR(msort, "an undefined one");
  NEEDS_TENSOR(median, "an undefined one");
  NEEDS_TENSOR(nanmedian, "an undefined one");
  NEEDS_TENSOR(sum, "an undefined one");
  NEEDS_TENSOR(nansum, "an undefined one");
  NEEDS_TENSOR(prod, "an undefined one");
  NEEDS_TENSOR(all, "an undefined one");
  NEEDS_TENSOR(any, "an undefined one");
  NEEDS_TENSOR(atleast_1d, "an undefined one");
  NEEDS_TENSOR(atleast_2d, "an undefined one");
  NEEDS_TENSOR(atleast_3d, "an undefined one");
  NEEDS_TENSOR(ravel, "an undefined one");
  NEEDS_TENSOR(sign, "got an undefined one");
  NEEDS_TENSOR(sgn, "got an undefined one");
  NEEDS_TENSOR(sqrt, "got an undefined one");
  NEEDS_TENSOR(rsqrt, "got an undefined one");
  NEEDS_TENSOR(reciprocal, "got an undefined one");
  NEEDS_TENSOR(exp, "got an undefined one");
  NEEDS_TENSOR(exp2, "got an undefined one");
  NEEDS_TENSOR(expm1, "got an undefined one");
  NEEDS_TENSOR(log, "got an undefined one");
  NEEDS_TENSOR(log2, "got an undefined one");
  NEEDS_TENSOR(log10, "got an undefined one");
  NEEDS_TENSOR(log1p, "got an undefined one");
  NEEDS_TENSOR(sin, "got an undefined one");
  NEEDS_TENSOR(cos, "got an undefined one");
  NEEDS_TENSOR(tan, "got an undefined one");
  NEEDS_TENSOR(asin, "got an undefined one");
  NEEDS_TENSOR(acos, "got an undefined one");
  NEEDS_TENSOR(atan, "got an undefined one");
  NEEDS_TENSOR(sinh, "got an undefined one");
  NEEDS_TENSOR(cosh, "got an undefined one");
  NEEDS_TENSOR(tanh, "got an undefined one");
  NEEDS_TENSOR(asinh, "got an undefined one");
  NEEDS_TENSOR(acosh, "got an undefined one");
  NEEDS_TENSOR(atanh, "got an undefined one");
  NEEDS_TENSOR(sinc, "got an undefined one");
  NEEDS_TENSOR(deg2rad, "got an undefined one");
  NEEDS_TENSOR(rad2deg, "got an undefined one");
  NEEDS_TENSOR(erf, "got an undefined one");
  NEEDS_TENSOR(erfc, "got an undefined one");
  NEEDS_TENSOR(erfinv, "got an undefined one");
  NEEDS_TENSOR(lgamma, "got an undefined one");
  NEEDS_TENSOR(digamma, "got an undefined one");
  NEEDS_TENSOR(sigmoid, "got an undefined one");
  NEEDS_TENSOR(isnan, "got an undefined one");
  NEEDS_TENSOR(isinf, "got an undefined one");
  NEEDS_TENSOR(isfinite, "got an undefined one");
  NEEDS_TENSOR(isposinf, "got an undefined one");
  NEEDS_TENSOR(isneginf, "got an undefined one");
  NEEDS_TENSOR(signbit, "got an undefined one");
  NEEDS_TENSOR(logical_not, "got an undefined one");
  NEEDS_TENSOR(trigamma, "got an undefined one");
  NEEDS_TENSOR(logit, "got an undefined one");
  NEEDS_TENSOR(nan_to_num, "an undefined one");
  NEEDS_TENSOR(unique, "an undefined one");
  NEEDS_TENSOR(squeeze, "got an undefined one");
}

void add_other_refusals(RefusalList& list) {
  REFUSE("pow.Tensor_Tensor", "shapes that do not broadcast", "must match the size of tensor b",
         pow(ones({2}), ones({3})));
  REFUSE("max.other", "shapes that do not broadcast", "must match the size of tensor b", max(ones({2}), ones({3})));
  REFUSE("min.other", "shapes that do not broadcast", "must match the size of tensor b", min(ones({2}), ones({3})));
  REFUSE("lcm", "shapes that do not broadcast", "must match the size of tensor b",
         lcm(ones({2}, kLong), ones({3}, kLong)));
  REFUSE("add.Scalar", "an undefined tensor", "expected a tensor, got an undefined one", add(Tensor(), 2));
  REFUSE("rsub.Scalar", "an undefined tensor", "expected a tensor, got an undefined one", rsub(Tensor(), 2));
  REFUSE("mul.Scalar", "an undefined tensor", "expected a tensor, got an undefined one", mul(Tensor(), 2));
  REFUSE("div.Scalar", "an undefined tensor", "expected a tensor, got an undefined one", div(Tensor(), 2));
  REFUSE("eq.Scalar", "an undefined tensor", "expected a tensor, got an undefined one", eq(Tensor(), 2));
  REFUSE("ne.Scalar", "an undefined tensor", "expected a tensor, got an undefined one", ne(Tensor(), 2));
  REFUSE("lt.Scalar", "an undefined tensor", "expected a tensor, got an undefined one", lt(Tensor(), 2));
  REFUSE("le.Scalar", "an undefined tensor", "expected a tensor, got an undefined one", le(Tensor(), 2));
  REFUSE("gt.Scalar", "an undefined tensor", "expected a tensor, got an undefined one", gt(Tensor(), 2));
  REFUSE("ge.Scalar", "an undefined tensor", "expected a tensor, got an undefined one", ge(Tensor(), 2));
  REFUSE("rdiv", "an undefined tensor", "expected a tensor, got an undefined one", rdiv(Tensor(), 2));
  REFUSE("div.Scalar_mode", "an unknown mode", "expected rounding_mode", div(ones({2}), 3, "round"));
  REFUSE("floor_divide.Scalar", "whole numbers divided by 0", "ZeroDivisionError", floor_divide(ones({2}, kLong), 0));
  REFUSE("remainder.Scalar", "whole numbers divided by 0", "ZeroDivisionError", remainder(ones({2}, kLong), 0));
  REFUSE("fmod.Scalar", "whole numbers divided by 0", "ZeroDivisionError", fmod(ones({2}, kLong), 0));
  REFUSE("bitwise_and.Scalar", "floats", "expected integer or bool operands", bitwise_and(ones({2}), 6));
  REFUSE("bitwise_or.Scalar", "floats", "expected integer or bool operands", bitwise_or(ones({2}), 6));
  REFUSE("bitwise_xor.Scalar", "floats", "expected integer or bool operands", bitwise_xor(ones({2}), 6));
  REFUSE("bitwise_left_shift.Tensor_Scalar", "an undefined tensor", "expected a tensor, got an undefined one",
         bitwise_left_shift(Tensor(), 2));
  REFUSE("bitwise_right_shift.Tensor_Scalar", "an undefined tensor", "expected a tensor, got an undefined one",
         bitwise_right_shift(Tensor(), 2));
  REFUSE("pow.Scalar", "an undefined tensor", "expected a tensor, got an undefined one", pow(2, Tensor()));
  REFUSE("float_power.Scalar", "an undefined tensor", "expected a tensor, got an undefined one",
         float_power(Tensor(), 2));
  REFUSE("copysign.Scalar", "an undefined tensor", "an undefined one", copysign(Tensor(), 2));
  REFUSE("xlogy.Scalar_Other", "an undefined tensor", "an undefined one", xlogy(Tensor(), 2));
  REFUSE("xlogy.Scalar_Self", "an undefined tensor", "an undefined one", xlogy(2, Tensor()));
  REFUSE("kron", "an undefined tensor", "expected tensors, got an undefined one", kron(Tensor(), ones({2})));
  REFUSE("convolution", "channels of another number", "have 1 channels, but got 2",
         convolution(ones({1, 2, 4}), ones({3, 1, 2}), {}, {1}, {0}, {1}, false, {0}, 1));
  REFUSE("full_like", "a number that does not fit", "without overflow", full_like(ones({2}, kByte), 300));
  REFUSE("new_empty", "a negative size", "negative dimension", ones({2}).new_empty({-1}));
  REFUSE("new_zeros", "a negative size", "negative dimension", ones({2}).new_zeros({-1}));
  REFUSE("new_ones", "a negative size", "negative dimension", ones({2}).new_ones({-1}));
  REFUSE("new_full", "a negative size", "negative dimension", ones({2}).new_full({-1}, 2));
  REFUSE("scalar_tensor", "a number that does not fit", "without overflow", scalar_tensor(300, kByte));
  REFUSE("zero_", "a leaf that wants its gradient", "a leaf Variable", ones({2}).requires_grad_().zero_());
  REFUSE("clone", "an undefined tensor", "an undefined one", Tensor().clone());
  REFUSE("contiguous", "an undefined tensor", "an undefined one", Tensor().contiguous());
  REFUSE("to_dtype", "an undefined tensor", "an undefined one", to_dtype(Tensor(), kDouble));
  REFUSE("to.dtype", "an undefined tensor", "an undefined one", Tensor().to(kDouble));
  REFUSE("to.device", "a device that is not there", "is not available", ones({2}).to(Device("cuda:7"), kDouble));
  REFUSE("to.other", "an undefined tensor", "an undefined one", ones({2}).to(Tensor()));
  REFUSE("type_as", "an undefined tensor", "an undefined one", ones({2}).type_as(Tensor()));
  REFUSE("to", "an undefined tensor", "an undefined one", Tensor().to(TensorOptions(kDouble)));
  REFUSE("to_device", "a device that is not there", "is not available", to_device(ones({2}), Device("cuda:7")));
  REFUSE("detach", "an undefined tensor", "the tensor is not defined", Tensor().detach());
  REFUSE("equal", "an undefined tensor", "an undefined one", equal(Tensor(), ones({2})));
  REFUSE("allclose", "other dtypes", "did not match", allclose(ones({2}), ones({2}, kLong)));
  REFUSE("diagflat", "an offset that no matrix has", "makes the result too large", diagflat(ones({2}), INT64_MAX));
  REFUSE("embedding_renorm_", "indices that are no integers", "expected an index of dtype", Tensor w = ones({3, 2});
         embedding_renorm_(w, ones({2}), 1, 2));
  REFUSE("cat_same_dtype", "shapes that do not fit", "Sizes of tensors must match",
         cat_same_dtype({ones({2, 3}), ones({2, 4})}, 0));
  REFUSE("roll_dims", "other numbers of shifts and dims", "must align", roll_dims(ones({2, 3}), {1, 2}, {0}));
  REFUSE("tile", "a negative number", "negative dimension", tile(ones({2}), {-1}));
  REFUSE("repeat_interleave_dim", "numbers of repeats that do not fit", "repeats has 2 entries",
         repeat_interleave_dim(ones({3}), ones({2}, kLong), 0, 2));
  REFUSE("repeat_interleave.int", "a negative number", "negative dimension", repeat_interleave(ones({3}), -1, 0));
  REFUSE("nll_loss_forward", "targets of another size", "Expected target size",
         nll_loss_forward(ones({2, 3}), ones({3}, kLong), {}, 1, -100));
  REFUSE("margin_ranking_loss", "shapes that do not broadcast", "must match the size of tensor b",
         margin_ranking_loss(ones({2}), ones({3}), ones({2})));
  REFUSE("ctc_loss.Tensor", "lengths of another size", "must be of size batch_size",
         ctc_loss(ones({4, 2, 3}), ones({2, 2}, kLong), full({3}, 4, kLong), ones({2}, kLong)));
  REFUSE("cumprod", "a dim beyond the last", "Dimension out of range", cumprod(ones({2}), 1));
  REFUSE("logcumsumexp", "a dim beyond the last", "Dimension out of range", logcumsumexp(ones({2}), 1));
  REFUSE("cummax", "a dim beyond the last", "Dimension out of range", cummax(ones({2}), 1));
  REFUSE("cummin", "a dim beyond the last", "Dimension out of range", cummin(ones({2}), 1));
  REFUSE("sort.stable", "a dim beyond the last", "Dimension out of range", sort(ones({2}), true, 1));
  REFUSE("argsort", "a dim beyond the last", "Dimension out of range", argsort(ones({2}), std::int64_t{1}));
  REFUSE("argsort.stable", "a dim beyond the last", "Dimension out of range", argsort(ones({2}), true, 1));
  REFUSE("mode", "a dim beyond the last", "Dimension out of range", mode(ones({2}), 1));
  REFUSE("max_pool_gather", "indices of another rank", "Dimension out of range",
         max_pool_gather(ones({1, 1, 4}), zeros({1, 2}, kLong), {2}, {2}, {0}, {1}));
  REFUSE("random_", "bounds without numbers between", "'from' to be less than 'to'", ones({2}).random_(3, 3));
  REFUSE("rand", "a negative size", "negative dimension", rand({-1}));
  REFUSE("rand.generator", "a negative size", "negative dimension", rand({-1}, default_generator()));
  REFUSE("randn", "a negative size", "negative dimension", randn({-1}));
  REFUSE("randn.generator", "a negative size", "negative dimension", randn({-1}, default_generator()));
  REFUSE("randint.generator", "bounds without numbers between", "'from' to be less than 'to'",
         randint(0, {2}, default_generator()));
  REFUSE("randint.low_generator", "bounds without numbers between", "'from' to be less than 'to'",
         randint(3, 3, {2}, default_generator()));
  REFUSE("randint_like", "bounds without numbers between", "'from' to be less than 'to'", randint_like(ones({2}), 0));
  REFUSE("randint_like.low", "bounds without numbers between", "'from' to be less than 'to'",
         randint_like(ones({2}), 3, 3));
  REFUSE("randperm.generator", "a negative number", "must be non-negative", randperm(-1, default_generator()));
  REFUSE("bernoulli.p", "a probability above 1", "p to be in [0, 1]", bernoulli(ones({2}), 1.5));
  REFUSE("normal.Tensor_float", "a negative deviation", "std >= 0.0", normal(ones({2}), -1));
  REFUSE("normal.float_Tensor", "a negative deviation", "std >= 0.0", normal(1, full({2}, -1.0)));
  REFUSE("normal.Tensor_Tensor", "a negative deviation", "std >= 0.0", normal(ones({2}), full({2}, -1.0)));
  REFUSE("logsumexp", "a dim beyond the last", "Dimension out of range", logsumexp(ones({2}), 1));
  REFUSE("amin", "an empty dim", "non-zero size", amin(ones({2, 0}), 1));
  REFUSE("aminmax", "nothing", "Expected reduction dim to be specified", aminmax(ones({0})));
  REFUSE("polygamma", "a negative order", "does not support negative n", polygamma(-1, ones({2})));
  REFUSE("prod.dim_int", "a dim beyond the last", "Dimension out of range", prod(ones({2}), 1));
  REFUSE("norm.ScalarOpt_dtype", "an integer dtype", "could not infer output dtype", norm(ones({2}), 2, kLong));
  REFUSE("norm.ScalarOpt_dim_dtype", "an integer dtype", "could not infer output dtype",
         norm(ones({2}), 2, {0}, false, kLong));
  REFUSE("all.dim", "a dim beyond the last", "Dimension out of range", all(ones({2}), 1));
  REFUSE("all.dims", "a dim twice", "appears multiple times", all(ones({2}), OptionalIntArrayRef(IntArrayRef({0, 0}))));
  REFUSE("any.dim", "a dim beyond the last", "Dimension out of range", any(ones({2}), 1));
  REFUSE("any.dims", "a dim twice", "appears multiple times", any(ones({2}), OptionalIntArrayRef(IntArrayRef({0, 0}))));
  REFUSE("count_nonzero", "a dim beyond the last", "Dimension out of range",
         count_nonzero(ones({2}), std::optional<std::int64_t>(1)));
  REFUSE("count_nonzero.dim_IntList", "a dim twice", "appears multiple times", count_nonzero(ones({2}), {0, 0}));
  REFUSE("reshape_as", "a shape of another number of elements", "is invalid for input of size 2",
         ones({2}).reshape_as(ones({3})));
  REFUSE("atleast_1d.Sequence", "an undefined tensor", "an undefined one", atleast_1d({Tensor()}));
  REFUSE("atleast_2d.Sequence", "an undefined tensor", "an undefined one", atleast_2d({Tensor()}));
  REFUSE("atleast_3d.Sequence", "an undefined tensor", "an undefined one", atleast_3d({Tensor()}));
  REFUSE("unique_consecutive", "a dim beyond the last", "Dimension out of range",
         unique_consecutive(ones({2}), false, false, 1));
  REFUSE("isin.Tensor_Tensor", "an undefined tensor", "an undefined one", isin(Tensor(), ones({2})));
  REFUSE("isin.Tensor_Scalar", "an undefined tensor", "expected a tensor, got an undefined one", isin(Tensor(), 2));
  REFUSE("isin.Scalar_Tensor", "an undefined tensor", "an undefined one", isin(2, Tensor()));
  REFUSE("searchsorted.Scalar", "both sides", "can't be set to opposites",
         searchsorted(ones({2}), 1, false, true, "left"));
  REFUSE("bucketize.Scalar", "boundaries of two dims", "must be 1 dimension", bucketize(1, ones({2, 2})));
  REFUSE("trapezoid.dx", "a dim beyond the last", "Dimension out of range", trapezoid(ones({2}), Scalar(1), 1));
  REFUSE("cumulative_trapezoid.dx", "a dim beyond the last", "Dimension out of range",
         cumulative_trapezoid(ones({2}), Scalar(1), 1));
  REFUSE("cumulative_trapezoid.x", "points of another number", "one `x` value for each",
         cumulative_trapezoid(ones({3}), ones({4})));
  REFUSE("where.ScalarSelf", "a condition of floats", "condition to be a boolean tensor",
         where(ones({2}), 1, ones({2})));
  REFUSE("where.ScalarOther", "a condition of floats", "condition to be a boolean tensor",
         where(ones({2}), ones({2}), 1));
  REFUSE("where.Scalar", "a condition of floats", "condition to be a boolean tensor", where(ones({2}), 1, 2));
  REFUSE("clamp_min", "an undefined tensor", "an undefined one", clamp_min(Tensor(), 1));
  REFUSE("clamp_max", "an undefined tensor", "an undefined one", clamp_max(Tensor(), 1));
  REFUSE("clamp_min.Tensor", "shapes that do not broadcast", "must match the size of tensor b",
         clamp_min(ones({2}), ones({3})));
  REFUSE("clamp_max.Tensor", "shapes that do not broadcast", "must match the size of tensor b",
         clamp_max(ones({2}), ones({3})));
  REFUSE("clamp.Tensor", "shapes that do not broadcast", "must match the size of tensor b",
         clamp(ones({2}), ones({3})));
  REFUSE("lerp.Tensor", "shapes that do not broadcast", "must match the size of tensor b",
         lerp(ones({2}), ones({2}), ones({3})));
  REFUSE("addcmul", "shapes that do not broadcast", "must match the size of tensor b",
         addcmul(ones({2}), ones({2}), ones({3})));
  REFUSE("slice_backward", "a gradient longer than the slice",
         "a slice of [5] has the shape [2], but its gradient has [3]", slice_backward(ones({3}), {5}, 0, 1, 4, 2));
  REFUSE("slice_backward", "a gradient shorter than the slice", "its gradient has [1, 4]",
         slice_backward(ones({1, 4}), {3, 4}, 0, 0, 2, 1));
  REFUSE("slice_backward", "a gradient without a dim", "its gradient has []",
         slice_backward(ones({}), {5}, 0, 0, 1, 1));
  REFUSE("diagonal_backward", "a gradient longer than the diagonal",
         "diagonal 1 of [2, 4] has the shape [2], but its gradient has [4]",
         diagonal_backward(ones({4}), {2, 4}, 1, 0, 1));
  REFUSE("diagonal_backward", "a gradient of the outer dims' other order", "its gradient has [2, 3]",
         diagonal_backward(ones({2, 3}), {3, 2, 3}, 0, 0, 1));
}

}  // namespace

const std::vector<FurtherRefusal>& further_refusals() {
  static const RefusalList all = [] {
    RefusalList list;
    add_shape_refusals(list);
    add_undefined_refusals(list);
    add_other_refusals(list);
    return list;
  }();
  return all;
}

#undef REFUSE
#undef BROADCASTS
#undef NEEDS_TENSOR

}  // namespace athanor::op_table
