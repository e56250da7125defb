"""Overriding of functions by classes: there is none here, and programs that ask learn that nothing is overridden."""
from __future__ import annotations

from typing import Any, Iterable

from ._C import Tensor

__all__ = ["has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "is_tensor_like",
           "is_tensor_method_or_property"]


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """False."""
    return False


def has_torch_function_unary(tensor: Any) -> bool:
    """False."""
    return False


def has_torch_function_variadic(*tensors: Any) -> bool:
    """False."""
    return False


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(inp, Tensor)


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether it is a method or a property of Tensor."""
    name = getattr(func, "__name__", None)
    return name is not None and getattr(Tensor, name, None) is func
