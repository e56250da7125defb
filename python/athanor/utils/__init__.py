"""What goes around training: data loading and more. Submodules are imported when they are first used."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

_here = os.path.dirname(__file__)


if TYPE_CHECKING:
    from . import checkpoint as checkpoint, data as data, dlpack as dlpack, tensorboard as tensorboard
    from ._summary import summary as summary
else:

    def __getattr__(name: str) -> Any:
        if not name.startswith("_") and (
            os.path.isdir(os.path.join(_here, name)) or os.path.exists(os.path.join(_here, name + ".py"))
        ):
            return importlib.import_module(f"{__name__}.{name}")
        if name == "summary":
            from ._summary import summary

            return summary
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
