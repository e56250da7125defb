"""Parameter and Buffer: tensors that a Module registers when they become its attributes."""

from __future__ import annotations

from typing import Any

import athanor
from athanor._C import Tensor

__all__ = ["Parameter", "Buffer"]


class Parameter(Tensor):
    """A tensor that belongs to the parameters of the module whose attribute it is.

    data: the values, shared and not copied; an empty tensor if None. requires_grad: whether gradients are recorded.
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = athanor.empty(0)
        elif not isinstance(data, Tensor):
            # The class that PyTorch's, too, raises: a list has no detach().
            raise AttributeError(
                f"'{type(data).__name__}' object has no attribute 'detach': Parameter expects a Tensor"
            )
        return Tensor._make_subclass(cls, data.detach(), requires_grad)

    # __new__ has done everything; what Tensor's own __init__ would make of the arguments must not happen.
    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        pass

    def __deepcopy__(self, memo: dict) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]
        result = type(self)(self.data.clone(), self.requires_grad)
        memo[id(self)] = result
        return result

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return _rebuild_parameter, (self.data, self.requires_grad, _hooks_of())


class Buffer(Tensor):
    """A tensor that becomes a buffer of the module whose attribute it is: moved and saved with it, but not trained.

    persistent: whether the module's state_dict contains it.
    """

    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = athanor.empty(0)
        elif not isinstance(data, Tensor):
            raise TypeError(f"Buffer: expected a Tensor or None as data, got {type(data).__name__}")
        result = Tensor._make_subclass(cls, data.detach(), data.requires_grad)
        result.persistent = persistent
        return result

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        pass

    def __deepcopy__(self, memo: dict) -> Buffer:
        if id(self) in memo:
            return memo[id(self)]
        result = type(self)(self.data.clone(), persistent=self.persistent)
        memo[id(self)] = result
        return result

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return _rebuild_buffer, (self.data, self.persistent)


def is_lazy(value: Any) -> bool:
    """False: there are no parameters without a shape here."""
    return False


def _hooks_of() -> Any:
    from collections import OrderedDict

    return OrderedDict()


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Parameter:
    return Parameter(data, requires_grad)


def _rebuild_buffer(data: Any, persistent: bool) -> Buffer:
    return Buffer(data, persistent=persistent)
