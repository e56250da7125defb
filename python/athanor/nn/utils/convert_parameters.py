"""Parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import athanor
from athanor._C import Tensor


def _check_device(device: Any, param: Tensor) -> Any:
    if device is not None and param.device != device:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")
    return param.device


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters flattened into one vector. TypeError if they are on different devices."""
    device = None
    parts = []
    for param in parameters:
        device = _check_device(device, param)
        parts.append(param.reshape(-1))
    return athanor.cat(parts)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Makes the parameters views of the pieces of `vec`, in order."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec)}")
    device = None
    start = 0
    for param in parameters:
        device = _check_device(device, param)
        count = param.numel()
        param.data = vec[start : start + count].view_as(param).data
        start += count
