"""torch.autograd.gradcheck as a module; called, it is the function of that name."""
from __future__ import annotations

import sys
import types
from typing import Any

from .check import GradcheckError as GradcheckError, gradcheck as gradcheck, gradgradcheck as gradgradcheck


class _Module(types.ModuleType):
    """Importing a submodule makes it an attribute of its package, where the function is looked for."""

    def __call__(self, *args: Any, **kwargs: Any) -> bool:
        return gradcheck(*args, **kwargs)


sys.modules[__name__].__class__ = _Module
