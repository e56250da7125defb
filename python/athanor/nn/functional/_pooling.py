"""Pooling and its way back."""

from __future__ import annotations

import math
from typing import Any, Optional

import athanor
from athanor import _C
from athanor._C import Tensor

from ._conv import _spread

_ops = _C.ops

avg_pool1d = _ops.avg_pool1d
adaptive_avg_pool1d = _ops.adaptive_avg_pool1d
_max_pool = {1: _ops.max_pool1d, 2: _ops.max_pool2d, 3: _ops.max_pool3d}
_max_pool2d = _ops.max_pool2d
_max_pool_indices = {1: _ops.max_pool1d_with_indices, 2: _ops.max_pool2d_with_indices, 3: _ops.max_pool3d_with_indices}
_avg_pool = {1: _ops.avg_pool1d, 2: _ops.avg_pool2d, 3: _ops.avg_pool3d}
_adaptive_avg = {2: _ops.adaptive_avg_pool2d, 3: _ops.adaptive_avg_pool3d}
_adaptive_max = {1: _ops.adaptive_max_pool1d, 2: _ops.adaptive_max_pool2d, 3: _ops.adaptive_max_pool3d}


def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of every window of (N, C, L) or (C, L). return_indices: (values, places) instead."""
    pool = _max_pool_indices if return_indices else _max_pool
    return pool[1](input, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)


def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of every window of (N, C, H, W) or (C, H, W). return_indices: (values, places) instead."""
    if return_indices:
        return max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool2d(input, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)


def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of every window of (N, C, D, H, W) or (C, D, H, W). return_indices: (values, places) instead."""
    pool = _max_pool_indices if return_indices else _max_pool
    return pool[3](input, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """max_pool1d and the places of what it chose."""
    return _max_pool_indices[1](input, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """max_pool2d and the places of what it chose, in the flattened plane."""
    return _max_pool_indices[2](input, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """max_pool3d and the places of what it chose, in the flattened volume."""
    return _max_pool_indices[3](input, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)


def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Optional[int] = None,
) -> Tensor:
    """The mean of every window of (N, C, H, W) or (C, H, W)."""
    stride = () if stride is None else stride
    return _avg_pool[2](input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Optional[int] = None,
) -> Tensor:
    """The mean of every window of (N, C, D, H, W) or (C, D, H, W)."""
    stride = () if stride is None else stride
    return _avg_pool[3](input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _output_sizes(input: Tensor, wanted: Any, n: int) -> list[int]:
    """output_size with the input's own size where it is None."""
    sizes = [wanted] * n if wanted is None or isinstance(wanted, int) else list(wanted)
    if len(sizes) == 1:
        sizes *= n
    own = list(input.shape)[-n:]
    if len(sizes) != n or len(own) < n:
        raise ValueError("Input dimension should be at least " + str(len(sizes) + 1))
    return [o if s is None else s for s, o in zip(sizes, own)]


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means of as many windows as output_size asks for; None keeps a dim's size."""
    return _adaptive_avg[2](input, _output_sizes(input, output_size, 2))


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means of as many windows as output_size asks for; None keeps a dim's size."""
    return _adaptive_avg[3](input, _output_sizes(input, output_size, 3))


