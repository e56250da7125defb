"""Parameters and buffers computed from others by modules, each time they are read."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional

import athanor
from athanor._C import Tensor
from athanor.nn.modules.container import ModuleDict, ModuleList
from athanor.nn.modules.module import Module
from athanor.nn.parameter import Parameter

__all__ = [
    "cached",
    "ParametrizationList",
    "register_parametrization",
    "is_parametrized",
    "remove_parametrizations",
    "type_before_parametrizations",
]

_cache_depth = 0
_cache: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Within the block every parametrized tensor is computed once and then kept."""
    global _cache_depth
    _cache_depth += 1
    try:
        yield
    finally:
        _cache_depth -= 1
        if not _cache_depth:
            _cache.clear()


def _add(module: Module, name: str, value: Tensor) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, in their order, and what they start from: `original`, or original0,
    original1, … where right_inverse gives several tensors.
    """

    original: Tensor
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with athanor.no_grad():
            new: Any = original
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:
                        pass
        if not isinstance(new, Tensor) and not isinstance(new, Sequence):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if isinstance(new, Tensor):
            if original.dtype != new.dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {new.dtype}"
                )
            # The original stays the same object, so that optimizers that hold it go on.
            with athanor.no_grad():
                original.data = new.data
            _add(self, "original", original)
        else:
            for i, value in enumerate(new):
                if not isinstance(value, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                        f"Got element {i} of the sequence with type {type(value).__name__}."
                    )
                if isinstance(original, Parameter):
                    value = Parameter(value, original.requires_grad)
                _add(self, f"original{i}", value)
        if not self.unsafe:
            self._check(self(), shape, dtype, original)

    def _check(self, now: Any, shape: Any, dtype: Any, original: Tensor) -> None:
        what = "Registering a parametrization"
        if not isinstance(now, Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(now).__name__}.")
        if now.dtype != dtype:
            raise ValueError(
                f"{what} may not change the dtype of the tensor, unless `unsafe` flag is enabled.\n"
                f"unparametrized dtype: {dtype}\nparametrized dtype: {now.dtype}"
            )
        if tuple(now.shape) != tuple(shape):
            raise ValueError(
                f"{what} may not change the shape of the tensor, unless `unsafe` flag is enabled.\n"
                f"unparametrized shape: {shape}\nparametrized shape: {now.shape}"
            )

    def originals(self) -> list[Tensor]:
        """What the tensor is computed from."""
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Sets the originals so that the tensor becomes `value`: what an assignment to it does."""
        with athanor.no_grad():
            new: Any = value
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                new = module.right_inverse(new)
            values = [new] if isinstance(new, Tensor) else list(new)
            if len(values) != self.ntensors:
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors of length "
                    f"{self.ntensors}. Got a sequence of length {len(values)}."
                )
            for original, value in zip(self.originals(), values):
                if not isinstance(value, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
                if original.dtype != value.dtype:
                    raise ValueError(
                        f"The tensor returned by `right_inverse` has dtype {value.dtype} while `original` has dtype "
                        f"{original.dtype}"
                    )
                original.data = value.data

    def forward(self) -> Tensor:
        first, *rest = list(self)
        x = first(*self.originals())
        for module in rest:
            x = module(x)
        return x


def _inject_class(module: Module) -> None:
    """Gives the module a class of its own, which can have properties."""
    cls = type(module)

    def __deepcopy__(self: Any, memo: dict) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        out = self.__new__(type(self))
        memo[id(self)] = out
        out.__dict__ = copy.deepcopy(self.__dict__, memo)
        return out

    def __reduce_ex__(self: Any, protocol: int) -> Any:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict(). See the notes on saving and "
            "loading of models"
        )

    param_cls = type(
        f"Parametrized{cls.__name__}",
        (cls,),
        {"__deepcopy__": __deepcopy__, "__reduce_ex__": __reduce_ex__, "__module__": cls.__module__},
    )
    module.__class__ = param_cls


def _inject_property(module: Module, name: str) -> None:
    def get(self: Any) -> Tensor:
        parametrization = self.parametrizations[name]
        if not _cache_depth:
            return parametrization()
        key = id(self), name
        if key not in _cache:
            _cache[key] = parametrization()
        return _cache[key]

    def put(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, put))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Makes a parameter or buffer the result of `parametrization`, called with the former value, which is kept as
    module.parametrizations[tensor_name].original. Several are called one after the other.

    parametrization.right_inverse, if there is one, gives the original for a value: it is called now and when the
    tensor is assigned to. Unless unsafe, shape and dtype must stay (ValueError).
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        existing = module.parametrizations[tensor_name]
        if not unsafe:
            with athanor.no_grad():
                now = getattr(module, tensor_name)
                there = parametrization(now)
                existing._check(there, now.shape, now.dtype, now)
                if hasattr(parametrization, "right_inverse"):
                    back = parametrization.right_inverse(there)
                    if not isinstance(back, Tensor):
                        raise ValueError(
                            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}"
                        )
                    if back.dtype != now.dtype or back.shape != now.shape:
                        raise ValueError(
                            "The tensor returned by parametrization.right_inverse must have the dtype and shape of "
                            f"`{tensor_name}`, {now.dtype} and {tuple(now.shape)}; got {back.dtype} and "
                            f"{tuple(back.shape)}"
                        )
        existing.append(parametrization)
        existing.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        made = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = made
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def is_parametrized(module: Module, tensor_name: Optional[str] = None) -> bool:
    """Whether the module, or one of its tensors, is parametrized."""
    parametrizations = module.__dict__.get("_modules", {}).get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes a tensor a plain one again: with its present value, or, without leave_parametrized, with its original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    made = module.parametrizations[tensor_name]
    if made.is_tensor:
        original = made.original
        if leave_parametrized:
            with athanor.no_grad():
                original.data = getattr(module, tensor_name).data
    else:
        if not leave_parametrized:
            raise ValueError(
                "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
                "sequence of tensors."
            )
        value = getattr(module, tensor_name).detach()
        trained = any(isinstance(t, Parameter) for t in made.originals())
        original = Parameter(value) if trained else value
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _add(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The module's class as it was written."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: Optional[str] = None
) -> Module:
    """Gives to_module the parametrizations of from_module, with copies of their originals."""
    names = [tensor_name] if tensor_name is not None else list(getattr(from_module, "parametrizations", {}))
    for name in names:
        if not is_parametrized(from_module, name):
            continue
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for parametrization in from_module.parametrizations[name]:
            register_parametrization(to_module, name, parametrization)
        pairs = zip(from_module.parametrizations[name].originals(), to_module.parametrizations[name].originals())
        with athanor.no_grad():
            for old, new in pairs:
                new.copy_(old)
    return to_module
