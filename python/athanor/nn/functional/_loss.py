"""Losses. reduction: "mean", "sum" or "none"; size_average and reduce are its old forms."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Optional, Union

import athanor
from athanor import _C
from athanor._C import Tensor
from athanor.nn._reduction import get_enum, number_of

_ops = _C.ops
_Flag = Optional[bool]


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss


def _warn_sizes(input: Tensor, target: Tensor) -> None:
    if input.size() != target.size():
        warnings.warn(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}). This will "
            "likely lead to incorrect results due to broadcasting. Please ensure they have the same size.",
            stacklevel=3,
        )


def _check_batch(input: Tensor, target: Tensor) -> None:
    """Looked at when a loss has failed: a ValueError for batches of different size, as programs expect it."""
    if input.dim() > 1 and target.dim() > 0 and input.size(0) != target.size(0):
        raise ValueError(f"Expected input batch_size ({input.size(0)}) to match target batch_size ({target.size(0)}).")


def _weighed(loss: Tensor, input: Tensor, weight: Tensor) -> Tensor:
    if weight.size() != input.size():
        raise ValueError("Weights and input must have the same size.")
    return loss * weight


def _weighted(loss: Tensor, input: Tensor, weight: Tensor, reduction: int) -> Tensor:
    loss = _weighed(loss, input, weight)
    return loss.sum() / weight.sum() if reduction == 1 else _reduced(loss, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
    weight: Optional[Tensor] = None,
) -> Tensor:
    """|input - target|. weight: of each element; "mean" divides by their sum."""
    number = number_of(reduction, size_average, reduce)
    _warn_sizes(input, target)
    if weight is not None:
        return _weighted(_ops.l1_loss(input, target, 0), input, weight, number)
    return _ops.l1_loss(input, target, number)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
    weight: Optional[Tensor] = None,
) -> Tensor:
    """(input - target)². weight: of each element; "mean" divides by their sum."""
    number = number_of(reduction, size_average, reduce)
    _warn_sizes(input, target)
    if weight is not None:
        return _weighted(_ops.mse_loss(input, target, 0), input, weight, number)
    return _ops.mse_loss(input, target, number)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """d² / (2 beta) where d = |input - target| is below beta, else d - beta / 2."""
    number = number_of(reduction, size_average, reduce)
    _warn_sizes(input, target)
    return _ops.smooth_l1_loss(input, target, number, beta) if beta != 0 else _ops.l1_loss(input, target, number)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Optional[Tensor] = None
) -> Tensor:
    """d² / 2 where d = |input - target| is below delta, else delta (d - delta / 2)."""
    number = get_enum(reduction)
    _warn_sizes(input, target)
    if weight is not None:
        # The mean is over the elements here, as in PyTorch, where the other losses divide by the sum of the weights.
        return _reduced(_weighed(_ops.huber_loss(input, target, 0, delta), input, weight), number)
    return _ops.huber_loss(input, target, number, delta)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: _Flag = None,
    ignore_index: int = -100,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """Minus the entry of input (N, C, *) or (C), log-probabilities, that target (N, *) names. weight: of each class."""
    number = number_of(reduction, size_average, reduce)
    if target.dtype == athanor.uint8:
        target = target.long()
    try:
        return _ops.nll_loss(input, target, weight, number, ignore_index)
    except RuntimeError:
        _check_batch(input, target)
        raise


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: _Flag = None,
    ignore_index: int = -100,
    reduce: _Flag = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """nll_loss of input's log_softmax over the classes. target: classes (N, *), or probabilities of input's shape."""
    number = number_of(reduction, size_average, reduce)
    if ignore_index >= 0 and target.is_floating_point() and target.shape == input.shape:
        raise RuntimeError(f"ignore_index is not supported for floating point target, got ignore_index={ignore_index}")
    if target.dtype == athanor.uint8:
        target = target.long()
    try:
        return _ops.cross_entropy_loss(input, target, weight, number, ignore_index, label_smoothing)
    except RuntimeError:
        _check_batch(input, target)
        raise


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target (log(target) - input), input being log-probabilities. reduction "batchmean": the sum by examples."""
    if size_average is None and reduce is None and reduction == "batchmean":
        total = _ops.kl_div(input, target, 2, log_target=log_target)
        return total if input.dim() == 0 else total / input.size(0)
    if reduction == "mean" and size_average is None and reduce is None:
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides "
            "only by the batch size, and aligns with the KL div math definition.'mean' will be changed to behave the "
            "same as 'batchmean' in the next major release.",
            stacklevel=2,
        )
    return _ops.kl_div(input, target, number_of(reduction, size_average, reduce), log_target=log_target)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """-(target log(input) + (1 - target) log(1 - input)). ValueError for different shapes."""
    number = number_of(reduction, size_average, reduce)
    if target.size() != input.size():
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}) is "
            "deprecated. Please ensure they have the same size."
        )
    if weight is not None and weight.size() != target.size():
        weight = weight.expand(target.size())
    return _ops.binary_cross_entropy(input, target, weight, number)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
    pos_weight: Optional[Tensor] = None,
) -> Tensor:
    """binary_cross_entropy of sigmoid(input), computed without overflow. pos_weight: of the target's ones."""
    number = number_of(reduction, size_average, reduce)
    if target.size() != input.size():
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    return _ops.binary_cross_entropy_with_logits(input, target, weight, pos_weight, number)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: _Flag = None,
    eps: float = 1e-8,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(input) - target · input, or input - target log(input + eps) without log_input. full: Stirling's term too."""
    number = number_of(reduction, size_average, reduce)
    return _ops.poisson_nll_loss(input, target, log_input, full, eps, number)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Union[Tensor, float],
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(var) + (input - target)² / var) / 2, var being at least eps. full: the constant term too."""
    if not isinstance(var, Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = athanor.full_like(input, var)
    elif (var < 0).any():
        raise ValueError("var has negative entry/entries")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    if var.size() != input.size() and not (
        tuple(input.shape[:-1]) == tuple(var.shape)
        or tuple(var.shape) == (*input.shape[:-1], 1)
        or (var.dim() == input.dim() and all(v in (1, n) for v, n in zip(var.shape, input.shape)))
    ):
        raise ValueError("var is of incorrect size")
    if var.dim() == input.dim():
        var = var.expand_as(input)
    return _ops.gaussian_nll_loss(input, target, var, full, eps, get_enum(reduction))


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target (input1 - input2) + margin)."""
    number = number_of(reduction, size_average, reduce)
    if input1.dim() != input2.dim() or input1.dim() != target.dim():
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
            f"{input1.size()}, input2: {input2.size()}, target: {target.size()} "
        )
    return _ops.margin_ranking_loss(input1, input2, target, margin, number)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """input where target is 1, max(0, margin - input) where it is -1."""
    return _ops.hinge_embedding_loss(input, target, margin, number_of(reduction, size_average, reduce))


