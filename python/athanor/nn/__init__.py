"""Neural networks: Module and its parts, functional, init, utils; PyTorch's torch.nn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import functional as functional, init as init, modules as modules, utils as utils
from .modules import *  # noqa: F403
from .modules.module import (
    register_module_backward_hook as register_module_backward_hook,
    register_module_buffer_registration_hook as register_module_buffer_registration_hook,
    register_module_forward_hook as register_module_forward_hook,
    register_module_forward_pre_hook as register_module_forward_pre_hook,
    register_module_full_backward_hook as register_module_full_backward_hook,
    register_module_full_backward_pre_hook as register_module_full_backward_pre_hook,
    register_module_module_registration_hook as register_module_module_registration_hook,
    register_module_parameter_registration_hook as register_module_parameter_registration_hook,
)
from .parameter import (
    Buffer as Buffer,
    Parameter as Parameter,
    UninitializedBuffer as UninitializedBuffer,
    UninitializedParameter as UninitializedParameter,
)

# What needs other rooms of the library is loaded when it is asked for.
_LAZY = {"DataParallel": "parallel", "SyncBatchNorm": "parallel"}


if TYPE_CHECKING:
    from . import grad as grad, parallel as parallel
    from .parallel import DataParallel as DataParallel, SyncBatchNorm as SyncBatchNorm
else:

    def __getattr__(name: str) -> Any:
        import importlib

        if name in ("attention", "grad", "parallel"):
            try:
                return importlib.import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{__name__}.{name}":
                    raise
        elif name in _LAZY:
            return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def factory_kwargs(kwargs: dict) -> dict:
    """The device, dtype and memory_format among a layer's keyword arguments. TypeError for others."""
    out = dict(kwargs.pop("factory_kwargs", {})) if "factory_kwargs" in kwargs else {}
    unknown = set(kwargs) - {"device", "dtype", "memory_format"}
    if unknown:
        raise TypeError(f"unexpected kwargs {unknown}")
    both = set(out) & set(kwargs)
    if both:
        raise TypeError(f"{both} specified twice, in **kwargs and in factory_kwargs")
    out.update(kwargs)
    return out
