"""Normalizations."""

from __future__ import annotations

from typing import Any, Optional

import athanor
from athanor import _C
from athanor._C import Tensor

_ops = _C.ops
_batch_norm = _ops.batch_norm


def _verify_batch_size(size: Any) -> None:
    count = size[0]
    for n in size[2:]:
        count *= n
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")


def batch_norm(
    input: Tensor,
    running_mean: Optional[Tensor],
    running_var: Optional[Tensor],
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel of (N, C, *) by its mean and variance: the batch's in training, which then updates the running ones
    in place, else the running ones. ValueError for one value per channel in training.
    """
    if training:
        if eps <= 0:
            raise ValueError(f"batch_norm eps must be positive, but got {eps}")
        _verify_batch_size(input.size())
    return _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


def instance_norm(
    input: Tensor,
    running_mean: Optional[Tensor] = None,
    running_var: Optional[Tensor] = None,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel of each example of (N, C, *) by its own mean and variance, or by the running ones without
    use_input_stats."""
    if use_input_stats:
        spatial = 1
        for n in input.size()[2:]:
            spatial *= n
        if spatial == 1:
            raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.size()}")
    return _ops.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    eps: float = 1e-5,
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) · weight + bias over the last dims, which must be normalized_shape."""
    return _ops.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Optional[Tensor] = None, eps: Optional[float] = None
) -> Tensor:
    """input / sqrt(mean of squares + eps) · weight over the last dims. eps: the dtype's spacing at 1 unless given."""
    return _ops.rms_norm(input, normalized_shape, weight, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-5
) -> Tensor:
    """Each of num_groups groups of channels of each example of (N, C, *) by its own mean and variance."""
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
    _verify_batch_size([input.size(0) * input.size(1) // num_groups, num_groups, *input.size()[2:]])
    return _ops.group_norm(input, num_groups, weight, bias, eps)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """input (N, C, *) / (k + alpha · mean of squares of `size` channels around)^beta."""
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    if input.numel() == 0:
        return input
    squares = input.mul(input).reshape(input.size(0), 1, input.size(1), -1)
    padded = _ops.constant_pad_nd(squares, [0, 0, size // 2, (size - 1) // 2])
    mean = _ops.avg_pool2d(padded, [size, 1], 1).reshape(input.size())
    return input / mean.mul(alpha).add(k).pow(beta)


def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Optional[Tensor] = None) -> Tensor:
    """input divided by its p-norm along dim, which counts as eps if smaller."""
    norm = input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
    return input / norm if out is None else athanor.div(input, norm, out=out)
