"""Modules without first values."""

from __future__ import annotations

from typing import Any


def skip_init(module_cls: type, *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters are left as memory was, for those that will be overwritten anyway. The class must take
    `device` and hand it to its parameters, buffers and submodules.
    """
    import inspect  # slow to load, and seldom wanted

    from athanor.nn.modules.module import Module

    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", "cpu")
    module = module_cls(*args, **kwargs)
    return module.to_empty(device=device)
