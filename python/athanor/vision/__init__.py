"""torchvision's datasets, transforms and models, as far as this library has them."""

from __future__ import annotations

import importlib
from typing import Any

_SUBMODULES = ("datasets", "io", "models", "transforms")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
