"""The old home of autocast and GradScaler."""
from __future__ import annotations

from typing import Any

from .. import amp as _amp
from .._C import bfloat16


class autocast(_amp.autocast):  # type: ignore[misc]
    """autocast("cpu", ...)."""

    def __init__(self, enabled: bool = True, dtype: Any = bfloat16, cache_enabled: bool = True):
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


GradScaler = _amp.GradScaler
