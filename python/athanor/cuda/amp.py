"""The old home of autocast and GradScaler."""
from __future__ import annotations

from typing import Any

from .. import amp as _amp
from .._C import float16


class autocast(_amp.autocast):  # type: ignore[misc]
    """autocast("cuda", ...)."""

    def __init__(self, enabled: bool = True, dtype: Any = float16, cache_enabled: bool = True):
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


GradScaler = _amp.GradScaler
custom_fwd = _amp.custom_fwd
custom_bwd = _amp.custom_bwd
