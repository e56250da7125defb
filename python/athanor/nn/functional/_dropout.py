"""Dropout in all its forms."""

from __future__ import annotations

import warnings
from typing import Any

from athanor import _C
from athanor._C import Tensor

_ops = _C.ops
_dropout, _dropout_ = _ops.dropout, _ops.dropout_


def _check(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zeroes elements with probability p and divides the others by 1 - p."""
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return _dropout_(input, p, training) if inplace else _dropout(input, p, training)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of what selu gives."""
    _check(p)
    return (_ops.alpha_dropout_ if inplace else _ops.alpha_dropout)(input, p, training)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """alpha_dropout of whole channels."""
    _check(p)
    return (_ops.feature_alpha_dropout_ if inplace else _ops.feature_alpha_dropout)(input, p, training)


def _drop_channels(input: Tensor, p: float, training: bool, inplace: bool, alone: bool) -> Any:
    given = input.unsqueeze(0) if alone else input
    out = (_ops.feature_dropout_ if inplace else _ops.feature_dropout)(given, p, training)
    if inplace:
        return input
    return out.squeeze(0) if alone else out


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """dropout of whole channels of (N, C, L) or (C, L)."""
    _check(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that dropout1d exists to "
            "provide channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional "
            "batch dimension (i.e. 2D or 3D inputs)."
        )
    return _drop_channels(input, p, training, inplace, input.dim() == 2)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """dropout of whole channels of (N, C, H, W). (C, H, W) counts as a batch (N, C, L), with a warning."""
    _check(p)
    if input.dim() not in (3, 4):
        warnings.warn(f"dropout2d: Received a {input.dim()}-D input to dropout2d, expected (N, C, H, W)", stacklevel=2)
    elif input.dim() == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired "
            "- input is interpreted as shape (N, C, L), where C is the channel dim.",
            stacklevel=2,
        )
    return _drop_channels(input, p, training, inplace, False)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """dropout of whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    _check(p)
    if input.dim() not in (4, 5):
        warnings.warn(
            f"dropout3d: Received a {input.dim()}-D input to dropout3d, expected (N, C, D, H, W)", stacklevel=2
        )
    return _drop_channels(input, p, training, inplace, input.dim() == 4)
