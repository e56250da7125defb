"""Parameter and Buffer: tensors that a Module registers when they become its attributes."""

from __future__ import annotations

from typing import Any

import athanor
from athanor._C import Tensor

__all__ = ["Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer"]


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


class UninitializedTensorMixin:
    """What parameters and buffers without a shape share. They can be moved, cast, copied and saved; whatever needs
    values raises ValueError until materialize() was called.
    """

    cls_to_become: Any = None

    def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Gives the tensor a shape and memory, whose values are for the caller to set, and makes it an ordinary one.
        device, dtype: its own unless given.
        """
        data = self.data
        self.data = athanor.empty(
            shape, device=data.device if device is None else device, dtype=data.dtype if dtype is None else dtype
        )
        self.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer: it gets one in the first forward. A "
            "load_state_dict() that reads an uninitialized parameter into an initialized one ends here, too"
        )

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer: call forward before module.share_memory()"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self: Any, memo: dict) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        result = memo[id(self)] = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        return result

    def __reduce_ex__(self: Any, protocol: Any) -> tuple:
        return type(self), (self.requires_grad, self.data.device, self.data.dtype)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is not known yet: materialize(shape) makes it a Parameter."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return Tensor._make_subclass(cls, athanor.empty(0, device=device, dtype=dtype), requires_grad)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        pass


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A buffer whose shape is not known yet: materialize(shape) makes it a Buffer."""

    cls_to_become = Buffer
    persistent = True

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        result = Tensor._make_subclass(cls, athanor.empty(0, device=device, dtype=dtype), requires_grad)
        result.persistent = persistent
        return result

    def __init__(
        self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> None:
        pass


#: What an uninitialized tensor can do: what asks for no values and no shape.
_WITHOUT_VALUES = {
    "cpu", "cuda", "data", "device", "dtype", "get_device", "grad", "grad_fn", "half", "is_cpu", "is_cuda", "is_leaf",
    "itemsize", "layout", "names", "ndim", "register_hook", "register_post_accumulate_grad_hook", "requires_grad",
    "requires_grad_", "retains_grad", "to", "type", "share_memory_", "shape",
}  # fmt: skip


def _refusing(name: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(
            f"{name}: attempted to use an uninitialized parameter, whose shape is not known. A lazy module has to be "
            "called once with an example before its parameters are used"
        )

    return refuse


for _name in dir(Tensor):
    _arithmetic = _name.strip("_") in ("add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv matmul "
                                       "rmatmul neg pow rpow getitem setitem len float int bool iter array".split())  # fmt: skip
    if (not _name.startswith("_") and _name not in _WITHOUT_VALUES or _arithmetic and _name.startswith("__")) and callable(
        getattr(Tensor, _name)
    ):
        setattr(UninitializedTensorMixin, _name, _refusing(_name))


def is_lazy(value: Any) -> bool:
    """Whether it is a parameter or buffer without a shape, of a lazy module that was not called yet."""
    return isinstance(value, UninitializedTensorMixin)


def _hooks_of() -> Any:
    from collections import OrderedDict

    return OrderedDict()


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Parameter:
    return Parameter(data, requires_grad)


def _rebuild_buffer(data: Any, persistent: bool) -> Buffer:
    return Buffer(data, persistent=persistent)
