"""What Python's help says of ops whose schemas stand without a comment, by their names in athanor/ops. An op whose schema has
a comment has that, and a public op with neither fails the build."""

_ANGLE = "The {} of each element, in radians."
_ELEMENT = "{} of each element. Integers give floating results."
_COMPARE = "Whether each element of input is {} that of other, as bools. Shapes broadcast."
_LOGIC = "Whether {} nonzero, as bools. Shapes broadcast."
_NEW = "A tensor of the given size {}, with this one's dtype and device unless others are given."
_LIKE = "A tensor {} of the input's shape, and of its dtype and device unless others are given."
_POOL = ("The {what} of windows of input, (N, C, {size}) or (C, {size}). stride is the kernel's size unless given; padding is at "
         "most half the kernel.{more}")
_ADAPTIVE = ("The {what} of windows that cut the last {n} dims of input, (N, C, …) or (C, …), into output_size parts; None keeps "
             "a size.{more}")
_RESIZE = "input, (N, C, {size}), resized to output_size {how}; scales say how places are mapped instead of the sizes' ratio."
_PLACES = " Also returns where each came from, as a place within its channel."
_SIZES = {1: "L", 2: "H, W", 3: "D, H, W"}

DOCS = {
    "selu": "1.0507 · (max(0, x) + min(0, 1.67326 · (exp(x) - 1))) of each element.",
    "floor_divide": "input / other, rounded down. Shapes broadcast; integers divided by zero raise RuntimeError.",
    "eq": _COMPARE.format("equal to"),
    "ne": _COMPARE.format("not equal to"),
    "lt": _COMPARE.format("less than"),
    "le": _COMPARE.format("at most"),
    "gt": _COMPARE.format("greater than"),
    "ge": _COMPARE.format("at least"),
    "logical_and": _LOGIC.format("both elements are"),
    "logical_or": _LOGIC.format("at least one element is"),
    "logical_xor": _LOGIC.format("just one of both elements is"),
    "logical_not": "Whether each element is zero, as bools.",
    "bitwise_and": "Bit by bit, whether both are set, of integers or bools. Shapes broadcast; TypeError for floating ones.",
    "bitwise_or": "Bit by bit, whether one is set, of integers or bools. Shapes broadcast; TypeError for floating ones.",
    "bitwise_xor": "Bit by bit, whether they differ, of integers or bools. Shapes broadcast; TypeError for floating ones.",
    "bitwise_left_shift": "Integers shifted to higher bits by other places. Shapes broadcast.",
    "bitwise_right_shift": "Integers shifted to lower bits by other places, keeping the sign. Shapes broadcast.",
    "matrix_power": "The product of n equal matrices, (*, m, m); of their inverses for a negative n: LinAlgError if there is none.",
    "conv3d": "Cross-correlation of input, (N, C, D, H, W) or without N, with weight, (out, C / groups, kD, kH, kW).",
    "conv_transpose2d": "The gradient of conv2d as a layer: input, (N, C, H, W) or without N, weight, (C, out / groups, kH, kW).",
    "conv_transpose3d": "The gradient of conv3d as a layer: input, (N, C, D, H, W) or without N, weight, (C, out / groups, "
                        "kD, kH, kW).",
    "fill_": "Sets all elements to value.",
    "zero_": "Sets all elements to zero.",
    "type_as": "The tensor in the dtype, and on the device, of other.",
    "full": "A tensor of the given size filled with fill_value, whose type decides the dtype unless one is given.",
    "zeros": "A tensor of zeros.",
    "ones": "A tensor of ones.",
    "full_like": _LIKE.format("filled with fill_value"),
    "zeros_like": _LIKE.format("of zeros"),
    "ones_like": _LIKE.format("of ones"),
    "rand_like": _LIKE.format("of numbers drawn evenly from [0, 1)"),
    "randn_like": _LIKE.format("of numbers from the normal distribution"),
    "randint_like": _LIKE.format("of integers drawn evenly from low (0) up to, but not including, high"),
    "new_empty": _NEW.format("with any values"),
    "new_empty_strided": _NEW.format("and strides with any values"),
    "new_zeros": _NEW.format("of zeros"),
    "new_ones": _NEW.format("of ones"),
    "new_full": _NEW.format("filled with fill_value"),
    "concat": "Another name of cat: the tensors one after the other along dim; their other dims are equal.",
    "hstack": "The tensors side by side: along the second dim, the first for vectors.",
    "vstack": "The tensors on top of each other: along the first dim; vectors are rows.",
    "dstack": "The tensors behind each other: along the third dim, which smaller ones get.",
    "fliplr": "The columns in reverse order. RuntimeError below two dims.",
    "flipud": "The rows in reverse order. RuntimeError for a tensor of no dims.",
    "roll": "Elements moved on by shifts along dims, from the end back to the beginning; in flattened order without dims.",
    "tile": "The tensor repeated dims times along its last dims.",
    "inverse": "The inverse of each matrix, (*, n, n). LinAlgError if there is none.",
    "slogdet": "The sign of the determinant of each matrix, (*, n, n), and the logarithm of its size.",
    "det": "The determinant of each matrix, (*, n, n).",
    "cholesky": "L, lower triangular with L Lᵀ = input, of each symmetric positive-definite matrix, (*, n, n), or Lᵀ with upper. "
                "LinAlgError for others.",
    "nll_loss2d": "The negative log-likelihood loss of input, (N, C, H, W), and targets, (N, H, W), that are classes.",
    "binary_cross_entropy": "The loss of probabilities against targets of the same shape, averaged with reduction 1, summed with 2. "
                            "RuntimeError for an input outside [0, 1].",
    "vdot": "The sum of products of two vectors of one length.",
    "ger": "Another name of outer: the products of each element of input with each of vec2, (n, m).",
    "normal_": "Draws each element from the normal distribution with mean and std.",
    "normal": "Numbers from the normal distribution; mean and std are numbers or tensors that broadcast.",
    "exponential_": "Draws each element from the exponential distribution with rate lambd.",
    "cauchy_": "Draws each element from the Cauchy distribution.",
    "dropout_": "Sets elements to zero with probability p and divides the others by 1 - p, if train.",
    "feature_dropout_": "Sets whole channels to zero with probability p and divides the others by 1 - p, if train.",
    "all": "Whether all elements, or all along dim, are nonzero. True of none.",
    "any": "Whether any element, or any along dim, is nonzero. False of none.",
    "var_mean": "Variance and mean over dims, all of them unless given; divided by the number less correction (1).",
    "std_mean": "Standard deviation and mean over dims, all of them unless given; divided by the number less correction (1).",
    "view_as": "The same values in the shape of other, without a copy. RuntimeError where that needs one.",
    "reshape_as": "The same values in the shape of other; a view where possible.",
    "expand_as": "A view repeated to the shape of other along dims of one element.",
    "broadcast_to": "A view repeated to the given size along dims of one element, and along new ones in front.",
    "argsort": "The places that sort the elements along dim.",
    "clamp_min": "The greater of each element and min, a number or a tensor that broadcasts.",
    "clamp_max": "The lesser of each element and max, a number or a tensor that broadcasts.",
    "clip": "Another name of clamp: each element, or min where it is less, or max where it is greater.",
    "abs": "The absolute value of each element.",
    "ceil": "The least integer that is not below each element.",
    "floor": "The greatest integer that is not above each element.",
    "sqrt": _ELEMENT.format("The square root") + " NaN below zero.",
    "exp": _ELEMENT.format("e to the power"),
    "exp2": _ELEMENT.format("Two to the power"),
    "expm1": _ELEMENT.format("exp(x) - 1, exact near zero,"),
    "log": _ELEMENT.format("The natural logarithm") + " NaN below zero.",
    "log2": _ELEMENT.format("The logarithm to base 2") + " NaN below zero.",
    "log10": _ELEMENT.format("The logarithm to base 10") + " NaN below zero.",
    "log1p": _ELEMENT.format("log(1 + x), exact near zero,"),
    "sin": _ELEMENT.format("The sine"),
    "cos": _ELEMENT.format("The cosine"),
    "tan": _ELEMENT.format("The tangent"),
    "asin": _ANGLE.format("arcsine") + " NaN outside [-1, 1].",
    "acos": _ANGLE.format("arccosine") + " NaN outside [-1, 1].",
    "atan": _ANGLE.format("arctangent"),
    "sinh": _ELEMENT.format("The hyperbolic sine"),
    "cosh": _ELEMENT.format("The hyperbolic cosine"),
    "tanh": _ELEMENT.format("The hyperbolic tangent"),
    "asinh": _ELEMENT.format("The inverse hyperbolic sine"),
    "acosh": _ELEMENT.format("The inverse hyperbolic cosine") + " NaN below 1.",
    "atanh": _ELEMENT.format("The inverse hyperbolic tangent") + " NaN outside [-1, 1].",
    "erf": _ELEMENT.format("The error function"),
    "isnan": "Whether each element is NaN.",
    "isinf": "Whether each element is infinite.",
    "isfinite": "Whether each element is neither infinite nor NaN.",
    "isposinf": "Whether each element is +inf.",
    "isneginf": "Whether each element is -inf.",
    "blackman_window": "Blackman's window of window_length floats: the beginning of one that is longer by one if periodic.",
}
for _n, _size in _SIZES.items():
    _window = {"n": _n, "size": _size}
    DOCS[f"max_pool{_n}d"] = _POOL.format(what="greatest element", more="", **_window)
    DOCS[f"max_pool{_n}d_with_indices"] = _POOL.format(what="greatest element", more=_PLACES, **_window)
    DOCS[f"avg_pool{_n}d"] = _POOL.format(what="mean", more=" count_include_pad: padding counts as zeros.", **_window)
    DOCS[f"adaptive_avg_pool{_n}d"] = _ADAPTIVE.format(what="mean", more="", **_window)
    DOCS[f"adaptive_max_pool{_n}d"] = _ADAPTIVE.format(what="greatest element", more=_PLACES, **_window)
    DOCS[f"upsample_nearest{_n}d"] = _RESIZE.format(how="by the nearest element", size=_size)
DOCS["fractional_max_pool3d"] = ("The greatest element of windows of kernel_size whose places random_samples, (N, C, 3), choose so "
                                 "that there are output_size of them." + _PLACES)
for _name, _size, _how in (("linear1d", "L", "linearly"), ("bilinear2d", "H, W", "bilinearly"),
                           ("trilinear3d", "D, H, W", "trilinearly"), ("bicubic2d", "H, W", "by cubic convolution")):
    DOCS[f"upsample_{_name}"] = _RESIZE.format(how=_how, size=_size)