def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: _Flag = None, reduce: _Flag = None, reduction: str = "mean"
) -> Tensor:
    """log(1 + exp(-target · input))."""
    return _ops.soft_margin_loss(input, target, number_of(reduction, size_average, reduce))


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos(input1, input2) where target is 1, max(0, cos(input1, input2) - margin) where it is -1."""
    return _ops.cosine_embedding_loss(input1, input2, target, margin, number_of(reduction, size_average, reduce))


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Optional[Tensor] = None,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over the wrong classes of max(0, margin - input[target] + input[class])^p."""
    number = number_of(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    return _ops.multi_margin_loss(input, target, p, margin, weight, number)


def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: _Flag = None, reduce: _Flag = None, reduction: str = "mean"
) -> Tensor:
    """The hinge between every class of target (its first entries, up to a -1) and every other class."""
    return _ops.multilabel_margin_loss(input, target, number_of(reduction, size_average, reduce))


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of binary_cross_entropy_with_logits."""
    return _ops.multilabel_soft_margin_loss(input, target, weight, number_of(reduction, size_average, reduce))


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: _Flag = None,
    reduce: _Flag = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, |anchor - positive| - |anchor - negative| + margin). swap: the nearer of anchor and positive counts."""
    number = number_of(reduction, size_average, reduce)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _ops.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, number)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Optional[Callable[[Tensor, Tensor], Tensor]] = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """triplet_margin_loss by a distance of one's own, pairwise_distance if None."""
    distance: Any = distance_function or _ops.pairwise_distance
    number = get_enum(reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    dims = anchor.dim(), positive.dim(), negative.dim()
    if len(set(dims)) > 1:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {dims[0]}D, positive {dims[1]}D, and negative {dims[2]}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = athanor.minimum(far, distance(positive, negative))
    return _reduced((margin + near - far).clamp_min(0), number)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification: log_probs (T, N, C) or (T, C), targets (N, S) or all in one row."""
    return _ops.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, get_enum(reduction), zero_infinity)
