"""The gradients of convolutions, without a graph to take them from."""

from __future__ import annotations

from typing import Any, Callable

import athanor
from athanor._C import Tensor
from athanor.nn import functional as F

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _gradient(of: Callable[[Tensor], Tensor], sizes: Any, like: Tensor, grad_output: Tensor) -> Tensor:
    """of is linear, so its gradient is the same everywhere: it is taken at zero."""
    graph = athanor.is_grad_enabled() and (like.requires_grad or grad_output.requires_grad)
    with athanor.enable_grad():
        at = athanor.zeros(sizes, dtype=like.dtype, device=like.device, requires_grad=True)
        return athanor.autograd.grad(of(at), at, grad_output, create_graph=graph)[0]


def _of_input(conv: Callable, name: str) -> Callable:
    def gradient(
        input_size: Any,
        weight: Tensor,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        if input_size is None:
            raise ValueError(f"grad.{name} requires specifying an input_size")

        def of(x: Tensor) -> Tensor:
            return conv(x, weight, None, stride, padding, dilation, groups)

        return _gradient(of, input_size, weight, grad_output)

    gradient.__name__ = gradient.__qualname__ = name
    gradient.__doc__ = f"The gradient of {conv.__name__} with respect to an input of input_size, given the result's."
    return gradient


def _of_weight(conv: Callable, name: str) -> Callable:
    def gradient(
        input: Tensor,
        weight_size: Any,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        def of(w: Tensor) -> Tensor:
            return conv(input, w, None, stride, padding, dilation, groups)

        return _gradient(of, weight_size, input, grad_output)

    gradient.__name__ = gradient.__qualname__ = name
    gradient.__doc__ = f"The gradient of {conv.__name__} with respect to a weight of weight_size, given the result's."
    return gradient


conv1d_input = _of_input(F.conv1d, "conv1d_input")
conv2d_input = _of_input(F.conv2d, "conv2d_input")
conv3d_input = _of_input(F.conv3d, "conv3d_input")
conv1d_weight = _of_weight(F.conv1d, "conv1d_weight")
conv2d_weight = _of_weight(F.conv2d, "conv2d_weight")
conv3d_weight = _of_weight(F.conv3d, "conv3d_weight")
