"""torchvision's datasets, transforms and models, as far as this library has them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_SUBMODULES = ("datasets", "io", "models", "transforms", "utils")


if TYPE_CHECKING:
    from . import datasets as datasets, io as io, models as models, transforms as transforms, utils as utils
else:

    def __getattr__(name: str) -> Any:
        if name in _SUBMODULES:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
