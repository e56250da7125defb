"""Padding layers. padding: one number for all sides, or two per spatial dim, those of the last dim first."""

from __future__ import annotations

from typing import Any

from athanor._C import Tensor
from athanor.nn import functional as F

from .module import Module
from .utils import _ntuple

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _PadNd(Module):
    __constants__ = ["padding"]
    _dims = 0
    _mode = ""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._dims)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    __constants__ = ["padding", "value"]
    _mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Adds `value` around (N, C, L) or (C, L)."""

    _dims = 1


class ConstantPad2d(_ConstantPadNd):
    """Adds `value` around (N, C, H, W) or (C, H, W)."""

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Adds `value` around (N, C, D, H, W) or (C, D, H, W)."""

    _dims = 3


class _ZeroPadNd(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_ZeroPadNd):
    """Adds zeros around (N, C, L) or (C, L)."""

    _dims = 1


class ZeroPad2d(_ZeroPadNd):
    """Adds zeros around (N, C, H, W) or (C, H, W)."""

    _dims = 2


class ZeroPad3d(_ZeroPadNd):
    """Adds zeros around (N, C, D, H, W) or (C, D, H, W)."""

    _dims = 3


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Mirrors (N, C, L) or (C, L) at its edges, which are not repeated."""

    _dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Mirrors (N, C, H, W) or (C, H, W) at its edges, which are not repeated."""

    _dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Mirrors (N, C, D, H, W) or (C, D, H, W) at its edges, which are not repeated."""

    _dims = 3


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Repeats the edges of (N, C, L) or (C, L)."""

    _dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Repeats the edges of (N, C, H, W) or (C, H, W)."""

    _dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Repeats the edges of (N, C, D, H, W) or (C, D, H, W)."""

    _dims = 3


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (self._dims + 1, self._dims + 2):
            raise ValueError(f"expected {self._dims + 1}D or {self._dims + 2}D input (got {input.dim()}D input)")
        return F.pad(input, self.padding, "circular")


class CircularPad1d(_CircularPadNd):
    """Continues (N, C, L) or (C, L) by its other end."""

    _dims = 1


class CircularPad2d(_CircularPadNd):
    """Continues (N, C, H, W) or (C, H, W) by its other end."""

    _dims = 2


class CircularPad3d(_CircularPadNd):
    """Continues (N, C, D, H, W) or (C, D, H, W) by its other end."""

    _dims = 3
