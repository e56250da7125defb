"""Convolutions and what unrolls their windows."""

from __future__ import annotations

from typing import Any, Optional

from athanor import _C
from athanor._C import Tensor

_ops = _C.ops

conv_transpose1d = _ops.conv_transpose1d
conv_transpose2d = _ops.conv_transpose2d
conv_transpose3d = _ops.conv_transpose3d
_CONV = {1: _ops.conv1d, 2: _ops.conv2d, 3: _ops.conv3d}
_conv1d, _conv2d, _conv3d = _ops.conv1d, _ops.conv2d, _ops.conv3d


def _spread(value: Any, n: int) -> list:
    return [value] * n if isinstance(value, int) else list(value) * (n if len(value) == 1 else 1)


def _named(
    n: int, input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: str, dilation: Any, groups: int
) -> Any:
    """A convolution with padding "same" or "valid"."""
    if padding == "valid":
        return _CONV[n](input, weight, bias, stride, 0, dilation, groups)
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    if any(s != 1 for s in _spread(stride, n)):
        raise RuntimeError(f"padding='same' is not supported for strided convolutions, got stride {stride}")
    if weight.dim() != n + 2:
        raise RuntimeError(f"conv{n}d: expected a weight of {n + 2} dims, got shape {tuple(weight.shape)}")
    total = [d * (k - 1) for d, k in zip(_spread(dilation, n), weight.shape[2:])]
    # What one side needs beyond the other is padded apart.
    if any(t % 2 for t in total):
        uneven = []
        for t in reversed(total):
            uneven += [0, t % 2]
        input = _ops.constant_pad_nd(input, uneven)
    return _CONV[n](input, weight, bias, stride, [t // 2 for t in total], dilation, groups)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """input (N, C, L) or (C, L), weight (out, C / groups, k). padding: numbers, "same" or "valid"."""
    if padding.__class__ is str:
        return _named(1, input, weight, bias, stride, padding, dilation, groups)
    return _conv1d(input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """input (N, C, H, W) or (C, H, W), weight (out, C / groups, kh, kw). padding: numbers, "same" or "valid"."""
    if padding.__class__ is str:
        return _named(2, input, weight, bias, stride, padding, dilation, groups)
    return _conv2d(input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """input (N, C, D, H, W) or (C, D, H, W), weight (out, C / groups, kd, kh, kw). padding: as conv2d."""
    if padding.__class__ is str:
        return _named(3, input, weight, bias, stride, padding, dilation, groups)
    return _conv3d(input, weight, bias, stride, padding, dilation, groups)


def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The windows of images (N, C, H, W) as columns (N, C kh kw, windows)."""
    return _ops.im2col(input, *(_spread(v, 2) for v in (kernel_size, dilation, padding, stride)))


def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Columns (N, C kh kw, windows) added up to images (N, C, H, W) of output_size."""
    return _ops.col2im(input, *(_spread(v, 2) for v in (output_size, kernel_size, dilation, padding, stride)))
