"""Clipping of gradients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any, Optional, Union

import athanor
from athanor import _C
from athanor._C import Tensor

_Parameters = Union[Tensor, Iterable[Tensor]]


def _gradients(parameters: _Parameters) -> list[Tensor]:
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p.grad for p in parameters if p.grad is not None]


def get_total_norm(
    tensors: _Parameters, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: Optional[bool] = None
) -> Tensor:
    """The norm of all tensors taken as one vector. RuntimeError for one that is not finite with error_if_nonfinite."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return athanor.tensor(0.0)
    total = _C._total_norm(tensors, norm_type)
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    parameters: _Parameters, max_norm: float, total_norm: Tensor, foreach: Optional[bool] = None
) -> None:
    """Scales the gradients in place as if total_norm were their common norm, so that it becomes at most max_norm."""
    scale = float(max_norm) / (float(total_norm) + 1e-6)
    # A norm that is not a number spoils every gradient, as it should.
    if scale < 1.0 or math.isnan(scale):
        _C._scale_all_(_gradients(parameters), scale)


def clip_grad_norm_(
    parameters: _Parameters,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: Optional[bool] = None,
) -> Tensor:
    """Scales the gradients in place so that their common norm is at most max_norm; gives the norm before. norm_type may
    be math.inf."""
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    else:
        is_generator = not hasattr(parameters, "__len__")
        parameters = list(parameters)
        if is_generator and not parameters:
            warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grad_norm(parameters: _Parameters, max_norm: float, norm_type: float = 2.0, *args: Any, **kwargs: Any) -> Any:
    """The old name of clip_grad_norm_()."""
    warnings.warn(
        "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.", FutureWarning, 2
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, *args, **kwargs)


def clip_grad_value_(parameters: _Parameters, clip_value: float, foreach: Optional[bool] = None) -> None:
    """Limits every gradient element to [-clip_value, clip_value], in place."""
    clip_value = float(clip_value)
    with athanor.no_grad():
        for grad in _gradients(parameters):
            grad.clamp_(-clip_value, clip_value)