def _adaptive_max_pool(n: int, input: Tensor, output_size: Any, return_indices: bool) -> Any:
    out = _adaptive_max[n](input, _output_sizes(input, output_size, n))
    return out if return_indices else out[0]


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest of as many windows as output_size asks for. return_indices: (values, places) instead."""
    return _adaptive_max_pool(1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest of as many windows as output_size asks for. return_indices: (values, places) instead."""
    return _adaptive_max_pool(2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest of as many windows as output_size asks for. return_indices: (values, places) instead."""
    return _adaptive_max_pool(3, input, output_size, return_indices)


def adaptive_max_pool1d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """adaptive_max_pool1d and the places of what it chose."""
    return _adaptive_max_pool(1, input, output_size, True)


def adaptive_max_pool2d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """adaptive_max_pool2d and the places of what it chose."""
    return _adaptive_max_pool(2, input, output_size, True)


def adaptive_max_pool3d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """adaptive_max_pool3d and the places of what it chose."""
    return _adaptive_max_pool(3, input, output_size, True)


def _lp_pool(n: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Tensor:
    kernel = _spread(kernel_size, n)
    if norm_type == 0:
        raise ValueError(f"norm_type must be a non-zero value, but got {norm_type}")
    if math.isinf(norm_type):
        sign = 1 if norm_type > 0 else -1
        return _max_pool[n](input.abs() * sign, kernel, () if stride is None else stride, 0, 1, ceil_mode) * sign
    taps = 1
    for k in kernel:
        taps *= k
    mean = _avg_pool[n](input.pow(norm_type), kernel, () if stride is None else stride, 0, ceil_mode)
    return (mean.sign() * mean.abs().relu()).mul(taps).pow(1.0 / norm_type)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x^norm_type)^(1 / norm_type) of every window of (N, C, L) or (C, L); the greatest |x| for inf."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x^norm_type)^(1 / norm_type) of every window of (N, C, H, W) or (C, H, W)."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x^norm_type)^(1 / norm_type) of every window of (N, C, D, H, W) or (C, D, H, W)."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _unpooled_size(input: Tensor, kernel_size: list, stride: list, padding: list, output_size: Any) -> list[int]:
    """The spatial sizes of the result: those asked for, if max pooling could have made this input from them."""
    n = len(kernel_size)
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(f"max_unpool{n}d: expected {n + 1}D or {n + 2}D input, got shape {tuple(input.shape)}")
    usual = [(size - 1) * s + k - 2 * p for size, s, k, p in zip(list(input.shape)[-n:], stride, kernel_size, padding)]
    if output_size is None:
        return usual
    wanted = list(output_size)
    if len(wanted) == n + 2:
        wanted = wanted[2:]
    if len(wanted) != n:
        raise ValueError(
            f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a length of "
            f"'{len(output_size)}'"
        )
    for d in range(n):
        least, most = usual[d] - stride[d], usual[d] + stride[d]
        if not least < wanted[d] < most:
            raise ValueError(f'invalid output_size "{wanted}" (dim {d} must be between {least} and {most})')
    return wanted


def _unpool_arguments(n: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any) -> tuple:
    kernel = _spread(kernel_size, n)
    steps = kernel if stride is None else _spread(stride, n)
    pads = _spread(padding, n)
    return _unpooled_size(input, kernel, steps, pads, output_size), steps, pads


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """What max_pool1d chose back where it was, zeros elsewhere. output_size: one of those the stride leaves open."""
    size, _, _ = _unpool_arguments(1, input, kernel_size, stride, padding, output_size)
    return _ops.max_unpool2d(input.unsqueeze(-2), indices.unsqueeze(-2), [1, size[0]]).squeeze(-2)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """What max_pool2d chose back where it was, zeros elsewhere. output_size: one of those the stride leaves open."""
    size, _, _ = _unpool_arguments(2, input, kernel_size, stride, padding, output_size)
    return _ops.max_unpool2d(input, indices, size)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """What max_pool3d chose back where it was, zeros elsewhere. output_size: one of those the stride leaves open."""
    return _ops.max_unpool3d(input, indices, *_unpool_arguments(3, input, kernel_size, stride, padding, output_size))


def _fractional(
    n: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Optional[Tensor]
) -> tuple[Tensor, Tensor]:
    if output_size is None and output_ratio is None:
        raise ValueError(f"fractional_max_pool{n}d requires specifying either an output_size or an output_ratio")
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(
            f"fractional_max_pool{n}d: expected {n + 1}D or {n + 2}D input, got shape {tuple(input.shape)}"
        )
    if output_size is None:
        ratios = [output_ratio] * n if isinstance(output_ratio, (int, float)) else list(output_ratio)
        output_size = [int(size * ratio) for size, ratio in zip(list(input.shape)[-n:], ratios)]
    if samples is None:
        batch = 1 if input.dim() == n + 1 else input.size(0)
        samples = athanor.rand(batch, input.size(-n - 1), n, dtype=input.dtype, device=input.device)
    elif input.dim() == n + 1 and samples.dim() == 3:
        samples = samples[:1]  # made for a batch: its first example's are taken
    if input.dim() == n + 2 and input.size(0) == 0 and input.numel() == 0 and 0 not in input.shape[1:]:
        # No examples: pooling one tells what shape none of them have.
        one = input.new_zeros((1, *input.shape[1:]))
        values, places = _fractional(n, one, kernel_size, output_size, None, None)
        return (input.sum() * values)[:0], places[:0]
    pool = _ops.fractional_max_pool2d if n == 2 else _ops.fractional_max_pool3d
    return pool(input, _spread(kernel_size, n), _spread(output_size, n), samples)


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Optional[Tensor] = None,
) -> tuple[Tensor, Tensor]:
    """fractional_max_pool2d and the places of what it chose."""
    return _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Optional[Tensor] = None,
) -> tuple[Tensor, Tensor]:
    """fractional_max_pool3d and the places of what it chose."""
    return _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Optional[Tensor] = None,
) -> Any:
    """The greatest of windows at random places (Graham, 2014). return_indices: (values, places) instead."""
    out = _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return out if return_indices else out[0]


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Optional[Tensor] = None,
) -> Any:
    """The greatest of windows at random places (Graham, 2014). return_indices: (values, places) instead."""
    out = _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return out if return_indices else out[0]
