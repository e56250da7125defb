"""Where a module's tensors lie and of what kind they are: to(), half(), train(), requires_grad_() and their like."""

from __future__ import annotations

from typing import Any, Callable, Optional, TypeVar, Union

import athanor
from athanor._C import Tensor
from athanor.nn.parameter import Parameter, is_lazy

T = TypeVar("T", bound="PlacementMixin")


def _to_arguments(args: tuple, kwargs: dict) -> tuple[Any, Any, bool, Any]:
    """device, dtype, non_blocking and memory_format out of the arguments of Module.to()."""
    device = dtype = None
    non_blocking = False
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
        device, dtype = other.device, other.dtype
    elif rest and isinstance(rest[0], athanor.dtype):
        dtype = rest.pop(0)
    elif rest:
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], athanor.dtype)):
            dtype = rest.pop(0)
        elif rest:
            raise TypeError(f"to() takes a device and then a dtype, got {type(rest[0]).__name__} as the second argument")
    if rest:
        non_blocking = bool(rest.pop(0))
    known = {"device", "dtype", "non_blocking", "memory_format", "tensor"}
    for name in kwargs:
        if name not in known:
            raise TypeError(f"to() got an unexpected keyword argument '{name}'")
    if rest:
        raise TypeError(f"to() takes a device, a dtype, both or a tensor, then non_blocking; got {len(args)} arguments")
    if "tensor" in kwargs:
        device, dtype = kwargs["tensor"].device, kwargs["tensor"].dtype
    device = kwargs.get("device", device)
    dtype = kwargs.get("dtype", dtype)
    if device is not None and not isinstance(device, athanor.device):
        device = athanor.device(device)
    if dtype is not None and not dtype.is_floating_point:
        raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")
    return device, dtype, kwargs.get("non_blocking", non_blocking), kwargs.get("memory_format")


class PlacementMixin:
    """The part of Module that goes over all tensors and changes them."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    children: Callable[..., Any]
    parameters: Callable[..., Any]

    def _apply(self: T, fn: Callable, recurse: bool = True) -> T:
        """Puts fn(tensor) in the place of every parameter, gradient and buffer; parameters and gradients
        stay the same objects."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for param in self._parameters.values():
            if param is None:
                continue
            with athanor.no_grad():
                param.data = fn(param.data)
                if param.grad is not None:
                    param.grad.data = fn(param.grad.data)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def apply(self: T, fn: Callable[[Any], None]) -> T:
        """Calls fn(module) for every submodule, then for the module itself."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Moves all parameters and buffers to a device and floating ones to a dtype, in place: to(device, dtype,
        non_blocking), to(dtype), to(tensor), memory_format=. TypeError for a dtype that is not floating.
        """
        device, dtype, non_blocking, memory_format = _to_arguments(args, kwargs)

        def convert(t: Any) -> Any:
            options: dict = {}
            if memory_format is not None and t.dim() in (4, 5):
                options["memory_format"] = memory_format
            wanted = dtype if dtype is not None and t.is_floating_point() else t.dtype
            return t.to(t.device if device is None else device, wanted, non_blocking, **options)

        return self._apply(convert)

    def _cast(self: T, dtype: Any) -> T:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def type(self: T, dst_type: Any) -> T:
        """Casts all parameters and buffers to dst_type, those of integers too."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self: T) -> T:
        """Casts floating parameters and buffers to float32."""
        return self._cast(athanor.float32)

    def double(self: T) -> T:
        """Casts floating parameters and buffers to float64."""
        return self._cast(athanor.float64)

    def half(self: T) -> T:
        """Casts floating parameters and buffers to float16."""
        return self._cast(athanor.float16)

    def bfloat16(self: T) -> T:
        """Casts floating parameters and buffers to bfloat16."""
        return self._cast(athanor.bfloat16)

    def cuda(self: T, device: Union[int, Any, None] = None) -> T:
        """Moves all parameters and buffers to a GPU, the current one unless given."""
        return self._apply(lambda t: t.cuda(device))

    def cpu(self: T) -> T:
        """Moves all parameters and buffers to the host."""
        return self._apply(lambda t: t.cpu())

    def to_empty(self: T, *, device: Any, recurse: bool = True) -> T:
        """Puts uninitialized tensors on `device` in the place of all parameters and buffers."""
        return self._apply(lambda t: athanor.empty_like(t, device=device), recurse=recurse)

    def share_memory(self: T) -> T:
        """Moves all parameters and buffers to memory that other processes may share."""
        for param in self.parameters():
            if is_lazy(param):
                param.share_memory_()  # raises
        return self._apply(lambda t: t.share_memory_())

    def train(self: T, mode: bool = True) -> T:
        """Sets the mode of training, or of evaluation, for the module and all below it."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: T) -> T:
        """Sets the mode of evaluation: train(False)."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Whether gradients are recorded for the module's parameters."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all parameters, or sets them to 0."""
        for param in self.parameters():
            if param.grad is not None:
                if set_to_none:
                    param.grad = None
                else:
                    param.grad = param.grad.detach() if param.grad.grad_fn is not None else param.grad
                    param.grad.zero_()

    def compile(self, *args: Any, **kwargs: Any) -> Optional[Any]:
        """Nothing: there is no compiler here, and the module runs as it is."""
        return None
